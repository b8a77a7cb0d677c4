//! Goodput: which share of its time a run on several machines makes steps that it keeps, while its machines end without a
//! word at random, compared with the model that plans rest on ([`plan::spot::paid`]).

use domain::Elapsed;
use domain::rental::{MachineHandle, ProviderTraits};
use plan::spot::{CheckpointOverhead, SpotAvailability, interval, paid};

use crate::scenario::{SECOND, Scenario, SimulatedMarket, SimulatedSchedule, SimulatedSweep, SimulatedWork};
use crate::simulation::{SimEvent, Simulation};
use crate::verdict::{Failure, finish};

/// Length of a step, in microseconds.
const STEP: u64 = 10 * SECOND;

/// A run whose goodput is measured.
#[derive(Debug, Clone, Copy)]
pub struct GoodputCase {
    /// Machines that it computes on.
    pub nodes: u32,
    /// Machines that stand by.
    pub spares: u32,
    /// Mean time between failures of the whole run, in seconds.
    pub mtbf: f64,
    /// What checkpoints and restarts are taken to cost.
    pub costs: CheckpointOverhead,
    /// Work in all, in hours.
    pub hours: u64,
}

impl GoodputCase {
    /// Checkpoints that stall a run for a second and are durable after 20 s.
    pub fn new(nodes: u32, mtbf: f64, restart: f64, hours: u64) -> GoodputCase {
        GoodputCase { nodes, spares: 1, mtbf, costs: CheckpointOverhead { stall: 1.0, lag: 20.0, restart }, hours }
    }

    /// Steps between two checkpoints.
    fn save_every(&self) -> u64 {
        ((interval(self.mtbf, &self.costs) * SECOND as f64 / STEP as f64).round() as u64).max(1)
    }

    /// What the model says.
    pub fn expected(&self) -> f64 {
        let work = (self.hours * 3_600) as f64;
        let interval = (self.save_every() * STEP / SECOND) as f64;
        work / paid(work, interval, SpotAvailability { up: self.mtbf, down: 0.0 }, &self.costs)
    }

    /// What comes of it with the failures of a seed: the time of the steps that were needed, by the time from the first of
    /// them to the last.
    ///
    /// # Errors
    /// [`Failure`] with what went wrong.
    pub fn measured(&self, seed: u64) -> Result<f64, Failure> {
        let steps = self.hours * 3_600 * SECOND / STEP;
        let work = SimulatedWork {
            steps,
            save_every: self.save_every(),
            step: Some(STEP),
            stall: (self.costs.stall * SECOND as f64) as u64,
            lag: (self.costs.lag * SECOND as f64) as u64,
            failures: Some((self.mtbf * SECOND as f64) as u64),
        };
        let mut simulation = Simulation::new(seed, self.scenario(seed, work), None);
        match finish(&mut simulation) {
            Ok(_) => {
                let wall = simulation.worked_until - simulation.worked_from.unwrap_or(0);
                Ok((steps * STEP) as f64 / wall.max(1) as f64)
            }
            Err(why) => Err(Failure { seed, why, trace: simulation.trace.unwrap_or_default() }),
        }
    }

    /// A run among whose machines nothing else fails.
    fn scenario(&self, seed: u64, work: SimulatedWork) -> Scenario {
        let boot = 60 * SECOND;
        let drawn = Scenario::draw(seed);
        Scenario {
            storm: 0,
            runs: 1,
            nodes: self.nodes,
            least: self.nodes,
            spares: self.spares,
            traits: ProviderTraits {
                visible_within: Elapsed(5 * SECOND),
                effective_within: Elapsed(2 * SECOND),
                boots_within: Elapsed(boot + 30 * SECOND),
                token_lifetime: Some(Elapsed(86_400 * SECOND * 365)),
                ..drawn.traits
            },
            boot,
            capacity: None,
            delay: SECOND / 10,
            is_calm: true,
            is_budgeted: false,
            has_leftover: false,
            are_deaf: false,
            is_slow: false,
            market: SimulatedMarket::default(),
            sweep: SimulatedSweep::default(),
            schedule: SimulatedSchedule::default(),
            on_demand: 0,
            is_served: true,
            work,
            ..drawn.cleared()
        }
    }
}

impl Simulation {
    /// Draws when a machine ends the next time.
    pub(crate) fn next_failure(&mut self) {
        let Some(mean) = self.scenario.work.failures else { return };
        let share = (self.draws.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
        let after = (-share.ln() * mean as f64) as u64;
        self.at(self.now + after.max(1), SimEvent::MachineFails);
    }

    /// One of the machines that make steps ends, without a word before.
    pub(crate) fn machine_fails(&mut self) {
        self.next_failure();
        let works = |machine: &crate::machine::Machine| machine.rank.as_ref().is_some_and(|rank| rank.may_run);
        let working: Vec<MachineHandle> = self
            .cloud
            .machines
            .iter()
            .filter(|(_, machine)| works(machine))
            .map(|(handle, _)| handle.clone())
            .collect();
        if working.is_empty() {
            return;
        }
        let handle = working[self.draws.below(working.len() as u64) as usize].clone();
        self.machine_disturbed(&handle, 0);
        let now = self.now;
        if let Some(machine) = self.cloud.machines.get_mut(&handle) {
            machine.end(now);
        }
    }
}
