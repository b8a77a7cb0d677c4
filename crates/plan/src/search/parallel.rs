//! Parallel configurations: which are useful on given machines, and the fastest one that fits.
//!
//! [`divisions`] lists how ranks may share the work. For each, and for each level of recomputation, the largest
//! micro-batch that surely fits is used ([`largest_micro_batch`]); the fastest of these is the configuration for that
//! hardware. If none surely fits, one that may fit is used, and marked. Prices are irrelevant here: on given machines a
//! faster run costs less, at any hourly price.

use serde::Serialize;

use super::workload::{ParallelChoice, TrainingSpec};
use crate::estimate::limits;
use crate::estimate::memory::MemoryFit;
use crate::estimate::{ActivationCheckpointing, Device, NumericFormat, ParallelDegrees, Setup, Zero};

/// Estimates of memory and time for the search.
pub trait Estimator {
    /// Bytes that one GPU must have.
    fn needed(&mut self, setup: &Setup) -> RequiredMemory;
    /// Seconds of one optimiser step.
    fn seconds(&mut self, setup: &Setup) -> f64;
}

/// Bytes that one GPU must have: a tenth of all runs get by with less than `low`, a tenth take more than `high`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RequiredMemory {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

impl RequiredMemory {
    /// The memory required for a verdict: the upper bound, or what some runs need.
    fn least(&self, verdict: MemoryFit) -> f64 {
        match verdict {
            MemoryFit::Fits => self.high,
            MemoryFit::Tight | MemoryFit::TooLarge => self.low,
        }
    }
}

/// A parallel configuration that fits in memory, or may fit, and the time of its step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParallelConfig {
    pub precision: NumericFormat,
    pub parallel: ParallelDegrees,
    pub micro_batch: u64,
    pub accumulate: u64,
    pub recompute: ActivationCheckpointing,
    /// Seconds of one optimiser step.
    pub step: f64,
    /// Bytes that one GPU must have.
    pub needed: f64,
    pub needed_low: f64,
    pub needed_high: f64,
    /// Whether it surely fits, or only may.
    pub verdict: MemoryFit,
    /// Seconds from the start of processes to the first usual step.
    pub start: f64,
}

/// Why there is no way on some machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Infeasible {
    /// The GPU has no such number format.
    Format,
    /// No division gives every rank complete samples of the batch.
    Batch,
    /// Nothing fits: the smallest memory that any configuration may need, in bytes.
    Memory { least: f64 },
}

/// How ranks may share the work, the simplest first: data parallelism, then sharding of more and more state; then, if
/// the network has attention and blocks, tensor parallelism within a node, and pipeline stages over nodes. Gradients
/// and weights are not sharded in combination with these (each micro-batch would gather them).
pub fn divisions(spec: &TrainingSpec, nodes: u32, gpus_per_node: u32) -> Vec<ParallelDegrees> {
    let gpus = nodes * gpus_per_node;
    let divides = |tensor: u32| {
        gpus_per_node.is_multiple_of(tensor)
            && spec.network.heads >= tensor
            && spec.network.heads.is_multiple_of(tensor)
    };
    let tensors: Vec<u32> = [1, 2, 4, 8].into_iter().filter(|tensor| *tensor == 1 || divides(*tensor)).collect();
    let widest = tensors.last().copied().unwrap_or(1);
    let mut divisions: Vec<ParallelDegrees> = Vec::new();
    let mut add = |tensor: u32, pipeline: u32, zeros: &[Zero]| {
        let ranks = tensor * pipeline;
        if !gpus.is_multiple_of(ranks) {
            return;
        }
        let data = gpus / ranks;
        let zeros = if data == 1 { &[Zero::None][..] } else { zeros };
        divisions.extend(zeros.iter().map(|zero| ParallelDegrees {
            data,
            tensor,
            pipeline,
            zero: *zero,
            ..ParallelDegrees::default()
        }));
    };
    for tensor in &tensors {
        match tensor {
            1 => add(1, 1, &[Zero::None, Zero::Optimizer, Zero::Gradients, Zero::Parameters]),
            _ => add(*tensor, 1, &[Zero::None, Zero::Optimizer]),
        }
    }
    if nodes > 1 && spec.network.heads > 0 {
        for pipeline in
            [2, 4, 8].into_iter().filter(|pipeline| *pipeline <= nodes && spec.network.blocks >= 2 * pipeline)
        {
            add(1, pipeline, &[Zero::Optimizer]);
            if widest > 1 {
                add(widest, pipeline, &[Zero::Optimizer]);
            }
        }
    }
    divisions
}

