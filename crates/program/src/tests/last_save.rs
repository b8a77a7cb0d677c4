//! A last save that fails ends the program.

use std::fs;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::Path;

use domain::rank::Report;

use super::{attended, save};
use crate::{LoggedStep, ProgramRun};

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
