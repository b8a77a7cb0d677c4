//! The learning rate as a pure function of the step, so that nothing of it needs saving.

use domain::train::{Decay, Schedule, Span};

/// How long a run is, in optimiser steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// Steps in one epoch; at least 1.
    pub steps_per_epoch: u64,
    /// Steps in all epochs.
    pub steps: u64,
}

/// What the base rate is multiplied by for the `step`th update, counted from 0.
///
/// During a warm-up of `w` steps it is `(step + 1) / w`, so the first update is not wasted and the last one of the
/// warm-up uses the full rate. The cosine then is `(1 + cos(π · p)) / 2` with `p` the share of the rest that is done:
/// 1 for the first update after the warm-up, and it would be 0 for the one after the last (as PyTorch's
/// `CosineAnnealingLR` with `T_max` of all steps).
pub fn factor(schedule: &Schedule, length: Length, step: u64) -> f64 {
    let warmup = warmup_steps(schedule.warmup, length);
    if step < warmup {
        return (step + 1) as f64 / warmup as f64;
    }
    match &schedule.decay {
        Decay::Constant => 1.0,
        Decay::Cosine => {
            let rest = length.steps.saturating_sub(warmup).max(1);
            let done = ((step - warmup) as f64 / rest as f64).min(1.0);
            0.5 * (1.0 + (std::f64::consts::PI * done).cos())
        }
        Decay::Step(decay) => {
            let epoch = step / length.steps_per_epoch.max(1);
            let drops = decay.at.iter().filter(|at| u64::from(**at) <= epoch).count();
            decay.factor.powi(drops as i32)
        }
    }
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
    use domain::train::StepDecay;

    use super::*;

    fn check(schedule: &Schedule, expected: impl Fn(u64) -> f64) {
        let length = Length { steps_per_epoch: 10, steps: 50 };
        for step in 0..50 {
            let (found, expected) = (factor(schedule, length, step), expected(step));
            assert!((found - expected).abs() < 1e-12, "step {step}: {found}, expected {expected}");
        }
    }

    #[test]
    fn schedules_are_their_closed_forms() {
        let plain = |decay| Schedule { warmup: None, decay };
        check(&plain(Decay::Constant), |_| 1.0);
        check(&plain(Decay::Cosine), |step| (std::f64::consts::PI * step as f64 / 100.0).cos().powi(2));
        check(&plain(Decay::Step(StepDecay { at: vec![2, 4], factor: 0.1 })), |step| match step {
            0..20 => 1.0,
            20..40 => 0.1,
            _ => 0.01,
        });
    }

    #[test]
    fn warm_up_rises_to_the_full_rate() {
        let by_steps = Schedule { warmup: Some(Span::Steps(20)), decay: Decay::Constant };
        check(&by_steps, |step| ((step + 1) as f64 / 20.0).min(1.0));
        let by_epochs = Schedule { warmup: Some(Span::Epochs(0.5)), decay: Decay::Cosine };
        check(&by_epochs, |step| match step {
            0..5 => (step + 1) as f64 / 5.0,
            _ => (std::f64::consts::PI * (step - 5) as f64 / 90.0).cos().powi(2),
        });
    }

    #[test]
    fn a_warm_up_longer_than_the_run_is_no_fault() {
        let schedule = Schedule { warmup: Some(Span::Epochs(9.0)), decay: Decay::Cosine };
        check(&schedule, |step| (step + 1) as f64 / 90.0);
    }
}
