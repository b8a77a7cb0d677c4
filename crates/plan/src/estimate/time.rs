//! Time of one optimiser step: what each micro-batch computes, what ranks exchange, and what no GPU does.
//!
//! [`step_of`] adds it up: operators on one GPU, times micro-batches and the bubble of a pipeline (Huang et al. 2019;
//! Narayanan et al. 2021), plus what exchanges are not hidden behind computing, plus the optimiser's pass.

mod class;
mod division;

use serde::Serialize;

pub use class::class;

use super::collective::{BUCKET, CollectiveTime, ExchangeNeeds, Ring};
use super::fitted::anchor::{Anchor, nearest};
use super::fitted::band::{Class, Percentiles};
use super::fitted::coefficients::FittedCoefficients;
use super::fitted::rates::Shared;
use super::machine::Machine;
use super::operator::OperatorCost;
use super::ops::{BlockPosition, OpBreakdown, OpGroup, OpProfile};
use super::optimizer::moved_bytes;
use super::setup::{ActivationCheckpointing, Setup, Zero};
use crate::model::ModelDescription;
use crate::model::graph::OpKind;

/// How much faster flash attention's second version is than the first and than Triton's kernel of it: about twice (Dao
/// 2023, FlashAttention-2, abstract and section 4.1).
const SECOND_FLASH: f64 = 2.0;

/// Time of one optimiser step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepTime {
    /// Seconds that GPUs compute, bubbles of a pipeline included.
    pub compute: f64,
    /// Seconds that they wait for each other.
    pub communication: f64,
    /// Seconds of the optimiser and of what no GPU does.
    pub overhead: f64,
    /// Of the whole step.
    pub seconds: Percentiles,
    /// Samples of all ranks a second, at the middle.
    pub samples_per_second: f64,
    pub class: Class,
    /// The measurements most like it.
    pub anchor: Option<Anchor>,
    pub terms: StepBreakdown,
    pub exchange: ExchangeNeeds,
}

/// What the step is made of, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct StepBreakdown {
    /// One micro-batch forwards and backwards on one GPU.
    pub forward: f64,
    pub backward: f64,
    /// Blocks computed again.
    pub recompute: f64,
    /// Exchanges inside layers.
    pub tensor: f64,
    /// Idle ends of a pipeline, and what it passes on.
    pub pipeline: f64,
    /// Exchange of gradients, hidden or not.
    pub gradients: f64,
    /// Gathering of sharded weights, hidden or not.
    pub gathers: f64,
    pub optimizer: f64,
}

/// Estimates one step of `model`.
pub fn step(model: &ModelDescription, setup: &Setup, coefficients: &FittedCoefficients) -> StepTime {
    step_of(&OpProfile::of(model), setup, coefficients)
}

/// Estimates one step of a network that was digested before.
pub fn step_of(work: &OpProfile, setup: &Setup, coefficients: &FittedCoefficients) -> StepTime {
    let (parts, terms, exchange) = parts(work, setup, coefficients);
    let class = class(work, setup, coefficients);
    let middle = parts.iter().sum();
    let [compute, communication, overhead] = parts;
    let samples = setup.micro_batch as f64 * setup.accumulate as f64 * f64::from(setup.parallel.data);
    StepTime {
        compute,
        communication,
        overhead,
        seconds: coefficients.bands.around(class, middle),
        samples_per_second: samples / middle,
        class,
        anchor: nearest(&coefficients.anchors, class, work.size(), setup, &setup.device.gpu).cloned(),
        terms,
        exchange,
    }
}

/// Seconds of the middle estimate only, as a search or a fit calls it.
pub fn seconds(work: &OpProfile, setup: &Setup, coefficients: &FittedCoefficients) -> f64 {
    parts(work, setup, coefficients).0.iter().sum()
}

/// What a micro-batch costs on the heaviest stage of a pipeline, and on all stages together.
#[derive(Debug, Clone, Copy, Default)]
struct Micro {
    forward: f64,
    backward: f64,
    recompute: f64,
    /// The processor's time to start kernels.
    started: f64,
    tensor: f64,
}

