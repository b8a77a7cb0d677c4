//! Layouts that a job asks for, its words for them, and the micro-batches that they run.

use domain::gpu::{Gpu, GpuArchitecture, GpuTraits, Link, Rates};
use domain::tariff::Service;
use domain::workload::WorkloadParallel;
use domain::{Bytes, Job};
use proptest::prelude::*;

use super::layouts::layouts;
use super::simplest::LAYOUT_MARGIN;
use super::words::{layout_words, program_words};
use super::*;
use crate::estimate::memory::Savings;
use crate::estimate::{FittedCoefficients, Layout, OptimizerKind, Zero};
use crate::search::workload::{CheckpointFigures, DataDemand, NetworkFigures, ProgramOptions, RunLength};

/// A decoder of 32 layers and heads, on sequences of 4,096 tokens.
fn spec(batch: u64, division: ParallelChoice) -> TrainingSpec {
    TrainingSpec {
        length: RunLength { batch, steps: 100, evaluated: 0 },
        data: DataDemand { per_core: None, bytes: Bytes(1 << 30), disk: Service::PlainDisk },
        checkpoints: CheckpointFigures { state: Bytes(1 << 30), weights: Bytes(1 << 29), keep: 3, every: None },
        network: NetworkFigures { multiply_adds: 4e12, blocks: 32, heads: 32, key_heads: 32, tokens: 4096, experts: 0 },
        program: ProgramOptions {
            precision: NumericFormat::Fp32,
            optimizer: OptimizerKind::Adam,
            layout: Layout::ChannelsLast,
            flash_attention: true,
            compiled: false,
            recompute: true,
            averages: false,
        },
        division,
    }
}

/// What a job's `workload` asks of layouts.
fn request(lines: &str) -> LayoutRequest {
    let text = format!("run: a\nworkload:\n  model: config.json\n  batch: 64\n  steps: 5\n  {lines}\n");
    let parsed = Job::parse(&text, "job.yaml").unwrap_or_else(|problems| panic!("{text}{problems:?}"));
    let workload = parsed.job.workload.expect("a workload");
    LayoutRequest { parallel: workload.parallel, zeros: [true; 4], recompute: None, is_whole: false }
}

fn requested(lines: &str) -> TrainingSpec {
    spec(64, ParallelChoice::Requested(request(lines)))
}

/// The layouts in words, without what they recompute.
fn found(spec: &TrainingSpec, nodes: u32, gpus_per_node: u32) -> Vec<String> {
    let words = |parallel| {
        let words = layout_words(&config(parallel), &spec.network);
        let end = words.find('}').expect("degrees");
        words["parallel: {".len()..end].to_owned()
    };
    layouts(spec, nodes, gpus_per_node).into_iter().map(words).collect()
}

fn config(parallel: ParallelDegrees) -> ParallelConfig {
    ParallelConfig {
        precision: NumericFormat::AmpBf16,
        parallel,
        micro_batch: 1,
        accumulate: 1,
        recompute: ActivationCheckpointing::None,
        step: 1.0,
        needed: 1.0,
        needed_low: 1.0,
        needed_high: 1.0,
        verdict: MemoryFit::Fits,
        start: 0.0,
        simpler: Vec::new(),
    }
}

