//! Published measurements, compared with our estimates: the test that `gradus plan check` and the fit share.
//!
//! A [`MeasuredRow`] is what a table states, a [`Case`] what it means; [`check`] estimates every eligible one and scores each
//! source. Nothing here is read by an estimate.

mod case;
mod check;
mod checked;
mod contradictions;
mod ineligible;
mod kinds;
mod program;
mod programs;
mod row;
mod score;
mod seen;
mod stated;
mod strict;
mod table;

pub use case::{Case, GpuLookup, MeasuredMemory, RowIdentity, case};
pub use check::{AccuracyReport, TrainingTimeScore, TrainingTimes, check};
pub use checked::{CheckedRow, checked};
pub use contradictions::cases;
pub use ineligible::Ineligible;
pub use kinds::family;
pub use program::ProgramHabits;
pub use row::{MeasuredRow, Unreadable};
pub use score::{Fits, HONEST_COVERAGE, MemoryScore, Pair, Scaling, Score, percentile};
pub use seen::MemoryMetric;
pub use stated::{NetworkLine, NetworkSource, Networks, lines as network_lines, parallelism};
pub use strict::rows;
