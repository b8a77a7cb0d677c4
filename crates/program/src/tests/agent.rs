//! What a program and its agent say to each other.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use domain::rank::{Metrics, NotFinite, Report, SignOfLife};

use super::{attended, save, settings};
use crate::{LoggedStep, ProgramRun, ProgramSettings};

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
    run.log(LoggedStep { step: 4, loss: Some(f64::NAN), ..LoggedStep::default() }).unwrap();
    save(&run, 3).unwrap();
    run.finish().unwrap();
    assert!(matches!(next(&mut agent), Report::Hello { rank: 0, .. }));
    assert!(matches!(next(&mut agent), Report::Ready(ready) if ready.step == 0));
    assert!(matches!(next(&mut agent), Report::Step(step) if (step.step, step.loss, step.epoch) == (1, 0.5, 2)));
    assert!(matches!(next(&mut agent), Report::Metrics(metrics) if metrics.values["f1"] == 0.25));
    let Report::Note { text } = next(&mut agent) else { panic!("a note") };
    let hint = "the program continues, at the run's cost: `gradus stop own-1` stops it";
    assert_eq!(text, format!("`loss` of step 2 is not finite, and left out; {hint}"));
    // The step is known without its loss.
    let lost = Metrics { loss: Some(NotFinite::Nan), ..Metrics::default() };
    let values = BTreeMap::from([("f1".to_owned(), 0.5)]);
    assert_eq!(next(&mut agent), Report::Metrics(Metrics { step: 2, values, ..lost.clone() }));
    let not_finite = BTreeMap::from([("f1".to_owned(), NotFinite::Infinite)]);
    assert_eq!(next(&mut agent), Report::Metrics(Metrics { step: 3, not_finite, ..lost.clone() }));
    assert_eq!(next(&mut agent), Report::Metrics(Metrics { step: 4, ..lost }));
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
