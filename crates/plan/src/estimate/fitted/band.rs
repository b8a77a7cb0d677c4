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
    Images,
    /// The same on several.
    ImagesTogether,
    /// A graph of products on one GPU.
    Sequences,
    /// The same on several of one node that exchange through switches or a mesh of NVLink.
    SequencesTogether,
    /// The same over PCI Express, whose ways differ between machines that are called alike: how many GPUs share a root,
    /// whether they read each other's memory, whether there are bridges.
    SequencesOverPcie,
    /// The same on several nodes, or divided by layers.
    SequencesFar,
    /// A graph with experts of which each token takes some: tokens are not spread evenly over them.
    Experts,
    /// A graph of products in fp8.
    EightBits,
    /// A graph with operators that no measured graph has: recurrent ones, images that are enlarged, convolutions of
    /// each channel by itself.
    Unmeasured,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 11] = [
        Class::KnownFamily,
        Class::UnknownFamily,
        Class::Images,
        Class::ImagesTogether,
        Class::Sequences,
        Class::SequencesTogether,
        Class::SequencesOverPcie,
        Class::SequencesFar,
        Class::Experts,
        Class::EightBits,
        Class::Unmeasured,
    ];
}

/// How a published measurement came about, as far as an estimate's error depends on it: who runs one program on one
/// machine with care agrees better with any estimate than who runs a suite on whatever machines there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// One suite of programs on machines of all kinds, containers of 2020 and 2021.
    Suite,
    /// The same with later containers.
    LaterSuite,
    /// The same on the many like machines of one cloud.
    Fleet,
    /// Tables that a maker of GPUs publishes beside its programs.
    Maker,
    /// Results of a contest.
    Contest,
    /// Runs on one cluster, made to test estimates against.
    Validation,
    /// One program over many networks or sizes, by its developers.
    Sweep,
    /// Single figures in a program's documentation.
    Documentation,
    /// Anything else, and every plan.
    Unknown,
}

/// Whether what decides the time of a step beside network, machine and layout is stated. Programs that train adapters differ
/// in their kernels, formats and wrappers, and a row without a number of micro-batches may exchange once in one or in
/// many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramDetails {
    Stated,
    Unstated,
}

/// What estimates on a kind of GPU rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuEvidence {
    /// Steps were measured on it.
    Measured,
    /// A list states its figures.
    Unmeasured,
    /// A user describes it, or it is a slice of a GPU.
    Described,
}

/// Logarithms of measured over estimated time at the tenth and the ninetieth percentile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct ErrorBands {
    pub classes: BTreeMap<Class, [f64; 2]>,
    /// The same by how rows came about, for estimates that are compared with such rows.
    #[serde(default)]
    pub origins: BTreeMap<Origin, BTreeMap<Class, [f64; 2]>>,
    /// How far, in logarithms at either percentile, estimates are off besides on a GPU that nothing was measured on: as far as on
    /// generations that were measured, each estimated by a fit without it.
    #[serde(default)]
    pub unmeasured_generation: f64,
    /// The same where details of the program are not stated: what sources of such rows are off by besides, each compared with
    /// bands that it took no part in. The variance between sources, as of studies in a random-effects model (DerSimonian and
    /// Laird 1986).
    #[serde(default)]
    pub unstated_details: f64,
}

/// How far, in logarithms at either percentile, estimates may be off besides on a GPU that a user describes: figures that are
/// not stated are assumed, and a slice was measured nowhere. Assumed: a quarter either way.
const DESCRIBED: f64 = 0.25;

/// Where nothing is known: a third faster, or half as slow again, or as far as the widest class that was measured.
const UNKNOWN: [f64; 2] = [-0.35, 0.45];

impl ErrorBands {
    /// The band around several middles on a kind of GPU, each with its probability: percentiles of the mixture of their
    /// distributions, each logistic on either side of its middle.
    pub fn band(
        &self,
        origin: Origin,
        class: Class,
        (gpu, details): (GpuEvidence, ProgramDetails),
        middles: &[(f64, f64)],
    ) -> Percentiles {
        self.widened(origin, class, middles, self.of_gpu(gpu).hypot(self.of_details(details)))
    }

