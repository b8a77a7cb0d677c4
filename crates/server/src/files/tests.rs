//! Files of runs: permissions, and the state after an interrupted transfer.

use std::fs;
use std::sync::Arc;

use axum::http::StatusCode;
use domain::files::{BroughtPart, FilePart, KeepRequest, PartsRequest};
use domain::{Fence, RunId};
use sha2::{Digest, Sha256};

use super::{BlobPart, BlobStore, Grant, Runs, send};
use crate::home::{DiskSpace, StoredKind, Transfers};

fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Scene {
    _folder: tempfile::TempDir,
    run: std::path::PathBuf,
    runs: Runs,
}

fn scene(fence: u64) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("r");
    Grant { fence: Fence(fence), inputs: Default::default(), mounts: Default::default() }.write(&run).unwrap();
    Scene { run, runs: Runs::new(folder.path().to_owned(), None, Default::default()), _folder: folder }
}

impl Scene {
    fn bring(&self, path: &str, fence: u64, offset: u64, of: &[u8], bytes: &[u8]) -> Result<(u64, bool), StatusCode> {
        let (total, sha256) = (Some(of.len() as u64), Some(sha(of)));
        let part = BroughtPart { fence, offset, total, sha256, modified: None, hole: 0 };
        let brought = self.runs.bring("r", path, &part, bytes);
        brought.map(|received| (received.bytes, received.is_whole)).map_err(|(status, _)| status)
    }
}

#[test]
fn a_file_has_its_name_only_when_it_is_whole_and_right() {
    let scene = scene(1);
    let (path, file) = ("checkpoints/step-1-a1/model.safetensors", b"0123456789");
    assert_eq!(scene.bring(path, 1, 0, file, b"0123"), Ok((4, false)));
    assert!(!scene.run.join(path).exists());
    // A repeated or early part has no effect, and the answer says where to continue.
    assert_eq!(scene.bring(path, 1, 0, file, b"0123"), Ok((4, false)));
    assert_eq!(scene.bring(path, 1, 8, file, b"89"), Ok((4, false)));
    assert_eq!(scene.bring(path, 1, 4, file, b"456789"), Ok((10, true)));
    assert_eq!(fs::read(scene.run.join(path)).unwrap(), file);
    // An existing file is not sent again.
    assert_eq!(scene.bring(path, 1, 0, file, b""), Ok((10, true)));
    // Damaged in transit: all of it is discarded.
    let other = "checkpoints/step-2-a1/model.safetensors";
    assert_eq!(scene.bring(other, 1, 0, file, b"012345678X"), Err(StatusCode::UNPROCESSABLE_ENTITY));
    assert_eq!(scene.bring(other, 1, 0, file, file), Ok((10, true)));
}

/// A file that is overwritten in place while it is sent: what is there of the old contents is not continued.
#[test]
fn an_interrupted_upload_of_other_contents_is_not_continued() {
    let scene = scene(1);
    let (path, old, new) = ("checkpoints/last.pt", b"0123456789", b"abcdefghij");
    fs::create_dir_all(scene.run.join("checkpoints")).unwrap();
    fs::write(scene.run.join("checkpoints/.last.pt.partial-a1"), "of an older version").unwrap();
    assert_eq!(scene.bring(path, 1, 0, old, b"0123"), Ok((4, false)));
    assert_eq!(scene.bring(path, 1, 0, new, b"abcd"), Ok((4, false)));
    assert_eq!(scene.bring(path, 1, 4, new, b"efghij"), Ok((10, true)));
    assert_eq!(fs::read(scene.run.join(path)).unwrap(), new);
    let left = send::list(&scene.run.join("checkpoints")).unwrap().files;
    let left: Vec<&str> = left.iter().map(|file| &*file.path).collect();
    assert_eq!(left, ["last.pt"], "and nothing of it is left");
    // The checksum becomes part of a name.
    let sha256 = Some("../../../../../../x".into());
    let part = BroughtPart { fence: 1, offset: 0, total: Some(1), sha256, modified: None, hole: 0 };
    assert_eq!(scene.runs.bring("r", path, &part, b"x").unwrap_err().0, StatusCode::BAD_REQUEST);
}

