//! `data`: pictures, from files on this machine to the batches of a training step.
//!
//! The one idea: a batch is a function of (data set, seed, epoch, position) and of nothing else. The order is a
//! permutation that is computed, not stored ([`order`]), a picture's augmentation is drawn from a generator keyed by
//! (seed, epoch, sample), so the whole state of the loader is a [`Cursor`] of two numbers, and neither the number of
//! threads nor an interruption can be seen in the batches.
//!
//! ```no_run
//! # fn main() -> Result<(), data::Error> {
//! # let spec: domain::train::Data = unimplemented!();
//! use std::sync::Arc;
//! let dataset = Arc::new(data::Dataset::open(&spec, "pictures.tar".as_ref(), 0)?);
//! let options = data::LoaderOptions { batch: 32, seed: 0, augment: spec.augment.clone(), ..Default::default() };
//! let mut loader = data::Loader::train(dataset, options, data::Cursor::START, 10);
//! while let Some(batch) = loader.next() {
//!     let batch = batch?;
//!     let (images, labels) = (batch.images(), batch.labels()); // one optimiser step
//! }
//! # Ok(()) }
//! ```
//!
//! Read on in `dataset` (what is in a data set), then `loader` (how batches are made).

mod augment;
mod beta;
pub mod bound;
pub mod cache;
pub mod caught;
pub mod chunk;
mod cut;
mod dataset;
pub mod elsewhere;
mod error;
mod identity;
mod inspect;
pub mod jpeg;
mod kernels;
mod loader;
mod manifest;
mod marks;
mod mix;
pub mod order;
mod pack;
mod picture;
mod plain_file;
mod preparation;
mod prepare;
pub mod rand_augment;
mod random;
pub mod recipe;
mod resample;
mod resize;
mod scenes;
pub mod shapes;
mod shard;
mod slots;
mod source;
mod split;
mod survey;
#[cfg(test)]
mod tests;
mod text;
mod texts;
mod tokens;

pub use dataset::{Dataset, Outline, Skipped};
pub use error::Error;
pub use identity::{DataChange, DataIdentity, Provenance};
pub use inspect::{InspectOptions, Inspection, Shuffle, Sizes, inspect};
pub use kernels::name as kernels;
pub use loader::{Batch, Loader, LoaderOptions, Measured, Mixed, Share};
pub use manifest::{Left, Manifest, Recipe, Shard};
pub use marks::Mark;
pub use order::{Cursor, Order};
pub use pack::{PackFormat, PackOptions, PackProgress, Packed, pack};
pub use preparation::Preparation;
pub use scenes::{CELL, Object, SceneBatch, SceneLoader, SceneOutline, Scenes};
pub use shard::Codec;
pub use slots::Numbers;
pub use source::preloading;
pub use split::Part;
pub use text::text;
pub use texts::{Goal, TextBatch, TextLoader, TextOutline, Texts};
pub use tokens::{TextOptions, Tokens, Vocabulary};
