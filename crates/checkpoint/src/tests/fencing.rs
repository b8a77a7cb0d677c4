//! Two attempts in one folder: the earlier one never disturbs the later.

use std::fs;
use std::path::Path;

use domain::finding::Cause;
use domain::id::Fence;

use super::{JOB, check, commit, committer, newest_verified, snapshot};
use crate::disk::rehearsal::Rehearsal;
use crate::{Error, claim};

fn newest_step(folder: &Path) -> Option<u64> {
    newest_verified(folder, JOB).0.map(|loaded| loaded.manifest.step)
}

#[test]
fn a_folder_belongs_to_the_highest_claim() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("runs/digits/checkpoints");
    claim(&folder, Fence(2)).unwrap();
    claim(&folder, Fence(2)).unwrap();
    let refused = claim(&folder, Fence(1)).unwrap_err();
    assert!(matches!(refused, Error::Fenced { mine: Fence(1), highest: Fence(2), .. }), "{refused}");
    assert_eq!(refused.finding().cause, Cause::Fenced);
    claim(&folder, Fence(10)).unwrap();
    assert_eq!(fs::read_to_string(folder.join("fence")).unwrap(), "10\n");
    assert!(matches!(commit(&folder, 9, 3, &[10]), Err(Error::Fenced { .. })));
}

#[test]
fn a_fence_nobody_can_read_stops_writers_until_the_next_claim() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    commit(folder, 1, 3, &[10]).unwrap();
    let mut running = committer(folder, 1, 3);
    fs::write(folder.join("fence"), "1x\n").unwrap();
    let refused = running.commit(&snapshot(20)).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    commit(folder, 2, 3, &[20]).unwrap();
    check(folder, Some(20));
}

#[test]
fn an_attempt_overtaken_at_any_moment_of_a_commit_changes_nothing() {
    let rehearse = |operations: usize| {
        let folder = tempfile::tempdir().unwrap();
        commit(folder.path(), 1, 3, &[10]).unwrap();
        let path = folder.path().to_owned();
        let mut stale = committer(folder.path(), 1, 3);
        // The later attempt resumes, and saves the same step, with a best of the same step.
        stale.disk = Rehearsal::interrupted_after(operations, move || commit(&path, 2, 3, &[20]).unwrap());
        let result = stale.commit(&snapshot(20));
        let seen = stale.disk.seen();
        (folder, result, seen)
    };
    let (folder, result, seen) = rehearse(usize::MAX);
    result.unwrap();
    check(folder.path(), Some(20));
    // From the manifest's rename on, the lock is held and the later attempt waits.
    let last = seen.iter().position(|operation| operation == "rename manifest-00000020.json").unwrap();
    assert!(last > 20, "{seen:?}");
    for operations in 0..last {
        let (folder, result, seen) = rehearse(operations);
        let refused = result.expect_err("an overtaken attempt has published");
        assert!(matches!(refused, Error::Fenced { .. }), "after {:?}: {refused}", &seen[..operations]);
        assert_eq!(check(folder.path(), Some(20)), [""; 0]);
        assert_eq!(newest_verified(folder.path(), JOB).0.unwrap().manifest.fence, Fence(2));
    }
}

#[test]
fn after_a_claim_returns_no_earlier_attempt_publishes() {
    for round in 0..30 {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        commit(folder, 1, 2, &[1]).unwrap();
        std::thread::scope(|scope| {
            let stale = scope.spawn(|| {
                let mut committer = committer(folder, 1, 2);
                (2..).find_map(|step| committer.commit(&snapshot(step)).err()).unwrap()
            });
            // Claims at some other moment of its work each time.
            while newest_step(folder).is_none_or(|step| step < 2 + round % 5) {
                std::thread::yield_now();
            }
            claim(folder, Fence(2)).unwrap();
            let seen = newest_step(folder);
            assert!(matches!(stale.join().unwrap(), Error::Fenced { .. }));
            assert_eq!(newest_step(folder), seen, "a stale attempt has published");
        });
        commit(folder, 2, 2, &[newest_step(folder).unwrap() + 1]).unwrap();
    }
}
