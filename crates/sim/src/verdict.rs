//! What must hold at the end of a schedule.

use std::collections::BTreeSet;

use domain::event::Event;
use domain::run::{AttemptEnd, RunState};
use domain::{Elapsed, Money, RunId};
use plan::World;

use crate::job::rate;
use crate::rule::Rule;
use crate::scenario::{SECOND, Scenario};
use crate::simulation::{ScheduleStats, Simulation};

/// After the storm, all that was begun ends within this time.
const QUIET: u64 = 4 * 3_600 * SECOND;

/// Most events of a schedule; one that has more is taken to run for ever.
const MOST: u32 = 200_000;

/// A schedule that went wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What must not happen, and did.
    pub why: String,
    /// What happened, in order, where it was asked for.
    pub trace: Vec<String>,
}

/// Runs the schedule of a seed, with one rule broken or none.
///
/// # Errors
/// [`Failure`] with what went wrong.
pub fn check(seed: u64, rule: Option<Rule>) -> Result<ScheduleStats, Failure> {
    run(seed, Scenario::draw(seed), rule, false)
}

/// Runs the schedule of a seed in a scenario that may be another than its own; `is_traced` keeps what happens.
///
/// # Errors
/// [`Failure`] with what went wrong.
pub fn run(seed: u64, scenario: Scenario, rule: Option<Rule>, is_traced: bool) -> Result<ScheduleStats, Failure> {
    let mut simulation = Simulation::new(seed, scenario, rule);
    simulation.trace = is_traced.then(Vec::new);
    let last = simulation.scenario.storm + QUIET;
    let mut happened = 0_u32;
    let why = loop {
        if let Some(violation) = simulation.violation.take() {
            break Some(violation);
        }
        if !simulation.is_stormy && is_done(&simulation) {
            break verdict(&simulation);
        }
        happened += 1;
        if simulation.now > last || happened > MOST || !simulation.advance() {
            break Some(format!("does not come to an end: {}", standing(&simulation)));
        }
    };
    let mut stats = simulation.stats;
    stats.events = simulation.process.disk.len() as u64;
    match why {
        None => Ok(stats),
        Some(why) => Err(Failure { seed, why, trace: simulation.trace.unwrap_or_default() }),
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
    all_ended && simulation.process.unsynced.is_empty() && simulation.runs.iter().all(is_billed)
}

fn standing(simulation: &Simulation) -> String {
    let alive = simulation.cloud.machines.iter().filter(|(_, machine)| machine.is_alive());
    let alive: Vec<String> = alive.map(|(handle, machine)| format!("{} ({})", handle.0, machine.instance)).collect();
    let states = match &simulation.process.controller {
        None => "the loop is gone".to_owned(),
        Some(_) => {
            let state = |run: &RunId| match simulation.process.archive.runs.get(run) {
                None => format!("{run} is unknown"),
                Some(run) => format!("{} {:?}", run.state.word(), run.instances),
            };
            simulation.runs.iter().map(state).collect::<Vec<_>>().join(", ")
        }
    };
    format!("{states}; machines left: {alive:?}")
}

/// What is wrong at the end, if anything.
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
    for run in &simulation.runs {
        let Some(known) = world.runs.get(run) else { return Some(format!("{run} is lost")) };
        let Some(bill) = &known.bill else { return Some(format!("{run} has no bill")) };
        let owed = owed(simulation, world, run);
        if exact && bill.total != owed {
            return Some(format!("{run} is billed {} and owes {owed}", bill.total));
        }
        let completions = simulation.stores.get(run).map_or(0, |store| store.completions);
        // Where a machine could not be reached, nobody could know that it had come to its end.
        let unknown = simulation.process.disk.iter().filter(|record| is_unreachable(&record.event, run)).count() as u32;
        if exact && completions > 1 + unknown {
            return Some(format!("{run} was trained to its end {completions} times"));
        }
        if let Some(budget) = simulation.budget.filter(|budget| simulation.scenario.is_calm && bill.total > *budget) {
            return Some(format!("{run} is billed {} of a budget of {budget}", bill.total));
        }
    }
    let mut rented: Vec<&str> = simulation.cloud.machines.values().map(|machine| machine.instance.as_str()).collect();
    rented.sort_unstable();
    let double = rented.windows(2).find(|pair| pair[0] == pair[1]);
    // Where there are no tokens, a request that the network repeats rents twice; both are ended and billed.
    let excused = simulation.scenario.traits.token_lifetime.is_none() && simulation.scenario.repeat > 0;
    double.filter(|_| exact && !excused).map(|pair| format!("{} was rented twice", pair[0]))
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

/// What the cloud has metered of a run's machines.
fn owed(simulation: &Simulation, world: &World, run: &RunId) -> Money {
    let machines = simulation.cloud.machines.values();
    let own = machines.filter(|machine| world.instances.get(&machine.instance).is_some_and(|known| known.run == *run));
    own.map(|machine| rate().cost(Elapsed(machine.ended.unwrap_or(simulation.now) - machine.rented))).sum()
}
