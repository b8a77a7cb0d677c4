//! Explanations of an answer: recommendations, why an offer is or is not chosen, and what to change if nothing remains.
//! Each queries the same search, so that everything suggested meets the job's limits.

pub mod choose;
pub mod missing;
pub mod remedy;
pub mod simplest;
pub mod why;
