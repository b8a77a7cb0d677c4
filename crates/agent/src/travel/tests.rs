//! File transfers with a loop that is a folder behind a socket: what is sent when, and what is fetched.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use checkpoint::{
    BestWeights, CheckpointManifest, CheckpointWriter, Dtype, Placement, Snapshot, SnapshotPart, WriterIdentity,
};
use domain::files::{BroughtPart, FileInfo, FileListing, FilePart, KeepRequest, PartsRequest, Received};
use domain::{AttemptId, Fence, RunId};
use serde_json::json;

use super::destination::{CheckpointDestination, LoopDestination};
use super::loop_files::TravelError;
use super::{LoopFiles, UploadFailure, Uploader, checkpoints};
use crate::event::{AttemptEvent, Wakeup};
use crate::loop_request::LoopPlace;

/// A loop that stores uploads in a folder, and records each request.
struct Scene {
    folder: tempfile::TempDir,
    requests: Arc<Mutex<Vec<String>>>,
    /// So many requests are answered with an error first.
    refusals: Arc<Mutex<u32>>,
}

impl Scene {
    fn new(refusals: u32) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("there")).unwrap();
        fs::create_dir_all(folder.path().join("here/checkpoints")).unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let (requests, refusals) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(refusals)));
        let scene = Scene { folder, requests, refusals };
        let (there, noted, refused) = (scene.there(), scene.requests.clone(), scene.refusals.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &there, &noted, &refused);
            }
        });
        scene
    }

    fn there(&self) -> PathBuf {
        self.folder.path().join("there")
    }

    fn here(&self) -> PathBuf {
        self.folder.path().join("here")
    }

    fn files(&self) -> LoopFiles {
        LoopFiles::new(&LoopPlace::Socket(self.folder.path().join("s")))
    }

    fn destination(&self) -> LoopDestination {
        LoopDestination::new(self.files(), RunId::new("r"))
    }

    fn uploader(&self) -> (Uploader, mpsc::Receiver<Wakeup>) {
        let (events, inbox) = mpsc::channel();
        let whose = (RunId::new("r"), AttemptId::new("r-a1"), Fence(1));
        let destination: Box<dyn CheckpointDestination> = Box::new(self.destination());
        (Uploader::start((Some(self.files()), destination), (self.here(), false), whose, events), inbox)
    }

    /// Sends everything, and waits until it is there.
    fn upload(&self) -> Result<(), Box<UploadFailure>> {
        self.upload_within(Duration::from_secs(60))
    }

    fn upload_within(&self, time: Duration) -> Result<(), Box<UploadFailure>> {
        let (uploader, inbox) = self.uploader();
        uploader.staged();
        uploader.finish(time);
        uploaded(&inbox)
    }

    fn write(&self, path: &str, contents: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

/// Waits for the end of an upload.
pub(super) fn uploaded(inbox: &mpsc::Receiver<Wakeup>) -> Result<(), Box<UploadFailure>> {
    loop {
        match inbox.recv_timeout(Duration::from_secs(90)).unwrap() {
            Wakeup::Attempt(_, AttemptEvent::Uploaded(result)) => return result,
            Wakeup::Attempt(_, AttemptEvent::UploadMoved) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Answers one request, as the loop does.
fn answer(mut stream: UnixStream, there: &Path, noted: &Mutex<Vec<String>>, refusals: &Mutex<u32>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if head.is_empty() {
            head = line;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let mut words = head.split(' ');
    let (Some(method), Some(address)) = (words.next(), words.next()) else { return };
    let request = format!("{method} {}", address.split('?').next().unwrap());
    let times = {
        let mut noted = noted.lock().unwrap();
        noted.push(request.clone());
        noted.iter().filter(|other| **other == request).count()
    };
    let is_damaged = request.ends_with("damaged-always") || request.ends_with("damaged-once") && times == 1;
    if request.ends_with("slow") {
        std::thread::sleep(Duration::from_millis(500));
    }
    let is_refused = {
        let mut left = refusals.lock().unwrap();
        let is_refused = *left > 0;
        *left = left.saturating_sub(1);
        is_refused
    };
    let is_full = request.ends_with("step-9-full") && there.join("checkpoints/step-0-full").exists();
    let (status, reply) = match (is_refused, is_damaged) {
        (true, _) => ("503 Busy", b"later".to_vec()),
        (false, _) if is_full => ("507 Full", b"no space".to_vec()),
        (false, true) => ("422 Unprocessable", b"its checksum is wrong".to_vec()),
        (false, false) => ("200 OK", carried_out(method, address, &body, there)),
    };
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", reply.len());
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&reply)).unwrap_or_default();
}

/// How far the file `grows` grows, by 4 bytes with each part that is sent of it.
const GROWN: u64 = (9 << 20) + 8;

fn carried_out(method: &str, address: &str, body: &[u8], there: &Path) -> Vec<u8> {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let number = |name: &str| {
        let value = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        value.map(|value| value.parse::<u64>().unwrap())
    };
    match (method, path.strip_prefix("/v1/runs/r/")) {
        ("PUT", Some(path)) => {
            let path = path.strip_prefix("files/").unwrap();
            let original = there.with_file_name("here").join(path);
            if path.ends_with("grows") && fs::metadata(&original).unwrap().len() < GROWN {
                fs::OpenOptions::new().append(true).open(original).unwrap().write_all(b"more").unwrap();
            }
            let place = there.join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, body).unwrap();
            let bytes = number("offset").unwrap() + body.len() as u64;
            serde_json::to_vec(&Received { bytes, is_whole: number("total") == Some(bytes) }).unwrap()
        }
        ("POST", Some("keep")) => {
            let KeepRequest { fence, files, removed } = serde_json::from_slice(body).unwrap();
            assert!(fence == Fence(1) && !files.is_empty());
            if !files.iter().any(|file| file == "step-0-full") {
                let _ = fs::remove_file(there.join("checkpoints/step-0-full"));
            }
            removed.iter().for_each(|path| fs::remove_file(there.join("checkpoints").join(path)).unwrap());
            Vec::new()
        }
        ("GET", Some("files")) => {
            let mut files = Vec::new();
            for path in super::upload::below(there, "checkpoints").0 {
                let meta = fs::metadata(there.join(&path)).unwrap();
                let (bytes, modified) = (meta.len(), super::loop_files::micros(&meta));
                let path = path.trim_start_matches("checkpoints/").to_owned();
                files.push(FileInfo { path, bytes, modified, is_executable: false, is_private: false });
            }
            serde_json::to_vec(&FileListing { is_file: false, files }).unwrap()
        }
        ("POST", Some("files")) => {
            let PartsRequest { parts } = serde_json::from_slice(body).unwrap();
            let part = |part: &domain::files::FilePart| {
                let bytes = fs::read(there.join("checkpoints").join(&part.path)).unwrap();
                bytes[part.offset as usize..][..part.bytes as usize].to_vec()
            };
            parts.iter().flat_map(part).collect()
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn manifest(fence: u64, step: u64) -> Vec<u8> {
    let manifest: CheckpointManifest = serde_json::from_value(json!({
        "schema": 1, "run": "r", "attempt": format!("r-a{fence}"), "fence": fence, "job_hash": "", "step": step,
        "state": null, "best": null, "files": [],
    }))
    .unwrap();
    serde_json::to_vec(&manifest).unwrap()
}

#[test]
fn a_manifest_travels_after_all_that_it_names_and_nothing_travels_twice() {
    let scene = Scene::new(0);
    let folder = scene.here().join("checkpoints");
    for (path, bytes) in
        [("manifest-1.json", "{}"), ("step-1-a1", "one"), ("best-1-a1", "best"), ("fence", "1"), ("lock", "")]
    {
        fs::write(folder.join(path), bytes).unwrap();
    }
    fs::create_dir_all(scene.here().join("logs")).unwrap();
    fs::write(scene.here().join("logs/a1.log"), "").unwrap();
    scene.upload().unwrap();
    let requests = scene.requests();
    let expected = ["PUT best-1-a1", "PUT step-1-a1", "PUT manifest-1.json"]
        .map(|put| put.replace("PUT ", "PUT /v1/runs/r/files/checkpoints/"));
    assert_eq!(requests[..3], expected);
    assert_eq!(requests[3..], ["POST /v1/runs/r/keep", "PUT /v1/runs/r/files/logs/a1.log"], "an empty log is one too");
}

#[test]
fn what_the_loop_could_not_take_is_sent_again() {
    let scene = Scene::new(3);
    fs::write(scene.here().join("checkpoints/manifest-1.json"), "{}").unwrap();
    fs::create_dir_all(scene.here().join("export")).unwrap();
    fs::write(scene.here().join("export/model.safetensors"), "weights").unwrap();
    scene.upload().unwrap();
    assert_eq!(fs::read_to_string(scene.there().join("export/model.safetensors")).unwrap(), "weights");
    assert!(scene.there().join("checkpoints/manifest-1.json").exists());
}

/// A program may write to a file while it is sent. Before, the sender repeated its last part for ever.
#[test]
fn a_file_that_grows_while_it_is_sent_is_sent_as_it_was() {
    let scene = Scene::new(0);
    fs::File::create(scene.here().join("checkpoints/grows")).unwrap().set_len(9 << 20).unwrap();
    scene.upload().unwrap();
    let is_part = |request: &&String| request.ends_with("grows");
    assert_eq!(scene.requests().iter().filter(is_part).count(), 4, "two as it was, and two as it is in the next round");
    let last_part = fs::metadata(scene.there().join("checkpoints/grows")).unwrap().len();
    assert_eq!(last_part, GROWN - (8 << 20));
}

#[test]
fn a_file_that_cannot_be_sent_keeps_no_other_back_and_is_named() {
    let scene = Scene::new(0);
    let others = ["checkpoints/last.pt", "checkpoints/manifest-7.json", "export/model", "logs/a.log"];
    for path in ["checkpoints/damaged-always", "checkpoints/damaged-once"].iter().chain(&others) {
        scene.write(&format!("here/{path}"), "contents");
    }
    let failure = scene.upload_within(Duration::from_secs(10)).unwrap_err();
    let (missing, why) = ("`checkpoints/damaged-always` has not reached", "the loop says: its checksum is wrong");
    assert_eq!(failure.finding.message, format!("{missing} the loop's machine: {why}"));
    assert_eq!((failure.lacks_outputs, failure.lacks_checkpoints, failure.arrived), (true, true, Some(7)));
    for path in others.iter().chain(&["checkpoints/damaged-once"]) {
        assert!(scene.there().join(path).exists(), "{path}");
    }
    assert!(!scene.requests().iter().any(|request| request.ends_with("keep")), "not while something is missing");
}

#[test]
fn a_manifest_is_not_sent_without_what_it_may_list() {
    let scene = Scene::new(0);
    for path in ["checkpoints/step-7-a1/damaged-always", "checkpoints/manifest-7.json"] {
        scene.write(&format!("here/{path}"), "{}");
    }
    let failure = scene.upload_within(Duration::from_millis(300)).unwrap_err();
    assert_eq!(failure.arrived, None);
    assert!(!scene.there().join("checkpoints/manifest-7.json").exists());
}

/// A slow link takes its time: the end waits for as long as something arrives.
#[test]
fn the_end_waits_while_something_arrives() {
    let scene = Scene::new(0);
    for number in 0..12 {
        scene.write(&format!("here/export/{number}-slow"), "x");
    }
    let (uploader, inbox) = scene.uploader();
    uploader.staged();
    uploader.finish_while_moving(Duration::from_secs(4));
    uploaded(&inbox).unwrap();
    assert_eq!(scene.requests().len(), 12);
    // An order to end leaves less time.
    scene.write("here/export/damaged-always", "x");
    let (uploader, inbox) = scene.uploader();
    uploader.staged();
    uploader.finish_while_moving(Duration::from_secs(60));
    uploader.finish(Duration::ZERO);
    assert_eq!(uploaded(&inbox).unwrap_err().arrived, None);
}

/// Until the loop's checkpoints are here, what is here may be older, and what is not here is not deleted.
#[test]
fn before_the_loop_s_checkpoints_are_here_nothing_there_is_replaced() {
    let scene = Scene::new(0);
    scene.write("here/checkpoints/last.pt", "old");
    scene.write("here/checkpoints/unsent.pt", "unsent");
    scene.write("there/checkpoints/last.pt", "newer");
    let (uploader, inbox) = scene.uploader();
    uploader.finish(Duration::from_secs(60));
    uploaded(&inbox).unwrap();
    assert_eq!(fs::read_to_string(scene.there().join("checkpoints/last.pt")).unwrap(), "newer");
    assert_eq!(fs::read_to_string(scene.there().join("checkpoints/unsent.pt")).unwrap(), "unsent");
    let expected = ["GET /v1/runs/r/files", "PUT /v1/runs/r/files/checkpoints/unsent.pt"];
    assert_eq!(scene.requests(), expected, "and it does not say what to keep");
}

#[test]
fn what_a_program_has_deleted_is_deleted_there() {
    let scene = Scene::new(0);
    scene.write("here/checkpoints/checkpoint-1/model", "1");
    scene.write("here/checkpoints/checkpoint-2/model", "2");
    scene.write("there/checkpoints/checkpoint-0/model", "of another attempt");
    let (uploader, inbox) = scene.uploader();
    uploader.staged();
    let is_there = |number: u32| scene.there().join(format!("checkpoints/checkpoint-{number}/model")).exists();
    let begun = std::time::Instant::now();
    // The second is the last of its round.
    while !is_there(2) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::remove_dir_all(scene.here().join("checkpoints/checkpoint-1")).unwrap();
    uploader.finish(Duration::from_secs(60));
    uploaded(&inbox).unwrap();
    assert_eq!([0, 1, 2].map(is_there), [true, false, true]);
}

/// Size and time of a file are the same after both writes within a tick of the clock of file times.
#[test]
fn a_file_that_is_written_again_at_once_with_the_same_size_is_sent_again() {
    for _ in 0..10 {
        let scene = Scene::new(0);
        scene.write("here/checkpoints/last.pt", "first");
        let (uploader, inbox) = scene.uploader();
        uploader.staged();
        let there = || fs::read_to_string(scene.there().join("checkpoints/last.pt")).unwrap_or_default();
        let begun = std::time::Instant::now();
        while there() != "first" {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        scene.write("here/checkpoints/last.pt", "later");
        uploader.finish(Duration::from_secs(60));
        uploaded(&inbox).unwrap();
        assert_eq!(there(), "later");
    }
}

#[test]
fn on_a_full_disk_deleted_checkpoints_make_room_for_newer_ones() {
    for has_whole in [true, false] {
        let scene = Scene::new(0);
        let old = scene.write("here/checkpoints/step-0-full", "old");
        // Sent after the old one, so that it is there once this is.
        let name = if has_whole { "manifest-5.json" } else { "step-5-a1" };
        scene.write(&format!("here/checkpoints/{name}"), "{}");
        let (uploader, inbox) = scene.uploader();
        uploader.staged();
        let begun = std::time::Instant::now();
        while !scene.there().join("checkpoints").join(name).exists() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        fs::remove_file(old).unwrap();
        scene.write("here/checkpoints/step-9-full", "new");
        uploader.finish(Duration::from_secs(if has_whole { 60 } else { 2 }));
        let is_there = |name: &str| scene.there().join("checkpoints").join(name).exists();
        assert_eq!(uploaded(&inbox).is_ok(), has_whole, "what is left is no checkpoint, and nothing is deleted for it");
        assert_eq!([is_there("step-0-full"), is_there("step-9-full")], [!has_whole, has_whole]);
    }
}

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
    let scene = Scene::new(0);
    scene.write("here/checkpoints/manifest-7.json", "{}");
    let (events, inbox) = mpsc::channel();
    let whose = (RunId::new("r"), AttemptId::new("r-a1"), Fence(1));
    let uploader = Uploader::start((None, Box::new(Unseen)), (scene.here(), false), whose, events);
    uploader.staged();
    uploader.finish(Duration::from_secs(1));
    let failure = uploaded(&inbox).unwrap_err();
    assert_eq!((failure.arrived, failure.lacks_checkpoints), (None, true));
    assert!(failure.finding.message.contains("it is not seen"), "{failure:?}");
}

/// Of a program's files, those here are newer only if nobody else has written there since.
#[test]
fn a_program_s_newer_files_stay_if_the_attempt_before_was_here() {
    let at = |seconds: u64| std::time::UNIX_EPOCH + Duration::from_secs(seconds);
    for (was_here, time, expected) in [(true, 2000, "ours"), (true, 500, "loop"), (false, 2000, "loop")] {
        let scene = Scene::new(0);
        for (path, contents, time) in
            [("there/checkpoints/last.pt", "loop", 1000), ("here/checkpoints/last.pt", "ours", time)]
        {
            fs::File::options().write(true).open(scene.write(path, contents)).unwrap().set_modified(at(time)).unwrap();
        }
        if was_here {
            scene.write("here/attempts/r-a8/fetched", &checkpoints::boot());
        }
        let job = domain::Job::parse("run: echo\n", "job.yaml").unwrap().job;
        let start = domain::wire::Start { job, ..start(&scene.here()) };
        checkpoints::bring(&mut scene.destination(), &start).unwrap();
        let found = fs::read_to_string(scene.here().join("checkpoints/last.pt")).unwrap();
        assert_eq!(found, expected, "{was_here} {time}");
        assert!(scene.here().join("attempts/r-a9/fetched").exists());
        scene.requests();
        checkpoints::bring(&mut scene.destination(), &start).unwrap();
        assert_eq!(scene.requests(), ["GET /v1/runs/r/files"], "nothing travels twice");
    }
}

#[test]
fn the_newer_checkpoint_wins_and_an_attempt_that_was_replaced_never_does() {
    // Attempt and step here and there; the step that results here.
    for (ours, theirs, expected) in [
        (None, Some((1, 10)), 10),
        (Some((1, 20)), Some((1, 10)), 20),
        (Some((1, 10)), Some((1, 20)), 20),
        (Some((1, 30)), Some((2, 20)), 20),
        (Some((3, 5)), Some((2, 20)), 20),
        (Some((1, 10)), None, 10),
    ] {
        let scene = Scene::new(0);
        let folder = scene.here().join("checkpoints");
        let write = |folder: &Path, what: Option<(u64, u64)>| {
            if let Some((fence, step)) = what {
                fs::write(folder.join(format!("manifest-{step}.json")), manifest(fence, step)).unwrap();
            }
        };
        write(&folder, ours);
        fs::create_dir_all(scene.there().join("checkpoints")).unwrap();
        write(&scene.there().join("checkpoints"), theirs);
        checkpoints::bring(&mut scene.destination(), &start(&scene.here())).unwrap();
        let names: Vec<String> =
            fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert_eq!(names, [format!("manifest-{expected}.json")], "{ours:?} here and {theirs:?} there");
    }
}

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

/// The parts of a checkpoint that two ranks have written, and of its best weights, arrive before the manifest that names
/// them, and the next machine resumes from them.
#[test]
fn parts_of_ranks_travel_there_and_back() {
    let scene = Scene::new(0);
    let folder = scene.here().join("checkpoints");
    let identity = || WriterIdentity {
        run: RunId::new("r"),
        attempt: AttemptId::new("r-a1"),
        fence: Fence(1),
        job_hash: "job".into(),
    };
    let mut first = CheckpointWriter::open(&folder, identity(), 2, domain::train::Codec::Full, None).unwrap();
    let mut second = CheckpointWriter::open_part(&folder, 1, identity(), None);
    let (folders, _) = first.begin_parts(7, Some(5)).unwrap();
    let part = |rank: u32| {
        let tensor = |name: &str| checkpoint::Tensor {
            name: name.into(),
            dtype: Dtype::U8,
            shape: vec![2],
            bytes: vec![2 * rank as u8, 2 * rank as u8 + 1],
        };
        let place = Placement { from: 2 * u64::from(rank), ..Placement::whole(&[4]) };
        let places = ["w", "first.w"].map(|name| (name.to_owned(), place.clone())).into();
        let (folder, best_folder) = (folders.step.clone(), folders.best.clone());
        Snapshot {
            step: 7,
            began: std::time::Instant::now(),
            model: vec![tensor("w")],
            training: vec![tensor("first.w")],
            state: json!({}),
            best: Some(Arc::new(BestWeights { step: 5, model: vec![tensor("w")] })),
            part: Some(SnapshotPart { rank, of: 2, folder, best_folder, places: Arc::new(places) }),
        }
    };
    second.save(part(1)).unwrap();
    first.save(part(0)).unwrap();
    assert_eq!(first.wait().unwrap().map(|done| done.step), Some(7));
    fs::write(folder.join(".seen"), "").unwrap();
    scene.upload().unwrap();
    let requests = scene.requests();
    let puts: Vec<&str> =
        requests.iter().filter_map(|request| request.strip_prefix("PUT /v1/runs/r/files/checkpoints/")).collect();
    assert_eq!(puts.len(), 7, "{puts:?}");
    assert_eq!(puts.last(), Some(&"manifest-00000007.json"));
    assert!(puts.iter().all(|put| !put.contains("/.")), "{puts:?}");
    let expected = checkpoint::newest_verified(&folder, "job").unwrap().0.unwrap();
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir_all(&folder).unwrap();
    checkpoints::bring(&mut scene.destination(), &start(&scene.here())).unwrap();
    let found = checkpoint::newest_verified(&folder, "job").unwrap().0.unwrap();
    assert_eq!((found.manifest, found.model, found.training), (expected.manifest, expected.model, expected.training));
    assert_eq!(found.best.unwrap().model[0].bytes, [0, 1, 2, 3]);
}
