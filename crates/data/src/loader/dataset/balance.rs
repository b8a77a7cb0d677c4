//! How many samples each class has, and the order in which they are drawn.

use domain::train::Sampling;

use super::Dataset;
use crate::{BalancedOrder, Part, SampleOrder, TrainOrder};

impl Dataset {
    /// Samples of each class in a part.
    pub fn class_counts(&self, part: Part) -> Vec<u64> {
        let mut counts = vec![0; self.classes().len()];
        for sample in self.part(part) {
            counts[self.label(*sample) as usize] += 1;
        }
        counts
    }

    /// The order in which the samples of a part are drawn.
    pub fn order(&self, part: Part, sampling: Sampling, seed: u64) -> TrainOrder {
        match sampling {
            Sampling::Shuffle => TrainOrder::Shuffled(SampleOrder::new(self.count(part), seed)),
            Sampling::Balanced => {
                let labels = self.part(part).iter().map(|sample| self.label(*sample));
                TrainOrder::Balanced(BalancedOrder::new(labels, seed))
            }
        }
    }
}
