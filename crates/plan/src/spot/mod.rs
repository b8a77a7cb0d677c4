//! Spot machines: how often they are taken away, what that costs, and how long a run takes then.
//!
//! [`SpotAvailability`] says how long a spot machine stays and how long it is gone: from a [`Trace`] where one is at hand, else
//! from the cloud's band of interruptions, which is only a prior. From it follow the [`interval`] between checkpoints,
//! the [`expected`] paid time, and by [`bootstrap`] a band of the time from start to end. [`walk`] runs a job through
//! one sample path; [`check()`] compares the forecast from a trace's first half with its second half.

pub mod availability;
pub mod bootstrap;
pub mod check;
pub mod expected;
pub mod now;
pub mod trace;
pub mod walk;

pub use availability::{SpotAvailability, UptimeInterval};
pub use bootstrap::{Band, bands};
pub use check::{SpotReplay, check};
pub use expected::{CheckpointOverhead, interval, paid};
pub use trace::Trace;
pub use walk::{Ended, OutagePolicy, walk};
