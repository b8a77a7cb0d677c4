//! Why the state of a program was not saved or loaded.

use std::path::PathBuf;

use domain::{Cause, Finding};

/// An error, as a sentence for the author of the program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no folder to save to.
    #[error(
        "there is no folder for checkpoints\nhint: outside of gradus, name one with `gradus.init(checkpoints=FOLDER)`"
    )]
    NoFolder,
    /// Another process has saved there, and still runs.
    #[error(
        "another process{} saves to `{}` already\nhint: one process saves for all ranks: give each its RANK (torchrun does), \
         and call `save` on every rank; of two trainings, name another folder for one or end the other; a process that \
         trains in others of its own does not call `gradus.init` itself",
        owner.map_or(String::new(), |pid| format!(" (pid {pid})")),
        folder.display()
    )]
    Busy {
        /// The folder of checkpoints.
        folder: PathBuf,
        /// The other process, if known.
        owner: Option<u32>,
    },
    /// The newest checkpoint was written by something else.
    #[error(
        "the checkpoint of step {step} in `{}` is of {writer}, and this is {reader}\nhint: name another folder, or give \
         `gradus.init` the `program` that has written it",
        folder.display()
    )]
    OtherProgram {
        /// The folder of checkpoints.
        folder: PathBuf,
        /// The step of that checkpoint.
        step: u64,
        /// The writer of the folder.
        writer: String,
        /// What wants to read it.
        reader: String,
    },
    /// The folder holds later steps than the one to save, which this process has not loaded.
    #[error(
        "`{}` holds a checkpoint of step {newest}, which this program has not loaded, and this state is of step {step}: to save \
         it would put the later one aside\nhint: call `run.load()` before training (of a callback: `resume()`), or name another \
         folder to start over",
        folder.display()
    )]
    NotLoaded {
        /// The folder of checkpoints.
        folder: PathBuf,
        /// The newest step there.
        newest: u64,
        /// The step that was not saved.
        step: u64,
    },
    /// A state of an earlier step than the last one that this process saved.
    #[error(
        "the state of step {step} was not saved: step {newest} was saved before it, which would be put aside\nhint: give `save` \
         and `should_save` the same count of steps, and call `run.load()` to go back"
    )]
    Backwards {
        /// The step that was saved last.
        newest: u64,
        /// The step that was not saved.
        step: u64,
    },
    /// There are checkpoints, but none verifies.
    #[error(
        "no checkpoint in `{}` is as it was written:\n{}\nhint: to start over, move that folder away",
        folder.display(),
        reasons.join("\n")
    )]
    NoneVerifies {
        /// The folder of checkpoints.
        folder: PathBuf,
        /// Why each of them is not used, newest first.
        reasons: Vec<String>,
    },
    /// What `checkpoint` has against it.
    #[error("{}", sentence(.0))]
    Checkpoint(#[from] checkpoint::Error),
    /// A save that failed, where its finding is more than the error that it came from: of a full disk with the space
    /// that is needed, and of one that was raised already with what is said again at the end.
    #[error("{}", sentence_of(.0))]
    Unsaved(Finding),
    /// A file of our own.
    #[error("could not {doing} `{}`: {source}", path.display())]
    File {
        /// A verb such as `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
}

impl Error {
    /// Why a save into a folder that keeps the newest `keep` states has failed. Until it is durable, a state is stored beside
    /// all of them: a disk with space for `keep` never saves again, and its owner has to know by how much it is too small.
    pub(crate) fn of_save(error: checkpoint::Error, keep: u32) -> Error {
        if !matches!(error, checkpoint::Error::DiskFull { .. }) {
            return Error::Checkpoint(error);
        }
        let finding = error.finding();
        let hint = finding.hint.as_deref().unwrap_or_default();
        let hint = format!("{hint}; {}", space_needed(keep));
        Error::Unsaved(finding.hint(hint))
    }

    /// What is kept of an error that is raised now, to be said again at the end if no later save is durable.
    pub(crate) fn kept(&self) -> Error {
        Error::Unsaved(self.finding())
    }

    /// The sentence for a program that trains on: it is not to be resumed.
    pub(crate) fn while_training(&self) -> String {
        self.to_string().replace(", then resume the run", "; training continues, and the next save tries again")
    }

    /// The finding that ends an attempt for this reason.
    pub(crate) fn finding(&self) -> Finding {
        match self {
            Error::Checkpoint(error) => error.finding(),
            Error::Unsaved(finding) => finding.clone(),
            Error::File { .. }
            | Error::NoFolder
            | Error::Busy { .. }
            | Error::OtherProgram { .. }
            | Error::NotLoaded { .. }
            | Error::Backwards { .. }
            | Error::NoneVerifies { .. } => sentence_finding(&self.to_string(), Cause::Internal),
        }
    }

    /// Whether training may continue because a later save can succeed; earlier checkpoints remain durable.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Checkpoint(error) => match error {
                checkpoint::Error::Fenced { .. } | checkpoint::Error::Tensor { .. } => false,
                checkpoint::Error::DiskFull { .. }
                | checkpoint::Error::ReadOnly { .. }
                | checkpoint::Error::Locked { .. }
                | checkpoint::Error::File { .. }
                | checkpoint::Error::Unreadable { .. }
                | checkpoint::Error::Damaged { .. }
                | checkpoint::Error::Part { .. }
                | checkpoint::Error::WriterGone => true,
            },
            Error::File { .. } | Error::Unsaved(_) => true,
            Error::NoFolder
            | Error::Busy { .. }
            | Error::OtherProgram { .. }
            | Error::NotLoaded { .. }
            | Error::Backwards { .. }
            | Error::NoneVerifies { .. } => false,
        }
    }
}

