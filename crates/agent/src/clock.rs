//! The agent's clock: time since its start, monotonic and including suspension.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The agent's clock. The wall clock is read once, for people and the bill.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    boot: Duration,
    started: Timestamp,
}

impl Clock {
    /// Starts at zero now.
    pub fn start() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { boot: since_boot(), started: Timestamp(i64::try_from(wall.as_micros()).unwrap_or(i64::MAX)) }
    }

    /// The wall clock at the start.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        since_boot().saturating_sub(self.boot)
    }
}

fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
