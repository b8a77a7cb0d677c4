//! A network as operators in the order in which they run, for one sample.
//!
//! Tensors have identities, so that one that two operators save for the backward pass is counted once, and a traversal
//! can tell when each is freed.

/// A network. All sizes are of one sample; a batch multiplies everything but the weights.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Graph {
    /// In the order in which they run.
    pub operators: Vec<Operator>,
    /// Elements of each tensor, indexed by [`TensorId`].
    pub tensors: Vec<u64>,
    /// What enters, as far as it is known.
    pub inputs: Vec<Input>,
    /// Operators that were not understood, `name ×count`; to be shown with every estimate.
    pub unknown: Vec<String>,
    /// Assumptions about what a file leaves open, a sentence each.
    pub assumed: Vec<String>,
}

/// What enters a network for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// So many tokens.
    Tokens(u64),
    /// An image: channels, height and width.
    Image([u64; 3]),
    /// So many values of a sound.
    Sound(u64),
    /// So many numbers of another kind.
    Values(u64),
}

impl Graph {
    /// Appends an independent graph.
    pub fn append(&mut self, other: Graph) {
        let tensors = self.tensors.len() as u32;
        let blocks = self.operators.iter().filter_map(|operator| operator.block).max().map_or(0, |last| last + 1);
        self.operators.extend(other.operators.into_iter().map(|operator| Operator {
            inputs: operator.inputs.iter().map(|input| TensorId(input.0 + tensors)).collect(),
            output: TensorId(operator.output.0 + tensors),
            block: operator.block.map(|block| block + blocks),
            ..operator
        }));
        self.tensors.extend(other.tensors);
        self.inputs.extend(other.inputs);
        self.unknown.extend(other.unknown);
        self.assumed.extend(other.assumed);
    }

    /// Makes it the graph of a run without dropout.
    pub fn leave_dropout_out(&mut self) {
        for operator in &mut self.operators {
            match &mut operator.kind {
                OpKind::Dropout { .. } => operator.kind = OpKind::View,
                OpKind::Attention { dropout, .. } => *dropout = false,
                _ => {}
            }
        }
    }

    /// Tokens of one sample: the longest input sequence; `None` for a network without token inputs.
    pub fn tokens(&self) -> Option<u64> {
        let tokens = self.inputs.iter().filter_map(|input| match input {
            Input::Tokens(tokens) => Some(*tokens),
            Input::Image(_) | Input::Sound(_) | Input::Values(_) => None,
        });
        tokens.max()
    }
}

/// Identity of a tensor in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub u32);

/// One operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Operator {
    pub name: String,
    pub kind: OpKind,
    pub inputs: Vec<TensorId>,
    pub output: TensorId,
    /// The repeated block it belongs to, counted from 0; recomputation and pipelines divide between blocks. `None`
    /// before the first and after the last.
    pub block: Option<u32>,
    /// Values it trains, biases included.
    pub parameters: u64,
    /// Untrained values stored with the weights, such as running statistics.
    pub buffers: u64,
}

/// The operation of an operator. Sizes are those of one sample.
#[derive(Debug, Clone, PartialEq)]
pub enum OpKind {
    /// A convolution as a product of matrices: `positions` output pixels, each from `inner` = kernel · channels in ÷
    /// groups values, into `columns` channels ÷ groups, `groups` times.
    Convolution {
        positions: u64,
        inner: u64,
        columns: u64,
        groups: u64,
        kernel: u32,
    },
    /// `rows` × `inner` by `inner` × `columns`, where the right side is a weight.
    Linear {
        rows: u64,
        inner: u64,
        columns: u64,
        split: WeightSplit,
    },
    /// Attention of `heads` heads of `width` over `queries` × `keys` positions; `key_heads` differ from `heads` in
    /// grouped-query attention. Values of a head are as wide as its keys but in latent attention and its like.
    Attention {
        heads: u64,
        key_heads: u64,
        width: u64,
        value_width: u64,
        queries: u64,
        keys: u64,
        causal: bool,
        /// Probabilities are dropped out on the way.
        dropout: bool,
    },
    /// A product of two activations that is not attention, `batch` times.
    Product {
        batch: u64,
        rows: u64,
        inner: u64,
        columns: u64,
    },
    /// Normalisation over `elements`, with statistics for each of `groups`.
    Norm {
        norm: Norm,
        elements: u64,
        groups: u64,
    },
    /// A function of each element.
    Activation {
        function: Function,
        elements: u64,
        in_place: bool,
    },
    /// A sum or product of tensors of one shape. A product needs its factors again backwards, a sum nothing.
    Elementwise {
        elements: u64,
        inputs: u32,
        product: bool,
    },
    /// A recurrent layer of `gates` products a step (4 in an LSTM, 3 in a GRU), `directions` times, one step after the
    /// other.
    Recurrent {
        steps: u64,
        inner: u64,
        hidden: u64,
        gates: u64,
        directions: u64,
    },
    Softmax {
        elements: u64,
    },
    Dropout {
        elements: u64,
    },
    /// Rows looked up in a table of `vocabulary` × `width`.
    Embedding {
        rows: u64,
        vocabulary: u64,
        width: u64,
        split: WeightSplit,
    },
    Pool {
        maximum: bool,
        inputs: u64,
        outputs: u64,
    },
    /// Enlarges images.
    Resize {
        elements: u64,
    },
    /// Moves values without computing: concatenation, transposition, padding.
    Copy {
        elements: u64,
    },
    /// A view: nothing moves.
    View,
    /// The loss over `rows` × `classes`.
    Loss {
        rows: u64,
        classes: u64,
    },
}

/// How tensor parallelism divides a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightSplit {
    /// Every rank keeps all of it.
    Whole,
    /// Each rank keeps some columns: no exchange forwards, an all-reduce backwards.
    Columns,
    /// Each rank keeps some rows: an all-reduce forwards.
    Rows,
}

/// The dimensions of a normalization's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    Batch,
    Layer,
    Rms,
    Group,
}

/// A function of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Relu,
    Gelu,
    Silu,
    HardSwish,
    Sigmoid,
    Tanh,
    /// GELU by its approximation with tanh, an operator for each sign of the formula: `gelu_new` of `transformers`, as in
    /// GPT-2, ALBERT and T5 1.1.
    GeluNew,
    /// `x · sigmoid(1.702 x)` in three operators, as in CLIP.
    QuickGelu,
    /// The square of ReLU, in two.
    SquaredRelu,
    Other,
}

/// What a function costs that a program writes out in several operators.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    /// Times that a value is read or written for each value of the input, forwards and backwards.
    pub passes: [f64; 2],
    /// Kernels, forwards and backwards.
    pub kernels: [f64; 2],
}

impl Function {
    /// Returns what it costs where it is written out; none for a function that is one operator.
    pub fn steps(self) -> Option<Steps> {
        match self {
            // x³, · 0.045, + x, · 0.8, tanh, + 1, x ÷ 2, and the product of both.
            Function::GeluNew => Some(Steps { passes: [18.0, 28.0], kernels: [8.0, 12.0] }),
            Function::QuickGelu => Some(Steps { passes: [7.0, 14.0], kernels: [3.0, 5.0] }),
            Function::SquaredRelu => Some(Steps { passes: [4.0, 8.0], kernels: [2.0, 3.0] }),
            Function::Relu
            | Function::Gelu
            | Function::Silu
            | Function::HardSwish
            | Function::Sigmoid
            | Function::Tanh
            | Function::Other => None,
        }
    }
}
