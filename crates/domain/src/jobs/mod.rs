//! What a user asks for: a job, or a sweep over many; and what is wrong with it.

pub mod job;
pub mod problem;
pub mod sweep;
