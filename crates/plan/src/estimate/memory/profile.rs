//! What an estimate needs of a model: counted once, asked for many batches and ways of sharing the work.

use std::ops::Range;

use super::peak::{ActivationPeak, activation_peak};
use super::saved_tensors::{Rules, Storage};
use super::states::{self, Values};
use super::{MemoryCoefficients, MemoryEstimate, Savings, fixed, totals};
use crate::estimate::{ActivationCheckpointing, NumericFormat, Setup, Zero};
use crate::model::{Graph, ModelDescription, OpKind, Operator};

/// Relative uncertainty of everything, also of what is counted.
const UNCERTAIN: f64 = 0.01;

/// What PyTorch's allocator gives a block of its own.
const MIN_LARGE: f64 = 10.0 * 1024.0 * 1024.0;
/// Share that is lost of such blocks (assumed).
const ROUNDED_UP: f64 = 0.10;

/// Share of activations that ranks hold besides where they gather the sequence again (fitted to nanotron's sweep, 2 to 32
/// ranks a layer; what it is made of is not known).
const REGATHERED: f64 = 0.12;

/// The part of an estimate that does not depend on batch, device and sharing among data-parallel ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    stages: Vec<Stage>,
    savings: Savings,
    figures: MemoryCoefficients,
    /// Relative standard deviation of the estimate.
    deviation: f64,
}

/// What a [`Profile`] depends on, so that one can be kept for many setups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    precision: NumericFormat,
    recompute: ActivationCheckpointing,
    flash: bool,
    compiled: bool,
    tensor: u32,
    pipeline: u32,
    gathered: bool,
    sequence: bool,
    expert_parts: u32,
    processor: bool,
}

/// One stage of a pipeline.
#[derive(Debug, Clone, PartialEq)]
struct Stage {
    /// Counted from 0; the earlier, the more micro-batches are in flight.
    index: u32,
    values: Values,
    peak: ActivationPeak,
    /// Bytes a sample of what passes from block to block.
    passed: f64,
    /// Blocks that it has.
    blocks: f64,
}

impl Profile {
    /// Returns what a profile made for `setup` is good for.
    pub fn key(setup: &Setup) -> Key {
        Key {
            precision: setup.precision,
            recompute: setup.recompute,
            flash: setup.flash_attention,
            compiled: setup.compiled,
            tensor: setup.parallel.tensor.max(1),
            pipeline: setup.parallel.pipeline.max(1),
            gathered: setup.parallel.zero == Zero::Parameters,
            sequence: setup.parallel.sequence,
            expert_parts: setup.parallel.expert_parts(),
            processor: setup.device.is_processor(),
        }
    }

    /// Prepares estimates of memory for a network under a setup: everything that does not depend on its batch. A stage of a
    /// pipeline is as heavy as its fullest one.
    pub fn new(model: &ModelDescription, setup: &Setup, savings: &Savings, figures: &MemoryCoefficients) -> Profile {
        let graph = match model {
            ModelDescription::Graph(graph) => graph,
            ModelDescription::Summary(summary) => {
                let (values, peak) = totals::estimate(summary, setup, figures);
                let stage = Stage { index: 0, values, peak, passed: 0.0, blocks: 0.0 };
                return Profile {
                    stages: vec![stage],
                    savings: *savings,
                    figures: *figures,
                    deviation: figures.deviation_of_totals,
                };
            }
        };
        let rules = Rules::new(setup, savings);
        let storage = Storage::new(graph, &rules);
        let ranges = stages(graph, setup.parallel.pipeline.max(1), savings.balanced_stages);
        let last = ranges.len() - 1;
        let mut stages = Vec::new();
        for (index, range) in ranges.into_iter().enumerate() {
            // Stages between the second and the last hold as much of the network as the second and fewer micro-batches.
            if index < 2 || index == last {
                let values = values(graph, range.clone(), setup, &rules, &storage);
                let mut blocks: Vec<_> = graph.operators[range.clone()].iter().filter_map(|one| one.block).collect();
                blocks.dedup();
                let blocks = blocks.len() as f64;
                let peak = activation_peak(graph, range, &storage, &rules, setup.recompute);
                let passed = passed(graph, &storage);
                stages.push(Stage { index: index as u32, values, peak, passed, blocks });
            }
        }
        Profile { stages, savings: *savings, figures: *figures, deviation: figures.deviation }
    }

