//! Published formulas and physical bounds, and that more never takes less.

use domain::Bytes;
use domain::gpu::{Gpu, GpuArchitecture, GpuClass, GpuTraits, Link, Rates};
use proptest::prelude::*;

use super::collective::Ring;
use super::memory::{Adapters, Savings};
use super::*;
use crate::model::families::language::bert::{Bert, Head};
use crate::model::families::{Gpt, Resnet};
use crate::model::{ModelDescription, Summary};

/// The GPU of most tests of this crate.
pub(crate) fn a100() -> Gpu {
    Gpu {
        name: "A100-SXM4-80GB".to_owned(),
        architecture: GpuArchitecture::Ampere,
        memory: Bytes(80 << 30),
        usable: Bytes(79 << 30),
        bandwidth: 2.039e12,
        rates: Rates { fp32: 19.5e12, tf32: Some(156e12), fp16: Some(312e12), bf16: Some(312e12), fp8: None },
        link: Link::Switch(600e9),
        pcie: 4,
        multiprocessors: 108,
        power: 400.0,
        source: String::new(),
        traits: GpuTraits::default(),
    }
}

fn setup(gpus: u32, micro_batch: u64) -> Setup {
    let in_node = gpus.min(8);
    Setup {
        device: Device { gpu: a100(), nodes: gpus.div_ceil(8), gpus_per_node: in_node, network: Some(1600e9) },
        precision: NumericFormat::AmpFp16,
        layout: Layout::ChannelsLast,
        micro_batch,
        accumulate: 1,
        parallel: ParallelDegrees {
            data: gpus,
            tensor: 1,
            pipeline: 1,
            zero: Zero::None,
            ..ParallelDegrees::default()
        },
        recompute: ActivationCheckpointing::None,
        optimizer: OptimizerKind::Adam,
        flash_attention: false,
        compiled: false,
    }
}

fn fitted() -> &'static FittedCoefficients {
    static FITTED: std::sync::LazyLock<FittedCoefficients> =
        std::sync::LazyLock::new(|| FittedCoefficients::embedded().expect("the fitted numbers can be read"));
    &FITTED
}

fn resnet() -> OpProfile {
    OpProfile::of(&ModelDescription::Graph(Resnet::imagenet(50).expect("ResNet-50").graph()))
}

fn gpt(layers: u64) -> OpProfile {
    OpProfile::of(&ModelDescription::Graph(Gpt::megatron(2048, layers, 16, 51_200, 1024).graph()))
}

#[test]
fn equal_operators_are_digested_into_one() {
    let work = gpt(24);
    let ops::OpBreakdown::Groups(groups) = &work.form else { panic!("{work:?}") };
    assert!(groups.len() < 40, "{} groups", groups.len());
    let linear: f64 = groups
        .iter()
        .filter(|group| matches!(group.kind, crate::model::OpKind::Linear { .. }))
        .map(|group| group.count)
        .sum();
    assert_eq!(linear, 24.0 * 4.0 + 1.0);
    assert_eq!(work.blocks, 24);
    // 12 h² + 13 h for each layer of a decoder (Narayanan et al. 2021, equation 2).
    assert_eq!(work.block, 12.0 * 2048.0 * 2048.0 + 13.0 * 2048.0);
}

#[test]
fn a_block_of_a_transformer_sums_two_exchanges_each_way_under_tensor_parallelism() {
    // Megatron: two all-reduces of batch · tokens · hidden forwards, two backwards (Shoeybi et al. 2019, section 3).
    let work = gpt(24);
    let ops::OpBreakdown::Groups(groups) = &work.form else { panic!("{work:?}") };
    let blocks = groups.iter().filter(|group| group.place == ops::BlockPosition::Block);
    let [mut forward, mut backward] = [0.0, 0.0];
    for group in blocks {
        forward += group.count * group.exchanged[0];
        backward += group.count * group.exchanged[1];
    }
    assert_eq!([forward, backward], [24.0 * 2.0 * 1024.0 * 2048.0; 2]);
}

