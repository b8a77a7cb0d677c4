//! An agent whose machine will be reclaimed: running work saves at once, the loop is notified, nothing new is started.
//! Time is an argument.

use domain::run::AttemptEnd;
use domain::wire::{AgentCommand, Heartbeat, HeartbeatReply, Start};
use domain::{AttemptId, Duration, Elapsed, Fence, InstanceId, Job, RunId, Timestamp};

use control::{StopReason, Supervisor, SupervisorInput, SupervisorOutput};

const SECOND: u64 = 1_000_000;

fn start(attempt: &str) -> AgentCommand {
    let job = Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job;
    let (run, attempt) = (RunId::new("a"), AttemptId::new(attempt));
    let (job_hash, folder) = (String::new(), String::new());
    let start = Start {
        run,
        attempt,
        fence: Fence(1),
        job,
        job_hash,
        threads: 1,
        accept_data_change: false,
        member: None,
        folder,
    };
    AgentCommand::Start(Box::new(start))
}

fn answered(orders: Vec<AgentCommand>) -> SupervisorInput {
    let (lease, next) = (Duration::from_micros(60 * SECOND), Duration::from_micros(30 * SECOND));
    let reply = HeartbeatReply { acknowledged: 0, measured: Some(0), lease, saving: None, next, orders };
    SupervisorInput::Answered(Some(Box::new(reply)))
}

fn call(outputs: &[SupervisorOutput]) -> Option<&Heartbeat> {
    outputs.iter().find_map(|output| match output {
        SupervisorOutput::Call(heartbeat) => Some(heartbeat),
        _ => None,
    })
}

/// An agent with a running attempt that calls again in 30 s.
fn working() -> Supervisor {
    let mut agent = Supervisor::new(InstanceId::new("a-i1"), Timestamp(0), Elapsed(60 * SECOND));
    agent.step(SupervisorInput::Timer, Elapsed(0));
    let outputs = agent.step(answered(vec![start("a-a1")]), Elapsed(1));
    assert!(outputs.iter().any(|output| matches!(output, SupervisorOutput::Begin(_))), "{outputs:?}");
    agent
}

fn notice(seconds: u64) -> SupervisorInput {
    SupervisorInput::ReclaimNotice(Elapsed(seconds * SECOND))
}

#[test]
fn what_runs_saves_at_once_and_the_loop_hears_of_it() {
    let mut agent = working();
    let outputs = agent.step(notice(120), Elapsed(SECOND));
    let end = SupervisorOutput::End { why: StopReason::Reclaim, within: Some(Elapsed(120 * SECOND)) };
    assert_eq!(outputs[0], end);
    assert_eq!(call(&outputs).unwrap().reclaim, Some(Duration::from_micros(120 * SECOND)), "not after 30 s");
    // The call is lost: the next one reports it again, with the remaining time.
    agent.step(SupervisorInput::Answered(None), Elapsed(5 * SECOND));
    assert!(agent.due() < Elapsed(6 * SECOND));
    let outputs = agent.step(SupervisorInput::Timer, agent.due().max(Elapsed(21 * SECOND)));
    assert_eq!(call(&outputs).unwrap().reclaim, Some(Duration::from_micros(100 * SECOND)));
    assert_eq!(agent.step(notice(110), Elapsed(22 * SECOND)), [], "a later time is no news");
}

#[test]
fn nothing_is_begun_on_a_machine_that_is_taken_back() {
    let mut agent = working();
    agent.step(notice(30), Elapsed(SECOND));
    let ended = SupervisorInput::Ended { attempt: AttemptId::new("a-a1"), end: AttemptEnd::Succeeded };
    agent.step(ended, Elapsed(2 * SECOND));
    let outputs = agent.step(answered(vec![start("a-a2")]), Elapsed(3 * SECOND));
    assert!(!outputs.iter().any(|output| matches!(output, SupervisorOutput::Begin(_))), "{outputs:?}");
    let outputs = agent.step(SupervisorInput::Answered(None), Elapsed(4 * SECOND));
    assert!(!outputs.iter().any(|output| matches!(output, SupervisorOutput::Leave(_))), "the loop has the last word");
}