    /// Estimates the memory of the fullest GPU. `setup` has the [`Key`] that the profile was made for.
    pub fn memory(&self, setup: &Setup) -> MemoryEstimate {
        // The one that must have the most, which a verdict is about.
        let fullest =
            |left: MemoryEstimate, right: MemoryEstimate| if right.required > left.required { right } else { left };
        self.stages.iter().map(|stage| self.stage(stage, setup)).fold(MemoryEstimate::default(), fullest)
    }

    /// Estimates the memory of a GPU of the first stage of a pipeline, which rank 0 is of.
    pub fn first_stage(&self, setup: &Setup) -> MemoryEstimate {
        self.stages.first().map(|stage| self.stage(stage, setup)).unwrap_or_default()
    }

    fn stage(&self, stage: &Stage, setup: &Setup) -> MemoryEstimate {
        let batch = setup.micro_batch as f64;
        let states = states::states(&stage.values, setup, &self.savings);
        let in_flight = in_flight(stage.index, setup);
        // Ranks that share a sequence each hold their part of it.
        let sharing = f64::from(setup.parallel.context.max(1));
        let twice = self.kept_twice(stage, setup);
        let sent = self.sent_to_host(stage, setup);
        let peak = stage.peak.fullest + twice - sent + (stage.peak.saved + twice - sent) * in_flight;
        let activations = batch * peak * self.gathered_again(setup) / sharing;
        // The optimiser works when the backward pass is over, and what is gathered for that is gone.
        let update = (states.update - states.communication).max(0.0);
        let (gradients, activations) = match self.frees_gradients(setup) {
            false => (states.gradients, activations.max(update)),
            true => {
                let at_end = batch * (stage.peak.at_end + twice) / sharing;
                fullest_moment([(0.0, activations), (states.gradients, at_end), (states.gradients, update)])
            }
        };
        let gpu = &setup.device.gpu;
        let workspace = fixed::workspace(gpu.architecture);
        let context = fixed::context(gpu.architecture) + fixed::collectives(setup);
        let communication = match self.savings.loads_whole && setup.parallel.zero == Zero::Parameters {
            true => states.communication.max(self.loaded(stage, setup) - activations),
            false => states.communication,
        };
        // Requests of 10 MiB and more get allocations of their own, rounded up to 2 MiB (`kMinLargeAlloc` and `kRoundLarge` of
        // PyTorch's allocator). Where blocks pass on as much each, the next one takes what the last one left.
        let lost = match batch * stage.passed / sharing >= MIN_LARGE {
            true => ROUNDED_UP,
            false => self.figures.fragmentation,
        };
        let margin = lost * activations + self.figures.fragmentation * workspace;
        let needed = states.weights + gradients + states.optimizer + communication + context + activations + workspace;
        // Before it fails, the allocator gives back what it can.
        let required = needed + self.figures.stuck * (activations + workspace);
        // What is counted, the states, is certain; what a step adds is not, and a tenth lies 1.28 deviations away.
        let band = 1.28 * self.deviation * (activations + workspace + communication) + UNCERTAIN * needed;
        MemoryEstimate {
            weights: states.weights,
            gradients,
            optimizer: states.optimizer,
            activations,
            workspace,
            communication,
            context,
            margin,
            middle: needed + margin,
            low: required - band,
            required,
            high: required + band,
        }
    }
}

impl Profile {
    /// Whether gradients of weights come and go within a step: nothing is accumulated, no pipeline has micro-batches in flight,
    /// and neither copies of the weights in fp32 nor a sharded state keep them in buffers.
    fn frees_gradients(&self, setup: &Setup) -> bool {
        let has_copies = self.savings.half_model && setup.precision.is_autocast();
        let is_sharded = matches!(setup.parallel.zero, Zero::Optimizer | Zero::Gradients);
        let is_plain = setup.accumulate <= 1 && setup.parallel.pipeline <= 1;
        self.savings.frees_gradients && is_plain && !has_copies && !is_sharded
    }

    /// Bytes of the whole weights in the computing type, which each rank holds beside its shard before training begins.
    fn loaded(&self, stage: &Stage, setup: &Setup) -> f64 {
        stage.values.parameters * setup.precision.compute_bytes()
    }

