//! A data set: what is in it, and one picture of it at a time.

use std::path::Path;

use domain::train::{Corrupt, Data, Normalize, Split};

use crate::picture::{Geometry, Reading, decode, fetch, guarded};
use crate::prepare::{Output, prepare};
use crate::random::Draws;
use crate::recipe::Recipe;
use crate::source::{self, Content, Decoded, Encoded, Index};
use crate::split::{self, Parts};
use crate::survey::{Moments, survey};
use crate::{Error, Part};

/// Labelled pictures of one size, divided into training, validation and test.
///
/// It is immutable and shared by all threads (`Arc<Dataset>`).
#[derive(Debug)]
pub struct Dataset {
    classes: Vec<String>,
    labels: Vec<u32>,
    parts: Parts,
    channels: usize,
    height: usize,
    width: usize,
    /// The byte that stands for 1.
    full: u8,
    mean: Vec<f32>,
    std: Vec<f32>,
    pixels: Pixels,
    skipped: Vec<Skipped>,
}

/// A picture that was left out because it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// File, or place inside a file.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

/// Where the pixels come from.
#[derive(Debug)]
enum Pixels {
    /// All in memory: sample by sample, channel by channel, row by row.
    Kept(Vec<u8>),
    /// Read and decoded each time.
    Encoded(Encoded, Geometry),
}

/// What one thread needs to read pictures.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub reading: Reading,
    pub planes: Vec<u8>,
}

/// Decoded data sets up to this size stay in memory.
const KEPT: usize = 512 << 20;

impl Dataset {
    /// Opens the data at `path` (`spec.path` made absolute; `spec.path` itself is not read).
    ///
    /// The form is told from the path: a folder tree `…/<class>/<file>.jpg|jpeg|png`, a tar file of such a tree, a folder
    /// of CIFAR-10 binary files, or a CSV of 64 pixels and a label. `seed` draws the split. Unless `spec.normalize`
    /// is given, mean and standard deviation are measured on the training split. Data sets of up to 512 MiB are decoded
    /// here, once, and stay in memory; larger ones are decoded here only to measure, or to find what `corrupt: skip`
    /// leaves out.
    pub fn open(spec: &Data, path: &Path, seed: u64) -> Result<Dataset, Error> {
        Dataset::open_keeping(spec, path, seed, KEPT)
    }

    /// Opens pictures whose classes do not matter, to be measured or looked at: all of them are for training, and each is
    /// read and decoded anew each time.
    pub fn unlabelled(spec: &Data, path: &Path) -> Result<Dataset, Error> {
        let Index { classes, labels, homes: _, content, skipped, notes: _ } = source::unlabelled(spec, path)?;
        let whole = Data { split: Split::Shares([1.0, 0.0, 0.0]), ..spec.clone() };
        let opening = Opening { spec: &whole, path, seed: 0, classes, labels, homes: None, skipped };
        match content {
            Content::Decoded(decoded) => opening.decoded(decoded),
            Content::Encoded(encoded) => opening.encoded(encoded, 0),
        }
    }

    /// The same, with another limit to what stays in memory, in bytes.
    pub(crate) fn open_keeping(spec: &Data, path: &Path, seed: u64, limit: usize) -> Result<Dataset, Error> {
        let (opening, content) = Opening::list(spec, path, seed)?;
        match content {
            Content::Decoded(decoded) => opening.decoded(decoded),
            Content::Encoded(encoded) => opening.encoded(encoded, limit),
        }
    }

    /// What a sample is called in messages: its path below the root, or its number.
    pub fn name(&self, sample: u32) -> String {
        match &self.pixels {
            Pixels::Encoded(encoded, _) => encoded.name(sample as usize),
            Pixels::Kept(_) => sample.to_string(),
        }
    }

    /// Names of the classes, in label order: sorted by name (the CSV's by number, CIFAR-10's as its file lists them).
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Values of a pixel: 3 for pictures, 1 for the digits.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Height of every picture in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Width of every picture in pixels.
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

    /// Pictures that `corrupt: skip` left out, in the order of their names.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Whether all pictures are decoded and in memory.
    pub fn in_memory(&self) -> bool {
        matches!(self.pixels, Pixels::Kept(_))
    }

