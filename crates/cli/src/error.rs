//! What went wrong, sorted into the user's, the world's and ours.

use std::path::PathBuf;

use domain::{Finding, Problems, RunId};

use crate::exit;

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
            Error::Data(error) => error.hint(),
            Error::Store(error) => error.hint(),
            Error::Failed { run, finding } => Some(match &finding.hint {
                Some(hint) => hint.clone(),
                None => format!("read `gradus logs {run}`"),
            }),
            Error::Code { hint, .. } => hint.clone(),
            Error::Catalog(error) => error.hint().map(str::to_owned),
            Error::Infeasible { .. } | Error::Job(_) | Error::File { .. } => None,
            Error::Provider(_) | Error::Agent(_) => None,
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Error::Job(_) | Error::Usage { .. } | Error::Infeasible { .. } | Error::Catalog(_) => exit::USAGE,
            Error::Store(store::Error::Location { .. } | store::Error::Usage { .. }) => exit::USAGE,
            Error::Store(store::Error::NoCredentials { .. }) => exit::USAGE,
            Error::Store(store::Error::Internal(_)) => exit::INTERNAL,
            Error::Store(_) => exit::WORLD,
            Error::Server(server::Error::NoRun(_)) => exit::NOT_FOUND,
            Error::Server(server::Error::Illegal(_)) => exit::INTERNAL,
            Error::Data(data::Error::Internal(_)) => exit::INTERNAL,
            Error::File { .. } | Error::Data(_) | Error::Server(_) | Error::Provider(_) | Error::Agent(_) => {
                exit::WORLD
            }
            Error::Failed { .. } => exit::RUN_FAILED,
            Error::Code { code, .. } => *code,
        }
    }
}
