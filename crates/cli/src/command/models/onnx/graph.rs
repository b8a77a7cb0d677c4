//! An ONNX graph (opset 17) that is put together layer by layer, over weights under the names of PyTorch.

use std::collections::BTreeMap;

use super::wire::Message;

/// Shapes of the weights, by their names.
pub(super) type Shapes = BTreeMap<String, Vec<u64>>;

/// A graph as far as it is made.
#[derive(Debug)]
pub(super) struct Graph<'a> {
    shapes: &'a Shapes,
    graph: Message,
    nodes: usize,
    /// Weights that nodes refer to.
    used: Vec<String>,
}

/// An attribute of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attribute<'a> {
    Int(i64),
    Ints(&'a [i64]),
    Float(f32),
}

use Attribute::{Float, Int, Ints};

/// Types of elements.
const FLOAT: u64 = 1;
const INT64: u64 = 7;

impl<'a> Graph<'a> {
    /// Nothing yet.
    pub fn over(shapes: &'a Shapes) -> Graph<'a> {
        Graph { shapes, graph: Message::default(), nodes: 0, used: Vec::new() }
    }

    /// Whether there is a weight of this name.
    pub fn has(&self, name: &str) -> bool {
        self.shapes.contains_key(name)
    }

    /// A dimension of a weight.
    pub fn dimension(&self, name: &str, place: usize) -> i64 {
        let found = self.shapes.get(name).and_then(|shape| shape.get(place));
        found.map_or(0, |length| i64::try_from(*length).unwrap_or(0))
    }

    /// Adds a node with one output, whose name is returned; without the names of weights that there are not.
    pub fn node(&mut self, kind: &str, inputs: &[&str], attributes: &[(&str, Attribute)]) -> String {
        self.node_with(kind, inputs, attributes, 1).remove(0)
    }

    /// The same with several outputs.
    pub fn node_with(
        &mut self,
        kind: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
        outputs: usize,
    ) -> Vec<String> {
        self.nodes += 1;
        let mut node = Message::default();
        for input in inputs {
            if self.has(input) && !self.used.iter().any(|used| used == input) {
                self.used.push((*input).to_owned());
            }
            node.bytes(1, input.as_bytes());
        }
        let outputs: Vec<String> = (0..outputs).map(|place| format!("{kind}_{}_{place}", self.nodes)).collect();
        outputs.iter().for_each(|output| node.bytes(2, output.as_bytes()));
        node.bytes(3, format!("{kind}_{}", self.nodes).as_bytes());
        node.bytes(4, kind.as_bytes());
        for (name, value) in attributes {
            let mut attribute = Message::default();
            attribute.bytes(1, name.as_bytes());
            let kind = match value {
                Float(value) => {
                    attribute.float(2, *value);
                    1
                }
                Int(value) => {
                    attribute.number(3, *value as u64);
                    2
                }
                Ints(values) => {
                    values.iter().for_each(|value| attribute.number(8, *value as u64));
                    7
                }
            };
            attribute.number(20, kind);
            node.message(5, &attribute);
        }
        self.graph.message(1, &node);
        outputs
    }

    /// A list of numbers that stands in the file.
    pub fn ints(&mut self, values: &[i64]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(INT64, &[values.len() as u64], &bytes)
    }

    /// A number with a point that stands in the file.
    pub fn float(&mut self, value: f32) -> String {
        self.constant(FLOAT, &[], &value.to_le_bytes())
    }

    fn constant(&mut self, kind: u64, shape: &[u64], bytes: &[u8]) -> String {
        self.nodes += 1;
        let name = format!("constant_{}", self.nodes);
        self.graph.message(5, &tensor(&name, kind, shape, bytes));
        name
    }

    /// A convolution with as many groups as there are channels, or one.
    pub fn convolution(&mut self, from: &str, name: &str, stride: i64, padding: i64, is_depthwise: bool) -> String {
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let kernel = [2, 3].map(|place| self.dimension(&weight, place));
        let groups = if is_depthwise { self.dimension(&weight, 0) } else { 1 };
        let mut inputs = vec![from, &weight];
        if self.has(&bias) {
            inputs.push(&bias);
        }
        let attributes = [
            ("kernel_shape", Ints(&kernel)),
            ("strides", Ints(&[stride; 2])),
            ("pads", Ints(&[padding; 4])),
            ("group", Int(groups)),
        ];
        self.node("Conv", &inputs, &attributes)
    }

    /// The same, padded by half its kernel.
    pub fn padded(&mut self, from: &str, name: &str, stride: i64, is_depthwise: bool) -> String {
        let padding = self.dimension(&format!("{name}.weight"), 2) / 2;
        self.convolution(from, name, stride, padding, is_depthwise)
    }

    /// Batch normalisation by the running statistics.
    pub fn batch_norm(&mut self, from: &str, name: &str, eps: f32) -> String {
        let parts = ["weight", "bias", "running_mean", "running_var"].map(|part| format!("{name}.{part}"));
        let mut inputs = vec![from];
        inputs.extend(parts.iter().map(String::as_str));
        self.node("BatchNormalization", &inputs, &[("epsilon", Float(eps))])
    }

    /// Normalisation over the last dimension.
    pub fn layer_norm(&mut self, from: &str, name: &str, eps: f32) -> String {
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let attributes = [("axis", Int(-1)), ("epsilon", Float(eps))];
        self.node("LayerNormalization", &[from, &weight, &bias], &attributes)
    }

    /// A linear layer over rows of any number of dimensions.
    pub fn linear(&mut self, from: &str, weight: &str, bias: &str) -> String {
        let turned = self.node("Transpose", &[weight], &[("perm", Ints(&[1, 0]))]);
        let product = self.node("MatMul", &[from, &turned], &[]);
        self.node("Add", &[&product, bias], &[])
    }

    /// A linear layer by its name.
    pub fn named_linear(&mut self, from: &str, name: &str) -> String {
        self.linear(from, &format!("{name}.weight"), &format!("{name}.bias"))
    }

    /// The mean over height and width, a row of channels for each sample.
    pub fn average(&mut self, from: &str) -> String {
        let mean = self.node("GlobalAveragePool", &[from], &[]);
        self.node("Flatten", &[&mean], &[("axis", Int(1))])
    }

    /// The dimensions in another order.
    pub fn transpose(&mut self, from: &str, order: &[i64]) -> String {
        self.node("Transpose", &[from], &[("perm", Ints(order))])
    }

    /// Another shape; 0 keeps a dimension, and -1 takes what is left.
    pub fn reshape(&mut self, from: &str, shape: &[i64]) -> String {
        let shape = self.ints(shape);
        self.node("Reshape", &[from, &shape], &[])
    }

    /// x · sigmoid(x).
    pub fn silu(&mut self, from: &str) -> String {
        let gate = self.node("Sigmoid", &[from], &[]);
        self.node("Mul", &[from, &gate], &[])
    }

    /// GELU by the error function.
    pub fn gelu(&mut self, from: &str) -> String {
        let (root, one, half) = (self.float(std::f32::consts::SQRT_2), self.float(1.0), self.float(0.5));
        let divided = self.node("Div", &[from, &root], &[]);
        let error = self.node("Erf", &[&divided], &[]);
        let sum = self.node("Add", &[&error, &one], &[]);
        let product = self.node("Mul", &[from, &sum], &[]);
        self.node("Mul", &[&product, &half], &[])
    }

    /// The whole file: from `image` (channels, height and width) to `classes` logits; `weight` gives the bytes of each
    /// weight, in 32 bits.
    pub fn finish<'b>(
        mut self,
        logits: &str,
        image: [u64; 3],
        classes: u64,
        weight: impl Fn(&str) -> &'b [u8],
        notes: &[(&str, String)],
    ) -> Vec<u8> {
        let last = self.node("Identity", &[logits], &[]);
        self.graph.bytes(2, b"gradus");
        for name in &self.used {
            let shape = self.shapes.get(name).map_or(&[][..], Vec::as_slice);
            self.graph.message(5, &tensor(name, FLOAT, shape, weight(name)));
        }
        self.graph.message(11, &value(INPUT, &image));
        self.graph.message(12, &value(&last, &[classes]));
        let mut opset = Message::default();
        opset.bytes(1, b"");
        opset.number(2, 17);
        let mut model = Message::default();
        model.number(1, 8);
        model.bytes(2, b"gradus");
        model.bytes(3, env!("CARGO_PKG_VERSION").as_bytes());
        model.message(7, &self.graph);
        model.message(8, &opset);
        for (key, text) in notes {
            let mut note = Message::default();
            note.bytes(1, key.as_bytes());
            note.bytes(2, text.as_bytes());
            model.message(14, &note);
        }
        model.into_bytes()
    }
}

/// The name of what goes in.
pub(super) const INPUT: &str = "images";

fn tensor(name: &str, kind: u64, shape: &[u64], bytes: &[u8]) -> Message {
    let mut tensor = Message::default();
    shape.iter().for_each(|length| tensor.number(1, *length));
    tensor.number(2, kind);
    tensor.bytes(8, name.as_bytes());
    tensor.bytes(9, bytes);
    tensor
}

/// A value of so many samples, each of this shape.
fn value(name: &str, shape: &[u64]) -> Message {
    let mut dimensions = Message::default();
    let mut batch = Message::default();
    batch.bytes(2, b"batch");
    dimensions.message(1, &batch);
    for length in shape {
        let mut dimension = Message::default();
        dimension.number(1, *length);
        dimensions.message(1, &dimension);
    }
    let mut of_tensor = Message::default();
    of_tensor.number(1, FLOAT);
    of_tensor.message(2, &dimensions);
    let mut kind = Message::default();
    kind.message(1, &of_tensor);
    let mut value = Message::default();
    value.bytes(1, name.as_bytes());
    value.message(2, &kind);
    value
}
