//! The thread that commits, seen from the training thread.

use std::fs;

use domain::finding::Cause;
use domain::id::Fence;
use domain::rank::Checkpointed;
use domain::train::Codec;

use super::{check, identity, snapshot};
use crate::{CheckpointWriter, Error, claim};

#[test]
fn every_snapshot_is_answered_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = CheckpointWriter::open(folder.path(), identity(1), 3, Codec::Full, None).unwrap();
    assert_eq!(writer.wait().unwrap(), None);
    let mut done: Vec<Checkpointed> = Vec::new();
    for step in [10, 20, 30] {
        done.extend(writer.save(snapshot(step)).unwrap());
        assert_eq!(writer.under_way(), Some(step));
    }
    done.extend(writer.wait().unwrap());
    assert_eq!((writer.under_way(), writer.wait().unwrap(), writer.poll().unwrap()), (None, None, None));
    assert_eq!(done.iter().map(|done| done.step).collect::<Vec<_>>(), [10, 20, 30]);
    for done in done {
        assert!(done.bytes > 0 && done.commit_us >= done.stall_us, "{done:?}");
    }
    check(folder.path(), Some(30));
}

#[test]
fn training_runs_ahead_by_no_more_than_the_lag() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = CheckpointWriter::open(folder.path(), identity(1), 3, Codec::Full, None).unwrap();
    for start in (100..1000).step_by(100) {
        writer.save(snapshot(start)).unwrap();
        for next in start + 1..=start + 3 {
            writer.keep_up(next, 2).unwrap();
            // Step 103 may not begin before 100 is durable; 101 and 102 may.
            if next == start + 3 {
                assert_eq!(writer.under_way(), None);
                check(folder.path(), Some(start));
            }
        }
    }
}

#[test]
fn memory_of_a_finished_snapshot_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = CheckpointWriter::open(folder.path(), identity(1), 3, Codec::Full, None).unwrap();
    assert!(writer.spare().is_none());
    let first = snapshot(10);
    let address = first.model[0].bytes.as_ptr();
    writer.save(first).unwrap();
    writer.wait().unwrap();
    assert_eq!(writer.spare().unwrap().model[0].bytes.as_ptr(), address);
    assert!(writer.spare().is_none());
}

#[test]
fn a_resumed_run_does_not_write_its_best_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    super::commit(folder, 1, 3, &[20]).unwrap();
    let loaded = super::newest_verified(folder, super::JOB).0.unwrap();
    let mut writer = CheckpointWriter::open(folder, identity(2), 3, Codec::Full, Some(&loaded.manifest)).unwrap();
    writer.save(snapshot(30)).unwrap();
    writer.wait().unwrap();
    check(folder, Some(30));
    assert!(folder.join("best-00000020-a1.safetensors").exists());
    assert!(!folder.join("best-00000020-a2.safetensors").exists());
}

#[test]
fn a_failed_save_is_reported_once_and_the_next_one_works() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut writer = CheckpointWriter::open(folder, identity(1), 3, Codec::Full, None).unwrap();
    writer.save(snapshot(10)).unwrap();
    writer.wait().unwrap();
    let mut wrong = snapshot(20);
    wrong.model[0].bytes.pop();
    writer.save(wrong).unwrap();
    assert!(matches!(writer.wait(), Err(Error::Tensor { .. })));
    assert_eq!(writer.wait().unwrap(), None);
    check(folder, Some(10));
    assert!(super::listing(folder).iter().all(|name| !name.contains("00000020")), "a failed save leaves no files");
    writer.save(snapshot(20)).unwrap();
    writer.wait().unwrap();
    check(folder, Some(20));
}

#[test]
fn a_superseded_attempt_gets_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut writer = CheckpointWriter::open(folder, identity(1), 3, Codec::Full, None).unwrap();
    claim(folder, Fence(2)).unwrap();
    writer.save(snapshot(10)).unwrap();
    let finding = writer.wait().unwrap_err().finding();
    assert_eq!(finding.cause, Cause::Fenced);
    assert!(finding.message.contains("attempt 2 has taken over"), "{}", finding.message);
    assert!(matches!(CheckpointWriter::open(folder, identity(1), 3, Codec::Full, None), Err(Error::Fenced { .. })));
    check(folder, None);
}

#[test]
fn dropping_waits_for_the_snapshot_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = CheckpointWriter::open(folder.path(), identity(1), 3, Codec::Full, None).unwrap();
    writer.save(snapshot(10)).unwrap();
    drop(writer);
    check(folder.path(), Some(10));
}

#[test]
fn a_file_in_place_of_the_folder_is_reported_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("checkpoints");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("deeper")] {
        let finding = CheckpointWriter::open(&path, identity(1), 3, Codec::Full, None).unwrap_err().finding();
        assert_eq!(finding.cause, Cause::ReadOnly, "{}", finding.message);
        assert!(finding.hint.is_some());
    }
}
