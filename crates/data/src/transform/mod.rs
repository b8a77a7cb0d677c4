//! From decoded images to the values of a batch: cropping, resizing, augmentation, mixing and normalisation.
//!
//! `recipe`, `augment`, `auto_augment`, `jitter` and `erase` draw the parameters, `prepare`, `cut`, `resample` and
//! `resize` apply them, and `slots` is the memory of the batch that they write to.

pub(crate) mod augment;
pub(crate) mod auto_augment;
mod beta;
pub(crate) mod cut;
pub(crate) mod erase;
pub(crate) mod jitter;
pub(crate) mod mix;
pub(crate) mod prepare;
pub mod rand_augment;
pub mod recipe;
pub(crate) mod resample;
pub(crate) mod resize;
pub(crate) mod slots;
