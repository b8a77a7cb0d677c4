//! What users of other systems have suffered and must not suffer here, each named by the report. Time is an argument.

mod lab;

use std::collections::BTreeSet;

use domain::event::RentIntended;
use domain::rental::{MachineState, ProviderAnswer, ProviderCall, ProviderTraits, ProviderView};
use domain::run::{AttemptEnd, InstanceState, RunState, StopBy};
use domain::wire::{AgentCommand, AgentEvent, Entry, Heartbeat, HeartbeatReply, NodeAddress, SCHEMA};
use domain::{AttemptId, Cause, Duration, Elapsed, Event, Fence, Finding, InstanceId, Record, Timestamp};
use plan::{Action, ObservedState, Policy, World, reconcile};

use control::{ControllerInput, Departure, ReplyId, StopReason, Supervisor, SupervisorInput, SupervisorOutput};
use lab::{Lab, SECOND, TRAITS, run, seen, submitted, up};

fn heartbeat(number: u64, entries: Vec<Entry>) -> ControllerInput {
    let (instance, started, elapsed) = (run().instance(number), Timestamp(0), Elapsed(0));
    let (reclaim, incarnation, attempt) = (None, 0, None);
    let heartbeat = Heartbeat { schema: SCHEMA, instance, started, elapsed, entries, reclaim, incarnation, attempt };
    ControllerInput::Heartbeat { from: ReplyId(number), heartbeat: Box::new(heartbeat) }
}

fn entry(seq: u64, event: AgentEvent) -> Entry {
    Entry { seq, attempt: run().attempt(Fence(1)), event }
}

fn killed() -> AttemptEnd {
    AttemptEnd::Failed { finding: Finding::new(Cause::Killed, "killed"), exit_code: None }
}

fn gone() -> AttemptEnd {
    AttemptEnd::Failed { finding: Finding::new(Cause::InstanceLost, "gone"), exit_code: None }
}

/// SkyPilot #10155: 25 time-outs of the status of a job that was well led to 24 relaunches.
#[test]
fn skypilot_10155_a_healthy_job_survives_25_time_outs_of_its_status() {
    let mut lab = Lab::new(up(), |call, _| match call {
        ProviderCall::Observe(_) => ProviderAnswer::Unavailable("timed out".into()),
        call => panic!("{call:?}"),
    });
    lab.step(heartbeat(1, vec![entry(1, AgentEvent::Started)]));
    for _ in 0..25 {
        // Nobody is heard for a while, and the provider does not answer either.
        lab.pass(100 * SECOND);
        lab.steps = 0;
        lab.step(heartbeat(1, Vec::new()));
    }
    let world = lab.controller.world();
    assert!(matches!(world.runs[&run()].state, RunState::Running { .. }), "{:?}", world.runs[&run()].state);
    assert_eq!(
        (world.runs[&run()].attempts.len(), world.instances.len()),
        (1, 1),
        "nothing was started or rented anew"
    );
    assert_eq!(world.instances[&run().instance(1)].state, InstanceState::Up);
}

/// SkyPilot #8519: cancelling a job tore its machines down before its checkpoints were saved.
#[test]
fn skypilot_8519_a_machine_is_kept_until_a_stopped_run_has_saved() {
    let mut lab = Lab::new(up(), |call, _| match call {
        ProviderCall::End(_) => ProviderAnswer::Ending,
        _ => seen(MachineState::Running),
    });
    lab.step(heartbeat(1, vec![entry(1, AgentEvent::Started)]));
    let stop = Event::StopRequested { run: run(), by: StopBy::User };
    lab.step(ControllerInput::Request { from: ReplyId(9), event: Box::new(stop) });
    for _ in 0..11 {
        lab.pass(5 * SECOND);
        lab.step(heartbeat(1, Vec::new()));
        let told = &lab.replies.last().unwrap().orders[..];
        assert!(matches!(told, [AgentCommand::Stop { is_node_lost: false, .. }]), "{told:?}");
        assert_eq!(lab.controller.world().instances[&run().instance(1)].state, InstanceState::Up);
    }
    assert!(!lab.calls.iter().any(|(_, name)| *name == "end"), "it saves still");
    lab.step(heartbeat(1, vec![entry(2, AgentEvent::Ended { end: AttemptEnd::Stopped { step: Some(7) } })]));
    assert!(lab.calls.iter().any(|(_, name)| *name == "end"), "its state is durable");
}

