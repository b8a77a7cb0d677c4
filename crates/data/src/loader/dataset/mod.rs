//! A data set: its contents, and access to one image at a time. Read on in `opening`, which builds it.

mod balance;
mod fetch;
mod opening;
mod survey;

use std::path::Path;

use domain::train::{Data, Split};

use self::fetch::{Geometry, Reading, fetch};
use self::opening::Opening;
use super::bound::ImageStorage;
use crate::decode::rgb::guarded;
use crate::files::cache::CacheCounts;
use crate::files::remote::AccessTime;
use crate::formats::Skipped;
use crate::formats::annotations::{Annotation, of_note};
use crate::formats::{self, Content, Encoded, Index, Targets};
use crate::identity::Provenance;
use crate::sampling::random::Draws;
use crate::sampling::split::Parts;
use crate::shard::SampleCodec;
use crate::transform::prepare::{Output, prepare};
use crate::transform::recipe::ImageTransform;
use crate::{Error, Part};

/// Labelled images of one size, divided into training, validation and test.
///
/// It is immutable and shared by all threads (`Arc<Dataset>`).
#[derive(Debug)]
pub struct Dataset {
    classes: Vec<String>,
    labels: Vec<u32>,
    targets: Option<Targets>,
    parts: Parts,
    channels: usize,
    height: usize,
    width: usize,
    /// The byte value that maps to 1.0.
    full: u8,
    mean: Vec<f32>,
    std: Vec<f32>,
    pixels: Pixels,
    /// Metadata of each sample, if all is in memory; empty, or one entry per sample.
    notes: Vec<Box<[u8]>>,
    skipped: Vec<Skipped>,
    left_out: Option<String>,
}

/// Where the pixels come from.
#[derive(Debug)]
enum Pixels {
    /// All in memory: sample by sample, channel by channel, row by row. With the files they are of, for their names.
    Kept(Vec<u8>, Option<Box<Encoded>>),
    /// Read and decoded each time.
    Encoded(Box<Encoded>, Geometry),
}

/// Scratch buffers with which one thread reads images.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub reading: Reading,
    pub planes: Vec<u8>,
    /// Buffers for augmenting the bytes of an image.
    pub changed: [Vec<u8>; 2],
}

/// Decoded data sets up to this size stay in memory.
const KEPT: usize = 512 << 20;

impl Dataset {
    /// Opens the data at `path` (`spec.path` made absolute; `spec.path` itself is not read).
    ///
    /// The format is inferred from the path: a folder tree `…/<class>/<file>.jpg|jpeg|png`, a tar file of such a tree,
    /// a folder of CIFAR-10 binary files, or a CSV of pixels and a label. `seed` draws the split. Unless
    /// `spec.normalize` is given, mean and standard deviation are measured on the training split. Data sets of up to
    /// 512 MiB are decoded once, here, and stay in memory; larger ones are decoded here only to measure them or to find
    /// what `corrupt: skip` skips.
    pub fn open(spec: &Data, path: &Path, seed: u64) -> Result<Dataset, Error> {
        Dataset::open_known(spec, path, seed, &mut Provenance::unknown())
    }

    /// Opens the data of a run and compares it with the data that the run was trained on.
    ///
    /// # Errors
    /// Also [`Error::Changed`] if the data differs and the change is not accepted.
    pub fn open_known(spec: &Data, path: &Path, seed: u64, provenance: &mut Provenance) -> Result<Dataset, Error> {
        Dataset::open_limited(spec, path, seed, KEPT, provenance)
    }

    /// Like [`Dataset::open_known`], but reads every image each time instead of holding it in memory, so that each has
    /// a name.
    ///
    /// # Errors
    /// As [`Dataset::open_known`].
    pub fn open_named(spec: &Data, path: &Path, seed: u64, provenance: &mut Provenance) -> Result<Dataset, Error> {
        Dataset::open_limited(spec, path, seed, 0, provenance)
    }

    /// Opens data to evaluate a model with these outputs on: all of it is [`Part::Train`], its classes or labels are
    /// numbered as in `classes`, and each image has a name.
    ///
    /// # Errors
    /// [`Error::UnknownClasses`], and those of [`Dataset::open`].
    pub fn open_for_model(spec: &Data, path: &Path, classes: &[String]) -> Result<Dataset, Error> {
        let all = Data { split: Split::Shares([1.0, 0.0, 0.0]), ..spec.clone() };
        let index = formats::index(&all, path)?;
        let left_out = index.left_out();
        let (labels, classes, targets) = match Targets::of(all.labels, path, &index.classes)? {
            None => {
                let indices = places_of(&index.classes, classes)?;
                let labels = index.labels.iter().map(|label| indices[*label as usize]).collect();
                (labels, classes.to_vec(), None)
            }
            Some(targets) => {
                let targets = targets.for_model(&index.classes, classes)?;
                (index.labels, index.classes, Some(targets))
            }
        };
        let Index { content, skipped, .. } = index;
        let opening = Opening { spec: &all, path, seed: 0, classes, labels, targets, homes: None, skipped, left_out };
        let provenance = &mut Provenance::unknown();
        match content {
            Content::Decoded(decoded) => opening.decoded(decoded, provenance),
            Content::Encoded(encoded) => opening.encoded(encoded, 0, provenance),
        }
    }