fn parts(
    work: &OpProfile,
    setup: &Setup,
    coefficients: &FittedCoefficients,
) -> ([f64; 3], StepBreakdown, ExchangeNeeds) {
    let machine = machine(work, setup, coefficients);
    let shared = &coefficients.shared;
    let parallel = &setup.parallel;
    let (data, pipeline) = (parallel.replicas(), f64::from(parallel.pipeline.max(1)));
    let micros = setup.accumulate.max(1) as f64;
    let (stage, whole) = micro_batch(work, setup, coefficients, &machine);
    let (stage, whole) = (division::divided(stage, work, setup, shared), division::divided(whole, work, setup, shared));
    // One forward-one backward: the heaviest stage for each micro-batch, and all others once.
    let passing = passing(work, setup, shared);
    let wide = if work.half { 2.0 } else { setup.precision.weight_bytes() };
    let ranks = f64::from(parallel.tensor.max(1)) * pipeline;
    let weights = division::held(work, setup) / ranks;
    // Gradients of each micro-batch but the first are added to what there is: two tensors read and one written.
    let added = (micros - 1.0) * machine.pass(3.0 * weights * wide) * shared.elementwise;
    let tensor = (micros - 1.0) * stage.tensor + whole.tensor;
    // Interleaved, idle ends are shorter by as many chunks as there are, and each is passed on (Narayanan et al. 2021,
    // section 2.2).
    let chunks = f64::from(parallel.chunks.max(1));
    let bubble = ((micros - 1.0) * stage.seconds() + whole.seconds() - micros * stage.seconds()) / chunks;
    let compute = micros * stage.seconds() + bubble + added;
    let pipes = ((micros - 1.0) * passing + pipeline * passing) * chunks;

    let ring = Ring::of(&setup.device, data, parallel.tensor.max(1), shared);
    // A pipeline's gradients are complete when it is empty, and nothing is left to hide their exchange.
    let late = work.exchanged_late || parallel.pipeline > 1;
    let [gradients, gathers] = data_collectives(work, setup, &ring, late);
    let backwards = if parallel.zero >= Zero::Gradients { micros } else { 1.0 };
    let hidden = if late { 0.0 } else { shared.overlap * whole.backward.max(stage.backward) * backwards };
    let gathered = shared.gather * stage.seconds() * micros;
    // What is hidden still takes multiprocessors and bandwidth from what hides it, by the bytes that it moves.
    let slowed = |exchange: &CollectiveTime| shared.contention * machine.pass(exchange.moving * ring.bandwidth);
    let waited = gradients.waited(hidden, slowed(&gradients)) + gathers.waited(gathered, slowed(&gathers));

    let states = if parallel.zero == Zero::None { weights } else { weights / f64::from(data) };
    let optimizer = machine.pass(states * moved_bytes(setup.optimizer, setup.precision)) * shared.optimizer;
    let overhead = shared.step * 1e-3 + optimizer;
    let slowest = slowest(setup, shared);
    let terms = StepBreakdown {
        forward: whole.forward,
        backward: whole.backward,
        recompute: whole.recompute,
        tensor,
        pipeline: bubble + pipes,
        gradients: gradients.seconds(),
        gathers: gathers.seconds(),
        optimizer,
    };
    let exchange = ExchangeNeeds::of([(&gradients, hidden), (&gathers, gathered)], &ring);
    ([compute * slowest, tensor + pipes + waited, overhead], terms, exchange)
}

/// A micro-batch on the heaviest stage, and on all of them together.
fn micro_batch(
    work: &OpProfile,
    setup: &Setup,
    coefficients: &FittedCoefficients,
    machine: &Machine,
) -> (Micro, Micro) {
    let parallel = &setup.parallel;
    let exchange = Ring::of(&setup.device, parallel.tensor.max(1), 1, &coefficients.shared);
    match &work.form {
        OpBreakdown::Groups(groups) => {
            stages(groups, work, setup, machine, &exchange, f64::from(parallel.pipeline.max(1)))
        }
        OpBreakdown::Totals(summary) => {
            let seconds = coefficients.totals.seconds(summary, setup, machine);
            let micro = Micro { forward: seconds / 3.0, backward: seconds * 2.0 / 3.0, ..Micro::default() };
            (micro, micro)
        }
    }
}

