//! The user's request: a job, a sweep over many, or a schedule of one; and its problems.

pub mod hang;
pub mod image;
pub mod job;
pub mod mounts;
pub mod pipeline;
pub mod problem;
pub mod progress;
pub mod schedule;
pub mod sweep;
