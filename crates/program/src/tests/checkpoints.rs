//! What is saved comes back, also where a save or a file has failed.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::{begin, loaded, save, settings, timed};
use crate::{Error, LoggedStep, ProgramRun, ProgramSettings};

#[test]
fn a_state_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(loaded(folder.path()), None);
    let run = begin(folder.path());
    assert_eq!(run.load().unwrap().map(|found| found.step), None);
    for step in 1..=4 {
        assert_eq!(save(&run, step).unwrap(), [] as [String; 0]);
    }
    run.wait().unwrap();
    assert_eq!(run.durable(), Some(4));
    // Without its destructors, as a killed one.
    std::mem::forget(run);
    let tree = json!({"step": 4, "lr": 0.1 + 0.2});
    assert_eq!(loaded(folder.path()), Some((4, 4, tree, Some(json!({"torch": 4})))));
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("manifest-")).count(), 2, "the newest two are kept");
}

#[test]
fn a_damaged_checkpoint_is_passed_over_and_the_last_one_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path());
    save(&run, 1).unwrap();
    save(&run, 2).unwrap();
    run.wait().unwrap();
    let break_step = |step: u64| {
        let file = folder.path().join(format!("step-{step:08}-a1/model.safetensors"));
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, bytes).unwrap();
    };
    break_step(2);
    let found = run.load().unwrap().unwrap();
    assert_eq!((found.step, found.passed_over.len()), (1, 1));
    assert!(found.passed_over[0].contains("step 2"), "{:?}", found.passed_over);
    break_step(1);
    let error = run.load().unwrap_err().to_string();
    assert!(error.contains("no checkpoint in") && error.contains("checksum") && error.contains("hint:"), "{error}");
}

#[test]
fn saving_that_fails_is_said_and_training_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path());
    save(&run, 1).unwrap();
    run.wait().unwrap();
    // A file where the folder of step 2 belongs: the next save fails as on a disk that is full or read-only.
    fs::write(folder.path().join("step-00000002-a1"), "").unwrap();
    save(&run, 2).unwrap();
    let complaints = save(&run, 3).unwrap();
    assert!(complaints[0].contains("a checkpoint was not saved") && complaints[0].contains("step-00000002"));
    run.wait().unwrap();
    assert_eq!(run.load().unwrap().unwrap().step, 3);
}

#[test]
fn loading_after_a_save_that_failed_gives_what_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path());
    save(&run, 1).unwrap();
    run.wait().unwrap();
    fs::write(folder.path().join("step-00000002-a1"), "").unwrap();
    save(&run, 2).unwrap();
    assert_eq!(run.load().unwrap().map(|found| found.step), Some(1));
}

#[test]
fn other_ranks_give_their_generators_to_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let two = ProgramSettings { world: 2, ranks_here: 2, ..settings(folder.path()) };
    let first = ProgramRun::begin(two.clone()).unwrap();
    let second = ProgramRun::begin(ProgramSettings { rank: 1, ..two.clone() }).unwrap();
    assert_eq!(second.settings().attempt, 1, "the first rank counts");
    save(&second, 7).unwrap();
    assert_eq!(save(&first, 7).unwrap(), [] as [String; 0]);
    first.wait().unwrap();
    let found = second.load().unwrap().unwrap();
    assert_eq!((found.step, found.world, found.generators), (7, 2, Some(json!({"torch": 7}))));
}

#[test]
fn a_disk_that_refuses_what_a_rank_passes_on_does_not_end_it() {
    let folder = tempfile::tempdir().unwrap();
    let [_first, second] = timed(folder.path());
    // A folder where the file belongs, as on a disk that is full or read-only.
    fs::create_dir(folder.path().join(".rank-1.draft")).unwrap();
    let complaints = save(&second, 1).unwrap();
    assert!(complaints[0].contains("generators of rank 1 were not saved"), "{complaints:?}");
}

#[test]
fn without_a_folder_or_an_agent_everything_but_saving_works() {
    let run = ProgramRun::begin(ProgramSettings { checkpoints: None, ..settings(Path::new("")) }).unwrap();
    assert!(run.load().unwrap().is_none() && !run.should_stop() && !run.is_attended());
    assert!(run.log(LoggedStep { step: 1, loss: Some(1.0), ..LoggedStep::default() }).unwrap().is_empty());
    assert!(matches!(save(&run, 1), Err(Error::NoFolder)));
}
