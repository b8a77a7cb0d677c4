//! Files that frameworks write and that are read: found by their names, in folders of a bounded size.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most entries that one look goes through.
const MOST: usize = 20_000;

/// Most folders below one another.
const DEEPEST: usize = 8;

/// Folders of packages and versions, in which no program writes its results.
const LEFT_OUT: [&str; 6] = [".git", "node_modules", "site-packages", "__pycache__", ".venv", "venv"];

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    /// TensorBoard's.
    pub scalars: Vec<PathBuf>,
    /// `trainer_state.json` of Hugging Face's trainer.
    pub states: Vec<PathBuf>,
}

/// Files below `folders` that were written since `started`. Links are followed only to files.
pub(super) fn files(folders: &[&Path], started: SystemTime) -> Files {
    let mut found = Files::default();
    let mut waiting: Vec<(PathBuf, usize)> = folders.iter().map(|folder| (folder.to_path_buf(), 0)).collect();
    let mut entries = 0;
    while let Some((folder, depth)) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            entries += 1;
            if entries > MOST {
                return found;
            }
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if depth < DEEPEST && !LEFT_OUT.contains(&name) {
                    waiting.push((entry.path(), depth + 1));
                }
                continue;
            }
            let (is_scalars, is_state) = (name.contains(".tfevents."), name == "trainer_state.json");
            if !is_scalars && !is_state {
                continue;
            }
            let is_new = entry.metadata().and_then(|about| about.modified()).is_ok_and(|written| written >= started);
            if is_new {
                if is_state { found.states.push(entry.path()) } else { found.scalars.push(entry.path()) }
            }
        }
    }
    // Checkpoints are numbered, and later ones know more.
    found.states.sort();
    found.scalars.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_was_written_since_is_found_and_not_in_packages() {
        let root = tempfile::tempdir().unwrap();
        for path in [
            "runs/a/events.out.tfevents.1.host.2",
            "venv/trainer_state.json",
            "out/checkpoint-5/trainer_state.json",
            "out/x.json",
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let before = SystemTime::now() - Duration::from_secs(60);
        let found = files(&[root.path(), &root.path().join("missing")], before);
        let expected = Files {
            scalars: vec![root.path().join("runs/a/events.out.tfevents.1.host.2")],
            states: vec![root.path().join("out/checkpoint-5/trainer_state.json")],
        };
        assert_eq!(found, expected);
        assert_eq!(files(&[root.path()], SystemTime::now() + Duration::from_secs(60)), Files::default());
    }
}
