//! Parallel configurations: which are useful on given machines, and the fastest one that fits.
//!
//! [`layouts`](layouts::layouts) lists how ranks may share the work. For each, and for each level of recomputation, the largest
//! micro-batch that surely fits is used ([`largest_micro_batch`]); the fastest of these is the configuration for that
//! hardware. If none surely fits, one that may fit is used, and marked. Prices are irrelevant here: on given machines a
//! faster run costs less, at any hourly price.

pub mod ahead;
pub(super) mod layouts;
pub(super) mod simplest;
#[cfg(test)]
mod tests;
pub(super) mod words;

use std::collections::BTreeMap;

use serde::Serialize;

use self::simplest::{Complexity, complexity};
use super::workload::{LayoutRequest, ParallelChoice, TrainingSpec};
use crate::estimate::limits;
use crate::estimate::memory::MemoryFit;
use crate::estimate::{ActivationCheckpointing, Device, NumericFormat, ParallelDegrees, Setup};

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
    /// Of the fastest: simpler configurations that take at most [`LAYOUT_MARGIN`](crate::search::LAYOUT_MARGIN)
    /// longer, the simplest first.
    #[serde(skip)]
    pub simpler: Vec<ParallelConfig>,
}

/// Why there is no configuration on some machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Infeasible {
    /// The GPU has no such number format.
    Format,
    /// No division gives every rank complete samples of the batch.
    Batch,
    /// The GPUs do not divide as the job says.
    Layout,
    /// Nothing fits: the smallest memory that any configuration may need, in bytes.
    Memory { least: f64 },
}

/// The levels of recomputation that a job may use, cheapest first. Fused attention saves too little to be worth
/// recomputing alone.
pub(super) fn levels(spec: &TrainingSpec) -> &'static [ActivationCheckpointing] {
    match request(spec).and_then(|request| request.recompute) {
        Some(ActivationCheckpointing::Selective) => return &[ActivationCheckpointing::Selective],
        Some(ActivationCheckpointing::Full) => return &[ActivationCheckpointing::Full],
        Some(ActivationCheckpointing::None | ActivationCheckpointing::Every(_)) | None => {}
    }
    match (spec.program.recompute, spec.network.heads > 0 && !spec.program.flash_attention) {
        (false, _) => &[ActivationCheckpointing::None],
        (true, false) => &[ActivationCheckpointing::None, ActivationCheckpointing::Full],
        (true, true) => {
            &[ActivationCheckpointing::None, ActivationCheckpointing::Selective, ActivationCheckpointing::Full]
        }
    }
}

/// The fastest configuration that surely fits in memory, else the fastest that may fit; of equals, the simplest. The
/// simpler ones that are nearly as fast are listed with it. Models are divided further than memory requires only while a
/// GPU cannot process its complete share of the batch at once, for each degree of context and expert parallelism on its
/// own.
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
        Infeasible::Format | Infeasible::Batch | Infeasible::Layout => Err(no),
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

/// The fastest configuration of one verdict, with the simpler ones that are nearly as fast.
fn fastest_of(
    verdict: MemoryFit,
    spec: &TrainingSpec,
    device: &Device,
    estimator: &mut impl Estimator,
) -> Result<ParallelConfig, Infeasible> {
    let mut best: BTreeMap<Complexity, ParallelConfig> = BTreeMap::new();
    let mut shortage = MemoryShortage::default();
    let mut setup = start(spec, device).ok_or(Infeasible::Format)?;
    let layouts = layouts::layouts(spec, device.nodes, device.gpus_per_node);
    if layouts.is_empty() {
        return Err(Infeasible::Layout);
    }
    // Ranks that share experts or sequences exchange other things than those that share none: neither is surely slower.
    let mut settled: Vec<(u32, u32)> = Vec::new();
    for parallel in layouts {
        let shared = (parallel.context, parallel.expert);
        if settled.contains(&shared) {
            continue;
        }
        setup.parallel = parallel;
        let (mut whole, mut cheaper) = (false, None);
        for level in levels(spec) {
            setup.recompute = *level;
            let config = largest_micro_batch(verdict, spec, &mut setup, estimator, (&mut shortage, cheaper));
            let Some(config) = config else { continue };
            whole = is_whole(&config);
            cheaper = Some(config.accumulate);
            let alike = complexity(&config.parallel);
            if best.get(&alike).is_none_or(|best| config.step < best.step) {
                best.insert(alike, config);
            }
            // If the complete share fits at once, recomputation only takes longer.
            if whole {
                break;
            }
        }
        if whole {
            settled.push(shared);
        }
    }
    simplest::ranked(best).ok_or_else(|| shortage.infeasible())
}

/// Whether the complete share of a rank fits at once, without recomputation.
pub(super) fn is_whole(config: &ParallelConfig) -> bool {
    config.accumulate == 1 && config.recompute == ActivationCheckpointing::None
}