#[test]
fn a_job_is_laid_out_as_it_says() {
    let check = |degrees: &str, nodes: u32, expected: &[&str]| {
        assert_eq!(found(&requested(&format!("parallel: {{{degrees}}}")), nodes, 8), expected, "{degrees} on {nodes}");
    };
    check("fsdp: 8", 1, &["data: 1, fsdp: 8, tensor: 1, pipeline: 1, zero: 3"]);
    check("data: 4, fsdp: 8", 4, &["data: 4, fsdp: 8, tensor: 1, pipeline: 1, zero: 3"]);
    check("data: 4, fsdp: 8", 2, &[]);
    check("fsdp: 8, zero: 2, tensor: 1, pipeline: 1", 2, &["data: 2, fsdp: 8, tensor: 1, pipeline: 1, zero: 2"]);
    check(
        "fsdp: 8",
        2,
        &[
            "data: 2, fsdp: 8, tensor: 1, pipeline: 1, zero: 3",
            "data: 1, fsdp: 8, tensor: 2, sequence: true, pipeline: 1, zero: 3",
            "data: 1, fsdp: 8, tensor: 1, pipeline: 2, schedule: 1f1b, zero: 3",
        ],
    );
    check(
        "data: 8",
        1,
        &[
            "data: 8, tensor: 1, pipeline: 1, zero: 0",
            "data: 8, tensor: 1, pipeline: 1, zero: 1",
            "data: 1, fsdp: 8, tensor: 1, pipeline: 1, zero: 2",
            "data: 1, fsdp: 8, tensor: 1, pipeline: 1, zero: 3",
        ],
    );
    check("data: 8, zero: 1", 1, &["data: 8, tensor: 1, pipeline: 1, zero: 1"]);
    check("data: 4, zero: 0", 1, &["data: 4, tensor: 2, sequence: true, pipeline: 1, zero: 0"]);
    check("data: 1, tensor: 8", 1, &["data: 1, tensor: 8, sequence: true, pipeline: 1"]);
    check("data: 1, tensor: 8, sequence: false", 1, &["data: 1, tensor: 8, sequence: false, pipeline: 1"]);
    check(
        "data: 1, tensor: 8, pipeline: 2, virtual_stages: 4",
        2,
        &["data: 1, tensor: 8, sequence: true, pipeline: 2, schedule: interleaved, virtual_stages: 4"],
    );
    check("fsdp: 2, context: 4", 1, &["data: 1, fsdp: 2, tensor: 1, pipeline: 1, context: 4, zero: 3"]);
    check("fsdp: 8, expert: 8", 1, &["data: 1, fsdp: 8, tensor: 1, pipeline: 1, expert: 8, zero: 3"]);
    check("tensor: 3, data: 1", 1, &[]);
}

/// Whoever writes what a plan prints gets that layout, and no other.
#[test]
fn words_of_a_layout_are_read_as_it() {
    let mut all = layouts(&spec(64, ParallelChoice::Search), 4, 8);
    for degrees in
        ["data: 2, fsdp: 16", "fsdp: 4, tensor: 2, pipeline: 4", "fsdp: 4, context: 8", "data: 16, tensor: 2"]
    {
        all.extend(layouts(&requested(&format!("parallel: {{{degrees}}}")), 4, 8));
    }
    assert!(all.len() > 12, "{all:?}");
    for parallel in all {
        let network = requested("recompute: none").network;
        let words = layout_words(&config(parallel), &network).replace(", recompute: none", "\n  recompute: none");
        assert_eq!(layouts(&requested(&words), 4, 8), [parallel], "{words}");
        // On twice as many GPUs it would be another layout, and is none.
        assert!(layouts(&requested(&words), 8, 8).is_empty(), "{words}");
    }
}

/// Experts are left to the search as well: those of a machine, and no more than there are.
#[test]
fn experts_are_divided() {
    let dividing = |experts: u32, nodes: u32, gpus_per_node: u32| -> Vec<u32> {
        let plain = spec(64, ParallelChoice::Search);
        let spec = TrainingSpec { network: NetworkFigures { experts, ..plain.network }, ..plain };
        let all = layouts(&spec, nodes, gpus_per_node);
        let mut degrees: Vec<u32> = all.iter().map(|one| one.expert).filter(|degree| *degree > 1).collect();
        assert!(all.iter().all(|one| one.replicas().is_multiple_of(one.expert)), "{all:?}");
        degrees.sort_unstable();
        degrees.dedup();
        degrees
    };
    assert!(dividing(0, 4, 8).is_empty() && dividing(8, 1, 1).is_empty());
    // Beside eight tensor-parallel ranks there are four replicas.
    assert_eq!(dividing(8, 4, 8), [4, 8]);
    assert_eq!(dividing(256, 4, 8), [4, 8, 16, 32]);
    assert_eq!(dividing(60, 1, 8), [2, 4], "sixty do not divide among eight");
}

