//! Batches, made ahead of the training step.

use std::sync::Arc;
use std::time::Duration;

use domain::train::{Augment, MemoryFormat};

use crate::{Cursor, Dataset, Error, Part};

/// How batches are made.
#[derive(Debug, Clone, PartialEq)]
pub struct LoaderOptions {
    /// Samples in a batch; the last one of an epoch has what is left.
    pub batch: usize,
    /// Seed of the order and the augmentation.
    pub seed: u64,
    /// Threads that decode; with 0 all work is done inside `next`. The batches are the same for any number.
    pub workers: usize,
    /// Order of a picture's values in memory: NCHW or NHWC.
    pub layout: MemoryFormat,
    /// What is done to a training picture, in this order; evaluation ignores it.
    pub augment: Vec<Augment>,
}

impl Default for LoaderOptions {
    fn default() -> LoaderOptions {
        LoaderOptions { batch: 32, seed: 0, workers: 1, layout: MemoryFormat::Contiguous, augment: Vec::new() }
    }
}

/// A stream of batches in a fixed order. Dropping it ends its threads.
pub struct Loader {}

/// One batch. Its memory goes back to the loader when it is dropped, so drop it once its values are copied.
pub struct Batch {}

impl Loader {
    /// Shuffled batches of the training split, from the cursor to the end of epoch `epochs - 1`.
    ///
    /// `from` is where training stands: [`Cursor::START`], or [`Batch::cursor_after`] of the last batch used.
    pub fn train(dataset: Arc<Dataset>, options: LoaderOptions, from: Cursor, epochs: u64) -> Loader {
        let _ = (dataset, options, from, epochs);
        Loader {}
    }

    /// Batches of one part in natural order, once, without augmentation.
    pub fn evaluate(dataset: Arc<Dataset>, part: Part, options: LoaderOptions) -> Loader {
        let _ = (dataset, part, options);
        Loader {}
    }

    /// The next batch; `None` after the last one, and after an error.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<Batch, Error>> {
        Some(Err(Error::Internal("not written yet".into())))
    }
}

impl Batch {
    /// Normalised values, `len × channels × height × width`, or `len × height × width × channels` for channels-last.
    pub fn images(&self) -> &[f32] {
        &[]
    }

    /// One label a sample: the place of its class in [`Dataset::classes`].
    pub fn labels(&self) -> &[i64] {
        &[]
    }

    /// Samples in this batch.
    pub fn len(&self) -> usize {
        0
    }

    /// Never: a batch holds at least one sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where training stands once this batch is used; what a checkpoint keeps.
    pub fn cursor_after(&self) -> Cursor {
        Cursor::START
    }

    /// Epoch of this batch, from 0.
    pub fn epoch(&self) -> u64 {
        0
    }

    /// How long the caller of [`Loader::next`] waited for this batch.
    pub fn wait(&self) -> Duration {
        Duration::ZERO
    }
}
