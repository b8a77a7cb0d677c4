use domain::Bytes;
use domain::gpu::{Gpu, GpuArchitecture, GpuTraits, Link, Rates};

use super::*;
use crate::estimate::{ActivationCheckpointing, Device, Layout, NumericFormat, OptimizerKind, ParallelDegrees, Zero};
use crate::model::families::block::Experts;
use crate::model::families::language::bert::Head;
use crate::model::families::{Bert, Gpt, Llama, Resnet};
use crate::model::{Builder, Graph};

/// Estimates with the figures that a fit begins with.
fn memory(model: &ModelDescription, setup: &Setup) -> MemoryEstimate {
    memory_with(model, setup, &Savings::default(), &MemoryCoefficients::default())
}

const GIB: f64 = 1_073_741_824.0;

fn setup(gpu_gib: f64, micro_batch: u64, precision: NumericFormat) -> Setup {
    let memory = Bytes((gpu_gib * GIB) as u64);
    let gpu = Gpu {
        name: "V100-SXM2-16GB".to_owned(),
        architecture: GpuArchitecture::Volta,
        memory,
        usable: memory,
        bandwidth: 900e9,
        rates: Rates { fp32: 15.7e12, fp16: Some(125e12), ..Rates::default() },
        link: Link::Pcie,
        pcie: 3,
        multiprocessors: 80,
        power: 300.0,
        source: String::new(),
        traits: GpuTraits::default(),
    };
    Setup {
        device: Device { gpu, nodes: 1, gpus_per_node: 1, network: None },
        precision,
        layout: Layout::ChannelsFirst,
        micro_batch,
        accumulate: 1,
        parallel: ParallelDegrees::default(),
        recompute: ActivationCheckpointing::None,
        optimizer: OptimizerKind::Adam,
        flash_attention: false,
        compiled: false,
    }
}

fn on(gpus: u32, setup: Setup) -> Setup {
    let mut setup = setup;
    setup.device.gpus_per_node = gpus;
    setup.parallel.data = gpus;
    setup
}

fn resnet50() -> ModelDescription {
    ModelDescription::Graph(Resnet::imagenet(50).expect("50 layers").graph())
}

fn bert_large() -> ModelDescription {
    ModelDescription::Graph(Bert::large(512, Head::Sequence { classes: 2 }).graph())
}

fn check(what: &str, bytes: f64, gib: f64, percent: f64) {
    let error = 100.0 * (bytes / GIB / gib - 1.0);
    assert!(error.abs() <= percent, "{what}: {:.2} GiB, measured {gib}, {error:+.1} %", bytes / GIB);
}

/// Hugging Face, `perf_train_gpu_one`: BERT large for sequences of 512 on a V100 of 16 GB, as nvidia-smi shows it.
#[test]
fn bert_large_takes_what_hugging_face_measured() {
    let alone = |batch| setup(16.0, batch, NumericFormat::Fp32);
    let gathered = |batch| Setup { accumulate: 4, ..alone(batch) };
    let cases = [
        ("batch 4", alone(4), 14.60),
        ("4 × 1", gathered(1), 8.48),
        ("4 × 1, recomputed", Setup { recompute: ActivationCheckpointing::Full, ..gathered(1) }, 6.62),
        ("batch 4 in half precision", Setup { precision: NumericFormat::AmpFp16, ..alone(4) }, 13.61),
        ("batch 4, Adafactor", Setup { optimizer: OptimizerKind::Adafactor, ..alone(4) }, 12.01),
        ("batch 4, Adam in 8 bits", Setup { optimizer: OptimizerKind::Adam8bit, ..alone(4) }, 12.78),
    ];
    for (what, setup, gib) in cases {
        check(what, memory(&bert_large(), &setup).middle, gib, 9.0);
    }
}

