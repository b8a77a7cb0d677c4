//! What each operator saves for the backward pass, and in how many bytes.
//!
//! Rules of PyTorch's autograd: a convolution or linear layer saves its input, a normalisation its input and two
//! statistics a group, ReLU its output, GELU and SiLU their input, softmax its output, dropout a mask of one byte, a
//! maximum pool its indices. Tensors are told apart by identity, so that what two operators save is there once.
//! Under autocast, products read copies in half precision, one for each reader; normalisations, softmax and the loss
//! compute in fp32 (PyTorch, "CUDA Ops that can autocast to float32").

mod blocks;
mod kinds;
mod written;

use crate::estimate::savings::Savings;
use crate::estimate::{NumericFormat, Setup, Zero};
use crate::model::{Function, Graph, Norm, OpKind, Operator, TensorId, WeightSplit};
use kinds::{is_cheap, reuses};

/// The tensors of a graph as one GPU holds them.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    /// The tensor whose memory each tensor uses: itself, or what it views or overwrites.
    pub root: Vec<u32>,
    /// Bytes a sample of each root.
    pub bytes: Vec<f64>,
    width: Vec<f64>,
    /// How many ranks share each tensor.
    shared: Vec<f64>,
    /// The operator that writes each tensor; none where it comes from outside.
    pub writer: Vec<Option<u32>>,
}

/// What one operator saves: memory that others may save too, and memory of its own.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct SavedTensors {
    pub roots: Vec<u32>,
    pub own: f64,
    /// What is needed only while it runs backwards, in bytes a sample.
    pub transient: f64,
}

/// How operators compute, as far as what they save depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    precision: NumericFormat,
    pub flash: bool,
    compiled: bool,
    tensor: f64,
    written_out: bool,
    /// Everything is cast once, with the gathered weights, rather than operator by operator.
    cast_once: bool,
    /// What is not divided by columns or rows is divided by positions (Korthikanti et al. 2022, section 4.2.2).
    sequence: bool,
    /// What was gathered for a product is gathered again in the backward pass, as Megatron does it.
    gathers_again: bool,
    /// The loss is one kernel, which overwrites the scores by their gradients (Liger Kernel, Hsu et al. 2024).
    fused_loss: bool,
    /// Normalisations without a mean are one kernel.
    fused_norms: bool,
    /// How much of the scores of tokens is there at once.
    scores_at_once: f64,
    /// Scores in 16 bits are there until the step ends.
    holds_scores: bool,
}

/// Parts in which a chunked loss goes over the tokens (torchtune's `num_output_chunks`).
const LOSS_CHUNKS: f64 = 8.0;

impl Rules {
    /// Those of one rank in 32-bit floats; `fused` attention keeps no scores.
    pub fn plain(fused: bool) -> Rules {
        let precision = NumericFormat::Fp32;
        Rules {
            precision,
            flash: fused,
            compiled: false,
            tensor: 1.0,
            written_out: false,
            cast_once: false,
            sequence: false,
            gathers_again: false,
            fused_loss: false,
            fused_norms: false,
            holds_scores: false,
            scores_at_once: 1.0,
        }
    }

    /// Returns the rules of the program that `setup` and `savings` describe.
    pub fn new(setup: &Setup, savings: &Savings) -> Rules {
        Rules {
            precision: setup.precision,
            flash: setup.flash_attention,
            compiled: setup.compiled,
            tensor: f64::from(setup.parallel.tensor.max(1)),
            written_out: savings.written_out,
            // Our ranks on processors cast operator by operator however layers are divided.
            cast_once: !setup.device.is_processor()
                && (savings.half_model || setup.parallel.zero == Zero::Parameters || setup.parallel.tensor > 1),
            sequence: setup.parallel.sequence && setup.parallel.tensor > 1,
            gathers_again: savings.gathers_again,
            fused_loss: savings.fused_loss,
            fused_norms: savings.fused_norms,
            holds_scores: savings.holds_narrow_scores(setup),
            scores_at_once: if savings.chunked_loss { 1.0 / LOSS_CHUNKS } else { 1.0 },
        }
    }

