//! What ranks exchange, what starts it, and how a pipeline is divided.

use domain::Bytes;
use domain::gpu::{Gpu, GpuArchitecture, GpuTraits, Link, Rates};

use super::exchanges::{data_collectives, gathered_bytes, gradient_bytes, hybrid_collectives, layer_ring};
use super::*;
use crate::estimate::collective::Ring;
use crate::estimate::machine::{EagerModules, ProgramStyle};
use crate::estimate::savings::Adapters;
use crate::estimate::setup::{ActivationCheckpointing, Device, Layout, NumericFormat, OptimizerKind, ParallelDegrees};
use crate::model::families::{Gpt, Resnet};

/// GPUs of eight to a node, as in a DGX H100.
fn setup(parallel: ParallelDegrees) -> Setup {
    let gpu = Gpu {
        name: "H100-SXM5".to_owned(),
        architecture: GpuArchitecture::Hopper,
        memory: Bytes(80 << 30),
        usable: Bytes(79 << 30),
        bandwidth: 3.35e12,
        rates: Rates { fp32: 66.9e12, fp16: Some(989e12), bf16: Some(989e12), ..Rates::default() },
        link: Link::Switch(900e9),
        pcie: 5,
        multiprocessors: 132,
        power: 700.0,
        source: String::new(),
        traits: GpuTraits::default(),
    };
    let gpus = parallel.data * parallel.tensor * parallel.pipeline;
    let device = Device { gpu, nodes: gpus.div_ceil(8), gpus_per_node: gpus.min(8), network: Some(3200e9) };
    Setup {
        device,
        precision: NumericFormat::AmpBf16,
        layout: Layout::ChannelsLast,
        micro_batch: 1,
        accumulate: 16,
        parallel,
        recompute: ActivationCheckpointing::None,
        optimizer: OptimizerKind::Adam,
        flash_attention: true,
        compiled: false,
    }
}

fn degrees(data: u32, tensor: u32, pipeline: u32) -> ParallelDegrees {
    ParallelDegrees { data, tensor, pipeline, sequence: tensor > 1, ..ParallelDegrees::default() }
}

fn fitted() -> FittedCoefficients {
    FittedCoefficients::embedded().expect("the fitted numbers can be read")
}

/// A decoder whose scores take as much arithmetic as four of its blocks.
fn wide_vocabulary() -> OpProfile {
    let model = Gpt::megatron(2048, 16, 16, 98_304, 1024);
    OpProfile { half: true, ..OpProfile::of(&ModelDescription::Graph(model.graph())) }
}

#[test]
fn stages_equal_in_arithmetic_are_faster_than_those_equal_in_blocks() {
    let (work, setup) = (wide_vocabulary(), setup(degrees(1, 1, 4)));
    let balanced = OpProfile { balanced_stages: true, ..work.clone() };
    let [plain, balanced] = [work, balanced].map(|work| seconds(&work, &setup, &fitted()));
    assert!((0.70..0.90).contains(&(balanced / plain)), "{balanced} s, {plain} s with as many blocks in each stage");
}

#[test]
fn gathers_between_nodes_take_a_step_for_each_rank() {
    let shared = fitted().shared;
    let latency = |parallel: ParallelDegrees| layer_ring(&setup(parallel), &shared).latency;
    let summed = ParallelDegrees { sequence: false, ..degrees(1, 32, 1) };
    assert!(latency(degrees(1, 32, 1)) > 1.9 * latency(degrees(1, 16, 1)));
    assert!(latency(degrees(1, 32, 1)) > 5.0 * latency(summed), "a tree sums in few steps");
    assert_eq!(latency(degrees(1, 8, 1)), Ring::of(&setup(degrees(1, 8, 1)).device, 8, 1, &shared).latency);
}

#[test]
fn state_that_is_sharded_within_nodes_needs_no_long_ring() {
    let (shared, work) = (fitted().shared, wide_vocabulary());
    let setup = setup(ParallelDegrees { zero: Zero::Optimizer, ..degrees(1024, 1, 1) });
    let ring = Ring::of(&setup.device, 1024, 1, &shared);
    let exchanged = |work: &OpProfile| {
        let [gradients, gathers] = data_collectives(work, &setup, &ring, false, &shared);
        gradients.seconds() + gathers.seconds()
    };
    let near = OpProfile { sharded_over: Some(8), ..work.clone() };
    assert!(exchanged(&work) > 3.0 * exchanged(&near), "{} s, {} s", exchanged(&work), exchanged(&near));
}

