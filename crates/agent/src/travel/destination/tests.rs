//! Checkpoints that are kept in an object store, which a folder stands for here: it has conditional writes, too.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::files::{BroughtPart, FileListing, FilePart, KeepRequest, Received};
use domain::{Cause, Fence, RunId};

use super::bucket::told;
use super::{AttemptOfRun, BucketDestination, CheckpointDestination, StoredCheckpoints};
use crate::travel::loop_files::TravelError;
use crate::travel::tests::{WITHIN, manifest, start, upload_to};
use crate::travel::{UploadFailure, checkpoints};

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
        upload_to(Box::new(self.attempt(fence)), folder, fence, WITHIN)
    }

    /// Deletes the object with these contents, and returns its name.
    fn lose(&self, contents: &str) -> String {
        let attempts = fs::read_dir(self.0.path().join("store/r/files")).unwrap().flatten();
        let mut files = attempts.flat_map(|attempt| fs::read_dir(attempt.path()).unwrap().flatten());
        let lost = files.find(|file| fs::read_to_string(file.path()).unwrap() == contents).unwrap();
        fs::remove_file(lost.path()).unwrap();
        lost.file_name().into_string().unwrap()
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
    let part = BroughtPart { fence: 0, offset: 0, total: Some(total), sha256, modified: Some(7), hole: 0 };
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
    let part = BroughtPart { fence: 1, offset: 0, total: Some(10), sha256, modified: None, hole: 0 };
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
        let part = BroughtPart { fence: 1, offset: offset as u64, total, sha256, modified: Some(7), hole: 0 };
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
fn a_lost_object_costs_its_checkpoint_and_no_other() {
    let scene = Scene::new();
    let (first, second, third) = (scene.machine("first"), scene.machine("second"), scene.machine("third"));
    for (step, contents) in [(10, "ten"), (20, "twenty")] {
        let folder = first.join("checkpoints");
        let name = format!("step-{step}-a1/model.safetensors");
        fs::create_dir_all(folder.join(format!("step-{step}-a1"))).unwrap();
        fs::write(folder.join(&name), contents).unwrap();
        let mut manifest: serde_json::Value = serde_json::from_slice(&manifest(1, step)).unwrap();
        manifest["files"] = serde_json::json!([{ "name": name, "bytes": contents.len(), "sha256": "" }]);
        fs::write(folder.join(format!("manifest-{step:08}.json")), manifest.to_string()).unwrap();
    }
    scene.upload(&first, 1).unwrap();
    let lost = scene.lose("twenty");
    let warnings = checkpoints::bring(&mut scene.attempt(9), &start(&second)).unwrap();
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let expected = "the checkpoint of step 20 is not used: `step-20-a1/model.safetensors` is lost, because `";
    assert!(warning.starts_with(expected) && warning.ends_with(&format!("/{lost}` is missing")), "{warning}");
    let is_there = |path: &str| second.join("checkpoints").join(path).exists();
    assert!(is_there("manifest-00000010.json") && is_there("step-10-a1/model.safetensors"));
    assert!(!is_there("manifest-00000020.json"));
    // What comes out the same when it is trained again is sent again.
    let mut attempt = scene.attempt(9);
    assert_eq!(listed(&mut attempt), ["manifest-00000010.json", "step-10-a1/model.safetensors"]);
    sent(&mut attempt, &[("step-20-a9/model.safetensors", "twenty")]);
    assert!(scene.contents().contains(&"twenty".to_owned()));
    // Without any, the run does not silently start over; a machine that still has a checkpoint resumes from that.
    scene.lose("ten");
    let error = checkpoints::bring(&mut scene.attempt(10), &start(&third)).unwrap_err().to_string();
    assert!(error.starts_with("no checkpoint can be resumed") && error.contains("of step 10 is not used"), "{error}");
    assert_eq!(checkpoints::bring(&mut scene.attempt(10), &start(&second)).unwrap(), Vec::<String>::new());
    assert!(is_there("manifest-00000010.json"));
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

/// A store that refuses the first requests to write.
#[derive(Debug)]
struct Refusing {
    times: u32,
    store: BucketDestination,
}

impl CheckpointDestination for Refusing {
    fn list(&mut self, within: Option<Duration>) -> Result<FileListing, TravelError> {
        self.store.list(within)
    }

    fn parts(&mut self, parts: Vec<FilePart>) -> Result<Vec<u8>, TravelError> {
        self.store.parts(parts)
    }

    fn bring(&mut self, path: &str, part: &BroughtPart, sent: (Vec<u8>, Duration)) -> Result<Received, TravelError> {
        let Some(left) = self.times.checked_sub(1) else { return self.store.bring(path, part, sent) };
        self.times = left;
        Err(told(store::Error::Refused { location: format!("s3://b/{path}"), why: "403 Forbidden".to_owned() }))
    }

    fn keep(&mut self, request: &KeepRequest, within: Duration) -> Result<(), TravelError> {
        self.store.keep(request, within)
    }

    fn publish(&mut self, within: Duration) -> Result<(), TravelError> {
        self.store.publish(within)
    }
}

#[test]
fn a_store_that_refuses_at_the_end_is_asked_until_the_time_is_over() {
    let scene = Scene::new();
    let folder = scene.machine("here");
    fs::write(folder.join("checkpoints/last.pt"), "last").unwrap();
    let upload = |times: u32, within: Duration| {
        upload_to(Box::new(Refusing { times, store: scene.attempt(1) }), &folder, 1, within)
    };
    let failure = upload(u32::MAX, Duration::from_secs(2)).unwrap_err();
    let message = &failure.finding.message;
    let expected = "`checkpoints/last.pt` has not reached the job's `checkpoint_store`: access to `s3://b/last.pt` was";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(failure.finding.cause, Cause::Data, "the same credentials are of no use to another attempt");
    let hint = failure.finding.hint.unwrap();
    assert!(hint.starts_with("renew the machine's credentials"), "{hint}");
    upload(3, WITHIN).unwrap();
    assert_eq!(listed(&mut scene.attempt(2)), ["last.pt"]);
}

/// A bucket that lets one key in, and has nothing to list; its port.
fn bucket_for(key: &Arc<Mutex<String>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, key, mut stored) = (listener.local_addr().unwrap().port(), key.clone(), Vec::new());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &key, &mut stored);
        }
    });
    port
}