    fn casts(&self) -> bool {
        self.precision.is_autocast() && !self.cast_once
    }

    /// Bytes of a value of what products write.
    fn narrow(&self) -> f64 {
        self.precision.compute_bytes()
    }

    /// Bytes of a value where autocast insists on fp32.
    fn wide(&self) -> f64 {
        if self.casts() { 4.0 } else { self.narrow() }
    }
}

impl Storage {
    /// Works out, for each tensor of one sample, which memory it lies in, its bytes and how many ranks share it.
    pub fn new(graph: &Graph, rules: &Rules) -> Storage {
        let count = graph.tensors.len();
        let mut storage = Storage {
            root: (0..count as u32).collect(),
            bytes: vec![0.0; count],
            width: vec![rules.wide(); count],
            shared: vec![1.0; count],
            writer: vec![None; count],
        };
        for (index, operator) in graph.operators.iter().enumerate() {
            let output = operator.output.0 as usize;
            storage.writer[output] = Some(index as u32);
            storage.width[output] = storage.width_of(operator, rules);
            storage.shared[output] = storage.shared_by(operator, rules);
            if let (true, Some(first)) = (reuses(&operator.kind), operator.inputs.first()) {
                storage.root[output] = storage.root[first.0 as usize];
            }
        }
        if rules.sequence && !rules.gathers_again {
            // A product by columns reads all positions, and keeps them as it read them.
            for operator in &graph.operators {
                if let (OpKind::Linear { split: WeightSplit::Columns, .. }, Some(input)) =
                    (&operator.kind, operator.inputs.first())
                {
                    storage.shared[input.0 as usize] = 1.0;
                }
            }
        }
        for operator in &graph.operators {
            if let (OpKind::Loss { .. }, Some(scores)) = (&operator.kind, operator.inputs.first()) {
                storage.width[scores.0 as usize] *= rules.scores_at_once;
            }
        }
        for tensor in 0..count {
            let root = storage.root[tensor] as usize;
            let bytes = graph.tensors[tensor] as f64 * storage.width[tensor] / storage.shared[tensor];
            storage.bytes[root] = storage.bytes[root].max(bytes);
        }
        storage
    }

    fn input(&self, operator: &Operator, of: &[f64]) -> f64 {
        operator.inputs.iter().map(|tensor| of[tensor.0 as usize]).fold(0.0, f64::max)
    }

    fn width_of(&self, operator: &Operator, rules: &Rules) -> f64 {
        match &operator.kind {
            OpKind::Convolution { .. }
            | OpKind::Linear { .. }
            | OpKind::Attention { .. }
            | OpKind::Product { .. }
            | OpKind::Recurrent { .. } => rules.narrow(),
            OpKind::Activation { function: Function::GeluNew, .. } if !rules.compiled => rules.wide(),
            OpKind::Norm { norm: Norm::Batch, .. }
            | OpKind::Activation { .. }
            | OpKind::Elementwise { .. }
            | OpKind::Dropout { .. }
            | OpKind::Pool { .. }
            | OpKind::Resize { .. }
            | OpKind::Copy { .. }
            | OpKind::View => match operator.inputs.is_empty() {
                true => rules.wide(),
                false => self.input(operator, &self.width),
            },
            OpKind::Norm { norm: Norm::Layer | Norm::Rms | Norm::Group, .. }
            | OpKind::Softmax { .. }
            | OpKind::Embedding { .. } => rules.wide(),
            OpKind::Loss { .. } => 4.0,
        }
    }