/// Within a node weights are gathered faster than among all nodes; what is left to sum between nodes is a rank's shard.
#[test]
fn hybrid_sharding_gathers_within_its_copies() {
    let (shared, work) = (fitted().shared, wide_vocabulary());
    let mut all = setup(ParallelDegrees { zero: Zero::Parameters, ..degrees(64, 1, 1) });
    all.device.network = Some(100e9);
    let hybrid = Setup { parallel: ParallelDegrees { copies: 8, ..all.parallel }, ..all.clone() };
    let [far, near] = [&all, &hybrid].map(|setup| Ring::of(&setup.device, setup.parallel.sharded_over(), 1, &shared));
    let [gradients, gathers] = data_collectives(&work, &all, &far, false, &shared);
    let (mean, [summed, gathered]) = hybrid_collectives(&work, &hybrid, &near, &shared);
    assert!(2.0 * gathered.moving < gathers.moving, "{gathered:?} {gathers:?}");
    assert!(summed.moving + gathered.moving < gradients.moving + gathers.moving, "{summed:?} {gradients:?}");
    assert!(mean.bandwidth > 0.0 && mean.bandwidth < near.bandwidth, "{mean:?}");
}

/// What `half_as_many_bytes_are_gathered_where_products_have_16_bits` counts in the trainer: of each micro-batch, blocks are
/// gathered for either pass, and what is around them once, embeddings in fp32.
#[test]
fn our_trainer_gathers_the_bytes_that_it_sends() {
    let of = |graph| OpProfile::of(&ModelDescription::Graph(graph)).gathered_by_trainer();
    let bytes = |work: &OpProfile, precision: NumericFormat| {
        let parallel = ParallelDegrees { zero: Zero::Parameters, ..degrees(8, 1, 1) };
        2.0 * gathered_bytes(work, &Setup { precision, ..setup(parallel) })
    };
    let gpt = of(Gpt::megatron(768, 12, 12, 50_257, 1024).graph());
    let [products, embeddings] = gpt.gathered_once;
    assert!(products == 0.0 && embeddings > 50_257.0 * 768.0, "{products} {embeddings}");
    let blocks = gpt.gathered - embeddings;
    assert_eq!(bytes(&gpt, NumericFormat::AmpBf16), 2.0 * 2.0 * blocks + 4.0 * embeddings);
    assert_eq!(bytes(&gpt, NumericFormat::Fp32), 2.0 * 4.0 * blocks + 4.0 * embeddings);
    let resnet = of(Resnet::imagenet(50).expect("ResNet-50").graph());
    let [classifier, others] = resnet.gathered_once;
    assert!(others == 0.0 && classifier > 2048.0 * 1000.0, "{classifier} {others}");
    let blocks = resnet.gathered - classifier;
    assert_eq!(bytes(&resnet, NumericFormat::AmpBf16), 2.0 * (2.0 * blocks + classifier));
    // Programs of others gather all weights for either pass.
    let fsdp = OpProfile { gathered_once: [0.0; 2], ..gpt };
    assert_eq!(bytes(&fsdp, NumericFormat::AmpBf16), 2.0 * 2.0 * fsdp.gathered);
}

#[test]
fn gradients_beside_bfloat16_are_exchanged_in_fp32() {
    let work = wide_vocabulary();
    let check = |precision, zero, bytes: f64| {
        let setup = Setup { precision, ..setup(ParallelDegrees { zero, ..degrees(8, 1, 1) }) };
        assert_eq!(gradient_bytes(&work, &setup), bytes, "{precision:?} {zero:?}");
    };
    check(NumericFormat::AmpBf16, Zero::Optimizer, 4.0);
    check(NumericFormat::AmpFp16, Zero::Optimizer, 2.0);
    check(NumericFormat::AmpBf16, Zero::Parameters, 2.0);
}

#[test]
fn only_renewed_weights_are_gathered_in_fp32_by_our_trainer() {
    let shared = fitted().shared;
    let check = |precision, zero, times: f64| {
        let setup = Setup { precision, ..setup(ParallelDegrees { zero, ..degrees(8, 1, 1) }) };
        let ring = Ring::of(&setup.device, 8, 1, &shared);
        let gathered = |trainer_gathers| {
            let work = OpProfile { trainer_gathers, half: false, ..wide_vocabulary() };
            data_collectives(&work, &setup, &ring, false, &shared)[1].moving
        };
        let found = gathered(true) / gathered(false);
        assert!((found - times).abs() < 1e-9, "{precision:?} {zero:?}: {found}");
    };
    check(NumericFormat::AmpBf16, Zero::Parameters, 1.0);
    check(NumericFormat::AmpBf16, Zero::Gradients, 2.0);
    check(NumericFormat::AmpBf16, Zero::Optimizer, 1.0);
    check(NumericFormat::Fp32, Zero::Parameters, 1.0);
}

