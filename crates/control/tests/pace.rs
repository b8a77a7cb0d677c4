//! Agents call less often the more of them there are, so that one loop serves a thousand.

mod lab;

use domain::rental::{MachineState, ProviderAnswer, ProviderCall};
use domain::wire::{Heartbeat, SCHEMA};
use domain::{Duration, Elapsed, Event, Timestamp};

use control::{ControllerInput, ReplyId};
use lab::{Lab, intended, run, seen, submitted};

/// The interval until the next heartbeat that the agent of the first of so many machines is told.
fn interval(machines: u64) -> Duration {
    let mut events = vec![submitted()];
    for number in 1..=machines {
        let instance = run().instance(number);
        events.push(intended(&instance));
        events.push(Event::Launched { instance, handle: None, account: None });
    }
    let mut lab = Lab::new(events, |call, _| match call {
        ProviderCall::Observe(_) => seen(MachineState::Running),
        _ => ProviderAnswer::Ending,
    });
    let heartbeat = Heartbeat {
        schema: SCHEMA,
        instance: run().instance(1),
        started: Timestamp(0),
        elapsed: Elapsed(0),
        entries: Vec::new(),
        reclaim: None,
        incarnation: 1,
        attempt: None,
    };
    lab.step(ControllerInput::Heartbeat { from: ReplyId(1), heartbeat: Box::new(heartbeat) });
    lab.replies.last().expect("it is answered").next
}

#[test]
fn one_agent_calls_often_and_a_thousand_do_not_overrun_the_loop() {
    assert_eq!(interval(1), Duration::from_micros(200_000));
    assert_eq!(interval(1_000), Duration::from_micros(5_000_000));
}

mod agent {
    use control::{Supervisor, SupervisorInput, SupervisorOutput};
    use domain::rank::Report;
    use domain::wire::{AgentCommand, AgentEvent, HeartbeatReply, Start};
    use domain::{AttemptId, Duration, Elapsed, Fence, InstanceId, Job, RunId, Timestamp};

    use crate::lab::SECOND;

    fn start() -> AgentCommand {
        let job = Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job;
        AgentCommand::Start(Box::new(Start {
            run: RunId::new("a"),
            attempt: AttemptId::new("a-a1"),
            fence: Fence(1),
            job,
            job_hash: String::new(),
            threads: 1,
            accept_data_change: false,
            member: None,
            folder: String::new(),
        }))
    }

    /// An agent whose attempt has started, the loop knows it, and wants to be called again in 30 s.
    fn working() -> Supervisor {
        let mut agent = Supervisor::new(InstanceId::new("a-i1"), Timestamp(0), Elapsed(60 * SECOND));
        let answered = |acknowledged, orders| {
            let (lease, next) = (Duration::from_secs(600), Duration::from_secs(30));
            let reply =
                HeartbeatReply { acknowledged, measured: Some(acknowledged), lease, saving: None, next, orders };
            SupervisorInput::Answered(Some(Box::new(reply)))
        };
        agent.step(SupervisorInput::Timer, Elapsed(0));
        agent.step(answered(0, vec![start()]), Elapsed(1));
        agent.step(happened(AgentEvent::Started), Elapsed(2));
        agent.step(answered(1, Vec::new()), Elapsed(3));
        agent
    }

    fn happened(event: AgentEvent) -> SupervisorInput {
        SupervisorInput::Happened { attempt: AttemptId::new("a-a1"), events: vec![event] }
    }

    fn measured() -> SupervisorInput {
        happened(AgentEvent::Reported { rank: 0, report: Report::Note { text: "a step".to_owned() } })
    }

    #[test]
    fn measurements_wait_for_the_next_call_and_decisions_do_not() {
        let mut agent = working();
        agent.step(measured(), Elapsed(SECOND));
        assert_eq!(agent.due(), Elapsed(30 * SECOND + 3));
        // More than half of what one call carries.
        let called = (0..1_000).any(|_| calls(&mut agent, measured()));
        assert!(called);
        let mut agent = working();
        assert!(!calls(&mut agent, measured()));
        assert!(calls(&mut agent, happened(AgentEvent::Ended { end: domain::run::AttemptEnd::Succeeded })));
    }

    /// How many entries the next call carries, which is made within half a second.
    fn carried(outputs: Vec<SupervisorOutput>, agent: &mut Supervisor, now: u64) -> usize {
        let later = agent.step(SupervisorInput::Timer, Elapsed(now + SECOND / 2));
        let calls = outputs.into_iter().chain(later).find_map(|output| match output {
            SupervisorOutput::Call(heartbeat) => Some(heartbeat.entries.len()),
            _ => None,
        });
        calls.expect("a call")
    }

