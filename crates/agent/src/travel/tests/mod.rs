//! File transfers: what is sent when, and what is fetched. Here is what the tests of every destination share; those of an
//! object store are beside it, in `destination`.

mod changes;
mod resumes;
mod scene;
mod unseen;
mod uploads;

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use checkpoint::CheckpointManifest;
use domain::{AttemptId, Fence, RunId};
use serde_json::json;

use super::destination::CheckpointDestination;
use super::{UploadFailure, Uploader};
use crate::event::{AttemptEvent, Wakeup};

/// More than an upload needs.
pub(super) const WITHIN: Duration = Duration::from_secs(60);

/// Sends the checkpoints of a run in `folder`, and waits until they are there.
pub(super) fn upload_to(
    destination: Box<dyn CheckpointDestination>,
    folder: &Path,
    fence: u64,
    within: Duration,
) -> Result<(), Box<UploadFailure>> {
    let (events, inbox) = mpsc::channel();
    let whose = (RunId::new("r"), AttemptId::new(format!("r-a{fence}")), Fence(fence));
    let uploader = Uploader::start((None, destination), (folder.to_owned(), false), whose, events);
    uploader.staged();
    uploader.finish(within);
    uploaded(&inbox)
}

/// Waits for the end of an upload.
pub(super) fn uploaded(inbox: &mpsc::Receiver<Wakeup>) -> Result<(), Box<UploadFailure>> {
    loop {
        match inbox.recv_timeout(Duration::from_secs(90)).unwrap() {
            Wakeup::Attempt(_, AttemptEvent::Uploaded(result)) => return result,
            Wakeup::Attempt(
                _,
                AttemptEvent::UploadMoved | AttemptEvent::UploadLeft(_) | AttemptEvent::UploadWaits(_),
            ) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The manifest of a checkpoint without files.
pub(super) fn manifest(fence: u64, step: u64) -> Vec<u8> {
    let manifest: CheckpointManifest = serde_json::from_value(json!({
        "schema": 1, "run": "r", "attempt": format!("r-a{fence}"), "fence": fence, "job_hash": "", "step": step,
        "state": null, "best": null, "files": [],
    }))
    .unwrap();
    serde_json::to_vec(&manifest).unwrap()
}

/// The start of the ninth attempt of a run in this folder.
pub(super) fn start(folder: &Path) -> domain::wire::Start {
    let job = "train: {model: mlp, data: {path: x.csv}, epochs: 1, batch: 1}\n";
    domain::wire::Start {
        run: RunId::new("r"),
        attempt: AttemptId::new("r-a9"),
        fence: Fence(9),
        job: domain::Job::parse(job, "job.yaml").unwrap().job,
        job_hash: String::new(),
        threads: 1,
        accept_data_change: false,
        member: None,
        folder: folder.to_string_lossy().into_owned(),
    }
}