/// The search takes no more tensor-parallel ranks than there are heads of keys and values; a job may ask for them.
#[test]
fn tensor_parallel_ranks_have_heads_of_keys_each() {
    let of = |division: ParallelChoice| {
        let plain = spec(64, division);
        let spec = TrainingSpec { network: NetworkFigures { key_heads: 4, ..plain.network }, ..plain };
        layouts(&spec, 1, 8).into_iter().map(|one| one.tensor).max()
    };
    assert_eq!(of(ParallelChoice::Search), Some(4));
    assert_eq!(of(ParallelChoice::Requested(request("parallel: {tensor: 8}"))), Some(8));
}

/// Ranks of tensor parallelism divide the sequence as well, as today's programs do, unless it is short or odd.
#[test]
fn tensor_parallel_ranks_divide_the_sequence() {
    let of = |tokens: u64| {
        let plain = spec(64, ParallelChoice::Search);
        let spec = TrainingSpec { network: NetworkFigures { tokens, ..plain.network }, ..plain };
        let all = layouts(&spec, 4, 8);
        let tensor: Vec<bool> = all.iter().filter(|one| one.tensor > 1).map(|one| one.sequence).collect();
        assert!(tensor.len() > 6 && all.iter().all(|one| one.tensor > 1 || !one.sequence), "{all:?}");
        tensor
    };
    assert!(of(4096).into_iter().all(|divides| divides));
    assert!(of(512).into_iter().chain(of(4095)).all(|divides| !divides));
}

/// Long sequences are left to the search as well, in every way that divides them equally; what it prints keeps the layout.
#[test]
fn long_sequences_are_divided() {
    let of = |tokens: u64| {
        let short = spec(8, ParallelChoice::Search);
        TrainingSpec { network: NetworkFigures { tokens, ..short.network }, ..short }
    };
    let dividing = |tokens: u64| -> Vec<ParallelDegrees> {
        layouts(&of(tokens), 4, 8).into_iter().filter(|one| one.context > 1).collect()
    };
    assert!(dividing(16_384).is_empty() && dividing(32_769).is_empty(), "short, or of odd length");
    let found = dividing(131_072);
    for (tensor, context, zero) in [(1, 8, Zero::Parameters), (2, 4, Zero::Gradients), (8, 2, Zero::Optimizer)] {
        let is_so = |one: &ParallelDegrees| (one.tensor, one.context, one.zero) == (tensor, context, zero);
        assert!(found.iter().any(is_so), "tensor {tensor}, context {context}: {found:?}");
    }
    assert!(found.len() <= 64, "{}", found.len());
    for parallel in found {
        assert_eq!(parallel.replicas() * parallel.tensor, 32, "{parallel:?}");
        assert_eq!(parallel.sequence, parallel.tensor > 1, "{parallel:?}");
        let words = layout_words(&config(parallel), &of(131_072).network);
        let request = request(&words.replace(", recompute: none", ""));
        let asked = TrainingSpec { division: ParallelChoice::Requested(request), ..of(131_072) };
        assert_eq!(layouts(&asked, 4, 8), [parallel], "{words}");
    }
}

/// Experts and long sequences are divided beside degrees that the job has, and what a plan prints leaves none of them open.
#[test]
fn degrees_that_a_job_leaves_out_are_chosen_and_printed() {
    for (experts, tokens) in [(8, 4096), (0, 131_072)] {
        let of = |division: ParallelChoice| {
            let plain = spec(64, division);
            TrainingSpec { network: NetworkFigures { experts, tokens, ..plain.network }, ..plain }
        };
        let is_divided = |one: &ParallelDegrees| one.expert > 1 || one.context > 1;
        let beside = layouts(&of(ParallelChoice::Requested(request("parallel: {tensor: 2}"))), 4, 8);
        assert!(beside.iter().any(is_divided) && beside.iter().all(|one| one.tensor == 2), "{beside:?}");
        let all = layouts(&of(ParallelChoice::Search), 4, 8);
        assert!(all.iter().any(is_divided) && !all.iter().all(is_divided), "{all:?}");
        for parallel in all {
            let words = layout_words(&config(parallel), &of(ParallelChoice::Search).network);
            let asked = of(ParallelChoice::Requested(request(&words.replace(", recompute: none", ""))));
            assert_eq!(layouts(&asked, 4, 8), [parallel], "{words}");
            assert!(layouts(&asked, 8, 8).is_empty(), "{words}");
        }
    }
}

