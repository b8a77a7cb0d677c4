//! Problems of an input, reported so that the user can fix them.

use std::fmt;

use serde::Serialize;

/// One problem: what, where, why, and a hint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Line in the file, from 1, where known.
    pub line: Option<u32>,
    /// Key path, such as `train.optimizer.sgd.lr`; empty for the complete file.
    pub key: String,
    /// The problem; lower case, no full stop.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

/// Everything wrong with one file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problems {
    /// The file as the user named it.
    pub file: String,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl Problem {
    /// A problem at a key, its line not yet known.
    pub fn at(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { line: None, key: key.into(), message: message.into(), hint: None }
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Into<String>) -> Problem {
        Problem { hint: Some(hint.into()), ..self }
    }
}

/// One block a problem: `job.yaml:3: train.modle: unknown key`, then an indented hint.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file)?;
            if let Some(line) = problem.line {
                write!(f, ":{line}")?;
            }
            if !problem.key.is_empty() {
                write!(f, ": `{}`", problem.key)?;
            }
            write!(f, ": {}", problem.message)?;
            if let Some(hint) = &problem.hint {
                write!(f, "\n  hint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
