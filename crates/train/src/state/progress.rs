//! Progress of a run: the saved state besides tensors.

use data::Cursor;
use domain::rank::TaskMetrics;
use serde::{Deserialize, Serialize};

use crate::optim::schedule::EpochOrigin;

/// The saved state besides tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainProgress {
    /// Optimiser steps done.
    pub step: u64,
    /// Epoch of the next batch.
    pub epoch: u64,
    /// Samples of that epoch that were used.
    pub position: u64,
    /// Whether the validation split was scored after this step. Always so at an epoch's end, except when an order to
    /// stop came in between.
    pub evaluated: bool,
    /// Threads of libtorch, which are part of the result.
    pub threads: u32,
    /// The best scores.
    pub best: Option<BestScore>,
    /// SHA-256 of the file of a network that the user has built; its program is not in a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The digest of the data that was trained on; none from versions that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// From where steps and epochs are counted together; not from 0 where the data has changed since.
    #[serde(default, skip_serializing_if = "EpochOrigin::is_start")]
    pub origin: EpochOrigin,
    /// For SWA, how many weights are in the average; none from versions that counted ends of epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub averaged: Option<u64>,
}

impl TrainProgress {
    /// One more step is done; `cursor` is where the loader stands then.
    pub(crate) fn advance_to(&mut self, cursor: Cursor) {
        self.step += 1;
        (self.epoch, self.position) = (cursor.epoch, cursor.pos);
        self.evaluated = false;
    }

    /// Continues in an epoch that now has the given number of samples, or with the next epoch if it has fewer than were
    /// used. Scores on the earlier data are no measure of the present weights.
    pub(super) fn count_anew(&mut self, samples: u64, batch: u64) {
        (self.best, self.evaluated) = (None, false);
        if self.position < samples {
            let began = self.step.saturating_sub(self.position.div_ceil(batch.max(1)));
            self.origin = EpochOrigin { step: began, epoch: self.epoch };
        } else {
            (self.epoch, self.position) = (self.epoch + 1, 0);
            self.origin = EpochOrigin { step: self.step, epoch: self.epoch };
        }
    }
}

/// The best scores on the validation split, and when they were made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BestScore {
    /// Step after which they were made.
    pub step: u64,
    /// Mean loss.
    pub loss: f64,
    /// Share of correct predictions, in 0–1; for boxes the mean average precision.
    pub accuracy: f64,
    /// What else was measured.
    #[serde(default, skip_serializing_if = "TaskMetrics::is_empty")]
    pub figures: TaskMetrics,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_on_earlier_data_are_forgotten() {
        let best = BestScore { step: 10, loss: 0.1, accuracy: 0.99, figures: TaskMetrics::default() };
        let mut progress = TrainProgress {
            step: 12,
            epoch: 2,
            position: 16,
            evaluated: true,
            threads: 1,
            best: Some(best),
            module: None,
            data: None,
            origin: EpochOrigin::default(),
            averaged: None,
        };
        progress.count_anew(40, 8);
        assert_eq!((progress.best, progress.evaluated), (None, false));
        assert_eq!(progress.origin, EpochOrigin { step: 10, epoch: 2 });
    }
}
