//! The scope of a decision: all open work, or only work that may have changed.

use std::collections::BTreeSet;

use domain::run::InstanceState;
use domain::{RunId, SweepId};

use crate::world::{Instance, Run, World};

/// Runs and sweeps that a decision looks at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// Runs.
    pub runs: BTreeSet<RunId>,
    /// Sweeps. A sweep is decided with what is known of all of its trials.
    pub sweeps: BTreeSet<SweepId>,
}

impl Scope {
    /// All that is open.
    pub fn all(world: &World) -> Scope {
        let open = world.sweeps.iter().filter(|(_, sweep)| !sweep.state.is_final());
        Scope {
            runs: world.open_runs().map(|(id, _)| id.clone()).collect(),
            sweeps: open.map(|(id, _)| id.clone()).collect(),
        }
    }

    /// Whether the scope is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.sweeps.is_empty()
    }

    /// Whether it has all that another scope has.
    pub fn holds(&self, other: &Scope) -> bool {
        self.runs.is_superset(&other.runs) && self.sweeps.is_superset(&other.sweeps)
    }

    /// Adds a run, and the sweep that it is a trial of, with all other trials that share its budget.
    pub fn add_run(&mut self, world: &World, id: &RunId) {
        let trial = world.runs.get(id).and_then(|run| run.trial.as_ref());
        self.sweeps.extend(trial.map(|trial| trial.sweep.clone()));
        let sweep = trial.and_then(|trial| world.sweeps.get(&trial.sweep));
        if let Some(sweep) = sweep.filter(|sweep| sweep.job.budget.is_some()) {
            self.runs.extend(world.trials(sweep).filter(|(id, _)| world.is_open(id)).map(|(id, _)| id.clone()));
        }
        if !self.runs.contains(id) {
            self.runs.insert(id.clone());
        }
    }

    /// Adds the runs that may ask for another machine: the first of them uses a slot, or an offer, that has become free.
    pub fn add_waiting(&mut self, world: &World) {
        for (id, run) in world.open_runs() {
            let kept = world.live_instances_of(run).filter(|(_, instance)| is_kept(run, instance));
            if !run.state.is_final() && kept.count() < run.job.machines() as usize {
                self.add_run(world, id);
            }
        }
    }
}

/// Whether a run asks for no other machine beside this one. Beside one that will be reclaimed it does, and, where it has a
/// choice, beside one that it was not granted yet.
fn is_kept(run: &Run, instance: &Instance) -> bool {
    match instance.state {
        InstanceState::Intended => run.plan.alternatives.is_empty(),
        InstanceState::Launching | InstanceState::Up => instance.reclaim.is_none(),
        InstanceState::Releasing | InstanceState::Released { .. } => false,
    }
}
