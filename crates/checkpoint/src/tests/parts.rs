//! Checkpoints that several ranks write together are atomic, whenever one of them ends.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{JOB, assert_is, check, commit, committer, identity, listing, newest_verified, snapshot};
use crate::commit::{Committer, new_folder};
use crate::disk::Disk;
use crate::disk::rehearsal::Rehearsal;
use crate::layout::{c_strides, reordered};
use crate::manifest::{CheckpointManifest, Data, PARTS_SCHEMA, StateKind};
use crate::{BestWeights, Error, Placement, Snapshot, SnapshotPart, Tensor, TensorSource};

/// The stretch of a tensor that a rank has, cut from memory in which the first index changes fastest.
fn stretch(tensor: &Tensor, rank: u32, of: u32) -> (Tensor, Placement) {
    let size = tensor.dtype.bytes() as usize;
    let mut strides = vec![1; tensor.shape.len()];
    for dimension in 1..strides.len() {
        strides[dimension] = strides[dimension - 1] * tensor.shape[dimension - 1].max(1);
    }
    let bytes = reordered(&tensor.bytes, size, &tensor.shape, [&c_strides(&tensor.shape), &strides]);
    let count = tensor.bytes.len() / size;
    let [from, end] = [rank, rank + 1].map(|rank| count * rank as usize / of as usize);
    let part =
        Tensor { shape: vec![(end - from) as u64], bytes: bytes[from * size..end * size].to_vec(), ..tensor.clone() };
    (part, Placement { shape: tensor.shape.clone(), strides, from: from as u64 })
}

/// One rank's part of the state after `step`; only the first rank has scalars.
fn part(whole: &Snapshot, rank: u32, of: u32, folder: &str, best_folder: Option<&str>) -> Snapshot {
    let mut places = BTreeMap::new();
    let mut cut = |tensors: &[Tensor]| -> Vec<Tensor> {
        let mut parts = Vec::new();
        for tensor in tensors {
            if tensor.shape.is_empty() || tensor.name == "generator" {
                parts.extend((rank == 0).then(|| tensor.clone()));
                continue;
            }
            let (part, place) = stretch(tensor, rank, of);
            places.insert(tensor.name.clone(), place);
            parts.push(part);
        }
        parts
    };
    let (model, training) = (cut(&whole.model), cut(&whole.training));
    let best = whole.best.as_ref().map(|best| Arc::new(BestWeights { step: best.step, model: cut(&best.model) }));
    let (folder, best_folder) = (folder.to_owned(), best_folder.map(str::to_owned));
    Snapshot {
        model,
        training,
        best,
        part: Some(SnapshotPart { rank, of, folder, best_folder, places: Arc::new(places) }),
        ..whole.clone()
    }
}

/// The folder of a step and that of its best weights, as the first rank makes them.
fn folders(folder: &Path, fence: u64, step: u64, has_best: bool) -> (String, Option<String>) {
    let (disk, fence) = (Disk::default(), domain::id::Fence(fence));
    let new = |name: &dyn Fn(u64) -> Data| new_folder(&disk, folder, name).unwrap();
    let best = has_best.then(|| new(&|again| Data::BestParts { step: step / 20 * 20, fence, again }));
    (new(&|again| Data::Step { step, fence, again }), best)
}

/// Commits a step by so many ranks, the first one last.
fn commit_parts(folder: &Path, fence: u64, keep: u32, step: u64, of: u32) -> Result<(), Error> {
    crate::claim(folder, domain::id::Fence(fence))?;
    let mut first = committer(folder, fence, keep);
    first.tidy()?;
    let whole = snapshot(step);
    let is_new =
        whole.best.as_ref().is_some_and(|best| first.best.as_ref().is_none_or(|(known, _)| known.step != best.step));
    let (at, best) = folders(folder, fence, step, is_new);
    for rank in (0..of).rev() {
        let part = part(&whole, rank, of, &at, best.as_deref());
        let mut other = Committer::new(folder, identity(fence), 1, None);
        if rank == 0 { &mut first } else { &mut other }.commit(&part)?;
    }
    Ok(())
}

fn manifest(folder: &Path, step: u64) -> CheckpointManifest {
    CheckpointManifest::read(&fs::read(folder.join(format!("manifest-{step:08}.json"))).unwrap()).unwrap()
}

