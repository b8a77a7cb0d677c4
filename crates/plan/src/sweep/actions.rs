//! The actions of a sweep: enforces its limits, starts its next trial, records its end.

use std::collections::BTreeMap;

use domain::job::Budget;
use domain::run::{RunState, StopBy};
use domain::sweep::{Best, SweepEnd, Trial};
use domain::{Cause, Elapsed, Finding, InstanceId, Job, Money, RunId, SweepId, Work};

use super::next::{Move, next};
use super::standing::{Stand, Standing, standing};
use super::{draws, trial};
use crate::reconcile::{
    Action, ObservedState, Policy, SubmitTrial, kept_back, kept_to_end, least_bills, live_rate, spent_at_most,
    spent_to_stop, taken_at_most, time_to_spend, unbilled, unreachable, useless,
};
use crate::world::{Run, SweepRecord, SweepState, World};

/// The actions for one sweep. The limits apply to all of its trials together.
pub fn actions(
    world: &World,
    facts: &ObservedState,
    policy: &Policy,
    id: &SweepId,
    sweep: &SweepRecord,
) -> Vec<Action> {
    match &sweep.state {
        SweepState::Ended { .. } => Vec::new(),
        SweepState::Stopping { by } => {
            let is_open = |run: &Run| !run.state.is_final() && !matches!(run.state, RunState::Stopping { .. });
            let open = world.trials(sweep).filter(|(_, run)| is_open(run));
            let stops: Vec<Action> = open.map(|(run, _)| Action::Stop { run: run.clone(), by: *by }).collect();
            if stops.is_empty() && is_settled(world, sweep) {
                let end = SweepEnd::Stopped { by: *by, best: best(world, sweep) };
                return vec![Action::EndSweep { sweep: id.clone(), end, total: billed(world, sweep) }];
            }
            stops
        }
        SweepState::Running => running(world, facts, policy, id, sweep),
    }
}

fn running(world: &World, facts: &ObservedState, policy: &Policy, id: &SweepId, sweep: &SweepRecord) -> Vec<Action> {
    let stop = |by| vec![Action::StopSweep { sweep: id.clone(), by }];
    if let Some(deadline) = sweep.job.deadline
        && facts.now.since(sweep.submitted).0 >= deadline.micros()
    {
        return stop(StopBy::Deadline);
    }
    let spent = spent(world, sweep, &facts.rents(world));
    let open = world.trials(sweep).filter(|(_, run)| !run.state.is_final()).count();
    let saving = |trials: usize| kept_to_end(facts, policy, sweep, trials);
    let (mut affords_more, mut is_spent) = (true, false);
    if let Some(budget) = sweep.job.budget {
        // Until a machine has called again, its cost is not known.
        let taken = taken_at_most(world, facts, policy, sweep).max(spent_at_most(world, facts, sweep) + saving(open));
        let useless = useless(facts, policy, sweep);
        let owed = unreachable(world, facts, policy, sweep) + least_bills(world, facts, policy, sweep);
        affords_more = taken + owed + useless < budget.max;
        let unbilled = unbilled(world, facts, sweep);
        is_spent = spent + unbilled + saving(open) + useless >= budget.max;
        let most = spent_to_stop(world, facts, sweep);
        if most > Money::default() && most + unbilled + kept_back(world, facts, policy, sweep) >= budget.max {
            return stop(StopBy::Budget);
        }
        if !sweep.alerted && is_alert(budget, spent) {
            return vec![Action::AlertSweep { sweep: id.clone(), spent }];
        }
    }
    if !facts.attended_sweeps.contains(id) {
        return Vec::new();
    }
    let is_paused = |run: &(&RunId, &Run)| crate::resume::has_stopped(run.1) && sweep.paused.contains(run.0);
    if let Some(finding) = changed_data(world, sweep) {
        return stop_for_changed_data(world, id, sweep, finding);
    }
    // One at a time: the next call counts it as open, so that each has its share of the budget.
    if let Some((run, _)) = world.trials(sweep).find(is_paused) {
        let has_place = open < sweep.search.parallel.max(1) as usize;
        return match (affords_more, open) {
            (true, _) if has_place => vec![Action::Resume { run: run.clone(), epochs: None }],
            (false, 0) if is_spent => stop(StopBy::Budget),
            (true | false, _) => Vec::new(),
        };
    }
    let trials: Vec<Standing> = world.trials(sweep).map(|(_, run)| standing(run)).collect();
    match next(&sweep.search, epochs_of(&sweep.job), &trials, sweep.forgiven) {
        Move::Begin(_) | Move::Resume(..) if !affords_more && open == 0 && is_spent => stop(StopBy::Budget),
        Move::Begin(_) | Move::Resume(..) if !affords_more => Vec::new(),
        Move::Begin(number) => vec![begin(id, sweep, number)],
        Move::Resume(number, epochs) => vec![Action::Resume { run: id.trial(number), epochs: Some(epochs) }],
        Move::Wait => Vec::new(),
        Move::Over | Move::TooManyFailed if !is_settled(world, sweep) => Vec::new(),
        Move::Over => vec![end(world, id, sweep, None)],
        Move::TooManyFailed => {
            let failed = trials.iter().filter(|trial| trial.state == Stand::Failed).count();
            let most = sweep.search.max_failed;
            vec![end(world, id, sweep, Some(format!("{failed} trials have failed; at most {most} may")))]
        }
    }
}