/// dstack #1047: the server was down all night, and machines that nobody used were billed.
#[test]
fn dstack_1047_a_machine_ends_by_itself_when_its_server_is_gone() {
    let mut agent = Supervisor::new(run().instance(1), Timestamp(0), Elapsed(60 * SECOND));
    agent.step(SupervisorInput::Timer, Elapsed(0));
    let lease = Duration::from_secs(1_800);
    let next = Duration::from_secs(5);
    let reply = HeartbeatReply { acknowledged: 0, measured: None, lease, saving: None, next, orders: Vec::new() };
    agent.step(SupervisorInput::Answered(Some(Box::new(reply))), Elapsed(SECOND));
    let (mut now, mut left) = (SECOND, None);
    while left.is_none() && now < 7_200 * SECOND {
        now = agent.due().0.max(now + 1);
        for output in agent.step(SupervisorInput::Timer, Elapsed(now)) {
            match output {
                SupervisorOutput::Leave(departure) => left = Some(departure),
                SupervisorOutput::Call(_) => {
                    now += SECOND;
                    let outputs = agent.step(SupervisorInput::Answered(None), Elapsed(now));
                    left = left.or(outputs.iter().find_map(|output| match output {
                        SupervisorOutput::Leave(departure) => Some(*departure),
                        _ => None,
                    }));
                }
                _ => {}
            }
        }
    }
    assert_eq!(left, Some(Departure::LeaseOver));
    assert!((1_800 * SECOND..1_810 * SECOND).contains(&now), "after its lease: {} s", now / SECOND);
}

/// The same while a job runs: it saves first.
#[test]
fn dstack_1047_what_runs_saves_before_its_machine_ends() {
    let mut agent = Supervisor::new(run().instance(1), Timestamp(0), Elapsed(60 * SECOND));
    agent.step(SupervisorInput::Timer, Elapsed(0));
    let mut lab = Lab::new(up(), |_, _| seen(MachineState::Running));
    lab.step(heartbeat(1, Vec::new()));
    let reply = lab.replies.pop().unwrap();
    let lease = reply.lease;
    let outputs = agent.step(SupervisorInput::Answered(Some(Box::new(reply))), Elapsed(1));
    assert!(outputs.iter().any(|output| matches!(output, SupervisorOutput::Begin(_))), "{outputs:?}");
    let late = lease.micros() + 2 * SECOND;
    agent.step(SupervisorInput::Timer, Elapsed(late));
    let outputs = agent.step(SupervisorInput::Answered(None), Elapsed(late + 1));
    assert!(
        outputs.iter().any(|output| matches!(output, SupervisorOutput::End { why: StopReason::LeaseOver, .. })),
        "{outputs:?}"
    );
    assert!(!outputs.iter().any(|output| matches!(output, SupervisorOutput::Leave(_))), "not before that is done");
}

/// A log, and its world.
struct Log(Vec<Record>, World);

impl Log {
    fn new(events: Vec<Event>) -> Log {
        let mut log = Log(Vec::new(), World::default());
        events.into_iter().for_each(|event| log.append(event));
        log
    }

    fn append(&mut self, event: Event) {
        let record = Record { seq: self.1.last_seq + 1, at: Timestamp(0), event };
        self.1.apply(&record).unwrap();
        self.0.push(record);
    }

    fn decide(&self) -> Vec<Action> {
        let attended = BTreeSet::from([run()]);
        reconcile(&self.1, &ObservedState { attended, ..ObservedState::default() }, &Policy::default())
    }

