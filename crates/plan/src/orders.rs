//! Orders for an agent, and the events that its reports cause.

use domain::rank::Report;
use domain::run::{AttemptEnd, InstanceState, RunState, StopBy};
use domain::train::Every;
use domain::wire::{AgentCommand, AgentEvent, Entry, NodeAddress, NodeRank, Start};
use domain::{AttemptId, Duration, Event, InstanceId, Job, RunId, Work};

use crate::reconcile::{Policy, budget_of, wind_down};
use crate::spot::{CheckpointOverhead, Hazard, hazard, interval};
use crate::world::{AttemptState, Instance, Member, Run, RunAttempt, World};

/// The desired state of an instance, of which its agent is sent with every reply what it does not do already. `start` fills
/// in what only the shell knows: the folder on the node.
pub fn orders(
    world: &World,
    policy: &Policy,
    id: &InstanceId,
    start: impl Fn(&RunId, &Run, &AttemptId) -> Start,
) -> Vec<AgentCommand> {
    let Some(instance) = world.instances.get(id) else { return vec![AgentCommand::Leave] };
    match instance.state {
        InstanceState::Releasing | InstanceState::Released { .. } => return vec![AgentCommand::Leave],
        InstanceState::Intended | InstanceState::Launching | InstanceState::Up => {}
    }
    let Some(run) = world.runs.get(&instance.run) else { return vec![AgentCommand::Leave] };
    let Some((attempt, state)) = world.active_attempt(run) else { return Vec::new() };
    let member = state.member(id);
    if !state.instances().any(|one| one == id) || member.is_some_and(|member| member.end.is_some()) {
        return Vec::new();
    }
    if matches!(run.state, RunState::Stopping { .. }) {
        let within = Some(Duration::from_micros(wind_down(policy, &run.job, budget_of(world, run), run.rate()).0));
        return vec![AgentCommand::Stop { attempt: attempt.clone(), is_node_lost: false, within }];
    }
    let machines: Vec<Option<&Instance>> = state.instances().map(|id| world.instances.get(id)).collect();
    // A machine that will be reclaimed ends everything: its own agent knows the remaining time.
    let is_noticed = |machine: &Option<&Instance>| machine.is_some_and(|instance| instance.reclaim.is_some());
    // A slow machine that is replaced is taken back by nobody, so that ranks have their time to save.
    let is_replaced = |id: &InstanceId| state.is_resizing && state.stragglers.contains(id);
    if state.instances().zip(&machines).any(|(id, machine)| is_noticed(machine) && !is_replaced(id)) {
        // The others save for no longer than usual, however long the job's own grace is.
        let grace = run.job.stop_grace.filter(|_| instance.reclaim.is_none());
        let within = grace.map(|grace| Duration::from_micros(grace.micros().min(policy.saving.0)));
        return vec![AgentCommand::Stop { attempt: attempt.clone(), is_node_lost: false, within }];
    }
    if state.is_resizing {
        let within = Some(Duration::from_micros(wind_down(policy, &run.job, budget_of(world, run), run.rate()).0));
        return vec![AgentCommand::Stop { attempt: attempt.clone(), is_node_lost: false, within }];
    }
    let order = || Box::new(start(&instance.run, run, attempt));
    match state.members.iter().position(|member| member.instance == *id) {
        None => vec![AgentCommand::Start(order())],
        Some(rank) => orders_of_member((attempt, state), &machines, rank, order),
    }
}

/// How long ranks are given to end that have lost those of another machine.
const NODE_LOST: Duration = Duration::from_micros(10_000_000);