    /// By how much more activations take where ranks that share layers and the sequence gather it again for the backward
    /// pass.
    fn gathered_again(&self, setup: &Setup) -> f64 {
        let divides = setup.parallel.sequence && setup.parallel.tensor > 1;
        if divides && self.savings.gathers_again { 1.0 + REGATHERED } else { 1.0 }
    }

    /// Bytes a sample of the inputs of recomputed blocks that are in host memory: all but those of two blocks, the one at
    /// work and the one that is copied meanwhile.
    fn sent_to_host(&self, stage: &Stage, setup: &Setup) -> f64 {
        match self.savings.offload_activations && setup.recompute == ActivationCheckpointing::Full {
            true => (stage.blocks - 2.0).max(0.0) * stage.passed,
            false => 0.0,
        }
    }

    /// Bytes a sample that checkpoints of a stage hold once more where adapters in fp32 train beside frozen weights
    /// that are sharded: what passes from unit to unit is in fp32 then, and in 16 bits without FSDP. The rows of
    /// fms-acceleration on two and four GPUs show exactly that much beside those on one.
    fn kept_twice(&self, stage: &Stage, setup: &Setup) -> f64 {
        let adapted = self.savings.fp32_adapters && setup.precision.compute_bytes() < 4.0;
        let sharded = setup.parallel.zero == Zero::Parameters && setup.parallel.replicas() > 1;
        match (adapted && sharded || self.savings.fp32_between_blocks)
            && setup.recompute == ActivationCheckpointing::Full
        {
            true => stage.blocks * stage.passed,
            false => 0.0,
        }
    }
}

/// The pair with the largest sum.
fn fullest_moment(moments: [(f64, f64); 3]) -> (f64, f64) {
    let larger = |left: (f64, f64), right: (f64, f64)| if right.0 + right.1 > left.0 + left.1 { right } else { left };
    moments.into_iter().fold((0.0, 0.0), larger)
}

/// Micro-batches beside the one at work whose activations a stage holds under one-forward-one-backward (Narayanan et
/// al. 2021): the first stage of `p` holds `p`, the last one.
fn in_flight(stage: u32, setup: &Setup) -> f64 {
    let stages = u64::from(setup.parallel.pipeline.max(1));
    let plain = (stages - u64::from(stage)).min(setup.accumulate.max(1)).saturating_sub(1) as f64;
    // Interleaved, a stage of `v` chunks holds `1 + (p - 1) ÷ (p v)` times as much (Narayanan et al. 2021, section 2.2).
    let (count, chunks) = (stages as f64, f64::from(setup.parallel.chunks.max(1)));
    match chunks > 1.0 && stages > 1 {
        true => plain + (count - 1.0) / chunks,
        false => plain,
    }
}

/// Operators of each stage: blocks in equal parts, what comes before them with the first, what comes after with the
/// last. Where parts are equal in arithmetic, the scores count as blocks of the last stage, and a stage takes blocks until
/// it has passed its share, so that the first has the most (nanotron, torchtitan).
fn stages(graph: &Graph, count: u32, balanced: bool) -> Vec<Range<usize>> {
    let blocks = u64::from(graph.blocks());
    let count = u64::from(count).clamp(1, blocks.max(1));
    let share = (blocks as f64 + behind(graph)) / count as f64;
    let mut ranges = Vec::new();
    let mut start = 0;
    for stage in 1..=count {
        let end = match stage == count {
            true => graph.operators.len(),
            false => {
                let first = match balanced {
                    true => ((stage as f64 * share) as u64 + 1).min(blocks - 1),
                    false => stage * blocks / count,
                };
                let is_next = |operator: &Operator| operator.block.is_some_and(|block| u64::from(block) >= first);
                graph.operators.iter().position(is_next).unwrap_or(graph.operators.len()).max(start)
            }
        };
        ranges.push(start..end);
        start = end;
    }
    ranges
}

/// Arithmetic of the products behind the blocks, in blocks.
fn behind(graph: &Graph) -> f64 {
    let products = |operator: &Operator| match operator.kind {
        OpKind::Linear { rows, inner, columns, .. } => rows as f64 * inner as f64 * columns as f64,
        _ => 0.0,
    };
    let last = graph.operators.iter().rposition(|operator| operator.block.is_some()).map_or(0, |at| at + 1);
    let block: f64 = graph.operators.iter().filter(|operator| operator.block == Some(0)).map(products).sum();
    let after: f64 = graph.operators[last..].iter().map(products).sum();
    if block > 0.0 { after / block } else { 0.0 }
}

