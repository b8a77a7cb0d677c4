//! The files of runs that had this machine before: deleted when another run takes it over, while that begins. Many files on a
//! slow disk take minutes, and an agent that waited for them would be given up as silent.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use domain::RunId;
use domain::rank::Report;

/// The end of the name of a folder that is to be deleted, which has the name of its run before.
const LEFT: &str = ".left";

/// Runs whose files are not deleted yet.
#[derive(Debug, Default)]
pub struct LeftFiles {
    /// Those whose folders still have their names.
    runs: BTreeSet<RunId>,
    /// Folders that cannot be deleted, of which a user knows. Held while any is deleted.
    said: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl LeftFiles {
    /// A run has left the machine to another one.
    pub fn add(&mut self, run: RunId) {
        self.runs.insert(run);
    }

    /// A run has the machine again: its files are in use.
    pub fn keep(&mut self, run: &RunId) {
        self.runs.remove(run);
    }

    /// Deletes what it can below `runs`, the folder of all runs, on a thread of its own; `report` is given a note for each folder
    /// of which something stays, once. It is tried again with each attempt; the machine is not kept from its work.
    pub fn delete(&mut self, runs: &Path, report: impl Fn(Report) + Send + 'static) -> JoinHandle<()> {
        // Out of the way at once: a run may get the machine again before its files are deleted.
        let mut failed = Vec::new();
        self.runs.retain(|run| match set_aside(runs, run) {
            Ok(()) => false,
            Err(error) => {
                failed.push((runs.join(run.as_str()), run.to_string(), error));
                true
            }
        });
        let (runs, said) = (runs.to_owned(), self.said.clone());
        std::thread::spawn(move || {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            failed.extend(delete_left(&runs));
            for (path, run, error) in failed {
                if said.insert(path) {
                    report(Report::Note { text: not_deleted(&run, &error) });
                }
            }
        })
    }
}

/// Gives the folder of a run a name by which it is known as one to delete. There may be an earlier one, which cannot be deleted.
fn set_aside(runs: &Path, run: &RunId) -> io::Result<()> {
    for number in 1.. {
        let aside = runs.join(format!(".{run}.{number}{LEFT}"));
        match fs::rename(runs.join(run.as_str()), aside) {
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {}
            renamed => return renamed,
        }
    }
    Ok(())
}

/// Deletes every folder that was set aside, also those of an agent that was killed; those of which something stays, each with
/// its run.
fn delete_left(runs: &Path) -> Vec<(PathBuf, String, io::Error)> {
    let mut failed = Vec::new();
    for entry in fs::read_dir(runs).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(LEFT)?.rsplit_once('.'));
        let Some((run, _)) = run else { continue };
        match fs::remove_dir_all(entry.path()) {
            Err(error) if error.kind() != ErrorKind::NotFound => failed.push((entry.path(), run.to_owned(), error)),
            Ok(()) | Err(_) => {}
        }
    }
    failed
}

fn not_deleted(run: &str, error: &io::Error) -> String {
    format!(
        "the files of `{run}`, which had this machine before, cannot be deleted: {error}; \
         they take disk space until the machine is given back"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Deletes what it can, and returns what is said of the rest.
    fn deleted(left: &mut LeftFiles, runs: &Path) -> Vec<String> {
        let (reports, said) = channel();
        left.delete(runs, move |report| reports.send(report).unwrap()).join().unwrap();
        let text = |report| match report {
            Report::Note { text } => text,
            other => panic!("{other:?}"),
        };
        said.into_iter().map(text).collect()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        entries.collect()
    }

    #[test]
    fn what_cannot_be_deleted_is_said_once_and_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (RunId::new("one"), RunId::new("other"));
        fs::create_dir_all(folder.path().join("one/logs")).unwrap();
        // A file in place of a folder cannot be deleted as one, whoever runs this test.
        fs::write(folder.path().join("other"), "").unwrap();
        let mut left = LeftFiles::default();
        [&one, &other, &RunId::new("never-there")].into_iter().for_each(|run| left.add(run.clone()));
        let said = deleted(&mut left, folder.path());
        let [text] = &said[..] else { panic!("{said:?}") };
        assert!(text.starts_with("the files of `other`, which had this machine before, cannot be deleted: "), "{text}");
        assert_eq!(names(folder.path()), [".other.1.left"]);
        assert!(deleted(&mut left, folder.path()).is_empty());
        // One that an agent has left which was killed; and whatever stood in the way is gone.
        fs::create_dir_all(folder.path().join(".earlier.1.left/logs")).unwrap();
        fs::remove_file(folder.path().join(".other.1.left")).unwrap();
        fs::create_dir(folder.path().join(".other.1.left")).unwrap();
        assert!(deleted(&mut left, folder.path()).is_empty());
        assert!(names(folder.path()).is_empty(), "tried again");
    }

    #[test]
    fn a_run_that_begins_does_not_wait_for_what_another_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let mut left = LeftFiles::default();
        for number in 1..3 {
            fs::create_dir_all(folder.path().join(format!(".one.{number}.left/checkpoints"))).unwrap();
        }
        fs::create_dir_all(folder.path().join("one/checkpoints")).unwrap();
        left.add(RunId::new("one"));
        // As if a disk that is slow deleted them.
        let said = left.said.clone();
        let slow = said.lock().unwrap();
        let deleting = left.delete(folder.path(), |report| panic!("{report:?}"));
        // It may get the machine again meanwhile.
        assert!(!folder.path().join("one").exists() && names(folder.path()).len() == 3);
        fs::create_dir_all(folder.path().join("one/checkpoints")).unwrap();
        drop(slow);
        deleting.join().unwrap();
        assert_eq!(names(folder.path()), ["one"]);
    }

    #[test]
    fn the_files_of_a_run_that_has_the_machine_again_stay() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunId::new("one");
        fs::create_dir(folder.path().join("one")).unwrap();
        let mut left = LeftFiles::default();
        left.add(run.clone());
        left.keep(&run);
        assert!(deleted(&mut left, folder.path()).is_empty());
        assert!(folder.path().join("one").exists());
    }
}
