//! Copies that break off, are continued, and are of something else.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::*;

/// Contents of several chunks, the last of which is short.
fn contents() -> Vec<u8> {
    let mut contents = vec![7; CHUNK as usize];
    contents.extend(vec![8; CHUNK as usize]);
    contents.extend(b"the end");
    contents
}

fn blob(contents: &[u8], from: u32) -> InstallBlob {
    InstallBlob { sha256: sha256(contents).unwrap(), chunks: chunks(contents.len() as u64), from }
}

fn library(contents: &[u8]) -> InstallTarget {
    let hash = sha256(contents).unwrap();
    let files = vec![("lib/a.so".to_owned(), hash.clone()), ("lib/a.so.1".to_owned(), hash)];
    InstallTarget { folder: "lib/library".to_owned(), is_whole: true, files }
}

fn request(root: &Path, step: InstallStep, contents: &[u8], from: u32) -> InstallRequest {
    InstallRequest {
        schema: INSTALL_SCHEMA,
        root: root.to_owned(),
        step,
        blobs: vec![blob(contents, from)],
        targets: vec![library(contents)],
    }
}

/// What is on the wire: the request, and the frames from its chunk on.
fn sent(request: &InstallRequest, contents: &[u8]) -> Vec<u8> {
    let mut wire = serde_json::to_vec(request).unwrap();
    wire.push(b'\n');
    for raw in contents.chunks(CHUNK as usize).skip(request.blobs[0].from as usize) {
        write_frame(raw, &mut wire).unwrap();
    }
    wire
}

fn receive(root: &Path, contents: &[u8], from: u32) -> InstallAnswer {
    answer(Cursor::new(sent(&request(root, InstallStep::Receive, contents, from), contents)))
}

fn look(root: &Path, contents: &[u8]) -> u32 {
    let mut line = serde_json::to_vec(&request(root, InstallStep::Look, contents, 0)).unwrap();
    line.push(b'\n');
    let found = answer(Cursor::new(line));
    assert_eq!(found.failed, None);
    found.held[0]
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn what_is_sent_is_installed_under_its_hash_once() {
    let root = tempfile::tempdir().unwrap();
    let contents = contents();
    assert_eq!(look(root.path(), &contents), 0);
    assert_eq!(receive(root.path(), &contents, 0), InstallAnswer { held: vec![3], failed: None });
    assert_eq!(look(root.path(), &contents), 3);
    let hash = sha256(&contents[..]).unwrap();
    assert_eq!(names(&root.path().join("blobs")), std::slice::from_ref(&hash));
    let folder = fs::metadata(root.path().join("blobs")).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700, "nobody else puts a blob there");
    assert_eq!(names(&root.path().join("lib")), ["library"]);
    let library = root.path().join("lib/library/lib");
    assert_eq!(names(&library), ["a.so", "a.so.1"]);
    let file = fs::metadata(library.join("a.so")).unwrap();
    assert_eq!((file.nlink(), file.permissions().mode() & 0o777), (3, 0o555), "it takes its space once");
    assert!(fs::read(library.join("a.so.1")).unwrap() == contents);
    // Nothing is sent where all is there; what is installed stays, for something may run from it.
    let before = fs::metadata(root.path().join("lib/library")).unwrap().ino();
    assert_eq!(receive(root.path(), &contents, 3).failed, None);
    assert_eq!(fs::metadata(root.path().join("lib/library")).unwrap().ino(), before);
    // Another library shares the file.
    let mut other = request(root.path(), InstallStep::Receive, &contents, 3);
    other.targets = vec![InstallTarget {
        folder: "bin/0123".to_owned(),
        is_whole: false,
        files: vec![("program".to_owned(), hash.clone())],
    }];
    fs::create_dir_all(root.path().join("bin/0123")).unwrap();
    fs::write(root.path().join("bin/0123/gradus"), "").unwrap();
    assert_eq!(answer(Cursor::new(sent(&other, &contents))).failed, None);
    assert_eq!(names(&root.path().join("bin/0123")), ["gradus", "program"], "what is there stays");
    assert_eq!(fs::metadata(library.join("a.so")).unwrap().nlink(), 4);
}

#[test]
fn a_copy_that_broke_off_continues_behind_its_last_whole_chunk() {
    let contents = contents();
    let whole = sent(&request(Path::new("/"), InstallStep::Receive, &contents, 0), &contents);
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let frame = |at: usize| 4 + u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    let second = first + frame(first);
    let third = second + frame(second);
    for (end, expected) in [(first + 2, 0), (second - 1, 0), (second, 1), (third - 1, 1), (third + 3, 2)] {
        let root = tempfile::tempdir().unwrap();
        let wire = sent(&request(root.path(), InstallStep::Receive, &contents, 0), &contents);
        // The root is longer there.
        let end = end + wire.len() - whole.len();
        let cut = answer(Cursor::new(&wire[..end]));
        assert_eq!((cut.held, cut.failed.as_deref()), (vec![expected], Some("the copy broke off")));
        assert!(!root.path().join("lib").exists(), "nothing looks ready");
        assert_eq!(look(root.path(), &contents), expected);
        let rest = sent(&request(root.path(), InstallStep::Receive, &contents, expected), &contents);
        assert!(expected == 0 || rest.len() < wire.len(), "less than the whole is sent");
        assert_eq!(answer(Cursor::new(rest)).failed, None);
        assert!(fs::read(root.path().join("lib/library/lib/a.so")).unwrap() == contents);
        assert_eq!(names(&root.path().join("blobs")).len(), 1, "no chunk is left");
    }
}

