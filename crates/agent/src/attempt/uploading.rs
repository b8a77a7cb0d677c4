//! The last stage: an attempt's outputs are uploaded to a loop on another machine.

use std::path::Path;
use std::time::Duration;

use control::StopReason;
use domain::Finding;
use domain::files::{RunInput, local_mounts};
use domain::run::AttemptEnd;
use domain::wire::Start;

use super::{Attempt, Ending, Stage, Tools, workdir};
use crate::travel::{Brought, Uploader};

/// The minimum time for it if an attempt was told to stop.
const LEAST: Duration = Duration::from_secs(2);

impl Tools {
    /// The uploader of an attempt's outputs, if the loop is on another machine.
    pub(super) fn uploader(&self, start: &Start, run: &Path) -> Option<Uploader> {
        let attempt = (start.run.clone(), start.attempt.clone(), start.fence);
        let files = self.remote.as_ref()?.files.clone();
        let has_only_logs = start.member.is_some_and(|place| place.rank > 0);
        Some(Uploader::start(files, (run.to_owned(), has_only_logs), attempt, self.events.clone()))
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
            Some(uploader) if !within.is_zero() => {
                uploader.finish(within);
                false
            }
            _ => true,
        };
        self.stage = Stage::Uploading { end, give_up: now + within, is_done };
    }

    /// The upload is complete, or was given up.
    pub(super) fn sent(&mut self) {
        if let Stage::Uploading { is_done, .. } = &mut self.stage {
            *is_done = true;
        }
    }

    /// The end, once everything is there or the time for it is over.
    pub(super) fn uploaded(&mut self, now: Duration) -> Option<AttemptEnd> {
        match &self.stage {
            Stage::Uploading { end, give_up, is_done } if *is_done || now >= *give_up => {
                let end = end.clone();
                self.clear(&end);
                Some(end)
            }
            _ => None,
        }
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
