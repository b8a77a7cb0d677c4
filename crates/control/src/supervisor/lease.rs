//! How long an agent may continue without its loop.

use domain::Elapsed;

/// The lease.
#[derive(Debug)]
pub(super) struct Lease {
    pub last_answer: Elapsed,
    pub length: Elapsed,
    /// Whether a call that ended after the lease has failed.
    pub is_refused: bool,
    /// How long ranks get to save when it ends, if the loop has set it.
    pub saving: Option<Elapsed>,
}

impl Lease {
    /// When it ends, unless the loop answers before.
    pub fn ends(&self) -> Elapsed {
        after(self.last_answer, self.length.0)
    }
}

/// A time so many microseconds later.
pub(super) fn after(time: Elapsed, micros: u64) -> Elapsed {
    Elapsed(time.0.saturating_add(micros))
}
