//! What tells a file that was written again from the one that was sent.
//!
//! Times of files move in ticks of the kernel's clock. What is written twice within one tick looks the same after both, so
//! a file that was changed in this tick is sent only once the tick is over: what is written later has another time.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// More than a tick: the kernel's clock of file times moves every 10 ms at the latest.
const TICK: Duration = Duration::from_millis(20);

/// The same of file systems that store whole seconds, or even ones.
const COARSE_TICK: Duration = Duration::from_secs(2);

/// A file as it was. The time of the last change, unlike that of the last write, cannot be set by a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileState {
    /// Its size.
    pub(super) bytes: u64,
    /// Its number in the file system: another one where it was replaced.
    inode: u64,
    /// Seconds and nanoseconds of its last write.
    written: (i64, i64),
    /// The same of its last change.
    changed: (i64, i64),
}

impl FileState {
    /// That of these metadata.
    pub(super) fn of(meta: &Metadata) -> FileState {
        FileState {
            bytes: meta.len(),
            inode: meta.ino(),
            written: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// How often a file that is being written is waited for.
const WAITS: u32 = 10;

/// The metadata of a file once a later change would show in them; `meta` is what they were just now. Of one that is written
/// all the time, those of some moment: the next change shows.
///
/// # Errors
/// If they cannot be read again.
pub(super) fn settled(place: &Path, mut meta: Metadata) -> io::Result<Metadata> {
    for _ in 0..WAITS {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match unsettled(FileState::of(&meta).changed, now) {
            None => break,
            Some(wait) => std::thread::sleep(wait),
        }
        meta = fs::metadata(place)?;
    }
    Ok(meta)
}

/// How long another change may still get the same time as this one. `None` once it cannot, and for a time that is ahead of
/// the clock, which says nothing.
fn unsettled((seconds, nanoseconds): (i64, i64), now: Duration) -> Option<Duration> {
    let tick = if nanoseconds == 0 { COARSE_TICK } else { TICK };
    let changed = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanoseconds).ok()?);
    let ago = now.checked_sub(changed)?;
    tick.checked_sub(ago).filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_settles_a_tick_after_its_last_change() {
        let at = |seconds: u64, millis: u32| Duration::new(seconds, millis * 1_000_000);
        let check = |changed: (i64, i64), now: Duration, wait: Option<u64>| {
            assert_eq!(unsettled(changed, now), wait.map(Duration::from_millis), "{changed:?} {now:?}");
        };
        check((10, 5_000_000), at(10, 5), Some(20));
        check((10, 5_000_000), at(10, 18), Some(7));
        check((10, 5_000_000), at(10, 25), None);
        check((10, 5_000_000), at(99, 0), None);
        // Whole seconds.
        check((10, 0), at(11, 500), Some(500));
        check((10, 0), at(12, 0), None);
        // A clock that was put back, and times that are none.
        check((10, 5_000_000), at(9, 0), None);
        check((-1, 0), at(1, 0), None);
    }

    #[test]
    fn a_file_that_was_replaced_is_another_with_the_same_size_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        fs::write(&one, "first").unwrap();
        let before = fs::metadata(&one).unwrap();
        fs::write(&other, "later").unwrap();
        let file = fs::File::options().write(true).open(&other).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
        fs::rename(&other, &one).unwrap();
        let after = fs::metadata(&one).unwrap();
        assert_eq!((before.len(), before.modified().unwrap()), (after.len(), after.modified().unwrap()));
        assert_ne!(FileState::of(&before), FileState::of(&after));
    }
}
