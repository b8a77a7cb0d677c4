//! A program that saves, is killed, and resumes; and what it must not do.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use checkpoint::Dtype;
use domain::rank::{Environment, Metrics, NotFinite, Report, SignOfLife};
use domain::train::Every;
use domain::units::Duration;
use serde_json::{Value, json};

use crate::{Error, LoggedStep, ProgramRun, ProgramSettings, StateView, TensorView};

fn settings(folder: &Path) -> ProgramSettings {
    ProgramSettings {
        run: "own-1".into(),
        attempt: 0,
        rank: 0,
        world: 1,
        ranks_here: 1,
        checkpoints: Some(folder.to_owned()),
        socket: None,
        program: String::new(),
        keep: 2,
        every: "10 steps".parse().unwrap(),
        mtbf: Duration::from_secs(3600),
        hang_after_s: None,
        steps: 0,
        environment: Environment::default(),
    }
}

fn begin(folder: &Path) -> ProgramRun {
    ProgramRun::begin(settings(folder)).unwrap()
}

/// Saves a state whose bytes are all `step`.
fn save(run: &ProgramRun, step: u64) -> Result<Vec<String>, Error> {
    let bytes = [step as u8; 12];
    let tensor = |name: &str, is_of_model| TensorView {
        name: name.into(),
        dtype: Dtype::F32,
        shape: vec![3],
        bytes: &bytes,
        is_of_model,
    };
    let state = StateView {
        step,
        began: Instant::now(),
        tensors: vec![tensor("weight", true), tensor("momentum", false)],
        tree: json!({"step": step, "lr": 0.1 + 0.2}),
        generators: Some(json!({"torch": step})),
    };
    run.save(state).map(|outcome| outcome.complaints)
}

/// The state loaded by a new process: step, a byte of the weights, the tree, and the generators.
fn loaded(folder: &Path) -> Option<(u64, u8, Value, Option<Value>)> {
    let found = begin(folder).load().unwrap()?;
    assert_eq!((found.model.len(), found.others.len(), found.others[0].name.as_str()), (1, 1, "momentum"));
    Some((found.step, found.model[0].bytes[0], found.tree, found.generators))
}

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
fn without_a_folder_or_an_agent_everything_but_saving_works() {
    let run = ProgramRun::begin(ProgramSettings { checkpoints: None, ..settings(Path::new("")) }).unwrap();
    assert!(run.load().unwrap().is_none() && !run.should_stop() && !run.is_attended());
    assert!(run.log(LoggedStep { step: 1, loss: Some(1.0), ..LoggedStep::default() }).unwrap().is_empty());
    assert!(matches!(save(&run, 1), Err(Error::NoFolder)));
}

/// A program and its agent's end of the socket.
fn attended(folder: &Path) -> (ProgramRun, BufReader<UnixStream>) {
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let with = ProgramSettings { socket: Some(socket), hang_after_s: Some(9), ..settings(&folder.join("checkpoints")) };
    let run = ProgramRun::begin(with).unwrap();
    (run, BufReader::new(listener.accept().unwrap().0))
}

/// The next report; heartbeats are skipped.
fn next(agent: &mut BufReader<UnixStream>) -> Report {
    loop {
        let mut line = String::new();
        assert_ne!(agent.read_line(&mut line).unwrap(), 0, "it hung up");
        if serde_json::from_str::<SignOfLife>(&line).is_err() {
            return serde_json::from_str(&line).unwrap_or_else(|error| panic!("`{line}`: {error}"));
        }
    }
}

#[test]
fn the_agent_hears_steps_and_checkpoints_and_a_figure_that_is_not_finite_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut run, mut agent) = attended(folder.path());
    assert!(run.is_attended());
    let log = |step, loss, f1: f64| {
        let others = BTreeMap::from([("f1".to_owned(), f1)]);
        run.log(LoggedStep { step, loss: Some(loss), lr: Some(0.1), samples: 8, epoch: 2, others }).unwrap();
    };
    log(1, 0.5, 0.25);
    log(2, f64::NAN, 0.5);
    log(3, f64::NAN, f64::INFINITY);
    save(&run, 3).unwrap();
    run.finish().unwrap();
    assert!(matches!(next(&mut agent), Report::Hello { rank: 0, .. }));
    assert!(matches!(next(&mut agent), Report::Ready(ready) if ready.step == 0));
    assert!(matches!(next(&mut agent), Report::Step(step) if (step.step, step.loss, step.epoch) == (1, 0.5, 2)));
    assert!(matches!(next(&mut agent), Report::Metrics(metrics) if metrics.values["f1"] == 0.25));
    let Report::Note { text } = next(&mut agent) else { panic!("a note") };
    let hint = "the program continues, at the run's cost: `gradus stop own-1` stops it";
    assert_eq!(text, format!("`loss` of step 2 is not finite, and left out; {hint}"));
    for (step, values) in [(2, BTreeMap::from([("f1".to_owned(), 0.5)])), (3, BTreeMap::new())] {
        // The step is known without its loss.
        let expected = Metrics { step, values, loss: Some(NotFinite::Nan) };
        assert_eq!(next(&mut agent), Report::Metrics(expected));
    }
    assert!(matches!(next(&mut agent), Report::Checkpointed(saved) if saved.step == 3 && saved.bytes > 0));
    assert_eq!(agent.read_line(&mut String::new()).unwrap(), 0, "it hangs up after its last word");
}

