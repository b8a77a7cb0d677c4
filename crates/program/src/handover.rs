//! Random number generators of the other ranks of this machine, which differ by rank, passed to the rank that writes.
//!
//! Each is a small file in the checkpoint folder, renamed into place, and removed by the rank that writes. All other
//! state is the same on every rank, or gathered by the program.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Error;

/// Ranks that train together reach the same save within a step; a rank that does not within this time is not waited for
/// again, unless its part comes later.
const PATIENCE: Duration = Duration::from_secs(10);

/// Prefix of the files; with a dot, so that they are not transferred from their machine.
const START: &str = ".rank-";

fn path(folder: &Path, step: u64, rank: u32) -> PathBuf {
    folder.join(format!("{START}{rank}-{step}.json"))
}

/// Gives this rank's part of step `step` to the one that writes.
pub(crate) fn give(folder: &Path, step: u64, rank: u32, part: &Value) -> Result<(), Error> {
    let target = path(folder, step, rank);
    let draft = folder.join(format!("{START}{rank}.draft"));
    let failed = |source| Error::File { doing: "write", path: target.clone(), source };
    fs::write(&draft, part.to_string()).and_then(|()| fs::rename(&draft, &target)).map_err(failed)
}

/// The parts of ranks 1 to `ranks` - 1, by rank, and the ranks that have not given theirs: in time, if it waits. What was
/// left of earlier steps is removed.
pub(crate) fn take(folder: &Path, step: u64, ranks: u32, waits: bool) -> (BTreeMap<u32, Value>, Vec<u32>) {
    let taken = take_within(folder, step, ranks, if waits { PATIENCE } else { Duration::ZERO });
    for path in of_earlier_steps(folder, step) {
        // What stays is met again by the next save.
        let _ = fs::remove_file(path);
    }
    taken
}

/// Whether a part of an earlier step came after it was waited for: ranks that are late now and then do save.
pub(crate) fn came_late(folder: &Path, step: u64) -> bool {
    !of_earlier_steps(folder, step).is_empty()
}

/// The parts of steps before `step` that nobody has taken.
fn of_earlier_steps(folder: &Path, step: u64) -> Vec<PathBuf> {
    let is_earlier = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let numbers = name.strip_prefix(START).and_then(|name| name.strip_suffix(".json"));
        let of = numbers.and_then(|numbers| numbers.split_once('-')?.1.parse::<u64>().ok());
        of.is_some_and(|of| of < step)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_earlier).collect()
}

fn take_within(folder: &Path, step: u64, ranks: u32, patience: Duration) -> (BTreeMap<u32, Value>, Vec<u32>) {
    let end = Instant::now() + patience;
    let mut taken = BTreeMap::new();
    loop {
        let missing: Vec<u32> = (1..ranks).filter(|rank| !taken.contains_key(rank)).collect();
        for rank in missing {
            let path = path(folder, step, rank);
            let part = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            if let Some(part) = part {
                taken.insert(rank, part);
                let _ = fs::remove_file(&path);
            }
        }
        let missing: Vec<u32> = (1..ranks).filter(|rank| !taken.contains_key(rank)).collect();
        if missing.is_empty() || Instant::now() >= end {
            return (taken, missing);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Removes leftovers of an earlier process.
pub(crate) fn clear(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(START)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_are_taken_once_and_a_rank_that_never_comes_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        give(folder.path(), 7, 1, &json!({"torch": "a"})).unwrap();
        give(folder.path(), 8, 2, &json!({"torch": "of another step"})).unwrap();
        let (taken, missing) = take_within(folder.path(), 7, 3, Duration::ZERO);
        assert_eq!((taken.get(&1), missing), (Some(&json!({"torch": "a"})), vec![2]));
        let (taken, missing) = take_within(folder.path(), 7, 3, Duration::ZERO);
        assert_eq!((taken.len(), missing), (0, vec![1, 2]), "it is taken once");
        clear(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_part_that_came_late_is_seen_once_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(take(folder.path(), 7, 2, false), (BTreeMap::new(), vec![1]));
        assert!(!came_late(folder.path(), 8));
        give(folder.path(), 7, 1, &json!("late")).unwrap();
        give(folder.path(), 8, 1, &json!("in time")).unwrap();
        assert!(came_late(folder.path(), 8) && !came_late(folder.path(), 7));
        assert_eq!(take(folder.path(), 8, 2, false), (BTreeMap::from([(1, json!("in time"))]), vec![]));
        assert!(!came_late(folder.path(), 9) && fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn one_rank_alone_waits_for_nobody() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(take(folder.path(), 1, 1, true), (BTreeMap::new(), vec![]));
    }
}