/// The machine as the program of `work` uses it.
fn machine(work: &OpProfile, setup: &Setup, coefficients: &FittedCoefficients) -> Machine {
    let machine = Machine::of(setup, &coefficients.generation(&setup.device.gpu), coefficients.shared);
    // Weights that are in half precision are not cast in each pass.
    let cast = if work.half { 0.0 } else { machine.cast };
    let casts = machine.casts && !work.half;
    let flash = if work.first_flash { 1.0 } else { SECOND_FLASH };
    Machine { cast, casts, fused_kernels: work.fused_kernels, flash_rate: machine.flash_rate * flash, ..machine }
}

/// Seconds in which a stage of a pipeline passes a micro-batch on and its gradient back. Each of the ranks that share a layer
/// passes its part on (Narayanan et al. 2021, section 4.1).
fn passing(work: &OpProfile, setup: &Setup, shared: &Shared) -> f64 {
    let parallel = &setup.parallel;
    let passed =
        setup.micro_batch as f64 * work.boundary * setup.precision.compute_bytes() / f64::from(parallel.tensor.max(1));
    match parallel.pipeline > 1 {
        true => 2.0 * passed / pass_bandwidth(setup, shared) + shared.stage * 1e-6,
        false => 0.0,
    }
}

/// What data-parallel ranks exchange in a step: gradients, and the weights that ZeRO gathers.
fn data_collectives(work: &OpProfile, setup: &Setup, ring: &Ring, late: bool) -> [CollectiveTime; 2] {
    let parallel = &setup.parallel;
    let micros = setup.accumulate.max(1) as f64;
    let wide = if work.half { 2.0 } else { setup.precision.weight_bytes() };
    let ranks = f64::from(parallel.tensor.max(1)) * f64::from(parallel.pipeline.max(1));
    let weights = division::held(work, setup) / ranks;
    let units = f64::from(work.blocks) + 1.0;
    let buckets = if late { 1.0 } else { (weights * wide / BUCKET).ceil().max(1.0) };
    let scattered = CollectiveTime::spread(ring, weights * wide, units).times(micros);
    match (parallel.replicas() > 1, parallel.zero) {
        (false, _) => [CollectiveTime::default(); 2],
        (true, Zero::None) => [CollectiveTime::sum(ring, weights * wide, buckets), CollectiveTime::default()],
        (true, Zero::Optimizer) => {
            [CollectiveTime::sum(ring, weights * wide, buckets), CollectiveTime::spread(ring, weights, 1.0)]
        }
        (true, Zero::Gradients) => [scattered, CollectiveTime::spread(ring, weights * 2.0, units)],
        (true, Zero::Parameters) => {
            let elsewhere = work.parameters - division::held(work, setup);
            let bytes = (work.gathered - elsewhere) / ranks * setup.precision.compute_bytes();
            let gathered = CollectiveTime::spread(ring, bytes, units);
            [scattered, gathered.times(2.0 * micros)]
        }
    }
}

/// How much longer the slowest rank takes than the middle one.
fn slowest(setup: &Setup, shared: &Shared) -> f64 {
    // What one micro-batch is late by another makes good: the mean of many varies as one over the root of their number.
    1.0 + shared.straggling * f64::from(setup.device.nodes.max(1)).log2() / (setup.accumulate.max(1) as f64).sqrt()
        + shared.near_straggling * f64::from(setup.device.gpus_per_node.max(1).min(setup.gpus())).log2()
}

/// The heaviest stage of a pipeline, and all of them together.
fn stages(
    groups: &[OpGroup],
    work: &OpProfile,
    setup: &Setup,
    machine: &Machine,
    exchange: &Ring,
    pipeline: f64,
) -> (Micro, Micro) {
    let samples = setup.micro_batch as f64;
    let [mut before, mut blocks, mut after] = [Micro::default(); 3];
    let bytes = samples * setup.precision.compute_bytes();
    let launch = if setup.compiled { machine.shared.launch_compiled } else { machine.shared.launch } * 1e-6;
    for group in groups {
        let cost = machine.cost(group, samples);
        let to = match group.place {
            BlockPosition::Before => &mut before,
            BlockPosition::Block => &mut blocks,
            BlockPosition::After => &mut after,
        };
        let runs_again = runs_again(group, work, setup);
        to.add(group, &cost, runs_again, launch);
        if setup.parallel.tensor > 1 {
            let [forward, backward] =
                group.exchanged.map(|values| if values > 0.0 { exchange.all_reduce(values * bytes) } else { 0.0 });
            let exchanges = group.exchanged.map(|values| if values > 0.0 { 1.0 } else { 0.0 });
            // The slowest of all processors is waited for; the largest of n grows about as log n.
            let issue = machine.shared.issue * 1e-6 * f64::from(setup.parallel.tensor).log2();
            to.started += group.count * (exchanges[0] * (1.0 + runs_again) + exchanges[1]) * issue;
            to.tensor += group.count * (forward * (1.0 + runs_again) + backward);
        }
    }
    if setup.recompute == ActivationCheckpointing::Full {
        blocks.started += f64::from(work.blocks) * machine.shared.restart * 1e-6;
    }
    if pipeline <= 1.0 {
        let all = before.and(&blocks).and(&after);
        return (all, all);
    }
    let share = (f64::from(work.blocks.max(1)) / pipeline).ceil() / f64::from(work.blocks.max(1));
    let ends = if before.seconds() > after.seconds() { before } else { after };
    (blocks.times(share).and(&ends), before.and(&blocks.times(share * pipeline)).and(&after))
}