proptest! {
    /// A layout has the degrees that the job has, uses all GPUs, and there are few of them.
    #[test]
    fn layouts_keep_to_the_degrees_of_the_job(
        data in prop::option::of(prop::sample::select(vec![1u32, 2, 4, 8])),
        fsdp in prop::option::of(prop::sample::select(vec![1u32, 2, 4, 8])),
        tensor in prop::option::of(prop::sample::select(vec![1u32, 2, 8, 16])),
        pipeline in prop::option::of(prop::sample::select(vec![1u32, 2, 4])),
        context in prop::option::of(prop::sample::select(vec![1u32, 2, 4])),
        expert in prop::option::of(prop::sample::select(vec![1u32, 2, 8])),
        zero in prop::option::of(2u8..=3),
        nodes in prop::sample::select(vec![1u32, 2, 4, 8]),
    ) {
        let rest = WorkloadParallel::default();
        let parallel = WorkloadParallel { data, fsdp, tensor, pipeline, context, expert, zero, ..rest };
        let request = LayoutRequest { parallel, zeros: [true; 4], recompute: None, is_whole: false };
        let all = layouts(&spec(64, ParallelChoice::Requested(request)), nodes, 8);
        prop_assert!(all.len() <= 64);
        for found in all {
            let is_kept = |asked: Option<u32>, found: u32| asked.is_none_or(|asked| asked == found);
            prop_assert_eq!(found.replicas() * found.tensor * found.pipeline, 8 * nodes);
            prop_assert!(is_kept(tensor, found.tensor) && is_kept(pipeline, found.pipeline), "{:?}", found);
            prop_assert!(is_kept(context, found.context) && is_kept(expert, found.expert), "{:?}", found);
            let is_sharded = fsdp.is_some_and(|ranks| ranks > 1);
            prop_assert!(is_kept(data, if is_sharded { found.copies } else { found.data }), "{:?}", found);
            prop_assert!(!is_sharded || is_kept(fsdp, found.data / found.copies), "{:?}", found);
            prop_assert!(found.replicas() == 1 || zero.is_none_or(|stage| stage == found.zero as u8), "{:?}", found);
            prop_assert!((found.replicas() * found.tensor).is_multiple_of(found.expert), "{:?}", found);
        }
    }
}

/// What a program does when it updates excludes stages of ZeRO and pipelines, before anything is estimated.
#[test]
fn layouts_go_with_how_the_program_updates() {
    let of = |zeros, is_whole| {
        let request = LayoutRequest { zeros, is_whole, ..request("recompute: true") };
        layouts(&spec(64, ParallelChoice::Requested(request)), 4, 8)
    };
    let all = layouts(&spec(64, ParallelChoice::Search), 4, 8);
    assert_eq!(of([true; 4], false), all);
    let adapted = of([true, false, false, true], true);
    assert!(adapted.iter().all(|one| one.pipeline == 1 && matches!(one.zero, Zero::None | Zero::Parameters)));
    assert!(adapted.len() < all.len());
    let offloaded = of([false, true, true, true], false);
    assert!(offloaded.iter().all(|one| one.zero >= Zero::Optimizer || one.replicas() == 1));
}

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

