//! The learning rate as a pure function of the step, so that it has no state to save.

use domain::train::{Decay, OneCycle, Schedule, Span};
use serde::{Deserialize, Serialize};

/// How long a run is, in optimiser steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Length {
    /// Steps in one epoch; at least 1.
    pub steps_per_epoch: u64,
    /// Steps in all epochs.
    pub steps: u64,
    /// Where steps and epochs were last counted together.
    pub origin: EpochOrigin,
}

/// A step after which an epoch begins: the start of the run, or of the epoch in which its data changed, which changed
/// the number of steps in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EpochOrigin {
    /// Steps before it.
    pub step: u64,
    /// The epoch that begins, from 0.
    pub epoch: u64,
}

impl EpochOrigin {
    /// Whether it is the start of the run.
    pub fn is_start(&self) -> bool {
        *self == EpochOrigin::default()
    }
}

impl Length {
    /// Of epochs with so many steps each.
    pub fn of(steps_per_epoch: u64, epochs: u32) -> Length {
        Length { steps_per_epoch, steps: steps_per_epoch * u64::from(epochs), origin: EpochOrigin::default() }
    }

    /// The same, where epochs have so many steps since `origin`.
    pub fn counted_from(self, origin: EpochOrigin, epochs: u32) -> Length {
        let length = Length { origin, ..self };
        Length { steps: length.end_of(epochs), ..length }
    }

    /// Steps after so many epochs.
    pub fn end_of(&self, epochs: u32) -> u64 {
        self.origin.step + self.steps_per_epoch * u64::from(epochs).saturating_sub(self.origin.epoch)
    }

    /// Complete epochs after a number of steps.
    pub fn epochs_after(&self, step: u64) -> u64 {
        self.origin.epoch + step.saturating_sub(self.origin.step) / self.steps_per_epoch.max(1)
    }

    /// Whether an epoch ends with this step, counted from 1.
    pub fn ends_epoch(&self, step: u64) -> bool {
        let since = step.checked_sub(self.origin.step);
        step > 0 && since.is_some_and(|since| since.is_multiple_of(self.steps_per_epoch.max(1)))
    }

    /// Steps between two times at which something is done this often; every epoch, unless it is said.
    fn between(&self, every: Option<Span>) -> u64 {
        let epoch = self.steps_per_epoch.max(1);
        match every {
            None => epoch,
            Some(Span::Steps(steps)) => steps.max(1),
            Some(Span::Epochs(epochs)) => ((epochs * epoch as f64).round() as u64).max(1),
        }
    }

    /// Whether something that is done this often is due after this step, counted from 1.
    pub fn is_due(&self, every: Option<Span>, step: u64) -> bool {
        let since = step.checked_sub(self.origin.step);
        step > 0 && since.is_some_and(|since| since.is_multiple_of(self.between(every)))
    }

    /// How often it was due up to this step.
    pub fn times_due(&self, every: Option<Span>, step: u64) -> u64 {
        step.saturating_sub(self.origin.step) / self.between(every)
    }

    /// The epoch, from 0, that this step ends or is in.
    pub fn epoch_ended_by(&self, step: u64) -> u32 {
        let epoch = match step.checked_sub(self.origin.step + 1) {
            Some(since) => self.origin.epoch + since / self.steps_per_epoch.max(1),
            None => self.origin.epoch.saturating_sub(1),
        };
        u32::try_from(epoch).unwrap_or(u32::MAX)
    }
}

/// The factor of the base rate for the `step`th update, counted from 0.
///
/// During a warm-up of `w` steps it is `(step + 1) / w`, so the first update is not wasted and the last one of the
/// warm-up uses the full rate. The cosine then is `(1 + cos(π · p)) / 2` with `p` the completed fraction of the
/// remaining steps: 1 for the first update after the warm-up, and it would be 0 for the one after the last (as
/// PyTorch's `CosineAnnealingLR` with `T_max` of all steps).
pub fn factor(schedule: &Schedule, length: Length, step: u64) -> f64 {
    let warmup = warmup_steps(schedule.warmup, length);
    if step < warmup {
        return (step + 1) as f64 / warmup as f64;
    }
    let rest = length.steps.saturating_sub(warmup).max(1);
    let done = ((step - warmup) as f64 / rest as f64).min(1.0);
    let above = |floor: f64, factor: f64| floor + (1.0 - floor) * factor;
    match &schedule.decay {
        Decay::Constant => 1.0,
        Decay::Cosine => above(schedule.floor, half_cosine(done)),
        Decay::Linear => above(schedule.floor, 1.0 - done),
        Decay::Poly(poly) => above(schedule.floor, (1.0 - done).powf(poly.power)),
        Decay::OneCycle(cycle) => one_cycle(cycle, length.steps, step),
        Decay::Step(decay) => {
            let epoch = length.epochs_after(step);
            let drops = decay.at.iter().filter(|at| u64::from(**at) <= epoch).count();
            decay.factor.powi(drops as i32)
        }
    }
}

