//! How far estimates were from measurements: the band around each.
//!
//! Bands come from estimates of rows that took no part in the fit, by the kind of network and of division; the tenth
//! and the ninetieth percentile of measured over estimated time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Three percentiles of a duration in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// One in ten is below.
    pub low: f64,
    pub middle: f64,
    /// One in ten is above.
    pub high: f64,
}

/// What is estimated, as far as its error depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Totals of a family that was measured.
    KnownFamily,
    /// Totals of another family.
    UnknownFamily,
    /// A graph of convolutions on one GPU.
    Pictures,
    /// The same on several.
    PicturesTogether,
    /// A graph of products on one GPU.
    Sequences,
    /// The same on several of one node.
    SequencesTogether,
    /// The same on several nodes, or divided by layers.
    SequencesFar,
}

/// Logarithms of measured over estimated time at the tenth and the ninetieth percentile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Bands {
    pub classes: BTreeMap<Class, [f64; 2]>,
}

/// Where nothing is known: a third faster, or half as slow again.
const UNKNOWN: [f64; 2] = [-0.35, 0.45];

impl Bands {
    /// The band around `middle` seconds.
    pub fn around(&self, class: Class, middle: f64) -> Percentiles {
        let [low, high] = self.classes.get(&class).copied().unwrap_or(UNKNOWN);
        Percentiles { low: middle * low.min(0.0).exp(), middle, high: middle * high.max(0.0).exp() }
    }
}