#[test]
fn what_came_and_is_not_what_was_sent_gets_no_name_and_is_sent_again() {
    let contents = contents();
    let other = vec![9; contents.len()];
    let check = |spoil: &dyn Fn(&Path), expected: &str| {
        let root = tempfile::tempdir().unwrap();
        let wire = sent(&request(root.path(), InstallStep::Receive, &contents, 0), &contents);
        assert_eq!(answer(Cursor::new(&wire[..wire.len() - 1])).held, [2]);
        spoil(&root.path().join(format!("blobs/{}.parts/00001", sha256(&contents[..]).unwrap())));
        let found = receive(root.path(), &contents, 2);
        assert_eq!(found.held, [0], "none of it is continued");
        assert!(found.failed.as_deref().unwrap_or_default().contains(expected), "{found:?}");
        assert!(!root.path().join("lib").exists());
        assert_eq!(receive(root.path(), &contents, 0).failed, None);
    };
    let frame = zstd::bulk::compress(&other[..CHUNK as usize], 1).unwrap();
    check(&|part| fs::write(part, &frame).unwrap(), "is not what was sent");
    check(&|part| fs::write(part, "nothing that zstd wrote").unwrap(), "a chunk is damaged");
    // After a power cut: it is there by its name only, and is asked for again.
    let root = tempfile::tempdir().unwrap();
    let wire = sent(&request(root.path(), InstallStep::Receive, &contents, 0), &contents);
    answer(Cursor::new(&wire[..wire.len() - 1]));
    fs::write(root.path().join(format!("blobs/{}.parts/00000", sha256(&contents[..]).unwrap())), "").unwrap();
    assert_eq!(look(root.path(), &contents), 0);
}

#[test]
fn an_empty_file_is_a_blob_too() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(receive(root.path(), b"", 0).failed, None);
    assert_eq!(fs::metadata(root.path().join("lib/library/lib/a.so")).unwrap().len(), 0);
}

#[test]
fn what_broke_off_a_day_ago_and_what_nothing_has_any_more_is_deleted() {
    let root = tempfile::tempdir().unwrap();
    let (contents, used) = (contents(), b"used");
    assert_eq!(receive(root.path(), used, 0).failed, None);
    let blobs = root.path().join("blobs");
    let of = |hash: char| hash.to_string().repeat(64);
    let asked = format!("{}.parts", sha256(&contents[..]).unwrap());
    for folder in [asked.clone(), format!("{}.parts", of('a')), format!("{}.parts", of('b'))] {
        fs::create_dir_all(blobs.join(folder)).unwrap();
    }
    for file in [of('c'), of('d'), format!("{}.partial-7", sha256(&contents[..]).unwrap())] {
        fs::write(blobs.join(file), "").unwrap();
    }
    fs::create_dir_all(root.path().join("lib/library.partial-7/lib")).unwrap();
    fs::create_dir_all(root.path().join("lib/library.partial-8/lib")).unwrap();
    let old = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    let age = |path: &Path| fs::File::open(path).unwrap().set_modified(old).unwrap();
    for name in [&asked, &format!("{}.parts", of('a')), &of('c'), &sha256(&used[..]).unwrap()] {
        age(&blobs.join(name));
    }
    age(&blobs.join(format!("{}.partial-7", sha256(&contents[..]).unwrap())));
    age(&root.path().join("lib/library.partial-7"));
    look(root.path(), &contents);
    let mut expected = vec![asked, format!("{}.parts", of('b')), of('d'), sha256(&used[..]).unwrap()];
    expected.sort();
    assert_eq!(names(&blobs), expected);
    assert_eq!(names(&root.path().join("lib")), ["library", "library.partial-8"]);
}

#[test]
fn requests_that_cannot_be_right_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let check = |change: &dyn Fn(&mut InstallRequest), expected: &str| {
        let mut request = request(root.path(), InstallStep::Receive, b"text", 0);
        change(&mut request);
        let found = answer(Cursor::new(sent(&request, b"text")));
        assert!(found.failed.as_deref().unwrap_or_default().contains(expected), "{found:?}");
    };
    check(&|request| request.schema += 1, "is of version 2, and this gradus reads 1");
    check(&|request| request.blobs[0].sha256 = "../../x".to_owned(), "`../../x` is no SHA-256");
    check(&|request| request.targets[0].folder = "../x".to_owned(), "`../x` is no path below `.gradus`");
    check(&|request| request.targets[0].folder = "/x".to_owned(), "is no path below");
    check(&|request| request.targets[0].folder = String::new(), "is no path below");
    check(&|request| request.targets[0].files[0].0 = "../../x".to_owned(), "is no path below");
    check(&|request| request.root = root.path().join("blobs").join(sha256(&b"text"[..]).unwrap()), "cannot make");
    let found = answer(Cursor::new("what is this\n"));
    assert!(found.failed.unwrap_or_default().contains("no request of gradus"));
    // A length that no sender writes takes no memory.
    let mut wire = serde_json::to_vec(&request(root.path(), InstallStep::Receive, b"other", 0)).unwrap();
    wire.extend(b"\n\xff\xff\xff\xff");
    let found = answer(Cursor::new(wire));
    assert!(found.failed.unwrap_or_default().contains("is too long"));
}
