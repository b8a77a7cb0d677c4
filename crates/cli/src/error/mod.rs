//! Errors of the command line, sorted into usage errors, environment errors and internal errors.

use std::path::{Path, PathBuf};

use domain::problem::{Problem, hints, without_hints};
use domain::{Finding, Problems, RunId};

pub mod arguments;
pub mod exit;
mod file_fault;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The job file is wrong.
    #[error("{0}")]
    Job(Problems),
    /// The job cannot run on this machine, or names what nothing has; its file and lines are added where the file is known.
    #[error("{}", told(_0))]
    Unfit(Vec<Problem>),
    /// The job cannot run on anything that is offered.
    #[error("no offer can run this job\n{}", reasons.join("\n"))]
    Infeasible {
        /// A line each.
        reasons: Vec<String>,
    },
    /// A file could not be used.
    #[error("cannot {doing} `{}`", path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The arguments do not fit together.
    #[error("{message}")]
    Usage {
        /// The message.
        message: String,
        /// What to type instead.
        hint: String,
    },
    /// An error of the control loop.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// A table of offers cannot be used.
    #[error(transparent)]
    Catalog(#[from] cloud::catalog::Error),
    /// An error of a provider.
    #[error(transparent)]
    Provider(#[from] cloud::Error),
    /// The agent could not do its work.
    #[error(transparent)]
    Agent(#[from] agent::Error),
    /// A data set cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// Data could not be moved.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The run failed.
    #[error("run `{run}` failed: {}", finding.message)]
    Failed {
        /// Which.
        run: RunId,
        /// Why.
        finding: Finding,
    },
    /// An error with its own exit code.
    #[error("{message}")]
    Code {
        /// The message.
        message: String,
        /// What to type next.
        hint: Option<String>,
        /// The exit code.
        code: u8,
    },
}

impl Error {
    /// Wraps an I/O error on a file that was named.
    pub fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { doing, path, source }
    }

    /// A name on the command line that more than one run, sweep or pipeline starts with.
    pub fn ambiguous(name: &str) -> Error {
        let message = format!("`{name}` is ambiguous: more than one run, sweep or pipeline starts with it");
        Error::Usage { message, hint: "list them with `gradus status`".to_owned() }
    }

    /// A name on the command line that is a pipeline's, where the run of one of its tasks belongs; `first` is one.
    pub fn pipeline(name: &str, first: Option<&str>) -> Error {
        let message = format!("`{name}` is a pipeline; this command takes a single run");
        let hint = match first {
            Some(run) => format!("give one of its runs, such as `{run}`"),
            None => format!("give one of its runs once it has any: `gradus status {name}` lists them"),
        };
        Error::Usage { message, hint }
    }

    /// The missing feature of a first build that this command needs, if that is why it failed.
    pub fn left_out(&self) -> Option<&'static str> {
        match self {
            Error::Data(data::Error::LeftOut { what }) => Some(what),
            Error::Store(store::Error::LeftOut) => Some("object stores and web servers"),
            _ => None,
        }
    }

    /// How to fix it, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Usage { hint, .. } => Some(hint.clone()),
            Error::Server(error) => error.hint(),
            Error::Data(data::Error::Write { name, source }) => {
                Some(file_fault::hint("write", Path::new(name), source))
            }
            Error::Data(error) => error.hint(),
            Error::Store(store::Error::File { doing, path, source }) => Some(file_fault::hint(doing, path, source)),
            Error::Store(error) => error.hint(),
            Error::Failed { run, finding } => Some(match &finding.hint {
                Some(hint) => hint.clone(),
                None => format!("read `gradus logs {run}`"),
            }),
            Error::Code { hint, .. } => hint.clone(),
            Error::Catalog(error) => Some(match error.hint() {
                Some(hint) => hint.to_owned(),
                None => "fix that line, then run the same command again".to_owned(),
            }),
            Error::File { doing, path, source } => Some(file_fault::hint(doing, path, source)),
            Error::Provider(_) => {
                Some("see `gradus events` for what was tried, then run the same command again".to_owned())
            }
            Error::Agent(error) => Some(file_fault::hint(error.doing, &error.folder, &error.source)),
            Error::Infeasible { .. } | Error::Job(_) | Error::Unfit(_) => None,
        }
    }

    /// The problems of a job file, each with its line and hint, where that is what is wrong.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Error::Job(problems) => &problems.problems,
            Error::Unfit(problems) => problems,
            _ => &[],
        }
    }

    /// The message without the hints of problems, and all hints: for what shows them apart.
    pub fn message_and_hint(&self) -> (String, Option<String>) {
        let message = match self {
            Error::Job(problems) => problems.without_hints().to_string(),
            Error::Unfit(problems) => told(&without_hints(problems)),
            other => other.to_string(),
        };
        (message, self.hint().or_else(|| hints(self.problems())))
    }

    /// The exit code: a wrong name is a usage error; what exists and cannot be used is an environment error.
    pub fn code(&self) -> u8 {
        match self {
            Error::Job(_) | Error::Unfit(_) | Error::Usage { .. } | Error::Infeasible { .. } | Error::Catalog(_) => {
                exit::USAGE
            }
            Error::File { source, .. } => of_file(source),
            Error::Store(error) => of_store(error),
            Error::Data(error) => of_data(error),
            Error::Server(server::Error::NoRun(_)) => exit::NOT_FOUND,
            Error::Server(server::Error::Illegal(_)) => exit::INTERNAL,
            Error::Server(server::Error::File { source, .. }) => of_file(source),
            Error::Server(_) | Error::Provider(_) | Error::Agent(_) => exit::WORLD,
            Error::Failed { .. } => exit::RUN_FAILED,
            Error::Code { code, .. } => *code,
        }
    }
}

