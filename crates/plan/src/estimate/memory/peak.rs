//! When memory is taken and let go: a walk through the forward and the backward pass of one stage.
//!
//! The walk counts bytes a sample. A recomputed block keeps what enters it and takes the rest again when the backward
//! pass comes to it. Gradients of weights are no part of it: they are counted with the states, as if they stayed from
//! step to step, which they do with accumulation, DDP's buckets and pipelines.

use std::ops::Range;

use super::saved_tensors::{Rules, SavedTensors, Storage};
use crate::estimate::ActivationCheckpointing;
use crate::model::{Graph, OpKind};

/// What one stage's activations take.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ActivationPeak {
    /// Bytes a sample that are saved from the forward to the backward pass.
    pub saved: f64,
    /// Bytes a sample at the fullest moment.
    pub fullest: f64,
    /// The same while the backward pass goes through the stage's first block, when all gradients of weights are there.
    pub at_end: f64,
}

/// What one operator holds: from the forward pass on, and once the backward pass needs it.
#[derive(Debug, Clone, Default)]
struct OperatorMemory {
    held: Vec<u32>,
    own_held: f64,
    needed: SavedTensors,
    /// Before this operator, the backward pass computes again what these operators need.
    recomputed: Range<usize>,
}

struct Live<'a> {
    storage: &'a Storage,
    there: Vec<bool>,
    bytes: f64,
    fullest: f64,
}

impl Live<'_> {
    fn take(&mut self, root: u32) {
        if !std::mem::replace(&mut self.there[root as usize], true) {
            self.bytes += self.storage.bytes[root as usize];
        }
    }

    /// Notes a moment at which so much more is there for an instant.
    fn moment(&mut self, more: f64) {
        self.fullest = self.fullest.max(self.bytes + more);
    }

    fn release(&mut self, root: u32) {
        if std::mem::take(&mut self.there[root as usize]) {
            self.bytes -= self.storage.bytes[root as usize];
        }
    }
}

/// Walks over the operators `stage` of `graph`, forward and backward.
pub(super) fn activation_peak(
    graph: &Graph,
    stage: Range<usize>,
    storage: &Storage,
    rules: &Rules,
    recompute: ActivationCheckpointing,
) -> ActivationPeak {
    let memory = memory_by_operator(graph, stage.clone(), storage, rules, recompute);
    let lifetimes = Lifetimes::of(graph, stage.clone(), storage, &memory);
    let live = Live { storage, there: vec![false; graph.tensors.len()], bytes: 0.0, fullest: 0.0 };
    let first = first_block(graph, &stage);
    let (end, gradient) = (stage.end, vec![false; graph.tensors.len()]);
    let mut walk = Walk { graph, stage, memory: &memory, lifetimes: &lifetimes, live, gradient };
    walk.forward();
    let saved = walk.live.bytes;
    walk.backward(first.end..end);
    let at_end = walk.backward(first);
    ActivationPeak { saved, fullest: walk.live.fullest, at_end }
}

/// When each memory is read last and needed first, and whether it is saved for the backward pass.
struct Lifetimes {
    last_read: Vec<usize>,
    held: Vec<bool>,
    first_needed: Vec<usize>,
}

impl Lifetimes {
    fn of(graph: &Graph, stage: Range<usize>, storage: &Storage, memory: &[OperatorMemory]) -> Lifetimes {
        let count = graph.tensors.len();
        let (mut last_read, mut held, mut first_needed) = (vec![0; count], vec![false; count], vec![usize::MAX; count]);
        for index in stage.clone() {
            let operator = &memory[index - stage.start];
            for root in roots(graph, storage, index) {
                last_read[root as usize] = index;
            }
            for root in operator.held.iter().chain(&operator.needed.roots) {
                let first = &mut first_needed[*root as usize];
                *first = index.min(*first);
            }
            for root in &operator.held {
                held[*root as usize] = true;
            }
        }
        Lifetimes { last_read, held, first_needed }
    }
}

/// A walk over the operators of a stage.
struct Walk<'a> {
    graph: &'a Graph,
    stage: Range<usize>,
    memory: &'a [OperatorMemory],
    lifetimes: &'a Lifetimes,
    live: Live<'a>,
    /// Whose gradients are there.
    gradient: Vec<bool>,
}

/// The operators up to the end of a stage's first block; all where it has no blocks.
fn first_block(graph: &Graph, stage: &Range<usize>) -> Range<usize> {
    let blocks = || stage.clone().map(|index| graph.operators[index].block);
    let first = blocks().find(Option::is_some).flatten();
    let end =
        blocks().rposition(|block| block.is_some() && block == first).map_or(stage.end, |at| stage.start + at + 1);
    stage.start..end
}