/// How often an operator of a group is computed again in the backward pass, on average.
fn runs_again(group: &OpGroup, work: &OpProfile, setup: &Setup) -> f64 {
    match setup.recompute {
        ActivationCheckpointing::None => 0.0,
        ActivationCheckpointing::Selective => match (group.place, &group.kind) {
            (BlockPosition::Block, _) if setup.flash_attention => {
                1.0 - group.saved_by_selective_checkpointing / group.count
            }
            (_, OpKind::Attention { .. }) => 1.0,
            _ => 0.0,
        },
        ActivationCheckpointing::Every(blocks) => match group.place {
            BlockPosition::Block => (1.0 - group.ends / group.count) / f64::from(blocks.max(1)),
            BlockPosition::Before | BlockPosition::After => 0.0,
        },
        ActivationCheckpointing::Full => match group.place {
            BlockPosition::Block if work.recomputed_whole => 1.0,
            BlockPosition::Block => 1.0 - group.ends / group.count,
            BlockPosition::Before | BlockPosition::After => 0.0,
        },
    }
}

impl Micro {
    fn add(&mut self, group: &OpGroup, cost: &OperatorCost, again: f64, launch: f64) {
        self.forward += group.count * cost.forward;
        self.backward += group.count * cost.backward;
        self.recompute += group.count * cost.forward * again;
        self.started += group.count * (cost.kernels[0] * (1.0 + again) + cost.kernels[1]) * launch;
    }

    fn and(&self, other: &Micro) -> Micro {
        Micro {
            forward: self.forward + other.forward,
            backward: self.backward + other.backward,
            recompute: self.recompute + other.recompute,
            started: self.started + other.started,
            tensor: self.tensor + other.tensor,
        }
    }

    fn times(&self, factor: f64) -> Micro {
        Micro {
            forward: self.forward * factor,
            backward: self.backward * factor,
            recompute: self.recompute * factor,
            started: self.started * factor,
            tensor: self.tensor * factor,
        }
    }

    /// The GPU's time or the processor's, whichever is longer.
    fn seconds(&self) -> f64 {
        let busy = self.forward + self.backward + self.recompute;
        let (large, small) = if busy > self.started { (busy, self.started) } else { (self.started, busy) };
        if large <= 0.0 { 0.0 } else { large * (1.0 + (small / large).powi(4)).sqrt().sqrt() }
    }
}

/// Bytes a second between two stages of a pipeline.
fn pass_bandwidth(setup: &Setup, shared: &Shared) -> f64 {
    let stride = setup.parallel.tensor.max(1) * setup.parallel.data.max(1);
    Ring::of(&setup.device, 2, stride, shared).bandwidth
}

impl Setup {
    /// GPUs in all.
    pub fn gpus(&self) -> u32 {
        let model = self.parallel.tensor.max(1).saturating_mul(self.parallel.pipeline.max(1));
        self.parallel.replicas().saturating_mul(model)
    }
}

impl OpProfile {
    /// Logarithms of weights and of multiply-adds a sample.
    pub fn size(&self) -> [f64; 2] {
        let madds: f64 = match &self.form {
            OpBreakdown::Totals(summary) => summary.multiply_adds,
            OpBreakdown::Groups(groups) => {
                groups.iter().map(|group| group.count * group.kind.multiply_adds() as f64).sum()
            }
        };
        [self.parameters.max(1.0).ln(), madds.max(1.0).ln()]
    }
}