    /// A product by columns divides what it writes, a product by rows joins it again, and what lies between stays
    /// divided.
    fn shared_by(&self, operator: &Operator, rules: &Rules) -> f64 {
        match &operator.kind {
            OpKind::Linear { split: WeightSplit::Columns, .. } => rules.tensor,
            OpKind::Linear { split: WeightSplit::Rows | WeightSplit::Whole, .. }
            | OpKind::Embedding { .. }
            | OpKind::Convolution { .. }
            | OpKind::Recurrent { .. } => {
                if rules.sequence {
                    rules.tensor
                } else {
                    1.0
                }
            }
            OpKind::Attention { .. }
            | OpKind::Product { .. }
            | OpKind::Norm { .. }
            | OpKind::Activation { .. }
            | OpKind::Elementwise { .. }
            | OpKind::Softmax { .. }
            | OpKind::Dropout { .. }
            | OpKind::Pool { .. }
            | OpKind::Resize { .. }
            | OpKind::Copy { .. }
            | OpKind::View
            | OpKind::Loss { .. } => self.input(operator, &self.shared).max(1.0),
        }
    }

    /// Returns how many ranks share an operator's weights.
    pub fn divided(&self, operator: &Operator, rules: &Rules) -> f64 {
        match operator.kind {
            OpKind::Linear { split, .. } | OpKind::Embedding { split, .. } => match split {
                WeightSplit::Whole => 1.0,
                WeightSplit::Columns | WeightSplit::Rows => rules.tensor,
            },
            _ => 1.0,
        }
    }

    /// What `operator` saves of one sample.
    pub fn saved_tensors(&self, graph: &Graph, operator: &Operator, rules: &Rules) -> SavedTensors {
        let mut saved = SavedTensors::default();
        let share = self.shared[operator.output.0 as usize].max(self.input(operator, &self.shared));
        let written = graph.tensors[operator.output.0 as usize] as f64;
        match &operator.kind {
            OpKind::Convolution { .. } | OpKind::Linear { .. } | OpKind::Product { .. } | OpKind::Recurrent { .. } => {
                self.products(graph, operator, rules, &mut saved);
            }
            OpKind::Attention { .. } => self.attention(graph, operator, rules, share, &mut saved),
            OpKind::Norm { norm, groups, .. } => {
                for input in &operator.inputs[..operator.inputs.len().min(1)] {
                    self.norm(graph, *input, *norm, rules, &mut saved);
                }
                saved.own += 8.0 * *groups as f64;
            }
            OpKind::Activation { function, .. } => self.activation(graph, operator, *function, rules, &mut saved),
            OpKind::Elementwise { product, .. } => {
                // A factor may be a weight of its own.
                if *product && (operator.inputs.len() > 1 || operator.parameters > 0) {
                    for input in &operator.inputs {
                        self.save(graph, *input, rules, &mut saved);
                    }
                }
            }
            OpKind::Softmax { .. } => saved.roots.push(self.root_of(operator.output)),
            OpKind::Dropout { .. } => {
                // A compiled program computes the mask again from its seed.
                if !rules.compiled {
                    saved.own += written / share;
                }
            }
            OpKind::Embedding { rows, .. } => saved.own += 8.0 * *rows as f64,
            OpKind::Pool { maximum, .. } => {
                if *maximum {
                    saved.own += 8.0 * written;
                }
                for input in &operator.inputs {
                    self.save(graph, *input, rules, &mut saved);
                }
            }
            OpKind::Resize { .. } | OpKind::Copy { .. } | OpKind::View => {}
            OpKind::Loss { rows, classes } => {
                // The logarithms of the probabilities in fp32. A compiled program computes them again from the scores.
                let scores = 4.0 * (rows * classes) as f64 / share * rules.scores_at_once;
                saved.transient += if rules.holds_scores { scores / 2.0 } else { 0.0 };
                if rules.fused_loss {
                    saved.transient += scores;
                } else if !rules.compiled {
                    saved.own += scores;
                    // Gradients of scores in 16 bits are in fp32 behind the softmax.
                    if rules.narrow() < 4.0 {
                        saved.transient += scores;
                    }
                }
            }
        }
        saved
    }