    /// Values of one picture.
    pub(crate) fn sample_len(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// The samples of a part, in natural order.
    pub(crate) fn part(&self, part: Part) -> &[u32] {
        &self.parts[part as usize]
    }

    pub(crate) fn label(&self, sample: u32) -> u32 {
        self.labels[sample as usize]
    }

    /// The bytes of one picture, channel by channel.
    pub(crate) fn planes<'a>(&'a self, sample: u32, scratch: &'a mut Scratch) -> Result<&'a [u8], Error> {
        let length = self.sample_len();
        match &self.pixels {
            Pixels::Kept(pixels) => Ok(&pixels[sample as usize * length..][..length]),
            Pixels::Encoded(encoded, geometry) => {
                scratch.planes.resize(length, 0);
                fetch(encoded, sample as usize, *geometry, &mut scratch.reading, &mut scratch.planes)?;
                Ok(&scratch.planes)
            }
        }
    }

    /// How pictures are shown when nothing is left to chance, if parts of them are shown.
    pub(crate) fn recipe(&self) -> Option<Recipe> {
        match &self.pixels {
            Pixels::Kept(_) => None,
            Pixels::Encoded(_, geometry) => geometry.recipe,
        }
    }

    /// Reads one picture and writes the part of it that the recipe shows; returns the bytes that were read.
    pub(crate) fn write(
        &self,
        sample: u32,
        recipe: &Recipe,
        draws: Draws,
        scratch: &mut Scratch,
        output: Output<'_>,
    ) -> Result<usize, Error> {
        let Pixels::Encoded(encoded, _) = &self.pixels else {
            return Err(Error::Internal("a recipe for pictures without files".into()));
        };
        encoded.read(sample as usize, &mut scratch.reading.file)?;
        guarded(|| prepare(&mut scratch.reading, recipe, draws, output))
            .map_err(|why| Error::Picture { name: encoded.name(sample as usize), why })?;
        Ok(scratch.reading.file.len())
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

/// What a data set is made of, told without decoding more than one picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Names of the classes, in label order.
    pub classes: Vec<String>,
    /// Channels, height and width of every picture.
    pub shape: [usize; 3],
    /// Samples of training, validation and test; with `corrupt: skip`, as if all could be read.
    pub counts: [u64; 3],
}

impl Outline {
    /// Lists the data at `path` as [`Dataset::open`] does, and opens one picture at most.
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
        Ok(Outline { classes: opening.classes, shape, counts })
    }
}

/// A data set whose files are listed and whose pictures are not decoded yet.
struct Opening<'a> {
    spec: &'a Data,
    path: &'a Path,
    seed: u64,
    classes: Vec<String>,
    labels: Vec<u32>,
    homes: Option<Vec<Part>>,
    skipped: Vec<Skipped>,
}

impl<'a> Opening<'a> {
    fn list(spec: &'a Data, path: &'a Path, seed: u64) -> Result<(Opening<'a>, Content), Error> {
        let Index { classes, labels, homes, content, skipped, .. } = source::index(spec, path)?;
        check_classes(spec, path, &classes)?;
        Ok((Opening { spec, path, seed, classes, labels, homes, skipped }, content))
    }

    fn decoded(self, decoded: Decoded) -> Result<Dataset, Error> {
        let Decoded { channels, height, width, full, pixels } = decoded;
        if self.spec.size.is_some_and(|size| (size as usize, size as usize) != (height, width)) {
            let why = format!("its pictures are {height}×{width}, and resizing this form is not served yet");
            return Err(Error::Layout { path: self.path.into(), why, hint: "leave `size` out".into() });
        }
        let parts = self.split()?;
        let moments = |sample: u32| {
            let length = channels * height * width;
            Moments::of(&pixels[sample as usize * length..][..length], channels)
        };
        let (mean, std) = self.normalize(channels, full, &parts, moments)?;
        let Opening { classes, labels, skipped, .. } = self;
        let pixels = Pixels::Kept(pixels);
        Ok(Dataset { classes, labels, parts, channels, height, width, full, mean, std, pixels, skipped })
    }

    fn encoded(mut self, mut encoded: Encoded, limit: usize) -> Result<Dataset, Error> {
        let geometry = self.geometry(&encoded)?;
        let Geometry { height, width, .. } = geometry;
        let bytes = 3 * height * width;
        let skip = self.skips();
        let mut kept = match encoded.len().checked_mul(bytes) {
            // Another part of each file is shown in each epoch.
            _ if geometry.recipe.is_some() => None,
            Some(all) if all <= limit => Some(vec![0; all]),
            Some(_) | None => None,
        };
        let mut moments = vec![None; encoded.len()];
        if skip || kept.is_some() {
            let samples: Vec<u32> = (0..encoded.len() as u32).collect();
            let results = survey(&encoded, &samples, geometry, skip, kept.as_deref_mut());
            let mut readable = vec![true; encoded.len()];
            for (sample, result) in results.into_iter().enumerate() {
                match result {
                    Some(Ok(found)) => moments[sample] = Some(found),
                    None => {}
                    // Another size is a question to the user, not damage.
                    Some(Err(error @ Error::Size { .. })) => return Err(error),
                    Some(Err(error)) if !skip => return Err(error),
                    Some(Err(error)) => {
                        readable[sample] = false;
                        self.skipped.push(skipped(encoded.name(sample), error));
                    }
                }
            }
            if readable.contains(&false) {
                encoded.retain(&readable);
                kept = kept.map(|pixels| without(&pixels, bytes, &readable));
                self.leave_out(&readable, &mut moments)?;
            }
        }
        let parts = self.split()?;
        if self.spec.normalize.is_none() && kept.is_none() && !skip {
            let train = &parts[Part::Train as usize];
            for (sample, result) in train.iter().zip(survey(&encoded, train, geometry, false, None)) {
                moments[*sample as usize] = result.transpose()?;
            }
        }
        let (mean, std) =
            self.normalize(3, 255, &parts, |sample| moments[sample as usize].clone().unwrap_or_default())?;
        let pixels = match kept {
            Some(kept) => Pixels::Kept(kept),
            None => Pixels::Encoded(encoded, geometry),
        };
        let Opening { classes, labels, skipped, .. } = self;
        Ok(Dataset { classes, labels, parts, channels: 3, height, width, full: 255, mean, std, pixels, skipped })
    }

