//! The reconciler: the only place that decides what to do next.
//!
//! [`reconcile`] compares the known and observed state with the desired one, and returns actions. It is
//! level-triggered: called again with the same facts it returns the same, so a crash between deciding and acting costs
//! nothing.

mod choice;
mod due;
mod fleet;
mod gang;
mod given_up;
mod lease;
mod limits;
mod lost;
mod observed;
mod order;
mod policy;
mod retry;
mod room;
mod scope;
mod trials;

use std::collections::{BTreeMap, BTreeSet};

use domain::event::RunEnd;
use domain::run::{AttemptEnd, Bill, InstanceState, Outcome, RunState, Sight, StopBy, Usage};
use domain::sweep::{SweepEnd, Trial};
use domain::{AttemptId, Cause, Elapsed, Fence, Finding, InstanceId, Job, Money, Offer, Plan, RunId, SweepId};

use crate::sweep;
use crate::world::{Run, World, bill};

pub use choice::offers;
pub use due::{run_due, sweep_due};
pub use lease::{expires, first_answer, lease, price_cap};
use limits::Affords;
pub use limits::{budget_of, heartbeat, reached, time_to_end, wind_down};
pub(crate) use limits::{live_rate, time_to_spend};
pub use lost::is_lost;
use lost::is_silent;
pub use observed::{LaunchDoubt, ObservedMachine, ObservedState};
use observed::{LiveMachine, RunFacts};
pub use order::members;
pub use policy::Policy;
pub use retry::{RetryBudget, retry_budget};
use room::Room;
pub use scope::Scope;
#[cfg(test)]
pub(crate) use trials::SWEEP_BUDGET;
pub use trials::is_limited;
pub(crate) use trials::{
    kept_back, kept_to_end, least_bills, spent_at_most, spent_to_stop, taken_at_most, unbilled, unreachable, useless,
};

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Write the intent to rent a machine, and others with it by the same request, then ask the provider.
    Rent { run: RunId, instance: InstanceId, others: Vec<InstanceId>, offer: Offer, reserve: Money },
    /// Write down that a run takes over the machine of one that has ended, whose part of the rent ends with that.
    TakeOver { run: RunId, instance: InstanceId, from: InstanceId, usage: Usage, reserve: Money },
    /// Request an instance that was intended before a crash, or whose launch is uncertain.
    Launch { instance: InstanceId },
    /// Record that an instance was rented: its provider lists it, though no reply has confirmed it.
    RecordLaunch { instance: InstanceId },
    /// Record the intent to start an attempt on these machines, by node rank; their agents learn of it with their next
    /// calls.
    Start { run: RunId, attempt: AttemptId, fence: Fence, instances: Vec<InstanceId> },
    /// Write down that an attempt ended: with its machine, or on all of its machines.
    EndAttempt { attempt: AttemptId, end: AttemptEnd },
    /// Write down that an attempt on several machines ended with one of them.
    EndMember { attempt: AttemptId, instance: InstanceId, end: AttemptEnd },
    /// Write the end of a run.
    End { run: RunId, end: RunEnd },
    /// Ask a run to stop.
    Stop { run: RunId, by: StopBy },
    /// Report that the budget's alert was reached.
    Alert { run: RunId, spent: Money },
    /// Record the intent to release; the agent is told to leave.
    Release { instance: InstanceId },
    /// Write the intent to release one that was asked for together with others, because of how those turned out.
    GiveUpRace { instance: InstanceId },
    /// Ask the provider to end an instance whose release was intended.
    Terminate { instance: InstanceId },
    /// Record the provider's confirmation that an instance is gone.
    RecordRelease { instance: InstanceId, usage: Usage },
    /// Ask the ranks of an attempt to save and end, so that the next one has more machines.
    Resize { attempt: AttemptId },
    /// Write that a run divides its steps into so many micro-batches from now on.
    HalveMicroBatch { run: RunId, accumulate: u32 },
    /// Write the final bill.
    Bill { run: RunId, bill: Bill },
    /// Submit the run that is a sweep's next trial.
    SubmitTrial(Box<SubmitTrial>),
    /// Record that a trial is resumed: up to an epoch, or with its earlier limit.
    Resume { run: RunId, epochs: Option<u32> },
    /// Ask a sweep to stop.
    StopSweep { sweep: SweepId, by: StopBy },
    /// Report that the alert of a sweep's budget was reached.
    AlertSweep { sweep: SweepId, spent: Money },
    /// Write the end of a sweep.
    EndSweep { sweep: SweepId, end: SweepEnd, total: Money },
}

