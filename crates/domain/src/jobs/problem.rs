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

impl Problems {
    /// The same problems without their hints.
    pub fn without_hints(&self) -> Problems {
        Problems { file: self.file.clone(), problems: without_hints(&self.problems) }
    }
}

/// Problems without their hints, for what shows those apart.
pub fn without_hints(problems: &[Problem]) -> Vec<Problem> {
    problems.iter().map(|problem| Problem { hint: None, ..problem.clone() }).collect()
}

/// The hints of problems: that of a single problem as it is, and of several a line each, with its key.
pub fn hints(problems: &[Problem]) -> Option<String> {
    let line = |problem: &Problem| {
        let key = match problem.key.as_str() {
            key if problems.len() > 1 && !key.is_empty() => format!("`{key}`: "),
            _ => String::new(),
        };
        problem.hint.as_ref().map(|hint| format!("{key}{hint}"))
    };
    let lines: Vec<String> = problems.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_shown_with_their_problems_or_apart() {
        let file = |problems: &[Problem]| Problems { file: "job.yaml".to_owned(), problems: problems.to_vec() };
        let one = [Problem::at("run", "is missing").hint("write `run:`")];
        assert_eq!(file(&one).to_string(), "job.yaml: `run`: is missing\n  hint: write `run:`");
        assert_eq!(file(&one).without_hints().to_string(), "job.yaml: `run`: is missing");
        assert_eq!(hints(&one).as_deref(), Some("write `run:`"));
        let [first] = one;
        let more = [first, Problem::at("name", "is long"), Problem::at("x", "is unknown").hint("remove it")];
        assert_eq!(hints(&more).as_deref(), Some("`run`: write `run:`\n`x`: remove it"));
        assert_eq!(hints(&more[1..2]), None);
    }
}