#[test]
fn exchanges_cost_nothing_where_the_gpu_waits_for_its_processor() {
    let busy = Micro { forward: 1.0, backward: 2.0, tensor: 1.0, ..Micro::default() };
    assert!((busy.waited() - 1.0).abs() < 1e-9);
    let started = Micro { started: 20.0, ..busy };
    assert!(started.waited() < 0.01, "{}", started.waited());
}

#[test]
fn exchanges_that_python_starts_bound_small_micro_batches() {
    let work = OpProfile { exchanged_by_python: true, ..wide_vocabulary() };
    let of_micro_batch = |parallel: ParallelDegrees| seconds(&work, &setup(parallel), &fitted()) / 16.0;
    let [two, eight] = [2, 8].map(|tensor| of_micro_batch(degrees(1, tensor, 1)));
    // 64 exchanges in 16 blocks.
    assert!(two > 64.0 * 0.86e-3 && eight > 64.0 * 0.86e-3, "{two} s, {eight} s");
    assert!(eight / two < 1.2, "more ranks wait as long: {two} s, {eight} s");
    let between = of_micro_batch(degrees(1, 8, 2));
    assert!(between > 1.5 * eight, "beside a pipeline between nodes each is late: {between} s, {eight} s");
}

#[test]
fn scattering_hides_behind_the_gradient_of_the_weight() {
    let (work, coefficients) = (wide_vocabulary(), fitted());
    let exchanged = |sequence: bool| {
        let setup = Setup { micro_batch: 8, ..setup(ParallelDegrees { sequence, ..degrees(1, 2, 1) }) };
        step_of(&work, &setup, &coefficients).terms.tensor
    };
    let left = exchanged(true) / exchanged(false);
    assert!((0.70..0.95).contains(&left), "at most half of a half is hidden: {left}");
}

#[test]
fn an_eager_loss_in_16_bits_passes_over_its_scores_ten_times() {
    let (work, coefficients) = (wide_vocabulary(), fitted());
    let step = |compiled: bool| {
        let setup = Setup { compiled, ..setup(degrees(1, 1, 1)) };
        let machine = machine(&work, &setup, &coefficients);
        let OpBreakdown::Groups(groups) = &work.form else { panic!("{work:?}") };
        let loss = groups.iter().find(|group| matches!(group.kind, crate::model::OpKind::Loss { .. }));
        let cost = machine.cost(loss.expect("a loss"), 8.0);
        cost.forward + cost.backward
    };
    assert!((1.9..2.1).contains(&(step(false) / step(true))), "{}", step(false) / step(true));
}

#[test]
fn an_interleaved_pipeline_passes_on_beside_computing() {
    let (work, coefficients) = (wide_vocabulary(), fitted());
    let pipes = |chunks: u32| {
        let parallel = ParallelDegrees { chunks, ..degrees(1, 1, 4) };
        let step = step_of(&work, &Setup { accumulate: 64, ..setup(parallel) }, &coefficients);
        step.communication
    };
    assert!(pipes(4) < 0.5 * pipes(1), "{} s, {} s without chunks", pipes(4), pipes(1));
}

#[test]
fn eager_modules_of_transformers_take_longer() {
    let model = ModelDescription::Graph(crate::model::families::Llama::three_8b(2048).graph());
    let run = |modules: EagerModules, micro_batch: u64| {
        let style = ProgramStyle { modules, ..ProgramStyle::default() };
        let work = OpProfile { half: true, style, ..OpProfile::of(&model) };
        seconds(&work, &Setup { micro_batch, ..setup(degrees(1, 1, 1)) }, &fitted())
    };
    let more = |modules| run(modules, 8) / run(EagerModules::Plain, 8);
    assert!((1.05..1.30).contains(&more(EagerModules::Transformers)), "{}", more(EagerModules::Transformers));
    assert!(more(EagerModules::FusedTransformers) < 1.05, "{}", more(EagerModules::FusedTransformers));
}

#[test]
fn adapters_that_are_sharded_one_by_one_keep_the_processor_busy() {
    let model = ModelDescription::Graph(crate::model::families::Llama::three_8b(256).graph());
    let run = |adapters_are_units: bool| {
        let style = ProgramStyle { adapters_are_units, ..ProgramStyle::default() };
        let work = OpProfile::of(&model).frozen(Adapters { rank: 8, quantized: false });
        let parallel = ParallelDegrees { zero: Zero::Parameters, ..degrees(2, 1, 1) };
        seconds(&OpProfile { half: true, style, ..work }, &Setup { accumulate: 1, ..setup(parallel) }, &fitted())
    };
    // Three gathers and a scatter of both matrices beside each of 224 products.
    assert!(run(true) > 224.0 * 2.0 * 3.0 * fitted().shared.unit * 1e-6, "{} s", run(true));
    assert!(run(true) > 1.5 * run(false), "{} s, {} s", run(true), run(false));
}

