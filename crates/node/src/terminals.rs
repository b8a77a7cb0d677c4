//! Whether somebody works at this machine.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Linux updates the access time of a terminal at most so often.
const GRANULARITY: Duration = Duration::from_secs(8);

/// Whether a terminal has had input within a time, as `w` finds it: by the access time of its device.
pub fn has_input(within: Duration) -> bool {
    newest(Path::new("/dev/pts"), SystemTime::now()).is_some_and(|ago| ago <= within + GRANULARITY)
}

/// How long ago the newest input of these terminals was. One from the future, by a clock that was set, is now.
fn newest(folder: &Path, now: SystemTime) -> Option<Duration> {
    let terminals = fs::read_dir(folder).ok()?.flatten();
    let terminals = terminals.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    let accessed = terminals.filter_map(|entry| entry.metadata().ok()?.accessed().ok());
    accessed.map(|at| now.duration_since(at).unwrap_or_default()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_input_of_any_terminal_counts() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let newest = |now| newest(folder.path(), now).map(|ago| ago.as_secs());
        assert_eq!(newest(now), None);
        for (name, ago) in [("0", 600), ("7", 90), ("ptmx", 1)] {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            let at = now - Duration::from_secs(ago);
            file.set_times(fs::FileTimes::new().set_accessed(at)).unwrap();
        }
        assert_eq!(newest(now), Some(90));
        assert_eq!(newest(now - Duration::from_secs(100)), Some(0), "a clock that was set back");
    }
}
