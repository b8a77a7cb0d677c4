//! Opens a data set: lists its files, surveys its images if needed, and splits its samples.

use std::path::Path;

use domain::train::{Corrupt, Data, Normalize, Split};
use domain::units::Bytes;

use super::fetch::{Geometry, Reading};
use super::survey::{Moments, survey};
use super::{Dataset, Pixels, Skipped};
use crate::decode::rgb::decode;
use crate::formats::{self, Content, Decoded, Encoded, Index, Loaded, Targets};
use crate::identity::{Provenance, Reads, Rule, SampleList, hash, plain};
use crate::sampling::split::{self, Parts};
use crate::transform::recipe::ImageTransform;
use crate::{Error, Part};

/// A data set whose files are listed and whose images are not decoded yet.
pub(super) struct Opening<'a> {
    pub spec: &'a Data,
    pub path: &'a Path,
    pub seed: u64,
    pub classes: Vec<String>,
    pub labels: Vec<u32>,
    /// What a label stands for; `None` where it is the class.
    pub targets: Option<Targets>,
    pub homes: Option<Vec<Part>>,
    pub skipped: Vec<Skipped>,
    pub left_out: Option<String>,
}

/// Size of an image, and the byte value that maps to 1.0.
struct Shape {
    channels: usize,
    height: usize,
    width: usize,
    full: u8,
}

impl<'a> Opening<'a> {
    /// Lists the files at `path` and checks their classes.
    pub fn list(spec: &'a Data, path: &'a Path, seed: u64) -> Result<(Opening<'a>, Content), Error> {
        let index = formats::index(spec, path)?;
        let left_out = index.left_out();
        let Index { classes, labels, homes, content, skipped, .. } = index;
        check_classes(spec, path, &classes)?;
        let targets = Targets::of(spec.labels, path, &classes)?;
        Ok((Opening { spec, path, seed, classes, labels, targets, homes, skipped, left_out }, content))
    }

