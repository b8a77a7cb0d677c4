//! Simpler layouts, which are listed where they are nearly as fast.

use super::{device, requested, spec};
use crate::estimate::{FittedCoefficients, ParallelDegrees, Setup, Zero};
use crate::search::parallel::simplest::{LAYOUT_MARGIN, complexity};
use crate::search::parallel::{Estimator, RequiredMemory, fastest};
use crate::search::workload::ParallelChoice;

#[test]
fn layouts_are_ranked_by_their_kinds_of_parallelism() {
    let one = ParallelDegrees::default();
    let data = ParallelDegrees { data: 8, ..one };
    let fsdp = ParallelDegrees { zero: Zero::Parameters, ..data };
    // A further kind counts more than all that are simpler.
    let ranked = [
        one,
        data,
        fsdp,
        ParallelDegrees { tensor: 2, ..one },
        ParallelDegrees { tensor: 2, ..fsdp },
        ParallelDegrees { context: 2, ..fsdp },
        ParallelDegrees { context: 2, tensor: 2, ..fsdp },
        ParallelDegrees { pipeline: 2, ..one },
        ParallelDegrees { pipeline: 2, context: 2, ..fsdp },
        ParallelDegrees { expert: 8, ..data },
        ParallelDegrees { expert: 8, pipeline: 2, ..data },
    ];
    for pair in ranked.windows(2) {
        assert!(complexity(&pair[0]) < complexity(&pair[1]), "{pair:?}");
    }
    let alike = |other: ParallelDegrees, than: ParallelDegrees| assert_eq!(complexity(&other), complexity(&than));
    alike(ParallelDegrees { zero: Zero::Optimizer, ..data }, data);
    alike(ParallelDegrees { zero: Zero::Gradients, ..data }, fsdp);
    alike(ParallelDegrees { tensor: 8, ..data }, ParallelDegrees { tensor: 2, sequence: true, ..data });
    // Nothing is sharded among one.
    alike(ParallelDegrees { zero: Zero::Parameters, ..one }, one);
}

/// Seconds of a step by layout: data-parallel, FSDP, two tensor-parallel ranks; others are slow. Four samples fit where
/// the layout fits at all.
struct ByLayout {
    seconds: [f64; 3],
    fits: fn(&ParallelDegrees) -> bool,
}

impl Estimator for ByLayout {
    fn needed(&mut self, setup: &Setup) -> RequiredMemory {
        let bytes = if (self.fits)(&setup.parallel) { 20e9 * setup.micro_batch as f64 } else { 1e12 };
        RequiredMemory { low: bytes, middle: bytes, high: bytes }
    }

    fn seconds(&mut self, setup: &Setup) -> f64 {
        let [data, fsdp, tensor] = self.seconds;
        match (setup.parallel.tensor, setup.parallel.zero) {
            (1, Zero::None | Zero::Optimizer) => data,
            (1, Zero::Gradients | Zero::Parameters) => fsdp,
            (2, Zero::None) => tensor,
            _ => 9.0,
        }
    }
}

#[test]
fn a_simpler_layout_is_listed_where_it_is_nearly_as_fast() {
    let check = |seconds: [f64; 3], fits: fn(&ParallelDegrees) -> bool, expected: [&[f64]; 2]| {
        let spec = spec(64, ParallelChoice::Search);
        let config = fastest(&spec, &device(1), &mut ByLayout { seconds, fits }).expect("it fits");
        let simpler: Vec<f64> = config.simpler.iter().map(|config| config.step).collect();
        assert_eq!([&[config.step][..], &simpler[..]], expected, "{seconds:?}");
        assert!(config.simpler.iter().all(|one| one.simpler.is_empty() && one.verdict == config.verdict), "{config:?}");
    };
    let all = |_: &ParallelDegrees| true;
    check([1.20, 1.07, 1.00], all, [&[1.00], &[1.07]]);
    check([1.05, 1.07, 1.00], all, [&[1.00], &[1.05, 1.07]]);
    check([1.20, 1.12, 1.00], all, [&[1.00], &[]]);
    // What is more complex and slower is never listed.
    check([1.00, 1.02, 1.04], all, [&[1.00], &[]]);
    // A layout that does not fit is none, however simple.
    check([1.05, 1.07, 1.00], |parallel| parallel.tensor > 1, [&[1.00], &[]]);
}

/// Where a job names its degrees, they stand.
#[test]
fn a_layout_that_is_asked_for_has_no_simpler_one() {
    let seconds = [1.05, 1.07, 1.00];
    let spec = requested("parallel: {tensor: 2, zero: 0, pipeline: 1}");
    let config = fastest(&spec, &device(1), &mut ByLayout { seconds, fits: |_| true }).expect("it fits");
    assert_eq!((config.parallel.tensor, config.simpler), (2, Vec::new()));
}

/// Two layouts that are closer than half the band of their class cannot be told apart by their estimates.
#[test]
fn the_margin_is_within_the_band_of_every_class() {
    let coefficients = FittedCoefficients::embedded().expect("figures");
    for (class, [low, high]) in &coefficients.bands.classes {
        assert!((1.0 + LAYOUT_MARGIN).ln() < (high - low) / 2.0, "{class:?}");
    }
}
