//! The last stage: what an attempt has written travels to a loop on another machine.

use std::path::Path;
use std::time::Duration;

use control::StopReason;
use domain::run::AttemptEnd;
use domain::wire::Start;

use super::{Attempt, Stage, Tools};
use crate::travel::Uploader;

/// What an attempt that was told to stop is given for it, at least.
const LEAST: Duration = Duration::from_secs(2);

impl Tools {
    /// Who brings back what an attempt writes, if the loop is on another machine.
    pub(super) fn uploader(&self, start: &Start, run: &Path) -> Option<Uploader> {
        let attempt = (start.run.clone(), start.attempt.clone(), start.fence);
        let files = self.remote.as_ref()?.files.clone();
        Some(Uploader::start(files, run.to_owned(), attempt, self.events.clone()))
    }
}

impl Attempt {
    /// Nothing of it runs any more.
    pub(super) fn upload(&mut self, end: AttemptEnd, now: Duration) {
        let within = match &self.ending {
            // Nobody wants it, or nobody would answer.
            Some(ending) if matches!(ending.why, StopReason::Leave | StopReason::Replaced | StopReason::LeaseOver) => {
                Duration::ZERO
            }
            Some(ending) if ending.why == StopReason::Stop => ending.kill_at.saturating_sub(now).max(LEAST),
            Some(ending) if ending.why == StopReason::Signalled => LEAST,
            _ => self.tools.patience.upload,
        };
        let is_done = match &self.uploader {
            Some(uploader) if !within.is_zero() => {
                uploader.finish(within);
                false
            }
            _ => true,
        };
        self.stage = Stage::Uploading { end, give_up: now + within, is_done };
    }

    /// What was to travel is there, or will not be.
    pub(super) fn sent(&mut self) {
        if let Stage::Uploading { is_done, .. } = &mut self.stage {
            *is_done = true;
        }
    }

    /// The end, once everything is there or the time for it is over.
    pub(super) fn uploaded(&mut self, now: Duration) -> Option<AttemptEnd> {
        match &self.stage {
            Stage::Uploading { end, give_up, is_done } if *is_done || now >= *give_up => Some(end.clone()),
            _ => None,
        }
    }
}