/// Megatron's count (Korthikanti et al. 2022): `sbh (34 + 5as/h)` bytes a layer, with whole scores.
#[test]
fn a_layer_of_gpt_keeps_what_korthikanti_counts() {
    let kept = |layers: u64, change: fn(&mut Setup)| {
        let gpt = ModelDescription::Graph(Gpt::megatron(1024, layers, 16, 512, 512).graph());
        let mut setup = Setup { accumulate: 2, ..setup(80.0, 1, NumericFormat::AmpFp16) };
        change(&mut setup);
        memory_with(&gpt, &setup, &Savings { half_model: true, ..Savings::default() }, &MemoryCoefficients::default())
            .activations
    };
    let layer = |change: fn(&mut Setup)| kept(9, change) - kept(8, change);
    let (sequence, hidden, heads) = (512.0, 1024.0, 16.0);
    let close = |what: &str, bytes: f64, expected: f64| {
        assert!((bytes / expected - 1.0).abs() < 0.02, "{what}: {bytes} bytes, expected {expected}");
    };
    close("whole", layer(|_| {}), sequence * hidden * (34.0 + 5.0 * heads * sequence / hidden));
    close(
        "without scores",
        layer(|setup| setup.recompute = ActivationCheckpointing::Selective),
        sequence * hidden * 34.0,
    );
    close("recomputed", layer(|setup| setup.recompute = ActivationCheckpointing::Full), sequence * hidden * 2.0);
    let divided = sequence * hidden * (10.0 + 24.0 / 4.0 + 5.0 * heads * sequence / hidden / 4.0);
    close("over four GPUs", layer(|setup| setup.parallel.tensor = 4), divided);
}

#[test]
fn what_two_operators_keep_is_there_once() {
    let mut builder = Builder::new();
    let words = builder.embed("words", 128, 1000, 256, crate::model::WeightSplit::Whole);
    let one = builder.linear("one", words, 256, false, crate::model::WeightSplit::Whole);
    let two = builder.linear("two", words, 256, false, crate::model::WeightSplit::Whole);
    builder.combine("sum", one, two, false);
    let graph = builder.finish();
    let kept = |graph: &Graph| {
        memory(&ModelDescription::Graph(graph.clone()), &setup(16.0, 1, NumericFormat::Fp32)).activations
    };
    let both = kept(&graph);
    let mut copied = graph;
    let copy = copied.tensors.len() as u32;
    copied.tensors.push(128 * 256);
    copied.operators[2].inputs = vec![crate::model::TensorId(copy)];
    assert!(kept(&copied) > both, "{both}");
}

#[test]
fn states_are_divided_as_zero_divides_them() {
    let model = ModelDescription::Graph(Llama::three_8b(128).graph());
    let states = |zero: Zero| {
        let mut setup = on(8, setup(80.0, 1, NumericFormat::Bf16));
        setup.parallel.zero = zero;
        let memory = memory(&model, &setup);
        [memory.weights, memory.gradients, memory.optimizer].map(|bytes| bytes / 8.030_261_248e9)
    };
    let same = |zero: Zero, expected: [f64; 3]| {
        for (bytes, expected) in states(zero).iter().zip(expected) {
            assert!((bytes - expected).abs() < 0.01, "{zero:?}: {bytes} bytes a parameter, expected {expected}");
        }
    };
    same(Zero::None, [2.0, 2.0, 4.0]);
    same(Zero::Optimizer, [2.0, 2.0, 0.5]);
    same(Zero::Gradients, [2.0, 0.25, 0.5]);
    same(Zero::Parameters, [0.25, 0.25, 0.5]);
}

/// Eight GPUs hold all experts among them, however many ranks of tensor parallelism share them.
#[test]
fn experts_are_in_no_more_parts_than_there_are_gpus() {
    let experts = Experts { count: 8, active: 2, shared: 0, weighed: false };
    let llama = Llama { layers: 4, experts: Some(experts), ..Llama::three_8b(128) };
    let model = ModelDescription::Graph(llama.graph());
    let weights = |data: u32, tensor: u32, expert: u32| {
        let mut setup = on(8, setup(80.0, 1, NumericFormat::Bf16));
        setup.parallel = ParallelDegrees { data, tensor, expert, ..setup.parallel };
        memory(&model, &setup).weights
    };
    let same = |one: f64, other: f64| assert!((one - other).abs() < 1.0, "{one} and {other} bytes");
    same(weights(1, 8, 8), weights(1, 8, 1));
    same(weights(4, 2, 8), weights(4, 2, 4));
    assert!(weights(4, 2, 4) < 0.5 * weights(4, 2, 1));
}

#[test]
fn half_precision_halves_what_a_image_takes() {
    let slope = |precision| {
        let of = |batch| memory(&resnet50(), &setup(80.0, batch, precision)).middle;
        (of(256) - of(128)) / 128.0 / GIB
    };
    let (half, full) = (slope(NumericFormat::AmpFp16), slope(NumericFormat::Fp32));
    // Lambda's rows that fill their cards: 0.052 and 0.103 GiB an image.
    check("half", half * GIB, 0.052, 10.0);
    check("full", full * GIB, 0.103, 10.0);
}