    /// Starts the attempt that is decided on, and ends it.
    fn fail(&mut self, end: AttemptEnd) {
        let Some(Action::Start { run, attempt, fence, mut instances }) = self.decide().pop() else {
            panic!("{:?}", self.decide())
        };
        let instance = instances.remove(0);
        self.append(Event::AttemptIntended { run, attempt: attempt.clone(), fence, instance, others: instances });
        self.append(Event::AttemptEnded { attempt, end });
    }
}

/// Kubeflow trainer #3779: the records that counted restarts were deleted after a while, so that a job that always fails
/// was tried for ever. Here the count follows from the log, and from the row that is made of it.
#[test]
fn kubeflow_3779_the_retry_budget_survives_restarts_and_the_deletion_of_records() {
    let mut log = Log::new(up());
    for _ in 0..20 {
        log.fail(gone());
        // The server is started again; the rows that follow from the log are deleted and made again.
        log.1 = World::replay(&log.0).unwrap();
        // Or they are read, as they were written.
        let row = serde_json::to_string(&log.1).unwrap();
        let mut read: World = serde_json::from_str(&row).unwrap();
        read.find_open();
        assert_eq!(read, log.1);
    }
    log.fail(gone());
    let decided = log.decide();
    let [Action::End { end, .. }] = &decided[..] else { panic!("{decided:?}") };
    assert!(format!("{end:?}").contains("20 restarts brought no progress"), "{end:?}");
}

/// Budgets are counted by cause: what stands still again and again is given up sooner than what is taken away.
#[test]
fn each_cause_has_a_budget_of_its_own() {
    let mut log = Log::new(up());
    let hang = || AttemptEnd::Failed { finding: Finding::new(Cause::Hang, "no step for 60 s"), exit_code: None };
    for _ in 0..5 {
        log.fail(hang());
        log.fail(killed());
    }
    log.fail(hang());
    let decided = log.decide();
    let [Action::End { end, .. }] = &decided[..] else { panic!("{decided:?}") };
    assert!(format!("{end:?}").contains("no step for 60 s; 5 restarts brought no progress"), "{end:?}");
}

/// A log of a run on several machines, all of which are up.
fn gang(nodes: u32) -> Log {
    let Event::Submitted(mut submitted) = submitted() else { panic!("it is no submission") };
    submitted.job.wants.nodes = vec![nodes];
    let mut log = Log::new(vec![Event::Submitted(submitted)]);
    for number in 1..=u64::from(nodes) {
        let instance = run().instance(number);
        let offer = lab::offer();
        let (run, token, reserved) = (run(), instance.to_string(), Default::default());
        let intent = RentIntended { run, instance: instance.clone(), token, offer, reserved, others: Vec::new() };
        log.append(Event::RentIntended(Box::new(intent)));
        log.append(Event::Launched { instance, handle: None, account: None });
    }
    log
}

fn agents_up(log: &mut Log, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        log.append(Event::AgentUp { instance: run().instance(number), started: Timestamp(0), incarnation: 0 });
    }
}

