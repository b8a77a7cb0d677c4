//! Delta checkpoints: restoring, retention, and the effect of a damaged link.

use std::fs;
use std::path::Path;

use domain::id::Fence;
use domain::train::Codec;

use super::{Random, assert_is, check, committer, listing, newest_verified, snapshot};
use crate::commit::Committer;
use crate::disk::rehearsal::Rehearsal;
use crate::manifest::CheckpointManifest;
use crate::tests::JOB;
use crate::{CHAIN_SCHEMA, Error, Snapshot};

/// Weights of which a step changes the last bits, as training does.
fn drifted(step: u64) -> Snapshot {
    let mut drifted = snapshot(1);
    let mut random = Random(step + 1);
    let weights = drifted.model.iter_mut().chain(&mut drifted.training);
    for tensor in weights.filter(|tensor| tensor.name == "conv.weight") {
        tensor.shape[0] *= 500;
        tensor.bytes = Random(77).bytes(500 * tensor.bytes.len());
        for number in tensor.bytes.as_chunks_mut::<4>().0 {
            number[0] ^= random.below(16) as u8;
        }
    }
    Snapshot { step, best: None, state: serde_json::json!(step), ..drifted }
}

fn attempt(folder: &Path, fence: u64, keep: u32) -> Committer {
    crate::claim(folder, Fence(fence)).unwrap();
    let committer = committer(folder, fence, keep).coded(Codec::Delta);
    committer.tidy().unwrap();
    committer
}

/// Commits and keeps, as the thread of the writer does.
fn commit(committer: &mut Committer, mut snapshot: Snapshot) -> Result<u64, Error> {
    let bytes = committer.commit(&snapshot);
    committer.retain(&mut snapshot);
    bytes
}

fn manifest(folder: &Path, step: u64) -> CheckpointManifest {
    CheckpointManifest::read(&fs::read(folder.join(format!("manifest-{step:08}.json"))).unwrap()).unwrap()
}

fn steps_with_data(folder: &Path) -> Vec<u64> {
    let names = listing(folder);
    let steps = names.iter().filter(|name| name.starts_with("step") && !name.contains('/'));
    steps.map(|name| name[5..13].parse().unwrap()).collect()
}

#[test]
fn states_are_restored_and_every_eighth_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut committer = attempt(folder, 1, 2);
    let mut sizes = Vec::new();
    for step in 1..=20 {
        sizes.push(commit(&mut committer, drifted(step)).unwrap());
        let (loaded, passed_over) = newest_verified(folder, JOB);
        assert_is(&loaded.unwrap(), &drifted(step));
        assert_eq!(passed_over, [""; 0]);
        let chain = manifest(folder, step).chain;
        assert_eq!(chain.len() as u64, (step - 1) % 8, "step {step}");
        // The two newest are retained, and those that they build on.
        let first = step.saturating_sub(1).max(1);
        let needed = (first - 1) / 8 * 8 + 1;
        assert_eq!(steps_with_data(folder), (needed..=step).collect::<Vec<_>>(), "step {step}");
    }
    for (index, size) in sizes.iter().enumerate() {
        let is_small = *size < sizes[0] / 3;
        assert_eq!(is_small, index % 8 != 0, "checkpoint {index} takes {size} of {} bytes", sizes[0]);
    }
}

#[test]
fn any_state_comes_back_even_of_other_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut committer = attempt(folder, 1, 3);
    for step in [10, 20, 30, 40] {
        let mut state = snapshot(step);
        if step == 30 {
            state.model.remove(0);
            state.training[1].shape = vec![7, 0];
        }
        commit(&mut committer, state.clone()).unwrap();
        assert_is(&newest_verified(folder, JOB).0.unwrap(), &state);
    }
    // The next attempt begins with a full one, and may use the other format.
    commit(&mut attempt(folder, 2, 3), snapshot(50)).unwrap();
    assert_eq!((manifest(folder, 50).chain.len(), manifest(folder, 50).schema), (0, CHAIN_SCHEMA));
    super::commit(folder, 3, 3, &[60]).unwrap();
    assert_eq!(check(folder, Some(60)), [""; 0]);
}

#[test]
fn a_broken_link_falls_back_to_the_newest_that_holds() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut committer = attempt(folder, 1, 30);
    for step in 1..=12 {
        commit(&mut committer, snapshot(step)).unwrap();
    }
    for (broken, newest) in [(12, 11), (10, 9), (9, 8), (5, 4)] {
        let file = folder.join(format!("step-{broken:08}-a1/training.delta"));
        let intact = fs::read(&file).unwrap();
        for damage in ["flip", "cut", "missing"] {
            let mut bytes = intact.clone();
            match damage {
                "flip" => bytes[intact.len() / 2] ^= 1,
                _ => bytes.truncate(intact.len() - 1),
            }
            match damage {
                "missing" => fs::remove_file(&file).unwrap(),
                _ => fs::write(&file, bytes).unwrap(),
            }
            let passed_over = check(folder, Some(if broken == 5 { 12 } else { newest }));
            let expected = if broken == 5 { 0 } else { 12 - newest };
            assert_eq!(passed_over.len() as u64, expected, "{passed_over:?}");
            assert!(passed_over.iter().all(|why| why.contains(&format!("step-{broken:08}-a1/training.delta"))));
        }
        fs::write(&file, &intact).unwrap();
    }
    assert_eq!(check(folder, Some(12)), [""; 0]);
}

#[test]
fn a_kill_between_any_two_operations_loses_nothing_durable() {
    for operations in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut killed = attempt(folder, 1, 2);
        for step in 7..=9 {
            commit(&mut killed, snapshot(step)).unwrap();
        }
        killed.disk = Rehearsal::killed_after(operations);
        let committed = commit(&mut killed, snapshot(10)).is_ok();
        let (found, passed_over) = newest_verified(folder, JOB);
        let found = found.unwrap();
        assert!(found.manifest.step == 10 || !committed && found.manifest.step == 9, "{passed_over:?}");
        assert_is(&found, &snapshot(found.manifest.step));
        // What survived is enough to resume from, twice.
        let mut next = attempt(folder, 2, 2);
        for step in 11..=13 {
            commit(&mut next, snapshot(step)).unwrap();
            assert_eq!(check(folder, Some(step)), [""; 0]);
        }
        assert_eq!(steps_with_data(folder), [11, 12, 13]);
        if committed && killed.disk.seen().len() < operations {
            return;
        }
    }
}

/// A failed commit is not a base: the next one builds on what is durable.
#[test]
fn what_failed_is_not_built_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut committer = attempt(folder, 1, 3);
    commit(&mut committer, snapshot(1)).unwrap();
    committer.disk = Rehearsal::killed_after(3);
    commit(&mut committer, snapshot(2)).unwrap_err();
    committer.disk = Default::default();
    commit(&mut committer, snapshot(3)).unwrap();
    let chain: Vec<u64> = manifest(folder, 3).chain.iter().map(|link| link.step).collect();
    assert_eq!(chain, [1]);
    assert_eq!(check(folder, Some(3)), [""; 0]);
}