#[test]
fn parts_of_any_number_of_ranks_are_the_complete_state() {
    for of in [2, 3, 4, 7] {
        let folder = tempfile::tempdir().unwrap();
        commit_parts(folder.path(), 1, 3, 40, of).unwrap();
        assert_eq!(check(folder.path(), Some(40)), [""; 0]);
        let manifest = manifest(folder.path(), 40);
        assert_eq!((manifest.schema, manifest.files.len() as u32), (PARTS_SCHEMA, 3 * of));
        assert!(manifest.is_divided());
        assert!(listing(folder.path()).iter().all(|name| !name.contains(".part-")), "{:?}", listing(folder.path()));
        // Any stretch, in any order of memory.
        let source = TensorSource::open(folder.path(), &manifest.files_of(StateKind::Model)).unwrap();
        for tensor in &snapshot(40).model {
            let size = tensor.dtype.bytes();
            let count = tensor.bytes.len() as u64 / size;
            for from in 0..count {
                let place = Placement { from, ..Placement::whole(&tensor.shape) };
                let found = source.stretch(&tensor.name, &place, count - from).unwrap().unwrap();
                assert_eq!(found.bytes, tensor.bytes[(from * size) as usize..], "{} from {from}", tensor.name);
                let (expected, place) = stretch(tensor, 0, 1);
                let place = Placement { from, ..place };
                let found = source.stretch(&tensor.name, &place, 1).unwrap().unwrap();
                assert_eq!(found.bytes, expected.bytes[(from * size) as usize..((from + 1) * size) as usize]);
            }
            assert!(source.stretch(&tensor.name, &Placement::whole(&tensor.shape), count + 1).unwrap().is_none());
        }
        assert!(source.whole("nothing").unwrap().is_none());
    }
}

#[test]
fn undivided_and_divided_checkpoints_can_alternate() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // The best weights of step 20 are one file, then those of step 40 are parts, independent of later writers.
    commit(folder, 1, 3, &[20]).unwrap();
    commit_parts(folder, 2, 3, 30, 2).unwrap();
    commit_parts(folder, 2, 3, 45, 3).unwrap();
    assert_eq!(check(folder, Some(45)), [""; 0]);
    commit(folder, 3, 3, &[50]).unwrap();
    assert_eq!(check(folder, Some(50)), [""; 0]);
    assert_eq!((manifest(folder, 50).schema, manifest(folder, 50).files.len()), (PARTS_SCHEMA, 2 + 3));
    commit_parts(folder, 4, 3, 55, 4).unwrap();
    assert_eq!(check(folder, Some(55)), [""; 0]);
    // Unlisted data is removed, including folders of parts.
    commit(folder, 5, 1, &[60]).unwrap();
    let left = listing(folder);
    let data: Vec<&String> =
        left.iter().filter(|name| name.starts_with("step-") || name.starts_with("best-")).collect();
    assert!(data.iter().all(|name| name.contains("00000060-a5")), "{left:?}");
}

#[test]
fn a_part_that_is_damaged_or_missing_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    commit(folder, 1, 3, &[20]).unwrap();
    commit_parts(folder, 2, 3, 40, 3).unwrap();
    let manifest = manifest(folder, 40);
    for kind in [StateKind::Model, StateKind::Training] {
        for entry in manifest.files_of(kind) {
            let path = folder.join(&entry.name);
            let intact = fs::read(&path).unwrap();
            for index in 0..intact.len() {
                let mut damaged = intact.clone();
                damaged[index] ^= 1 << (index % 8);
                fs::write(&path, damaged).unwrap();
                let passed_over = check(folder, Some(20));
                assert!(passed_over[0].contains(&entry.name), "{passed_over:?}");
            }
            fs::remove_file(&path).unwrap();
            assert!(check(folder, Some(20))[0].contains("it is missing"));
            fs::write(&path, intact).unwrap();
        }
    }
    assert_eq!(check(folder, Some(40)), [""; 0]);
    let best = folder.join(&manifest.best_files()[1].name);
    fs::write(&best, "damaged").unwrap();
    let loaded = newest_verified(folder, JOB).0.unwrap();
    assert!(loaded.best.is_none() && loaded.lost_best.unwrap().contains("step 40"));
    assert!(loaded.manifest.best.is_none() && loaded.manifest.best_files().is_empty());
    assert_eq!(loaded.manifest.files.len(), 6);
}

/// Each rank in turn is killed after each of its operations: the previous state or the new one is restored.
#[test]
fn a_complete_state_remains_whichever_rank_is_killed() {
    let of = 3;
    let mut kills = 0;
    for killed in 0..of {
        for operations in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            commit(folder, 1, 3, &[30]).unwrap();
            crate::claim(folder, domain::id::Fence(2)).unwrap();
            let whole = snapshot(40);
            let (at, best) = folders(folder, 2, 40, true);
            let mut is_done = true;
            for rank in (0..of).rev() {
                let mut committer = committer(folder, 2, 3);
                if rank == killed {
                    committer.disk = Rehearsal::killed_after(operations);
                }
                // No rank waits for a dead one.
                committer.ending.store(true, Ordering::Release);
                is_done &= committer.commit(&part(&whole, rank, of, &at, best.as_deref())).is_ok();
            }
            let (loaded, passed_over) = newest_verified(folder, JOB);
            let loaded = loaded.unwrap();
            assert_eq!(passed_over, [""; 0], "rank {killed} after {operations}");
            assert_is(&loaded, &snapshot(loaded.manifest.step));
            assert!([30, 40].contains(&loaded.manifest.step));
            assert!(loaded.manifest.step == 40 || !is_done, "rank {killed} after {operations}");
            // The next attempt resumes, whatever is there.
            commit_parts(folder, 3, 3, 50, 2).unwrap();
            assert_eq!(check(folder, Some(50)), [""; 0]);
            kills += 1;
            if is_done {
                break;
            }
        }
    }
    assert!(kills > 40, "{kills}");
}