#[test]
fn no_step_is_faster_than_the_stated_rates() {
    let coefficients = fitted();
    for (work, per_sample) in [(resnet(), 6.0 * 4.09e9), (gpt(24), 6.0 * 1024.0 * 24.0 * 12.0 * 2048.0f64.powi(2))] {
        for precision in
            [NumericFormat::Fp32, NumericFormat::Tf32, NumericFormat::AmpFp16, NumericFormat::Bf16, NumericFormat::Fp8]
        {
            let setup = Setup { precision, ..setup(1, 64) };
            let rate = match precision {
                NumericFormat::Auto | NumericFormat::Fp32 => 19.5e12,
                NumericFormat::Tf32 => 156e12,
                NumericFormat::AmpFp16 | NumericFormat::AmpBf16 | NumericFormat::Bf16 | NumericFormat::Fp8 => 312e12,
            };
            let seconds = seconds(&work, &setup, coefficients);
            assert!(seconds > 64.0 * per_sample / rate * 0.99, "{precision:?}: {seconds}");
        }
    }
}

#[test]
fn a_ring_takes_what_the_formula_says() {
    // 2 (n - 1) ÷ n · bytes ÷ bandwidth and a latency (Patarasuk and Yuan 2009).
    let ring = Ring { near: 8.0, nodes: 1.0, bandwidth: 200e9, latency: 1e-4 };
    let expected = 2.0 * 7.0 / 8.0 * 1e9 / 200e9 + 1e-4;
    assert!((ring.all_reduce(1e9) - expected).abs() < 1e-12);
    assert!((ring.gather(1e9) - expected / 2.0).abs() < 1e-12);
    assert_eq!(Ring { near: 1.0, nodes: 1.0, ..ring }.all_reduce(1e9), 0.0);
}

#[test]
fn rings_reach_the_bus_bandwidth_that_nccl_measured() {
    // vTrain's tables: eight A100 behind NVSwitch 227 GB/s; V100 of a DGX-1 2, 4, 5 and 8: 23, 86, 37 and 136 GB/s.
    let shared = fitted().shared;
    let close = |device: &Device, size: u32, measured: f64| {
        let reached = Ring::of(device, size, 1, &shared).bandwidth;
        assert!((reached / measured - 1.0).abs() < 0.25, "{size} GPUs: {reached:.3e}, measured {measured:.3e}");
    };
    let switch = setup(8, 1).device;
    close(&switch, 8, 227e9);
    close(&switch, 2, 193e9);
    let mesh = Device { gpu: Gpu { link: Link::Mesh(300e9), ..a100() }, ..switch };
    for (size, measured) in [(2, 23e9), (4, 86e9), (5, 37e9), (8, 136e9)] {
        close(&mesh, size, measured);
    }
}

#[test]
fn a_pipeline_idles_as_long_as_its_bubble() {
    // Idle share (p - 1) ÷ (m + p - 1) of a pipeline (Huang et al. 2019): few micro-batches cost more each.
    let (work, coefficients) = (gpt(24), fitted());
    let of = |accumulate: u64| {
        let parallel =
            ParallelDegrees { data: 1, tensor: 1, pipeline: 4, zero: Zero::None, ..ParallelDegrees::default() };
        let setup = Setup { accumulate, parallel, ..setup(4, 1) };
        step_of(&work, &setup, coefficients).samples_per_second
    };
    let (one, many) = (of(1), of(64));
    assert!(many > 2.5 * one && many < 4.5 * one, "{one} {many}");
}

#[test]
fn recomputing_all_blocks_costs_about_a_third_more() {
    let (work, coefficients) = (gpt(24), fitted());
    let plain = seconds(&work, &setup(1, 8), coefficients);
    let again = seconds(&work, &Setup { recompute: ActivationCheckpointing::Full, ..setup(1, 8) }, coefficients);
    assert!((1.1..1.5).contains(&(again / plain)), "{}", again / plain);
}