impl Action {
    /// The run that it ends, if it ends one.
    fn ended(&self) -> Option<&RunId> {
        match self {
            Action::End { run, .. } => Some(run),
            _ => None,
        }
    }
}

/// The run that is a sweep's next trial.
#[derive(Debug, Clone, PartialEq)]
pub struct SubmitTrial {
    /// Its name.
    pub run: RunId,
    /// The sweep's job with the trial's values.
    pub job: Job,
    /// Its plan.
    pub plan: Plan,
    /// The sweep's job file.
    pub file: String,
    /// Which trial it is.
    pub trial: Trial,
}

/// What is decided about runs and sweeps.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The actions to take now.
    pub actions: Vec<Action>,
    /// How long until time alone changes those for each run that was decided on, as [`run_due`], if nothing else does.
    pub due: BTreeMap<RunId, Option<Elapsed>>,
}

/// The actions to take now, earlier runs first.
pub fn reconcile(world: &World, facts: &ObservedState, policy: &Policy) -> Vec<Action> {
    reconcile_scope(world, facts, policy, &Scope::all(world))
}

/// The actions for some runs and sweeps.
pub fn reconcile_scope(world: &World, facts: &ObservedState, policy: &Policy, scope: &Scope) -> Vec<Action> {
    decide(world, facts, policy, scope).actions
}

/// The actions for some runs and sweeps, and when to decide on the runs again. The facts must include those of their
/// machines, of those of the sweeps' trials, and of all that are being released.
pub fn decide(world: &World, facts: &ObservedState, policy: &Policy, scope: &Scope) -> Decision {
    let (mut actions, mut due) = (Vec::new(), BTreeMap::new());
    let mut room = Room::new(world, facts, policy);
    let open = scope.runs.iter().filter(|id| world.is_open(id));
    let mut runs: Vec<(&RunId, &Run)> = open.filter_map(|id| world.runs.get_key_value(id)).collect();
    runs.sort_by_key(|(_, run)| run.order);
    let mut taken = choice::takeovers(world, facts, policy, &runs);
    actions.append(&mut taken.actions);
    for (id, run) in runs {
        // The next round sees what it has then.
        if taken.runs.contains(id) {
            room.take(id, run, 1);
            continue;
        }
        let of = RunFacts::new(world, facts, run);
        due.insert(id.clone(), due::of_run(&of, policy, id));
        for one in of.machines.iter().filter(|one| !taken.machines.contains(one.id)) {
            match choice::given_over(world, one.id, one.instance) {
                Some(action) => actions.push(action),
                None => actions.extend(for_instance(world, facts, policy, run, *one)),
            }
        }
        if run.state.is_final() {
            if run.bill.is_none()
                && of.machines.is_empty()
                && let Some(bill) = bill(world, run)
            {
                actions.push(Action::Bill { run: id.clone(), bill });
            }
            continue;
        }
        actions.extend(for_run(&of, policy, id, &mut room));
    }
    let ends: BTreeSet<RunId> = actions.iter().filter_map(Action::ended).cloned().collect();
    for (id, sweep) in scope.sweeps.iter().filter_map(|id| world.sweeps.get_key_value(id)) {
        let decided = sweep::actions(world, facts, policy, id, sweep);
        // What ends by an action above needs no stop.
        actions.extend(decided.into_iter().filter(|it| !matches!(it, Action::Stop { run, .. } if ends.contains(run))));
    }
    let kept = choice::kept_for_trials(world, facts, policy, &actions);
    actions.retain(|action| !matches!(action, Action::Release { instance } if kept.contains(instance)));
    Decision { actions, due }
}

