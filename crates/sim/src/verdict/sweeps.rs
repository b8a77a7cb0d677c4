//! Sweeps: that they end, what they cost, and how many of their trials are open at the same time.

use domain::event::Event;
use domain::run::StopBy;
use domain::sweep::SweepEnd;
use domain::{Money, RunId, SweepId};
use plan::{SweepRecord, SweepState, World};

use super::owed;
use crate::job::schedule::is_of_schedule;
use crate::job::sweep::{is_of_sweep, sweep_id};
use crate::simulation::Simulation;

impl Simulation {
    /// The runs that users submit, and those of their sweep and their schedule as far as they are in the log.
    pub(crate) fn all_runs(&self) -> Vec<RunId> {
        self.runs.iter().cloned().chain(self.trials()).chain(self.due_runs()).collect()
    }

    fn trials(&self) -> Vec<RunId> {
        self.process.archive.sweeps.get(&sweep_id()).map(|sweep| sweep.trials.clone()).unwrap_or_default()
    }

    /// The budget of a run. Trials have none of their own, and runs of a schedule none.
    pub(crate) fn budget_of(&self, run: &RunId) -> Option<Money> {
        self.budget.filter(|_| !is_of_sweep(run) && !is_of_schedule(run))
    }

    /// Whether its sweep, if there is one, is at an end that its user leaves it at.
    pub(crate) fn is_sweep_done(&self) -> bool {
        let Some(sweep) = self.process.archive.sweeps.get(&sweep_id()) else { return self.scenario.sweep.trials == 0 };
        let is_stopped = matches!(sweep.state, SweepState::Ended { how: SweepEnd::Stopped { .. } });
        sweep.state.is_final() && (self.sweep_budget.is_some() || !is_stopped)
    }

    /// A user stops or resumes the sweep, or stops one of its trials.
    pub(crate) fn user_of_sweep(&mut self) {
        let trials = self.trials();
        let event = match (self.draws.below(3), trials.is_empty()) {
            (0, _) => Event::SweepStopRequested { sweep: sweep_id(), by: StopBy::User },
            (1, false) => {
                let run = trials[self.draws.below(trials.len() as u64) as usize].clone();
                Event::StopRequested { run, by: StopBy::User }
            }
            _ => resume_sweep(),
        };
        match self.draws.below(2) {
            0 => self.user_asks(event),
            _ => self.other_process(event),
        }
    }

    /// In the quiet after the storm the sweep is resumed until it ends.
    pub(crate) fn user_resumes_sweep(&mut self) {
        if !self.is_sweep_done() && self.process.archive.sweeps.get(&sweep_id()).is_some_and(|it| it.state.is_final()) {
            self.user_asks(resume_sweep());
        }
    }

    /// No more trials of a sweep are open than may be at the same time.
    pub(crate) fn check_trials(&mut self) {
        let world = &self.process.archive;
        let crowded = world.sweeps.values().find_map(|sweep| {
            let (open, most) =
                (world.trials(sweep).filter(|(_, run)| !run.state.is_final()).count(), sweep.search.parallel);
            (open > most as usize).then(|| format!("{open} trials are open, and {most} may be"))
        });
        if let Some(why) = crowded {
            self.violate(why);
        }
    }
}

fn resume_sweep() -> Event {
    Event::SweepResumeRequested { sweep: sweep_id(), budget: None, deadline: None, accept_data_change: false }
}

/// What is wrong with the sweeps at the end, if anything.
pub(super) fn wrong(simulation: &Simulation, world: &World) -> Option<String> {
    if simulation.scenario.sweep.trials > 0 && !world.sweeps.contains_key(&sweep_id()) {
        return Some("the sweep is lost".into());
    }
    world.sweeps.iter().find_map(|(id, sweep)| wrong_sweep(simulation, world, (id, sweep)))
}

/// What is wrong with a sweep at the end, if anything.
fn wrong_sweep(simulation: &Simulation, world: &World, (id, sweep): (&SweepId, &SweepRecord)) -> Option<String> {
    let Some(total) = sweep.total else { return Some(format!("sweep {id} has no total")) };
    let most = sweep.search.trials.unwrap_or(0) as usize;
    if sweep.trials.len() > most {
        return Some(format!("{} trials of sweep {id} were submitted of {most}", sweep.trials.len()));
    }
    let billed: Money = world.trials(sweep).filter_map(|(_, run)| Some(run.bill.as_ref()?.total)).sum();
    if total != billed {
        return Some(format!("sweep {id} has cost {total}, and its trials {billed}"));
    }
    let owed: Money = sweep.trials.iter().map(|run| owed(simulation, world, run)).sum();
    if total != owed && !simulation.is_restored {
        return Some(format!("sweep {id} has cost {total}, and owes {owed}"));
    }
    let is_beyond = |budget: &Money| *id == sweep_id() && simulation.scenario.is_calm && total > *budget;
    let budget = simulation.sweep_budget.filter(is_beyond)?;
    Some(format!("sweep {id} has cost {total} of a budget of {budget}"))
}
