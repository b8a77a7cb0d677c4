//! The last stage: an attempt's outputs are uploaded to a loop on another machine, and its checkpoints there or to the object
//! store that the job names.
//!
//! Of an attempt that ended by itself they are sent for as long as something arrives, which the loop ends by an order to
//! stop, such as when the budget is spent. An attempt whose outputs did not arrive has not succeeded.

use std::path::Path;
use std::time::Duration;

use control::StopReason;
use domain::files::{RunInput, STILL_SENDING, local_mounts};
use domain::rank::{Pause, Report};
use domain::run::AttemptEnd;
use domain::wire::{AgentEvent, Start};
use domain::{Cause, Finding};

use super::events::reported;
use super::{Attempt, Ending, Stage, Tools, workdir};
use crate::travel::{self, Brought, CheckpointDestination, UploadFailure, Uploader};

/// The minimum time for it if an attempt was told to stop.
const LEAST: Duration = Duration::from_secs(2);

/// Outputs that were there sooner than this have not kept the run waiting.
const NOTABLE: Duration = Duration::from_secs(1);

impl Tools {
    /// Where the checkpoints of an attempt are kept, if that is not only here.
    pub(super) fn destination(&self, start: &Start) -> Option<Box<dyn CheckpointDestination>> {
        travel::destination(self.remote.as_ref().map(|remote| &remote.files), start, (&self.owner, &self.access))
    }

    /// The uploader of an attempt's outputs, if they are kept elsewhere.
    pub(super) fn uploader(&self, start: &Start, run: &Path) -> Option<Uploader> {
        let attempt = (start.run.clone(), start.attempt.clone(), start.fence);
        let files = self.remote.as_ref().map(|remote| remote.files.clone());
        let destination = self.destination(start)?;
        let has_only_logs = start.member.is_some_and(|place| place.rank > 0);
        Some(Uploader::start((files, destination), (run.to_owned(), has_only_logs), attempt, self.events.clone()))
    }
}

impl Attempt {
    /// Records which files were copied to this machine, for messages.
    pub(super) fn remember_copies(&mut self, brought: &Brought) {
        let source = |input: RunInput| input.of(&self.start.job.work).map(str::to_owned);
        let copies = brought.inputs.iter().filter_map(|(input, path)| Some((path, source(*input)?)));
        let mounts = local_mounts(&self.start.job.work);
        let mounts = mounts.filter_map(|(number, source)| Some((brought.mounts.get(&number)?, source.to_owned())));
        self.copies = copies.chain(mounts).map(|(path, source)| (path.to_string_lossy().into(), source)).collect();
    }

    /// Translates paths in a message to those on the loop's machine.
    pub(super) fn said_there(&self, text: &str) -> String {
        let Some(remote) = &self.tools.remote else { return text.to_owned() };
        let copies = self.copies.iter().map(|(here, there)| (here, there));
        let pairs = copies.chain([(&self.start.folder, &remote.folder)]);
        pairs.fold(text.to_owned(), |text, (here, there)| text.replace(here, there))
    }

    pub(super) fn finding_there(&self, finding: Finding) -> Finding {
        let message = self.said_there(&finding.message);
        let hint = finding.hint.as_ref().map(|hint| self.said_there(hint));
        Finding { message, hint, ..finding }
    }

    /// All processes of the attempt have ended.
    pub(super) fn upload(&mut self, end: AttemptEnd, now: Duration) {
        let end = match end {
            AttemptEnd::Failed { finding, exit_code } => {
                AttemptEnd::Failed { finding: self.finding_there(finding), exit_code }
            }
            other => other,
        };
        let within = match &self.ending {
            // The outputs are not needed, or the loop would not answer.
            Some(ending) if matches!(ending.why, StopReason::Leave | StopReason::Replaced | StopReason::LeaseOver) => {
                Duration::ZERO
            }
            Some(ending) if ending.why == StopReason::Stop => ending.kill_at.saturating_sub(now).max(LEAST),
            Some(ending) if ending.why == StopReason::Signalled => LEAST,
            Some(Ending { gone_at: Some(gone_at), .. }) => gone_at.saturating_sub(now).max(LEAST),
            _ => self.tools.patience.upload,
        };
        let is_done = match &self.uploader {
            // It says what did not arrive before that is given up.
            Some(uploader) if self.ending.is_none() => {
                uploader.finish_while_moving(before(within));
                false
            }
            Some(uploader) if !within.is_zero() => {
                uploader.finish(before(within));
                false
            }
            Some(_) | None => true,
        };
        let mut stage = Stage::Uploading { end, since: now, give_up: now + within, is_done };
        if is_done && self.uploader.is_some() {
            let why = "the machine was given back, or the loop did not answer";
            lack(&mut stage, &UploadFailure::unsent(Cause::InstanceLost, why), self.is_follower());
        }
        self.stage = stage;
    }

