//! Schedules: each due time is settled once and in its order, by one run or sweep or by none, as the policies of the schedule
//! say.

use std::collections::BTreeSet;

use domain::event::Event;
use domain::schedule::{CatchUpPolicy, OverlapPolicy, SkipReason};
use domain::{RunId, SweepId, Timestamp};
use plan::{SweepRecord, World};

use crate::job::schedule::{is_of_schedule, schedule_id};
use crate::scenario::SECOND;
use crate::simulation::Simulation;

/// A due time that is at most so old is on time.
const ON_TIME: u64 = 300 * SECOND;

/// Between the decision on a run and its submission: planning and what is on its way.
const LATE: u64 = 60 * SECOND;

impl Simulation {
    /// The runs of the schedule that are in the log, and the trials of its sweeps.
    pub(crate) fn due_runs(&self) -> Vec<RunId> {
        self.process.archive.runs.keys().filter(|run| is_of_schedule(run)).cloned().collect()
    }

    /// Whether the schedule, if there is one, is paused, and what it has submitted is written down.
    pub(crate) fn is_schedule_done(&self) -> bool {
        if self.scenario.schedule.every == 0 {
            return true;
        }
        let Some(record) = self.process.archive.schedules.get(&schedule_id()) else { return false };
        let (archive, fired) = (&self.process.archive, self.fired());
        let is_known =
            |run: &RunId| archive.runs.get(run).is_none_or(|known| known.trial.is_some()) || fired.contains(run);
        let is_over = |(id, sweep): (&SweepId, &SweepRecord)| {
            let name = RunId::new(id.as_str());
            !is_of_schedule(&name) || (fired.contains(&name) && sweep.state.is_final())
        };
        record.paused.is_some() && self.due_runs().iter().all(is_known) && archive.sweeps.iter().all(is_over)
    }

    /// The runs that are written down as those of due times.
    fn fired(&self) -> BTreeSet<RunId> {
        let fired = self.process.disk.iter().filter_map(|record| match &record.event {
            Event::ScheduleFired { run, .. } => Some(run.clone()),
            _ => None,
        });
        fired.collect()
    }

    /// A run or sweep of the schedule is submitted: the only one of its due time, beside no other, and not too late.
    pub(crate) fn check_due(&mut self, run: &RunId) {
        let Some(due) = self.keeper.asked.get(run).copied().filter(|_| !self.is_restored) else { return };
        self.stats.due += 1;
        let asked = self.keeper.asked.iter().filter(|(other, of)| **of == due && *other != run);
        if let Some((other, _)) = asked.clone().find(|(other, _)| is_submitted(&self.process.archive, other)) {
            let other = other.clone();
            return self.violate(format!("{other} and {run} are runs of the same due time"));
        }
        let Some(controller) = &self.process.controller else { return };
        let world = controller.world();
        let runs = world.runs.iter().filter(|(_, known)| known.trial.is_none() && !known.state.is_final());
        let sweeps = world.sweeps.iter().filter(|(_, known)| !known.state.is_final());
        let mut open = runs.map(|(id, _)| id.clone()).chain(sweeps.map(|(id, _)| RunId::new(id.as_str())));
        if let Some(other) = open.find(|other| other != run && is_of_schedule(other)) {
            return self.violate(format!("{run} is submitted beside {other}"));
        }
        if self.is_too_late(due) {
            self.violate(format!("{run} is submitted, and a later due time has passed"));
        }
    }

    fn is_too_late(&self, due: Timestamp) -> bool {
        let now = Timestamp(self.wall());
        let schedule = &self.scenario.schedule;
        let next = self.due_times().and_then(|times| times.next(due));
        let is_passed = next.is_some_and(|next| now.0 > next.0 && now.since(next).0 > LATE);
        let is_old = now.0 > due.0 && now.since(due).0 > ON_TIME + LATE;
        let is_late = match schedule.catch_up {
            CatchUpPolicy::All => false,
            CatchUpPolicy::Latest => is_passed,
            CatchUpPolicy::None => is_passed || (is_old && schedule.overlap == OverlapPolicy::Skip),
        };
        is_late && !self.scenario.is_skewed
    }
}

/// What is wrong with the schedule at the end, if anything.
pub(super) fn wrong(simulation: &Simulation, world: &World) -> Option<String> {
    let schedule = &simulation.scenario.schedule;
    if schedule.every == 0 {
        return None;
    }
    let Some(times) = simulation.due_times() else { return Some("the schedule has no due times".into()) };
    let mut settled: Option<Timestamp> = None;
    let mut fired: BTreeSet<&RunId> = BTreeSet::new();
    for record in &simulation.process.disk {
        let (due, count) = match &record.event {
            Event::ScheduleAdded(_) => {
                settled = Some(record.at);
                continue;
            }
            Event::ScheduleFired { due, run, .. } => {
                if !is_submitted(world, run) {
                    return Some(format!("{run} is the run of a due time, and was not submitted"));
                }
                if !fired.insert(run) {
                    return Some(format!("{run} is the run of two due times"));
                }
                (*due, 1)
            }
            Event::ScheduleSkipped { due, count, why, .. } => {
                if is_unwanted(why, schedule.catch_up, schedule.overlap) {
                    return Some(format!("{count} due times have no run: {why:?}"));
                }
                (*due, *count)
            }
            _ => continue,
        };
        let Some(after) = settled.replace(due) else { return Some("a due time of no schedule is settled".into()) };
        let span = times.between(after, due);
        if span.is_none_or(|span| span.count != count || span.last != due) {
            return Some(format!(
                "{count} due times are settled between {} and {}, which has {span:?}",
                after.0, due.0
            ));
        }
    }
    None
}

/// Whether a run or sweep of this name is in the log.
fn is_submitted(world: &World, name: &RunId) -> bool {
    world.runs.contains_key(name) || world.sweeps.contains_key(&SweepId::new(name.as_str()))
}

/// Whether the policies of a schedule do not let due times go by for this reason.
fn is_unwanted(why: &SkipReason, catch_up: CatchUpPolicy, overlap: OverlapPolicy) -> bool {
    match why {
        SkipReason::Missed => catch_up == CatchUpPolicy::All,
        SkipReason::Overlap => overlap != OverlapPolicy::Skip,
        SkipReason::Refused { .. } => false,
    }
}
