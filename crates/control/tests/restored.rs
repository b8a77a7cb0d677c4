//! An agent whose loop has lost what was decided: its log was put back from a copy, and an attempt of the same name was
//! decided anew on other machines. Time is an argument.

use domain::wire::{AgentCommand, HeartbeatReply, NodeRank, Start};
use domain::{AttemptId, Duration, Elapsed, Fence, InstanceId, Job, RunId, Timestamp};

use control::{StopReason, Supervisor, SupervisorInput, SupervisorOutput};

const SECOND: u64 = 1_000_000;

fn order(nodes: Option<u32>) -> AgentCommand {
    let start = Box::new(Start {
        run: RunId::new("a"),
        attempt: AttemptId::new("a-a1"),
        fence: Fence(1),
        job: Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job,
        job_hash: String::new(),
        threads: 1,
        accept_data_change: false,
        member: nodes.map(|nodes| NodeRank { rank: 0, nodes }),
        folder: String::new(),
    });
    if nodes.is_some() { AgentCommand::Prepare(start) } else { AgentCommand::Start(start) }
}

/// What an agent does that was given the first of these orders, and then the second.
fn after(first: Option<u32>, second: Option<u32>) -> Vec<SupervisorOutput> {
    let answered = |nodes| {
        let (lease, next) = (Duration::from_micros(60 * SECOND), Duration::from_micros(30 * SECOND));
        let orders = vec![order(nodes)];
        let reply = HeartbeatReply { acknowledged: 9, measured: Some(9), lease, saving: None, next, orders };
        SupervisorInput::Answered(Some(Box::new(reply)))
    };
    let mut agent = Supervisor::new(InstanceId::new("a-i1"), Timestamp(0), Elapsed(60 * SECOND));
    agent.step(SupervisorInput::Timer, Elapsed(0));
    let outputs = agent.step(answered(first), Elapsed(SECOND));
    assert!(outputs.iter().any(|output| matches!(output, SupervisorOutput::Begin(_))), "{outputs:?}");
    agent.step(answered(second), Elapsed(2 * SECOND))
}

/// Prepared for two machines, it would wait for the other one for ever; alone, it would never be prepared.
#[test]
fn an_attempt_that_was_decided_anew_on_other_machines_is_replaced() {
    let end = SupervisorOutput::End { why: StopReason::Replaced, within: None };
    for (first, second) in [(Some(2), None), (None, Some(2))] {
        let outputs = after(first, second);
        assert!(outputs.contains(&end), "{first:?}, then {second:?}: {outputs:?}");
    }
    for order in [Some(2), None] {
        assert!(!after(order, order).contains(&end), "the same order, repeated");
    }
}