/// A finding of a sentence, which may have a hint in a line of its own.
pub(crate) fn sentence_finding(sentence: &str, cause: Cause) -> Finding {
    match sentence.split_once("\nhint: ") {
        Some((message, hint)) => Finding::new(cause, message).hint(hint),
        None => Finding::new(cause, sentence),
    }
}

/// An error with its cause and its hint.
fn sentence(error: &checkpoint::Error) -> String {
    sentence_of(&error.finding())
}

/// A finding with its hint.
fn sentence_of(finding: &Finding) -> String {
    match &finding.hint {
        Some(hint) => format!("{}\nhint: {hint}", finding.message),
        None => finding.message.clone(),
    }
}

/// How many states the disk has to hold, and how many with a smaller `keep`.
fn space_needed(keep: u32) -> String {
    let needed = format!("`keep={keep}` needs disk space for {} states", u64::from(keep) + 1);
    match keep {
        0 | 1 => needed,
        _ => format!("{needed}, and `keep={}` for {keep}", keep - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_trains_on_is_not_told_to_resume() {
        let source = std::io::ErrorKind::StorageFull.into();
        let error = Error::from(checkpoint::Error::DiskFull { path: "/full/step".into(), source });
        assert!(error.to_string().ends_with("(`df -h` shows it), then resume the run"), "{error}");
        let said = error.while_training();
        assert!(said.ends_with("(`df -h` shows it); training continues, and the next save tries again"), "{said}");
        assert_eq!(error.finding().cause, Cause::DiskFull);
        let source = std::io::ErrorKind::StorageFull.into();
        let full = Error::of_save(checkpoint::Error::DiskFull { path: "/full/step".into(), source }, 3);
        assert!(full.may_pass() && full.finding().cause == Cause::DiskFull);
        let space = "; `keep=3` needs disk space for 4 states, and `keep=2` for 3";
        assert!(full.to_string().ends_with(&format!(", then resume the run{space}")), "{full}");
        assert!(full.while_training().ends_with(&format!("the next save tries again{space}")), "{full}");
        assert_eq!(full.kept().to_string(), full.to_string());
        assert_eq!(space_needed(1), "`keep=1` needs disk space for 2 states");
        let source = std::io::ErrorKind::Other.into();
        let told = Error::File { doing: "write", path: "/full/step".into(), source }.finding();
        assert_eq!((told.cause, told.hint), (Cause::Internal, None));
    }
}
