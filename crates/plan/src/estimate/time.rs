//! Time of one optimiser step: what each micro-batch computes, what ranks exchange, and what no GPU does.
//!
//! [`step_of`] adds it up: operators on one GPU, times micro-batches and the bubble of a pipeline (Huang et al. 2019;
//! Narayanan et al. 2021), plus what exchanges are not hidden behind computing, plus the optimiser's pass.

mod class;
mod division;
mod exchanges;
mod priced;
mod stages;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use class::class;
pub use priced::OperatorCosts;

use exchanges::{data_collectives, gradient_bytes, hybrid_collectives, layer_ring, passing};
use stages::stages;

use super::collective::{CollectiveTime, ExchangeNeeds, Ring};
use super::fitted::anchor::{Anchor, nearest};
use super::fitted::band::{Class, Origin, Percentiles};
use super::fitted::coefficients::FittedCoefficients;
use super::fitted::rates::Shared;
use super::machine::Machine;
use super::operator::OperatorCost;
use super::ops::{OpBreakdown, OpGroup, OpProfile};
use super::optimizer::moved_bytes;
use super::setup::{Setup, Zero};
use crate::model::ModelDescription;

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
    let (parts, terms, exchange) = parts(work, setup, coefficients, &mut OperatorCosts::default());
    let class = class(work, setup, coefficients);
    let middle = parts.iter().sum();
    let [compute, communication, overhead] = parts;
    let samples = setup.micro_batch as f64 * setup.accumulate as f64 * f64::from(setup.parallel.data);
    StepTime {
        compute,
        communication,
        overhead,
        seconds: coefficients.band(Origin::Unknown, class, (&setup.device.gpu, work.details()), &[(middle, 1.0)]),
        samples_per_second: samples / middle,
        class,
        anchor: nearest(&coefficients.anchors, class, work.size(), setup, &setup.device.gpu).cloned(),
        terms,
        exchange,
    }
}

/// Seconds of the middle estimate only, as a fit calls it.
pub fn seconds(work: &OpProfile, setup: &Setup, coefficients: &FittedCoefficients) -> f64 {
    seconds_with(work, setup, coefficients, &mut OperatorCosts::default())
}

/// The same as a search calls it, which keeps the `costs` of operators: they are of `work` and `coefficients` alone.
pub fn seconds_with(
    work: &OpProfile,
    setup: &Setup,
    coefficients: &FittedCoefficients,
    costs: &mut OperatorCosts,
) -> f64 {
    parts(work, setup, coefficients, costs).0.iter().sum()
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
    costs: &mut OperatorCosts,
) -> ([f64; 3], StepBreakdown, ExchangeNeeds) {
    let machine = machine(work, setup, coefficients);
    let (shared, parallel) = (&coefficients.shared, &setup.parallel);
    let (data, pipeline) = (parallel.sharded_over(), f64::from(parallel.pipeline.max(1)));
    let micros = setup.accumulate.max(1) as f64;
    let (stage, whole) = micro_batch(work, setup, coefficients, &machine, costs);
    let (stage, whole) = (division::divided(stage, work, setup, shared), division::divided(whole, work, setup, shared));
    // One forward-one backward: the heaviest stage for each micro-batch, and all others once.
    let passing = passing(work, setup, shared);
    let ranks = f64::from(parallel.tensor.max(1)) * pipeline;
    let weights = division::held(work, setup) / ranks;
    // Gradients of each micro-batch but the first are added to what there is: two tensors read and one written.
    let (own, sum) = (if work.half { 2.0 } else { setup.precision.weight_bytes() }, gradient_bytes(work, setup));
    let added = (micros - 1.0) * machine.pass(weights * (own + 2.0 * sum)) * shared.elementwise;
    let tensor = (micros - 1.0) * stage.waited() + whole.waited();
    // Interleaved, idle ends are shorter by as many chunks as there are, and each is passed on (Narayanan et al. 2021,
    // section 2.2).
    let chunks = f64::from(parallel.chunks.max(1));
    let bubble = ((micros - 1.0) * stage.computed() + whole.computed() - micros * stage.computed()) / chunks;
    let compute = micros * stage.computed() + bubble + added;
    // An interleaved schedule passes on beside computing but for its warm-up (Megatron-LM, `overlap_p2p_comm`).
    let passed = if chunks > 1.0 { pipeline * chunks } else { micros - 1.0 + pipeline };
    let pipes = passed * passing;

    let ring = Ring::of(&setup.device, data, parallel.tensor.max(1), shared);
    // A pipeline's gradients are complete when it is empty, and nothing is left to hide their exchange.
    let late = work.exchanged_late || parallel.pipeline > 1;
    let (ring, [gradients, gathers]) = match parallel.copies > 1 {
        true => hybrid_collectives(work, setup, &ring, shared),
        false => (ring, data_collectives(work, setup, &ring, late, shared)),
    };
    let backwards = if parallel.zero >= Zero::Gradients { micros } else { 1.0 };
    let hidden = if late { 0.0 } else { shared.overlap * whole.backward.max(stage.backward) * backwards };
    let gathered = shared.gather * stage.computed() * micros;
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
        tensor: (micros - 1.0) * stage.tensor + whole.tensor,
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
    costs: &mut OperatorCosts,
) -> (Micro, Micro) {
    let exchange = layer_ring(setup, &coefficients.shared);
    match &work.form {
        OpBreakdown::Groups(groups) => {
            let costs = costs.of(groups, machine, setup.micro_batch as f64);
            stages((groups, costs), work, setup, machine, &exchange)
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
    let casts = (machine.casts && !work.half) || (work.style.fp32_between_blocks && !setup.compiled);
    let flash = if work.first_flash { 1.0 } else { SECOND_FLASH };
    let machine = Machine { style: work.style, ..machine };
    Machine { cast, casts, fused_kernels: work.fused_kernels, flash_rate: machine.flash_rate * flash, ..machine }
}

/// How much longer the slowest rank takes than the middle one.
fn slowest(setup: &Setup, shared: &Shared) -> f64 {
    // What one micro-batch is late by another makes good: the mean of many varies as one over the root of their number.
    1.0 + shared.straggling * f64::from(setup.device.nodes.max(1)).log2() / (setup.accumulate.max(1) as f64).sqrt()
        + shared.near_straggling * f64::from(setup.device.gpus_per_node.max(1).min(setup.gpus())).log2()
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

    /// What the GPU computes, or the time in which the processor starts it, whichever is longer.
    fn computed(&self) -> f64 {
        longer(self.forward + self.backward + self.recompute, self.started)
    }

    /// The same with what ranks exchange inside layers: the GPU does both in turn, while the processor runs ahead.
    fn seconds(&self) -> f64 {
        longer(self.forward + self.backward + self.recompute + self.tensor, self.started)
    }

    /// What exchanges inside layers add: nothing where the GPU waits for its processor anyway.
    fn waited(&self) -> f64 {
        self.seconds() - self.computed()
    }
}

/// The longer of two times that pass side by side, rounded where they are close.
fn longer(left: f64, right: f64) -> f64 {
    let (large, small) = if left > right { (left, right) } else { (right, left) };
    if large <= 0.0 { 0.0 } else { large * (1.0 + (small / large).powi(4)).sqrt().sqrt() }
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
