//! The two clocks: one for people and bills, one for leases and order.

use domain::{Elapsed, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// The wall clock. It may jump; only deadlines and what people read depend on it.
pub fn now() -> Timestamp {
    let time = clock_gettime(ClockId::Realtime);
    Timestamp(time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000))
}

/// Time since boot, including suspension; monotonic.
pub fn monotonic() -> Elapsed {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec / 1_000).unwrap_or(0);
    Elapsed(seconds * 1_000_000 + micros)
}
