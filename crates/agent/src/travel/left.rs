//! The files of runs that had this machine before: deleted when another run takes it over.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use domain::RunId;
use domain::rank::Report;
use domain::wire::AgentEvent;

/// Runs whose files are not deleted yet.
#[derive(Debug, Default)]
pub struct LeftFiles {
    runs: BTreeSet<RunId>,
    /// Those that a user knows of.
    said: BTreeSet<RunId>,
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

    /// Deletes what it can below `runs`, the folder of all runs, and returns a note for each run of which something stays,
    /// once. It is tried again with each attempt; the machine is not kept from its work.
    pub fn delete(&mut self, runs: &Path) -> Vec<AgentEvent> {
        let failed: Vec<(RunId, io::Error)> = self
            .runs
            .iter()
            .filter_map(|run| match fs::remove_dir_all(runs.join(run.as_str())) {
                Err(error) if error.kind() != ErrorKind::NotFound => Some((run.clone(), error)),
                _ => None,
            })
            .collect();
        self.runs = failed.iter().map(|(run, _)| run.clone()).collect();
        let new = failed.into_iter().filter(|(run, _)| self.said.insert(run.clone()));
        let note = |(run, error): (RunId, io::Error)| {
            let text = format!(
                "the files of `{run}`, which had this machine before, cannot be deleted: {error}; \
                 they take disk space until the machine is given back"
            );
            AgentEvent::Reported { rank: 0, report: Report::Note { text } }
        };
        new.map(note).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_deleted_is_said_once_and_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (RunId::new("one"), RunId::new("other"));
        fs::create_dir_all(folder.path().join("one/logs")).unwrap();
        // A file in place of a folder cannot be deleted as one, whoever runs this test.
        fs::write(folder.path().join("other"), "").unwrap();
        let mut left = LeftFiles::default();
        [&one, &other, &RunId::new("never-there")].into_iter().for_each(|run| left.add(run.clone()));
        let said = left.delete(folder.path());
        let [AgentEvent::Reported { report: Report::Note { text }, .. }] = &said[..] else { panic!("{said:?}") };
        assert!(text.starts_with("the files of `other`, which had this machine before, cannot be deleted: "), "{text}");
        assert!(!folder.path().join("one").exists());
        assert_eq!(left.delete(folder.path()), []);
        fs::remove_file(folder.path().join("other")).unwrap();
        fs::create_dir(folder.path().join("other")).unwrap();
        assert_eq!(left.delete(folder.path()), []);
        assert!(!folder.path().join("other").exists(), "tried again");
    }

    #[test]
    fn the_files_of_a_run_that_has_the_machine_again_stay() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunId::new("one");
        fs::write(folder.path().join("one"), "").unwrap();
        let mut left = LeftFiles::default();
        left.add(run.clone());
        assert_eq!(left.delete(folder.path()).len(), 1);
        fs::remove_file(folder.path().join("one")).unwrap();
        fs::create_dir(folder.path().join("one")).unwrap();
        left.keep(&run);
        assert_eq!(left.delete(folder.path()), []);
        assert!(folder.path().join("one").exists());
    }
}
