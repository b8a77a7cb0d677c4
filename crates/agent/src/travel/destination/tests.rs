//! Checkpoints that are kept in an object store, which a folder stands for here: it has conditional writes, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use domain::files::{BroughtPart, FilePart, KeepRequest, Received};
use domain::{AttemptId, Cause, Fence, RunId};

use super::{AttemptOfRun, BucketDestination, CheckpointDestination, StoredCheckpoints};
use crate::travel::loop_files::TravelError;
use crate::travel::tests::{manifest, start, uploaded};
use crate::travel::{UploadFailure, Uploader, checkpoints};

const WITHIN: Duration = Duration::from_secs(60);

/// A store, and the folders of machines.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Scene {
        Scene(tempfile::tempdir().unwrap())
    }

    fn store(&self) -> String {
        self.0.path().join("store").to_string_lossy().into_owned()
    }

    fn attempt(&self, fence: u64) -> BucketDestination {
        self.attempt_of("owner", fence)
    }

    fn attempt_of(&self, owner: &str, fence: u64) -> BucketDestination {
        let attempt = AttemptOfRun { run: RunId::new("r"), owner: owner.to_owned(), fence: Fence(fence) };
        BucketDestination::new(&self.store(), &store::Access::default(), attempt)
    }

    /// The folder of the run on a machine.
    fn machine(&self, name: &str) -> PathBuf {
        let folder = self.0.path().join(name);
        fs::create_dir_all(folder.join("checkpoints")).unwrap();
        folder
    }

    /// Sends what is in the folder of a machine.
    fn upload(&self, folder: &Path, fence: u64) -> Result<(), Box<UploadFailure>> {
        let (events, inbox) = mpsc::channel();
        let whose = (RunId::new("r"), AttemptId::new(format!("r-a{fence}")), Fence(fence));
        let destination: Box<dyn CheckpointDestination> = Box::new(self.attempt(fence));
        let uploader = Uploader::start((None, destination), (folder.to_owned(), false), whose, events);
        uploader.staged();
        uploader.finish(WITHIN);
        uploaded(&inbox)
    }

    /// Contents in the store.
    fn contents(&self) -> Vec<String> {
        let attempts = fs::read_dir(self.0.path().join("store/r/files")).into_iter().flatten().flatten();
        let files = attempts.flat_map(|attempt| fs::read_dir(attempt.path()).unwrap().flatten());
        let mut contents: Vec<String> = files.map(|file| fs::read_to_string(file.path()).unwrap()).collect();
        contents.sort();
        contents
    }
}

fn send(destination: &mut BucketDestination, path: &str, contents: &str) -> Result<Received, TravelError> {
    let total = contents.len() as u64;
    let sha256 = Some(node::sha256(contents.as_bytes()).unwrap());
    let part = BroughtPart { fence: 0, offset: 0, total: Some(total), sha256, modified: Some(7) };
    destination.bring(path, &part, (contents.as_bytes().to_vec(), WITHIN))
}

fn sent(destination: &mut BucketDestination, files: &[(&str, &str)]) {
    for (path, contents) in files {
        assert!(send(destination, path, contents).unwrap().is_whole);
    }
    destination.publish(WITHIN).unwrap();
}

fn listed(destination: &mut BucketDestination) -> Vec<String> {
    destination.list(None).unwrap().files.into_iter().map(|file| file.path).collect()
}

fn read(destination: &mut BucketDestination, path: &str, bytes: u64) -> String {
    let part = FilePart { path: path.to_owned(), offset: 0, bytes };
    String::from_utf8(destination.parts(vec![part]).unwrap()).unwrap()
}

#[test]
fn what_a_replaced_attempt_sends_is_seen_by_nobody() {
    let scene = Scene::new();
    let (mut first, mut second) = (scene.attempt(1), scene.attempt(2));
    sent(&mut first, &[("step-1-a1/x", "one"), ("manifest-1.json", "{1}")]);
    // Not listed before it is published.
    assert!(send(&mut first, "step-2-a1/x", "two").unwrap().is_whole);
    assert_eq!(listed(&mut second), ["manifest-1.json", "step-1-a1/x"]);
    send(&mut first, "manifest-2.json", "{2}").unwrap();
    let error = first.publish(WITHIN).unwrap_err();
    assert!(matches!(&error, TravelError::Store(finding) if finding.cause == Cause::Fenced), "{error}");
    assert_eq!(error.to_string(), "attempt 1 was replaced by attempt 2");
    // Nor does it delete what the newer one has accepted.
    first
        .keep(&KeepRequest { fence: Fence(1), files: vec!["manifest-2.json".into()], removed: vec![] }, WITHIN)
        .unwrap();
    assert!(first.publish(WITHIN).is_err());
    assert_eq!(read(&mut second, "step-1-a1/x", 3), "one");
    sent(&mut second, &[("step-3-a2/x", "three")]);
    assert_eq!(listed(&mut scene.attempt(2)).len(), 3, "the same attempt, from another thread");
    let mut third = scene.attempt(3);
    assert_eq!(listed(&mut third), ["manifest-1.json", "step-1-a1/x", "step-3-a2/x"]);
    // What the first attempt has sent late is deleted.
    assert_eq!(scene.contents(), ["one", "three", "{1}"]);
    // An attempt that begins late does not begin.
    let late = scene.attempt(1).list(None).unwrap_err();
    assert_eq!(late.to_string(), "attempt 1 was replaced by attempt 3");
}

