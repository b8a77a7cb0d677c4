//! Remaining processes of an attempt: found by their tag, sent SIGTERM, and killed at a deadline; its container is removed.

mod grace;

use std::time::Duration;

use domain::run::AttemptEnd;
use node::processes;
use rustix::process::Signal;

use super::verdict::program_stopped;
use super::{Attempt, Stage, Working};

pub(super) use grace::{SaveTime, time_to_save};

/// Polling interval for remaining processes.
const SWEEP: Duration = Duration::from_millis(20);

impl Attempt {
    pub(super) fn sweep(&mut self, end: AttemptEnd, now: Duration) {
        // A process that was told to stop may still be saving, though its parent shell is gone.
        let kill_at = self.ending.as_ref().map_or(now + self.tools.patience.leftovers, |ending| ending.kill_at);
        let is_told = self.ending.as_ref().is_some_and(|ending| ending.is_told);
        self.stage = Stage::Sweeping { end, kill_at, next: now, is_told, seen: None };
    }

    /// Ends remaining processes; once there are none, outputs are uploaded.
    pub(super) fn swept(&mut self, now: Duration) {
        let tags = self.tools.tags(&self.start.attempt);
        let Stage::Sweeping { end, kill_at, next, is_told, seen } = &mut self.stage else { return };
        if now < *next {
            return;
        }
        // What is left in it is killed with it: a program that was told to stop has ended, or its time is over.
        if self.container.as_mut().is_some_and(|container| !container.is_removed()) {
            *next = now + SWEEP;
            return;
        }
        let left = match (now >= *kill_at, *is_told) {
            (true, _) => processes::signal(&tags, Signal::KILL).map(|count| count > 0),
            (false, false) => processes::signal(&tags, Signal::TERM).map(|count| count > 0),
            (false, true) => processes::one(&tags, *seen).map(|left| {
                *seen = left;
                left.is_some()
            }),
        };
        *is_told = true;
        *next = now + SWEEP;
        // If `/proc` cannot be read nothing more can be done here, and the provider will not report it as gone.
        if !left.unwrap_or(false) {
            let end = match (end.clone(), &self.work) {
                // A program may have saved, or failed to, after its shell was gone.
                (AttemptEnd::Stopped { step }, Working::Command { reports, .. }) => {
                    program_stopped(reports, step, &self.log)
                }
                (end, _) => end,
            };
            self.upload(end, now);
        }
    }

    pub(super) fn signal_tagged(&self, signal: Signal) {
        // Processes missed now are found by the sweep.
        let _ = processes::signal(&self.tools.tags(&self.start.attempt), signal);
    }
}
