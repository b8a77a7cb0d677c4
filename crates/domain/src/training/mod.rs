//! The model and its training: the `train:` section, or the `workload:` of a user's own program.

pub mod architecture;
pub mod format;
pub mod span;
pub mod train;
pub mod workload;