    #[test]
    fn what_a_slow_connection_does_not_take_is_sent_in_smaller_calls() {
        let mut agent = working();
        let report = AgentEvent::Reported { rank: 0, report: Report::Note { text: "a step".to_owned() } };
        let events = vec![report; 20_000];
        let attempt = AttemptId::new("a-a1");
        let outputs = agent.step(SupervisorInput::Happened { attempt, events }, Elapsed(SECOND));
        let mut now = SECOND;
        let mut sizes = vec![carried(outputs, &mut agent, now)];
        // Calls that time out, then those that are answered after so many seconds each.
        let mut stored = 1;
        for (seconds, is_answered) in
            [(15, false), (15, false), (9, true), (4, true), (1, true)].into_iter().chain([(15, false); 7])
        {
            now += seconds * SECOND + SECOND / 2;
            let sent = *sizes.last().expect("one") as u64;
            let answer = is_answered.then(|| {
                stored += sent;
                let (lease, next) = (Duration::from_secs(600), Duration::from_secs(30));
                let measured = Some(stored);
                Box::new(HeartbeatReply { acknowledged: stored, measured, lease, saving: None, next, orders: vec![] })
            });
            let outputs = agent.step(SupervisorInput::Answered(answer), Elapsed(now));
            sizes.push(carried(outputs, &mut agent, now));
        }
        assert_eq!(sizes, [2_000, 1_000, 500, 500, 1_000, 2_000, 1_000, 500, 250, 125, 62, 62, 62]);
    }

    /// What the loop is told to run here, so that it need not repeat the order.
    #[test]
    fn a_call_says_which_attempt_runs_alone_until_it_has_ended() {
        let said = |outputs: Vec<SupervisorOutput>| {
            outputs.into_iter().find_map(|output| match output {
                SupervisorOutput::Call(heartbeat) => Some(heartbeat.attempt),
                _ => None,
            })
        };
        let mut agent = Supervisor::new(InstanceId::new("a-i1"), Timestamp(0), Elapsed(60 * SECOND));
        assert_eq!(said(agent.step(SupervisorInput::Timer, Elapsed(0))), Some(None), "nothing runs yet");
        let mut agent = working();
        let attempt = AttemptId::new("a-a1");
        assert_eq!(said(agent.step(happened(AgentEvent::Idle), Elapsed(SECOND))), Some(Some(attempt.clone())));
        let end = SupervisorInput::Ended { attempt, end: domain::run::AttemptEnd::Succeeded };
        agent.step(end, Elapsed(SECOND + 1));
        let failed = agent.step(SupervisorInput::Answered(None), Elapsed(SECOND + 2));
        assert_eq!(said(failed), None, "it is repeated a moment later");
        assert_eq!(said(agent.step(SupervisorInput::Timer, Elapsed(2 * SECOND))), Some(None));
    }

    /// An attempt on several machines is ordered in two steps, of which either may be repeated.
    #[test]
    fn a_call_says_nothing_of_an_attempt_on_several_machines() {
        let AgentCommand::Start(mut order) = start() else { unreachable!() };
        order.member = Some(domain::wire::NodeRank { rank: 0, nodes: 2 });
        let mut agent = Supervisor::new(InstanceId::new("a-i1"), Timestamp(0), Elapsed(60 * SECOND));
        agent.step(SupervisorInput::Timer, Elapsed(0));
        let (lease, next) = (Duration::from_secs(600), Duration::from_secs(30));
        let orders = vec![AgentCommand::Prepare(order)];
        let reply = HeartbeatReply { acknowledged: 0, measured: Some(0), lease, saving: None, next, orders };
        agent.step(SupervisorInput::Answered(Some(Box::new(reply))), Elapsed(1));
        let outputs = agent.step(happened(AgentEvent::Started), Elapsed(2));
        let calls = outputs.into_iter().filter_map(|output| match output {
            SupervisorOutput::Call(heartbeat) => Some(heartbeat.attempt),
            _ => None,
        });
        assert_eq!(calls.collect::<Vec<_>>(), [None]);
    }

    /// Whether it calls the loop because of this.
    fn calls(agent: &mut Supervisor, input: SupervisorInput) -> bool {
        let outputs = agent.step(input, Elapsed(SECOND));
        outputs.iter().any(|output| matches!(output, SupervisorOutput::Call(_)))
    }
}
