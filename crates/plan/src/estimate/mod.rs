//! Estimates: memory and time of one step of a model on given hardware, divided in a given way.
//!
//! Pure arithmetic over a [`Model`](crate::model::Model) and a [`Setup`]. Nothing here knows a price or a cloud.

pub mod memory;
pub mod setup;

pub use setup::{Device, Layout, Optimizer, Parallel, Precision, Recompute, Setup, Zero};
