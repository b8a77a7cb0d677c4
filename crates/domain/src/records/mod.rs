//! Records that are stored about runs, or sent between their processes.

pub mod event;
pub mod files;
pub mod joining;
pub mod rental;
pub mod series;
pub mod subject;
pub mod wire;