/// First all machines of an attempt are prepared, then all are started; when one has failed, the others end. `machines` are
/// those of its members.
fn orders_of_member(
    (attempt, state): (&AttemptId, &RunAttempt),
    machines: &[Option<&Instance>],
    rank: usize,
    order: impl Fn() -> Box<Start>,
) -> Vec<AgentCommand> {
    let has_failed = |(member, machine): (&Member, &Option<&Instance>)| match member.end {
        Some((_, AttemptEnd::Failed { .. })) => true,
        // Nobody needs its machine any more.
        Some((_, AttemptEnd::Trained { .. } | AttemptEnd::Succeeded)) => false,
        Some((_, AttemptEnd::Stopped { .. })) | None => {
            machine.is_none_or(|instance| instance.state != InstanceState::Up)
        }
    };
    // Once node rank 0 has the model, the others have no more work.
    let is_over =
        matches!(state.members.first().and_then(|first| first.end.as_ref()), Some((_, AttemptEnd::Trained { .. })));
    let are_prepared = state.members.iter().all(|member| member.address.is_some());
    // One that has ended will not be prepared any more.
    let cannot_start = !are_prepared && state.members.iter().any(|member| member.end.is_some());
    let attempt = attempt.clone();
    if is_over || cannot_start || state.members.iter().zip(machines).any(has_failed) {
        return vec![AgentCommand::Stop { attempt, is_node_lost: true, within: Some(NODE_LOST) }];
    }
    if state.members.get(rank).is_some_and(|member| member.address.is_none()) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut order = order();
        order.member = Some(NodeRank { rank: count(rank), nodes: count(state.members.len()) });
        return vec![AgentCommand::Prepare(order)];
    }
    if !are_prepared {
        return Vec::new();
    }
    let nodes: Vec<NodeAddress> = state.members.iter().filter_map(|member| member.address.clone()).collect();
    vec![AgentCommand::Go { attempt, nodes }]
}

/// The job as the ranks of an attempt on so many machines do it. Fewer machines than it could use divide each step into
/// more micro-batches, so that the batch stays the same and each rank needs no more memory; and how often the state is
/// saved follows from how often the run fails.
pub fn job_of_attempt(world: &World, run: &Run, attempt: &RunAttempt, now: domain::Timestamp) -> Job {
    let mut job = run.job.clone();
    let members = u32::try_from(attempt.instances().count()).unwrap_or(u32::MAX).max(1);
    if let Work::Train(train) = &mut job.work {
        let ranks = train.processes.max(1).saturating_mul(members) / train.parallel.tensor.max(1);
        let more = train.accumulate.max(1).saturating_mul(run.job.nodes().div_ceil(members));
        train.accumulate = more.min((train.batch / ranks.max(1)).max(train.accumulate));
        let mtbf = train.checkpoint.mtbf.unwrap_or_else(|| hazard_of(world, run, now).mtbf);
        train.checkpoint.mtbf = Some(mtbf);
    }
    job
}

/// How often a run fails, by what it rents and by what has happened to it.
pub fn hazard_of(world: &World, run: &Run, now: domain::Timestamp) -> Hazard {
    let is_failure = |id: &&AttemptId| {
        let state = world.attempts.get(*id).map(|attempt| &attempt.state);
        matches!(state, Some(AttemptState::Ended { end: AttemptEnd::Failed { .. }, .. }))
    };
    let failures = u32::try_from(run.attempts.iter().filter(is_failure).count()).unwrap_or(u32::MAX);
    hazard(&run.plan.offer, run.job.nodes(), run.age(now), failures)
}

/// Longest interval that `auto` chooses, in seconds.
const LONGEST: f64 = 3_600.0;

/// How often the ranks of a run save its state where the job leaves that open, and why: by what the last save has cost, and by
/// how often the run was expected to fail when its newest attempt began. `newest` are measurements, oldest first; `None` where
/// none is of a save, for a job that states an interval, and for a program, which decides itself.
pub fn saving_of(world: &World, run: &Run, newest: &[Report]) -> Option<String> {
    let Work::Train(train) = &run.job.work else { return None };
    let saved = |report: &Report| if let Report::Checkpointed(saved) = report { Some(*saved) } else { None };
    let saved = newest.iter().rev().find_map(saved).filter(|_| train.checkpoint.every == Every::Auto)?;
    let attempt = run.attempts.last().and_then(|id| world.attempts.get(id));
    let usual = hazard_of(world, run, attempt.map_or(run.submitted, |attempt| attempt.intended));
    let (mtbf, reason) = match train.checkpoint.mtbf {
        Some(mtbf) => (mtbf, format!("the job expects a failure every {mtbf}")),
        None => (usual.mtbf, usual.reason),
    };
    let (stall, commit) = (saved.stall_us as f64 / 1e6, saved.commit_us as f64 / 1e6);
    let costs = CheckpointOverhead { stall, lag: stall + commit, restart: 0.0 };
    let seconds = interval(mtbf.as_secs_f64(), &costs).min(LONGEST);
    let every = Duration::from_secs(seconds.round() as u64);
    Some(format!("every {every}: a save stalls training for {:.1} ms, and {reason}", stall * 1e3))
}