/// The levels of recomputation that a job may use, cheapest first. Fused attention saves too little to be worth
/// recomputing alone.
pub(super) fn levels(spec: &TrainingSpec) -> &'static [ActivationCheckpointing] {
    match (spec.program.recompute, spec.network.heads > 0 && !spec.program.flash_attention) {
        (false, _) => &[ActivationCheckpointing::None],
        (true, false) => &[ActivationCheckpointing::None, ActivationCheckpointing::Full],
        (true, true) => {
            &[ActivationCheckpointing::None, ActivationCheckpointing::Selective, ActivationCheckpointing::Full]
        }
    }
}

/// The fastest configuration that surely fits in memory, else the fastest that may fit; of equals, the simplest. Models
/// are divided further than memory requires only while a GPU cannot process its complete share of the batch at once.
///
/// # Errors
/// Why there is none.
pub fn fastest(
    spec: &TrainingSpec,
    device: &Device,
    estimator: &mut impl Estimator,
) -> Result<ParallelConfig, Infeasible> {
    if let ParallelChoice::Stated { parallel, accumulate, recompute } = spec.division {
        return stated(spec, device, estimator, (parallel, accumulate, recompute));
    }
    fastest_of(MemoryFit::Fits, spec, device, estimator).or_else(|no| match no {
        Infeasible::Memory { .. } => fastest_of(MemoryFit::Tight, spec, device, estimator),
        Infeasible::Format | Infeasible::Batch => Err(no),
    })
}

/// The configuration that the job states, whether it fits or not.
fn stated(
    spec: &TrainingSpec,
    device: &Device,
    estimator: &mut impl Estimator,
    (parallel, accumulate, recompute): (ParallelDegrees, u64, ActivationCheckpointing),
) -> Result<ParallelConfig, Infeasible> {
    let micro_batch = spec.length.batch.div_ceil(u64::from(parallel.data.max(1))).div_ceil(accumulate.max(1));
    let setup =
        Setup { parallel, accumulate, recompute, micro_batch, ..start(spec, device).ok_or(Infeasible::Format)? };
    let needed = estimator.needed(&setup);
    let verdict = MemoryFit::of(needed.low, needed.high, device.gpu.usable.0 as f64);
    match verdict {
        MemoryFit::TooLarge => Err(Infeasible::Memory { least: needed.low }),
        MemoryFit::Fits | MemoryFit::Tight => {
            Ok(ParallelConfig::of(&setup, needed, verdict, estimator.seconds(&setup)))
        }
    }
}

/// The fastest way of one verdict.
fn fastest_of(
    verdict: MemoryFit,
    spec: &TrainingSpec,
    device: &Device,
    estimator: &mut impl Estimator,
) -> Result<ParallelConfig, Infeasible> {
    let mut best: Option<ParallelConfig> = None;
    let mut reason = Reason::default();
    let mut setup = start(spec, device).ok_or(Infeasible::Format)?;
    for parallel in divisions(spec, device.nodes, device.gpus_per_node) {
        setup.parallel = parallel;
        let mut whole = false;
        for level in levels(spec) {
            setup.recompute = *level;
            let Some(way) = largest_micro_batch(verdict, spec, &mut setup, estimator, &mut reason) else { continue };
            whole = is_whole(&way);
            if best.as_ref().is_none_or(|best| way.step < best.step) {
                best = Some(way);
            }
            // If the complete share fits at once, recomputation only takes longer.
            if whole {
                break;
            }
        }
        if whole {
            break;
        }
    }
    best.ok_or_else(|| reason.told())
}

