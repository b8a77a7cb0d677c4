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
use domain::files::{FileInfo, FileListing, KeepRequest, PartsRequest, Received};
use domain::{AttemptId, Fence, RunId};
use serde_json::json;

use super::{LoopFiles, Uploader, checkpoints};
use crate::event::{AttemptEvent, Wakeup};

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
        LoopFiles::new(&self.folder.path().join("s"))
    }

    /// Sends everything, and waits until it is there.
    fn upload(&self) -> Result<(), String> {
        let (events, inbox) = mpsc::channel();
        let whose = (RunId::new("r"), AttemptId::new("r-a1"), Fence(1));
        let uploader = Uploader::start(self.files(), (self.here(), false), whose, events);
        uploader.finish(Duration::from_secs(60));
        match inbox.recv_timeout(Duration::from_secs(90)).unwrap() {
            Wakeup::Attempt(_, AttemptEvent::Uploaded(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
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
    noted.lock().unwrap().push(format!("{method} {}", address.split('?').next().unwrap()));
    let is_refused = {
        let mut left = refusals.lock().unwrap();
        let is_refused = *left > 0;
        *left = left.saturating_sub(1);
        is_refused
    };
    let reply = if is_refused { None } else { Some(carried_out(method, address, &body, there)) };
    let (status, reply) = reply.map_or(("503 Busy", b"later".to_vec()), |reply| ("200 OK", reply));
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", reply.len());
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&reply)).unwrap_or_default();
}

fn carried_out(method: &str, address: &str, body: &[u8], there: &Path) -> Vec<u8> {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let number = |name: &str| {
        let value = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        value.map(|value| value.parse::<u64>().unwrap())
    };
    match (method, path.strip_prefix("/v1/runs/r/")) {
        ("PUT", Some(path)) => {
            let place = there.join(path.strip_prefix("files/").unwrap());
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, body).unwrap();
            let bytes = number("offset").unwrap() + body.len() as u64;
            serde_json::to_vec(&Received { bytes, is_whole: number("total") == Some(bytes) }).unwrap()
        }
        ("POST", Some("keep")) => {
            let KeepRequest { fence, files } = serde_json::from_slice(body).unwrap();
            assert!(fence == Fence(1) && !files.is_empty());
            Vec::new()
        }
        ("GET", Some("files")) => {
            let mut files = Vec::new();
            for path in super::upload::below(there, "checkpoints").unwrap_or_default() {
                let bytes = fs::metadata(there.join(&path)).unwrap().len();
                let path = path.trim_start_matches("checkpoints/").to_owned();
                files.push(FileInfo { path, bytes, modified: 0, is_executable: false, is_private: false });
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

fn manifest(fence: u64, step: u64) -> Vec<u8> {
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
        checkpoints::bring(&scene.files(), &start(&scene.here())).unwrap();
        let names: Vec<String> =
            fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert_eq!(names, [format!("manifest-{expected}.json")], "{ours:?} here and {theirs:?} there");
    }
}

fn start(folder: &Path) -> domain::wire::Start {
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
    checkpoints::bring(&scene.files(), &start(&scene.here())).unwrap();
    let found = checkpoint::newest_verified(&folder, "job").unwrap().0.unwrap();
    assert_eq!((found.manifest, found.model, found.training), (expected.manifest, expected.model, expected.training));
    assert_eq!(found.best.unwrap().model[0].bytes, [0, 1, 2, 3]);
}