#[test]
fn the_first_stage_of_a_pipeline_holds_most_micro_batches() {
    let gpt = ModelDescription::Graph(Gpt::megatron(1024, 24, 16, 1024, 1024).graph());
    let of = |pipeline, accumulate| {
        let mut setup = Setup { accumulate, ..setup(80.0, 4, NumericFormat::AmpFp16) };
        setup.parallel.pipeline = pipeline;
        memory(&gpt, &setup)
    };
    let (whole, cut) = (of(1, 8), of(4, 8));
    assert!(cut.weights < 0.35 * whole.weights);
    // A quarter of the layers, four times.
    assert!((cut.activations / whole.activations - 1.0).abs() < 0.1, "{} {}", cut.activations, whole.activations);
    assert!(of(4, 1).activations < 0.4 * cut.activations);
}

#[test]
fn the_largest_batch_fits_and_the_next_does_not() {
    for precision in [NumericFormat::Fp32, NumericFormat::AmpFp16] {
        let setup = setup(16.0, 1, precision);
        let largest =
            largest_batch(&resnet50(), &setup, &Savings::default(), &MemoryCoefficients::default()).expect("one fits");
        let needed = |micro_batch| memory(&resnet50(), &Setup { micro_batch, ..setup.clone() }).needed();
        let has = setup.device.gpu.usable.0 as f64;
        assert!(needed(largest) <= has && needed(largest + 1) > has, "{precision:?}: {largest}");
    }
    let large = ModelDescription::Graph(Llama::three_70b(4096).graph());
    assert_eq!(
        largest_batch(
            &large,
            &setup(16.0, 1, NumericFormat::Bf16),
            &Savings::default(),
            &MemoryCoefficients::default()
        ),
        None
    );
}

#[test]
fn totals_alone_give_a_wider_band() {
    let ModelDescription::Graph(graph) = resnet50() else { panic!("a graph") };
    let totals = ModelDescription::Summary(graph.summary(Some("resnet".to_owned())));
    let setup = setup(80.0, 256, NumericFormat::AmpFp16);
    let (from_graph, from_totals) = (memory(&resnet50(), &setup), memory(&totals, &setup));
    let width = |memory: &MemoryEstimate| (memory.high - memory.low) / memory.middle;
    assert!(width(&from_totals) > 1.5 * width(&from_graph));
    assert!((from_totals.middle / from_graph.middle - 1.0).abs() < 0.5);
}

/// torchtune's README: Llama 3.1 of 70 billion weights on eight A100 with everything in the host's memory, 2 sequences of
/// 2,048, compiled and recomputed: 13.9 GiB of active blocks. Of the network only the parts at work are on the GPU.
#[test]
fn sharded_weights_take_the_part_at_work_its_gradients_and_their_copy() {
    let llama = ModelDescription::Graph(Llama::three_70b(2048).graph());
    let mut setup = Setup {
        recompute: ActivationCheckpointing::Full,
        flash_attention: true,
        compiled: true,
        ..on(8, setup(80.0, 2, NumericFormat::Bf16))
    };
    setup.parallel.zero = Zero::Parameters;
    let savings = Savings { offload_weights: true, offload_optimizer: true, ..Savings::default() };
    let memory = memory_with(&llama, &setup, &savings, &MemoryCoefficients::default());
    check("70 billion weights in the host's memory", memory.allocated(), 13.9, 3.0);
    // A table of words three times, a block once.
    let (table, block) = (128_256.0 * 8192.0, 855_654_400.0);
    assert_eq!(memory.communication, 2.0 * (3.0 * table + block));
}

/// Sixteen ranks that hold two sharded copies have as much of each as eight that hold one.
#[test]
fn hybrid_sharding_is_over_the_ranks_of_a_copy() {
    let of = |data: u32, copies: u32| {
        let mut setup = on(8, setup(80.0, 1, NumericFormat::Bf16));
        setup.parallel = ParallelDegrees { data, copies, zero: Zero::Parameters, ..ParallelDegrees::default() };
        let memory = memory(&bert_large(), &setup);
        [memory.weights, memory.gradients, memory.optimizer]
    };
    assert_eq!(of(16, 2), of(8, 1));
    assert!(of(16, 1).iter().zip(of(16, 2)).all(|(over_all, of_two)| 1.9 * over_all < of_two));
}