#[test]
fn a_file_has_the_time_that_it_has_on_its_machine() {
    let scene = scene(1);
    let bring = |modified: Option<i64>| {
        let part = BroughtPart { fence: 1, offset: 0, total: Some(1), sha256: Some(sha(b"x")), modified, hole: 0 };
        assert!(scene.runs.bring("r", "checkpoints/last.pt", &part, b"x").unwrap().is_whole);
        send::list(&scene.run.join("checkpoints")).unwrap().files[0].modified
    };
    assert_eq!(bring(Some(1_000_000_000_000_007)), 1_000_000_000_000_007);
    assert_eq!(bring(Some(1_000_000_000_000_009)), 1_000_000_000_000_009, "the same contents, written anew");
    assert_eq!(bring(None), 1_000_000_000_000_009, "an older agent does not say it");
}

#[test]
fn what_is_beyond_the_quota_is_refused_as_by_a_full_disk() {
    let mut scene = scene(1);
    scene.runs = Runs::new(scene._folder.path().to_owned(), Some(domain::Bytes(1 << 20)), Default::default());
    let file = vec![7; 600 << 10];
    let length = file.len() as u64;
    assert_eq!(scene.bring("checkpoints/a", 1, 0, &file, &file), Ok((length, true)));
    assert_eq!(scene.bring("checkpoints/b", 1, 0, &file, &file), Err(StatusCode::INSUFFICIENT_STORAGE));
    assert!(!scene.run.join("checkpoints/b").exists());
    assert_eq!(scene.bring("checkpoints/a", 1, 0, &file, &file), Ok((length, true)), "it is there already");
    assert!(scene.runs.limit.require(600 << 10).is_err(), "and still counts once");
}

/// What clients upload and what agents send are counted together, also between two sums of what is there.
#[test]
fn a_quota_is_that_of_all_transfers() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("runs");
    let (space, transfers): (Arc<DiskSpace>, Arc<Transfers>) = Default::default();
    Grant { fence: Fence(1), inputs: Default::default(), mounts: Default::default() }.write(&folder.join("r")).unwrap();
    let quota = Some(domain::Bytes(1 << 20));
    let runs = Runs::new(folder.clone(), quota, (space.clone(), transfers.clone()));
    let blobs = BlobStore::new(&folder, quota, (space, transfers));
    let put = |file: &[u8]| blobs.put(&sha(file), &BlobPart::default(), file).map(|_| ()).map_err(|(status, _)| status);
    assert_eq!(put(b"small"), Ok(()));
    let file = vec![7; 600 << 10];
    let (total, sha256) = (Some(file.len() as u64), Some(sha(&file)));
    let part = BroughtPart { fence: 1, offset: 0, total, sha256, modified: None, hole: 0 };
    assert!(runs.bring("r", "checkpoints/a", &part, &file).unwrap().is_whole);
    assert_eq!(put(&file), Err(StatusCode::INSUFFICIENT_STORAGE));
}

/// The next attempt begins while the last file of the one before is hashed: it would find another file than it has fetched.
#[test]
fn an_attempt_that_is_replaced_while_its_file_is_hashed_leaves_none() {
    let scene = scene(1);
    let (path, file) = ("checkpoints/last.pt", b"0123456789");
    let locks = scene.runs.transfers.of("r");
    let brought = std::thread::scope(|scope| {
        let held = locks.fence();
        let brought = scope.spawn(|| scene.bring(path, 1, 0, file, file));
        // It was let in once its part is there.
        let is_there = || {
            let listed = fs::read_dir(scene.run.join("checkpoints")).into_iter().flatten().flatten();
            let mut lengths = listed.filter_map(|entry| Some(entry.metadata().ok()?.len()));
            lengths.any(|length| length == file.len() as u64)
        };
        while !is_there() && !brought.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Grant { fence: Fence(2), inputs: Default::default(), mounts: Default::default() }.write(&scene.run).unwrap();
        drop(held);
        brought.join().unwrap()
    });
    assert_eq!(brought, Err(StatusCode::CONFLICT));
    assert!(!scene.run.join(path).exists());
}

#[test]
fn what_a_replaced_attempt_brings_is_refused() {
    let scene = scene(2);
    assert_eq!(scene.bring("checkpoints/manifest-1.json", 1, 0, b"{}", b"{}"), Err(StatusCode::CONFLICT));
    assert_eq!(scene.bring("checkpoints/manifest-1.json", 2, 0, b"{}", b"{}"), Ok((2, true)));
    let request = KeepRequest { fence: Fence(1), files: Vec::new(), removed: Vec::new() };
    assert_eq!(scene.runs.keep("r", &request).unwrap_err().0, StatusCode::CONFLICT);
    // A grant never reverts to an older attempt.
    Grant { fence: Fence(1), inputs: Default::default(), mounts: Default::default() }.write(&scene.run).unwrap();
    assert_eq!(scene.bring("checkpoints/manifest-2.json", 1, 0, b"{}", b"{}"), Err(StatusCode::CONFLICT));
}

