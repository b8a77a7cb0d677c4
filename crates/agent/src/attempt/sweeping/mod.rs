//! Remaining processes of an attempt: found by their tag, sent SIGTERM, and killed at a deadline; its container is removed.
//! One that a signal had stopped before is what the other machines have missed.

mod grace;

use std::time::Duration;

use control::StopReason;
use domain::run::AttemptEnd;
use domain::{Cause, Finding};
use node::processes;
use rustix::process::Signal;

use super::verdict::program_stopped;
use super::{Attempt, Stage, Working};

pub(super) use grace::{SaveTime, time_to_save};

/// Polling interval for remaining processes.
const SWEEP: Duration = Duration::from_millis(20);

impl Attempt {
    /// A process that a signal has stopped, where other machines have failed meanwhile.
    pub(super) fn stopped(&self, why: StopReason) -> Option<i32> {
        let tags = self.tools.tags(&self.start.attempt);
        (why == StopReason::NodeLost).then(|| processes::stopped(&tags).ok()?.first().copied()).flatten()
    }

    /// The end of ranks here, of which one stood still before the others were told to have failed.
    pub(super) fn of_stopped(&self, end: AttemptEnd) -> AttemptEnd {
        match (end, self.ending.as_ref().and_then(|ending| ending.stopped)) {
            (AttemptEnd::Failed { finding, .. }, Some(pid)) if finding.cause == Cause::RankLost => {
                let message =
                    format!("process {pid} was stopped by a signal, such as SIGSTOP, and the others waited for it");
                let hint = "look for who stops processes on this machine, such as a debugger or a shell's job control";
                AttemptEnd::Failed { finding: Finding::new(Cause::Killed, message).hint(hint), exit_code: None }
            }
            (end, _) => end,
        }
    }

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
