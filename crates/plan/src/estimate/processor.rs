//! A processor as a device: each rank of one machine has its threads, and all share the machine's memory.
//!
//! The models of time and memory are those of GPUs; what differs is in the figures below, each with its source and date.

use std::collections::BTreeMap;

use domain::Bytes;
use domain::gpu::{Gpu, GpuArchitecture, GpuTraits, Link, Rates};

use super::fitted::band::{Class, ErrorBands};
use super::fitted::coefficients::FittedCoefficients;
use super::fitted::rates::{Generation, Shared};
use super::memory::MemoryCoefficients;
use super::setup::Device;

/// FLOP/s of one core in 32-bit floats. Measured 2026-11 on two cloud cores with AVX-512: `cnn` on 8×8 images 57 GFLOP/s
/// with one thread.
pub const CORE_FLOPS: f64 = 50e9;

/// How many times faster one run in ten is: a modern core that has its caches for itself.
pub const FASTER: f64 = 2.5;

/// How many times slower one run in ten is: an old core, or one that is shared.
pub const SLOWER: f64 = 3.0;

/// Bytes per second that one core moves, between its second-level cache and memory. Assumed 2026-11, so that
/// `examples/digits.yaml` comes to what was measured.
const CORE_BANDWIDTH: f64 = 40e9;

/// Bytes per second at which two ranks of a machine exchange over Gloo, both directions together. Assumed 2026-11.
const EXCHANGE: f64 = 4e9;

/// Seconds from rent to the first step and from the last step to release: starting processes, loading
/// libtorch, reading the data, writing the model. Measured 2026-11: `mlp`, 71 steps, 1.2 s in all.
pub const START_AND_END: f64 = 1.5;

/// The day of the figures above.
pub const DATED: &str = "2026-11";

/// Returns the device of one rank that computes on so many cores, beside the other ranks of the machine.
pub fn device(cores: f64, ranks: u32, memory: Bytes) -> Device {
    let rate = CORE_FLOPS * cores;
    let share = Bytes(memory.0 / u64::from(ranks.max(1)));
    let gpu = Gpu {
        name: "processor".to_owned(),
        architecture: GpuArchitecture::Processor,
        memory: share,
        usable: share,
        bandwidth: CORE_BANDWIDTH * cores,
        // Autocast is of use for memory alone: products in 16 bits are not faster.
        rates: Rates { fp32: rate, tf32: None, fp16: Some(rate), bf16: Some(rate), fp8: None },
        link: Link::Switch(EXCHANGE),
        pcie: 3,
        multiprocessors: 1,
        power: 0.0,
        source: format!("assumed {DATED}"),
        traits: GpuTraits::default(),
    };
    Device { gpu, nodes: 1, gpus_per_node: ranks.max(1), network: None }
}

/// Returns the figures of processors in the place of those fitted to GPUs.
pub fn coefficients() -> FittedCoefficients {
    let generation = Generation {
        tensor: 1.0,
        tensor32: 1.0,
        plain: 1.0,
        convolution: 1.0,
        convolution32: 1.0,
        bandwidth: 1.0,
        // Cores of a shared machine have no power limit of their own.
        joule: 1e6,
        layout_transpose: 0.0,
        tensor8: 1.0,
    };
    let band = [-FASTER.ln(), SLOWER.ln()];
    FittedCoefficients {
        dated: DATED.to_owned(),
        command: String::new(),
        shared: shared(),
        generations: BTreeMap::new(),
        unmeasured: generation,
        totals: Default::default(),
        memory: MemoryCoefficients { fragmentation: 0.0, stuck: 0.0, ..MemoryCoefficients::default() },
        bands: ErrorBands {
            classes: Class::ALL.into_iter().map(|class| (class, band)).collect(),
            ..ErrorBands::default()
        },
        anchors: Vec::new(),
        report: serde_json::Value::Null,
    }
}

/// What holds on every processor: no launches, links or stragglers of GPUs.
fn shared() -> Shared {
    Shared {
        // Nothing is computed while memory is waited for.
        sharpness: 1.0,
        depth: 0.0,
        wave: 0.0,
        attention: 1.0,
        flash: 1.0,
        backward: 1.0,
        elementwise: 1.0,
        norm: 1.0,
        scores: 1.0,
        convolved: 1.0,
        fused: 1.0,
        fewer: 1.0,
        // One thread starts an operator and computes it, so both add up.
        kernel: 5.0,
        launch: 0.0,
        launch_compiled: 0.0,
        step: 0.2,
        optimizer: 1.0,
        grouped: 0.5,
        overlap: 0.0,
        contention: 0.0,
        switch: 1.0,
        hop: 50.0,
        straggling: 0.0,
        near_straggling: 0.0,
        gather: 0.0,
        restart: 0.0,
        issue: 0.0,
        boost: 1.0,
        ..Shared::default()
    }
}
