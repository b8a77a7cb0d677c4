//! What a program has written into its working folder, which the next attempt does not find there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::figures::{counted, size};

/// Files that a program makes by itself and nobody misses.
const UNMISSED: [&str; 3] = ["__pycache__", ".pytest_cache", ".ipynb_checkpoints"];

/// So many files are looked at.
const MOST: usize = 100_000;

/// A note on what the newest attempt of a run has written, if it has written anything; `run` is the folder of the run.
pub fn note(run: &Path, attempt: &str) -> Option<String> {
    let folder = run.join("attempts").join(attempt);
    // The script is written once the working folder is copied, and before it starts.
    let begun = fs::metadata(folder.join("run.sh")).and_then(|script| script.modified()).ok()?;
    let mut found = Vec::new();
    newer(&folder.join("workdir"), begun, &mut found);
    let (first, _) = found.first()?;
    let bytes: u64 = found.iter().map(|(_, bytes)| bytes).sum();
    let inner = first.strip_prefix(folder.join("workdir")).unwrap_or(first);
    let top = inner.iter().next().unwrap_or_default().to_string_lossy();
    let keep = match inner.iter().count() {
        0 | 1 => {
            "write to `$GRADUS_CHECKPOINTS`, or into a folder that `outputs: [FOLDER]` in the job names".to_owned()
        }
        _ => format!("`outputs: [{top}]` in the job keeps it"),
    };
    Some(format!(
        "note: the program wrote {} ({}) into its working folder, such as `{}`; a new attempt does not find them: {keep}\n      they are in `{}`",
        counted(found.len() as u64, "file"),
        size(bytes),
        inner.display(),
        folder.join("workdir").display()
    ))
}

/// Files below a folder that were changed at an instant or after it; links, such as those of `outputs`, are not followed.
/// The instant is the kernel's last tick, and a program that starts at once writes within the same one; copies have the
/// times of their sources.
fn newer(folder: &Path, begun: SystemTime, found: &mut Vec<(PathBuf, u64)>) {
    let mut entries: Vec<fs::DirEntry> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let is_unmissed = UNMISSED.iter().any(|name| entry.file_name() == *name);
        let Ok(about) = entry.metadata() else { continue };
        if is_unmissed || found.len() >= MOST {
            continue;
        }
        match (about.is_dir(), about.is_file()) {
            (true, _) => newer(&entry.path(), begun, found),
            (_, true) if about.modified().is_ok_and(|changed| changed >= begun) => {
                found.push((entry.path(), about.len()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_program_writes_within_the_tick_of_its_start_is_found() {
        let run = tempfile::tempdir().unwrap();
        let workdir = run.path().join("attempts/a/workdir");
        fs::create_dir_all(workdir.join("out")).unwrap();
        let begun = SystemTime::now();
        let write = |path: PathBuf, changed: SystemTime| {
            fs::write(&path, "12345").unwrap();
            File::open(path).unwrap().set_modified(changed).unwrap();
        };
        write(run.path().join("attempts/a/run.sh"), begun);
        write(workdir.join("copied.py"), begun - Duration::from_secs(60));
        assert_eq!(note(run.path(), "a"), None);
        write(workdir.join("out/model.bin"), begun);
        let said = note(run.path(), "a").unwrap();
        assert!(said.contains("1 file (5 B)") && said.contains("`out/model.bin`"), "{said}");
    }
}