    /// What lack of evidence of a GPU adds at either percentile.
    fn of_gpu(&self, gpu: GpuEvidence) -> f64 {
        match gpu {
            GpuEvidence::Measured => 0.0,
            GpuEvidence::Unmeasured => self.unmeasured_generation,
            GpuEvidence::Described => self.unmeasured_generation.hypot(DESCRIBED),
        }
    }

    /// What unstated details of the program add at either percentile.
    fn of_details(&self, details: ProgramDetails) -> f64 {
        match details {
            ProgramDetails::Stated => 0.0,
            ProgramDetails::Unstated => self.unstated_details,
        }
    }

    /// The band of a class without measurements.
    fn widest(&self) -> [f64; 2] {
        let wider = |one: [f64; 2], other: &[f64; 2]| [one[0].min(other[0]), one[1].max(other[1])];
        self.classes.values().fold(UNKNOWN, wider)
    }

    fn widened(&self, origin: Origin, class: Class, middles: &[(f64, f64)], by: f64) -> Percentiles {
        let of_origin = self.origins.get(&origin).and_then(|classes| classes.get(&class));
        let [low, high] = of_origin.or_else(|| self.classes.get(&class)).copied().unwrap_or_else(|| self.widest());
        // The errors are independent, so their variances add up.
        let (low, high) = (-low.min(0.0).hypot(by), high.max(0.0).hypot(by));
        if let [(middle, _)] = middles {
            return Percentiles { low: middle * low.exp(), middle: *middle, high: middle * high.exp() };
        }
        let only = middles.iter().map(|(middle, _)| *middle);
        let (least, most) = (only.clone().fold(f64::INFINITY, f64::min).ln(), only.fold(0.0, f64::max).ln());
        let below = |at: f64| {
            let share = |(middle, weight): &(f64, f64)| {
                let off = at - middle.ln();
                // A logistic distribution has a tenth below -ln 9 scales.
                let scale = if off < 0.0 { -low } else { high }.max(1e-6) / 9f64.ln();
                weight / (1.0 + (-off / scale).exp())
            };
            middles.iter().map(share).sum::<f64>()
        };
        let percentile = |share: f64| {
            let (mut from, mut to) = (least + low, most + high);
            for _ in 0..50 {
                let middle = 0.5 * (from + to);
                if below(middle) < share { from = middle } else { to = middle }
            }
            (0.5 * (from + to)).exp()
        };
        Percentiles { low: percentile(0.1), middle: middle(middles), high: percentile(0.9) }
    }
}

