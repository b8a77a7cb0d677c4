//! What stays after a commit.

use std::fs;

use super::{check, commit, committer, listing, snapshot};

#[test]
fn the_newest_stay_and_the_best_they_name() {
    type Steps = &'static [u64];
    let cases: [(u32, Steps, Steps, Steps); 5] = [
        // keep, saved steps, steps that stay, best that stay
        (1, &[10, 20, 30, 40], &[40], &[40]),
        (3, &[10, 20, 30, 40], &[20, 30, 40], &[20, 40]),
        (2, &[41, 42, 43, 44, 45], &[44, 45], &[40]),
        (0, &[10, 20], &[20], &[20]),
        (9, &[1, 2, 3], &[1, 2, 3], &[]),
    ];
    for (keep, saved, steps, best) in cases {
        // As one attempt, and with a new attempt for each step.
        for attempts in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            match attempts {
                false => commit(folder, 1, keep, saved).unwrap(),
                true => {
                    for (number, step) in saved.iter().enumerate() {
                        commit(folder, number as u64 + 1, keep, &[*step]).unwrap();
                    }
                }
            }
            let mut expected = vec!["fence".to_owned(), "lock".into()];
            let first = |step: &u64, saved: &[u64]| saved.iter().position(|saved| saved >= step).unwrap() + 1;
            for step in steps {
                let attempt = if attempts { first(step, saved) } else { 1 };
                expected.push(format!("manifest-{step:08}.json"));
                expected.push(format!("step-{step:08}-a{attempt}"));
                expected.push(format!("step-{step:08}-a{attempt}/model.safetensors"));
                expected.push(format!("step-{step:08}-a{attempt}/training.safetensors"));
            }
            for step in best {
                let attempt = if attempts { first(step, saved) } else { 1 };
                expected.push(format!("best-{step:08}-a{attempt}.safetensors"));
            }
            expected.sort();
            assert_eq!(listing(folder), expected, "keep {keep} of {saved:?}");
            assert_eq!(check(folder, steps.last().copied()), [""; 0]);
        }
    }
}

/// The steps whose manifests stay of these, with a new attempt after each `attempt` of them.
fn steps_kept(keep: u32, every: Option<u32>, saved: &[u64], attempt: usize) -> Vec<u64> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (number, steps) in saved.chunks(attempt).enumerate() {
        let fence = number as u64 + 1;
        crate::claim(folder, domain::id::Fence(fence)).unwrap();
        let mut committer = committer(folder, fence, keep).keeping_every(every);
        steps.iter().for_each(|step| _ = committer.commit(&snapshot(*step)).unwrap());
    }
    let names = listing(folder);
    let steps = names.iter().filter_map(|name| name.strip_prefix("manifest-")?.strip_suffix(".json")?.parse().ok());
    steps.collect()
}

#[test]
fn of_all_checkpoints_every_so_many_stay_beside_the_newest() {
    let saved = [7, 14, 15, 29, 30, 44, 45, 60, 61, 70];
    // However many attempts they are of.
    for attempt in [1, 3, 10] {
        assert_eq!(steps_kept(2, Some(3), &saved, attempt), [15, 44, 61, 70], "{attempt}");
        assert_eq!(steps_kept(1, Some(1), &saved, attempt), saved, "{attempt}");
        assert_eq!(steps_kept(1, Some(100), &saved, attempt), [70], "{attempt}");
        assert_eq!(steps_kept(3, None, &saved, attempt), [60, 61, 70], "{attempt}");
    }
}

#[test]
fn the_same_step_may_be_saved_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    commit(folder, 1, 3, &[10, 20]).unwrap();
    let mut committer = committer(folder, 1, 3);
    let mut again = snapshot(20);
    again.state = serde_json::json!("evaluated");
    committer.commit(&again).unwrap();
    let (loaded, passed_over) = super::newest_verified(folder, super::JOB);
    super::assert_is(&loaded.unwrap(), &again);
    assert_eq!(passed_over, [""; 0]);
    assert!(!folder.join("step-00000020-a1").exists() && folder.join("step-00000020-a1-1").exists());
}

#[test]
fn the_checkpoints_of_another_job_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    commit(folder, 1, 1, &[20]).unwrap();
    let mut other = committer(folder, 2, 1);
    other.identity.job_hash = "other".into();
    other.best = None;
    other.commit(&snapshot(40)).unwrap();
    other.commit(&snapshot(60)).unwrap();
    let passed_over = check(folder, Some(20));
    assert!(passed_over.len() == 1 && passed_over[0].contains("another job"), "{passed_over:?}");
}

#[test]
fn remains_of_dead_attempts_go() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    commit(folder, 1, 3, &[10]).unwrap();
    for name in [
        "manifest-00000020.json.a1.tmp",
        "fence.a1.tmp",
        "best-00000020-a1.safetensors",
        "best-00000020-a1.safetensors.a1.tmp",
    ] {
        fs::write(folder.join(name), "half").unwrap();
    }
    fs::create_dir(folder.join("step-00000020-a1")).unwrap();
    fs::write(folder.join("step-00000020-a1/model.safetensors.a1.tmp"), "half").unwrap();
    commit(folder, 2, 3, &[]).unwrap();
    let expected = ["fence", "lock", "manifest-00000010.json", "step-00000010-a1"];
    let left: Vec<String> = listing(folder).into_iter().filter(|name| !name.contains('/')).collect();
    assert_eq!(left, expected);
    check(folder, Some(10));
}

#[test]
fn files_of_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let others = ["notes.tmp", "notes.a1.tmp", "manifest.json.a1.tmp", "fence.tmp", "fence.ab.tmp", "cache.tmp"];
    for name in others {
        fs::write(folder.join(name), "another's").unwrap();
    }
    commit(folder, 1, 1, &[10, 20]).unwrap();
    commit(folder, 2, 1, &[30]).unwrap();
    for name in others {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "another's", "{name}");
    }
}
