//! How long an agent may continue without its loop.

use domain::Elapsed;

use super::{LAST_CALL, Supervisor};

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

impl Supervisor {
    /// How long it may go on alone, as the loop said last.
    pub fn lease(&self) -> Elapsed {
        self.lease.length
    }

    /// How long the loop has not answered.
    pub fn unanswered_for(&self, now: Elapsed) -> Elapsed {
        Elapsed(now.0.saturating_sub(self.lease.last_answer.0))
    }

    /// The deadline of the call in flight if a budget bounds the lease: a call that fails later would exceed the
    /// budget.
    pub(super) fn money_ends(&self) -> Option<Elapsed> {
        let is_bound = self.calls.is_under_way && self.lease.saving.is_some();
        is_bound.then(|| after(self.lease.ends().max(self.calls.last), LAST_CALL))
    }
}
