//! What is known of the values between nodes.

use std::collections::BTreeMap;

use domain::problem::Problem;

use super::super::SampleShape;
use super::file::{self, Dimension, Info, MOST_DIMS, Node, Stored};
use super::weights::{Listed, Missing, Weights};
use crate::model::builder::Owned;
use crate::model::{Builder, Input, TensorId};

/// No tensor of one sample has a longer side.
const LONGEST: u64 = 1 << 40;
/// Types of whole numbers (onnx/onnx.proto).
const WHOLE_32: u64 = 6;
const WHOLE_64: u64 = 7;
const IMAGE: u64 = 224;
const SEQUENCE: u64 = 512;

/// One value.
#[derive(Debug, Clone, Default)]
pub(super) struct Value {
    pub dims: Vec<u64>,
    /// Its elements, where they are few and do not depend on the input's values.
    pub known: Option<Vec<f64>>,
    /// The activation that it is; none for weights and constants.
    pub tensor: Option<TensorId>,
    /// Weights that it is made of, by index.
    pub weights: Vec<usize>,
}

impl Value {
    /// The product of its dimensions.
    pub fn elements(&self) -> u64 {
        product(&self.dims)
    }

    /// Whether it is a weight or a constant, the same for all samples.
    pub fn is_fixed(&self) -> bool {
        self.tensor.is_none()
    }

    /// Its last dimension; 1 for a scalar.
    pub fn last(&self) -> u64 {
        self.dims.last().copied().unwrap_or(1)
    }
}

/// What an input of so many dimensions is: whole numbers are words; what has the channels of an image, a height and a
/// width is one, and not for example what a text network keeps of earlier words.
fn entering(kind: u64, dims: &[u64], batch: u64) -> Input {
    match (kind, dims) {
        (WHOLE_32 | WHOLE_64, [.., last]) if dims.len() <= 2 => Input::Tokens(*last),
        (WHOLE_32 | WHOLE_64, _) => Input::Values(product(dims)),
        (_, [_, channels @ (1 | 3 | 4), height, width]) => Input::Image([*channels, *height, *width]),
        _ => Input::Values(product(dims).div_ceil(batch.max(1))),
    }
}

pub(super) fn product(dims: &[u64]) -> u64 {
    dims.iter().fold(1, |product: u64, side| product.saturating_mul(*side))
}

/// Everything known so far, and the graph that is being written.
pub(super) struct State<'a> {
    /// The node that is being translated.
    pub at_work: &'a str,
    /// The module that it comes from, where the file says so.
    pub module: Option<&'a str>,
    pub builder: Builder,
    values: BTreeMap<&'a str, Value>,
    weights: Weights<'a>,
    /// What the file says of its weights, where it does.
    listed: Option<Listed<'a>>,
    /// How many nodes read each value.
    pub readers: BTreeMap<&'a str, u32>,
    infos: BTreeMap<&'a str, &'a Info<'a>>,
    symbols: BTreeMap<&'a str, u64>,
    unknown: BTreeMap<String, u32>,
    /// Samples that the file computes at once.
    pub batch: u64,
}