/// The middle of several estimates, each with its probability: the mean of their logarithms.
pub fn middle(middles: &[(f64, f64)]) -> f64 {
    match middles {
        [(only, _)] => *only,
        several => several.iter().map(|(middle, weight)| weight * middle.ln()).sum::<f64>().exp(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: (GpuEvidence, ProgramDetails) = (GpuEvidence::Measured, ProgramDetails::Stated);

    /// Percentiles of a mixture with a tenth more than 10 % below and above each middle.
    fn mixed(middles: &[(f64, f64)]) -> Percentiles {
        let bands = ErrorBands { classes: BTreeMap::from([(Class::Sequences, [-0.1, 0.1])]), ..ErrorBands::default() };
        bands.band(Origin::Unknown, Class::Sequences, MEASURED, middles)
    }

    #[test]
    fn a_band_spans_all_ways_that_may_have_been_meant() {
        let one = mixed(&[(2.0, 1.0)]);
        assert_eq!((one.low, one.middle, one.high), (2.0 * (-0.1f64).exp(), 2.0, 2.0 * 0.1f64.exp()));
        let same = mixed(&[(2.0, 0.3), (2.0, 0.7)]);
        assert!((same.low / one.low - 1.0).abs() < 1e-6 && (same.high / one.high - 1.0).abs() < 1e-6, "{same:?}");
        let apart = mixed(&[(1.0, 0.5), (4.0, 0.5)]);
        assert!((apart.middle - 2.0).abs() < 1e-6, "{apart:?}");
        assert!((0.9..1.0).contains(&apart.low) && (4.0..4.4).contains(&apart.high), "{apart:?}");
    }

    #[test]
    fn a_generation_without_measurements_has_a_wider_band() {
        let classes = BTreeMap::from([(Class::Sequences, [-0.3, 0.3])]);
        let bands = ErrorBands { classes, unmeasured_generation: 0.4, ..ErrorBands::default() };
        let on = |gpu| bands.band(Origin::Unknown, Class::Sequences, (gpu, ProgramDetails::Stated), &[(1.0, 1.0)]);
        let (known, unknown) = (on(GpuEvidence::Measured), on(GpuEvidence::Unmeasured));
        assert!(
            (known.high.ln() - 0.3).abs() < 1e-9 && (unknown.high.ln() - 0.5).abs() < 1e-9,
            "{known:?} {unknown:?}"
        );
        assert!((unknown.low.ln() + 0.5).abs() < 1e-9, "{unknown:?}");
        let described = on(GpuEvidence::Described);
        assert!(described.low < unknown.low && described.high > unknown.high, "{described:?}");
    }

    #[test]
    fn unstated_details_widen_a_band_and_never_narrow_it() {
        let classes = BTreeMap::from([(Class::Sequences, [-0.3, 0.3])]);
        let of = |unstated_details: f64, details: ProgramDetails| {
            let classes = classes.clone();
            let bands = ErrorBands { classes, unmeasured_generation: 0.4, unstated_details, ..ErrorBands::default() };
            [GpuEvidence::Measured, GpuEvidence::Unmeasured, GpuEvidence::Described]
                .map(|gpu| bands.band(Origin::Unknown, Class::Sequences, (gpu, details), &[(1.0, 1.0)]))
        };
        let stated = of(0.4, ProgramDetails::Stated);
        // A file that was fitted before the term existed has none.
        assert_eq!(of(0.0, ProgramDetails::Unstated), stated);
        let unstated = of(0.4, ProgramDetails::Unstated);
        for (wider, narrower) in unstated.iter().zip(&stated) {
            assert!(wider.low < narrower.low && wider.high > narrower.high, "{wider:?} {narrower:?}");
        }
        // Variances add up.
        assert!((unstated[0].high.ln() - 0.5).abs() < 1e-9, "{unstated:?}");
    }

    #[test]
    fn a_class_without_measurements_has_the_widest_band() {
        let classes = BTreeMap::from([(Class::Sequences, [-0.1, 0.6]), (Class::Images, [-0.5, 0.2])]);
        let bands = ErrorBands { classes, ..ErrorBands::default() };
        for origin in [Origin::Unknown, Origin::Contest] {
            let band = bands.band(origin, Class::Experts, MEASURED, &[(1.0, 1.0)]);
            assert!((band.low.ln() + 0.5).abs() < 1e-9 && (band.high.ln() - 0.6).abs() < 1e-9, "{band:?}");
        }
        let nothing = ErrorBands::default().band(Origin::Unknown, Class::Experts, MEASURED, &[(1.0, 1.0)]);
        assert!((nothing.low.ln() - UNKNOWN[0]).abs() < 1e-9 && (nothing.high.ln() - UNKNOWN[1]).abs() < 1e-9);
    }

    #[test]
    fn how_a_row_came_about_decides_its_band_where_that_is_known() {
        let bands = ErrorBands {
            classes: BTreeMap::from([(Class::Sequences, [-0.3, 0.3])]),
            origins: BTreeMap::from([(Origin::Contest, BTreeMap::from([(Class::Sequences, [-0.1, 0.1])]))]),
            ..ErrorBands::default()
        };
        let width = |origin| {
            let band = bands.band(origin, Class::Sequences, MEASURED, &[(1.0, 1.0)]);
            (band.high / band.low).ln()
        };
        assert!((width(Origin::Contest) - 0.2).abs() < 1e-9);
        assert!((width(Origin::Maker) - 0.6).abs() < 1e-9);
        assert!((width(Origin::Unknown) - 0.6).abs() < 1e-9);
    }
}