#[test]
fn an_estimate_names_a_measurement_like_it() {
    let graph = Bert::large(384, Head::Tokens { classes: 2 }).graph();
    let step = step(&ModelDescription::Graph(graph), &setup(8, 32), fitted());
    let anchor = step.anchor.expect("something like BERT was measured");
    assert!(anchor.what.contains("BERT"), "{anchor:?}");
    let Percentiles { low, middle, high } = step.seconds;
    assert!(low < middle && middle < high && high / low < 2.0, "{:?}", step.seconds);
}

#[test]
fn totals_of_a_network_are_enough_for_an_estimate() {
    let graph = Resnet::imagenet(50).expect("ResNet-50").graph();
    let coefficients = fitted();
    let of = |model: &ModelDescription| step(model, &setup(1, 128), coefficients).samples_per_second;
    let known = of(&ModelDescription::Summary(graph.summary(Some("resnet".to_owned()))));
    let unknown = of(&ModelDescription::Summary(graph.summary(Some("something new".to_owned()))));
    let whole = of(&ModelDescription::Graph(graph));
    // Totals were measured on one GPU only, of another generation: on this one they are good for the order of size.
    for rate in [known, unknown] {
        assert!((1.0 / 3.0..3.0).contains(&(rate / whole)), "{known} {unknown} {whole}");
    }
}

#[test]
fn resnet_50_on_eight_v100_takes_what_its_users_report() {
    // Ninety epochs: about 12 h in FP32 and 5 h with AMP (NVIDIA's description of its examples); hand-tuned programs 3 h.
    let v100 = Gpu {
        name: "V100-SXM2-32GB".to_owned(),
        architecture: GpuArchitecture::Volta,
        bandwidth: 900e9,
        rates: Rates { fp32: 15.7e12, fp16: Some(125e12), ..Rates::default() },
        link: Link::Mesh(300e9),
        pcie: 3,
        multiprocessors: 80,
        power: 300.0,
        ..a100()
    };
    let hours = |precision: NumericFormat, batch: u64| {
        let mut setup = Setup { precision, optimizer: OptimizerKind::SgdMomentum, ..setup(8, batch) };
        setup.device.gpu = v100.clone();
        90.0 * 1_281_167.0 / step_of(&resnet(), &setup, fitted()).samples_per_second / 3600.0
    };
    let [half, full] = [hours(NumericFormat::AmpFp16, 256), hours(NumericFormat::Fp32, 128)];
    assert!((3.0..5.5).contains(&half), "AMP {half}");
    assert!((9.5..14.0).contains(&full), "FP32 {full}");
}

proptest! {
    #[test]
    fn more_bandwidth_is_never_slower(factor in 1.0f64..4.0, batch in 1u64..256, half in any::<bool>()) {
        let (work, coefficients) = (resnet(), fitted());
        let precision = if half { NumericFormat::AmpFp16 } else { NumericFormat::Fp32 };
        let slow = Setup { precision, ..setup(1, batch) };
        let mut fast = slow.clone();
        fast.device.gpu.bandwidth *= factor;
        prop_assert!(seconds(&work, &fast, coefficients) <= seconds(&work, &slow, coefficients) * (1.0 + 1e-9));
    }

    #[test]
    fn more_layers_are_never_faster(layers in 1u64..40, batch in 1u64..16) {
        let coefficients = fitted();
        let setup = setup(1, batch);
        prop_assert!(seconds(&gpt(layers), &setup, coefficients) < seconds(&gpt(layers + 1), &setup, coefficients));
    }

    #[test]
    fn more_gpus_do_more_but_never_more_than_their_number(power in 0u32..6, batch in 1u64..64) {
        let (work, coefficients) = (gpt(12), fitted());
        let of = |gpus: u32| step_of(&work, &setup(gpus, batch), coefficients).samples_per_second;
        let (few, many) = (of(1 << power), of(2 << power));
        prop_assert!(many < 2.0 * few * (1.0 + 1e-9) && many > 0.6 * few, "{few} {many}");
    }

    #[test]
    fn a_faster_network_is_never_slower(factor in 1.0f64..10.0, batch in 1u64..16) {
        let (work, coefficients) = (gpt(12), fitted());
        let slow = setup(32, batch);
        let mut fast = slow.clone();
        fast.device.network = slow.device.network.map(|network| network * factor);
        prop_assert!(seconds(&work, &fast, coefficients) <= seconds(&work, &slow, coefficients) * (1.0 + 1e-9));
    }

    #[test]
    fn totals_of_any_size_have_a_finite_estimate(weights in 1e3f64..1e12, madds in 1e5f64..1e14, values in 1e3f64..1e10, batch in 1u64..1024) {
        let model = ModelDescription::Summary(Summary { parameters: weights, multiply_adds: madds, activations: values, family: None });
        let step = step(&model, &setup(1, batch), fitted());
        prop_assert!(step.seconds.middle.is_finite() && step.seconds.middle > 0.0);
    }
}

