//! What an attempt's process leaves behind: found by its tag, told to end, and killed once its time is over.

use std::time::Duration;

use domain::run::AttemptEnd;
use node::processes;
use rustix::process::Signal;

use super::{ATTEMPT, Attempt, Stage, Working};

/// Between two looks for what an ended process has left behind.
const SWEEP: Duration = Duration::from_millis(20);

impl Attempt {
    pub(super) fn sweep(&mut self, end: AttemptEnd, now: Duration) {
        // Whoever was told to stop may still be saving, though the shell above it is gone.
        let kill_at = self.ending.as_ref().map_or(now + self.tools.patience.leftovers, |ending| ending.kill_at);
        let is_told = self.ending.is_some();
        self.stage = Stage::Sweeping { end, kill_at, next: now, is_told };
    }

    /// Ends what is left behind; once nothing is, what was written is uploaded.
    pub(super) fn swept(&mut self, now: Duration) {
        let tag = self.start.attempt.as_str();
        let Stage::Sweeping { end, kill_at, next, is_told } = &mut self.stage else { return };
        if now < *next {
            return;
        }
        let left = match (now >= *kill_at, *is_told) {
            (true, _) => processes::signal(ATTEMPT, tag, Signal::KILL).map(|count| count > 0),
            (false, false) => processes::signal(ATTEMPT, tag, Signal::TERM).map(|count| count > 0),
            (false, true) => processes::any(ATTEMPT, tag),
        };
        *is_told = true;
        *next = now + SWEEP;
        // Where `/proc` cannot be read nothing more can be done here, and the provider will not say that it is gone.
        if !left.unwrap_or(false) {
            let mut end = end.clone();
            // A program may have saved after its shell was gone.
            if let (AttemptEnd::Stopped { step }, Working::Command { reports, .. }) = (&mut end, &self.work) {
                *step = reports.saved().or(*step);
            }
            self.upload(end, now);
        }
    }

    pub(super) fn signal_tagged(&self, signal: Signal) {
        // What is missed now is found by the sweep.
        let _ = processes::signal(ATTEMPT, self.start.attempt.as_str(), signal);
    }
}
