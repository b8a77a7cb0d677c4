//! Conversion of other systems' files to job files: shared parts.

use crate::job::Job;
use crate::problem::{Problem, Problems};

use super::job_text::JobText;

/// The system of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignFormat {
    /// A task file of SkyPilot.
    SkyPilot,
    /// A task of dstack.
    Dstack,
    /// A batch script of Slurm.
    Slurm,
}

impl ForeignFormat {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ForeignFormat::SkyPilot => "SkyPilot",
            ForeignFormat::Dstack => "dstack",
            ForeignFormat::Slurm => "Slurm",
        }
    }
}

/// A job file converted from another system's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The system of the file.
    pub format: ForeignFormat,
    /// The job file.
    pub text: String,
    /// Notes about omitted or changed settings: line and key of the original file, reason and hint.
    pub notes: Vec<Problem>,
}

/// A conversion in progress: the job file and the notes.
#[derive(Debug, Default)]
pub(super) struct Import {
    pub job: JobText,
    pub notes: Vec<Problem>,
    /// The command that clones a repository, which is the beginning of `setup`.
    pub clone: Option<String>,
}

impl Import {
    /// Adds a note about a key of the file.
    pub fn note(&mut self, line: Option<u32>, key: &str, message: impl Into<String>, hint: &str) {
        let note = Problem { line, ..Problem::at(key, message) };
        self.notes.push(if hint.is_empty() { note } else { note.hint(hint) });
    }

    /// The job file, once it is valid: an invalid key is removed with a note. `line` finds a job file's key in the
    /// original file.
    ///
    /// # Errors
    /// Problems of keys that a job requires.
    pub fn finish(
        mut self,
        format: ForeignFormat,
        file_name: &str,
        line: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Imported, Problems> {
        let parsed = loop {
            let problems = match Job::parse(&self.job.render(), file_name) {
                Ok(parsed) => break parsed,
                Err(problems) => problems,
            };
            let mut removed = Vec::new();
            for problem in &problems.problems {
                if let Some(key) = self.job.remove(&problem.key) {
                    let left_out = format!("left out: {}", problem.message);
                    removed.push(Problem { line: line(&key), key, message: left_out, hint: problem.hint.clone() });
                }
            }
            if removed.is_empty() {
                let problems =
                    problems.problems.into_iter().map(|problem| Problem { line: line(&problem.key), ..problem });
                return Err(Problems { file: file_name.to_owned(), problems: problems.collect() });
            }
            self.notes.extend(removed);
        };
        for problem in parsed.unrentable {
            let message = format!("`gradus plan` reads it, `gradus run` refuses it: {}", problem.message);
            self.notes.push(Problem { line: line(&problem.key), message, ..problem });
        }
        for problem in parsed.warnings {
            self.notes.push(Problem { line: line(&problem.key), ..problem });
        }
        self.notes.sort_by_key(|note| note.line);
        self.job.comments.insert(0, format!("Imported from {} by `gradus import`.", format.name()));
        for note in &self.notes {
            let hint = note.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            let key = if note.key.is_empty() { String::new() } else { format!("`{}`: ", note.key) };
            self.job.comments.push(format!("- {key}{}{hint}", note.message));
        }
        Ok(Imported { format, text: self.job.render(), notes: self.notes })
    }
}