/// Whether so much of a budget is spent that its user wants to know.
fn is_alert(budget: Budget, spent: Money) -> bool {
    spent > Money::default() && spent.micros() as f64 >= budget.max.micros() as f64 * budget.alert.get()
}

/// Epochs of a trial; none of a program are known.
fn epochs_of(job: &Job) -> u32 {
    match &job.work {
        Work::Train(train) => train.epochs,
        Work::Command(_) => 0,
    }
}

/// When a sweep has spent its budget except for what is kept back, or the share for its alert, with the machines that its
/// trials have.
pub(crate) fn budget_due(
    world: &World,
    facts: &ObservedState,
    policy: &Policy,
    sweep: &SweepRecord,
) -> Option<Elapsed> {
    let budget = sweep.job.budget?;
    let spent = spent(world, sweep, &facts.rents(world));
    let open = world.trials(sweep).filter(|(_, run)| !run.state.is_final()).count();
    let unbilled = unbilled(world, facts, sweep);
    let left = |kept: Money, spent: Money| budget.max.micros().saturating_sub((kept + unbilled + spent).micros());
    let stop = left(kept_back(world, facts, policy, sweep), spent_to_stop(world, facts, sweep));
    let last = left(kept_to_end(facts, policy, sweep, open) + useless(facts, policy, sweep), spent);
    let alert = (budget.max.micros() as f64 * budget.alert.get()).ceil() as i64;
    let hourly = world.trials(sweep).map(|(_, run)| live_rate(world, run)).fold(0, i64::saturating_add);
    // Those that are reached already have had their effect.
    let next = [stop, last, alert.saturating_sub(spent.micros())].into_iter().filter(|left| *left > 0).min()?;
    time_to_spend(Money::from_micros(next), hourly)
}

/// The next trial as a run. One with invalid values, or that does not fit the machine, is submitted all the same, so
/// that its own error is reported.
fn begin(id: &SweepId, sweep: &SweepRecord, number: u32) -> Action {
    let offer = &sweep.plan.offer;
    let values = draws::values(&sweep.search, number);
    let job = trial::job(&sweep.job, &sweep.search, &values, offer);
    let bare = || Job { sweep: None, budget: None, deadline: None, ..sweep.job.clone() };
    let job = job.unwrap_or_else(|_| bare());
    let mut plan = trial::plan(&job, offer, &sweep.known).unwrap_or_else(|_| sweep.plan.clone());
    plan.alternatives.clone_from(&sweep.plan.alternatives);
    let trial = Trial { sweep: id.clone(), number, values };
    Action::SubmitTrial(Box::new(SubmitTrial { run: id.trial(number), job, plan, file: sweep.file.clone(), trial }))
}

fn end(world: &World, id: &SweepId, sweep: &SweepRecord, failure: Option<String>) -> Action {
    let end = match (failure, best(world, sweep)) {
        (None, Some(best)) => SweepEnd::Done { best: Some(best) },
        (None, None) if has_run(world, sweep) => SweepEnd::Done { best: None },
        (failure, best) => {
            let unmeasured = sweep.search.metric.filter(|_| has_rested(world, sweep));
            let message = failure.unwrap_or_else(|| match unmeasured {
                Some(metric) => format!("no trial has reported `{}`, by which they are compared", metric.name()),
                None => "no trial came to a result".to_owned(),
            });
            let why = world.trials(sweep).find_map(|(_, run)| match &run.state {
                RunState::Done { outcome: domain::run::Outcome::Failed { finding } } => Some(finding.clone()),
                _ => None,
            });
            let finding = match why {
                Some(why) => Finding { message: format!("{message}; the first: {}", why.message), ..why },
                None => Finding::new(Cause::Job, message),
            };
            SweepEnd::Failed { finding, best }
        }
    };
    Action::EndSweep { sweep: id.clone(), end, total: billed(world, sweep) }
}

