//! Hostile locations: nothing is written outside the target, nothing hangs, and the error is reported.

use std::os::unix::fs::symlink;

use data::chunk::{self, Bundle, ChunkManifest, ChunkRef, ChunkedFile, CompressedFrame, ContentHash};
use object_store::PutMode;

use super::*;

/// Stores a data set of one file with this content, changed by `change`, as an attacker who knows the formats would.
fn plant(remote: &Remote, change: impl FnOnce(&mut ChunkManifest, &mut Vec<u8>)) {
    let mut bytes = Draws::new(1).bytes(1000);
    let piece = ChunkRef { id: ContentHash::of(&bytes), bytes: 1000, frame: 0, at: 0 };
    let mut manifest = ChunkManifest {
        bundles: vec![Bundle { id: ContentHash::of(&bytes), bytes: 1000 }],
        frames: vec![CompressedFrame { bundle: 0, offset: 0, stored: 1000, raw: 1000 }],
        files: vec![ChunkedFile { name: "a/b".into(), bytes: 1000, pieces: vec![piece] }],
    };
    change(&mut manifest, &mut bytes);
    let name = head::bundle_name(manifest.bundles[0].id);
    remote.wait(remote.put(&name, bytes, PutMode::Overwrite)).unwrap();
    remote.wait(head::save(remote, &manifest, None, None)).unwrap();
}

fn refusal(scene: &Scene, remote: &Remote) -> String {
    let result = pull(remote, &scene.path("there"), &scene.options(StoreFormat::Chunks), &Meter::default());
    let error = result.unwrap_err();
    match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[track_caller]
fn check(change: impl FnOnce(&mut ChunkManifest, &mut Vec<u8>), expected: &str) {
    let (scene, remote) = (Scene::new(), memory());
    plant(&remote, change);
    let told = refusal(&scene, &remote);
    assert!(told.contains(expected), "expected `{expected}`, found `{told}`");
    assert_eq!(fs::read_dir(scene.temporary.path()).unwrap().count(), 1, "something lies beside the target");
    assert!(!scene.path("there/a/b").exists());
}

#[test]
fn what_is_planted_is_refused() {
    check(|manifest, _| manifest.files[0].name = "../b".into(), "is refused");
    check(|manifest, _| manifest.files[0].name = "/b".into(), "is refused");
    check(|_, bytes| bytes[5] ^= 1, "its bytes are not those");
    check(|_, bytes| bytes.truncate(500), "it ends at byte 500 of 1000");
    check(|_, bytes| bytes.clear(), "it ends at byte 0 of 1000");
    check(|manifest, _| manifest.files[0].pieces[0].id = ContentHash::of(b"other"), "its bytes are not those");
    check(
        |manifest, bytes| {
            *bytes = zstd_zeros();
            manifest.bundles[0].bytes = bytes.len() as u64;
            manifest.frames[0].stored = bytes.len() as u32;
            manifest.frames[0].raw = 8 << 20;
        },
        "its bytes are not those",
    );
}

/// A gigabyte of zeros, compressed, as a frame of 8 MiB.
fn zstd_zeros() -> Vec<u8> {
    chunk::patch(&[], &vec![0; 256 << 20]).unwrap()
}

#[test]
fn links_in_the_target_lead_nowhere() {
    let (scene, remote) = (Scene::new(), memory());
    plant(&remote, |_, _| ());
    fs::create_dir_all(scene.path("there")).unwrap();
    fs::create_dir_all(scene.path("outer")).unwrap();
    symlink(scene.path("outer"), scene.path("there/a")).unwrap();
    assert!(refusal(&scene, &remote).contains("cannot write"));
    assert_eq!(fs::read_dir(scene.path("outer")).unwrap().count(), 0);

    // A link in place of the file itself is replaced, and its target is unchanged.
    fs::remove_file(scene.path("there/a")).unwrap();
    fs::create_dir_all(scene.path("there/a")).unwrap();
    fs::write(scene.path("outer/kept"), "kept").unwrap();
    symlink(scene.path("outer/kept"), scene.path("there/a/b")).unwrap();
    pull_(&scene, &remote, "there");
    assert_eq!(fs::read(scene.path("outer/kept")).unwrap(), b"kept");
    assert_eq!(fs::read(scene.path("there/a/b")).unwrap().len(), 1000);

    // So is one in place of our own folder.
    let other = Scene::new();
    fs::create_dir_all(other.path("there")).unwrap();
    fs::create_dir_all(other.path("outer")).unwrap();
    symlink(other.path("outer"), other.path("there/.gradus")).unwrap();
    assert!(refusal(&other, &remote).contains("cannot write"));
    assert_eq!(fs::read_dir(other.path("outer")).unwrap().count(), 0);
}

#[test]
fn heads_that_mean_harm_are_refused() {
    let long = format!("{{\"schema\":1,\"files\":1,\"bytes\":1,\"manifest\":[{}]}}", ["{}"; 9].join(","));
    for (text, expected) in [
        ("", "it is no head"),
        ("{\"schema\":1", "it is no head"),
        ("{\"schema\":2,\"files\":1,\"bytes\":1,\"manifest\":[]}", "later version"),
        (r#"{"schema":1,"files":1,"bytes":1,"manifest":[{"id":"../x","stored":1,"raw":1}]}"#, "is no hash"),
        (r#"{"schema":1,"files":1,"bytes":-1,"manifest":[]}"#, "it is no head"),
        (r#"{"schema":1,"files":1,"bytes":1,"manifest":[]}"#, "cut short"),
        (&long, "it is no head"),
        (&" ".repeat(70_000), "longer than"),
    ] {
        let (scene, remote) = (Scene::new(), memory());
        remote.wait(remote.put(head::NAME, text.into(), PutMode::Overwrite)).unwrap();
        let told = refusal(&scene, &remote);
        assert!(told.contains(expected), "{text}: expected `{expected}`, found `{told}`");
    }
}

#[test]
fn plain_objects_with_hostile_names_are_refused() {
    let (scene, remote) = (Scene::new(), memory());
    remote.wait(remote.put("a/.gradus/x", vec![1], PutMode::Overwrite)).unwrap();
    assert!(refusal(&scene, &remote).contains("its key cannot be used as a file name"));
}

#[test]
fn an_object_that_is_not_as_long_as_was_said_is_told() {
    let remote = memory();
    remote.wait(remote.put("x", vec![1; 10], PutMode::Overwrite)).unwrap();
    for expected in [9, 20] {
        let told = remote.wait(remote.whole("x", expected, |_, _| Ok(()))).unwrap_err();
        let why = std::error::Error::source(&told).map(ToString::to_string).unwrap_or_default();
        assert!(format!("{told}: {why}").contains(&format!("it has 10 bytes, not {expected}")), "{told}: {why}");
    }
}