    /// Opens images without regard to their classes, to measure or view them: all are in the training part, and each is
    /// read and decoded each time.
    pub fn unlabelled(spec: &Data, path: &Path) -> Result<Dataset, Error> {
        let index = formats::unlabelled(spec, path)?;
        let left_out = index.left_out();
        let Index { classes, labels, homes: _, content, skipped, .. } = index;
        let all = Data { split: Split::Shares([1.0, 0.0, 0.0]), ..spec.clone() };
        let targets = None;
        let opening = Opening { spec: &all, path, seed: 0, classes, labels, targets, homes: None, skipped, left_out };
        let provenance = &mut Provenance::unknown();
        match content {
            Content::Decoded(decoded) => opening.decoded(decoded, provenance),
            Content::Encoded(encoded) => opening.encoded(encoded, 0, provenance),
        }
    }

    /// Like [`Dataset::open`], with another limit in bytes to what stays in memory.
    #[cfg(test)]
    pub(crate) fn open_keeping(spec: &Data, path: &Path, seed: u64, limit: usize) -> Result<Dataset, Error> {
        Dataset::open_limited(spec, path, seed, limit, &mut Provenance::unknown())
    }

    fn open_limited(
        spec: &Data,
        path: &Path,
        seed: u64,
        limit: usize,
        provenance: &mut Provenance,
    ) -> Result<Dataset, Error> {
        let (opening, content) = Opening::list(spec, path, seed)?;
        match content {
            Content::Decoded(decoded) => opening.decoded(decoded, provenance),
            Content::Encoded(encoded) => opening.encoded(encoded, limit, provenance),
        }
    }

    /// The name of a sample in messages: its path below the root, or its number.
    pub fn name(&self, sample: u32) -> String {
        match &self.pixels {
            Pixels::Encoded(encoded, _) | Pixels::Kept(_, Some(encoded)) => encoded.name(sample as usize),
            Pixels::Kept(_, None) => sample.to_string(),
        }
    }

    /// Names of the classes, in label order: sorted by name (the CSV's by number, CIFAR-10's as its file lists them).
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// What a label stands for; `None` where it is the class.
    pub fn targets(&self) -> Option<&Targets> {
        self.targets.as_ref()
    }

    /// Names of what is predicted, in the order of the outputs: the classes, unless labels are something else.
    pub fn outputs(&self) -> Vec<String> {
        self.targets.as_ref().map_or_else(|| self.classes.clone(), Targets::names)
    }

    /// Values of a pixel: 3 for images, 1 for the digits.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Height of every image in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Width of every image in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Samples of training, validation and test.
    pub fn counts(&self) -> [u64; 3] {
        self.parts.each_ref().map(|part| part.len() as u64)
    }

    /// Samples of one part.
    pub fn count(&self, part: Part) -> u64 {
        self.part(part).len() as u64
    }

    /// Mean of each channel, of values in 0–1.
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// Standard deviation of each channel, of values in 0–1.
    pub fn std(&self) -> &[f32] {
        &self.std
    }

    /// Images that `corrupt: skip` skipped, in the order of their names.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// A sentence about image files of unsupported formats, if there are any.
    pub fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    /// The annotated objects of a sample's image; empty without annotations.
    ///
    /// # Errors
    /// [`Error`] if they cannot be read or are malformed.
    pub fn marks(&self, sample: u32) -> Result<Vec<Annotation>, Error> {
        let note = match &self.pixels {
            Pixels::Kept(..) => self.notes.get(sample as usize).map(|note| note.to_vec()).unwrap_or_default(),
            Pixels::Encoded(encoded, _) => encoded.note(sample as usize)?,
        };
        of_note(&note, self.classes.len()).map_err(|why| Error::Image { name: self.name(sample), why })
    }

    /// Whether all images are decoded and in memory.
    pub fn in_memory(&self) -> bool {
        matches!(self.pixels, Pixels::Kept(..))
    }

    /// How images are stored.
    pub fn kept(&self) -> ImageStorage {
        match &self.pixels {
            Pixels::Kept(..) => ImageStorage::Memory,
            Pixels::Encoded(encoded, _) => match encoded.codec(0) {
                SampleCodec::Coefficients => ImageStorage::Coefficients,
                SampleCodec::Original | SampleCodec::Pixels | SampleCodec::Tokens => ImageStorage::Files,
            },
        }
    }

    /// Reads of remote data since the start; `None` for local data.
    pub fn reads(&self) -> Option<CacheCounts> {
        match &self.pixels {
            Pixels::Kept(..) => None,
            Pixels::Encoded(encoded, _) => encoded.reads(),
        }
    }

    /// Whether images are read from remote storage.
    pub(crate) fn is_remote(&self) -> bool {
        match &self.pixels {
            Pixels::Kept(..) => false,
            Pixels::Encoded(encoded, _) => encoded.is_remote(),
        }
    }

