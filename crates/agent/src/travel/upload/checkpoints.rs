//! Sends checkpoints, and says which of their files are still needed.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;

use domain::files::KeepRequest;

use super::files::below;
use super::{FileState, PassedOver, Upload};
use crate::travel::checkpoints::{is_manifest, is_own};
use crate::travel::loop_files::{REQUEST, TravelError};

impl Upload {
    /// Sends complete files that are missing there, manifests last; then reports which are still needed. What has arrived
    /// is seen there although something else has not.
    pub(super) fn checkpoints(&mut self) -> Result<(), TravelError> {
        let sent = self.send_checkpoints();
        let within = self.left(REQUEST);
        let published = self.destination.publish(within);
        if published.is_ok() {
            self.unpublished.clear();
        }
        sent.and(published)
    }

    fn send_checkpoints(&mut self) -> Result<(), TravelError> {
        let (is_staged, is_last) = (self.is_staged, self.deadline.is_some());
        if self.has_only_logs || !is_staged && !is_last {
            return Ok(());
        }
        // A file that is deleted meanwhile is of a checkpoint that has been replaced; the next round has the newer one.
        let (mut paths, listed) = below(&self.folder, "checkpoints");
        paths.retain(|path| !is_own(in_checkpoints(path)));
        if !is_staged && !paths.is_empty() {
            self.retain_unknown(&mut paths)?;
        }
        paths.sort_by_key(|path| is_manifest(in_checkpoints(path)));
        let (mut passed_over, is_listed) = (PassedOver::default(), listed.is_ok());
        let mut lacks_part = !is_listed;
        passed_over.note(listed)?;
        for path in &paths {
            if lacks_part && is_manifest(in_checkpoints(path)) {
                break;
            }
            let result = self.whole(path);
            lacks_part |= result.is_err() && is_part(in_checkpoints(path));
            if is_staged && is_listed && matches!(result, Err(TravelError::Full(_))) {
                self.make_room(&paths);
            }
            // The others would wait for the same store.
            if matches!(result, Err(TravelError::Store(_) | TravelError::Denied(_))) {
                return result;
            }
            passed_over.note(result)?;
        }
        passed_over.result()?;
        if is_staged { self.keep(&paths, is_last) } else { Ok(()) }
    }

    /// The loop's disk is full: the files of checkpoints that were deleted here are deleted there as well, before what
    /// replaces them has arrived, if there is a whole one left. All of `paths` are here.
    fn make_room(&mut self, paths: &[String]) {
        let here: BTreeSet<&String> = paths.iter().collect();
        let is_of_checkpoint = |path: &str| is_part(in_checkpoints(path)) || is_manifest(in_checkpoints(path));
        // A checkpoint whose manifest is still here has all its files in `paths`: its manifest is deleted first.
        // One that was written again since it was sent may name other files than those there.
        let is_there = |path: &String| {
            let now = fs::metadata(self.folder.join(path)).map(|meta| FileState::of(&meta)).ok();
            now.is_some() && self.sent.get(path) == now.as_ref()
        };
        let has_whole = paths.iter().any(|path| is_manifest(in_checkpoints(path)) && is_there(path));
        let is_gone = |path: &String| is_of_checkpoint(path) && !here.contains(path);
        if !has_whole || !self.sent.keys().any(is_gone) {
            return;
        }
        let files = paths.iter().map(|path| in_checkpoints(path).to_owned()).collect();
        let request = KeepRequest { fence: self.fence, files, removed: Vec::new() };
        let within = self.left(REQUEST);
        // If it is not heard, the next round asks again.
        if self.destination.keep(&request, within).is_ok() {
            self.sent.retain(|path, _| !is_of_checkpoint(path) || here.contains(path));
        }
    }

    /// Of an attempt that ended before the checkpoints from there were here, nothing may replace what is there: it may be
    /// older.
    fn retain_unknown(&mut self, paths: &mut Vec<String>) -> Result<(), TravelError> {
        let within = self.left(REQUEST);
        let listing = self.destination.list(Some(within))?;
        let there: BTreeSet<String> = listing.files.into_iter().map(|file| file.path).collect();
        paths.retain(|path| !there.contains(in_checkpoints(path)));
        Ok(())
    }

    /// Reports which checkpoint files are still needed, and which are gone of those that were sent. All of `paths` are
    /// there. While files are written, one listing may miss both an old file and the one that replaces it, so a file is
    /// gone only if two have missed it: the second has what was whole before the first.
    fn keep(&mut self, paths: &[String], is_last: bool) -> Result<(), TravelError> {
        let here: BTreeSet<&String> = paths.iter().collect();
        let sent = self.sent.keys().filter(|path| path.starts_with("checkpoints/"));
        let gone: BTreeSet<String> = sent.filter(|path| !here.contains(path)).cloned().collect();
        let before = std::mem::replace(&mut self.gone, gone);
        let is_removed = |path: &&String| {
            let meta = fs::symlink_metadata(self.folder.join(path));
            (is_last || before.contains(*path)) && meta.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let removed: Vec<String> = self.gone.iter().filter(is_removed).cloned().collect();
        // A folder without any file may be one that is not mounted.
        if paths.is_empty() || !self.is_keep_due && removed.is_empty() {
            return Ok(());
        }
        let named = |paths: &[String]| paths.iter().map(|path| in_checkpoints(path).to_owned()).collect();
        let request = KeepRequest { fence: self.fence, files: named(paths), removed: named(&removed) };
        let within = self.left(REQUEST);
        self.destination.keep(&request, within)?;
        self.is_keep_due = false;
        for path in &removed {
            self.sent.remove(path);
        }
        Ok(())
    }
}

/// The path of a checkpoint file below their folder.
pub(super) fn in_checkpoints(path: &str) -> &str {
    path.strip_prefix("checkpoints/").unwrap_or(path)
}

/// Whether a manifest may list it.
fn is_part(path: &str) -> bool {
    ["step-", "best-", "data-"].iter().any(|start| path.starts_with(start))
}
