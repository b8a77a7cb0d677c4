//! Which training sample stands at a position of an epoch: each once, or drawn with replacement so that classes come
//! equally often, as `WeightedRandomSampler` with the reciprocal class sizes.
//!
//! A draw depends on (seed, epoch, position) only, so that here too the state of the loader is one [`crate::Cursor`].

use super::order::SampleOrder;
use super::random::{Draws, Purpose, key};

/// The order of the training samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrainOrder {
    /// Each sample once per epoch.
    Shuffled(SampleOrder),
    /// With replacement, every class with equal probability.
    Balanced(BalancedOrder),
}

/// Samples by class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalancedOrder {
    /// The places of the samples of each class that has any.
    classes: Vec<Vec<u32>>,
    seed: u64,
}

/// Above any number of a sample: positions that augmentation is drawn by.
const POSITIONS: u64 = 1 << 32;

impl BalancedOrder {
    /// Of samples with these labels.
    pub fn new(labels: impl Iterator<Item = u32>, seed: u64) -> BalancedOrder {
        let mut classes: Vec<Vec<u32>> = Vec::new();
        for (label, place) in labels.zip(0..) {
            let label = label as usize;
            classes.resize_with(classes.len().max(label + 1), Vec::new);
            classes[label].push(place);
        }
        classes.retain(|places| !places.is_empty());
        BalancedOrder { classes, seed }
    }

    fn at(&self, epoch: u64, pos: u64) -> u64 {
        let mut draws = Draws::new(key(Purpose::Sample, self.seed, &[epoch, pos]));
        let class = &self.classes[draws.below(self.classes.len() as u64) as usize];
        u64::from(class[draws.below(class.len() as u64) as usize])
    }
}

impl TrainOrder {
    /// The place of the sample at position `pos` of `epoch` among the training samples.
    pub fn at(&self, epoch: u64, pos: u64) -> u64 {
        match self {
            TrainOrder::Shuffled(order) => order.at(epoch, pos),
            TrainOrder::Balanced(order) => order.at(epoch, pos),
        }
    }

    /// The position at which the sample of another epoch's position comes next, where that is known.
    pub(crate) fn position(&self, epoch: u64, sample: u64) -> Option<u64> {
        match self {
            TrainOrder::Shuffled(order) => Some(order.position(epoch, sample)),
            TrainOrder::Balanced(_) => None,
        }
    }

    /// By what the augmentation of a sample is drawn: a sample that comes twice in an epoch is shown in two ways.
    pub(crate) fn drawn_by(&self, pos: u64, sample: u32) -> u64 {
        match self {
            TrainOrder::Shuffled(_) => u64::from(sample),
            TrainOrder::Balanced(_) => POSITIONS + pos,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_come_equally_often_and_their_samples_too() {
        let labels: Vec<u32> = (0..1000).map(|at| if at < 900 { 0 } else { 2 + u32::from(at >= 990) }).collect();
        let order = BalancedOrder::new(labels.iter().copied(), 7);
        let (mut classes, mut samples) = ([0_u32; 4], vec![0_u32; 1000]);
        for pos in 0..9000 {
            let place = order.at(3, pos) as usize;
            classes[labels[place] as usize] += 1;
            samples[place] += 1;
        }
        // Five standard deviations of a binomial with p = 1/3 are 224; of one with p = 1/30, 85.
        assert!([0, 2, 3].iter().all(|class: &usize| classes[*class].abs_diff(3000) < 224), "{classes:?}");
        assert_eq!(classes[1], 0, "a class without samples is never drawn");
        assert!(samples[990..].iter().all(|count| count.abs_diff(300) < 85), "{:?}", &samples[990..]);
    }

    #[test]
    fn draws_follow_from_seed_epoch_and_position() {
        let order = |seed| BalancedOrder::new([0, 0, 1, 1, 0, 1, 2].into_iter(), seed);
        let drawn = |seed, epoch| (0..200).map(move |pos| order(seed).at(epoch, pos));
        assert!(drawn(1, 0).eq(drawn(1, 0)));
        assert!(!drawn(1, 0).eq(drawn(1, 1)));
        assert!(!drawn(1, 0).eq(drawn(2, 0)));
    }
}