    /// Opens data that consists of raw pixels.
    ///
    /// # Errors
    /// If the job requests another size, the data cannot be split, or it has changed since the run was trained on it.
    pub fn decoded(self, decoded: Decoded, provenance: &mut Provenance) -> Result<Dataset, Error> {
        let Decoded { channels, height, width, full, pixels } = decoded;
        if self.spec.size.is_some_and(|size| (size as usize, size as usize) != (height, width)) {
            let why = format!("its images are {height}×{width}, and images of this form cannot be resized");
            return Err(Error::Layout {
                path: self.path.into(),
                why,
                hint: "leave `size` out: they are used as they are".into(),
            });
        }
        let length = channels * height * width;
        let list = |_: Reads<'_>| {
            let contents = pixels.chunks_exact(length).map(hash).collect();
            Ok(SampleList::of_contents(contents, self.sample_targets()))
        };
        let parts = provenance.divide(&self.outputs(), self.split()?, self.rule(), self.seed, list)?;
        let moments = |sample: u32| Moments::of(&pixels[sample as usize * length..][..length], channels);
        let (mean, std) = self.normalize(channels, full, &parts, provenance, moments)?;
        Ok(self.dataset(
            parts,
            Shape { channels, height, width, full },
            (mean, std),
            (Pixels::Kept(pixels, None), Vec::new()),
        ))
    }

    /// Opens images that stay encoded; if they take at most `limit` bytes in total, they are decoded once and held in
    /// memory.
    ///
    /// # Errors
    /// If an image cannot be read and is not skipped, the data cannot be split, or it has changed since the run was
    /// trained on it.
    pub fn encoded(
        mut self,
        mut encoded: Encoded,
        limit: usize,
        provenance: &mut Provenance,
    ) -> Result<Dataset, Error> {
        let geometry = self.geometry(&encoded)?;
        let Geometry { height, width, .. } = geometry;
        let mut kept = match encoded.len().checked_mul(3 * height * width) {
            // Another part of each file is shown in each epoch.
            _ if geometry.recipe.is_some() => None,
            Some(all) if all <= limit => Some(vec![0; all]),
            Some(_) | None => None,
        };
        if kept.is_none() {
            encoded = self.preload(encoded, provenance)?;
        }
        let surveyed = self.skips() || kept.is_some();
        let mut moments = vec![None; encoded.len()];
        if surveyed {
            moments = self.survey_all(&mut encoded, geometry, &mut kept, provenance)?;
        }
        let list = |reads: Reads<'_>| SampleList::of_encoded(&encoded, self.sample_targets(), reads);
        let parts = provenance.divide(&self.outputs(), self.split()?, self.rule(), self.seed, list)?;
        if self.spec.normalize.is_none() && provenance.statistics().is_none() && !surveyed {
            let train = &parts[Part::Train as usize];
            let results = survey(&encoded, train, geometry, false, None, &provenance.preparation());
            for (sample, result) in train.iter().zip(results) {
                moments[*sample as usize] = result.transpose()?;
            }
        }
        let (mean, std) =
            self.normalize(3, 255, &parts, provenance, |sample| moments[sample as usize].clone().unwrap_or_default())?;
        let contents = match kept {
            Some(kept) => {
                let notes = encoded.notes()?;
                // Remote files would stay open for names alone.
                let names = (!encoded.is_remote()).then(|| Box::new(encoded));
                (Pixels::Kept(kept, names), notes)
            }
            None => (Pixels::Encoded(Box::new(encoded), geometry), Vec::new()),
        };
        Ok(self.dataset(parts, Shape { channels: 3, height, width, full: 255 }, (mean, std), contents))
    }

    /// Builds the data set from what was found.
    fn dataset(
        self,
        parts: Parts,
        Shape { channels, height, width, full }: Shape,
        (mean, std): (Vec<f32>, Vec<f32>),
        (pixels, notes): (Pixels, Vec<Box<[u8]>>),
    ) -> Dataset {
        let Opening { classes, labels, targets, skipped, left_out, .. } = self;
        Dataset {
            classes,
            labels,
            targets,
            parts,
            channels,
            height,
            width,
            full,
            mean,
            std,
            pixels,
            notes,
            skipped,
            left_out,
        }
    }

    /// Reads the files into memory, if the job requests it.
    fn preload(&self, encoded: Encoded, provenance: &Provenance) -> Result<Encoded, Error> {
        let Some(most) = self.spec.preload else { return Ok(encoded) };
        let loaded = Loaded::read_all(encoded, most.0, &provenance.preparation());
        loaded.map(Encoded::Loaded).map_err(|bytes| {
            let why = format!("its images take {} or more, and `preload` allows {most}", Bytes(bytes));
            let hint = "raise `preload` if there is enough memory, or remove it".into();
            Error::Layout { path: self.path.into(), why, hint }
        })
    }

    /// Decodes every image once, into `kept` if it is given. Images that cannot be read are removed or an error, as the
    /// job says. Returns the moments of the remaining ones.
    fn survey_all(
        &mut self,
        encoded: &mut Encoded,
        geometry: Geometry,
        kept: &mut Option<Vec<u8>>,
        provenance: &Provenance,
    ) -> Result<Vec<Option<Moments>>, Error> {
        let skip = self.skips();
        let samples: Vec<u32> = (0..encoded.len() as u32).collect();
        let results = survey(encoded, &samples, geometry, skip, kept.as_deref_mut(), &provenance.preparation());
        let mut moments = vec![None; encoded.len()];
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
            let bytes = 3 * geometry.height * geometry.width;
            *kept = kept.take().map(|pixels| without(&pixels, bytes, &readable));
            self.leave_out(&readable, &mut moments)?;
        }
        Ok(moments)
    }

    /// The given size, or that of the first image that can be read.
    pub fn geometry(&self, encoded: &Encoded) -> Result<Geometry, Error> {
        if let Some(size) = self.spec.size {
            let size = size as usize;
            let recipe = ImageTransform::of(&self.spec.augment, size).map(|(recipe, _)| recipe.evaluated());
            return Ok(Geometry { height: size, width: size, resize: true, recipe });
        }
        let mut reading = Reading::default();
        let Reading { file, tools, .. } = &mut reading;
        let mut first = None;
        for sample in 0..encoded.len() {
            let named = |why| Error::Image { name: encoded.name(sample), why };
            match encoded.read(sample, file).and_then(|()| decode(file, &mut tools.decoder).map_err(named)) {
                Ok(image) => {
                    return Ok(Geometry { height: image.height, width: image.width, resize: false, recipe: None });
                }
                Err(error) if !self.skips() => return Err(error),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| Error::Internal("a data set without images".into())))
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
        if self.targets.is_some() {
            return Ok(());
        }
        for (class, label) in self.classes.iter().zip(0..) {
            if !self.labels.contains(&label) {
                let why = format!("not one image of the class `{class}` can be read");
                let hint = match self.skipped.first() {
                    Some(first) => format!("the first skipped is `{}`: {}", first.name, first.why),
                    None => "replace the damaged images".into(),
                };
                return Err(Error::Layout { path: self.path.into(), why, hint });
            }
        }
        Ok(())
    }

    /// Divides the samples into training, validation and test.
    pub fn split(&self) -> Result<Parts, Error> {
        match (self.spec.split, &self.homes) {
            (Split::Folders(_), Some(homes)) => split::by_homes(homes, self.seed),
            (Split::Shares(shares), _) => split::by_shares(self.labels.len(), shares, self.seed),
            (Split::Folders(_), None) => Err(Error::Internal("a split by folders without folders".into())),
        }
    }

    /// The class of each sample, and the split that the layout of the data names for it.
    fn sample_targets(&self) -> Vec<u64> {
        let home = |sample: usize| match &self.homes {
            Some(homes) => homes.get(sample).map_or(0, |home| 1 + *home as u64) << 32,
            None => 0,
        };
        // The number of a text changes with the other texts; the text itself does not.
        let numbers: Vec<u32> = match &self.targets {
            None => (0..self.classes.len() as u32).collect(),
            // `05` counts as `5`, as earlier versions wrote it.
            Some(_) => self.classes.iter().map(|text| hash(plain(text).as_bytes()) as u32).collect(),
        };
        let number = |label: &u32| numbers.get(*label as usize).copied().unwrap_or(*label);
        self.labels.iter().enumerate().map(|(sample, label)| u64::from(number(label)) | home(sample)).collect()
    }

    /// Names of what is predicted: the classes, unless labels are something else.
    pub fn outputs(&self) -> Vec<String> {
        self.targets.as_ref().map_or_else(|| self.classes.clone(), Targets::names)
    }

    /// The rule that assigns new samples to parts.
    fn rule(&self) -> Rule {
        match self.spec.split {
            Split::Folders(_) => Rule::AsDrawn,
            Split::Shares(shares) => Rule::Shares(shares),
        }
    }

    /// The given mean and standard deviation, those that the run was trained with, or those of the training samples.
    fn normalize(
        &self,
        channels: usize,
        full: u8,
        parts: &Parts,
        provenance: &mut Provenance,
        moments: impl Fn(u32) -> Moments,
    ) -> Result<(Vec<f32>, Vec<f32>), Error> {
        let Some(Normalize { mean, std }) = &self.spec.normalize else {
            let (mean, std) = provenance.statistics().unwrap_or_else(|| {
                let mut all = Moments::default();
                for sample in &parts[Part::Train as usize] {
                    all.add(&moments(*sample));
                }
                all.mean_and_std(full)
            });
            provenance.uses_statistics(&mean, &std);
            return Ok((mean, std));
        };
        for (name, values) in [("mean", mean), ("std", std)] {
            if values.len() != channels {
                let why = format!("`{name}` has {} values, the images have {channels} channels", values.len());
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
        Some(expected) if expected as usize != classes.len() => {
            Err(Error::Classes { found: classes.len(), wanted: expected, names: classes.to_vec() })
        }
        _ if classes.len() < 2 => {
            let why = format!("it has one class only, {}", crate::error::shorten(classes));
            let is_table = path.file_name().is_some_and(|name| name.to_string_lossy().contains(".csv"));
            let hint = match is_table {
                true => {
                    "add samples of other classes; the label is the first or the last number of a line, or the column `label`"
                }
                false => "give each class a folder: `…/<class>/<file>.jpg|png`",
            };
            let hint = hint.to_owned();
            Err(Error::Layout { path: path.into(), why, hint })
        }
        _ => Ok(()),
    }
}

fn skipped(name: String, error: Error) -> Skipped {
    let why = match error {
        Error::Image { why, .. } => why,
        Error::Read { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    Skipped { name, why }
}

fn filtered<T: Clone>(all: &[T], keep: &[bool]) -> Vec<T> {
    all.iter().zip(keep).filter(|(_, keep)| **keep).map(|(item, _)| item.clone()).collect()
}

fn without(pixels: &[u8], bytes: usize, keep: &[bool]) -> Vec<u8> {
    pixels.chunks_exact(bytes).zip(keep).filter(|(_, keep)| **keep).flat_map(|(image, _)| image).copied().collect()
}