#[test]
fn adapters_widen_the_band_of_a_step() {
    let model = ModelDescription::Graph(crate::model::families::Llama::three_8b(256).graph());
    let whole = OpProfile::of(&model);
    let width = |work: &OpProfile, unstated_details: f64| {
        let mut coefficients = fitted();
        coefficients.bands.unstated_details = unstated_details;
        let seconds = step_of(work, &setup(degrees(1, 1, 1)), &coefficients).seconds;
        seconds.high / seconds.low
    };
    let adapted = whole.clone().frozen(Adapters { rank: 8, quantized: false });
    assert!(width(&adapted, 0.3) > 1.1 * width(&adapted, 0.0));
    assert_eq!(width(&whole, 0.3), width(&whole, 0.0));
}

#[test]
fn weights_of_all_experts_are_read() {
    let dense = OpProfile::of(&ModelDescription::Graph(Gpt::megatron(2048, 16, 16, 98_304, 64).graph()));
    let OpBreakdown::Groups(groups) = &dense.form else { panic!("{dense:?}") };
    let feed = groups
        .iter()
        .find(|group| group.place == crate::estimate::ops::BlockPosition::Block && group.kind.is_weighted())
        .expect("a product");
    let experts = OpGroup { parameters: 64.0 * feed.parameters, ..feed.clone() };
    let setup = setup(degrees(8, 1, 1));
    let cost = |group: &OpGroup, expert: u32| {
        let parallel = ParallelDegrees { expert, ..setup.parallel };
        machine(&dense, &Setup { parallel, ..setup.clone() }, &fitted()).cost(group, 1.0).forward
    };
    assert_eq!(experts.copies(), 64.0);
    assert!(cost(&experts, 1) > 20.0 * cost(feed, 1), "{} s, {} s", cost(&experts, 1), cost(feed, 1));
    assert!(cost(&experts, 8) < 0.3 * cost(&experts, 1), "divided among ranks: {} s", cost(&experts, 8));
}

#[test]
fn adapters_of_transformers_start_more_kernels() {
    let model = ModelDescription::Graph(crate::model::families::Llama::three_8b(256).graph());
    let run = |modules: EagerModules, quantized: bool| {
        let style = ProgramStyle { modules, ..ProgramStyle::default() };
        let work = OpProfile::of(&model).frozen(Adapters { rank: 8, quantized });
        let setup = Setup { accumulate: 1, recompute: ActivationCheckpointing::Full, ..setup(degrees(1, 1, 1)) };
        seconds(&OpProfile { half: true, style, ..work }, &setup, &fitted())
    };
    let [plain, ours, quantized] = [
        run(EagerModules::Plain, false),
        run(EagerModules::FusedTransformers, false),
        run(EagerModules::FusedTransformers, true),
    ];
    assert!(ours > 2.0 * plain && quantized > 1.1 * ours, "{plain} s, {ours} s, in 4 bits {quantized} s");
}

#[test]
fn costs_that_are_kept_change_no_estimate() {
    let (work, fitted, mut costs) = (wide_vocabulary(), fitted(), OperatorCosts::default());
    let plain = setup(degrees(8, 1, 1));
    let gpu = Gpu { bandwidth: 2e12, ..plain.device.gpu.clone() };
    let setups = [
        plain.clone(),
        Setup { micro_batch: 2, ..plain.clone() },
        Setup { accumulate: 1, ..plain.clone() },
        Setup { device: Device { gpu, ..plain.device.clone() }, ..plain.clone() },
        Setup { compiled: true, ..plain.clone() },
        Setup { flash_attention: false, ..plain.clone() },
        Setup { precision: NumericFormat::Fp32, ..plain.clone() },
        Setup { precision: NumericFormat::Fp8, ..plain.clone() },
        Setup { recompute: ActivationCheckpointing::Full, ..plain.clone() },
        Setup { parallel: degrees(4, 2, 1), ..plain.clone() },
        Setup { parallel: degrees(1, 2, 4), ..plain.clone() },
        Setup { parallel: ParallelDegrees { zero: Zero::Parameters, ..plain.parallel }, ..plain },
    ];
    for setup in setups.iter().chain(&setups) {
        assert_eq!(seconds_with(&work, setup, &fitted, &mut costs), seconds(&work, setup, &fitted), "{setup:?}");
    }
}