/// Problems without a file.
fn told(problems: &[Problem]) -> String {
    let line = |problem: &Problem| {
        let key = if problem.key.is_empty() { String::new() } else { format!("`{}`: ", problem.key) };
        let hint = problem.hint.as_ref().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
        format!("{key}{}{hint}", problem.message)
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn of_file(source: &std::io::Error) -> u8 {
    if file_fault::is_misnamed(source) { exit::USAGE } else { exit::WORLD }
}

fn of_store(error: &store::Error) -> u8 {
    use store::Error as Store;
    match error {
        Store::Location { .. } | Store::Usage { .. } | Store::NoCredentials { .. } => exit::USAGE,
        Store::Missing { .. } | Store::NoBucket { .. } => exit::USAGE,
        Store::File { source, .. } => of_file(source),
        Store::Refused { .. } | Store::Unreachable { .. } | Store::Network { .. } | Store::NoRanges { .. } => {
            exit::WORLD
        }
        Store::Damaged { .. } | Store::Raced { .. } | Store::Replaced { .. } => exit::WORLD,
        Store::Changed { .. } | Store::NoSpace { .. } | Store::NoConditions { .. } => exit::WORLD,
        Store::LeftOut => exit::WORLD,
        Store::Internal(_) => exit::INTERNAL,
    }
}

/// Data that a command or job names and that is not of the kind it takes is a usage error; damage is not.
fn of_data(error: &data::Error) -> u8 {
    use data::Error as Data;
    match error {
        Data::Missing { .. } | Data::Layout { .. } | Data::Classes { .. } | Data::Size { .. } => exit::USAGE,
        Data::Split { .. } | Data::Normalize { .. } | Data::Grey { .. } => exit::USAGE,
        Data::UnknownClasses { .. } => exit::USAGE,
        Data::Read { source, .. } | Data::Write { source, .. } => of_file(source),
        Data::Line { .. } | Data::Damaged { .. } => exit::WORLD,
        Data::Image { .. } | Data::Position { .. } | Data::Changed(_) => exit::WORLD,
        Data::LeftOut { .. } => exit::WORLD,
        Data::Internal(_) => exit::INTERNAL,
    }
}
