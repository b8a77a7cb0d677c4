//! What is told about an answer: what to choose of it, why an offer is or is not chosen, and what to change where nothing
//! remains. Each asks the same search, so that whatever is told obeys the job's limits.

pub mod choose;
pub mod remedy;
pub mod why;