/// From 1 to 0 while `done` goes from 0 to 1.
fn half_cosine(done: f64) -> f64 {
    0.5 * (1.0 + (std::f64::consts::PI * done).cos())
}

/// As PyTorch's `OneCycleLR` with two phases of half a cosine each: the rise starts at its minimum, the fall ends at
/// its own, and the full rate is reached at the step before `rise · steps`.
fn one_cycle(cycle: &OneCycle, steps: u64, step: u64) -> f64 {
    let (start, last) = (1.0 / cycle.start, steps.saturating_sub(1) as f64);
    let end = start / cycle.end;
    let top = (cycle.rise.get() * steps as f64 - 1.0).max(0.0);
    let between = |from: f64, to: f64, done: f64| to + (from - to) * half_cosine(done.clamp(0.0, 1.0));
    let step = step as f64;
    if step <= top && top > 0.0 {
        return between(start, 1.0, step / top);
    }
    between(1.0, end, (step - top) / (last - top).max(f64::MIN_POSITIVE))
}

/// The momentum of the `step`th update, counted from 0, where the schedule cycles it; SGD's, or the first decay rate of
/// rules with two. As PyTorch's `OneCycleLR` by default: from 0.95 to 0.85 while the rate rises, and back.
pub fn momentum(schedule: &Schedule, length: Length, step: u64) -> Option<f64> {
    const BASE: f64 = 0.85;
    const MOST: f64 = 0.95;
    let Decay::OneCycle(cycle) = &schedule.decay else { return None };
    let (last, step) = (length.steps.saturating_sub(1) as f64, step as f64);
    let top = (cycle.rise.get() * length.steps as f64 - 1.0).max(0.0);
    let between = |from: f64, to: f64, done: f64| to + (from - to) * half_cosine(done.clamp(0.0, 1.0));
    if step <= top && top > 0.0 {
        return Some(between(MOST, BASE, step / top));
    }
    Some(between(BASE, MOST, (step - top) / (last - top).max(f64::MIN_POSITIVE)))
}

fn warmup_steps(warmup: Option<Span>, length: Length) -> u64 {
    match warmup {
        None => 0,
        Some(Span::Steps(steps)) => steps,
        Some(Span::Epochs(epochs)) => (epochs * length.steps_per_epoch as f64).round() as u64,
    }
}

#[cfg(test)]
mod tests {
    use domain::train::{Poly, StepDecay};

    use super::*;

    fn check(schedule: &Schedule, expected: impl Fn(u64) -> f64) {
        let length = Length { steps_per_epoch: 10, steps: 50, ..Length::default() };
        for step in 0..50 {
            let (found, expected) = (factor(schedule, length, step), expected(step));
            assert!((found - expected).abs() < 1e-12, "step {step}: {found}, expected {expected}");
        }
    }

    #[test]
    fn intervals_are_counted_from_the_origin() {
        let length = Length::of(10, 5);
        let due = |length: Length, every| (0..=30).filter(|step| length.is_due(every, *step)).collect::<Vec<u64>>();
        assert_eq!(due(length, None), [10, 20, 30]);
        assert_eq!(due(length, None), (0..=30).filter(|step| length.ends_epoch(*step)).collect::<Vec<u64>>());
        assert_eq!(due(length, Some(Span::Steps(8))), [8, 16, 24]);
        assert_eq!(due(length, Some(Span::Epochs(0.25))), [3, 6, 9, 12, 15, 18, 21, 24, 27, 30]);
        assert_eq!(due(length, Some(Span::Epochs(2.0))), [20]);
        let moved = length.counted_from(EpochOrigin { step: 4, epoch: 1 }, 5);
        assert_eq!(due(moved, Some(Span::Steps(9))), [4, 13, 22]);
        assert_eq!(length.times_due(Some(Span::Steps(8)), 25), 3);
        assert_eq!(length.times_due(None, 30), 3);
    }

