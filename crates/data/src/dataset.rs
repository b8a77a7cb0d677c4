//! A data set: what is in it, and one picture of it at a time.

use std::path::Path;

use crate::{Error, Part};

/// Labelled pictures of one size, divided into training, validation and test.
///
/// It is immutable and shared by all threads (`Arc<Dataset>`).
#[derive(Debug)]
pub struct Dataset {
    classes: Vec<String>,
    channels: usize,
    height: usize,
    width: usize,
    mean: Vec<f32>,
    std: Vec<f32>,
    counts: [u64; 3],
    skipped: Vec<Skipped>,
}

/// A picture that was left out because it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// File, or place inside a file.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl Dataset {
    /// Opens the data at `path` (`spec.path` made absolute; `spec.path` itself is not read).
    ///
    /// The form is told from the path: a folder tree `…/<class>/<file>.jpg|jpeg|png`, a tar file of such a tree, a folder
    /// of CIFAR-10 binary files, or a CSV of 64 pixels and a label. `seed` draws the split. Unless `spec.normalize`
    /// is given, mean and standard deviation are measured on the training split. Data sets of up to 512 MiB are decoded
    /// here, once, and stay in memory.
    pub fn open(spec: &domain::train::Data, path: &Path, seed: u64) -> Result<Dataset, Error> {
        let _ = (spec, path, seed);
        Err(Error::Internal("not written yet".into()))
    }

    /// Names of the classes, in label order: sorted by name (the CSV's by number).
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
        self.counts
    }

    /// Samples of one part.
    pub fn count(&self, part: Part) -> u64 {
        self.counts[part as usize]
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
}
