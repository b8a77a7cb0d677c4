//! What is known of the values between nodes.

use std::collections::BTreeMap;

use domain::problem::Problem;

use super::super::Shape;
use super::messages::{self, Dimension, Info, MOST_DIMS, Node, Stored};
use crate::model::builder::Owned;
use crate::model::{Builder, Tensor};

/// No tensor of one sample has a longer side.
const LONGEST: u64 = 1 << 40;
const PICTURE: u64 = 224;
const SEQUENCE: u64 = 512;

/// One value.
#[derive(Debug, Clone, Default)]
pub(super) struct Value {
    pub dims: Vec<u64>,
    /// Its elements, where they are few and do not depend on the input's values.
    pub known: Option<Vec<f64>>,
    /// The activation that it is; none for weights and constants.
    pub tensor: Option<Tensor>,
    /// Weights that it is made of, by index.
    pub weights: Vec<usize>,
}

impl Value {
    pub fn elements(&self) -> u64 {
        product(&self.dims)
    }

    pub fn is_fixed(&self) -> bool {
        self.tensor.is_none()
    }

    pub fn last(&self) -> u64 {
        self.dims.last().copied().unwrap_or(1)
    }
}

pub(super) fn product(dims: &[u64]) -> u64 {
    dims.iter().fold(1, |product: u64, side| product.saturating_mul(*side))
}

/// A weight: how many values, and whether an operator has counted them as its own.
#[derive(Debug, Clone, Copy)]
struct Weight {
    elements: u64,
    trained: bool,
    /// Exporters store equal vectors once, as biases of a new network are, so each use counts.
    vector: bool,
    counted: bool,
}

/// Everything known so far, and the graph that is being written.
pub(super) struct State<'a> {
    pub builder: Builder,
    values: BTreeMap<&'a str, Value>,
    weights: Vec<Weight>,
    /// How many nodes read each value.
    pub readers: BTreeMap<&'a str, u32>,
    infos: BTreeMap<&'a str, &'a Info<'a>>,
    symbols: BTreeMap<&'a str, u64>,
    unknown: BTreeMap<String, u32>,
    /// Samples that the file computes at once.
    pub batch: u64,
}

impl<'a> State<'a> {
    pub fn new(graph: &'a messages::Graph<'a>, shape: &Shape) -> Result<State<'a>, Problem> {
        let mut state = State {
            builder: Builder::new(),
            values: BTreeMap::new(),
            weights: Vec::new(),
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
            state.values.insert(input.name, Value { dims, tensor: Some(tensor), ..Value::default() });
        }
        Ok(state)
    }

    /// The value of a tensor that stands in the file.
    pub fn stored(&mut self, stored: &Stored) -> Value {
        let vector = stored.dims.iter().filter(|side| **side > 1).count() <= 1;
        self.weights.push(Weight { elements: stored.elements(), trained: stored.is_float(), vector, counted: false });
        Value { dims: stored.dims.clone(), known: stored.values(), tensor: None, weights: vec![self.weights.len() - 1] }
    }

    /// Gives every dimension of an input a size: that of the file, what was asked for, or a usual one.
    fn input(&mut self, input: &'a Info<'a>, shape: &Shape) -> Result<Vec<u64>, Problem> {
        let Some(dims) = &input.dims else {
            return Err(Problem::at(
                "",
                format!("the file does not say how many dimensions its input `{}` has", input.name),
            )
            .hint("export it again with an example input"));
        };
        let [channels, height, width] = shape.picture.unwrap_or([3, PICTURE, PICTURE]);
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
        self.weights.get(weight).is_some_and(|weight| weight.trained)
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
        for index in values.iter().flat_map(|value| &value.weights) {
            let weight = &mut self.weights[*index];
            if weight.trained && (!std::mem::replace(&mut weight.counted, true) || weight.vector) {
                owned.parameters = owned.parameters.saturating_add(weight.elements);
            }
        }
        owned
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

    pub fn unknown(&mut self, what: &str) {
        *self.unknown.entry(what.to_owned()).or_default() += 1;
    }

    pub fn finish(mut self) -> (crate::model::Graph, u64) {
        for (what, count) in std::mem::take(&mut self.unknown) {
            self.builder.unknown(format!("{what} ×{count}"));
        }
        (self.builder.finish(), self.batch)
    }
}
