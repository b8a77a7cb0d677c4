//! Invariants at the end of a schedule.

mod causes;
pub(crate) mod goodput;
mod members;
pub(crate) mod parts;
mod promises;
mod schedules;
mod sweeps;

use std::collections::BTreeSet;

use domain::event::Event;
use domain::run::{AttemptEnd, Bill, RunState};
use domain::{InstanceId, Money, Record, RunId};
use plan::World;

use crate::machine::Machine;
use crate::rule::Rule;
use crate::scenario::{SECOND, Scenario};
use crate::simulation::{ScheduleStats, Simulation};

/// After the storm, all that was begun ends within this time.
const QUIET: u64 = 4 * 3_600 * SECOND;

/// Maximum number of events of a schedule for each [`EACH`] machines of a run; more means that it does not terminate.
const MOST: u32 = 200_000;

/// Machines of a run that share [`MOST`] events.
const EACH: u32 = 4;

/// Machines that a message lists.
const LISTED: usize = 10;

/// A failed schedule.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The violated invariant.
    pub why: String,
    /// The events in order, if requested.
    pub trace: Vec<String>,
}

/// Runs the schedule of a seed, with at most one rule broken.
///
/// # Errors
/// [`Failure`] with the violated invariant.
pub fn check(seed: u64, rule: Option<Rule>) -> Result<ScheduleStats, Failure> {
    run(seed, Scenario::draw(seed), rule, false)
}

/// Runs the schedule of a seed in a given scenario; `is_traced` records its events.
///
/// # Errors
/// [`Failure`] with the violated invariant.
pub fn run(seed: u64, scenario: Scenario, rule: Option<Rule>, is_traced: bool) -> Result<ScheduleStats, Failure> {
    let mut simulation = Simulation::new(seed, scenario, rule);
    simulation.trace = is_traced.then(Vec::new);
    let stats = finish(&mut simulation);
    stats.map_err(|why| Failure { seed, why, trace: simulation.trace.unwrap_or_default() })
}

/// The event log of a schedule, at its end.
///
/// # Errors
/// [`Failure`] with the violated invariant.
pub fn log(seed: u64) -> Result<Vec<Record>, Failure> {
    let mut simulation = Simulation::new(seed, Scenario::draw(seed), None);
    match finish(&mut simulation) {
        Ok(_) => Ok(simulation.process.disk),
        Err(why) => Err(Failure { seed, why, trace: Vec::new() }),
    }
}

/// Runs a simulation to its end.
pub(crate) fn finish(simulation: &mut Simulation) -> Result<ScheduleStats, String> {
    let work = simulation.scenario.work;
    let last = simulation.scenario.storm + QUIET + 3 * work.steps * work.step.unwrap_or(0);
    let most = if work.failures.is_some() { u32::MAX } else { MOST * simulation.scenario.nodes.div_ceil(EACH).max(1) };
    let mut happened = 0_u32;
    let why = loop {
        if let Some(violation) = simulation.violation.take() {
            break Some(violation);
        }
        if !simulation.is_stormy && is_done(simulation) {
            break verdict(simulation);
        }
        happened += 1;
        if simulation.now > last || happened > most || !simulation.advance() {
            break Some(format!("does not come to an end: {}", standing(simulation)));
        }
    };
    let mut stats = simulation.stats;
    stats.events = simulation.process.disk.len() as u64;
    match why {
        None => Ok(stats),
        Some(why) => Err(why),
    }
}

fn is_done(simulation: &Simulation) -> bool {
    let all_ended = simulation.cloud.machines.values().all(|machine| !machine.is_alive());
    if simulation.process.controller.is_none() {
        return simulation.scenario.is_abandoned && all_ended;
    }
    let is_billed = |run: &RunId| {
        let known = simulation.process.archive.runs.get(run);
        let wanted = |run: &plan::Run| {
            matches!(run.state, RunState::Done { .. }) || (simulation.budget.is_some() && run.state.is_final())
        };
        known.is_some_and(|run| run.bill.is_some() && wanted(run))
    };
    let is_settled = |run: &RunId| {
        let known = simulation.process.archive.runs.get(run);
        known.is_some_and(|run| run.bill.is_some() && run.state.is_final())
    };
    all_ended
        && simulation.process.unsynced.is_empty()
        && simulation.runs.iter().all(is_billed)
        && simulation.is_sweep_done()
        && simulation.all_runs().iter().all(is_settled)
        && simulation.is_schedule_done()
}

fn standing(simulation: &Simulation) -> String {
    let alive = simulation.cloud.machines.iter().filter(|(_, machine)| machine.is_alive());
    let alive = listed(alive.map(|(handle, machine)| format!("{} ({})", handle.0, machine.instance)));
    let states = match &simulation.process.controller {
        None => "the loop is gone".to_owned(),
        Some(_) => {
            let state = |run: &RunId| match simulation.process.archive.runs.get(run) {
                None => format!("{run} is unknown"),
                Some(run) => {
                    format!("{} on {}", run.state.word(), listed(run.instances.iter().map(ToString::to_string)))
                }
            };
            let sweeps = simulation.process.archive.sweeps.iter();
            let sweeps = sweeps.map(|(id, sweep)| format!("{id} {}", sweep.state.word()));
            simulation.all_runs().iter().map(state).chain(sweeps).collect::<Vec<_>>().join(", ")
        }
    };
    format!("{states}; machines left: {alive}")
}