/// The name by which an instance's machine was rented: that of another instance, if the machine was taken over.
fn machine<'a>(world: &'a World, id: &'a InstanceId) -> &'a InstanceId {
    world.instances.get(id).map_or(id, |instance| instance.machine_name(id))
}

/// The run of an attempt of which a machine's agent reports, where another run may have the machine by now; `machine_name` is
/// the name that the agent has. `None` if nothing says that the attempt was on that machine.
pub fn run_of_report(world: &World, machine_name: &InstanceId, attempt: &AttemptId) -> Option<RunId> {
    let known = world.attempts.get(attempt).filter(|known| machine(world, &known.instance) == machine_name);
    // A run that has ended leaves memory, and its machine keeps its name.
    known.map(|known| known.run.clone()).or_else(|| attempt.run_on(machine_name))
}

/// The event that an agent's report causes, or `None`: most reports are measurements, and one that was handled before,
/// or that arrives after its attempt was given up, has no effect.
pub fn hear(world: &World, instance: &InstanceId, entry: &Entry) -> Option<Event> {
    let attempt = world.attempts.get(&entry.attempt)?;
    // Where agents are let in one by one, none may end the work of another.
    if attempt.members.is_empty() && machine(world, instance) != machine(world, &attempt.instance) {
        return None;
    }
    if !attempt.members.is_empty() && !matches!(attempt.state, AttemptState::Ended { .. }) {
        let member = attempt.member(instance)?;
        let (attempt_id, instance) = (entry.attempt.clone(), instance.clone());
        match &entry.event {
            AgentEvent::Ended { end } => {
                let event = Event::MemberEnded { attempt: attempt_id, instance, end: end.clone() };
                return member.end.is_none().then_some(event);
            }
            AgentEvent::Prepared { address } => {
                let event = Event::MemberPrepared { attempt: attempt_id, instance, address: address.clone() };
                return (member.end.is_none() && member.address.is_none()).then_some(event);
            }
            // Node rank 0 reports for all.
            _ if instance != attempt.instance => return None,
            _ => {}
        }
    }
    match (&attempt.state, &entry.event) {
        (AttemptState::Ended { .. }, _) => None,
        (_, AgentEvent::Ended { end }) => {
            Some(Event::AttemptEnded { attempt: entry.attempt.clone(), end: end.clone() })
        }
        (AttemptState::Intended, AgentEvent::Reported { rank: 0, report: Report::Ready(ready) }) => {
            Some(Event::AttemptReady { attempt: entry.attempt.clone(), ready: Some(ready.clone()) })
        }
        (AttemptState::Intended, AgentEvent::Started) => {
            let run = world.runs.get(&attempt.run)?;
            match run.job.work {
                domain::Work::Train(_) => None,
                domain::Work::Command(_) => Some(Event::AttemptReady { attempt: entry.attempt.clone(), ready: None }),
            }
        }
        (_, AgentEvent::Idle) => {
            let run = world.runs.get(&attempt.run)?;
            let is_on = !run.state.is_final() && !matches!(run.state, RunState::Stopping { .. });
            is_on.then(|| Event::StopRequested { run: attempt.run.clone(), by: StopBy::Idle })
        }
        (_, AgentEvent::Reported { report: Report::Result(metrics), .. }) => {
            let run = world.runs.get(&attempt.run)?;
            let metric = world.sweep_of(run)?.search.metric?;
            let value = Some(crate::sweep::reported(metric, metrics)?).filter(|value| value.is_finite());
            // One that is reported again says nothing new.
            let is_new = run.results.last().map(|last| last.value) != Some(value);
            is_new.then(|| Event::TrialMeasured { run: attempt.run.clone(), value })
        }
        (AttemptState::Intended | AttemptState::Ready { .. }, AgentEvent::Started | AgentEvent::Reported { .. }) => {
            None
        }
        (AttemptState::Intended | AttemptState::Ready { .. }, AgentEvent::Prepared { .. } | AgentEvent::Unknown) => {
            None
        }
    }
}
