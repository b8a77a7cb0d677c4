//! Files that change or are deleted between the rounds of an upload, here or with the loop.

use std::fs;
use std::time::{Duration, Instant};

use super::scene::Scene;
use super::{WITHIN, uploaded};
use crate::event::{AttemptEvent, Wakeup};

/// Until the loop's checkpoints are here, what is here may be older, and what is not here is not deleted.
#[test]
fn before_the_loop_s_checkpoints_are_here_nothing_there_is_replaced() {
    let scene = Scene::new(0);
    scene.write("here/checkpoints/last.pt", "old");
    scene.write("here/checkpoints/unsent.pt", "unsent");
    scene.write("there/checkpoints/last.pt", "newer");
    let (uploader, inbox) = scene.uploader();
    uploader.finish(WITHIN);
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
    let begun = Instant::now();
    // The second is the last of its round.
    while !is_there(2) {
        assert!(begun.elapsed() < WITHIN);
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::remove_dir_all(scene.here().join("checkpoints/checkpoint-1")).unwrap();
    uploader.finish(WITHIN);
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
        let begun = Instant::now();
        while there() != "first" {
            assert!(begun.elapsed() < WITHIN);
        }
        scene.write("here/checkpoints/last.pt", "later");
        uploader.finish(WITHIN);
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
        let begun = Instant::now();
        while !scene.there().join("checkpoints").join(name).exists() {
            assert!(begun.elapsed() < WITHIN);
            std::thread::sleep(Duration::from_millis(5));
        }
        fs::remove_file(old).unwrap();
        scene.write("here/checkpoints/step-9-full", "new");
        uploader.finish(Duration::from_secs(if has_whole { 60 } else { 2 }));
        let is_there = |name: &str| scene.there().join("checkpoints").join(name).exists();
        let mut waits = Vec::new();
        let result = loop {
            match inbox.recv_timeout(WITHIN).unwrap() {
                Wakeup::Attempt(_, AttemptEvent::Uploaded(result)) => break result,
                Wakeup::Attempt(_, AttemptEvent::UploadWaits(why)) => waits.push(why),
                _ => {}
            }
        };
        assert_eq!(result.is_ok(), has_whole, "what is left is no checkpoint, and nothing is deleted for it");
        let said = ["the loop's machine has no space left: no space"];
        assert!(has_whole || waits == said, "said once, however often it is tried: {waits:?}");
        assert_eq!([is_there("step-0-full"), is_there("step-9-full")], [!has_whole, has_whole]);
    }
}