/// Bytes of what leaves each block; none where blocks differ in that, as those of convolutional networks do.
fn passed(graph: &Graph, storage: &Storage) -> f64 {
    let leaves = |block: u32| {
        let last = graph.operators.iter().rev().find(|operator| operator.block == Some(block));
        last.map_or(0.0, |operator| storage.bytes[storage.root[operator.output.0 as usize] as usize])
    };
    let (first, last) = (leaves(0), leaves(graph.blocks().saturating_sub(1)));
    if first == last { first } else { 0.0 }
}

fn values(graph: &Graph, stage: Range<usize>, setup: &Setup, rules: &Rules, storage: &Storage) -> Values {
    let mut values = Values::default();
    let mut block = (None, 0.0);
    let alone = setup.parallel.pipeline <= 1;
    for operator in &graph.operators[stage] {
        let divided = storage.divided(operator, rules);
        let mut parameters = operator.parameters as f64 / divided;
        let experts = experts(operator);
        if experts > 1.0 {
            let each = f64::from(setup.parallel.expert_parts()).min(experts);
            values.elsewhere += parameters * (1.0 - 1.0 / each);
            parameters /= each;
        }
        match operator.kind {
            OpKind::Linear { inner, columns, .. } => {
                let weight = inner as f64 * columns as f64 / divided;
                values.products += parameters.max(weight);
                values.adapters += (inner + columns) as f64 / divided;
                // A shared table is on its own stage once more.
                if !alone {
                    parameters = parameters.max(weight);
                }
            }
            OpKind::Convolution { .. } | OpKind::Recurrent { .. } => values.products += parameters,
            _ => {}
        }
        values.largest = values.largest.max(parameters);
        values.parameters += parameters;
        values.buffers += operator.buffers as f64;
        if operator.block.is_none() || operator.block != block.0 {
            block = (operator.block, 0.0);
        }
        block.1 += parameters;
        values.unit = values.unit.max(block.1);
        match operator.block {
            Some(_) => values.block = values.block.max(block.1),
            None => values.around += parameters,
        }
    }
    values
}

/// Copies of an operator's weight, of which each token uses one: experts.
fn experts(operator: &Operator) -> f64 {
    match operator.kind {
        OpKind::Linear { inner, columns, .. } => (operator.parameters / (inner * columns).max(1)).max(1) as f64,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::a100;
    use crate::estimate::{Device, Layout, OptimizerKind, ParallelDegrees};
    use crate::model::families::Gpt;

    #[test]
    fn a_pipeline_is_judged_by_the_stage_that_must_have_the_most() {
        let setup = Setup {
            device: Device { gpu: a100(), nodes: 1, gpus_per_node: 4, network: None },
            precision: NumericFormat::Bf16,
            layout: Layout::ChannelsFirst,
            micro_batch: 1,
            accumulate: 8,
            parallel: ParallelDegrees {
                data: 1,
                tensor: 1,
                pipeline: 4,
                zero: Zero::None,
                ..ParallelDegrees::default()
            },
            recompute: ActivationCheckpointing::None,
            optimizer: OptimizerKind::Adam,
            flash_attention: false,
            compiled: false,
        };
        // The last stage holds a table of words, the second keeps three micro-batches.
        let model = ModelDescription::Graph(Gpt::megatron(2048, 7, 16, 20_000, 32).graph());
        let profile = Profile::new(&model, &setup, &Savings::default(), &MemoryCoefficients::default());
        let mut apart = 0;
        for micro_batch in 1..400 {
            let setup = Setup { micro_batch, ..setup.clone() };
            let each: Vec<MemoryEstimate> = profile.stages.iter().map(|stage| profile.stage(stage, &setup)).collect();
            let most = |of: fn(&MemoryEstimate) -> f64| each.iter().map(of).fold(0.0, f64::max);
            let said = profile.memory(&setup);
            assert_eq!(said.required, most(|memory| memory.required), "{micro_batch}");
            apart += usize::from(said.middle < most(|memory| memory.middle));
        }
        assert!(apart > 0, "one stage shows and must have the most, whatever the batch");
    }
}
