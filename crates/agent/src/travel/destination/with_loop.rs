//! Checkpoints that are kept with the loop, in the folder of the run. It refuses attempts that were replaced.

use std::time::Duration;

use domain::RunId;
use domain::files::{BroughtPart, FileListing, FilePart, KeepRequest, Received};

use super::CheckpointDestination;
use crate::travel::loop_files::{LoopFiles, TravelError};

/// The folder of checkpoints of a run on the loop's machine.
#[derive(Debug)]
pub struct LoopDestination {
    files: LoopFiles,
    run: RunId,
}

impl LoopDestination {
    /// That of this run.
    pub fn new(files: LoopFiles, run: RunId) -> LoopDestination {
        LoopDestination { files, run }
    }

    fn address(&self) -> String {
        format!("runs/{}/files", self.run)
    }
}

impl CheckpointDestination for LoopDestination {
    fn list(&mut self, within: Option<Duration>) -> Result<FileListing, TravelError> {
        let listing = match within {
            Some(within) => self.files.list_once(&self.address(), within),
            None => self.files.list(&self.address()),
        };
        match listing {
            // Nothing was uploaded there yet. Any other refusal says nothing of what is there: the run would start over.
            Err(TravelError::Missing(_)) => Ok(FileListing::default()),
            listing => listing,
        }
    }

    fn parts(&mut self, parts: Vec<FilePart>) -> Result<Vec<u8>, TravelError> {
        self.files.parts(&self.address(), parts)
    }

    fn bring(&mut self, path: &str, part: &BroughtPart, sent: (Vec<u8>, Duration)) -> Result<Received, TravelError> {
        self.files.bring(&self.run, &format!("checkpoints/{path}"), part, sent)
    }

    fn keep(&mut self, request: &KeepRequest, within: Duration) -> Result<(), TravelError> {
        self.files.keep(&self.run, request, within)
    }

    /// Each file is seen there once it is whole.
    fn publish(&mut self, _within: Duration) -> Result<(), TravelError> {
        Ok(())
    }
}
