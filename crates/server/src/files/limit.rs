//! How much of this machine's disk files of runs may take: some of it stays free for the event log, without which no run
//! continues, and a server may have a quota.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use domain::Bytes;
use domain::files::KEPT;

use super::Refused;
use crate::home::Transfers;

/// Stays free, or a fiftieth of a smaller disk.
const RESERVE: u64 = 256 << 20;

/// A sum of sizes holds so long; what is received meanwhile is added.
const FRESH: Duration = Duration::from_secs(60);

/// Before something is refused, one of this age is made again: files may have been deleted.
const DOUBTED: Duration = Duration::from_secs(2);

/// How much disk space files of runs, and what clients have uploaded for them, may take.
#[derive(Debug)]
pub(super) struct StorageLimit {
    runs: PathBuf,
    quota: Option<Bytes>,
    /// All limits of a home count the same files.
    transfers: Arc<Transfers>,
}

impl StorageLimit {
    pub(super) fn new(runs: &Path, quota: Option<Bytes>, transfers: Arc<Transfers>) -> StorageLimit {
        StorageLimit { runs: runs.to_owned(), quota, transfers }
    }

    /// Refuses what there is no space for.
    pub(super) fn require(&self, adding: u64) -> Result<(), Refused> {
        if adding == 0 {
            return Ok(());
        }
        let disk = rustix::fs::statvfs(&self.runs)
            .ok()
            .map(|disk| (disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize)));
        let full = |why| (StatusCode::INSUFFICIENT_STORAGE, why);
        if let Some(why) = disk.and_then(|(free, total)| lacks_space(adding, free, total)) {
            return Err(full(why));
        }
        self.quota.map_or(Ok(()), |quota| self.within(quota, adding).map_err(full))
    }

    fn within(&self, quota: Bytes, adding: u64) -> Result<(), String> {
        let mut used = self.transfers.used();
        let known = used.filter(|(at, bytes)| {
            let age = at.elapsed();
            age < FRESH && (age < DOUBTED || exceeds(adding, *bytes, quota).is_none())
        });
        let (at, bytes) = known.unwrap_or_else(|| {
            (Instant::now(), bytes_of_runs(&self.runs) + bytes_below(&super::blobs::folder(&self.runs)))
        });
        let refusal = exceeds(adding, bytes, quota);
        let added = if refusal.is_none() { adding } else { 0 };
        *used = Some((at, bytes.saturating_add(added)));
        refusal.map_or(Ok(()), Err)
    }
}

/// Why so many bytes more leave too little of a disk.
fn lacks_space(adding: u64, free: u64, total: u64) -> Option<String> {
    let reserve = RESERVE.min(total / 50);
    let message =
        || format!("{:.1} GB are free, and {:.1} GB are kept for the event log", gigabytes(free), gigabytes(reserve));
    (free < reserve.saturating_add(adding)).then(message)
}

/// Why so many bytes more are beyond a quota.
fn exceeds(adding: u64, used: u64, quota: Bytes) -> Option<String> {
    let message = || {
        let (used, quota) = (gigabytes(used), gigabytes(quota.0));
        format!("files of runs and blobs take {used:.1} GB of the {quota:.1} GB of `gradus serve --quota`")
    };
    (used.saturating_add(adding) > quota.0).then(message)
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// Bytes on the disk of what agents have sent, of all runs.
fn bytes_of_runs(runs: &Path) -> u64 {
    let of_run = |run: fs::DirEntry| -> u64 { KEPT.iter().map(|kept| bytes_below(&run.path().join(kept))).sum() };
    fs::read_dir(runs).into_iter().flatten().flatten().map(of_run).sum()
}

fn bytes_below(path: &Path) -> u64 {
    let Ok(about) = fs::symlink_metadata(path) else { return 0 };
    if !about.is_dir() {
        // What was dropped of a log takes no space, and a file of several names takes it once.
        return about.blocks() * 512 / about.nlink().max(1);
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| bytes_below(&entry.path())).sum()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn some_of_a_disk_stays_free_for_the_event_log() {
        const GB: u64 = 1_000_000_000;
        assert_eq!(lacks_space(64 << 20, GB, 100 * GB), None);
        let why = lacks_space(64 << 20, 300 << 20, 100 * GB).unwrap();
        assert_eq!(why, "0.3 GB are free, and 0.3 GB are kept for the event log");
        // A small disk is not kept empty.
        assert_eq!(lacks_space(1 << 20, 10 << 20, 100 << 20), None);
        assert!(lacks_space(1 << 20, 2 << 20, 100 << 20).is_some());
    }

    #[test]
    fn a_quota_counts_what_agents_have_sent_of_all_runs() {
        let folder = tempfile::tempdir().unwrap();
        for (place, bytes) in [("a/checkpoints/step-1", 8192), ("b/logs", 4096), ("b/attempts/1", 100_000)] {
            fs::create_dir_all(folder.path().join(place)).unwrap();
            let mut file = fs::File::create(folder.path().join(place).join("file")).unwrap();
            file.write_all(&vec![1; bytes]).unwrap();
            file.sync_all().unwrap();
        }
        let used = bytes_of_runs(folder.path());
        let checkpoint = folder.path().join("a/checkpoints");
        fs::hard_link(checkpoint.join("step-1/file"), checkpoint.join("best")).unwrap();
        assert_eq!(bytes_of_runs(folder.path()), used, "a second name takes no space");
        assert!((12_288..100_000).contains(&used), "{used}");
        let limit = StorageLimit::new(folder.path(), Some(Bytes(used + 1000)), Arc::default());
        assert!(limit.within(Bytes(used + 1000), 600).is_ok());
        let why = limit.within(Bytes(used + 1000), 600).unwrap_err();
        assert!(why.contains("gradus serve --quota"), "what was received since counts: {why}");
        assert!(limit.within(Bytes(used + 1000), 400).is_ok());
        // What was deleted is noticed before anything else is refused.
        fs::remove_dir_all(folder.path().join("a")).unwrap();
        *limit.transfers.used() = Instant::now().checked_sub(DOUBTED).map(|at| (at, used + 1000));
        assert!(limit.within(Bytes(used + 1000), 600).is_ok());
    }
}
