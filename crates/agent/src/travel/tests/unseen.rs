//! A destination that takes every file and publishes none.

use std::fs;
use std::time::Duration;

use domain::files::{BroughtPart, FileListing, FilePart, KeepRequest, Received};

use super::upload_to;
use crate::travel::destination::CheckpointDestination;
use crate::travel::loop_files::TravelError;

/// A destination where everything arrives and nothing is seen.
#[derive(Debug)]
struct Unseen;

impl CheckpointDestination for Unseen {
    fn list(&mut self, _within: Option<Duration>) -> Result<FileListing, TravelError> {
        Ok(FileListing::default())
    }

    fn parts(&mut self, _parts: Vec<FilePart>) -> Result<Vec<u8>, TravelError> {
        Ok(Vec::new())
    }

    fn bring(&mut self, _path: &str, part: &BroughtPart, sent: (Vec<u8>, Duration)) -> Result<Received, TravelError> {
        Ok(Received { bytes: part.offset + sent.0.len() as u64, is_whole: true })
    }

    fn keep(&mut self, _request: &KeepRequest, _within: Duration) -> Result<(), TravelError> {
        Ok(())
    }

    fn publish(&mut self, _within: Duration) -> Result<(), TravelError> {
        Err(TravelError::Failed("it is not seen".into()))
    }
}

#[test]
fn what_nobody_can_see_has_not_arrived() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("checkpoints")).unwrap();
    fs::write(folder.path().join("checkpoints/manifest-7.json"), "{}").unwrap();
    let failure = upload_to(Box::new(Unseen), folder.path(), 1, Duration::from_secs(1)).unwrap_err();
    assert_eq!((failure.arrived, failure.lacks_checkpoints), (None, true));
    assert!(failure.finding.message.contains("it is not seen"), "{failure:?}");
}
