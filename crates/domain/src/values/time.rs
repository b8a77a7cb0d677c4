//! Timestamps and durations of rent. Both are passed in; this module reads no clock.

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01 UTC on a wall clock: for display and bills, never for leases or order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// Microseconds on a monotonic clock: how long something was rented or ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Elapsed(pub u64);

impl Elapsed {
    /// The length in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The length of a standard duration; anything beyond 584,000 years is cut to that.
    pub fn from_std(duration: std::time::Duration) -> Elapsed {
        Elapsed(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Timestamp {
    /// Time since `earlier`; zero when the wall clock was set back in between.
    pub fn since(self, earlier: Timestamp) -> Elapsed {
        Elapsed(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}
