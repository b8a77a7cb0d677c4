//! `data`: images and text, from local files to the batches of a training step.
//!
//! The one idea: a batch is a pure function of (data set, seed, epoch, position). The order is a permutation that is
//! computed, not stored ([`order`]), and an image's augmentation is drawn from a generator keyed by (seed, epoch,
//! sample), so the complete state of the loader is a [`Cursor`] of two numbers, and the batches depend neither on the
//! number of threads nor on interruptions.
//!
//! ```no_run
//! # fn main() -> Result<(), data::Error> {
//! # let spec: domain::train::Data = unimplemented!();
//! use std::sync::Arc;
//! let dataset = Arc::new(data::Dataset::open(&spec, "images.tar".as_ref(), 0)?);
//! let options = data::LoaderOptions { batch: 32, seed: 0, augment: spec.augment.clone(), ..Default::default() };
//! let mut loader = data::Loader::train(dataset, options, data::Cursor::START, 10);
//! while let Some(batch) = loader.next() {
//!     let batch = batch?;
//!     let (images, labels) = (batch.images(), batch.labels()); // one optimiser step
//! }
//! # Ok(()) }
//! ```
//!
//! Its folders point one way:
//!
//! ```text
//! files → decode → transform ┐
//! sampling ──────────────────┤
//! files → shard → formats ───┴→ loader, detection, texts → pack → inspect
//! ```
//!
//! `files` reads local and remote bytes; `decode` turns one image file into pixels and `transform` those into the
//! values of a batch; `shard` is our own container and `formats` reads common ones, each into one index; `sampling`
//! chooses the next sample. On these build the three loaders, of labelled images (`loader`), of images with boxes
//! (`detection`) and of text (`texts`). `pack` writes shards, `inspect` reports on data of any format, and `chunk`,
//! which is independent of them, divides files for transfers.

pub mod chunk;
mod decode;
mod detection;
mod error;
mod files;
mod formats;
mod identity;
mod loader;
mod pack;
mod sampling;
mod shard;
#[cfg(test)]
mod tests;
mod texts;
mod transform;

pub use decode::jpeg;
pub use decode::kernels::name as kernels;
pub use detection::{
    AnnotatedBox, CELL, DetectionBatch, DetectionDataset, DetectionLoader, DetectionOutline, GroundTruthBox,
    OriginalImage, shapes,
};
pub use error::Error;
pub use files::{cache, remote, text};
pub use formats::annotations::Annotation;
pub use formats::{EXTENSIONS as IMAGE_EXTENSIONS, Renamed, Skipped, Targets, lists_images, preloading};
pub use identity::preparation::Preparation;
pub use identity::{DataChange, DataIdentity, Provenance};
pub use loader::dataset::{Dataset, Outline};
pub use loader::handover::{HandedMemory, MemoryHandover};
pub use loader::{Batch, Loader, LoaderOptions, LoaderStats, MixedLabels, bound};
pub use pack::inspect::{ImageSizes, InspectOptions, Inspection, ShuffleQuality, inspect};
pub use pack::{PackFormat, PackOptions, PackProgress, PackSummary, pack};
pub use sampling::balanced::{BalancedOrder, TrainOrder};
pub use sampling::order::{self, Cursor, SampleOrder};
pub use sampling::share::RankShare;
pub use sampling::split::Part;
pub use shard::SampleCodec;
pub use shard::manifest::{PackSettings, ShardFile, ShardManifest, SkippedSample, TokenFormat};
pub use texts::vocabulary::{TextOptions, TokenizerSource};
pub use texts::{TextBatch, TextDataset, TextLoader, TextObjective, TextOutline};
pub use transform::slots::BatchDtype;
pub use transform::{rand_augment, recipe};