impl Walk<'_> {
    fn forward(&mut self) {
        let (graph, storage) = (self.graph, self.live.storage);
        for index in self.stage.clone() {
            for root in roots(graph, storage, index) {
                self.live.take(root);
            }
            self.live.bytes += self.memory[index - self.stage.start].own_held;
            self.live.moment(0.0);
            for root in roots(graph, storage, index) {
                if self.lifetimes.last_read[root as usize] == index && !self.lifetimes.held[root as usize] {
                    self.live.release(root);
                }
            }
        }
    }

    /// Goes back through `operators`, and returns the fullest moment on the way.
    fn backward(&mut self, operators: Range<usize>) -> f64 {
        let (graph, storage) = (self.graph, self.live.storage);
        let before = std::mem::take(&mut self.live.fullest);
        for index in operators.rev() {
            let operator = &self.memory[index - self.stage.start];
            for index in operator.recomputed.clone() {
                let recomputed = &self.memory[index - self.stage.start];
                recomputed.needed.roots.iter().for_each(|root| self.live.take(*root));
                self.live.bytes += recomputed.needed.own - recomputed.own_held;
            }
            for root in roots(graph, storage, index) {
                let has_gradient = storage.writer[root as usize].is_some();
                if has_gradient && !std::mem::replace(&mut self.gradient[root as usize], true) {
                    self.live.bytes += storage.bytes[root as usize];
                }
            }
            self.live.moment(operator.needed.transient);
            let output = graph.operators[index].output.0;
            if storage.root[output as usize] == output && std::mem::take(&mut self.gradient[output as usize]) {
                self.live.bytes -= storage.bytes[output as usize];
            }
            for root in operator.held.iter().chain(&operator.needed.roots) {
                if self.lifetimes.first_needed[*root as usize] == index {
                    self.live.release(*root);
                }
            }
            self.live.bytes -= operator.needed.own;
        }
        let fullest = self.live.fullest;
        self.live.fullest = before.max(fullest);
        fullest
    }
}

/// The memory that an operator reads and writes.
fn roots<'a>(graph: &'a Graph, storage: &'a Storage, index: usize) -> impl Iterator<Item = u32> + 'a {
    let operator = &graph.operators[index];
    operator.inputs.iter().chain([&operator.output]).map(|tensor| storage.root[tensor.0 as usize])
}

/// What each operator of a stage holds, with what is recomputed.
fn memory_by_operator(
    graph: &Graph,
    stage: Range<usize>,
    storage: &Storage,
    rules: &Rules,
    recompute: ActivationCheckpointing,
) -> Vec<OperatorMemory> {
    let mut memory: Vec<OperatorMemory> = Vec::with_capacity(stage.len());
    for index in stage.clone() {
        let needed = storage.saved_tensors(graph, &graph.operators[index], rules);
        memory.push(OperatorMemory { held: needed.roots.clone(), own_held: needed.own, needed, recomputed: 0..0 });
    }
    let blockwise = match recompute {
        ActivationCheckpointing::None => return memory,
        ActivationCheckpointing::Full | ActivationCheckpointing::Every(_) => true,
        ActivationCheckpointing::Selective => rules.flash,
    };
    if !blockwise {
        // Scores are computed again, each attention by itself.
        for index in stage.clone() {
            if let OpKind::Attention { .. } = graph.operators[index].kind {
                let attention = &mut memory[index - stage.start];
                attention.own_held = 0.0;
                attention.recomputed = index..index + 1;
            }
        }
        return memory;
    }
    let mut index = stage.start;
    while index < stage.end {
        let block = graph.operators[index].block;
        let length = graph.operators[index..stage.end].iter().take_while(|operator| operator.block == block).count();
        let is_recomputed = |block: u32| match recompute {
            ActivationCheckpointing::Every(blocks) => block.is_multiple_of(blocks.max(1)),
            ActivationCheckpointing::None | ActivationCheckpointing::Selective | ActivationCheckpointing::Full => true,
        };
        if block.is_some_and(is_recomputed) {
            recompute_block(graph, index..index + length, &mut memory, stage.start, storage, recompute);
        }
        index += length;
    }
    memory
}

/// Holds only what enters the block, and what the policy finds too expensive to compute again: attention, and every second
/// product of matrices, the first, third and so on (torchtitan's `selective op`).
fn recompute_block(
    graph: &Graph,
    block: Range<usize>,
    memory: &mut [OperatorMemory],
    start: usize,
    storage: &Storage,
    recompute: ActivationCheckpointing,
) {
    let mut products = 0;
    for index in block.clone() {
        let operator = &graph.operators[index];
        let enters = |root: &u32| storage.writer[*root as usize].is_none_or(|writer| (writer as usize) < block.start);
        let mut held: Vec<u32> = Vec::new();
        for tensor in &operator.inputs {
            held.extend(Some(storage.root[tensor.0 as usize]).filter(enters));
        }
        let is_expensive = match operator.kind {
            OpKind::Attention { .. } => true,
            OpKind::Linear { .. } | OpKind::Convolution { .. } => {
                products += 1;
                products % 2 == 1
            }
            _ => false,
        };
        if is_expensive && recompute == ActivationCheckpointing::Selective {
            held.push(storage.root[operator.output.0 as usize]);
        }
        let holding = &mut memory[index - start];
        holding.held = held;
        holding.own_held = 0.0;
    }
    let last = block.end - 1 - start;
    memory[last].recomputed = block;
}