/// A step beside adapters, in seconds.
fn adapted(adapters: Adapters, setup: &Setup) -> f64 {
    seconds(&gpt(24).frozen(adapters), setup, fitted())
}

#[test]
fn adapters_take_less_than_all_weights_and_more_the_thicker_they_are() {
    let setup = Setup { precision: NumericFormat::Bf16, ..setup(1, 8) };
    let whole = seconds(&gpt(24), &setup, fitted());
    let at = |rank: u64, quantized: bool| adapted(Adapters { rank, quantized }, &setup);
    assert!(at(8, false) < whole, "no gradients of weights: {} of {whole}", at(8, false));
    // Two passes of three are left of the products.
    assert!(at(8, false) > 0.6 * whole, "{} of {whole}", at(8, false));
    assert!(at(8, false) < at(64, false) && at(64, false) < at(512, false));
    assert!(at(8, false) < at(8, true), "weights in 4 bits are written out for each pass");
}

#[test]
fn frozen_weights_are_gathered_like_others() {
    let count = gpt(24).parameters;
    let of = |quantized: bool| gpt(24).frozen(Adapters { rank: 8, quantized });
    assert!(of(false).parameters < 0.02 * count && of(false).gathered > count, "{:?}", of(false).parameters);
    // Products in 4 bits take about a quarter of 16; the table of words stays as it is.
    assert!((0.25..0.35).contains(&(of(true).gathered / count)), "{}", of(true).gathered / count);
}

#[test]
fn states_of_an_optimiser_in_the_host_s_memory_take_their_way_each_step() {
    let savings = Savings { offload_optimizer: true, ..Savings::default() };
    let at = |precision: NumericFormat, optimizer: OptimizerKind, savings: &Savings| {
        limits::offloaded(&gpt(24), &Setup { precision, optimizer, ..setup(1, 8) }, savings)
    };
    let [wide, narrow] =
        [NumericFormat::AmpBf16, NumericFormat::Bf16].map(|width| at(width, OptimizerKind::Adam, &savings));
    assert!(narrow < wide, "half as many bytes are updated in 16 bits");
    // Two bytes a weight over half of PCI Express 4's sixteen lanes.
    let paged = at(NumericFormat::Bf16, OptimizerKind::Adam8bit, &savings);
    assert!((paged / (2.0 * gpt(24).parameters / 15.75e9) - 1.0).abs() < 1e-9, "{paged}");
    assert_eq!(at(NumericFormat::Bf16, OptimizerKind::Adam8bit, &Savings::default()), 0.0);
}

/// Two copies of what eight ranks shard are twice as much to update.
#[test]
fn every_copy_of_a_hybrid_sharding_is_updated_by_its_hosts() {
    let savings = Savings { offload_optimizer: true, ..Savings::default() };
    let of = |copies: u32| {
        let parallel = ParallelDegrees { data: 8, copies, zero: Zero::Parameters, ..ParallelDegrees::default() };
        limits::offloaded(&gpt(24), &Setup { parallel, ..setup(8, 8) }, &savings)
    };
    assert!((of(2) / of(1) - 2.0).abs() < 1e-9, "{} {}", of(1), of(2));
}