#[test]
fn nothing_is_written_or_read_outside_of_a_run() {
    let scene = scene(1);
    for path in ["grant.json", "checkpoints", "../x", "checkpoints/../grant.json", "/etc/passwd", "logs//a", "secret/a"]
    {
        assert_eq!(scene.bring(path, 1, 0, b"x", b"x"), Err(StatusCode::BAD_REQUEST), "{path}");
    }
    for run in ["..", ".", "", "r/..", "other"] {
        let part = BroughtPart { fence: 1, offset: 0, total: None, sha256: None, modified: None, hole: 0 };
        assert_eq!(scene.runs.bring(run, "logs/a", &part, b"x").unwrap_err().0, StatusCode::NOT_FOUND, "{run}");
    }
    let parts = |path: &str| PartsRequest { parts: vec![FilePart { path: path.into(), offset: 0, bytes: 1 }] };
    for path in ["../grant.json", "/etc/passwd", ""] {
        assert_eq!(send::read(&scene.run, &parts(path)).unwrap_err().0, StatusCode::BAD_REQUEST, "{path}");
    }
}

#[test]
fn a_log_grows_without_gaps() {
    let scene = scene(1);
    let bring = |offset: u64, bytes: &[u8]| {
        let part = BroughtPart { fence: 1, offset, total: None, sha256: None, modified: None, hole: 0 };
        scene.runs.bring("r", "logs/a1-rank-0.log", &part, bytes).unwrap().bytes
    };
    assert_eq!([bring(0, b"one\n"), bring(9, b"late\n"), bring(4, b"two\n"), bring(4, b"two\n")], [4, 4, 8, 8]);
    assert_eq!(fs::read(scene.run.join("logs/a1-rank-0.log")).unwrap(), b"one\ntwo\n");
}

/// Of what was dropped on the machine, only the length is sent. Before, its zeros were, while the machine was billed.
#[test]
fn a_hole_of_a_log_takes_no_space_and_replaces_nothing() {
    use std::os::unix::fs::MetadataExt;
    let scene = scene(1);
    let path = "logs/a1-rank-0.log";
    let bring = |query: &str, bytes: &[u8]| {
        let address = format!("http://loop/v1/runs/r/files/{path}?fence=1&{query}");
        let part = axum::extract::Query::<BroughtPart>::try_from_uri(&address.parse().unwrap()).unwrap().0;
        scene.runs.bring("r", path, &part, bytes).map(|received| received.bytes).map_err(|(status, _)| status)
    };
    let (head, end) = ([b'h'; 4096], 4096 + (10 << 30));
    assert_eq!(bring("offset=0", &head), Ok(4096));
    assert_eq!(bring("offset=5000&hole=4096", b""), Ok(4096), "not after what is missing");
    assert_eq!(bring("offset=4096&hole=10737418240", b""), Ok(end));
    assert_eq!(bring("offset=10737422336", b"tail\n"), Ok(end + 5));
    // After a restart an agent sends all again, and may have dropped more meanwhile: what is here stays.
    assert_eq!(bring("offset=1000&hole=1000", b""), Ok(end + 5));
    let file = fs::File::open(scene.run.join(path)).unwrap();
    let meta = file.metadata().unwrap();
    assert!(meta.len() == end + 5 && meta.blocks() * 512 < 1 << 20, "{} bytes on disk", meta.blocks() * 512);
    let (hole, data) = (node::log::data_end(&file, 0).unwrap(), node::log::next_data(&file, 4096).unwrap());
    assert_eq!((hole, data), (4096, end));
    let whole = format!("offset=0&total=4&hole=4&sha256={}", sha(b"\0\0\0\0"));
    let refused: [(&str, &[u8]); 3] =
        [("offset=0&hole=4", b"x"), ("offset=4&hole=18446744073709551615", b""), (whole.as_str(), b"")];
    for (query, bytes) in refused {
        assert_eq!(bring(query, bytes), Err(StatusCode::BAD_REQUEST), "{query}");
    }
}