    /// Announces which samples will be read soon, and when.
    pub(crate) fn expect(&self, samples: impl Iterator<Item = (u32, AccessTime)>) {
        if let Pixels::Encoded(encoded, _) = &self.pixels {
            encoded.expect(samples.map(|(sample, when)| (sample as usize, when)));
        }
    }

    /// Values of one image.
    pub(crate) fn sample_len(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// The samples of a part, in natural order.
    pub fn part(&self, part: Part) -> &[u32] {
        &self.parts[part as usize]
    }

    pub(crate) fn label(&self, sample: u32) -> u32 {
        self.labels[sample as usize]
    }

    /// The bytes of one image, channel by channel.
    pub(crate) fn planes<'a>(
        &'a self,
        sample: u32,
        when: AccessTime,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8], Error> {
        let length = self.sample_len();
        match &self.pixels {
            Pixels::Kept(pixels, _) => Ok(&pixels[sample as usize * length..][..length]),
            Pixels::Encoded(encoded, geometry) => {
                scratch.planes.resize(length, 0);
                scratch.reading.when = when;
                fetch(encoded, sample as usize, *geometry, &mut scratch.reading, &mut scratch.planes)?;
                Ok(&scratch.planes)
            }
        }
    }

    /// The deterministic crop of images, if images are cropped.
    pub(crate) fn recipe(&self) -> Option<ImageTransform> {
        match &self.pixels {
            Pixels::Kept(..) => None,
            Pixels::Encoded(_, geometry) => geometry.recipe,
        }
    }

    /// Reads one image and writes the part of it that the recipe shows; returns the bytes that were read.
    pub(crate) fn write(
        &self,
        (sample, when): (u32, AccessTime),
        recipe: &ImageTransform,
        draws: Draws,
        scratch: &mut Scratch,
        output: Output<'_>,
    ) -> Result<usize, Error> {
        let Pixels::Encoded(encoded, _) = &self.pixels else {
            return Err(Error::Internal("a recipe for images without files".into()));
        };
        let Reading { file, tools, .. } = &mut scratch.reading;
        let file = encoded.file(sample as usize, file, when)?;
        guarded(|| prepare(file, tools, recipe, draws, output))
            .map_err(|why| Error::Image { name: encoded.name(sample as usize), why })?;
        Ok(file.len())
    }

    /// Factor and offset of each channel, from a byte to its normalised value.
    pub(crate) fn scaling(&self) -> Vec<(f32, f32)> {
        let scale = |(mean, std): (&f32, &f32)| {
            let (mean, std) = (f64::from(*mean), f64::from(*std));
            // 0 - 0 is 0 and -0 is not, and a padded pixel is to equal a black one to the bit.
            ((1.0 / (f64::from(self.full) * std)) as f32, ((0.0 - mean) / std) as f32)
        };
        self.mean.iter().zip(&self.std).map(scale).collect()
    }
}

/// The index of each found class among those of a model; one of an earlier version has `7` where the data says `007`.
///
/// # Errors
/// [`Error::UnknownClasses`] with the classes that the model does not have.
pub(crate) fn places_of(found: &[String], known: &[String]) -> Result<Vec<u32>, Error> {
    let place = |name: &str| known.iter().position(|class| class == name).map(|index| index as u32);
    let index = |name: &String| place(name).or_else(|| place(&name.parse::<i64>().ok()?.to_string()));
    let names: Vec<String> = found.iter().filter(|name| index(name).is_none()).cloned().collect();
    match names.is_empty() {
        true => Ok(found.iter().filter_map(index).collect()),
        false => Err(Error::UnknownClasses { names, known: known.to_vec() }),
    }
}

/// The classes and sizes of a data set, found by decoding at most one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Names of the classes, in label order, or of what else is predicted.
    pub classes: Vec<String>,
    /// Channels, height and width of every image.
    pub shape: [usize; 3],
    /// Samples of training, validation and test; with `corrupt: skip`, as if all could be read.
    pub counts: [u64; 3],
    /// A sentence about image files of unsupported formats, if there are any.
    pub left_out: Option<String>,
    /// What listing passes over with `corrupt: skip`, such as the end of a tar that was cut off.
    pub skipped: Vec<Skipped>,
}

impl Outline {
    /// Lists the data at `path` as [`Dataset::open`] does, and opens one image at most.
    pub fn of(spec: &Data, path: &Path, seed: u64) -> Result<Outline, Error> {
        let (opening, content) = Opening::list(spec, path, seed)?;
        let shape = match &content {
            Content::Decoded(decoded) => [decoded.channels, decoded.height, decoded.width],
            Content::Encoded(encoded) => {
                let Geometry { height, width, .. } = opening.geometry(encoded)?;
                [3, height, width]
            }
        };
        let counts = opening.split()?.each_ref().map(|part| part.len() as u64);
        Ok(Outline { classes: opening.outputs(), shape, counts, left_out: opening.left_out, skipped: opening.skipped })
    }
}