/// Answers a request; what only looks whether somebody listens asks nothing.
fn answer(mut stream: TcpStream, key: &Mutex<String>, stored: &mut Vec<String>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length, mut is_let_in) = (String::new(), 0, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            break;
        }
        let lower = line.to_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        let let_in = format!("Credential={}/", key.lock().unwrap());
        is_let_in |= lower.starts_with("authorization:") && line.contains(&let_in);
        if head.is_empty() {
            head = line;
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let is_there = stored.contains(&head);
    let listing = "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>";
    let (status, body) = match (is_let_in, head.starts_with("PUT "), is_there) {
        (false, _, _) => ("403 Forbidden", "<Error><Code>ExpiredToken</Code></Error>"),
        (true, true, true) => ("412 Precondition Failed", ""),
        (true, true, false) => ("200 OK", ""),
        (true, false, _) => ("200 OK", listing),
    };
    if status == "200 OK" && head.starts_with("PUT ") {
        stored.push(head);
    }
    let headers = format!("ETag: \"e\"\r\nContent-Length: {}\r\nConnection: close", body.len());
    stream.write_all(format!("HTTP/1.1 {status}\r\n{headers}\r\n\r\n{body}").as_bytes()).unwrap();
}

#[test]
fn a_store_that_was_entered_is_asked_again_with_renewed_keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    let write = |key: &str| {
        let text = format!("[default]\naws_access_key_id={key}\naws_secret_access_key=S\n");
        fs::write(&file, text).unwrap();
    };
    let key = Arc::new(Mutex::new("OLD".to_owned()));
    let address = format!("http://127.0.0.1:{}", bucket_for(&key));
    write("OLD");
    let access = store::Access::gather(|name| (name == "AWS_ENDPOINT_URL").then(|| address.clone()));
    let access = access.with_credentials_file(file.clone());
    let attempt = AttemptOfRun { run: RunId::new("r"), owner: "owner".to_owned(), fence: Fence(1) };
    let mut destination = BucketDestination::new("s3://b/checkpoints", &access, attempt);
    assert!(send(&mut destination, "first.pt", "first").unwrap().is_whole);
    *key.lock().unwrap() = "NEW".to_owned();
    let check_refused = |sent: Result<Received, TravelError>| {
        let error = sent.unwrap_err();
        assert!(matches!(error, TravelError::Denied(_)), "{error}");
    };
    check_refused(send(&mut destination, "last.pt", "last"));
    // All of it was taken, and is sent again.
    let sha256 = node::sha256(&b"last"[..]).ok();
    let part = BroughtPart { fence: 1, offset: 4, total: Some(4), sha256, modified: Some(7), hole: 0 };
    check_refused(destination.bring("last.pt", &part, (Vec::new(), WITHIN)));
    write("NEW");
    assert!(destination.bring("last.pt", &part, (Vec::new(), WITHIN)).unwrap().is_whole);
    destination.publish(WITHIN).unwrap();
    assert_eq!(listed(&mut destination), ["first.pt", "last.pt"], "what was sent with the old keys is listed, too");
}