/// The first of them, and how many there are more.
fn listed(mut machines: impl Iterator<Item = String>) -> String {
    let first: Vec<String> = machines.by_ref().take(LISTED).collect();
    match (first.is_empty(), machines.count()) {
        (true, _) => "none".to_owned(),
        (false, 0) => first.join(", "),
        (false, more) => format!("{} and {more} more", first.join(", ")),
    }
}

/// The violated invariant at the end, if any.
fn verdict(simulation: &Simulation) -> Option<String> {
    let controller = simulation.process.controller.as_ref()?;
    let world = &simulation.process.archive;
    let exact = !simulation.is_restored;
    let replayed = World::replay(&simulation.process.disk);
    if !replayed.is_ok_and(|mut replayed| {
        replayed.find_open();
        replayed.evict_settled(&BTreeSet::new());
        replayed == *controller.world()
    }) {
        return Some("the log replays to another world".into());
    }
    for run in &simulation.all_runs() {
        let budget = simulation.budget_of(run);
        let Some(known) = world.runs.get(run) else { return Some(format!("{run} is lost")) };
        let Some(bill) = &known.bill else { return Some(format!("{run} has no bill")) };
        let owed = owed(simulation, world, run);
        if exact && bill.total != owed {
            let wrong = known.instances.iter().filter_map(|instance| wrongly_billed(simulation, bill, instance));
            let wrong: Vec<String> = wrong.collect();
            return Some(format!("{run} is billed {} and owes {owed} [{}]", bill.total, wrong.join(", ")));
        }
        let beyond = budget.map_or(0, |budget| (bill.total.micros() - budget.micros()).max(0));
        if bill.adjustment.micros() != beyond {
            return Some(format!(
                "{run} has cost {beyond} micro-dollars beyond its budget, and says {}",
                bill.adjustment
            ));
        }
        if let Some(wrong) = simulation.wrong_end(world, run, known) {
            return Some(wrong);
        }
        if !simulation.asks_in_peace(run) {
            return Some(format!("{run} was asked for {} machines", known.instances.len()));
        }
        let completions = simulation.stores.get(run).map_or(0, |store| store.completions);
        // If a machine could not be reached, its end could not be known.
        let unknown = simulation.process.disk.iter().filter(|record| is_unreachable(&record.event, run)).count() as u32;
        let lost = simulation.cloud.machines.values().filter(|machine| machine.is_disk_lost).count() as u32;
        if exact && completions > 1 + unknown + lost + simulation.lost_decisions {
            return Some(format!("{run} was trained to its end {completions} times"));
        }
        if let Some(budget) = budget.filter(|budget| simulation.scenario.is_calm && bill.total > *budget) {
            return Some(format!("{run} is billed {} of a budget of {budget}", bill.total));
        }
    }
    if let Some(why) = sweeps::wrong(simulation, world).or_else(|| schedules::wrong(simulation, world)) {
        return Some(why);
    }
    let mut rented: Vec<&str> = simulation.cloud.machines.values().map(|machine| machine.instance.as_str()).collect();
    rented.sort_unstable();
    let double = rented.windows(2).find(|pair| pair[0] == pair[1]);
    // Without tokens, a request that the network repeats rents twice; both are ended and billed.
    let excused = simulation.scenario.traits.token_lifetime.is_none() && simulation.scenario.repeat > 0;
    double.filter(|_| exact && !excused).map(|pair| format!("{} was rented twice", pair[0]))
}

/// What is wrong with the lines of a machine on a bill.
fn wrongly_billed(simulation: &Simulation, bill: &Bill, instance: &InstanceId) -> Option<String> {
    let lines = bill.lines.iter().filter(|line| line.instance == *instance);
    let billed: u64 = lines.map(|line| line.usage.elapsed.0).sum();
    let name = simulation.machine_name(instance);
    let own = simulation.cloud.machines.values().filter(|machine| machine.instance == name);
    let metered: u64 =
        own.map(|machine| simulation.scenario.traits.billing.billed(machine.metered(simulation.now)).0).sum();
    (billed != metered).then(|| format!("{instance}: {} s of {} s", billed / SECOND, metered / SECOND))
}

/// Whether an attempt of this run was given up because its machine could not be reached.
fn is_unreachable(event: &Event, run: &RunId) -> bool {
    let (Event::AttemptEnded { attempt, end: AttemptEnd::Failed { finding, .. } }
    | Event::MemberEnded { attempt, end: AttemptEnd::Failed { finding, .. }, .. }) = event
    else {
        return false;
    };
    attempt.as_str().starts_with(&format!("{run}-")) && finding.message.ends_with("cannot be reached")
}

/// The cost of a run's machines as the cloud bills it.
fn owed(simulation: &Simulation, world: &World, run: &RunId) -> Money {
    let billing = simulation.scenario.traits.billing;
    let cost = |machine: &Machine| {
        let metered = machine.metered(simulation.now);
        let rent = simulation.settled_unseen.get(&machine.instance).copied().unwrap_or(billing.billed(metered));
        parts::owed(world, machine, rent, |_, instance| instance.run == *run)
    };
    simulation.cloud.machines.values().map(cost).sum()
}
