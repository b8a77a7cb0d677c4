//! Where a run stands, what its ranks report, and what they run on.

pub mod finding;
pub mod rank;
pub mod run;
pub mod threads;
pub mod torch;