/// Of 32 recomputed blocks the inputs of 30 are on the host: of two samples, 4,096 tokens of 4,096 values of two bytes.
#[test]
fn inputs_of_recomputed_blocks_wait_on_the_host() {
    let llama = ModelDescription::Graph(Llama::three_8b(4096).graph());
    let of = |recompute: ActivationCheckpointing, offload_activations: bool| {
        let setup = Setup { recompute, flash_attention: true, ..setup(80.0, 2, NumericFormat::Bf16) };
        let savings = Savings { offload_activations, ..Savings::default() };
        memory_with(&llama, &setup, &savings, &MemoryCoefficients::default()).activations
    };
    let saved = of(ActivationCheckpointing::Full, false) - of(ActivationCheckpointing::Full, true);
    assert!((saved / (30.0 * 2.0 * 4096.0 * 4096.0 * 2.0) - 1.0).abs() < 1e-6, "{saved}");
    assert_eq!(of(ActivationCheckpointing::None, true), of(ActivationCheckpointing::None, false));
}

#[test]
fn a_gpu_must_have_less_than_a_monitor_shows_where_there_is_room() {
    let memory = memory(&resnet50(), &setup(16.0, 128, NumericFormat::Fp32));
    assert!(
        memory.low < memory.required && memory.required < memory.middle && memory.required < memory.high,
        "{memory:?}"
    );
    // NVIDIA's program trains with as many images on a V100 of 16 GB.
    assert_eq!(verdict(&memory, &setup(15.8, 128, NumericFormat::Fp32).device.gpu), MemoryFit::Fits);
}

/// Frozen weights that are sharded, with adapters in fp32: what enters each recomputed block is there twice.
#[test]
fn checkpoints_beside_sharded_frozen_weights_are_in_fp32() {
    let model = ModelDescription::Graph(Gpt::megatron(1024, 8, 16, 512, 512).graph());
    let mut setup = on(4, setup(80.0, 4, NumericFormat::AmpBf16));
    setup.recompute = ActivationCheckpointing::Full;
    let activations = |setup: &Setup, fp32_adapters| {
        let adapters = Some(Adapters { rank: 8, quantized: false });
        let savings = Savings { adapters, fp32_adapters, half_model: true, ..Savings::default() };
        memory_with(&model, setup, &savings, &MemoryCoefficients::default()).activations
    };
    assert_eq!(activations(&setup, true), activations(&setup, false), "whole weights");
    setup.parallel.zero = Zero::Parameters;
    let more = activations(&setup, true) - activations(&setup, false);
    assert_eq!(more, 4.0 * 8.0 * 512.0 * 1024.0 * 2.0);
}

/// A program that names its scores keeps them in 16 bits beside the loss's copies.
#[test]
fn scores_that_are_named_stay() {
    let model = ModelDescription::Graph(Gpt::megatron(256, 1, 4, 51_200, 512).graph());
    let setup = setup(80.0, 1, NumericFormat::AmpBf16);
    let activations = |holds_scores, chunked_loss| {
        let savings = Savings { holds_scores, chunked_loss, half_model: true, ..Savings::default() };
        memory_with(&model, &setup, &savings, &MemoryCoefficients::default()).activations
    };
    assert_eq!(activations(true, false) - activations(false, false), 512.0 * 51_200.0 * 2.0);
    assert_eq!(activations(true, true), activations(false, true));
}

/// Gradients come as activations go: the fullest moment has the scores of all tokens and no gradients, or all gradients and
/// what the update holds beside them.
#[test]
fn gradients_that_are_let_go_are_not_there_with_all_activations() {
    let model = ModelDescription::Graph(Gpt::megatron(1024, 8, 16, 51_200, 512).graph());
    let savings = Savings { frees_gradients: true, foreach_update: true, ..Savings::default() };
    let estimate = |savings: &Savings, micro_batch, accumulate| {
        let setup = Setup { accumulate, ..setup(80.0, micro_batch, NumericFormat::Bf16) };
        memory_with(&model, &setup, savings, &MemoryCoefficients::default())
    };
    let large = estimate(&savings, 64, 1);
    let kept = estimate(&Savings { frees_gradients: false, ..savings }, 64, 1);
    assert_eq!((large.gradients, large.activations), (0.0, kept.activations));
    let small = estimate(&savings, 1, 1);
    assert_eq!((small.gradients, small.activations), (small.weights, small.weights), "a value of each for the update");
    assert_eq!(estimate(&savings, 64, 2), estimate(&Savings { frees_gradients: false, ..savings }, 64, 2));
}

