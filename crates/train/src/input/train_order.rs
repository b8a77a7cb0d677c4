//! In which order the training samples come, what they are called, and how much their classes count.

use std::ops::Range;

use data::{Part, SampleOrder, TrainOrder};
use domain::finding::{Cause, Finding};
use domain::train::Train;

use super::TrainingData;
use crate::error::Error;

/// How many samples of a batch are named in a message.
const NAMED_SAMPLES: u64 = 8;

impl TrainingData {
    /// The training samples at these positions of the order of an epoch, in words: their number, and the first few names.
    pub fn sample_names(&self, train: &Train, epoch: u64, positions: Range<u64>) -> String {
        let [count, _, _] = self.counts();
        let (order, count) = (self.order(train), positions.end.min(count).saturating_sub(positions.start));
        let name = |position| {
            let place = order.at(epoch, position);
            match self {
                TrainingData::Images(dataset) => {
                    let sample = dataset.part(Part::Train).get(place as usize).copied().unwrap_or_default();
                    format!("`{}`", dataset.name(sample))
                }
                TrainingData::Detection(_) | TrainingData::Text(_) => format!("`{place}`"),
            }
        };
        let names: Vec<String> = positions.take(count.min(NAMED_SAMPLES) as usize).map(name).collect();
        match count.saturating_sub(NAMED_SAMPLES) {
            0 => format!("the samples {}", names.join(", ")),
            others => format!("the samples {} and {others} more", names.join(", ")),
        }
    }

    /// The order of the training samples.
    fn order(&self, train: &Train) -> TrainOrder {
        let [samples, _, _] = self.counts();
        match self {
            TrainingData::Images(dataset) => dataset.order(Part::Train, train.data.sampling, train.seed),
            TrainingData::Detection(_) => TrainOrder::Shuffled(SampleOrder::new(samples, train.seed)),
            TrainingData::Text(texts) => texts.order(train.data.sampling, train.seed),
        }
    }

    /// How much each class counts in the training loss; none where all count alike.
    ///
    /// # Errors
    /// When the job has weights for another number of classes.
    pub fn class_weights(&self, train: &Train) -> Result<Option<Vec<f32>>, Error> {
        let Some(weights) = &train.class_weights else { return Ok(None) };
        let counts = match self {
            TrainingData::Images(dataset) => dataset.class_counts(Part::Train),
            TrainingData::Text(texts) => texts.class_counts(Part::Train),
            TrainingData::Detection(_) => Vec::new(),
        };
        let weights = weights.of(&counts).map_err(|given| {
            let message = format!("`class_weights` has {given} weights, and the data has {} classes", counts.len());
            Finding::new(Cause::Job, message)
                .hint("write one for each class, in the order of their names, or `balanced`")
        })?;
        Ok(Some(weights.into_iter().map(|weight| weight as f32).collect()))
    }
}