    /// More of its outputs has arrived: the rest is waited for, unless there is an order to end.
    pub(super) fn upload_moved(&mut self, now: Duration) -> Vec<AgentEvent> {
        let is_ordered = self.ending.as_ref().is_some_and(|ending| ending.why != StopReason::NodeLost);
        if let (Stage::Uploading { give_up, .. }, false) = (&mut self.stage, is_ordered) {
            *give_up = now + self.tools.patience.upload;
        }
        Vec::new()
    }

    /// Reports why the attempt has not ended, and its machine is not released.
    pub(super) fn upload_left(&self, left: u64) -> Vec<AgentEvent> {
        if !matches!(self.stage, Stage::Uploading { is_done: false, .. }) {
            return Vec::new();
        }
        let text = format!("{STILL_SENDING}: {:.2} GB left", left as f64 / 1e9);
        vec![reported(Report::Note { text })]
    }

    /// The loop's machine has no space for them. They wait here, as long as for anything that does not arrive.
    pub(super) fn upload_waits(&self, why: &str, now: Duration) -> Vec<AgentEvent> {
        let Stage::Uploading { since, .. } = self.stage else { return Vec::new() };
        if self.is_follower() {
            return Vec::new();
        }
        let text = format!("what was written waits on the machine: {why}");
        vec![sending(now.saturating_sub(since)), reported(Report::Note { text })]
    }

    /// There is less time for it.
    pub(super) fn hurry_upload(&mut self, until: Duration, now: Duration) {
        if let Stage::Uploading { give_up, .. } = &mut self.stage {
            *give_up = until.min(*give_up);
            self.uploader.iter().for_each(|uploader| uploader.finish(before(give_up.saturating_sub(now))));
        }
    }

    /// The upload is complete, or was given up. Reports what is missing, unless the end says so.
    pub(super) fn sent(&mut self, result: Result<(), Box<UploadFailure>>, now: Duration) -> Vec<AgentEvent> {
        let failure = result.err().map(|failure| {
            let finding = self.finding_there(failure.finding.clone());
            UploadFailure { finding, ..*failure }
        });
        let is_follower = self.is_follower();
        let Stage::Uploading { is_done, since, .. } = &mut self.stage else { return Vec::new() };
        *is_done = true;
        let took = now.saturating_sub(*since);
        let mut events = Vec::new();
        if took >= NOTABLE && !is_follower {
            events.push(sending(took));
        }
        let Some(failure) = failure else { return events };
        if !lack(&mut self.stage, &failure, is_follower) {
            events.push(reported(Report::Note { text: failure.finding.message }));
        }
        events
    }

    /// The end, once everything is there or the time for it is over.
    pub(super) fn uploaded(&mut self, now: Duration) -> Option<AttemptEnd> {
        let Stage::Uploading { give_up, is_done, .. } = self.stage else { return None };
        if !is_done && now < give_up {
            return None;
        }
        if !is_done {
            let failure = UploadFailure::unsent(Cause::Unreadable, "the time to send it was over");
            let is_follower = self.is_follower();
            lack(&mut self.stage, &failure, is_follower);
        }
        let Stage::Uploading { end, .. } = &self.stage else { return None };
        let end = end.clone();
        self.clear(&end);
        Some(end)
    }

    /// Takes what `file_mounts` put on the machine away, and deletes its copies, and on a node the working folder, which a
    /// failed program leaves for `gradus ssh`.
    fn clear(&mut self, end: &AttemptEnd) {
        self.placed = None;
        let attempt = Path::new(&self.start.folder).join("attempts").join(self.start.attempt.as_str());
        let _ = std::fs::remove_dir_all(attempt.join(workdir::MOUNTS));
        if self.tools.remote.is_some() && !matches!(end, AttemptEnd::Failed { .. }) {
            let _ = std::fs::remove_dir_all(attempt.join("workdir"));
        }
    }
}

/// An attempt's outputs have not all arrived: it ends as what that makes of it. Returns whether it fails by that. Of a
/// machine that sends only logs, the end says nothing of outputs.
fn lack(stage: &mut Stage, failure: &UploadFailure, is_follower: bool) -> bool {
    let Stage::Uploading { end, .. } = stage else { return false };
    let Some(instead) = failure.instead_of(end).filter(|_| !is_follower) else { return false };
    *end = instead;
    matches!(end, AttemptEnd::Failed { .. })
}

/// For how long only outputs are sent, which is no productive time.
fn sending(took: Duration) -> AgentEvent {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    reported(Report::Pausing { pause: Pause::Sending { us } })
}

/// A little less time, so that an answer comes within it.
fn before(within: Duration) -> Duration {
    within - within / 10
}
