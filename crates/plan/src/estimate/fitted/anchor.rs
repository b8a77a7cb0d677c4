//! Anchors: groups of measurements that the fit knows, so that an estimate can name the nearest.
//!
//! An anchor says what was measured where and how far the estimate was off there, never what was measured.

use domain::gpu::Gpu;
use serde::{Deserialize, Serialize};

use super::band::Class;
use crate::estimate::setup::{NumericFormat, Setup};

/// A group of measurements of one network on one kind of GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Anchor {
    /// Who measured.
    pub source: String,
    /// What, in words.
    pub what: String,
    /// Name of the GPU.
    pub gpu: String,
    pub precision: NumericFormat,
    pub class: Class,
    /// Logarithms of weights and of multiply-adds a sample.
    pub size: [f64; 2],
    pub rows: u32,
    /// Median of the estimate's relative error, without this group in the fit.
    pub error: f64,
}

/// Returns the anchor that is most like what is estimated: the same class and GPU before the same size.
pub fn nearest<'a>(
    anchors: &'a [Anchor],
    class: Class,
    size: [f64; 2],
    setup: &Setup,
    gpu: &Gpu,
) -> Option<&'a Anchor> {
    let distance = |anchor: &Anchor| {
        let [weights, madds] = [anchor.size[0] - size[0], anchor.size[1] - size[1]];
        let class = if anchor.class == class { 0.0 } else { 1.5 };
        let gpu = if anchor.gpu == gpu.name { 0.0 } else { 2.0 };
        let precision = if anchor.precision == setup.precision { 0.0 } else { 0.7 };
        weights.abs() + madds.abs() + class + gpu + precision
    };
    anchors
        .iter()
        .filter(|anchor| anchor.class.alike(class))
        .min_by(|left, right| distance(left).total_cmp(&distance(right)))
}

impl Class {
    /// Whether two classes are of one kind of network.
    fn alike(self, other: Class) -> bool {
        let images = |class: Class| match class {
            Class::KnownFamily | Class::UnknownFamily | Class::Images | Class::ImagesTogether | Class::Unmeasured => {
                true
            }
            Class::Sequences
            | Class::SequencesTogether
            | Class::SequencesOverPcie
            | Class::SequencesFar
            | Class::Experts
            | Class::EightBits => false,
        };
        images(self) == images(other)
    }
}