/// PEFT's preparation of 4-bit networks doubles what enters each recomputed block, on one GPU too.
#[test]
fn checkpoints_of_prepared_networks_are_in_fp32() {
    let model = ModelDescription::Graph(Gpt::megatron(1024, 8, 16, 512, 512).graph());
    let setup = Setup { recompute: ActivationCheckpointing::Full, ..setup(80.0, 4, NumericFormat::Bf16) };
    let activations = |fp32_between_blocks| {
        let adapters = Some(Adapters { rank: 8, quantized: true });
        let savings = Savings { adapters, fp32_between_blocks, ..Savings::default() };
        memory_with(&model, &setup, &savings, &MemoryCoefficients::default()).activations
    };
    assert_eq!(activations(true) - activations(false), 4.0 * 8.0 * 512.0 * 1024.0 * 2.0);
}

/// The whole network stands beside the first shard where ranks load it before they shard it.
#[test]
fn networks_that_are_loaded_whole_are_the_fullest_moment_of_small_batches() {
    let model = ModelDescription::Graph(Gpt::megatron(1024, 8, 16, 512, 64).graph());
    let estimate = |loads_whole, micro_batch| {
        let mut setup = on(4, setup(80.0, micro_batch, NumericFormat::Bf16));
        setup.parallel.zero = Zero::Parameters;
        let savings = Savings { loads_whole, ..Savings::default() };
        memory_with(&model, &setup, &savings, &MemoryCoefficients::default())
    };
    let (loaded, sharded) = (estimate(true, 1), estimate(false, 1));
    let whole = 4.0 * loaded.weights;
    assert!((loaded.communication + loaded.activations - whole).abs() < 1.0, "{loaded:?}");
    assert!(loaded.communication > sharded.communication);
    assert_eq!(estimate(true, 512), estimate(false, 512));
}

/// Blocks of 10 MiB and more are allocated one by one, so that little of them is lost.
#[test]
fn little_is_lost_of_large_blocks() {
    let model = ModelDescription::Graph(Gpt::megatron(1024, 8, 16, 512, 512).graph());
    let lost = |micro_batch| {
        let memory = memory(&model, &setup(80.0, micro_batch, NumericFormat::Bf16));
        let figures = MemoryCoefficients::default();
        (memory.margin - figures.fragmentation * memory.workspace) / memory.activations
    };
    // A sample passes 1 MiB from block to block.
    assert!((lost(9) - MemoryCoefficients::default().fragmentation).abs() < 1e-9, "{}", lost(9));
    assert!((lost(10) - 0.10).abs() < 1e-9, "{}", lost(10));
}

/// Rank 0 is of the first stage, which has no scores of tokens.
#[test]
fn the_first_stage_is_not_always_the_fullest() {
    let model = ModelDescription::Graph(Gpt::megatron(256, 4, 4, 51_200, 512).graph());
    let mut setup = setup(80.0, 8, NumericFormat::Bf16);
    setup.parallel.pipeline = 2;
    let profile = Profile::new(&model, &setup, &Savings::default(), &MemoryCoefficients::default());
    assert!(profile.first_stage(&setup).needed() < profile.memory(&setup).needed());
    let setup = Setup { accumulate: 64, micro_batch: 1, ..setup };
    assert!(profile.first_stage(&setup).needed() <= profile.memory(&setup).needed());
}

/// What ranks hold that gather the sequence again, beside what the walk counts.
#[test]
fn sequences_that_are_gathered_again_cost_something_besides() {
    let model = ModelDescription::Graph(Gpt::megatron(1024, 8, 16, 512, 512).graph());
    let activations = |sequence| {
        let mut setup = setup(80.0, 4, NumericFormat::Bf16);
        (setup.parallel.tensor, setup.parallel.sequence) = (4, sequence);
        let savings = Savings { gathers_again: true, ..Savings::default() };
        let profile = Profile::new(&model, &setup, &savings, &MemoryCoefficients::default());
        let alone = Profile::new(&model, &setup, &Savings::default(), &MemoryCoefficients::default());
        (profile.memory(&setup).activations, alone.memory(&setup).activations)
    };
    let (again, kept) = activations(false);
    assert_eq!(again, kept, "nothing is gathered");
    let (again, kept) = activations(true);
    assert!(again < kept, "{again} {kept}");
}