fn device(nodes: u32) -> Device {
    let gpu = Gpu {
        name: "G".to_owned(),
        architecture: GpuArchitecture::Ampere,
        memory: Bytes(80 << 30),
        usable: Bytes(80 << 30),
        bandwidth: 1e12,
        rates: Rates { fp32: 1e13, ..Rates::default() },
        link: Link::Pcie,
        pcie: 4,
        multiprocessors: 100,
        power: 300.0,
        traits: GpuTraits::default(),
        source: String::new(),
    };
    Device { gpu, nodes, gpus_per_node: 8, network: None }
}

#[test]
fn a_pipeline_that_is_asked_for_has_several_micro_batches() {
    let mut plain = Plain::of(1e6);
    let spec = requested("parallel: {data: 2, pipeline: 4}");
    let way = fastest(&spec, &device(1), &mut plain).expect("a way");
    // Of 32 samples, 32 micro-batches of one take 38.5 s, 16 of two 39.9 s, and one of all 128.4 s.
    assert_eq!((way.parallel.pipeline, way.accumulate, way.micro_batch), (4, 32, 1));
    let interleaved = requested("parallel: {data: 2, pipeline: 4, virtual_stages: 2}");
    let way = fastest(&interleaved, &device(1), &mut plain).expect("a way");
    assert!(way.accumulate.is_multiple_of(4), "{way:?}");
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
        let way = fastest(&spec, &device(1), &mut exchanging).expect("a way");
        let degrees = |one: &ParallelDegrees| (one.data, one.tensor, one.context, one.expert);
        (degrees(&way.parallel), exchanging.priced.iter().map(degrees).collect::<Vec<_>>())
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
        fastest(&spec, &device(1), &mut Plain::of(memory_of_sample)).map(|way| way.accumulate)
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
    let way = fastest(&requested("parallel: {data: 8, zero: 0}"), &device(1), &mut plain).expect("a way");
    assert_eq!((way.accumulate, way.recompute, plain.priced), (2, ActivationCheckpointing::None, 1));
}

#[test]
fn gpus_that_do_not_divide_are_refused_as_such() {
    let no = fastest(&requested("parallel: {data: 16}"), &device(1), &mut Plain::of(1.0));
    assert_eq!(no, Err(Infeasible::Layout));
}

#[test]
fn the_program_is_said_as_todays_pytorch() {
    let words = |parallel: ParallelDegrees, savings: Savings| {
        program_words(&spec(64, ParallelChoice::Search), &savings, &config(parallel))
    };
    let sharded = ParallelDegrees { data: 8, zero: Zero::Parameters, ..ParallelDegrees::default() };
    assert_eq!(
        words(sharded, Savings::default()),
        "PyTorch FSDP2, autocast to bf16 beside fp32 weights, eager, flash attention"
    );
    let chunked = Savings { chunked_loss: true, offload_optimizer: true, ..Savings::default() };
    assert_eq!(
        words(ParallelDegrees { data: 8, ..ParallelDegrees::default() }, chunked),
        "PyTorch DDP, autocast to bf16 beside fp32 weights, eager, flash attention, optimizer state on the host, loss in chunks"
    );
}

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
        let way = fastest(&spec, &device(1), &mut ByLayout { seconds, fits }).expect("a way");
        let simpler: Vec<f64> = way.simpler.iter().map(|way| way.step).collect();
        assert_eq!([&[way.step][..], &simpler[..]], expected, "{seconds:?}");
        assert!(way.simpler.iter().all(|one| one.simpler.is_empty() && one.verdict == way.verdict), "{way:?}");
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
    let way = fastest(&spec, &device(1), &mut ByLayout { seconds, fits: |_| true }).expect("a way");
    assert_eq!((way.parallel.tensor, way.simpler), (2, Vec::new()));
}

/// Two layouts that are closer than half the band of their class cannot be told apart by their estimates.
#[test]
fn the_margin_is_within_the_band_of_every_class() {
    let coefficients = FittedCoefficients::embedded().expect("figures");
    for (class, [low, high]) in &coefficients.bands.classes {
        assert!((1.0 + LAYOUT_MARGIN).ln() < (high - low) / 2.0, "{class:?}");
    }
}