/// The actions for an instance, independent of its run.
fn for_instance(
    world: &World,
    facts: &ObservedState,
    policy: &Policy,
    run: &Run,
    machine: LiveMachine<'_>,
) -> Vec<Action> {
    let LiveMachine { id, instance, seen, .. } = machine;
    let sight = seen.sight;
    let is_stopping = matches!(run.state, RunState::Stopping { .. });
    let rented_for = |elapsed| Usage { started: instance.own_start(), elapsed };
    let failed = |why: String| gang::fail(world, run, id, Finding::new(Cause::InstanceLost, why));
    let gone = |usage: Usage| -> Vec<Action> {
        let usage = Usage { elapsed: facts.billed(instance, usage.elapsed), ..usage };
        let failed = failed(format!("instance `{id}` is gone"));
        failed.into_iter().chain([Action::RecordRelease { instance: id.clone(), usage }]).collect()
    };
    match (&instance.state, sight) {
        (InstanceState::Released { .. }, _) => Vec::new(),
        // Without usage its rent never began, as confirmed by the provider.
        (_, Some(Sight::Gone(usage))) => gone(usage.unwrap_or(rented_for(Elapsed(0)))),
        // Missing is not gone: a new machine may not be listed yet. A provider without records of it cannot report its
        // usage, so the requested time counts.
        (InstanceState::Releasing, Some(Sight::Unknown)) if machine.is_gone_by_absence() => {
            gone(rented_for(machine.rent().unwrap_or_default()))
        }
        (InstanceState::Releasing, _) => {
            if let Some(usage) = lost::abandoned(policy, machine) {
                return gone(usage);
            }
            let is_lost = machine.is_lost(policy) && gang::works_on(world, run, id);
            let lost = is_lost.then(|| failed(format!("instance `{id}` cannot be reached"))).flatten();
            let end = (!seen.is_end_asked).then(|| Action::Terminate { instance: id.clone() });
            lost.into_iter().chain(end).collect()
        }
        (InstanceState::Intended, _) if run.state.is_final() || is_stopping => release(id),
        // It is listed, or what was rented by the same request is.
        (InstanceState::Intended, _) if sight == Some(Sight::Alive) || order::is_rented(world, id) => {
            vec![Action::RecordLaunch { instance: id.clone() }]
        }
        (InstanceState::Intended, _) if order::is_first(world, id) && may_launch(facts, policy, machine) => {
            vec![Action::Launch { instance: id.clone() }]
        }
        (InstanceState::Intended, _) => Vec::new(),
        // A spare has nothing to save.
        (InstanceState::Launching | InstanceState::Up, _)
            if run.state.is_final()
                || is_silent(policy, machine)
                || (is_stopping && !gang::has_work(world, run, id)) =>
        {
            release(id)
        }
        // Work on a machine that will be reclaimed saves its state first.
        (InstanceState::Up, _) if instance.reclaim.is_some() && !gang::works_on(world, run, id) => release(id),
        (InstanceState::Launching | InstanceState::Up, _) => Vec::new(),
    }
}

fn release(id: &InstanceId) -> Vec<Action> {
    vec![Action::Release { instance: id.clone() }]
}

/// Whether an instance may be requested now: somebody waits for its run, no request is in flight, and an earlier one was
/// long enough ago and cannot rent twice.
fn may_launch(facts: &ObservedState, policy: &Policy, machine: LiveMachine<'_>) -> bool {
    if machine.seen.is_launching || !facts.attended.contains(&machine.instance.run) {
        return false;
    }
    let Some(doubt) = machine.seen.in_doubt else { return true };
    let is_rested = doubt.since >= policy.wait_in_doubt(doubt.requests);
    is_rested && (!doubt.is_token_void || machine.is_gone_by_absence())
}

/// The actions for a run that has not ended.
fn for_run<'a>(of: &RunFacts<'a>, policy: &Policy, id: &'a RunId, room: &mut Room<'a>) -> Vec<Action> {
    let RunFacts { world, facts, run, .. } = *of;
    if let Some(action) = gang::ended(world, run) {
        return vec![action];
    }
    if let Some(end) = decided_end(world, run) {
        return vec![Action::End { run: id.clone(), end }];
    }
    if let Some(action) = limits::limits(of, policy, id) {
        return vec![action];
    }
    if matches!(run.state, RunState::Stopping { .. }) {
        return Vec::new();
    }
    if let Some((attempt, state)) = world.active_attempt(run) {
        return fleet::beside(of, policy, id, (attempt, state), room);
    }
    if let Some(accumulate) = retry::more_micro_batches(run) {
        return vec![Action::HalveMicroBatch { run: id.clone(), accumulate }];
    }
    let losers = choice::losers(of);
    if !losers.is_empty() {
        return losers;
    }
    if !facts.attended.contains(id) || !rested(of, policy, id) {
        return Vec::new();
    }
    let machines = fleet::machines(of, policy);
    if machines.is_any_ending(policy) {
        return Vec::new();
    }
    let up = machines.by_rank(run);
    if let Some(members) = fleet::members(of, policy, &machines) {
        if !trials::may_start(of, policy) {
            return Vec::new();
        }
        let fence = Fence(run.attempts.len() as u64 + 1);
        let instances = up.into_iter().take(members).cloned().collect();
        return vec![Action::Start { run: id.clone(), attempt: id.attempt(fence), fence, instances }];
    }
    let given_back = gang::give_back(of, policy);
    // What is on its way out is waited for.
    let missing = order::missing_now(facts, run, &machines.usable, machines.missing(run));
    if !given_back.is_empty() {
        return given_back;
    }
    rent_chosen(of, policy, id, (machines.usable.as_slice(), missing), room)
}

