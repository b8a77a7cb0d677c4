//! Problems in operation are logged once, and retried after growing waits. Time is an argument.

mod lab;

use domain::rental::{MachineState, ProviderAnswer, ProviderCall, ProviderView, Refusal};
use domain::run::StopBy;
use domain::{Elapsed, Event, Timestamp};

use control::{ControllerInput, ReplyId};
use lab::{Lab, SECOND, intended, run, seen, stopped, submitted};

#[test]
fn a_provider_that_cannot_be_asked_is_noted_once_and_asked_again_after_growing_waits() {
    let mut lab = Lab::new(stopped(), |call, number| match call {
        ProviderCall::Observe(_) if number < 40 => {
            ProviderAnswer::Unavailable(format!("request {number} timed out after {number}.3 s"))
        }
        ProviderCall::Observe(_) => seen(MachineState::Running),
        _ => ProviderAnswer::Ending,
    });
    lab.pass(130 * SECOND);
    assert_eq!(lab.waits("observe")[..5], [2, 4, 8, 16, 32], "{:?}", lab.calls);
    assert_eq!(
        lab.noted("provider sim"),
        ["cannot be asked what it sees: request 2 timed out after 2.3 s; asked again"]
    );
}

#[test]
fn a_refused_end_is_noted_once_and_asked_for_again_after_growing_waits() {
    let mut lab = Lab::new(stopped(), |call, number| match call {
        ProviderCall::End(_) => {
            ProviderAnswer::Refused(Refusal::Denied { message: format!("request-{number} has no such right") })
        }
        _ => seen(MachineState::Running),
    });
    lab.pass(300 * SECOND);
    assert_eq!(lab.waits("end")[..7], [2, 4, 8, 16, 32, 60, 60]);
    let noted = lab.noted("a-i1");
    assert_eq!(noted.len(), 1, "{noted:?}");
    assert!(noted[0].starts_with("its provider refuses to end it: not allowed: request-"), "{noted:?}");
}

/// Machines of AWS take up to a minute to end, and stay in its lists meanwhile.
#[test]
fn an_end_that_is_accepted_is_asked_for_again_after_growing_waits() {
    let mut lab = Lab::new(stopped(), |call, _| match call {
        ProviderCall::End(_) => ProviderAnswer::Ending,
        _ => seen(MachineState::Ending),
    });
    lab.pass(300 * SECOND);
    assert_eq!(lab.waits("end")[..7], [1, 2, 4, 8, 16, 32, 60]);
}

#[test]
fn a_provider_is_asked_as_often_after_another_process_has_appended_first() {
    let mut lab = Lab::new(stopped(), |call, _| match call {
        ProviderCall::End(_) => ProviderAnswer::Ending,
        _ => seen(MachineState::Running),
    });
    lab.pass(10 * SECOND);
    lab.controller.restart(lab.controller.world().clone());
    lab.step(ControllerInput::Timer);
    lab.calls.clear();
    lab.pass(60 * SECOND);
    let observed = lab.calls.iter().filter(|(_, call)| *call == "observe").count();
    assert!(observed > 30, "{observed} times in 60 s: {:?}", lab.calls);
}

#[test]
fn last_events_that_cannot_be_read_are_noted_and_the_run_is_billed_without_them() {
    let usage = domain::run::Usage { started: Timestamp(0), elapsed: Elapsed(SECOND) };
    let mut lab = Lab::new(stopped(), |call, _| match call {
        ProviderCall::LastEvents(_) => ProviderAnswer::Unavailable("the disk is gone".into()),
        ProviderCall::End(_) => ProviderAnswer::Ending,
        _ => seen(MachineState::Gone(Some(usage))),
    });
    lab.pass(120 * SECOND);
    assert_eq!(lab.waits("last events"), [1, 2, 4, 8, 8, 8, 8]);
    assert_eq!(
        lab.noted("a-i1"),
        ["what its agent wrote down last could not be read; work that was not reported is done again"]
    );
    assert!(lab.controller.world().runs.is_empty(), "it is billed, and has left memory");
}

/// The audit of each minute looks.
#[test]
fn nothing_is_kept_of_machines_that_were_never_rented() {
    let mut lab = Lab::new(vec![submitted()], |call, _| match call {
        ProviderCall::Launch(_) => ProviderAnswer::Refused(Refusal::Capacity { message: "none free".into() }),
        _ => ProviderAnswer::Observed(ProviderView { is_complete: true, machines: Vec::new(), unseen: Vec::new() }),
    });
    lab.pass(130 * SECOND);
    assert!(lab.waits("launch").len() > 2, "{:?}", lab.calls);
    assert_eq!(lab.noted("controller"), [""; 0]);
}

/// The only machine of the run was called by the name that its second one will have, so the intent to rent that cannot
/// follow: a stand-in for any decision that is wrong.
fn wrong() -> Vec<Event> {
    let instance = run().instance(2);
    let usage = domain::run::Usage { started: Timestamp(0), elapsed: Elapsed(0) };
    vec![submitted(), intended(&instance), Event::Released { instance, usage }]
}

#[test]
fn an_illegal_decision_is_noted_once_with_its_facts_and_does_not_spin() {
    let view =
        || ProviderAnswer::Observed(ProviderView { is_complete: true, machines: Vec::new(), unseen: Vec::new() });
    let mut lab = Lab::new(wrong(), |_, _| view());
    lab.pass(3_600 * SECOND);
    let noted = lab.noted("a");
    assert_eq!((noted.len(), lab.notes.len()), (1, 1), "{:?}", lab.notes);
    assert!(lab.notes[0].is_mistake);
    for fact in ["instance `a-i2` was intended before", "RentIntended", "Recovering", "attended"] {
        assert!(noted[0].contains(fact), "`{fact}` is missing: {}", noted[0]);
    }
    assert!(!lab.calls.iter().any(|(_, name)| *name == "launch"), "nothing is rented");
    assert!((60..400).contains(&lab.steps), "about once a minute: {}", lab.steps);
    // Requests of the user are still carried out at once.
    lab.step(ControllerInput::Request {
        from: ReplyId(1),
        event: Box::new(Event::StopRequested { run: run(), by: StopBy::User }),
    });
    assert_eq!(lab.refused, 0);
    assert!(lab.controller.world().runs.is_empty(), "it is stopped and billed");
}