/// Whether the complete share of a rank fits at once, without recomputation.
pub(super) fn is_whole(way: &ParallelConfig) -> bool {
    way.accumulate == 1 && way.recompute == ActivationCheckpointing::None
}

/// The reasons why no configuration was found.
#[derive(Debug, Clone, Copy, Default)]
struct Reason {
    least: Option<f64>,
}

impl Reason {
    fn told(self) -> Infeasible {
        match self.least {
            Some(least) => Infeasible::Memory { least },
            None => Infeasible::Batch,
        }
    }
}

pub(super) fn start(spec: &TrainingSpec, device: &Device) -> Option<Setup> {
    Some(Setup {
        precision: spec.program.precision.on(&device.gpu.rates)?,
        device: device.clone(),
        layout: spec.program.layout,
        micro_batch: 1,
        accumulate: 1,
        parallel: ParallelDegrees::default(),
        recompute: ActivationCheckpointing::None,
        optimizer: spec.program.optimizer,
        flash_attention: spec.program.flash_attention,
        compiled: spec.program.compiled,
    })
}

/// The way with the largest micro-batch of a verdict, for the division and recomputation of `setup`.
fn largest_micro_batch(
    verdict: MemoryFit,
    spec: &TrainingSpec,
    setup: &mut Setup,
    estimator: &mut impl Estimator,
    reason: &mut Reason,
) -> Option<ParallelConfig> {
    let data = u64::from(setup.parallel.data);
    let share = spec.length.batch / data;
    if share == 0 || !spec.length.batch.is_multiple_of(data) {
        return None;
    }
    let has = setup.device.gpu.usable.0 as f64;
    // Micro-batches by halving, as long as they are integers, then one sample at a time.
    let halvings = share.trailing_zeros();
    let last = if share.is_power_of_two() { halvings } else { halvings + 1 };
    let mut tried = |setup: &mut Setup, step: u32| -> RequiredMemory {
        setup.accumulate = if step > halvings { share } else { 1 << step };
        setup.micro_batch = share / setup.accumulate;
        estimator.needed(setup)
    };
    let mut needed = tried(setup, 0);
    if needed.least(verdict) > has {
        let smallest = tried(setup, last);
        if smallest.least(verdict) > has {
            reason.least = Some(reason.least.map_or(smallest.low, |known| known.min(smallest.low)));
            return None;
        }
        // Fewer samples at a time need less memory, so the first step that fits is found by bisection.
        let (mut fails, mut fits) = (0, last);
        while fits - fails > 1 {
            let between = fails + (fits - fails) / 2;
            match tried(setup, between).least(verdict) <= has {
                true => fits = between,
                false => fails = between,
            }
        }
        needed = tried(setup, fits);
    }
    Some(ParallelConfig::of(setup, needed, verdict, estimator.seconds(setup)))
}

impl ParallelConfig {
    fn of(setup: &Setup, needed: RequiredMemory, verdict: MemoryFit, step: f64) -> ParallelConfig {
        ParallelConfig {
            precision: setup.precision,
            parallel: setup.parallel,
            micro_batch: setup.micro_batch,
            accumulate: setup.accumulate,
            recompute: setup.recompute,
            step,
            needed: needed.middle,
            needed_low: needed.low,
            needed_high: needed.high,
            verdict,
            start: limits::start_up(setup, 0.0, 1.0),
        }
    }

    /// The setup that was estimated.
    pub fn setup(&self, spec: &TrainingSpec, device: &Device) -> Setup {
        Setup {
            device: device.clone(),
            precision: self.precision,
            layout: spec.program.layout,
            micro_batch: self.micro_batch,
            accumulate: self.accumulate,
            parallel: self.parallel,
            recompute: self.recompute,
            optimizer: spec.program.optimizer,
            flash_attention: spec.program.flash_attention,
            compiled: spec.program.compiled,
        }
    }
}