    /// The given size, or that of the first picture that can be read.
    fn geometry(&self, encoded: &Encoded) -> Result<Geometry, Error> {
        if let Some(size) = self.spec.size {
            let size = size as usize;
            let recipe = Recipe::of(&self.spec.augment, size).map(|(recipe, _)| recipe.evaluated());
            return Ok(Geometry { height: size, width: size, resize: true, recipe });
        }
        let mut reading = Reading::default();
        let Reading { file, decoder, .. } = &mut reading;
        let mut first = None;
        for sample in 0..encoded.len() {
            let named = |why| Error::Picture { name: encoded.name(sample), why };
            match encoded.read(sample, file).and_then(|()| decode(file, decoder).map_err(named)) {
                Ok(picture) => {
                    return Ok(Geometry { height: picture.height, width: picture.width, resize: false, recipe: None });
                }
                Err(error) if !self.skips() => return Err(error),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| Error::Internal("a data set without pictures".into())))
    }

    fn skips(&self) -> bool {
        match self.spec.corrupt {
            Corrupt::Fail => false,
            Corrupt::Skip => true,
        }
    }

    /// Removes the samples that are not readable from all lists.
    fn leave_out(&mut self, readable: &[bool], moments: &mut Vec<Option<Moments>>) -> Result<(), Error> {
        self.labels = filtered(&self.labels, readable);
        self.homes = self.homes.as_ref().map(|homes| filtered(homes, readable));
        *moments = filtered(moments, readable);
        for (class, label) in self.classes.iter().zip(0..) {
            if !self.labels.contains(&label) {
                let why = format!("not one picture of the class `{class}` can be read");
                let hint = match self.skipped.first() {
                    Some(first) => format!("the first that was left out is `{}`: {}", first.name, first.why),
                    None => "replace the damaged pictures".into(),
                };
                return Err(Error::Layout { path: self.path.into(), why, hint });
            }
        }
        Ok(())
    }

    fn split(&self) -> Result<Parts, Error> {
        match (self.spec.split, &self.homes) {
            (Split::Folders(_), Some(homes)) => split::by_homes(homes, self.seed),
            (Split::Shares(shares), _) => split::by_shares(self.labels.len(), shares, self.seed),
            (Split::Folders(_), None) => Err(Error::Internal("a split by folders without folders".into())),
        }
    }

    /// The given mean and standard deviation, or those of the training samples.
    fn normalize(
        &self,
        channels: usize,
        full: u8,
        parts: &Parts,
        moments: impl Fn(u32) -> Moments,
    ) -> Result<(Vec<f32>, Vec<f32>), Error> {
        let Some(Normalize { mean, std }) = &self.spec.normalize else {
            let mut all = Moments::default();
            for sample in &parts[Part::Train as usize] {
                all.add(&moments(*sample));
            }
            return Ok(all.mean_and_std(full));
        };
        for (name, values) in [("mean", mean), ("std", std)] {
            if values.len() != channels {
                let why = format!("`{name}` has {} values, the pictures have {channels} channels", values.len());
                return Err(Error::Normalize { why });
            }
        }
        if let Some(value) = mean.iter().find(|value| !value.is_finite()) {
            return Err(Error::Normalize { why: format!("a mean is {value}") });
        }
        if let Some(value) = std.iter().find(|value| !(value.is_finite() && **value > 0.0)) {
            return Err(Error::Normalize { why: format!("a standard deviation is {value}, and must be above 0") });
        }
        Ok((mean.clone(), std.clone()))
    }
}

fn check_classes(spec: &Data, path: &Path, classes: &[String]) -> Result<(), Error> {
    match spec.classes {
        Some(wanted) if wanted as usize != classes.len() => {
            Err(Error::Classes { found: classes.len(), wanted, names: classes.to_vec() })
        }
        _ if classes.len() < 2 => {
            let why = format!("it has one class only, {}", crate::error::shorten(classes));
            let hint = "give each class a folder: `…/<class>/<file>.jpg|png`".into();
            Err(Error::Layout { path: path.into(), why, hint })
        }
        _ => Ok(()),
    }
}

fn skipped(name: String, error: Error) -> Skipped {
    let why = match error {
        Error::Picture { why, .. } => why,
        Error::Read { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    Skipped { name, why }
}

fn filtered<T: Clone>(all: &[T], keep: &[bool]) -> Vec<T> {
    all.iter().zip(keep).filter(|(_, keep)| **keep).map(|(item, _)| item.clone()).collect()
}

fn without(pixels: &[u8], bytes: usize, keep: &[bool]) -> Vec<u8> {
    pixels.chunks_exact(bytes).zip(keep).filter(|(_, keep)| **keep).flat_map(|(picture, _)| picture).copied().collect()
}
