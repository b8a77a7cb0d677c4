//! Whether a run or a sweep may be resumed: the log, `gradus resume` and sweeps ask here and nowhere else.

use domain::run::{Outcome, RunState, StopBy};
use domain::sweep::{Setting, SweepEnd};
use domain::train::Train;
use domain::{Event, Record, RunId, SweepId, Timestamp, Work};

use crate::reconcile::{Action, ObservedState, Policy, reached};
use crate::world::{Run, SweepState, World};
use crate::{Illegal, sweep};

/// Whether something may be resumed, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resumption {
    /// It may be resumed.
    Allowed,
    /// It has not ended yet: it can only be followed.
    Unfinished,
    /// It has ended with all requested work done.
    Complete,
    /// The run is a trial: it is resumed with its sweep, within the limits of that.
    TrialOf(SweepId),
    /// It has reached this limit, and would be stopped again at once.
    Reached(StopBy),
}

/// Whether the user may resume run `id` by `request`, a [`Event::ResumeRequested`] that is not written yet.
///
/// # Errors
/// [`Illegal`] when the log would refuse `request` although the run could be resumed.
pub fn run(world: &World, now: Timestamp, id: &RunId, request: &Event) -> Result<Resumption, Illegal> {
    let Some(before) = world.runs.get(id) else { return Ok(Resumption::Unfinished) };
    let set = if let Event::ResumeRequested { set, .. } = request { &set[..] } else { &[] };
    let changed = changed(before, set).unwrap_or_default();
    if !is_resumable(before, None, changed.as_ref()) {
        return Ok(if before.state.is_final() { Resumption::Complete } else { Resumption::Unfinished });
    }
    if let Some(trial) = &before.trial {
        return Ok(Resumption::TrialOf(trial.sweep.clone()));
    }
    let world = after(world, now, request)?;
    let facts = ObservedState { now, ..ObservedState::default() };
    let stop = world.runs.get(id).and_then(|run| reached(&world, &facts, &Policy::default(), run));
    Ok(stop.map_or(Resumption::Allowed, Resumption::Reached))
}

/// The same for sweep `id` and a [`Event::SweepResumeRequested`].
///
/// # Errors
/// As [`run`].
pub fn sweep(world: &World, now: Timestamp, id: &SweepId, request: &Event) -> Result<Resumption, Illegal> {
    let Some(before) = world.sweeps.get(id) else { return Ok(Resumption::Unfinished) };
    if !sweep_has_stopped(&before.state) {
        return Ok(if before.state.is_final() { Resumption::Complete } else { Resumption::Unfinished });
    }
    let world = after(world, now, request)?;
    let Some(resumed) = world.sweeps.get(id) else { return Ok(Resumption::Unfinished) };
    let facts = ObservedState { now, attended_sweeps: [id.clone()].into(), ..ObservedState::default() };
    let actions = sweep::actions(&world, &facts, &Policy::default(), id, resumed);
    let stop = actions.iter().find_map(|action| match action {
        Action::StopSweep { by, .. } => Some(*by),
        _ => None,
    });
    Ok(stop.map_or(Resumption::Allowed, Resumption::Reached))
}

/// Whether a request to resume this run is accepted, until `epochs` if it has trained fewer, or with a `changed` section
/// that has more of them.
pub(crate) fn is_resumable(run: &Run, epochs: Option<u32>, changed: Option<&Train>) -> bool {
    let has_trained = matches!(run.state, RunState::Done { outcome: Outcome::Trained { .. } });
    let is_longer = match (&run.job.work, changed) {
        (Work::Train(train), Some(changed)) => changed.last_epoch() > train.last_epoch(),
        (Work::Train(_) | Work::Command(_), _) => false,
    };
    has_stopped(run) || (has_trained && (has_more_epochs(run, epochs) || is_longer))
}

/// The `train:` section of a run with other values of some keys; none where nothing is set.
pub(crate) fn changed(run: &Run, set: &[Setting]) -> Result<Option<Train>, String> {
    match &run.job.work {
        _ if set.is_empty() => Ok(None),
        Work::Train(train) => train.with(set).map(Some),
        Work::Command(_) => Err("a program of the user's own has no keys of `train`".to_owned()),
    }
}