/// Rents what a run needs more than what it has, as far as there is room and its budget pays for it.
fn rent_chosen<'a>(
    of: &RunFacts<'a>,
    policy: &Policy,
    id: &'a RunId,
    (usable, missing): (&[LiveMachine<'_>], usize),
    room: &mut Room<'a>,
) -> Vec<Action> {
    let RunFacts { world, facts, run, .. } = *of;
    let count = fleet::rentable(id, run, usable.len(), missing, room);
    let mut chosen = choice::choose(facts, policy, run, usable, count);
    let is_full = count == 0 && (missing > 0 || !room.has_some(id, run, 0));
    // Of trials that share a budget, the next look counts what the first of them is given.
    let shares = limits::budget_of(world, run).is_some() && room.has_given_to_sweep_of(run);
    if chosen.is_empty() || is_full || shares {
        return Vec::new();
    }
    loop {
        let affords = limits::affords_rent(of, policy, &chosen);
        if affords == Affords::Yes {
            break;
        }
        // What races is one machine in the end.
        if chosen.len() == 1 || run.job.machines() > 1 {
            // What it could do without is not asked for; the run begins with what it has.
            let is_needed = missing > 0 && usable.len() < run.job.least_nodes() as usize;
            let ends = affords == Affords::No && is_needed;
            let by = StopBy::Budget;
            let stop = match &run.trial {
                // Its trials share the budget, and resume together.
                Some(trial) => Action::StopSweep { sweep: trial.sweep.clone(), by },
                None => Action::Stop { run: id.clone(), by },
            };
            return ends.then_some(stop).into_iter().collect();
        }
        chosen.pop();
    }
    room.take(id, run, count);
    order::rent(of, id, usable.len(), chosen)
}

/// The end caused by the newest attempt, or by the order to stop.
fn decided_end(world: &World, run: &Run) -> Option<RunEnd> {
    let active = world.active_attempt(run).is_some();
    let end = world.last_end(run).filter(|_| run.attempts.len() > run.settled);
    if let Some(AttemptEnd::Trained { model }) = end {
        return Some(RunEnd::Done { outcome: Outcome::Trained { model: model.clone() } });
    }
    if matches!(end, Some(AttemptEnd::Succeeded)) {
        let failed = crate::sweep::not_finite(run).map(|finding| Outcome::Failed { finding });
        return Some(RunEnd::Done { outcome: failed.unwrap_or(Outcome::Succeeded) });
    }
    match &run.state {
        RunState::Stopping { by } if !active => Some(RunEnd::Stopped { by: *by }),
        RunState::Recovering { finding, exit_code } => {
            let given_up = given_up::given_up(world, run, finding, *exit_code);
            given_up.map(|finding| RunEnd::Done { outcome: Outcome::Failed { finding } })
        }
        RunState::Stopping { .. } | RunState::Queued | RunState::Renting { .. } => None,
        RunState::Staging { .. } | RunState::Running { .. } => None,
        RunState::Stopped { .. } | RunState::Done { .. } => None,
    }
}

/// Whether a run that failed without progress has waited long enough.
fn rested(of: &RunFacts<'_>, policy: &Policy, id: &RunId) -> bool {
    match choice::wait(of) {
        Some(wait) => wait == Elapsed(0),
        None => of.facts.quiet.get(id).is_none_or(|quiet| *quiet >= policy.rest(of.run)),
    }
}
