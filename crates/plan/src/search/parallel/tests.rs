//! Layouts that a job asks for, its words for them, and the micro-batches that they run.

mod degrees;
mod micro_batches;
mod ranking;
mod spelling;

use domain::gpu::{Gpu, GpuArchitecture, GpuTraits, Link, Rates};
use domain::tariff::Service;
use domain::{Bytes, Job};

use super::ParallelConfig;
use crate::estimate::memory::MemoryFit;
use crate::estimate::{ActivationCheckpointing, Device, Layout, NumericFormat, OptimizerKind, ParallelDegrees};
use crate::search::workload::{
    CheckpointFigures, DataDemand, LayoutRequest, NetworkFigures, ParallelChoice, ProgramOptions, RunLength,
    TrainingSpec,
};

/// A decoder of 32 layers and heads, on sequences of 4,096 tokens.
fn spec(batch: u64, division: ParallelChoice) -> TrainingSpec {
    TrainingSpec {
        length: RunLength { batch, steps: 100, evaluated: 0 },
        data: DataDemand { per_core: None, bytes: Bytes(1 << 30), sample: 0.0, disk: Service::PlainDisk },
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