#[test]
fn only_what_is_named_of_checkpoints_is_kept() {
    let scene = scene(1);
    for path in ["manifest-1.json", "step-1-a1/model", "manifest-2.json", "step-2-a1/model", "best-1-a1"] {
        scene.bring(&format!("checkpoints/{path}"), 1, 0, b"x", b"x").unwrap();
    }
    fs::write(scene.run.join("checkpoints/fence"), "1").unwrap();
    let files = ["manifest-2.json", "step-2-a1/model", "best-1-a1"].map(str::to_owned).to_vec();
    scene.runs.keep("r", &KeepRequest { fence: Fence(1), files, removed: Vec::new() }).unwrap();
    let left: Vec<String> =
        send::list(&scene.run.join("checkpoints")).unwrap().files.into_iter().map(|file| file.path).collect();
    assert_eq!(left, ["best-1-a1", "fence", "manifest-2.json", "step-2-a1/model"]);
    assert!(!scene.run.join("checkpoints/step-1-a1").exists());
}

/// What a program has rotated away goes here too: only what its attempt names, and never this machine's own files.
#[test]
fn what_a_program_has_deleted_is_deleted() {
    let scene = scene(1);
    for path in ["checkpoint-1/model", "checkpoint-1/state/a", "checkpoint-2/model", "other/model"] {
        scene.bring(&format!("checkpoints/{path}"), 1, 0, b"x", b"x").unwrap();
    }
    for path in ["checkpoints/fence", "checkpoints/lock", "checkpoints/.writer", "grant"] {
        fs::write(scene.run.join(path), "1").unwrap();
    }
    let keep = |removed: &[&str]| {
        let removed = removed.iter().map(|path| (*path).to_owned()).collect();
        let request = KeepRequest { fence: Fence(1), files: vec!["checkpoint-2/model".into()], removed };
        scene.runs.keep("r", &request).unwrap();
        let files = send::list(&scene.run.join("checkpoints")).unwrap().files.into_iter().map(|file| file.path);
        files.collect::<Vec<String>>()
    };
    let own = [".writer", "checkpoint-2/model", "fence", "lock", "other/model"];
    assert_eq!(keep(&[]).len(), 7, "nothing that is only not named");
    assert_eq!(keep(&["checkpoint-1/model", "checkpoint-1/state/a", "checkpoint-2/model", "../grant"]), own);
    assert!(!scene.run.join("checkpoints/checkpoint-1").exists() && scene.run.join("grant").exists());
    assert_eq!(keep(&["checkpoint-1/model", "fence", "lock", ".writer"]), own, "once more, and what is not sent");
}

#[test]
fn parts_of_files_are_read_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a")).unwrap();
    fs::write(folder.path().join("a/x"), "0123").unwrap();
    fs::write(folder.path().join("y"), "4567").unwrap();
    let listing = send::list(folder.path()).unwrap();
    assert_eq!(listing.files.iter().map(|file| (&*file.path, file.bytes)).collect::<Vec<_>>(), [("a/x", 4), ("y", 4)]);
    let part = |path: &str, offset, bytes| FilePart { path: path.into(), offset, bytes };
    let read = |parts| send::read(folder.path(), &PartsRequest { parts }).map_err(|(status, _)| status);
    assert_eq!(read(vec![part("a/x", 1, 2), part("y", 0, 4)]), Ok(b"124567".to_vec()));
    assert_eq!(read(vec![part("y", 2, 3)]), Err(StatusCode::CONFLICT));
    assert_eq!(read(vec![part("z", 0, 1)]), Err(StatusCode::NOT_FOUND));
    assert_eq!(read(vec![part("y", 0, 1 << 40)]), Err(StatusCode::PAYLOAD_TOO_LARGE));
    let one = send::list(&folder.path().join("y")).unwrap();
    assert_eq!((one.is_file, &*one.files[0].path), (true, "y"));
    assert_eq!(send::read(&folder.path().join("y"), &PartsRequest { parts: vec![part("y", 0, 4)] }).unwrap(), b"4567");
}

