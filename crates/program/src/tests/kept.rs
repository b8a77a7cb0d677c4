//! Checkpoints that no other program, attempt or count of steps replaces.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{begin, loaded, save, settings, timed};
use crate::{Error, ProgramRun, ProgramSettings};

#[test]
fn a_checkpoint_of_something_else_is_refused_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path());
    save(&run, 5).unwrap();
    run.wait().unwrap();
    let other = ProgramSettings { program: "bert".into(), ..settings(folder.path()) };
    let error = ProgramRun::begin(other).unwrap().load().unwrap_err();
    assert!(matches!(error, Error::OtherProgram { step: 5, .. }) && !error.may_pass(), "{error}");
    assert!(error.to_string().contains("a program without a name, and this is `bert`"), "{error}");
    assert!(folder.path().join("manifest-00000005.json").exists());
}

#[test]
fn a_folder_of_another_program_is_not_saved_to() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path());
    save(&run, 5).unwrap();
    run.wait().unwrap();
    let before = fs::read(folder.path().join("manifest-00000005.json")).unwrap();
    let other = ProgramRun::begin(ProgramSettings { program: "bert".into(), ..settings(folder.path()) }).unwrap();
    let error = save(&other, 5).unwrap_err();
    assert!(matches!(error, Error::OtherProgram { step: 5, .. }), "{error}");
    assert_eq!(fs::read(folder.path().join("manifest-00000005.json")).unwrap(), before);
}

#[test]
fn an_attempt_that_was_replaced_saves_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path());
    save(&run, 1).unwrap();
    let later = begin(folder.path());
    save(&later, 1).unwrap();
    later.wait().unwrap();
    let error = save(&run, 2).map(drop).and_then(|()| run.wait()).unwrap_err();
    assert!(error.to_string().contains("has taken over") && !error.may_pass(), "{error}");
}

#[test]
fn later_steps_that_were_not_loaded_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path());
    save(&run, 100).unwrap();
    run.wait().unwrap();
    let again = begin(folder.path());
    let error = save(&again, 10).unwrap_err();
    assert!(matches!(error, Error::NotLoaded { newest: 100, step: 10, .. }) && !error.may_pass(), "{error}");
    assert!(error.to_string().contains("`run.load()`"), "{error}");
    assert_eq!(loaded(folder.path()).map(|found| found.0), Some(100));
    // Who has loaded it may go back.
    let informed = begin(folder.path());
    assert_eq!(informed.load().unwrap().map(|found| found.step), Some(100));
    save(&informed, 10).unwrap();
    informed.wait().unwrap();
}

#[test]
fn a_count_of_epochs_does_not_replace_steps() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = timed(folder.path());
    for run in [second, first] {
        save(&run, 100).unwrap();
        let error = save(&run, 2).unwrap_err();
        assert!(matches!(error, Error::Backwards { newest: 100, step: 2 }) && !error.may_pass(), "{error}");
        run.wait().unwrap();
    }
    assert_eq!(loaded(folder.path()).map(|found| found.0), Some(100));
}

#[test]
fn checkpoints_that_were_all_found_damaged_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path());
    [1, 2].into_iter().for_each(|step| _ = save(&run, step).unwrap());
    run.wait().unwrap();
    drop(run);
    let files = [1, 2].map(|step| folder.path().join(format!("step-{step:08}-a1/model.safetensors")));
    let intact = files.each_ref().map(|file| fs::read(file).unwrap());
    files.iter().for_each(|file| fs::write(file, "damaged").unwrap());
    let run = begin(folder.path());
    assert!(matches!(run.load(), Err(Error::NoneVerifies { .. })));
    for step in [3, 4, 5] {
        let error = save(&run, step).unwrap_err();
        assert!(matches!(error, Error::NoneVerifies { .. }) && !error.may_pass(), "{error}");
    }
    assert!(files.iter().all(|file| fs::read(file).unwrap() == b"damaged"));
    assert!(folder.path().join("manifest-00000001.json").exists());
    // Repaired, as from a copy.
    fs::write(&files[0], &intact[0]).unwrap();
    assert_eq!(run.load().unwrap().map(|found| found.step), Some(1));
    assert_eq!(save(&run, 3).unwrap(), [""; 0]);
}

/// Another program that begins in a folder; in a process of its own.
#[test]
#[ignore = "is run by the test below"]
#[expect(clippy::disallowed_methods, reason = "the test harness takes no arguments of ours")]
fn another_program() {
    let folder = std::env::var("FOLDER").unwrap();
    match ProgramRun::begin(settings(Path::new(&folder))) {
        Ok(run) => println!("began as attempt {}", run.settings().attempt),
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn a_folder_is_not_taken_from_a_program_that_lives() {
    let folder = tempfile::tempdir().unwrap();
    let another = || {
        let name = format!("{}::another_program", module_path!().split_once("::").unwrap().1);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &name, "--ignored", "--nocapture"]).env("FOLDER", folder.path());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    // It has not saved yet.
    let run = begin(folder.path());
    let said = another();
    let process = format!("refused: another process (pid {}) saves to", std::process::id());
    assert!(said.contains(&process) && said.contains("hint: "), "{said}");
    save(&run, 1).unwrap();
    run.wait().unwrap();
    drop(run);
    assert!(another().contains("began as attempt 2"));
}
