//! The learning rate range test (Smith 2015): steps from random or given weights while the rate grows, until the loss
//! does. Nothing is saved.
//!
//! The loss is smoothed, and the suggestion is the rate at which it falls most steeply, as `lr_find` of Lightning and
//! fastai have it.

use std::path::Path;

use data::{Cursor, Provenance};
use domain::rank::Spec;
use domain::train::Parallel;
use serde::{Deserialize, Serialize};
use tch::{Device, Tensor};

use crate::error::Error;
use crate::ranks::Ranks;
use crate::run::checks::check_image_size;
use crate::run::exported;
use crate::state::{InitialState, Trainer, pretrained};
use crate::step::profile::Timeline;
use crate::step::{StepConfig, TrainStep, begin_step};
use crate::torch;

/// The request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LrRangeRequest {
    /// The run that is not made: its training specification, and the paths of its data.
    pub spec: Spec,
    /// Steps from the lowest rate to the highest.
    pub steps: u32,
    /// The lowest rate.
    pub low: f64,
    /// The highest rate.
    pub high: f64,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LrPoint {
    /// Learning rate.
    pub lr: f64,
    /// Loss of the batch, before the update by this rate.
    pub loss: f64,
    /// The exponential moving average of the losses.
    pub smoothed: f64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LrRange {
    /// The steps that were made.
    pub points: Vec<LrPoint>,
    /// The rate at which the loss fell most steeply; `None` if there are too few steps, or it never fell.
    pub suggested: Option<f64>,
    /// Whether the loss grew without bound before the highest rate.
    pub has_diverged: bool,
}

/// Weight of the losses before a step in the average.
const SMOOTHING: f64 = 0.98;
/// A loss of so many times the smallest one ends the test.
const DIVERGED: f64 = 4.0;
/// Steps at the beginning and the end that are not suggested: the average is not settled, and the loss grows.
const SKIPPED: (usize, usize) = (10, 1);

/// Makes the steps.
///
/// # Errors
/// When the data, the model or the weights cannot be used.
pub fn lr_range(request: LrRangeRequest, device: Device) -> Result<LrRange, Error> {
    let LrRangeRequest { mut spec, steps, low, high } = request;
    let train = &mut spec.train;
    train.memory_format = Some(train.memory_format_on(device.is_cuda()));
    (train.processes, train.parallel, train.epochs) = (1, Parallel::default(), u32::MAX);
    let mut ranks = Ranks::alone();
    let data = exported::open(&spec, &mut Provenance::unknown())?;
    let shape = data.shape(&spec.train);
    check_image_size(&spec.train, shape)?;
    torch::set_threads(spec.threads);
    torch::set_deterministic(spec.train.deterministic)?;
    let config = StepConfig::of(&spec.train, device);
    config.format.settle(device)?;
    let mut initial = InitialState::fresh(&spec.train, shape, device, spec.threads, &mut ranks)?;
    if let Some(path) = &spec.train.weights {
        let weights = pretrained::open(&initial.network, &spec.train.model, Path::new(path))?;
        initial.start_from(weights, &ranks)?;
    }
    let Trainer { network, mut optimizer, .. } = initial.among(&spec.train, &mut ranks)?;
    let weights = data.class_weights(&spec.train)?;
    let weights = weights.map(|weights| torch::upload(&weights, &[weights.len() as i64], device)).transpose()?;
    let mut loader = data.train(&spec.train, Cursor::START, ranks.share());
    let mut test = RangeTest::default();
    for step in 0..steps {
        let Some(batch) = loader.next(device) else { break };
        let mut batch = batch?.samples;
        batch.class_weights = weights.as_ref().map(Tensor::shallow_clone);
        let lr = rate(step, steps, low, high);
        let made = TrainStep { network: &network, optimizer: &mut optimizer, ranks: &ranks, cuda_graphs: None };
        let outcome = begin_step(made, &config, &batch, lr, &mut Timeline::off())?.read()?;
        if !test.goes_on(lr, outcome.loss) {
            break;
        }
    }
    let RangeTest { points, has_diverged, .. } = test;
    Ok(LrRange { suggested: suggested(&points), points, has_diverged })
}

/// The rate of a step, from 0: equal factors from the lowest to the highest.
fn rate(step: u32, steps: u32, low: f64, high: f64) -> f64 {
    let part = f64::from(step) / f64::from(steps.saturating_sub(1).max(1));
    low * (high / low).powf(part)
}

/// The losses so far.
#[derive(Debug, Default)]
struct RangeTest {
    points: Vec<LrPoint>,
    average: f64,
    smallest: f64,
    has_diverged: bool,
}

impl RangeTest {
    /// Adds the loss of a step; returns false if it has grown without bound.
    fn goes_on(&mut self, lr: f64, loss: f64) -> bool {
        self.average = SMOOTHING * self.average + (1.0 - SMOOTHING) * loss;
        let count = self.points.len() as i32 + 1;
        let smoothed = self.average / (1.0 - SMOOTHING.powi(count));
        self.has_diverged = !smoothed.is_finite() || (count > 1 && smoothed > DIVERGED * self.smallest);
        if self.has_diverged {
            return false;
        }
        self.smallest = if count == 1 { smoothed } else { self.smallest.min(smoothed) };
        self.points.push(LrPoint { lr, loss, smoothed });
        true
    }
}

/// The rate at which the smoothed loss falls most steeply over the steps, by differences of its neighbours.
fn suggested(points: &[LrPoint]) -> Option<f64> {
    let (before, behind) = SKIPPED;
    let middle = points.get(before..points.len().saturating_sub(behind))?;
    let slope = |place: usize| {
        let (left, right) = (place.saturating_sub(1), (place + 1).min(middle.len() - 1));
        (middle[right].smoothed - middle[left].smoothed) / (right - left).max(1) as f64
    };
    let steepest = (0..middle.len()).min_by(|one, other| slope(*one).total_cmp(&slope(*other)))?;
    (slope(steepest) < 0.0).then_some(middle[steepest].lr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_grow_by_equal_factors() {
        let rates: Vec<f64> = (0..5).map(|step| rate(step, 5, 1e-4, 1.0)).collect();
        for (rate, expected) in rates.iter().zip([1e-4, 1e-3, 1e-2, 1e-1, 1.0]) {
            assert!((rate / expected - 1.0).abs() < 1e-9, "{rates:?}");
        }
        assert_eq!(rate(0, 1, 0.5, 2.0), 0.5);
    }

    /// The losses of a test in which nothing happens below a rate of 1e-3, and all is lost above 1e-1.
    fn test(steps: u32) -> RangeTest {
        let mut test = RangeTest::default();
        for step in 0..steps {
            let lr = rate(step, steps, 1e-6, 10.0);
            let loss = match lr {
                small if small < 1e-3 => 2.0,
                middle if middle < 1e-1 => 2.0 - 0.7 * (middle / 1e-3).log10(),
                large => 1e3 * large,
            };
            if !test.goes_on(lr, loss) {
                break;
            }
        }
        test
    }

    #[test]
    fn the_steepest_fall_is_suggested_and_growth_ends_the_test() {
        let found = test(100);
        assert!(found.has_diverged && found.points.len() < 80, "{}", found.points.len());
        let suggested = suggested(&found.points).unwrap();
        assert!((1e-3..1e-1).contains(&suggested), "{suggested}");
    }

    #[test]
    fn nothing_is_suggested_where_nothing_falls() {
        assert_eq!(suggested(&[]), None);
        let mut flat = RangeTest::default();
        for step in 0..50 {
            assert!(flat.goes_on(rate(step, 50, 1e-6, 1.0), 1.0 + f64::from(step) * 1e-3));
        }
        assert_eq!(suggested(&flat.points), None);
        assert!(!RangeTest::default().goes_on(1.0, f64::NAN));
    }
}