/// Whether trials that are not compared have run, one of them to its end.
fn has_run(world: &World, sweep: &SweepRecord) -> bool {
    sweep.search.metric.is_none() && has_rested(world, sweep)
}

fn has_rested(world: &World, sweep: &SweepRecord) -> bool {
    world.trials(sweep).any(|(_, run)| standing(run).state == Stand::Rested)
}

/// Why trials cannot be compared: the newest one has read other data than the first, and nobody has accepted that. Trials
/// that search over keys of the data may differ.
pub(super) fn changed_data(world: &World, sweep: &SweepRecord) -> Option<Finding> {
    let (first, others) = of_other_data(world, sweep).filter(|_| !sweep.accept_data_change)?;
    let other = others.first()?;
    let message = format!("trial `{other}` has read other data than `{first}`, so that they cannot be compared");
    let hint = "put the data back and resume the sweep, or add `--accept-data-change` to compare them all the same";
    Some(Finding::new(Cause::Data, message).hint(hint))
}

/// The first trial whose data is known, and those after it that have read other data under the same keys.
pub(super) fn of_other_data<'a>(world: &'a World, sweep: &'a SweepRecord) -> Option<(&'a RunId, Vec<&'a RunId>)> {
    let of = |run: &'a Run| match &run.job.work {
        Work::Train(train) => Some(((&train.data, train.seed), run.ready.as_ref()?.data.as_ref()?)),
        Work::Command(_) => None,
    };
    let trials = world.trials(sweep).filter(|(id, _)| !sweep.set_aside.contains(*id));
    let mut seen = trials.filter_map(|(id, run)| Some((id, of(run)?)));
    let (first, (keys, data)) = seen.next()?;
    let others = seen.filter(|(_, found)| found.0 == keys && found.1 != data).map(|(id, _)| id).collect();
    Some((first, others))
}

/// Ends a sweep whose data has changed, once its trials have stopped.
fn stop_for_changed_data(world: &World, id: &SweepId, sweep: &SweepRecord, finding: Finding) -> Vec<Action> {
    let is_open = |run: &Run| !run.state.is_final() && !matches!(run.state, RunState::Stopping { .. });
    let open = world.trials(sweep).filter(|(_, run)| is_open(run));
    let stops: Vec<Action> = open.map(|(run, _)| Action::Stop { run: run.clone(), by: StopBy::User }).collect();
    if stops.is_empty() && is_settled(world, sweep) {
        let end = SweepEnd::Failed { finding, best: best(world, sweep) };
        return vec![Action::EndSweep { sweep: id.clone(), end, total: billed(world, sweep) }];
    }
    stops
}

/// Whether every trial is at its end and billed.
fn is_settled(world: &World, sweep: &SweepRecord) -> bool {
    world.trials(sweep).all(|(_, run)| run.state.is_final() && run.bill.is_some())
}

/// The sum of the bills that are final.
fn billed(world: &World, sweep: &SweepRecord) -> Money {
    world.trials(sweep).filter_map(|(_, run)| run.bill.as_ref()).map(|bill| bill.total).sum()
}

/// The cost of a sweep until now: the sum over its trials.
pub fn spent(world: &World, sweep: &SweepRecord, meters: &BTreeMap<InstanceId, Elapsed>) -> Money {
    world.trials(sweep).map(|(_, run)| crate::world::spent(world, run, meters)).sum()
}

/// The best trial, by the last result of each; of equals the earlier one.
pub fn best(world: &World, sweep: &SweepRecord) -> Option<Best> {
    let mut best: Option<Best> = None;
    for (id, run) in world.trials(sweep).filter(|(id, _)| !sweep.set_aside.contains(*id)) {
        let Some(trial) = &run.trial else { continue };
        let Some(value) = run.results.last().and_then(|result| result.value) else { continue };
        if best.as_ref().is_none_or(|best| sweep.search.goal.prefers(value, best.value)) {
            best = Some(Best { number: trial.number, run: id.clone(), value });
        }
    }
    best
}