    #[test]
    fn schedules_are_their_closed_forms() {
        let plain = |decay| Schedule { warmup: None, decay, floor: 0.0 };
        check(&plain(Decay::Constant), |_| 1.0);
        check(&plain(Decay::Cosine), |step| (std::f64::consts::PI * step as f64 / 100.0).cos().powi(2));
        check(&plain(Decay::Step(StepDecay { at: vec![2, 4], factor: 0.1 })), |step| match step {
            0..20 => 1.0,
            20..40 => 0.1,
            _ => 0.01,
        });
    }

    #[test]
    fn ways_down_meet_their_ends_by_the_hundred() {
        for steps in (2..200).step_by(3) {
            let length = Length { steps_per_epoch: 7, steps, ..Length::default() };
            for floor in [0.0, 0.1] {
                for decay in
                    [Decay::Cosine, Decay::Linear, Decay::Poly(Poly { power: 2.0 }), Decay::Poly(Poly { power: 0.5 })]
                {
                    let schedule = Schedule { warmup: None, decay, floor };
                    let all: Vec<f64> = (0..=steps).map(|step| factor(&schedule, length, step)).collect();
                    assert!(all.is_sorted_by(|one, next| one > next), "{schedule:?} {steps}: {all:?}");
                    assert!(
                        (all[0] - 1.0).abs() < 1e-12 && (all[steps as usize] - floor).abs() < 1e-12,
                        "{schedule:?}"
                    );
                    let middle =
                        factor(&schedule, Length { steps_per_epoch: 7, steps: 2 * steps, ..Length::default() }, steps);
                    let expected = match schedule.decay {
                        Decay::Poly(poly) => 0.5f64.powf(poly.power),
                        Decay::Constant | Decay::Cosine | Decay::Linear | Decay::Step(_) | Decay::OneCycle(_) => 0.5,
                    };
                    assert!((middle - floor - (1.0 - floor) * expected).abs() < 1e-12, "{schedule:?} {middle}");
                }
            }
        }
    }

    /// Figures of `torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10, pct_start=0.3)`.
    #[test]
    fn one_cycle_is_pytorchs() {
        let cycle = OneCycle { rise: "30%".parse().unwrap(), start: 25.0, end: 1e4 };
        let schedule = Schedule { warmup: None, decay: Decay::OneCycle(cycle), floor: 0.0 };
        let found: Vec<f64> = (0..10)
            .map(|step| factor(&schedule, Length { steps_per_epoch: 5, steps: 10, ..Length::default() }, step))
            .collect();
        let expected = [
            0.04,
            0.52,
            1.0,
            0.9504846320134737,
            0.8117456539497631,
            0.6112620219362893,
            0.38874197806371075,
            0.18825834605023697,
            0.049519367986526286,
            4e-06,
        ];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{found}, expected {expected}");
        }
        // By the formula of its `cycle_momentum`, which is on by default.
        let expected = [
            0.95,
            0.9,
            0.85,
            0.854951556604879,
            0.8688255099070633,
            0.8888739533021842,
            0.9111260466978157,
            0.9311744900929366,
            0.945048443395121,
            0.95,
        ];
        let length = Length { steps_per_epoch: 5, steps: 10, ..Length::default() };
        for (step, expected) in (0..).zip(expected) {
            let found = momentum(&schedule, length, step).unwrap();
            assert!((found - expected).abs() < 1e-9, "{found}, expected {expected}");
        }
        assert_eq!(momentum(&Schedule::default(), length, 3), None);
    }

    #[test]
    fn warm_up_rises_to_the_full_rate() {
        let by_steps = Schedule { warmup: Some(Span::Steps(20)), ..Schedule::default() };
        check(&by_steps, |step| ((step + 1) as f64 / 20.0).min(1.0));
        let by_epochs = Schedule { warmup: Some(Span::Epochs(0.5)), decay: Decay::Cosine, floor: 0.0 };
        check(&by_epochs, |step| match step {
            0..5 => (step + 1) as f64 / 5.0,
            _ => (std::f64::consts::PI * (step - 5) as f64 / 90.0).cos().powi(2),
        });
    }

    #[test]
    fn a_warm_up_longer_than_the_run_is_no_fault() {
        let schedule = Schedule { warmup: Some(Span::Epochs(9.0)), decay: Decay::Cosine, floor: 0.0 };
        check(&schedule, |step| (step + 1) as f64 / 90.0);
    }
}
