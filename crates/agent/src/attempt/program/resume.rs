//! What a program that nobody has changed resumes from: the newest checkpoint of its framework that is whole, which it finds
//! in `GRADUS_RESUME`, for the framework's own option.

use std::path::Path;

use checkpoint::frameworks::{self, FrameworkCheckpoint};

use super::PriorState;

/// A checkpoint to resume from, and why newer ones are not used.
#[derive(Debug, Default)]
pub struct Resume {
    found: Option<FrameworkCheckpoint>,
    passed_over: Vec<String>,
}

impl Resume {
    /// Looks below the folder that survives attempts.
    pub fn look(checkpoints: &Path) -> Resume {
        let (found, passed_over) = frameworks::newest(checkpoints);
        Resume { found, passed_over }
    }

    /// The value of `GRADUS_RESUME`: a path, or nothing.
    pub fn variable(&self) -> String {
        self.found.as_ref().map_or_else(String::new, |found| found.path.to_string_lossy().into_owned())
    }

    /// What there was before the attempt of this number.
    pub fn before(&self, attempt: u64) -> PriorState {
        match &self.found {
            Some(found) => PriorState::Checkpoint(found.step),
            None if attempt > 1 => PriorState::AnotherAttempt,
            None => PriorState::Nothing,
        }
    }

    /// What a person should know of it.
    pub fn notes(&self) -> Vec<String> {
        let offered = self.found.as_ref().map(|FrameworkCheckpoint { framework, path, step }| {
            format!("`GRADUS_RESUME` is the checkpoint of step {step} by {framework}, `{}`", path.display())
        });
        self.passed_over.iter().cloned().chain(offered).collect()
    }
}
