//! Which files of a run are sent to its loop, in which order, and when the end of output is over.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::scene::{GROWN, Scene};
use super::{WITHIN, uploaded};
use crate::event::{AttemptEvent, Wakeup};

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

/// What was dropped from a log was sent as zeros, while the machine was billed. A loop of an earlier version still gets them.
#[test]
fn of_what_a_log_has_dropped_only_the_length_is_sent() {
    const TAIL: u64 = 24 << 20;
    for (name, requests) in [("a.log", 3), ("earlier.log", 5)] {
        let scene = Scene::new(0);
        let here = scene.write(&format!("here/logs/{name}"), "");
        let log = fs::File::create(&here).unwrap();
        log.write_all_at(&[b'h'; 4096], 0).unwrap();
        log.write_all_at(&[b't'; 4096], TAIL).unwrap();
        scene.upload().unwrap();
        assert_eq!(scene.requests().iter().filter(|request| request.ends_with(name)).count(), requests, "{name}");
        let there = fs::read(scene.there().join("logs").join(name)).unwrap();
        assert!(there == fs::read(&here).unwrap(), "{name}: {} bytes", there.len());
    }
}

/// A machine that is not released after the end of its program costs money: who pays for it sees why.
#[test]
fn what_is_left_to_send_at_the_end_is_reported() {
    let scene = Scene::new(0);
    fs::File::create(scene.write("here/export/model", "")).unwrap().set_len(64 << 20).unwrap();
    let (uploader, inbox) = scene.uploader();
    uploader.finish(WITHIN);
    let Wakeup::Attempt(_, first) = inbox.recv_timeout(WITHIN).unwrap() else { panic!("not of an attempt") };
    assert!(matches!(first, AttemptEvent::UploadLeft(left) if left == 64 << 20), "{first:?}");
    uploaded(&inbox).unwrap();
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
