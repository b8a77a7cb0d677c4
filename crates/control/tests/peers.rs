//! A node that could not send its files to another one is in the log of the run that the other one was prepared for.

mod lab;

use domain::rental::{FailedPeer, LaunchDetails, MachineHandle, MachineState, ProviderAnswer, ProviderCall};
use domain::run::Usage;
use domain::{Bytes, Elapsed, Event, Timestamp};

use control::{CallId, ControllerInput};
use lab::{Lab, SECOND, run, seen, submitted, up};

fn details() -> LaunchDetails {
    let why = "it did not answer within 20 s".to_owned();
    let failed = FailedPeer { peer: "west".into(), why, sent: Bytes(500_000_000) };
    LaunchDetails { account: None, failed_peers: vec![(run().instance(1), failed)] }
}

fn failed() -> Event {
    let why = "it did not answer within 20 s".to_owned();
    Event::PeerCopyFailed { instance: run().instance(1), peer: "west".into(), why, sent: Bytes(500_000_000) }
}

fn accepted() -> ProviderAnswer {
    ProviderAnswer::Accepted(vec![(run().instance(1), MachineHandle("m".into()))])
}

/// Answers that let a machine be rented, and run.
fn answer(call: &ProviderCall, _: usize) -> ProviderAnswer {
    match call {
        ProviderCall::Launch(_) => accepted(),
        ProviderCall::End(_) => ProviderAnswer::Ending,
        _ => seen(MachineState::Running),
    }
}

#[test]
fn a_node_that_failed_to_send_its_files_is_in_the_log_of_the_run() {
    let mut lab = Lab::with_launch_details(vec![submitted()], answer, details());
    lab.pass(SECOND);
    let at = |wanted: &dyn Fn(&Event) -> bool| lab.appended.iter().position(wanted);
    let launched = at(&|event: &Event| matches!(event, Event::Launched { .. }));
    assert!(launched.is_some() && launched < at(&|event: &Event| *event == failed()), "{:?}", lab.appended);
    assert_eq!(lab.appended.iter().filter(|event| **event == failed()).count(), 1);
}

/// Sending everything from here may take longer than a launch may. It was asked for again, and the agent is up.
#[test]
fn an_answer_that_is_too_late_still_says_which_node_failed() {
    let mut lab = Lab::new(up(), answer);
    let late = ControllerInput::Answered { call: CallId(9_999), answer: accepted(), details: details() };
    lab.step(late.clone());
    assert_eq!(lab.appended.iter().filter(|event| **event == failed()).count(), 1, "{:?}", lab.appended);
    // The bill of a machine that is gone is not touched any more.
    let usage = Usage { started: Timestamp(0), elapsed: Elapsed(SECOND) };
    let mut events = up();
    events.push(Event::Released { instance: run().instance(1), usage });
    let mut lab = Lab::new(events, answer);
    lab.step(late);
    assert!(!lab.appended.contains(&failed()), "{:?}", lab.appended);
}

/// What is written now is read by every later version.
#[test]
fn the_event_is_read_as_it_was_written() {
    let text = r#"{"event":"peer_copy_failed","instance":"a-i1","peer":"west","why":"it is off","sent":"500000000 B"}"#;
    let event: Event = serde_json::from_str(text).unwrap();
    assert!(matches!(&event, Event::PeerCopyFailed { sent: Bytes(500_000_000), .. }), "{event:?}");
    assert_eq!(serde_json::to_string(&event).unwrap(), text);
}
