//! The members of an attempt: those on demand are, one of them is node rank 0, and what is left of a run keeps its machines
//! while another member is replaced.

use domain::run::{InstanceState, RunState};
use domain::{AttemptId, InstanceId, Timestamp};
use plan::AttemptState;

use crate::scenario::SECOND;
use crate::simulation::Simulation;

/// Machines wait so long for the others of their run, at least.
const WAITS: u64 = 60 * SECOND;

impl Simulation {
    /// An attempt begins on one of its machines.
    pub(crate) fn check_members(&mut self, attempt: &AttemptId) {
        if self.scenario.on_demand == 0 || self.is_restored {
            return;
        }
        let world = self.process.controller.as_ref().map(control::Controller::world);
        let Some(known) = world.and_then(|world| world.attempts.get(attempt)) else { return };
        // Trials are rented on the same terms.
        if world.and_then(|world| world.runs.get(&known.run)).is_some_and(|run| run.trial.is_some()) {
            return;
        }
        let is_anchor = |id: &InstanceId| {
            let name = self.machine_name(id);
            self.cloud.machines.values().any(|machine| machine.instance == name && machine.is_anchor)
        };
        let anchors: Vec<bool> = known.instances().map(is_anchor).collect();
        let held = anchors.iter().filter(|is_anchor| **is_anchor).count();
        let is_fixed = self.scenario.least == self.scenario.nodes && self.scenario.spares == 0;
        if is_fixed && held != self.scenario.on_demand as usize {
            let wanted = self.scenario.on_demand;
            return self.violate(format!("{attempt} has {held} machines on demand, and {wanted} are asked for"));
        }
        if !anchors.is_sorted_by(|before, after| before >= after) {
            self.violate(format!("{attempt} has a spot machine before one on demand: {anchors:?}"));
        }
    }

    /// A machine that is well is not given back while another one of its run is replaced.
    pub(crate) fn check_survivor(&mut self, instance: &InstanceId) {
        let scenario = &self.scenario;
        if !scenario.is_clear || !self.is_stormy || self.is_restored || scenario.nodes == 1 {
            return;
        }
        let Some(world) = self.process.controller.as_ref().map(control::Controller::world) else { return };
        let Some(known) = world.instances.get(instance).filter(|known| known.reclaim.is_none()) else { return };
        let Some(run) = world.runs.get(&known.run) else { return };
        let is_over = run.state.is_final() || matches!(run.state, RunState::Stopping { .. });
        let name = known.machine_name(instance);
        let mut machines = self.cloud.machines.values().filter(|machine| machine.instance == *name);
        let (Some(machine), None) = (machines.next(), machines.next()) else { return };
        let heard = machine.agent.is_some() && machine.healthy_at.is_some_and(|at| self.now < at + 30 * SECOND);
        let is_well = heard && machine.is_alive() && !machine.is_frozen && machine.dark_until == 0;
        // The event is written: its state before that is not known here any more.
        let live = world.live_instances_of(run).filter(|(_, one)| one.state != InstanceState::Releasing).count();
        let is_one_too_many = live >= (scenario.nodes + scenario.spares) as usize;
        if is_over || !is_well || is_one_too_many {
            return;
        }
        let ended = run.attempts.last().and_then(|id| world.attempts.get(id)).map(|attempt| &attempt.state);
        let since = match ended {
            Some(AttemptState::Ended { at, .. }) => *at,
            Some(_) => Timestamp(self.wall()),
            None => return,
        };
        if Timestamp(self.wall()).since(since).0 < WAITS {
            self.violate(format!("{instance} is well, and is given back while others of its run are replaced"));
        }
    }
}