    /// What products with weights or of activations save: their inputs, and a recurrent layer each step's state.
    fn products(&self, graph: &Graph, operator: &Operator, rules: &Rules, saved: &mut SavedTensors) {
        match &operator.kind {
            OpKind::Convolution { .. } | OpKind::Linear { .. } => {
                if let Some(input) = operator.inputs.first() {
                    self.save_for_product(graph, *input, rules, saved);
                    saved.transient += self.gathered(graph, operator, *input, rules);
                }
            }
            OpKind::Product { .. } => {
                for input in &operator.inputs {
                    self.save_for_product(graph, *input, rules, saved);
                }
            }
            OpKind::Recurrent { steps, hidden, gates, directions, .. } => {
                if let Some(input) = operator.inputs.first() {
                    self.save_for_product(graph, *input, rules, saved);
                }
                // Each step's gates, its cell and its output.
                saved.own += (steps * hidden * (gates + 2) * directions) as f64 * rules.narrow();
            }
            _ => {}
        }
    }

    /// What a product by columns has gathered in the backward pass where ranks divide the sequence: its input, the gradient
    /// of that, and the same of the product before, whose exchange still runs.
    fn gathered(&self, graph: &Graph, operator: &Operator, input: TensorId, rules: &Rules) -> f64 {
        match operator.kind {
            OpKind::Linear { split: WeightSplit::Columns, .. } if rules.sequence => {
                4.0 * graph.tensors[input.0 as usize] as f64 * rules.narrow()
            }
            _ => 0.0,
        }
    }

    /// What a function of each value saves: its output where the gradient follows from it, else its input.
    fn activation(
        &self,
        graph: &Graph,
        operator: &Operator,
        function: Function,
        rules: &Rules,
        saved: &mut SavedTensors,
    ) {
        match function {
            Function::Relu | Function::Sigmoid | Function::Tanh => saved.roots.push(self.root_of(operator.output)),
            Function::GeluNew | Function::QuickGelu | Function::SquaredRelu if !rules.compiled => {
                self.steps(graph, operator, function, rules, saved);
            }
            // x · 0.5 · (1 + erf(x ÷ √2)): what the error function is given, and both factors of the last product.
            Function::Gelu if rules.written_out => saved.own += 3.0 * self.bytes_of(graph, operator.output),
            Function::Gelu
            | Function::Silu
            | Function::HardSwish
            | Function::GeluNew
            | Function::QuickGelu
            | Function::SquaredRelu
            | Function::Other => {
                for input in &operator.inputs {
                    self.save(graph, *input, rules, saved);
                }
                // Half-precision GELU and its like compute in registers; only an overwritten input costs a copy.
                if reuses(&operator.kind) {
                    saved.own += self.bytes_of(graph, operator.output);
                }
            }
        }
    }

    fn root_of(&self, tensor: TensorId) -> u32 {
        self.root[tensor.0 as usize]
    }

    fn bytes_of(&self, graph: &Graph, tensor: TensorId) -> f64 {
        let index = tensor.0 as usize;
        graph.tensors[index] as f64 * self.width[index] / self.shared[index]
    }

    fn save_for_product(&self, graph: &Graph, tensor: TensorId, rules: &Rules, saved: &mut SavedTensors) {
        let index = tensor.0 as usize;
        match rules.casts() && self.width[index] > rules.narrow() {
            true => saved.own += graph.tensors[index] as f64 * rules.narrow() / self.shared[index],
            false => self.save(graph, tensor, rules, saved),
        }
    }

    /// Saves a tensor, or, in a compiled program, what it is cheaply computed from.
    fn save(&self, graph: &Graph, tensor: TensorId, rules: &Rules, saved: &mut SavedTensors) {
        let mut waiting = vec![tensor];
        // A chain of cheap operators is short; the bound keeps strange graphs from costing time.
        for _ in 0..16 {
            let Some(tensor) = waiting.pop() else { break };
            let writer = self.writer[tensor.0 as usize].map(|index| &graph.operators[index as usize]);
            match writer {
                Some(writer) if rules.compiled && is_cheap(&writer.kind) => waiting.extend(&writer.inputs),
                Some(_) | None => saved.roots.push(self.root_of(tensor)),
            }
        }
        saved.roots.extend(waiting.iter().map(|tensor| self.root_of(*tensor)));
        saved.roots.sort_unstable();
        saved.roots.dedup();
    }
}
