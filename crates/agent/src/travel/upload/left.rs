//! How much is left to send once no more output will be written: until then the machine is rented, and who pays for it wants
//! to know why.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use domain::files::KEPT;

use super::files::below;
use super::{FileState, Upload};
use crate::event::AttemptEvent;
use crate::travel::checkpoints::is_own;

/// Less is not worth a report.
const LEAST_REPORTED: u64 = 64 << 20;

/// Between two reports.
const REPORTS: Duration = Duration::from_secs(30);

impl Upload {
    /// Reports now and then what is left to send, after the end of output.
    pub(super) fn report_left(&mut self) {
        let is_due = self.left_reported.is_none_or(|at| at.elapsed() >= REPORTS);
        if self.deadline.is_none() || !is_due {
            return;
        }
        self.left_reported = Some(Instant::now());
        let left = self.left_bytes();
        if left >= LEAST_REPORTED {
            self.tell(AttemptEvent::UploadLeft(left));
        }
    }

    fn left_bytes(&self) -> u64 {
        let is_sent = |folder: &&str| match *folder {
            "checkpoints" => !self.has_only_logs,
            "logs" => self.files.is_some(),
            _ => self.files.is_some() && !self.has_only_logs,
        };
        let paths = KEPT.into_iter().filter(is_sent).flat_map(|folder| below(&self.folder, folder).0);
        let paths = paths.filter(|path| !path.strip_prefix("checkpoints/").is_some_and(is_own));
        paths.map(|path| fs::metadata(self.folder.join(&path)).map_or(0, |meta| self.left_of(&path, &meta))).sum()
    }

    fn left_of(&self, path: &str, meta: &Metadata) -> u64 {
        if path.starts_with("logs/") {
            let dropped_is_sent = self.has_older_loop;
            let data = if dropped_is_sent { meta.len() } else { meta.blocks().saturating_mul(512) };
            return left_of_log(meta.len(), data, self.grown.get(path).copied().unwrap_or(0));
        }
        if self.sent.get(path) == Some(&FileState::of(meta)) {
            return 0;
        }
        meta.len().saturating_sub(self.reached.get(path).copied().unwrap_or(0))
    }
}

/// What is left at most of a log of which so much is data, and so much is sent.
fn left_of_log(length: u64, data: u64, sent: u64) -> u64 {
    length.saturating_sub(sent).min(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_log_has_dropped_is_not_left_to_send() {
        for (length, data, sent, left) in
            [(100, 100, 0, 100), (100, 100, 70, 30), (1000, 60, 10, 60), (1000, 60, 980, 20), (10, 60, 99, 0)]
        {
            assert_eq!(left_of_log(length, data, sent), left, "{length} {data} {sent}");
        }
    }
}
