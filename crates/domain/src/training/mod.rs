//! What is trained and how: the `train:` section, or the `workload:` of a program of the user's own.

pub mod architecture;
pub mod format;
pub mod span;
pub mod train;
pub mod workload;
