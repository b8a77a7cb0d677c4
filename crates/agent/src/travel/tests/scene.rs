//! A loop that is a folder behind a socket, and the folder of a run on a machine.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use domain::files::{FileInfo, FileListing, FilePart, KeepRequest, PartsRequest, Received};
use domain::{AttemptId, Fence, RunId};

use super::{WITHIN, uploaded};
use crate::event::Wakeup;
use crate::loop_request::LoopPlace;
use crate::travel::destination::{CheckpointDestination, LoopDestination};
use crate::travel::loop_files::micros;
use crate::travel::upload::below;
use crate::travel::{LoopFiles, UploadFailure, Uploader};

/// A loop that stores uploads in a folder, and records each request.
pub struct Scene {
    folder: tempfile::TempDir,
    requests: Arc<Mutex<Vec<String>>>,
    /// So many requests are answered with an error first.
    refusals: Arc<Mutex<u32>>,
}

impl Scene {
    pub fn new(refusals: u32) -> Scene {
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

    pub fn there(&self) -> PathBuf {
        self.folder.path().join("there")
    }

    pub fn here(&self) -> PathBuf {
        self.folder.path().join("here")
    }

    fn files(&self) -> LoopFiles {
        LoopFiles::new(&LoopPlace::Socket(self.folder.path().join("s")))
    }

    pub fn destination(&self) -> LoopDestination {
        LoopDestination::new(self.files(), RunId::new("r"))
    }

    pub fn uploader(&self) -> (Uploader, mpsc::Receiver<Wakeup>) {
        let (events, inbox) = mpsc::channel();
        let whose = (RunId::new("r"), AttemptId::new("r-a1"), Fence(1));
        let destination: Box<dyn CheckpointDestination> = Box::new(self.destination());
        (Uploader::start((Some(self.files()), destination), (self.here(), false), whose, events), inbox)
    }

    /// Sends everything, and waits until it is there.
    pub fn upload(&self) -> Result<(), Box<UploadFailure>> {
        self.upload_within(WITHIN)
    }

    pub fn upload_within(&self, time: Duration) -> Result<(), Box<UploadFailure>> {
        let (uploader, inbox) = self.uploader();
        uploader.staged();
        uploader.finish(time);
        uploaded(&inbox)
    }

    pub fn write(&self, path: &str, contents: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }

    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

/// Checkpoints with a loop that answers every request with this status.
pub fn refusing(folder: &Path, status: &'static str) -> LoopDestination {
    let socket = folder.join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let head = BufReader::new(stream.try_clone().unwrap()).lines();
            // Up to the empty line: these requests have no body.
            let _ = head.map_while(Result::ok).take_while(|line| !line.is_empty()).count();
            let answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno");
            stream.write_all(answer.as_bytes()).unwrap_or_default();
        }
    });
    LoopDestination::new(LoopFiles::new(&LoopPlace::Socket(socket)), RunId::new("r"))
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
pub const GROWN: u64 = (9 << 20) + 8;

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
            let offset = number("offset").unwrap();
            // An earlier version does not know holes.
            let hole = number("hole").filter(|_| !path.ends_with("earlier.log")).unwrap_or(0);
            match number("total") {
                Some(_) => fs::write(place, body).unwrap(),
                None => {
                    let log = fs::OpenOptions::new().create(true).truncate(false).write(true).open(place).unwrap();
                    log.write_all_at(body, offset).unwrap();
                    log.set_len(log.metadata().unwrap().len().max(offset + hole)).unwrap();
                }
            }
            let bytes = offset + body.len() as u64 + hole;
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
            for path in below(there, "checkpoints").0 {
                let meta = fs::metadata(there.join(&path)).unwrap();
                let (bytes, modified) = (meta.len(), micros(&meta));
                let path = path.trim_start_matches("checkpoints/").to_owned();
                files.push(FileInfo { path, bytes, modified, is_executable: false, is_private: false });
            }
            serde_json::to_vec(&FileListing { is_file: false, files }).unwrap()
        }
        ("POST", Some("files")) => {
            let PartsRequest { parts } = serde_json::from_slice(body).unwrap();
            let part = |part: &FilePart| {
                let bytes = fs::read(there.join("checkpoints").join(&part.path)).unwrap();
                bytes[part.offset as usize..][..part.bytes as usize].to_vec()
            };
            parts.iter().flat_map(part).collect()
        }
        other => panic!("{other:?}"),
    }
}
