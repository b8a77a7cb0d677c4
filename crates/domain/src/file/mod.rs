//! How the job file is read: YAML to a tree with line numbers, the tree against the schema of the types, and only
//! then into a [`Job`]. Every problem is told at once, each with its line.

use std::path::Path;

use crate::job::{Job, Work};
use crate::problem::{Problem, Problems};

/// A job that was read, and what is worth saying about its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The job with every default filled in; its paths stand as they were written, see [`Job::resolve`].
    pub job: Job,
    /// What the user should know but need not mend.
    pub warnings: Vec<Problem>,
}

impl Job {
    /// Reads a job file. `file_name` is told in problems, and its stem names a job that has no `name`.
    ///
    /// # Errors
    /// Everything that is wrong with the file, not only the first thing.
    pub fn parse(text: &str, file_name: &str) -> Result<Parsed, Problems> {
        let _ = text;
        let problems = vec![Problem::at("", "reading job files is being built")];
        Err(Problems { file: file_name.to_owned(), problems })
    }

    /// Makes the paths of the job absolute: those that are relative are taken from `base`, the job file's folder.
    pub fn resolve(&mut self, base: &Path) {
        let join = |path: &mut String| *path = base.join(&*path).to_string_lossy().into_owned();
        match &mut self.work {
            Work::Train(train) => join(&mut train.data.path),
            Work::Command(command) => command.workdir.iter_mut().for_each(join),
        }
    }
}
