//! A network digested for estimates: operators that cost the same are one [`OpGroup`] with a count.
//!
//! A transformer of a thousand operators has some twenty kinds of them, so one estimate takes microseconds. Digest once,
//! estimate for every machine.

mod group;

use std::collections::BTreeSet;

pub use self::group::OpGroup;
use super::fitted::band::ProgramDetails;
use super::machine::ProgramStyle;
use super::savings::{Adapters, NF4};
use crate::model::graph::{Graph, Norm, OpKind, Operator, WeightSplit};
use crate::model::{ModelDescription, Summary};

/// A network, ready for estimates.
#[derive(Debug, Clone, PartialEq)]
pub struct OpProfile {
    pub form: OpBreakdown,
    /// Trained values.
    pub parameters: f64,
    /// All weights, of which a rank gathers what it does not hold when they are sharded: those that stay as they are too,
    /// in 4 bits as so many fewer.
    pub gathered: f64,
    /// Of them, values that stay gathered from the forward to the end of the backward pass, rather than being gathered for
    /// each: in the format of products, and in fp32 whatever that is.
    pub gathered_once: [f64; 2],
    /// Trained values of one repeated block, and how many there are; what is gathered at once when weights are sharded.
    pub block: f64,
    pub blocks: u32,
    /// Values that leave a block, of one sample: what a pipeline passes on.
    pub boundary: f64,
    /// Weights and gradients are in half precision, with fp32 copies of the weights beside them, as Megatron, apex's `O2`
    /// and FSDP's pure mixed precision have it, rather than cast operator by operator.
    pub half: bool,
    /// Megatron's kernels run: one scales, masks and normalises scores of attention, one adds a bias, leaves values out and
    /// adds the residual (Narayanan et al. 2021, section 4.2).
    pub fused_kernels: bool,
    /// Flash attention is of 2022 (its first version, or Triton's kernel of it) rather than what PyTorch has since 2.2.
    pub first_flash: bool,
    /// Gradients are exchanged when all of them are there, as DeepSpeed without ZeRO and Megatron do it: nothing hides it.
    pub exchanged_late: bool,
    /// Blocks are computed again to their end, as Megatron, DeepSpeed and PyTorch before 2.1 do it.
    pub recomputed_whole: bool,
    /// Stages of a pipeline are equal in arithmetic, that of the scores included, rather than in blocks.
    pub balanced_stages: bool,
    /// Each exchange inside layers is started by Python code of the program's own, as nanotron does it.
    pub exchanged_by_python: bool,
    /// Sharded weights are gathered as the built-in trainer does it
    /// ([`Savings::trainer_gathers`](super::savings::Savings)).
    pub trainer_gathers: bool,
    /// Over how many ranks optimizer state is sharded, where that is not all replicas.
    pub sharded_over: Option<u32>,
    /// How its program runs.
    pub style: ProgramStyle,
}

/// What is known of its operators.
#[derive(Debug, Clone, PartialEq)]
pub enum OpBreakdown {
    Groups(Vec<OpGroup>),
    Totals(Summary),
}

/// Where operators stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockPosition {
    Before,
    Block,
    After,
}

impl OpProfile {
    /// Returns the operators of one sample of a network, in groups that cost the same, with all weights trained in 32 bits.
    pub fn of(model: &ModelDescription) -> OpProfile {
        match model {
            ModelDescription::Graph(graph) => group_ops(graph),
            ModelDescription::Summary(summary) => OpProfile {
                parameters: summary.parameters,
                gathered: summary.parameters,
                gathered_once: [0.0; 2],
                block: summary.parameters / 16.0,
                blocks: 16,
                boundary: 0.0,
                half: false,
                fused_kernels: false,
                first_flash: false,
                exchanged_late: false,
                recomputed_whole: false,
                balanced_stages: false,
                exchanged_by_python: false,
                trainer_gathers: false,
                sharded_over: None,
                style: ProgramStyle::default(),
                form: OpBreakdown::Totals(summary.clone()),
            },
        }
    }
}

impl OpProfile {
    /// Whether what its program does is stated: of adapters neither jobs nor tables say which kernels and formats they have.
    pub fn details(&self) -> ProgramDetails {
        let has_adapters = match &self.form {
            OpBreakdown::Groups(groups) => groups.iter().any(|group| group.adapters.is_some()),
            OpBreakdown::Totals(_) => false,
        };
        match has_adapters {
            true => ProgramDetails::Unstated,
            false => ProgramDetails::Stated,
        }
    }

    /// The same network with weights that stay as they are, and adapters beside the products of its blocks, which are
    /// trained (Hu et al. 2021).
    pub fn frozen(mut self, adapters: Adapters) -> OpProfile {
        let (mut products, mut trained) = (0.0, 0.0);
        if let OpBreakdown::Groups(groups) = &mut self.form {
            for group in groups {
                group.frozen = group.kind.is_weighted();
                if let (BlockPosition::Block, OpKind::Linear { inner, columns, .. }) = (group.place, &group.kind) {
                    group.adapters = Some(adapters);
                    products += group.count * (inner * columns) as f64;
                    trained += group.count * (adapters.rank * (inner + columns)) as f64;
                }
            }
        }
        if adapters.quantized {
            self.gathered -= products * (1.0 - NF4 / 2.0);
        }
        self.gathered += trained;
        self.parameters = trained;
        self
    }

