//! The micro-batches of a step, and which layouts are priced for it.

use super::{device, request, requested, spec};
use crate::estimate::{ActivationCheckpointing, ParallelDegrees, Setup};
use crate::search::parallel::{Estimator, Infeasible, RequiredMemory, fastest};
use crate::search::workload::{LayoutRequest, NetworkFigures, ParallelChoice, TrainingSpec};

/// Each micro-batch takes a second for its samples and a tenth to start; a pipeline idles for a micro-batch at either end.
struct Plain {
    memory_of_sample: f64,
    /// Steps that were priced.
    priced: usize,
}

impl Plain {
    fn of(memory_of_sample: f64) -> Plain {
        Plain { memory_of_sample, priced: 0 }
    }
}

impl Estimator for Plain {
    fn needed(&mut self, setup: &Setup) -> RequiredMemory {
        let bytes = self.memory_of_sample * setup.micro_batch as f64;
        RequiredMemory { low: bytes, middle: bytes, high: bytes }
    }

    fn seconds(&mut self, setup: &Setup) -> f64 {
        self.priced += 1;
        let each = setup.micro_batch as f64 + 0.1;
        each * (setup.accumulate as f64 + f64::from(setup.parallel.pipeline) - 1.0)
    }
}

#[test]
fn a_pipeline_that_is_asked_for_has_several_micro_batches() {
    let mut plain = Plain::of(1e6);
    let spec = requested("parallel: {data: 2, pipeline: 4}");
    let config = fastest(&spec, &device(1), &mut plain).expect("it fits");
    // Of 32 samples, 32 micro-batches of one take 38.5 s, 16 of two 39.9 s, and one of all 128.4 s.
    assert_eq!((config.parallel.pipeline, config.accumulate, config.micro_batch), (4, 32, 1));
    let interleaved = requested("parallel: {data: 2, pipeline: 4, virtual_stages: 2}");
    let config = fastest(&interleaved, &device(1), &mut plain).expect("it fits");
    assert!(config.accumulate.is_multiple_of(4), "{config:?}");
}

/// A step takes longer by what tensor-parallel ranks exchange.
struct Exchanging {
    priced: Vec<ParallelDegrees>,
}

impl Estimator for Exchanging {
    fn needed(&mut self, _: &Setup) -> RequiredMemory {
        RequiredMemory { low: 1.0, middle: 1.0, high: 1.0 }
    }

    fn seconds(&mut self, setup: &Setup) -> f64 {
        self.priced.push(setup.parallel);
        f64::from(setup.parallel.tensor) + 0.1 * f64::from(setup.parallel.context * setup.parallel.expert)
    }
}

/// Where a rank's share fits at once with a tensor-parallel layout, those that share sequences or experts may still be
/// faster; one of each degree is priced.
#[test]
fn a_share_that_fits_ends_the_search_among_its_like_only() {
    let of = |batch: u64, tokens: u64, experts: u32| {
        let plain = spec(batch, ParallelChoice::Search);
        let spec = TrainingSpec { network: NetworkFigures { tokens, experts, ..plain.network }, ..plain };
        let mut exchanging = Exchanging { priced: Vec::new() };
        let config = fastest(&spec, &device(1), &mut exchanging).expect("it fits");
        let degrees = |one: &ParallelDegrees| (one.data, one.tensor, one.context, one.expert);
        (degrees(&config.parallel), exchanging.priced.iter().map(degrees).collect::<Vec<_>>())
    };
    // Four samples do not divide among eight ranks.
    assert_eq!(of(4, 4096, 0), ((4, 2, 1, 1), vec![(4, 2, 1, 1)]));
    let long = vec![(4, 2, 1, 1), (4, 1, 2, 1), (2, 1, 4, 1), (1, 1, 8, 1)];
    assert_eq!(of(4, 131_072, 0), ((4, 1, 2, 1), long));
    let mixture = vec![(8, 1, 1, 1), (8, 1, 1, 8), (4, 2, 1, 4), (2, 4, 1, 2)];
    assert_eq!(of(8, 4096, 8), ((8, 1, 1, 1), mixture));
}

#[test]
fn an_update_in_the_backward_pass_accumulates_nothing() {
    let of = |is_whole, memory_of_sample| {
        let request = LayoutRequest { is_whole, ..request("parallel: {data: 8, zero: 0}") };
        let spec = spec(64, ParallelChoice::Requested(request));
        fastest(&spec, &device(1), &mut Plain::of(memory_of_sample)).map(|config| config.accumulate)
    };
    let (few, many) = (1e9, 20e9);
    assert_eq!([of(true, few), of(false, few)], [Ok(1), Ok(1)]);
    assert_eq!(of(false, many), Ok(2));
    assert_eq!(of(true, many), Err(Infeasible::Memory { least: 8.0 * many }));
}

/// Memory here is the same whatever is recomputed, so each layout is priced once and not once for each level.
#[test]
fn recomputation_that_saves_no_micro_batch_is_not_priced() {
    let mut plain = Plain::of(20e9);
    let config = fastest(&requested("parallel: {data: 8, zero: 0}"), &device(1), &mut plain).expect("it fits");
    assert_eq!((config.accumulate, config.recompute, plain.priced), (2, ActivationCheckpointing::None, 1));
}

#[test]
fn gpus_that_do_not_divide_are_refused_as_such() {
    let no = fastest(&requested("parallel: {data: 16}"), &device(1), &mut Plain::of(1.0));
    assert_eq!(no, Err(Infeasible::Layout));
}