/// Whether the log takes a request to resume a sweep in this state.
pub(crate) fn sweep_has_stopped(state: &SweepState) -> bool {
    match state {
        SweepState::Ended { how: SweepEnd::Stopped { .. } | SweepEnd::Failed { .. } } => true,
        SweepState::Ended { how: SweepEnd::Done { .. } } | SweepState::Running | SweepState::Stopping { .. } => false,
    }
}

/// The world after an event that is not recorded yet.
fn after(world: &World, now: Timestamp, event: &Event) -> Result<World, Illegal> {
    let mut world = world.clone();
    world.apply(&Record { seq: world.last_seq + 1, at: now, event: event.clone() })?;
    Ok(world)
}

/// Whether a run ended without its result.
pub fn has_stopped(run: &Run) -> bool {
    match &run.state {
        RunState::Stopped { .. } | RunState::Done { outcome: Outcome::Failed { .. } } => true,
        RunState::Done { outcome: Outcome::Trained { .. } | Outcome::Succeeded } => false,
        RunState::Queued | RunState::Renting { .. } | RunState::Staging { .. } | RunState::Running { .. } => false,
        RunState::Recovering { .. } | RunState::Stopping { .. } => false,
    }
}

/// Whether a run that has ended with a model was trained for fewer epochs than these.
fn has_more_epochs(run: &Run, epochs: Option<u32>) -> bool {
    match (&run.job.work, epochs) {
        (Work::Train(train), Some(epochs)) => train.last_epoch() < epochs && epochs <= train.epochs,
        (Work::Train(_) | Work::Command(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use domain::event::Submitted;
    use domain::finding::Cause;
    use domain::{Bytes, Finding, Job, Money, Node, Offer, Plan, Rate};

    use super::*;

    /// A run of this state with a budget of $1, submitted at 0.
    fn world(state: RunState) -> (World, RunId) {
        let id = RunId::new("r-1");
        let job = Job::parse("run: 'true'\nbudget: {max: $1}\ndeadline: 1h\n", "job.yaml").unwrap().job;
        let node =
            Node { cpu: "sim".into(), cores: 8, memory: Bytes(1 << 40), disk_free: Bytes(1 << 40), volume: None };
        let rate = Rate::from_micros_per_hour(1_000_000);
        let offer = Offer { provider: "sim".into(), kind: "m1".into(), node, rate, price_source: "test".into() };
        let (reserve, assumptions) = ("$1".parse().unwrap(), Vec::new());
        let plan = Plan {
            offer,
            share: None,
            memory: None,
            time: None,
            cost: None,
            reserve,
            assumptions,
            alternatives: Vec::new(),
            anchors: Vec::new(),
        };
        let (job_hash, file) = (String::new(), "job.yaml".to_owned());
        let submitted = Submitted { run: id.clone(), job, plan, job_hash, file, trial: None, user: None };
        let mut world = World::default();
        let event = Event::Submitted(Box::new(submitted));
        world.apply(&Record { seq: 1, at: Timestamp(0), event }).unwrap();
        world.runs.get_mut(&id).unwrap().state = state;
        (world, id)
    }

    #[test]
    fn a_run_is_resumed_only_where_it_was_stopped_or_failed_within_its_limits() {
        let check = |state: RunState, seconds: i64, deadline: Option<&str>, expected: Resumption| {
            let (world, run) = world(state.clone());
            let deadline = deadline.map(|text| text.parse().unwrap());
            let request = Event::ResumeRequested {
                run: run.clone(),
                budget: None::<Money>,
                deadline,
                epochs: None,
                accept_data_change: false,
                set: Vec::new(),
            };
            let now = Timestamp(seconds * 1_000_000);
            assert_eq!(super::run(&world, now, &run, &request).unwrap(), expected, "{state:?} after {seconds} s");
        };
        let stopped = || RunState::Stopped { by: StopBy::User };
        let failed = || RunState::Done { outcome: Outcome::Failed { finding: Finding::new(Cause::Killed, "x") } };
        check(stopped(), 60, None, Resumption::Allowed);
        check(failed(), 60, None, Resumption::Allowed);
        check(stopped(), 3600, None, Resumption::Reached(StopBy::Deadline));
        check(stopped(), 3600, Some("2h"), Resumption::Allowed);
        check(RunState::Queued, 60, None, Resumption::Unfinished);
        check(RunState::Stopping { by: StopBy::User }, 60, None, Resumption::Unfinished);
        check(RunState::Done { outcome: Outcome::Succeeded }, 60, None, Resumption::Complete);
    }
}