/// The least memory that a configuration without enough of it needs, in bytes; none where no batch divided.
#[derive(Debug, Clone, Copy, Default)]
struct MemoryShortage {
    least: Option<f64>,
}

impl MemoryShortage {
    fn infeasible(self) -> Infeasible {
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

/// What the job asks of layouts, where it leaves the rest to the search.
fn request(spec: &TrainingSpec) -> Option<&LayoutRequest> {
    match &spec.division {
        ParallelChoice::Requested(request) => Some(request),
        ParallelChoice::Search | ParallelChoice::Stated { .. } => None,
    }
}

/// The numbers of micro-batches that a rank's share of the batch may be divided into: by halving, as long as they are
/// integers, then one sample at a time.
#[derive(Debug, Clone, Copy)]
struct MicroBatchSizes {
    share: u64,
    halvings: u32,
    /// The first and the last step of dividing that may be taken.
    first: u32,
    last: u32,
}

impl MicroBatchSizes {
    /// Of each rank; none where the batch does not divide.
    fn of(spec: &TrainingSpec, parallel: &ParallelDegrees) -> Option<MicroBatchSizes> {
        let data = u64::from(parallel.data);
        let share = spec.length.batch / data;
        if share == 0 || !spec.length.batch.is_multiple_of(data) {
            return None;
        }
        let halvings = share.trailing_zeros();
        let all = if share.is_power_of_two() { halvings } else { halvings + 1 };
        let last = if request(spec).is_some_and(|request| request.is_whole) { 0 } else { all };
        let mut micros = MicroBatchSizes { share, halvings, first: 0, last };
        // An interleaved pipeline takes them in rounds of as many as it has stages (Narayanan et al. 2021, section 2.2).
        let round = if parallel.chunks > 1 { u64::from(parallel.pipeline.max(1)) } else { 1 };
        micros.first = (0..=last).find(|step| micros.count(*step).is_multiple_of(round))?;
        Some(micros)
    }

    /// How many there are at a step of dividing.
    fn count(&self, step: u32) -> u64 {
        if step > self.halvings { self.share } else { 1 << step }
    }

    /// The memory that one GPU must have at a step of dividing, which `setup` is left at.
    fn needed(&self, setup: &mut Setup, step: u32, estimator: &mut impl Estimator) -> RequiredMemory {
        setup.accumulate = self.count(step);
        setup.micro_batch = self.share / setup.accumulate;
        estimator.needed(setup)
    }
}

/// The configuration with the largest micro-batch of a verdict, for the division and recomputation of `setup`; in a
/// pipeline that the job asks for, with the fastest of those that fit, because its ends idle the less the more
/// micro-batches there are. None where it has as many micro-batches as a level that recomputes less and fits: computing
/// again only takes longer then.
fn largest_micro_batch(
    verdict: MemoryFit,
    spec: &TrainingSpec,
    setup: &mut Setup,
    estimator: &mut impl Estimator,
    (shortage, cheaper): (&mut MemoryShortage, Option<u64>),
) -> Option<ParallelConfig> {
    let micros = MicroBatchSizes::of(spec, &setup.parallel)?;
    let has = setup.device.gpu.usable.0 as f64;
    let mut fitting = micros.first;
    let mut needed = micros.needed(setup, fitting, estimator);
    if needed.least(verdict) > has {
        let smallest = micros.needed(setup, micros.last, estimator);
        if smallest.least(verdict) > has {
            shortage.least = Some(shortage.least.map_or(smallest.low, |known| known.min(smallest.low)));
            return None;
        }
        // Fewer samples at a time need less memory, so the first step that fits is found by bisection.
        let (mut fails, mut fits) = (micros.first, micros.last);
        while fits - fails > 1 {
            let between = fails + (fits - fails) / 2;
            match micros.needed(setup, between, estimator).least(verdict) <= has {
                true => fits = between,
                false => fails = between,
            }
        }
        needed = micros.needed(setup, fits, estimator);
        fitting = fits;
    }
    let is_asked = request(spec).is_some_and(|request| !request.parallel.is_empty());
    let is_chosen = is_asked && setup.parallel.pipeline > 1;
    if !is_chosen && cheaper == Some(micros.count(fitting)) {
        return None;
    }
    let mut best = ParallelConfig::of(setup, needed, verdict, estimator.seconds(setup));
    let last = if is_chosen { micros.last } else { fitting };
    for step in fitting + 1..=last {
        let needed = micros.needed(setup, step, estimator);
        let config = ParallelConfig::of(setup, needed, verdict, estimator.seconds(setup));
        if needed.least(verdict) <= has && config.step < best.step {
            best = config;
        }
    }
    Some(best)
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
            simpler: Vec::new(),
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