impl<'a> State<'a> {
    /// Begins with the weights and the inputs of a file. `shape` fills in dimensions that it leaves open.
    ///
    /// # Errors
    /// An input whose dimensions are not said, or are larger than any network has.
    pub fn new(graph: &'a file::Graph<'a>, shape: &SampleShape) -> Result<State<'a>, Problem> {
        let mut state = State {
            at_work: "",
            module: None,
            builder: Builder::new(),
            values: BTreeMap::new(),
            weights: Weights::default(),
            listed: graph.signature.and_then(Listed::read),
            readers: BTreeMap::new(),
            infos: graph.infos.iter().chain(&graph.outputs).map(|info| (info.name, info)).collect(),
            symbols: BTreeMap::new(),
            unknown: BTreeMap::new(),
            batch: 1,
        };
        for node in &graph.nodes {
            for input in &node.inputs {
                *state.readers.entry(input).or_default() += 1;
            }
        }
        for output in &graph.outputs {
            *state.readers.entry(output.name).or_default() += 1;
        }
        for stored in &graph.weights {
            let value = state.stored(stored);
            state.values.insert(stored.name, value);
        }
        let mut first = true;
        for input in &graph.inputs {
            // Old files list weights among the inputs.
            if state.values.contains_key(input.name) {
                continue;
            }
            let dims = state.input(input, shape)?;
            if std::mem::take(&mut first) && dims.len() > 1 {
                state.batch = dims[0].max(1);
            }
            let tensor = state.builder.input(product(&dims));
            state.builder.reads(entering(input.kind, &dims, state.batch));
            state.values.insert(input.name, Value { dims, tensor: Some(tensor), ..Value::default() });
        }
        Ok(state)
    }

    /// The value of a tensor that stands in the file.
    pub fn stored(&mut self, stored: &Stored<'a>) -> Value {
        let weight = self.weights.add(stored);
        if let Some(listed) = &mut self.listed {
            let origins = self.infos.get(stored.name).map_or("", |info| info.origins);
            listed.note(weight, stored.name, origins);
            if listed.has_buffers(weight) {
                self.weights.multiplied_with_constants(weight);
            }
        }
        Value { dims: stored.dims.clone(), known: stored.values(), tensor: None, weights: vec![weight] }
    }

    /// Gives every dimension of an input a size: that of the file, what was asked for, or a usual one.
    fn input(&mut self, input: &'a Info<'a>, shape: &SampleShape) -> Result<Vec<u64>, Problem> {
        let Some(dims) = &input.dims else {
            return Err(Problem::at(
                "",
                format!("the file does not say how many dimensions its input `{}` has", input.name),
            )
            .hint("export it again with an example input"));
        };
        let [channels, height, width] = shape.image.unwrap_or([3, IMAGE, IMAGE]);
        let sequence = shape.sequence.unwrap_or(SEQUENCE);
        let last_is_channels = matches!(dims.last(), Some(Dimension::Size(1 | 3 | 4)));
        let usual = |index: usize| match (dims.len(), index) {
            (_, 0) => 1,
            (4, _) if last_is_channels => [1, height, width, channels][index],
            (4, _) => [1, channels, height, width][index],
            (5, _) => [1, channels, 16, height, width][index],
            _ => sequence,
        };
        let mut sizes = Vec::new();
        for (index, dimension) in dims.iter().enumerate() {
            let size = match *dimension {
                Dimension::Size(size) if size > 0 => size,
                Dimension::Size(_) | Dimension::Symbol("") => usual(index),
                Dimension::Symbol(symbol) => *self.symbols.entry(symbol).or_insert_with(|| usual(index)),
            };
            if size > LONGEST {
                return Err(Problem::at("", format!("the input `{}` has a side of {size} values", input.name))
                    .hint("no network has one so long; export it again"));
            }
            sizes.push(size);
        }
        Ok(sizes)
    }

    /// The value of a name, where a node or the file has set it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// The node's input at `index`, where it has one.
    pub fn at(&self, node: &Node<'a>, index: usize) -> Option<Value> {
        let name = node.inputs.get(index).filter(|name| !name.is_empty())?;
        self.values.get(*name).cloned()
    }

    /// Whether a weight is one of numbers that training changes.
    pub fn is_trained(&self, weight: usize) -> bool {
        self.weights.is_trained(weight)
    }

    /// Notes a node's output. One with more dimensions than a tensor has is flat from here.
    pub fn set(&mut self, node: &Node<'a>, index: usize, mut value: Value) {
        if value.dims.len() > MOST_DIMS {
            value.dims = vec![value.elements()];
        }
        if let Some(name) = node.outputs.get(index).filter(|name| !name.is_empty()) {
            self.values.insert(name, value);
        }
    }

    /// Counts weights as an operator's own, unless another has.
    pub fn own(&mut self, values: &[&Value]) -> Owned {
        let mut owned = Owned::NOTHING;
        let operator = self.builder.count();
        for index in values.iter().flat_map(|value| &value.weights) {
            let counted = match &mut self.listed {
                Some(listed) => listed.count(&self.weights, *index, self.module, operator),
                // A file may have lost the list of its weights and still say where its nodes come from.
                None => match self.module {
                    Some(module) => self.weights.count_in(*index, module),
                    None => self.weights.count(*index, self.at_work),
                },
            };
            owned.parameters = owned.parameters.saturating_add(counted);
        }
        owned
    }

    /// Notes that the next operator is a product with `weight` that writes `width` values at once.
    pub fn product(&mut self, weight: &Value, width: u64) {
        if let Some(listed) = &mut self.listed {
            listed.product(self.builder.count(), self.module, weight.weights.first().copied(), width);
        }
    }

    /// Notes that a network computes with a value, and tells whether it is made of weights in few bits.
    pub fn computed_with(&mut self, value: &Value) -> bool {
        let mut few = false;
        for weight in &value.weights {
            few |= self.weights.computed_with(*weight);
        }
        few
    }

    /// Knows what a branch or the body of a loop holds; names are those of the whole file.
    pub fn enter(&mut self, graph: &'a file::Graph<'a>) {
        for stored in &graph.weights {
            let value = self.stored(stored);
            self.values.insert(stored.name, value);
        }
        self.infos.extend(graph.infos.iter().chain(&graph.outputs).map(|info| (info.name, info)));
    }

    /// Gives a value a further name.
    pub fn name(&mut self, name: &'a str, value: Value) {
        self.values.insert(name, value);
    }

    /// Leaves out weights that are stored more than once.
    pub fn without_copies(&self, weights: &mut Vec<usize>) {
        self.weights.without_copies(weights);
    }

    /// Notes that rows are looked up in a weight, which the scores at the end may share.
    pub fn looked_up(&mut self, value: &Value) {
        value.weights.iter().for_each(|weight| self.weights.looked_up(*weight));
    }

    /// Notes that a weight is added to scores of `side` positions against as many.
    pub fn added_to_scores(&mut self, value: &Value, side: u64) {
        for weight in &value.weights {
            let listed = self.listed.as_ref();
            if listed.is_none_or(|listed| !listed.is_whole(*weight)) {
                self.weights.added_to_scores(*weight, side, listed.is_some_and(|listed| listed.is_listed(*weight)));
            }
        }
    }

    /// Whether a value is made of a matrix that is trained.
    pub fn is_trained_matrix(&self, value: &Value) -> bool {
        let is_listed = |index: usize| self.listed.as_ref().is_none_or(|listed| listed.is_listed(index));
        let trained =
            |index: &usize| self.weights.is_trained(*index) && self.weights.is_matrix(*index) && is_listed(*index);
        value.weights.iter().any(trained)
    }

    /// Notes that values are multiplied with a weight.
    pub fn multiplied(&mut self, value: &Value) {
        if self.listed.is_none() {
            value.weights.iter().for_each(|weight| self.weights.multiplied(*weight));
        }
    }

    /// What the file itself says of a value's dimensions, as far as they are sizes or symbols that are known.
    pub fn told(&self, name: &str) -> Option<Vec<u64>> {
        let dims = self.infos.get(name)?.dims.as_ref()?;
        let size = |dimension: &Dimension| match dimension {
            Dimension::Size(size) => Some(*size).filter(|size| *size <= LONGEST),
            Dimension::Symbol(symbol) => self.symbols.get(symbol).copied(),
        };
        dims.iter().map(size).collect()
    }

    /// Counts something that was not understood.
    pub fn unknown(&mut self, what: &str) {
        *self.unknown.entry(what.to_owned()).or_default() += 1;
    }

    /// The graph, how many samples it is for, and what is to be done to it where the file lists its weights.
    pub fn finish(mut self) -> (crate::model::Graph, u64, Option<Missing>) {
        for (what, count) in std::mem::take(&mut self.unknown) {
            self.builder.unknown(format!("{what} ×{count}"));
        }
        let missing = self.listed.map(|listed| listed.rest(&self.weights));
        (self.builder.finish(), self.batch, missing)
    }
}