/// SkyPilot #3116: rank 2 of a job exited with code 1, and the others waited for ever.
#[test]
fn skypilot_3116_one_rank_that_exits_with_1_ends_the_job_and_is_named() {
    let mut log = gang(3);
    agents_up(&mut log, 1..=3);
    let attempt = AttemptId::new("a-a1");
    let Some(Action::Start { run, attempt: id, fence, mut instances }) = log.decide().pop() else { panic!("no start") };
    assert_eq!(id, attempt);
    let instance = instances.remove(0);
    log.append(Event::AttemptIntended { run, attempt: id, fence, instance, others: instances });
    for number in 1..=3 {
        let address = NodeAddress { host: format!("10.0.0.{number}"), port: 7 };
        log.append(Event::MemberPrepared { attempt: attempt.clone(), instance: lab::run().instance(number), address });
    }
    let ends = |log: &mut Log, number: u64, end: AttemptEnd| {
        let instance: InstanceId = lab::run().instance(number);
        log.append(Event::MemberEnded { attempt: attempt.clone(), instance, end });
    };
    let code = Finding::new(Cause::ExitCode, "`run` ended with code 1");
    ends(&mut log, 3, AttemptEnd::Failed { finding: code, exit_code: Some(1) });
    // The others are told at once.
    for number in [1, 2] {
        let orders = orders(&log.1, number);
        assert!(matches!(orders[..], [AgentCommand::Stop { is_node_lost: true, .. }]), "{orders:?}");
        let lost = Finding::new(Cause::RankLost, "the ranks on another node have failed");
        ends(&mut log, number, AttemptEnd::Failed { finding: lost, exit_code: None });
    }
    let decided = log.decide();
    let [Action::EndAttempt { attempt, end }] = &decided[..] else { panic!("{decided:?}") };
    let (attempt, end) = (attempt.clone(), end.clone());
    assert!(format!("{end:?}").contains("node 2: `run` ended with code 1"), "{end:?}");
    log.append(Event::AttemptEnded { attempt, end });
    // The user's own error is not repeated.
    assert!(matches!(log.decide()[..], [Action::End { .. }]), "{:?}", log.decide());
}

fn orders(world: &World, number: u64) -> Vec<AgentCommand> {
    plan::orders(world, &Policy::default(), &run().instance(number), |run, known, attempt| domain::wire::Start {
        run: run.clone(),
        attempt: attempt.clone(),
        fence: Fence(1),
        job: known.job.clone(),
        job_hash: String::new(),
        threads: 1,
        accept_data_change: false,
        member: None,
        folder: String::new(),
    })
}

/// Kueue #2796: two jobs held half of the machines that each needed, and waited for each other for ever.
#[test]
fn kueue_2796_no_job_holds_half_of_its_machines_for_long() {
    let mut log = gang(2);
    agents_up(&mut log, 1..=1);
    let mut facts = ObservedState { attended: BTreeSet::from([run()]), ..ObservedState::default() };
    let policy = Policy::default();
    assert_eq!(reconcile(&log.1, &facts, &policy), [], "it waits for the other");
    facts.now = Timestamp(policy.incomplete.0 as i64);
    let given_back = reconcile(&log.1, &facts, &policy);
    let all = given_back.iter().filter(|action| matches!(action, Action::Release { .. })).count();
    assert_eq!(all, 2, "{given_back:?}");
}

/// What is missing in a view that is complete is believed only after its time; here the run simply continues.
#[test]
fn a_view_without_the_machine_of_a_healthy_job_ends_nothing() {
    let none =
        || ProviderAnswer::Observed(ProviderView { is_complete: true, machines: Vec::new(), unseen: Vec::new() });
    let mut lab = Lab::new(up(), |_, _| none());
    for _ in 0..120 {
        lab.step(heartbeat(1, Vec::new()));
        lab.pass(5 * SECOND);
        lab.steps = 0;
    }
    assert_eq!(lab.controller.world().instances[&run().instance(1)].state, InstanceState::Up);
}

/// A node that is added while the loop runs is used by what waits for one.
#[test]
fn a_run_waits_for_a_place_until_its_provider_has_one() {
    let mut lab = Lab::new(Vec::new(), |call, _| match call {
        ProviderCall::Launch(_) => ProviderAnswer::Doubt("no reply".into()),
        ProviderCall::Observe(_) => ProviderAnswer::Unavailable("no reply".into()),
        _ => ProviderAnswer::Ending,
    });
    let launches = |lab: &Lab<_>| lab.calls.iter().filter(|(_, call)| *call == "launch").count();
    lab.controller.set_traits([("sim", ProviderTraits { places: Some(0), ..TRAITS })]);
    lab.step(ControllerInput::Request { from: ReplyId(1), event: Box::new(submitted()) });
    lab.pass(30 * SECOND);
    assert_eq!(launches(&lab), 0);
    lab.controller.set_traits([("sim", ProviderTraits { places: Some(1), ..TRAITS })]);
    lab.step(ControllerInput::Timer);
    assert_eq!(launches(&lab), 1);
}
