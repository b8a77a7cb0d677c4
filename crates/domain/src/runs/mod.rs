//! The state of a run, its ranks' reports, and their environment.

pub mod all_reduce;
pub mod finding;
mod pause;
pub mod rank;
mod ready;
pub mod run;
mod scores;
pub mod threads;
pub mod torch;
