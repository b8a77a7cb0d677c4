//! Data sets that are holes, served by a thread that has the real files.

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use domain::train::{Augment, Data, Normalize};

use super::*;
use crate::tests::Files;
use crate::{Cursor, Dataset, Loader, LoaderOptions, PackFormat, PackOptions};

/// The requests received: reads, their bytes, and announcements.
#[derive(Default)]
struct Asked {
    reads: AtomicU64,
    bytes: AtomicU64,
    expected: Mutex<Vec<(ByteRange, AccessTime)>>,
    whens: Mutex<Vec<AccessTime>>,
}

/// Serves `files` below `root` until the process ends.
fn serve(socket: &Path, root: &Path, files: &[RemoteFile], asked: &Arc<Asked>) {
    let listener = UnixListener::bind(socket).unwrap();
    let (root, files, asked) = (root.to_owned(), files.to_vec(), Arc::clone(asked));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, root, files, asked) = (stream.unwrap(), root.clone(), files.clone(), Arc::clone(&asked));
            std::thread::spawn(move || {
                while let Ok(Some(request)) = read_request(&mut stream) {
                    match request {
                        RangeRequest::Expect(span, when) => asked.expected.lock().unwrap().push((span, when)),
                        RangeRequest::Read(span, when) => {
                            let file = File::open(root.join(&files[span.file as usize].name)).unwrap();
                            let mut bytes = vec![0; span.bytes as usize];
                            file.read_exact_at(&mut bytes, span.offset).unwrap();
                            asked.reads.fetch_add(1, Ordering::Relaxed);
                            asked.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                            asked.whens.lock().unwrap().push(when);
                            write_answer(&mut stream, Ok((false, &bytes))).unwrap();
                        }
                    }
                }
            });
        }
    });
}

/// A folder of holes for all large files below `root`; the others are copied.
fn away(root: &Path, to: &Path) -> Arc<Asked> {
    let asked = Arc::<Asked>::default();
    let mut files = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let (name, bytes) = (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len());
        match name.ends_with(".json") {
            true => drop(fs::copy(entry.path(), to.join(&name)).unwrap()),
            false => files.push(RemoteFile { name, bytes }),
        }
    }
    let socket = to.join("s");
    serve(&socket, root, &files, &asked);
    lay_out(to, &RemoteListing { schema: SCHEMA, socket, files }).unwrap();
    asked
}

fn spec() -> Data {
    let normalize = Some(Normalize { mean: vec![0.5; 3], std: vec![0.5; 3] });
    // Random crops are read each time, and not held decoded.
    let augment = vec![Augment::RandomResizedCrop, Augment::Flip];
    Data { size: Some(8), augment, normalize, ..crate::tests::spec() }
}

fn drain(path: &Path) -> (Vec<u32>, Option<crate::files::cache::CacheCounts>) {
    let spec = spec();
    let dataset = Arc::new(Dataset::open(&spec, path, 3).unwrap());
    let options = LoaderOptions { batch: 8, workers: 2, seed: 4, augment: spec.augment, ..Default::default() };
    let mut loader = Loader::train(Arc::clone(&dataset), options, Cursor::START, 2);
    let mut bits = Vec::new();
    while let Some(batch) = loader.next() {
        bits.extend(batch.unwrap().images().iter().map(|value| value.to_bits()));
    }
    (bits, loader.measured().reads)
}

#[test]
fn what_lies_elsewhere_is_read_as_if_it_were_here() {
    let root = tempfile::tempdir().unwrap();
    let source = Files::of(&[""], &["a", "b", "c"], 20).folder(root.path());
    for format in [PackFormat::Shards, PackFormat::Webdataset] {
        let here = root.path().join(format!("{format:?}"));
        let options = PackOptions { shard_bytes: 4 << 10, seed: 1, format, ..PackOptions::default() };
        crate::pack(&source, &here, &options, &mut |_| {}).unwrap();
        let holes = root.path().join(format!("{format:?}-holes"));
        fs::create_dir(&holes).unwrap();
        let asked = away(&here, &holes);
        let (expected, none) = drain(&here);
        let (found, counts) = drain(&holes);
        assert_eq!(found, expected);
        assert!(none.is_none());
        let counts = counts.unwrap();
        // The reads that list the files are not the loader's.
        let all = asked.reads.load(Ordering::Relaxed);
        assert!(counts.hits == 0 && (84..=all).contains(&counts.misses), "{counts:?} of {all}");
        // Every training sample is read once an epoch, and the next epoch's reading is known but for the last.
        let whens: Vec<AccessTime> =
            asked.whens.lock().unwrap().iter().copied().filter(|when| when.now > 0 || when.next < 84).collect();
        let known = whens.iter().filter(|when| (42..84).contains(&when.next)).count();
        let last = whens.iter().filter(|when| when.next == crate::files::cache::NEVER && when.now >= 42).count();
        assert_eq!((known, last), (42, 42), "{format:?}");
        assert!(whens.iter().all(|when| when.next > when.now));
        // And it was announced before, but for the few that are read first.
        let mut expected: Vec<u64> = asked.expected.lock().unwrap().iter().map(|(_, when)| when.now).collect();
        assert!(expected.len() <= 84 + 4, "{expected:?}");
        expected.sort_unstable();
        expected.dedup();
        assert!((4..84).all(|time| expected.contains(&time)), "{expected:?}");
    }
}

#[test]
fn a_server_that_is_gone_or_refuses_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("s");
    let files = vec![RemoteFile { name: "a.tar".into(), bytes: 10_000 }];
    lay_out(root.path(), &RemoteListing { schema: SCHEMA, socket: socket.clone(), files }).unwrap();
    let client = Client::of(&root.path().join("a.tar")).unwrap().unwrap();
    assert_eq!(client.file(&root.path().join("a.tar")), Some((0, 10_000)));
    assert_eq!(client.file(&root.path().join("b.tar")), None);
    let span = ByteRange { file: 0, offset: 0, bytes: 4 };
    let error = client.read(span, AccessTime::ONCE, &mut [0; 4]).unwrap_err().to_string();
    assert!(error.contains("the server of remote data is gone"), "{error}");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let request = read_request(&mut stream).unwrap();
        write_answer(&mut stream, Err("the bucket is gone")).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        (request, rest.len())
    });
    let error = client.read(span, AccessTime::SOME_TIME, &mut [0; 4]).unwrap_err().to_string();
    assert_eq!(error, "the bucket is gone");
    drop(client);
    assert_eq!(server.join().unwrap(), (Some(RangeRequest::Read(span, AccessTime::SOME_TIME)), 0));
}

#[test]
fn names_that_lead_out_are_refused() {
    let root = tempfile::tempdir().unwrap();
    for name in ["../x", "/x", "a/../../x"] {
        let files = vec![RemoteFile { name: name.into(), bytes: 1 }];
        let listing = RemoteListing { schema: SCHEMA, socket: "s".into(), files };
        assert!(lay_out(root.path(), &listing).is_err(), "{name}");
    }
    assert!(Client::of(root.path()).unwrap().is_none());
}
