//! An agent whose loop has lost what was decided: its log was put back from a copy, and an attempt of the same name was
//! decided anew on other machines. Time is an argument.

use domain::wire::{AgentCommand, AgentEvent, HeartbeatReply, NodeAddress, NodeRank, Start};
use domain::{AttemptId, Duration, Elapsed, Fence, InstanceId, Job, RunId, Timestamp};

use control::{StopReason, Supervisor, SupervisorInput, SupervisorOutput};

const SECOND: u64 = 1_000_000;

const REPLACED: SupervisorOutput = SupervisorOutput::End { why: StopReason::Replaced, within: None };

fn attempt() -> AttemptId {
    AttemptId::new("a-a1")
}

/// The order to start it alone, or as this one of so many machines.
fn order(place: Option<(u32, u32)>) -> AgentCommand {
    let start = Box::new(Start {
        run: RunId::new("a"),
        attempt: attempt(),
        fence: Fence(1),
        job: Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job,
        job_hash: String::new(),
        threads: 1,
        accept_data_change: false,
        member: place.map(|(rank, nodes)| NodeRank { rank, nodes }),
        folder: String::new(),
    });
    if place.is_some() { AgentCommand::Prepare(start) } else { AgentCommand::Start(start) }
}

fn node(number: u32) -> NodeAddress {
    NodeAddress { host: format!("10.0.0.{number}"), port: 7 }
}

/// The order to start its ranks with those of these machines.
fn go(nodes: [u32; 2]) -> AgentCommand {
    AgentCommand::Go { attempt: attempt(), nodes: nodes.map(node).to_vec() }
}

fn answered(order: AgentCommand) -> SupervisorInput {
    let (lease, next) = (Duration::from_micros(60 * SECOND), Duration::from_micros(30 * SECOND));
    let reply = HeartbeatReply { acknowledged: 9, measured: Some(9), lease, saving: None, next, orders: vec![order] };
    SupervisorInput::Answered(Some(Box::new(reply)))
}

/// What an agent does that was given the first of these orders, and then the others; of the last one.
fn after(first: AgentCommand, then: &[AgentCommand]) -> Vec<SupervisorOutput> {
    let mut agent = Supervisor::new(InstanceId::new("a-i1"), Timestamp(0), Elapsed(60 * SECOND));
    agent.step(SupervisorInput::Timer, Elapsed(0));
    let mut outputs = agent.step(answered(first), Elapsed(SECOND));
    assert!(outputs.iter().any(|output| matches!(output, SupervisorOutput::Begin(_))), "{outputs:?}");
    let prepared =
        SupervisorInput::Happened { attempt: attempt(), events: vec![AgentEvent::Prepared { address: node(1) }] };
    agent.step(prepared, Elapsed(2 * SECOND));
    for (order, at) in then.iter().zip(3..) {
        outputs = agent.step(answered(order.clone()), Elapsed(at * SECOND));
    }
    outputs
}

/// Prepared for two machines, it would wait for the other one for ever; alone, it would never be prepared. As the third of
/// three it would wait for a first one that is not there, while the others wait for it to be the first of two.
#[test]
fn an_attempt_that_was_decided_anew_on_other_machines_is_replaced() {
    let orders = [None, Some((0, 2)), Some((1, 2)), Some((2, 3))];
    for first in orders {
        for second in orders {
            let outputs = after(order(first), &[order(second)]);
            assert_eq!(outputs.contains(&REPLACED), first != second, "{first:?}, then {second:?}: {outputs:?}");
        }
    }
}

/// Its place may be the same, and its ranks wait for those of a machine that the loop does not know of any more.
#[test]
fn ranks_that_were_started_with_those_of_other_machines_are_replaced() {
    let place = Some((0, 2));
    let outputs = after(order(place), &[go([1, 2]), order(place), go([1, 3])]);
    assert!(outputs.contains(&REPLACED), "{outputs:?}");
    let again = after(order(place), &[go([1, 2]), order(place), go([1, 2])]);
    assert!(!again.contains(&REPLACED), "the same order, repeated: {again:?}");
    assert!(again.iter().any(|output| matches!(output, SupervisorOutput::Go { .. })), "{again:?}");
}