/// Of a mounted folder everything is sent, also what git ignores; a link that leads out of it, never.
#[test]
fn of_a_mount_everything_is_sent_but_what_its_links_lead_to_elsewhere() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (mount, home) = (folder.path().join("mount"), folder.path().join("mount/home"));
    for path in [".git/config", ".gitignore", "data/x.bin", "left.log", "home/secret.key"] {
        let path = mount.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "data/\n").unwrap();
    }
    fs::write(mount.join(".skyignore"), "*.log\n").unwrap();
    fs::set_permissions(mount.join("data/x.bin"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("data", mount.join("link")).unwrap();
    let listed = send::list_mount(&mount, &home).unwrap();
    let files: Vec<(&str, bool)> = listed.files.iter().map(|file| (&*file.path, file.is_private)).collect();
    assert_eq!(files, [(".gitignore", false), (".skyignore", false), ("data/x.bin", true), ("link/x.bin", true)]);
    fs::write(folder.path().join("other"), "not yours").unwrap();
    symlink("../../other", mount.join("data/out")).unwrap();
    let (status, why) = send::list_mount(&mount, &home).unwrap_err();
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(why.contains("data/out") && why.contains("leads out"), "{why}");
    // An agent that asks for it all the same is refused.
    let part = |path: &str| PartsRequest { parts: vec![FilePart { path: path.into(), offset: 0, bytes: 4 }] };
    assert_eq!(send::read_mount(&mount, &part("data/out")).unwrap_err().0, StatusCode::FORBIDDEN);
    assert_eq!(send::read_mount(&mount, &part("link/x.bin")).unwrap(), b"data");
}

/// Neither a repository nor what it ignores travels to a node: it may be large, and may hold what is secret.
#[test]
fn of_a_working_folder_only_what_is_copied_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    for path in [".git/config", "train.py", "lib/a.py", "data/x.bin", ".env"] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    fs::create_dir_all(folder.path().join(".gradus/runs")).unwrap();
    fs::write(folder.path().join(".gradus/secret.key"), "").unwrap();
    let sent = || {
        let files = send::list_workdir(folder.path(), &folder.path().join(".gradus")).unwrap().files;
        files.into_iter().map(|file| file.path).collect::<Vec<_>>()
    };
    fs::write(folder.path().join(".gitignore"), "data/\n.env\n").unwrap();
    assert_eq!(sent(), [".gitignore", "lib/a.py", "train.py"]);
    fs::write(folder.path().join(".skyignore"), "lib\n.*\n").unwrap();
    assert_eq!(sent(), ["data/x.bin", "train.py"]);
}

#[test]
fn what_there_is_no_space_for_is_known_until_that_file_is_here() {
    let folder = tempfile::tempdir().unwrap();
    Grant { fence: Fence(1), inputs: Default::default(), mounts: Default::default() }
        .write(&folder.path().join("r"))
        .unwrap();
    let space = Arc::new(DiskSpace::default());
    let runs = |quota| Arc::new(Runs::new(folder.path().to_owned(), quota, (space.clone(), Arc::default())));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bring = |runs: &Arc<Runs>, path: &str, file: &[u8]| {
        let (total, sha256) = (Some(file.len() as u64), Some(sha(file)));
        let part = BroughtPart { fence: 1, offset: 0, total, sha256, modified: None, hole: 0 };
        let place = axum::extract::Path(("r".to_owned(), path.to_owned()));
        let body = axum::body::Bytes::copy_from_slice(file);
        let brought = super::bring(axum::extract::State(runs.clone()), place, axum::extract::Query(part), body);
        runtime.block_on(brought).map(|_| ()).map_err(|(status, _)| status)
    };
    let (small, file) = (runs(Some(domain::Bytes(1 << 20))), vec![7; 600 << 10]);
    assert_eq!(bring(&small, "checkpoints/a", &file), Ok(()));
    assert_eq!(space.shortages(), []);
    assert_eq!(bring(&small, "checkpoints/b", &file), Err(StatusCode::INSUFFICIENT_STORAGE));
    assert_eq!(bring(&small, "checkpoints/c", b"x"), Ok(()));
    let known = space.shortages();
    let [shortage] = &known[..] else { panic!("what still fits ends no shortage: {known:?}") };
    assert_eq!((&shortage.stored, &*shortage.place), (&StoredKind::Files(RunId::new("r")), "checkpoints/b"));
    assert!(shortage.why.contains("gradus serve --quota"), "{}", shortage.why);
    assert_eq!(bring(&runs(None), "checkpoints/b", &file), Ok(()));
    assert_eq!(space.shortages(), []);
}