#[test]
fn a_process_that_ends_says_so_and_stays_connected() {
    let folder = tempfile::tempdir().unwrap();
    let (mut run, mut agent) = attended(folder.path());
    save(&run, 3).unwrap();
    run.end().unwrap();
    drop(run);
    let mut has_saved = false;
    loop {
        let mut line = String::new();
        assert_ne!(agent.read_line(&mut line).unwrap(), 0, "it hung up");
        has_saved |= matches!(serde_json::from_str(&line), Ok(Report::Checkpointed(saved)) if saved.step == 3);
        if serde_json::from_str::<SignOfLife>(&line).is_ok_and(|life| life.is_ending) {
            break;
        }
    }
    assert!(has_saved, "its save is reported first");
    agent.get_ref().set_nonblocking(true).unwrap();
    let more = agent.read_line(&mut String::new());
    assert_eq!(more.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "only the system hangs up");
}

#[test]
fn orders_reach_a_program_that_asks() {
    let folder = tempfile::tempdir().unwrap();
    let (run, mut agent) = attended(folder.path());
    assert!(!run.should_stop() && !run.should_save(1).unwrap().0);
    let until_life = |agent: &mut BufReader<UnixStream>| loop {
        let mut line = String::new();
        agent.read_line(&mut line).unwrap();
        if let Ok(life) = serde_json::from_str::<SignOfLife>(&line)
            && life.listens
        {
            return life;
        }
    };
    assert_eq!(until_life(&mut agent).hang_after_s, Some(9));
    agent.get_mut().write_all(b"{\"order\":\"dance\"}\n{\"order\":\"checkpoint\"}\n").unwrap();
    while !run.should_save(2).unwrap().0 {
        std::thread::yield_now();
    }
    save(&run, 2).unwrap();
    assert!(!run.should_save(2).unwrap().0 && !run.should_stop());
    agent.get_mut().write_all(b"{\"order\":\"stop\"}\n").unwrap();
    while !run.should_stop() {
        std::thread::yield_now();
    }
    assert!(run.should_save(3).unwrap().0, "there is something to save before the end");
    save(&run, 3).unwrap();
    assert!(!run.should_save(3).unwrap().0);
}

/// Often enough for a short limit, and exactly, however heartbeats fall.
#[test]
fn a_program_says_for_how_long_it_was_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let with = ProgramSettings { socket: Some(socket), hang_after_s: Some(1), ..settings(&folder.path().join("ck")) };
    let began = Instant::now();
    let run = ProgramRun::begin(with).unwrap();
    run.should_stop();
    let mut agent = BufReader::new(listener.accept().unwrap().0);
    loop {
        let mut line = String::new();
        assert_ne!(agent.read_line(&mut line).unwrap(), 0, "it hung up");
        let Ok(life) = serde_json::from_str::<SignOfLife>(&line) else { continue };
        let quiet = std::time::Duration::from_millis(life.quiet_ms.unwrap());
        assert!(quiet <= began.elapsed() && life.longest_ms.is_some());
        if life.alive == 1 && quiet.as_millis() >= 300 {
            break;
        }
    }
    assert!(began.elapsed().as_secs() < 5, "two heartbeats");
}

#[test]
fn a_program_whose_agent_is_gone_is_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let (run, agent) = attended(folder.path());
    drop(agent);
    while !run.should_stop() {
        std::thread::yield_now();
    }
    run.log(LoggedStep { step: 1, loss: Some(1.0), ..LoggedStep::default() }).unwrap();
}

#[test]
fn a_state_is_saved_when_it_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let run = begin(folder.path());
    let due: Vec<u64> = (1..=30).filter(|step| run.should_save(*step).unwrap().0).collect();
    assert_eq!(due, [10, 20, 30]);
}