    /// The same network with weights gathered as the built-in trainer does it: those around the blocks stay during both
    /// passes, and in fp32 if most of them are not weights of products, as embeddings are not.
    #[must_use]
    pub fn gathered_by_trainer(mut self) -> OpProfile {
        let (mut products, mut all) = (0.0, 0.0);
        if let OpBreakdown::Groups(groups) = &self.form {
            for group in groups.iter().filter(|group| group.place != BlockPosition::Block) {
                let values = group.count * group.parameters;
                all += values;
                if let OpKind::Linear { .. } | OpKind::Convolution { .. } = group.kind {
                    products += values;
                }
            }
        }
        self.gathered_once = if 2.0 * products > all { [all, 0.0] } else { [0.0, all] };
        self.trainer_gathers = true;
        self
    }
}

fn group_ops(graph: &Graph) -> OpProfile {
    let mut walk = OpWalk::of(graph);
    let mut groups: Vec<OpGroup> = Vec::new();
    for (operator, stopped) in graph.operators.iter().zip(stops(graph)) {
        let (divided, exchanged) = walk.division(operator);
        let fp32_fraction = walk.fp32_fraction(operator);
        let (first, place) = walk.place(operator);
        let group = OpGroup {
            kind: operator.kind.clone(),
            count: 1.0,
            saved_by_selective_checkpointing: f64::from(u8::from(walk.is_expensive(operator))),
            ends: f64::from(u8::from(stopped)),
            parameters: operator.parameters as f64,
            place,
            divided,
            first,
            frozen: operator.parameters == 0 && operator.buffers > 0,
            adapters: None,
            fp32_fraction,
            exchanged,
        };
        match groups.iter_mut().rev().find(|known| known.same(&group)) {
            Some(known) => {
                known.count += 1.0;
                known.saved_by_selective_checkpointing += group.saved_by_selective_checkpointing;
                known.ends += group.ends;
            }
            None => groups.push(group),
        }
    }
    let parameters = groups.iter().map(|group| group.count * group.parameters).sum();
    OpProfile {
        form: OpBreakdown::Groups(groups),
        parameters,
        gathered: parameters,
        gathered_once: [0.0; 2],
        block: walk.block,
        blocks: graph.blocks(),
        boundary: walk.boundary,
        half: false,
        fused_kernels: false,
        first_flash: false,
        exchanged_late: false,
        recomputed_whole: false,
        balanced_stages: false,
        exchanged_by_python: false,
        trainer_gathers: false,
        sharded_over: None,
        style: ProgramStyle::default(),
    }
}

/// What is known of tensors while the operators of a graph are walked in their order.
struct OpWalk<'a> {
    graph: &'a Graph,
    /// Tensors of which each tensor-parallel rank has a part.
    divided: Vec<bool>,
    /// Tensors that an operator wrote.
    produced: Vec<bool>,
    /// Tensors in 32 bits under autocast.
    wide: Vec<bool>,
    /// Inputs whose gradients are summed over tensor-parallel ranks, once for all that read them.
    shared_inputs: BTreeSet<u32>,
    /// Parameters of the first block, and values that leave a block.
    block: f64,
    boundary: f64,
    seen_block: bool,
    /// The block at work, and its products so far.
    products: (Option<u32>, u32),
}

