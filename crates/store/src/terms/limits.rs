//! How many requests at a time, how long each may take, and how patient.

use std::time::Duration;

/// How many streams, how long the parts, and how patient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests under way at a time.
    pub streams: usize,
    /// Length of a part of an upload and of a range of a download. Services take parts of 5 MiB and more.
    pub part: u64,
    /// How long a connection may take.
    pub connect: Duration,
    /// How long a download may stand still.
    pub stall: Duration,
    /// How long one request may take in all; an upload of one part must fit.
    pub request: Duration,
    /// How long a failing request is tried again.
    pub patience: Duration,
    /// The same before anything was answered, when the address is likely to be wrong.
    pub reach: Duration,
}

impl Limits {
    /// Limits of an interactive command: an unreachable address is reported within seconds.
    pub fn attended() -> Limits {
        Limits { reach: Duration::from_secs(3), ..Limits::default() }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            streams: 8,
            part: 8 << 20,
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            // 8 MiB in five minutes are 28 kB/s.
            request: Duration::from_secs(300),
            patience: Duration::from_secs(120),
            reach: Duration::from_secs(120),
        }
    }
}
