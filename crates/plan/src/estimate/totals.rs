//! Time of a network of which only totals are known: arithmetic, memory and start-up, corrected for its family.
//!
//! Totals do not tell what a network's operators are, and that is worth a factor of two: grouped convolutions, say,
//! are slow in some layouts. Networks of one kind share it, so each family has a correction for each layout and for
//! how it changes with size, drawn to nothing where few members were measured. A family that nothing was measured of
//! gets what all have in common.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::setup::{Layout, Setup};
use crate::model::Summary;

/// How many numbers describe a network's proportions.
pub const PROPORTIONS: usize = 5;
/// Proportions that a family's correction may change with.
pub const SLOPES: usize = 3;

/// Fitted form for totals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct TotalsCoefficients {
    /// Share of the arithmetic rate that is reached.
    pub arithmetic: f64,
    /// Passes over each activation.
    pub passes: f64,
    /// Passes over the weights, 4 bytes each.
    pub weights: f64,
    /// Seconds of a step besides.
    pub step: f64,
    /// Sharpness of the roofline.
    pub sharpness: f64,
    /// Logarithmic corrections that all networks share: of a layout, and with [`proportions`].
    pub shared: Vec<f64>,
    /// The same of each family; those of which few networks were measured have no slopes.
    pub families: BTreeMap<String, Vec<f64>>,
}

/// Logarithms of a network's proportions, near zero for a usual one: arithmetic a value, values a weight, weights,
/// values, batch.
pub fn proportions(summary: &Summary, samples: f64) -> [f64; PROPORTIONS] {
    let positive = |value: f64| value.max(1.0).ln();
    let (madds, values, weights) =
        (positive(summary.multiply_adds), positive(summary.activations), positive(summary.parameters));
    [madds - values - 6.0, values - weights, weights - 17.0, values - 16.0, positive(samples) - 5.0]
}

/// Factors of [`TotalsCoefficients::shared`]: constant, linear and quadratic in the proportions, all for both layouts and for
/// their difference.
pub fn shared_factors(at: &[f64; PROPORTIONS], layout: Layout) -> Vec<f64> {
    let mut factors = vec![1.0];
    factors.extend(at);
    for first in 0..PROPORTIONS {
        for second in first..PROPORTIONS {
            factors.push(at[first] * at[second] / 2.0);
        }
    }
    with_layout(factors, layout)
}

/// Factors of a family's correction: constant and linear in the first proportions, for both layouts.
pub fn family_factors(at: &[f64; PROPORTIONS], layout: Layout) -> Vec<f64> {
    let mut factors = vec![1.0];
    factors.extend(&at[..SLOPES]);
    with_layout(factors, layout)
}

fn with_layout(factors: Vec<f64>, layout: Layout) -> Vec<f64> {
    let side = match layout {
        Layout::ChannelsFirst => -0.5,
        Layout::ChannelsLast => 0.5,
    };
    let turned: Vec<f64> = factors.iter().map(|factor| factor * side).collect();
    [factors, turned].concat()
}

impl TotalsCoefficients {
    /// Seconds of one micro-batch before corrections.
    pub fn plain(&self, summary: &Summary, samples: f64, machine: &Machine) -> f64 {
        let arithmetic = 6.0 * summary.multiply_adds * samples / (machine.products * self.arithmetic.max(0.01));
        let memory = machine.pass(3.0 * summary.activations * samples * machine.width) * self.passes;
        let weights = machine.pass(summary.parameters * 4.0) * self.weights;
        let sharpness = self.sharpness.max(1.0);
        (arithmetic.powf(sharpness) + memory.powf(sharpness)).powf(1.0 / sharpness) + weights + self.step
    }

    /// The logarithm that the family, and all families, correct by.
    pub fn correction(&self, summary: &Summary, samples: f64, layout: Layout) -> f64 {
        let at = proportions(summary, samples);
        let dot = |coefficients: &[f64], factors: Vec<f64>| -> f64 {
            coefficients.iter().zip(factors).map(|(coefficient, factor)| coefficient * factor).sum()
        };
        let common = dot(&self.shared, shared_factors(&at, layout));
        let own = summary.family.as_ref().and_then(|family| self.families.get(family));
        let own = own.map_or(0.0, |own| dot(own, family_factors(&at, layout)));
        // Outside of what was measured, curves fitted inside it say nothing.
        (common + own).clamp(-1.2, 1.8)
    }

    /// Seconds of one micro-batch, forwards and backwards.
    pub fn seconds(&self, summary: &Summary, setup: &Setup, machine: &Machine) -> f64 {
        let samples = setup.micro_batch as f64;
        let corrected = self.plain(summary, samples, machine) * self.correction(summary, samples, setup.layout).exp();
        // Nothing runs faster than the GPU's rates and its memory.
        let bound = 6.0 * summary.multiply_adds * samples / machine.products;
        corrected.max(bound)
    }

    /// Whether anything was measured of the family.
    pub fn knows(&self, summary: &Summary) -> bool {
        summary.family.as_ref().is_some_and(|family| self.families.contains_key(family))
    }
}
