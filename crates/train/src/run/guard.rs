//! Handling of steps with a non-finite loss, gradient or state. Pure decisions.
//!
//! A single step is skipped: non-finite gradients updated nothing, as with `torch.amp.GradScaler`. If skipping does not
//! help, because of a second such step in a row or a state that is not finite itself, the run is rolled back to the
//! newest checkpoint, and the batches since then are skipped. A run that needs a third roll-back ends.

mod deferred;

use data::Cursor;

pub use deferred::lag;
pub(super) use deferred::{DeferredStep, DeferredSteps};

/// What is known after a step; the same on every rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepHealth {
    /// Whether loss and gradients were finite, so that the weights were updated.
    pub is_finite: bool,
    /// Whether losses are scaled, so that gradients overflow now and then until the scale has adapted.
    pub is_scaled: bool,
    /// Whether weights, buffers and optimizer state are finite.
    pub has_finite_state: bool,
}

/// Decision about a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reaction {
    /// All is well.
    Continue,
    /// The step counts, although it updated nothing.
    Skip,
    /// Resume from the newest checkpoint, without the batches since then.
    RollBack,
}

/// Steps in a row that are skipped before a roll-back.
const SKIPS: u32 = 1;
/// Roll-backs before the run ends.
pub(super) const ROLLBACKS: u32 = 2;

/// Counts steps that were skipped in a row.
#[derive(Debug, Default)]
pub(super) struct FiniteGuard {
    skipped: u32,
}

impl FiniteGuard {
    /// Decides about a step.
    pub fn after(&mut self, step: StepHealth) -> Reaction {
        match step {
            StepHealth { has_finite_state: false, .. } => Reaction::RollBack,
            StepHealth { is_finite: true, .. } => {
                self.skipped = 0;
                Reaction::Continue
            }
            // The scale is halved at each such step, and `GradScaler` ends the run when it is too small.
            StepHealth { is_scaled: true, .. } => Reaction::Skip,
            StepHealth { is_scaled: false, .. } if self.skipped < SKIPS => {
                self.skipped += 1;
                Reaction::Skip
            }
            StepHealth { is_scaled: false, .. } => Reaction::RollBack,
        }
    }
}

/// The reason for a roll-back, and where the run continues.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RollBack {
    /// The step after which the state was not to be used.
    pub step: u64,
    /// The data position to continue from: after the batch of that step.
    pub cursor: Cursor,
    /// The non-finite value, such as "the loss of step 12 is `NaN`".
    pub why: String,
    /// The samples of that step's batch.
    pub samples: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each letter is a step: `.` is finite, `x` has gradients that are not, `X` a state that is not.
    #[track_caller]
    fn check(steps: &str, is_scaled: bool, expected: &str) {
        let mut guard = FiniteGuard::default();
        let reactions = steps.chars().map(|step| {
            let health = StepHealth { is_finite: step == '.', is_scaled, has_finite_state: step != 'X' };
            match guard.after(health) {
                Reaction::Continue => '.',
                Reaction::Skip => 's',
                Reaction::RollBack => 'r',
            }
        });
        assert_eq!(reactions.collect::<String>(), expected);
    }

    #[test]
    fn a_step_is_skipped_and_a_second_one_in_a_row_is_rolled_back() {
        check("..x..x.", false, "..s..s.");
        check("..xx", false, "..sr");
        check("..X", false, "..r");
        check("xxxxxx.x", true, "ssssss.s");
        check("xX", true, "sr");
    }
}
