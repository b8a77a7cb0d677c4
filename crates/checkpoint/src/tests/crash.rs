//! A process killed between any two operations.

use std::path::Path;

use super::{Random, check, commit, committer, listing, newest_verified, snapshot};
use crate::commit::Committer;
use crate::disk::rehearsal::Rehearsal;
use crate::tests::JOB;

/// Kills the commit of step 40 (with a new best) after every number of operations, and returns the flaws found.
fn kill_everywhere(change: impl Fn(&mut Committer)) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut was_durable = false;
    for operations in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        commit(folder, 1, 2, &[10, 20, 30]).unwrap();
        let mut killed = committer(folder, 1, 2);
        killed.disk = Rehearsal::killed_after(operations);
        change(&mut killed);
        let committed = killed.commit(&snapshot(40)).is_ok();

        let (found, passed_over) = newest_verified(folder, JOB);
        let step = found.map(|loaded| loaded.manifest.step);
        let durable = step == Some(40);
        if !durable && step != Some(30) || !passed_over.is_empty() || (committed || was_durable) && !durable {
            wrong.push(format!("after {:?}: {step:?}, {passed_over:?}", killed.disk.seen()));
        } else {
            check(folder, step);
        }
        was_durable = durable;

        // The next attempt resumes, and removes all leftovers of the dead one.
        commit(folder, 2, 2, &[if durable { 50 } else { 40 }]).unwrap();
        check(folder, Some(if durable { 50 } else { 40 }));
        let stray = listing(folder).into_iter().find(|name| name.ends_with(".tmp"));
        let manifests = listing(folder).iter().filter(|name| name.starts_with("manifest")).count();
        let steps = listing(folder).iter().filter(|name| name.starts_with("step") && !name.contains('/')).count();
        assert_eq!(
            (stray, manifests, steps),
            (None, 2, 2),
            "killed after {operations} operations: {:?}",
            listing(folder)
        );
        // A sweep ignores its own interruption, so the last operations are those of a complete commit.
        if committed && killed.disk.seen().len() < operations {
            assert!(operations > 30, "a commit takes only {operations} operations?");
            return wrong;
        }
    }
    unreachable!()
}

#[test]
fn a_kill_between_any_two_operations_leaves_the_old_state_or_the_new() {
    assert_eq!(kill_everywhere(|_| {}), [""; 0]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_manifest_before_its_data_is_noticed() {
    let wrong = kill_everywhere(|committer| committer.mutant = Some(crate::Mutant::ManifestFirst));
    assert!(!wrong.is_empty());
}

#[test]
fn any_number_of_kills_never_loses_what_was_durable() {
    let seed = 7;
    println!("seed {seed}");
    let mut random = Random(seed);
    for _ in 0..25 {
        let folder = tempfile::tempdir().unwrap();
        let folder: &Path = folder.path();
        let mut durable = 0;
        for fence in 1..20 {
            crate::claim(folder, domain::id::Fence(fence)).unwrap();
            let found = newest_verified(folder, JOB).0.map_or(0, |loaded| loaded.manifest.step);
            assert!(found == durable || found == durable + 10, "{durable} was durable, and {found} is found");
            durable = found;
            assert_eq!(check(folder, (found > 0).then_some(found)), [""; 0]);
            let mut attempt = committer(folder, fence, 2);
            attempt.disk = Rehearsal::killed_after(random.below(120));
            let _ = attempt.tidy();
            while attempt.commit(&snapshot(durable + 10)).is_ok() {
                durable += 10;
            }
        }
    }
}

#[test]
fn nothing_gets_its_name_before_its_bytes_are_synced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    crate::claim(folder, domain::id::Fence(1)).unwrap();
    let mut committer = committer(folder, 1, 1);
    committer.disk = Rehearsal::killed_after(usize::MAX);
    committer.commit(&snapshot(20)).unwrap();

    let seen = committer.disk.seen();
    let position = |operation: &str| {
        seen.iter().position(|seen| seen == operation).unwrap_or_else(|| panic!("no `{operation}` in {seen:#?}"))
    };
    let manifest = position("rename manifest-00000020.json");
    for name in ["model.safetensors", "training.safetensors", "best-00000020-a1.safetensors", "manifest-00000020.json"]
    {
        let renamed = position(&format!("rename {name}"));
        assert!(position(&format!("sync {name}.a1.tmp")) < renamed, "{seen:#?}");
        assert!(renamed <= manifest, "{seen:#?}");
    }
    let top = format!("sync {}", crate::disk::file_name(folder));
    let last_data = position("rename best-00000020-a1.safetensors");
    assert!((last_data..manifest).contains(&position("sync step-00000020-a1")), "{seen:#?}");
    assert!(seen[last_data..manifest].contains(&top) && seen[manifest..].contains(&top), "{seen:#?}");
}