#[test]
fn parts_of_a_replaced_attempt_are_never_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    commit_parts(folder, 1, 3, 20, 2).unwrap();
    let (at, best) = folders(folder, 1, 40, true);
    let whole = snapshot(40);
    let mut stale = committer(folder, 1, 3);
    Committer::new(folder, identity(1), 1, None).commit(&part(&whole, 1, 2, &at, best.as_deref())).unwrap();
    commit_parts(folder, 2, 3, 40, 2).unwrap();
    for rank in [1, 0] {
        let refused = stale.commit(&part(&whole, rank, 2, &at, best.as_deref())).unwrap_err();
        assert!(matches!(refused, Error::Fenced { .. }), "{refused}");
    }
    assert_eq!(check(folder, Some(40)), [""; 0]);
    assert_eq!(manifest(folder, 40).fence.0, 2);
}

#[test]
fn a_rank_that_cannot_write_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    commit_parts(folder, 1, 3, 20, 2).unwrap();
    let (at, _) = folders(folder, 1, 30, false);
    let mut wrong = part(&snapshot(30), 1, 2, &at, None);
    wrong.model[0].bytes.pop();
    Committer::new(folder, identity(1), 1, None).commit(&wrong).unwrap_err();
    let error = committer(folder, 1, 3).commit(&part(&snapshot(30), 0, 2, &at, None)).unwrap_err();
    assert!(matches!(&error, Error::Part { rank: 1, why } if why.contains("cannot be saved")), "{error}");
    assert_eq!(check(folder, Some(20)), [""; 0]);
    // One that is killed gives up its lock.
    let (at, _) = folders(folder, 1, 30, false);
    drop(crate::part::hold(folder, 1, domain::id::Fence(1)).unwrap());
    let error = committer(folder, 1, 3).commit(&part(&snapshot(30), 0, 2, &at, None)).unwrap_err();
    assert!(matches!(&error, Error::Part { rank: 1, why } if why == "its process has ended"), "{error}");
    // A rank that never reports is not waited for once this rank ends.
    let (at, _) = folders(folder, 1, 30, false);
    let mut first = committer(folder, 1, 3);
    first.ending.store(true, Ordering::Release);
    let error = first.commit(&part(&snapshot(30), 0, 2, &at, None)).unwrap_err();
    assert!(matches!(&error, Error::Part { rank: 1, .. }), "{error}");
}

/// A manifest that names the parts of ranks in any other way than they are written is refused.
#[test]
fn a_manifest_names_every_part_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    commit(folder, 1, 3, &[20]).unwrap();
    commit_parts(folder, 2, 3, 40, 3).unwrap();
    let path = folder.join("manifest-00000040.json");
    let right = manifest(folder, 40);
    let check_forged = |forge: &dyn Fn(&mut CheckpointManifest)| {
        let mut manifest = right.clone();
        forge(&mut manifest);
        fs::write(&path, manifest.to_text()).unwrap();
        let passed_over = check(folder, Some(20));
        assert!(
            passed_over[0].contains("file of a checkpoint") || passed_over[0].contains("the files of"),
            "{passed_over:?}"
        );
    };
    for number in 0..right.files.len() {
        check_forged(&|manifest| drop(manifest.files.remove(number)));
        check_forged(&|manifest| manifest.files[number].name.push('x'));
        check_forged(&|manifest| manifest.files[number] = manifest.files[(number + 1) % 9].clone());
    }
    check_forged(&|manifest| manifest.files.swap(0, 1));
    check_forged(&|manifest| manifest.best = None);
    check_forged(&|manifest| manifest.schema = 2);
    check_forged(&|manifest| {
        manifest.files[0].name = manifest.files[0].name.replace("step-00000040-a2", "best-00000040-a2")
    });
}

/// A file written tensor by tensor equals one written at once.
#[test]
fn a_streamed_file_has_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, streamed] = ["whole", "streamed"].map(|name| folder.path().join(name));
    let tensors = snapshot(7).model;
    let entry = crate::write_tensors(&whole, &tensors, &[("format", "pt")]).unwrap();
    let heads = || tensors.iter().map(|tensor| (tensor.name.clone(), tensor.dtype, tensor.shape.clone())).collect();
    let mut writer = crate::TensorFileWriter::create(&streamed, heads(), &[("format", "pt")]).unwrap();
    for tensor in tensors.iter().rev() {
        writer.put(tensor).unwrap();
    }
    assert!(writer.put(&tensors[0]).is_err());
    let found = writer.finish().unwrap();
    assert_eq!((found.sha256, found.bytes), (entry.sha256, entry.bytes));
    assert_eq!(fs::read(&whole).unwrap(), fs::read(&streamed).unwrap());
    // An unfinished file leaves the old one in place.
    let writer = crate::TensorFileWriter::create(&streamed, heads(), &[]).unwrap();
    assert!(writer.finish().unwrap_err().to_string().contains("missing"));
    assert_eq!(fs::read(&whole).unwrap(), fs::read(&streamed).unwrap());
    assert_eq!(listing(folder.path()), ["streamed", "whole"]);
}