#[test]
fn what_is_not_kept_is_deleted_and_the_same_contents_are_sent_once() {
    let scene = Scene::new();
    let mut attempt = scene.attempt(1);
    sent(&mut attempt, &[("step-1-a1/x", "same"), ("step-2-a1/x", "same"), ("step-2-a1/y", ""), ("best-1-a1", "best")]);
    assert_eq!(scene.contents(), ["", "best", "same"]);
    assert_eq!(read(&mut attempt, "step-2-a1/y", 0), "");
    let files = ["step-2-a1/x", "step-2-a1/y"].map(str::to_owned).to_vec();
    attempt.keep(&KeepRequest { fence: Fence(1), files, removed: vec![] }, WITHIN).unwrap();
    attempt.publish(WITHIN).unwrap();
    assert_eq!(scene.contents(), ["", "same"]);
    assert_eq!(listed(&mut scene.attempt(2)), ["step-2-a1/x", "step-2-a1/y"]);
    let store = scene.store();
    let stored = StoredCheckpoints::open(&store, &RunId::new("r"), &store::Access::default()).unwrap();
    assert_eq!(stored.files().collect::<Vec<_>>(), [("step-2-a1/x", 7), ("step-2-a1/y", 7)]);
    let mut copy = Vec::new();
    stored.copy("step-2-a1/x", &mut copy).unwrap();
    assert_eq!(copy, b"same");
    stored.remove(&["step-2-a1/x".to_owned()].into()).unwrap();
    assert_eq!(scene.contents(), [""]);
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_not_stored() {
    let scene = Scene::new();
    let mut attempt = scene.attempt(1);
    let sha256 = Some(node::sha256(&b"what it was"[..]).unwrap());
    let part = BroughtPart { fence: 1, offset: 0, total: Some(10), sha256, modified: None };
    let error = attempt.bring("last.pt", &part, (b"what it is".to_vec(), WITHIN)).unwrap_err();
    assert!(matches!(error, TravelError::Changing), "{error}");
    assert!(listed(&mut attempt).is_empty() && scene.contents().is_empty());
    sent(&mut attempt, &[("last.pt", "what it is")]);
    assert_eq!(listed(&mut attempt), ["last.pt"]);
}

#[test]
fn what_is_tried_again_is_not_deleted_meanwhile() {
    let scene = Scene::new();
    let mut attempt = scene.attempt(1);
    let contents = b"0123456789";
    let sha256 = node::sha256(&contents[..]).unwrap();
    assert!(send(&mut attempt, "step-1-a1/x", "other").unwrap().is_whole);
    let bring = |attempt: &mut BucketDestination, offset: usize, end: usize| {
        let (total, sha256) = (Some(contents.len() as u64), Some(sha256.clone()));
        let part = BroughtPart { fence: 1, offset: offset as u64, total, sha256, modified: Some(7) };
        attempt.bring("step-1-a1/y", &part, (contents[offset..end].to_vec(), WITHIN)).unwrap()
    };
    assert!(!bring(&mut attempt, 0, 5).is_whole);
    // As a request has stored it whose answer was lost.
    let stored = scene.0.path().join("store/r/files/a1-2").join(&sha256);
    fs::write(&stored, contents).unwrap();
    attempt.publish(WITHIN).unwrap();
    assert!(stored.exists());
    assert!(bring(&mut attempt, 5, 10).is_whole);
    attempt.publish(WITHIN).unwrap();
    assert!(stored.exists());
    assert_eq!(listed(&mut scene.attempt(2)), ["step-1-a1/x", "step-1-a1/y"]);
}

#[test]
fn two_homes_do_not_share_a_run_of_one_name() {
    let scene = Scene::new();
    sent(&mut scene.attempt_of("mine", 1), &[("last.pt", "mine")]);
    for fence in [1, 2] {
        let error = scene.attempt_of("yours", fence).list(None).unwrap_err();
        assert!(error.to_string().ends_with("has checkpoints of another home"), "{error}");
    }
    assert_eq!(listed(&mut scene.attempt_of("mine", 2)), ["last.pt"]);
}

#[test]
fn another_machine_resumes_from_what_was_sent() {
    let scene = Scene::new();
    let (first, second) = (scene.machine("first"), scene.machine("second"));
    let write = |path: &str, contents: &[u8]| {
        let path = first.join("checkpoints").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    };
    write("step-20-a1/model.safetensors", b"weights");
    write("manifest-00000020.json", &manifest(1, 20));
    // Neither belongs into the store.
    write("fence", b"1");
    fs::create_dir_all(first.join("logs")).unwrap();
    fs::write(first.join("logs/a1.log"), "log").unwrap();
    scene.upload(&first, 1).unwrap();
    checkpoints::bring(&mut scene.attempt(9), &start(&second)).unwrap();
    let read = |path: &str| fs::read(second.join("checkpoints").join(path)).unwrap();
    assert_eq!(read("step-20-a1/model.safetensors"), b"weights");
    assert_eq!(read("manifest-00000020.json"), manifest(1, 20));
    assert!(!second.join("checkpoints/fence").exists());
    // The first machine continues, cut off: what it has to say has not arrived.
    write("manifest-00000030.json", &manifest(1, 30));
    let failure = scene.upload(&first, 1).unwrap_err();
    assert_eq!((failure.finding.cause, failure.arrived), (Cause::Fenced, None));
    let message = &failure.finding.message;
    assert!(message.contains(" and 2 more have not reached the job's `checkpoint_store`: attempt 1 was"), "{message}");
}
