//! A machine goes from a run that has ended to one that waits: its agent and its provider know it by the name that it was
//! rented under. Time is an argument.

mod lab;

use std::cell::RefCell;
use std::rc::Rc;

use domain::rental::{MachineHandle, MachineState, ProviderAnswer, ProviderCall, Refusal};
use domain::run::{AttemptEnd, InstanceState};
use domain::wire::{AgentCommand, AgentEvent, Entry, Heartbeat, SCHEMA};
use domain::{Elapsed, Event, Fence, InstanceId, RunId, Timestamp};

use control::{ControllerInput, ReplyId};
use lab::{Lab, SECOND, run, seen, up};

fn second() -> RunId {
    RunId::new("b")
}

/// A run at work on its machine, and another one.
fn events() -> Vec<Event> {
    let mut events = up();
    let (run, instance) = (run(), run().instance(1));
    let text = "name: job\ntrain: {model: cnn, data: {path: d.csv}, epochs: 3, batch: 64}\n";
    let job = domain::Job::parse(text, "job.yaml").unwrap().job;
    if let Event::Submitted(first) = &mut events[0] {
        (first.job, first.user) = (job.clone(), Some("ann".into()));
    }
    if let Event::Launched { handle, .. } = &mut events[2] {
        *handle = Some(MachineHandle("m".into()));
    }
    let (fence, attempt, others) = (Fence(1), run.attempt(Fence(1)), Vec::new());
    events.push(Event::AttemptIntended { run, attempt, fence, instance, others });
    let Event::Submitted(mut other) = lab::submitted() else { unreachable!() };
    (other.run, other.job, other.user) = (second(), job, Some("ann".into()));
    events.push(Event::Submitted(other));
    events
}

fn heartbeat(seconds: u64, ended: &[(u64, RunId)]) -> ControllerInput {
    let entry = |(seq, run): &(u64, RunId)| Entry {
        seq: *seq,
        attempt: run.attempt(Fence(1)),
        event: AgentEvent::Ended { end: AttemptEnd::Succeeded },
    };
    let heartbeat = Heartbeat {
        schema: SCHEMA,
        instance: run().instance(1),
        started: Timestamp(0),
        elapsed: Elapsed(seconds * SECOND),
        entries: ended.iter().map(entry).collect(),
        reclaim: None,
        incarnation: 0,
        attempt: None,
    };
    ControllerInput::Heartbeat { from: ReplyId(1), heartbeat: Box::new(heartbeat) }
}

#[test]
fn a_machine_keeps_its_name_and_gets_other_work() {
    let ended: Rc<RefCell<Vec<InstanceId>>> = Rc::default();
    let asked = ended.clone();
    let mut lab = Lab::new(events(), move |call, _| match call {
        ProviderCall::Launch(_) => ProviderAnswer::Refused(Refusal::Capacity { message: "none".into() }),
        ProviderCall::End(requests) => {
            asked.borrow_mut().extend(requests.iter().map(|request| request.instance.clone()));
            ProviderAnswer::Ending
        }
        _ => seen(MachineState::Running),
    });
    lab.now = SECOND;
    lab.step(heartbeat(1, &[]));
    // Before the other run asks for a machine again.
    lab.now += SECOND / 10;
    lab.step(heartbeat(2, &[(1, run())]));
    let own = lab.controller.world().runs[&second()].instances.last().expect("it has asked for some").clone();
    let known = lab.controller.world().instances.get(&own).expect("it was taken over").clone();
    assert_eq!((known.machine_name(&own), known.before), (&run().instance(1), Elapsed(2 * SECOND)));
    // What the first run has had is billed, and has left memory.
    assert!(!lab.controller.world().runs.contains_key(&run()));
    let orders = |lab: &Lab<_>| lab.replies.last().map(|reply| reply.orders.clone()).unwrap_or_default();
    let starts = |command: &AgentCommand| matches!(command, AgentCommand::Start(start) if start.run == second());
    assert!(matches!(&orders(&lab)[..], [command] if starts(command)), "{:?}", orders(&lab));
    // A view shows it under its first name: it is no stranger, and is not missing.
    lab.pass(1_200 * SECOND / 1_000);
    assert!(ended.borrow().is_empty());
    lab.now += SECOND;
    lab.step(heartbeat(5, &[(2, second())]));
    assert_eq!(lab.controller.world().instances[&own].state, InstanceState::Releasing);
    assert!(matches!(&orders(&lab)[..], [AgentCommand::Leave]), "{:?}", orders(&lab));
    assert_eq!(ended.borrow()[..], [run().instance(1)]);
    assert!(lab.notes.iter().all(|note| !note.is_mistake), "{:?}", lab.notes);
}
