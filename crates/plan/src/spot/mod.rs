//! Spot machines: interruptions, their cost, and the resulting duration of a run.
//!
//! [`SpotAvailability`] describes uptimes and outages: from a [`Trace`] if there is one, else from the cloud's
//! interruption band, which is only a prior. It determines the [`interval`] between checkpoints, the [`expected`] paid
//! time, by [`split`] the hours on spot machines, on demand and without machines, and by [`bootstrap`] bands of the wall
//! time and the cost. [`walk`] simulates a job on one sample path; [`check()`] compares the forecast from a trace's first
//! half with its second half.

pub mod availability;
pub mod bootstrap;
pub mod check;
pub mod expected;
pub mod hazard;
pub mod now;
pub mod price;
pub mod split;
pub mod trace;
pub mod walk;

pub use availability::{SpotAvailability, UptimeInterval};
pub use bootstrap::{Band, SimulatedRun, bands};
pub use check::{SpotReplay, check};
pub use expected::{CheckpointOverhead, interval, paid};
pub use hazard::{Hazard, hazard};
pub use split::{OutageProfile, TimeSplit};
pub use trace::Trace;
pub use walk::{Ended, OutagePolicy, walk};