impl<'a> OpWalk<'a> {
    fn of(graph: &'a Graph) -> OpWalk<'a> {
        let count = graph.tensors.len();
        OpWalk {
            graph,
            divided: vec![false; count],
            produced: vec![false; count],
            wide: vec![true; count],
            shared_inputs: BTreeSet::new(),
            block: 0.0,
            boundary: 0.0,
            seen_block: false,
            products: (None, 0),
        }
    }

    fn elements(&self, tensor: u32) -> f64 {
        self.graph.tensors[tensor as usize] as f64
    }

    /// Whether tensor-parallel ranks share an operator, and values that they exchange forward and backward.
    fn division(&mut self, operator: &Operator) -> (bool, [f64; 2]) {
        let output = operator.output.0 as usize;
        let inputs_divided = operator.inputs.iter().any(|input| self.divided[input.0 as usize]);
        let mut exchanged = [0.0, 0.0];
        let is_divided = match operator.kind {
            OpKind::Linear { split: WeightSplit::Columns, .. } => {
                if let Some(input) = operator.inputs.first()
                    && self.shared_inputs.insert(input.0)
                {
                    exchanged[1] = self.elements(input.0);
                }
                self.divided[output] = true;
                true
            }
            OpKind::Linear { split: WeightSplit::Rows, .. } | OpKind::Embedding { split: WeightSplit::Rows, .. } => {
                exchanged[0] = self.elements(operator.output.0);
                true
            }
            OpKind::Linear { split: WeightSplit::Whole, .. } => false,
            OpKind::Embedding { split: WeightSplit::Columns, .. } => {
                self.divided[output] = true;
                true
            }
            OpKind::Embedding { split: WeightSplit::Whole, .. } => false,
            OpKind::Convolution { .. }
            | OpKind::Attention { .. }
            | OpKind::Product { .. }
            | OpKind::Norm { .. }
            | OpKind::Activation { .. }
            | OpKind::Elementwise { .. }
            | OpKind::Recurrent { .. }
            | OpKind::Softmax { .. }
            | OpKind::Dropout { .. }
            | OpKind::Pool { .. }
            | OpKind::Resize { .. }
            | OpKind::Copy { .. }
            | OpKind::View
            | OpKind::Loss { .. } => {
                self.divided[output] = inputs_divided;
                inputs_divided
            }
        };
        (is_divided, exchanged)
    }

    /// The share of an operator's tensors that are in 32 bits under autocast.
    fn fp32_fraction(&mut self, operator: &Operator) -> f64 {
        let output = operator.output.0 as usize;
        let wide_inputs = operator.inputs.iter().filter(|input| self.wide[input.0 as usize]).count();
        self.wide[output] = writes_wide(&operator.kind).unwrap_or(wide_inputs > 0);
        let wide_tensors = wide_inputs + usize::from(self.wide[output]);
        wide_tensors as f64 / (operator.inputs.len() + 1) as f64
    }

    /// Whether an operator reads no other's output, and where it stands.
    fn place(&mut self, operator: &Operator) -> (bool, BlockPosition) {
        self.produced[operator.output.0 as usize] = true;
        let first = !operator.inputs.iter().any(|input| self.produced[input.0 as usize]);
        let place = match (operator.block, self.seen_block) {
            (Some(index), _) => {
                self.seen_block = true;
                if index == 0 {
                    self.block += operator.parameters as f64;
                }
                self.boundary = self.elements(operator.output.0);
                BlockPosition::Block
            }
            (None, false) => BlockPosition::Before,
            (None, true) => BlockPosition::After,
        };
        (first, place)
    }

    /// Whether selective checkpointing saves what an operator writes: attention, and every second product of a block.
    fn is_expensive(&mut self, operator: &Operator) -> bool {
        if self.products.0 != operator.block {
            self.products = (operator.block, 0);
        }
        match operator.kind {
            OpKind::Attention { .. } => true,
            OpKind::Linear { .. } | OpKind::Convolution { .. } => {
                self.products.1 += 1;
                self.products.1 % 2 == 1
            }
            _ => false,
        }
    }
}

/// Whether an operator writes 32 bits under autocast (PyTorch's lists of operators for `torch.autocast`); none where it
/// writes what it reads.
fn writes_wide(kind: &OpKind) -> Option<bool> {
    match kind {
        OpKind::Convolution { .. }
        | OpKind::Linear { .. }
        | OpKind::Attention { .. }
        | OpKind::Product { .. }
        | OpKind::Recurrent { .. } => Some(false),
        OpKind::Norm { norm: Norm::Layer | Norm::Rms | Norm::Group, .. }
        | OpKind::Softmax { .. }
        | OpKind::Embedding { .. }
        | OpKind::Loss { .. } => Some(true),
        OpKind::Norm { norm: Norm::Batch, .. }
        | OpKind::Activation { .. }
        | OpKind::Elementwise { .. }
        | OpKind::Dropout { .. }
        | OpKind::Pool { .. }
        | OpKind::Resize { .. }
        | OpKind::Copy { .. }
        | OpKind::View => None,
    }
}

/// From which operator on recomputing its block may stop: behind the last that keeps something of its output, or at the
/// last that keeps what it reads.
fn stops(graph: &Graph) -> Vec<bool> {
    let mut stopped = vec![false; graph.operators.len()];
    let mut within = (None, false);
    for (index, operator) in graph.operators.iter().enumerate().rev() {
        if operator.block != within.0 {
            within = (operator.block, true);
        }
        if operator.block.is_none() || !within.1 {
            continue;
        }
        let (keeps_input, keeps_output) = match operator.kind {
            OpKind::Elementwise { product: false, .. } | OpKind::View | OpKind::Copy { .. } | OpKind::Resize { .. } => {
                (false, false)
            }
            OpKind::Linear { .. }
            | OpKind::Convolution { .. }
            | OpKind::Product { .. }
            | OpKind::Activation { .. }
            | OpKind::Embedding { .. }
            | OpKind::Elementwise { product: true, .. } => (true, false),
            OpKind::Attention { .. }
            | OpKind::Norm { .. }
            | OpKind::Recurrent { .. }
            | OpKind::Softmax { .. }
            | OpKind::Dropout { .. }
            | OpKind::Pool { .. }
            | OpKind::Loss { .. } => (true, true),
        };
        stopped[index] = !keeps_output;
        within.1 = !(keeps_input || keeps_output);
    }
    stopped
}
