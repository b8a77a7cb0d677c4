//! Stragglers: machines whose steps take longer than those of the others, one after the other.
//!
//! Only machines whose ranks report steps are compared. Ranks that wait for each other in every step all take as long as the
//! slowest, so that none of them stands out.

use std::collections::{BTreeMap, VecDeque};

use domain::rank::Step;
use domain::run::{InstanceState, RunState};
use domain::{AttemptId, Duration, Event, InstanceId};

use crate::world::{AttemptState, Run, World};

/// So many steps in succession are compared.
const COMPARED: usize = 20;

/// Each of them takes more than this share of the median step, in percent.
const SLOW: u64 = 150;

/// So many machines are replaced for one run; what is slow on each of them is the program.
const MOST_REPLACED: usize = 3;

/// The newest steps of each machine of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepTimes(BTreeMap<InstanceId, VecDeque<u64>>);

/// A machine that is slower than the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Straggler {
    /// Which.
    pub instance: InstanceId,
    /// Its median step.
    pub step: Duration,
    /// The median of all machines.
    pub median: Duration,
}

impl StepTimes {
    /// Takes in a step of a machine, unless its time is unknown. Time for checkpoints, which some save for the others,
    /// does not count.
    pub fn add(&mut self, instance: &InstanceId, step: &Step) {
        if step.step_us == 0 {
            return;
        }
        let times = self.0.entry(instance.clone()).or_default();
        if times.len() == COMPARED {
            times.pop_front();
        }
        times.push_back(step.step_us.saturating_sub(step.checkpoint_us));
    }

    /// The slowest of the machines that have been slower than the median for 20 steps, but for those that are known.
    pub fn straggler(&self, known: &[InstanceId]) -> Option<Straggler> {
        let full = self.0.iter().filter(|(_, times)| times.len() == COMPARED);
        let paces: Vec<_> = full.map(|(id, times)| (id, times, median(times.iter().copied()))).collect();
        if paces.len() < 2 {
            return None;
        }
        let typical = median(paces.iter().map(|(_, _, pace)| *pace));
        if typical == 0 {
            return None;
        }
        let is_slow = |time: &u64| time.saturating_mul(100) > typical.saturating_mul(SLOW);
        let slow = paces.iter().filter(|(id, times, _)| !known.contains(*id) && times.iter().all(is_slow));
        let (instance, _, pace) = slow.max_by_key(|(_, _, pace)| *pace)?;
        let (step, median) = (Duration::from_micros(*pace), Duration::from_micros(typical));
        Some(Straggler { instance: (*instance).clone(), step, median })
    }
}

/// The event that the steps of an attempt cause, once for each of its machines.
pub fn straggler_found(world: &World, id: &AttemptId, times: &StepTimes) -> Option<Event> {
    let attempt = world.attempts.get(id)?;
    let run = world.runs.get(&attempt.run)?;
    let is_ending = run.state.is_final() || matches!(run.state, RunState::Stopping { .. }) || attempt.is_resizing;
    if is_ending || !matches!(attempt.state, AttemptState::Ready { .. }) {
        return None;
    }
    let Straggler { instance, step, median } = times.straggler(&attempt.stragglers)?;
    let is_at_work = attempt.member(&instance).is_some_and(|member| member.end.is_none());
    let known = world.instances.get(&instance)?;
    if !is_at_work || known.state != InstanceState::Up || known.reclaim.is_some() {
        return None;
    }
    let is_replaced = replaces(world, run);
    Some(Event::StragglerFound { attempt: id.clone(), instance, step, median, is_replaced })
}

/// Whether another machine takes the place of a straggler.
fn replaces(world: &World, run: &Run) -> bool {
    let attempts = run.attempts.iter().filter_map(|id| world.attempts.get(id));
    let replaced = attempts.filter(|attempt| attempt.is_resizing && !attempt.stragglers.is_empty()).count();
    run.recovery().replace_stragglers && replaced < MOST_REPLACED
}

/// The median; of an even number of times, the lower of the two in the middle, so that two machines can be compared.
fn median(times: impl Iterator<Item = u64>) -> u64 {
    let mut sorted: Vec<u64> = times.collect();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use domain::RunId;
    use domain::rank::Fetching;

    use super::*;

    fn step(step_us: u64, checkpoint_us: u64) -> Step {
        let (step, epoch, loss, lr, samples, data_wait_us) = (1, 0, 1.0, 0.1, 8, 0);
        Step { step, epoch, loss, lr, samples, step_us, data_wait_us, checkpoint_us, data: Fetching::default() }
    }

    fn machine(number: u64) -> InstanceId {
        RunId::new("r").instance(number)
    }

    /// So many steps of each machine, numbered from 1, each as long as here.
    fn after(steps: usize, times: &[u64]) -> StepTimes {
        let mut all = StepTimes::default();
        for _ in 0..steps {
            for (time, number) in times.iter().zip(1..) {
                all.add(&machine(number), &step(*time, 0));
            }
        }
        all
    }

    #[track_caller]
    fn check(times: &StepTimes, expected: Option<u64>) {
        let found = times.straggler(&[]).map(|straggler| straggler.instance);
        assert_eq!(found, expected.map(machine));
    }

    #[test]
    fn one_that_is_slow_for_twenty_steps_is_found() {
        check(&after(20, &[100, 100, 151, 100]), Some(3));
        check(&after(19, &[100, 100, 151, 100]), None);
        let mut unknown = after(20, &[100, 100, 151, 100]);
        unknown.add(&machine(3), &step(0, 0));
        check(&unknown, Some(3));
        check(&after(20, &[100, 100, 150, 100]), None);
        check(&after(20, &[100, 200]), Some(2));
        check(&after(20, &[100, 300, 400, 100, 100]), Some(3));
        // Half of them are as slow: then it is not the machine.
        check(&after(20, &[100, 300, 300, 300]), None);
        check(&after(20, &[500]), None);
        check(&StepTimes::default(), None);
    }

    #[test]
    fn one_fast_step_or_a_checkpoint_ends_the_count() {
        let mut times = after(20, &[100, 100, 300]);
        assert_eq!(times.straggler(&[machine(3)]), None, "it is known");
        times.add(&machine(3), &step(300, 200));
        check(&times, None);
        for _ in 0..19 {
            times.add(&machine(3), &step(300, 0));
            check(&times, None);
        }
        times.add(&machine(3), &step(300, 0));
        check(&times, Some(3));
        let Straggler { step, median, .. } = times.straggler(&[]).unwrap();
        assert_eq!((step.micros(), median.micros()), (300, 100));
    }
}
