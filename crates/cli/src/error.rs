//! What went wrong, sorted into the user's, the world's and ours.

use std::path::{Path, PathBuf};

use domain::{Finding, Problems, RunId};

use crate::{exit, file_fault};

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The job file is wrong.
    #[error("{0}")]
    Job(Problems),
    /// The job cannot run here.
    #[error("no offer can run this job\n{}", reasons.join("\n"))]
    Infeasible {
        /// A line each.
        reasons: Vec<String>,
    },
    /// A file of the user's could not be used.
    #[error("cannot {doing} `{}`", path.display())]
    File {
        /// What was done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The command's words do not fit together.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to type instead.
        hint: String,
    },
    /// The control loop could not do what it should.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// A table of offers cannot be used.
    #[error(transparent)]
    Catalog(#[from] cloud::catalog::Error),
    /// A provider could not be asked.
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
    /// The run ended without result.
    #[error("run `{run}` failed: {}", finding.message)]
    Failed {
        /// Which.
        run: RunId,
        /// Why.
        finding: Finding,
    },
    /// Something to say with a code of its own.
    #[error("{message}")]
    Code {
        /// What happened.
        message: String,
        /// What to type next.
        hint: Option<String>,
        /// The exit code.
        code: u8,
    },
}

impl Error {
    /// A file of the user's could not be used.
    pub fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { doing, path, source }
    }

    /// The next thing to type, where there is one.
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
                None => "mend that line, then give the same command again".to_owned(),
            }),
            Error::File { doing, path, source } => Some(file_fault::hint(doing, path, source)),
            Error::Provider(_) => Some("`gradus events` tells what was tried; run the same command again".to_owned()),
            Error::Agent(error) => Some(file_fault::hint(error.doing, &error.folder, &error.source)),
            Error::Infeasible { .. } | Error::Job(_) => None,
        }
    }

    /// The exit code: what was named wrongly is the user's, what is there and refuses is the world's.
    pub fn code(&self) -> u8 {
        match self {
            Error::Job(_) | Error::Usage { .. } | Error::Infeasible { .. } | Error::Catalog(_) => exit::USAGE,
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
        Store::Damaged { .. } | Store::Raced { .. } | Store::Changed { .. } | Store::NoSpace { .. } => exit::WORLD,
        Store::Internal(_) => exit::INTERNAL,
    }
}

/// Data that a command or a job has named and that is not what it takes counts as wrong words; damage does not.
fn of_data(error: &data::Error) -> u8 {
    use data::Error as Data;
    match error {
        Data::Missing { .. } | Data::Layout { .. } | Data::Classes { .. } | Data::Size { .. } => exit::USAGE,
        Data::Split { .. } | Data::Normalize { .. } | Data::Grey { .. } => exit::USAGE,
        Data::Read { source, .. } | Data::Write { source, .. } => of_file(source),
        Data::Picture { .. } | Data::Position { .. } => exit::WORLD,
        Data::Internal(_) => exit::INTERNAL,
    }
}