/// Two ranks of one machine that save by the clock, at each question.
fn timed(folder: &Path) -> [ProgramRun; 2] {
    let every = Every::Time(Duration::from_secs(0));
    let two = ProgramSettings { world: 2, ranks_here: 2, every, ..settings(folder) };
    [0, 1].map(|rank| ProgramRun::begin(ProgramSettings { rank, ..two.clone() }).unwrap())
}

#[test]
fn only_the_rank_that_writes_knows_when_time_is_up() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = timed(folder.path());
    for step in 1..=3 {
        // Ranks save if any of them says so.
        assert!(first.should_save(step).unwrap().0 && !second.should_save(step).unwrap().0);
    }
    // Steps are counted alike, also where ranks cannot ask each other.
    let third = ProgramSettings { rank: 1, world: 2, ..settings(folder.path()) };
    assert!(ProgramRun::begin(third).unwrap().should_save(10).unwrap().0);
}

#[test]
fn an_order_to_save_is_carried_out_once_by_each_rank() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let place = folder.path().join("checkpoints");
    let run =
        ProgramRun::begin(ProgramSettings { rank: 1, world: 2, socket: Some(socket), ..settings(&place) }).unwrap();
    let mut agent = listener.accept().unwrap().0;
    agent.write_all(b"{\"order\":\"checkpoint\"}\n").unwrap();
    while !run.should_save(1).unwrap().0 {
        std::thread::yield_now();
    }
    save(&run, 1).unwrap();
    assert!(!run.should_save(1).unwrap().0 && !run.should_save(2).unwrap().0);
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

/// What it has still to say: notes and failures, until it hangs up.
fn last_reports(mut agent: BufReader<UnixStream>) -> Vec<Report> {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut agent, &mut text).unwrap();
    let reports = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    reports.filter(|report| matches!(report, Report::Note { .. } | Report::Failed(_))).collect()
}

/// Saves step 7 where a file has the name of its folder: as on a disk that is full or read-only.
fn refuse_step_7(run: &ProgramRun, folder: &Path) {
    save(run, 6).unwrap();
    run.wait().unwrap();
    fs::write(folder.join("checkpoints/step-00000007-a1"), "").unwrap();
    save(run, 7).unwrap();
}

#[test]
fn a_last_save_that_fails_ends_the_program_and_says_why() {
    // Noticed by the end, or before it, when a warning was all that could be said; or raised, and caught by the program.
    for (is_noticed, is_caught) in [(false, false), (true, false), (false, true)] {
        let folder = tempfile::tempdir().unwrap();
        let (mut run, agent) = attended(folder.path());
        refuse_step_7(&run, folder.path());
        let mut complaints = Vec::new();
        while is_noticed && complaints.is_empty() {
            // The agent here reads only at the end: a flood would fill its socket.
            std::thread::sleep(std::time::Duration::from_millis(20));
            complaints = run.log(LoggedStep { step: 7, loss: Some(1.0), ..LoggedStep::default() }).unwrap();
        }
        if is_caught {
            assert!(run.wait().is_err());
            run.wait().unwrap();
        }
        assert!(run.finish().is_err());
        let reports = last_reports(agent);
        let Some(Report::Failed(finding)) = reports.last() else { panic!("{reports:?}") };
        assert_eq!(finding.cause, domain::Cause::ReadOnly);
        assert!(finding.message.starts_with("the last checkpoint was not saved: "), "{}", finding.message);
    }
}

#[test]
fn a_save_that_fails_is_forgotten_once_a_later_one_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let (mut run, _agent) = attended(folder.path());
    refuse_step_7(&run, folder.path());
    assert!(run.wait().is_err());
    save(&run, 8).unwrap();
    run.finish().unwrap();
}

#[test]
fn an_error_that_ends_the_program_is_told_before_what_follows() {
    let folder = tempfile::tempdir().unwrap();
    let (mut run, agent) = attended(folder.path());
    refuse_step_7(&run, folder.path());
    run.fail("TypeError: `f` is a function\nhint: leave it out");
    assert!(run.finish().is_err());
    let failed: Vec<Report> =
        last_reports(agent).into_iter().filter(|report| matches!(report, Report::Failed(_))).collect();
    let [Report::Failed(finding)] = &failed[..] else { panic!("{failed:?}") };
    let told = (finding.cause, finding.message.as_str(), finding.hint.as_deref());
    assert_eq!(told, (domain::Cause::ExitCode, "TypeError: `f` is a function", Some("leave it out")));
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
