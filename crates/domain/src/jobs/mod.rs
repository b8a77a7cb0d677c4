//! The user's request: a job, or a sweep over many; and its problems.

pub mod image;
pub mod job;
pub mod mounts;
pub mod problem;
pub mod progress;
pub mod sweep;