/// Copies of blocks' inputs hide behind computing, and take their way over PCI Express where that is longer.
#[test]
fn activations_on_the_host_take_what_computing_does_not_hide() {
    let setup = setup(1, 8);
    let took = |computed: f64| limits::offloaded_activations(&gpt(24), &setup, computed);
    let alone = took(0.0);
    assert!(alone > 0.0);
    assert!((took(0.25 * alone) / alone - 0.75).abs() < 1e-9, "{}", took(0.25 * alone));
    assert_eq!(took(2.0 * alone), 0.0);
}

#[test]
fn autocast_that_keeps_sums_in_32_bits_takes_longer_than_a_network_in_half_precision() {
    let bert = OpProfile::of(&ModelDescription::Graph(Bert::large(512, Head::Sequence { classes: 2 }).graph()));
    let half = OpProfile { half: true, ..bert.clone() };
    let took = |work: &OpProfile, compiled| seconds(work, &Setup { compiled, ..setup(1, 32) }, fitted());
    // Scores of attention, residual sums and normalisations are twice as long, products are not.
    let longer = took(&bert, false) / took(&half, false);
    assert!((1.1..1.6).contains(&longer), "{longer}");
    // A compiler joins the casts with what is beside them; only those of the weights are left.
    assert!(took(&bert, true) / took(&half, true) < 1.05);
    // Batch normalisation computes in what it is given, so images of convolutions stay narrow.
    let resnet = resnet();
    let narrow = OpProfile { half: true, ..resnet.clone() };
    let [kept, cast] = [&narrow, &resnet].map(|work| seconds(work, &setup(1, 256), fitted()));
    assert!((1.0..1.04).contains(&(cast / kept)), "{cast} {kept}");
}

#[test]
fn joint_kernels_and_later_flash_attention_take_less() {
    let gpt = gpt(24);
    let plain = setup(1, 8);
    let joint = OpProfile { fused_kernels: true, ..gpt.clone() };
    assert!(seconds(&joint, &plain, fitted()) < 0.95 * seconds(&gpt, &plain, fitted()));
    let long = OpProfile::of(&ModelDescription::Graph(Gpt::megatron(2048, 24, 16, 51_200, 8192).graph()));
    let first = OpProfile { first_flash: true, ..long.clone() };
    let flash = Setup { flash_attention: true, ..setup(1, 1) };
    assert!(seconds(&long, &flash, fitted()) < 0.9 * seconds(&first, &flash, fitted()));
}

#[test]
fn facts_of_a_gpu_and_not_its_name_decide() {
    let of = |traits: GpuTraits, name: &str| {
        let device =
            Device { gpu: Gpu { name: name.to_owned(), link: Link::Pcie, traits, ..a100() }, ..setup(8, 32).device };
        seconds(&resnet(), &Setup { device, ..setup(8, 32) }, fitted())
    };
    let professional = GpuTraits::default();
    assert_eq!(of(professional, "RTX4090"), of(professional, "A100-SXM4-80GB"));
    let consumer = GpuTraits { class: GpuClass::Consumer, ..professional };
    assert!(of(consumer, "G") < of(professional, "G"), "boost");
    let through_host = GpuTraits { peer_access: false, ..professional };
    assert!(of(through_host, "G") > of(professional, "G"), "without peer access");
}

#[test]
fn a_described_gpu_has_the_same_middle_and_a_wider_band() {
    let of = |described: bool| {
        let traits = GpuTraits { described, ..GpuTraits::default() };
        let device = Device { gpu: Gpu { traits, ..a100() }, ..setup(1, 32).device };
        step_of(&resnet(), &Setup { device, ..setup(1, 32) }, fitted()).seconds
    };
    let (known, described) = (of(false), of(true));
    assert_eq!(known.middle, described.middle);
    assert!(described.low < 0.95 * known.low && described.high > 1.05 * known.high, "{known:?} {described:?}");
}
