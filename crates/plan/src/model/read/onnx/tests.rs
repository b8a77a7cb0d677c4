mod exported;
mod hostile;
mod listed;

use super::super::{SampleShape, model};
use crate::model::{Function, Graph, Input, Norm, OpKind};

/// A message of Protocol Buffers, as bytes.
#[derive(Default, Clone)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(mut self, field: u64, number: u64) -> Message {
        self.varint(field << 3);
        self.varint(number);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Message {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

/// An ONNX file that is being written.
#[derive(Default, Clone)]
struct File(Message);

impl File {
    fn node(self, operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, &[i64])]) -> File {
        self.node_of(operator, inputs, &[output], attributes)
    }

    fn node_of(self, operator: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, &[i64])]) -> File {
        File(self.0.bytes(1, &File::node_alone(operator, inputs, outputs, attributes).0))
    }

    fn node_alone(operator: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, &[i64])]) -> Message {
        let mut node = Message::default().bytes(4, operator.as_bytes());
        for output in outputs {
            node = node.bytes(2, output.as_bytes());
        }
        for input in inputs {
            node = node.bytes(1, input.as_bytes());
        }
        for (name, numbers) in attributes {
            let mut attribute = Message::default().bytes(1, name.as_bytes());
            attribute = match numbers {
                [one] => attribute.number(3, *one as u64),
                many => many.iter().fold(attribute, |attribute, number| attribute.number(8, *number as u64)),
            };
            node = node.bytes(5, &attribute.0);
        }
        node
    }

    /// A weight whose values stand in another file.
    fn weight(self, name: &str, dims: &[u64]) -> File {
        let stored = dims.iter().fold(Message::default(), |stored, side| stored.number(1, *side));
        let stored = stored.number(2, 1).bytes(8, name.as_bytes()).number(14, 1);
        File(self.0.bytes(5, &stored.0))
    }

    fn list(self, name: &str, values: &[i64]) -> File {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let stored = Message::default().number(1, values.len() as u64).number(2, 7).bytes(8, name.as_bytes());
        File(self.0.bytes(5, &stored.bytes(9, &raw).0))
    }

    fn scalar(self, name: &str, value: f32) -> File {
        let stored = Message::default().number(2, 1).bytes(8, name.as_bytes()).bytes(9, &value.to_le_bytes());
        File(self.0.bytes(5, &stored.0))
    }

    /// An input, -1 for a side that is a symbol.
    fn input(self, name: &str, dims: &[i64]) -> File {
        File(self.0.bytes(11, &info(name, dims)))
    }

    fn output(self, name: &str) -> File {
        File(self.0.bytes(12, &info(name, &[])))
    }

    fn done(self) -> Vec<u8> {
        Message::default().number(1, 8).bytes(7, &self.0.0).0
    }
}

fn info(name: &str, dims: &[i64]) -> Vec<u8> {
    let mut shape = Message::default();
    for side in dims {
        let side = match side {
            -1 => Message::default().bytes(2, b"batch"),
            side => Message::default().number(1, *side as u64),
        };
        shape = shape.bytes(1, &side.0);
    }
    let tensor = Message::default().number(1, 1).bytes(2, &shape.0);
    Message::default().bytes(1, name.as_bytes()).bytes(2, &Message::default().bytes(1, &tensor.0).0).0
}

fn read(file: File) -> Graph {
    match model(&file.done(), &SampleShape::default()) {
        Ok(graph) => graph,
        Err(problem) => panic!("{problem:?}"),
    }
}

fn kinds(graph: &Graph) -> Vec<&OpKind> {
    graph.operators.iter().map(|operator| &operator.kind).collect()
}

fn small_network(batch: i64) -> File {
    File::default()
        .input("picture", &[batch, 3, 32, 32])
        .weight("one", &[16, 3, 3, 3])
        .weight("scale", &[16])
        .weight("shift", &[16])
        .weight("mean", &[16])
        .weight("variance", &[16])
        .weight("last", &[10, 4096])
        .weight("bias", &[10])
        .list("flat", &[-1, 4096])
        .node("Conv", &["picture", "one"], "a", &[("pads", &[1, 1, 1, 1]), ("strides", &[1, 1])])
        .node("BatchNormalization", &["a", "scale", "shift", "mean", "variance"], "b", &[])
        .node("Relu", &["b"], "c", &[])
        .node("MaxPool", &["c"], "d", &[("kernel_shape", &[2, 2]), ("strides", &[2, 2])])
        .node("Reshape", &["d", "flat"], "e", &[])
        .node("Gemm", &["e", "last", "bias"], "scores", &[("transB", &[1])])
        .output("scores")
}

/// Attention of four heads of 16 to so many positions.
fn attention(positions: u64, causal: bool) -> OpKind {
    let (queries, keys) = (positions, positions);
    OpKind::Attention { heads: 4, key_heads: 4, width: 16, value_width: 16, queries, keys, causal, dropout: false }
}

#[test]
fn a_network_over_images_is_read() {
    let graph = read(small_network(-1));
    assert_eq!(graph.parameters(), 16 * 27 + 32 + 40960 + 10);
    assert_eq!(graph.buffers(), 32);
    assert_eq!(graph.multiply_adds(), 16 * 27 * 1024 + 40960);
    assert!(matches!(
        kinds(&graph)[..],
        [
            OpKind::Convolution { positions: 1024, inner: 27, columns: 16, groups: 1, kernel: 3 },
            OpKind::Norm { norm: Norm::Batch, elements: 16384, groups: 16 },
            OpKind::Activation { function: Function::Relu, elements: 16384, in_place: true },
            OpKind::Pool { maximum: true, inputs: 16384, outputs: 4096 },
            OpKind::View,
            OpKind::Linear { rows: 1, inner: 4096, columns: 10, .. },
            OpKind::Loss { rows: 1, classes: 10 },
        ]
    ));
    assert!(graph.unknown.is_empty(), "{:?}", graph.unknown);
}

#[test]
fn a_file_for_many_samples_is_read_as_for_one() {
    let (one, eight) = (read(small_network(1)), read(small_network(8)));
    assert_eq!(one.multiply_adds(), eight.multiply_adds());
    assert_eq!(one.parameters(), eight.parameters());
    assert_eq!(one.tensors, eight.tensors);
}

#[test]
fn names_change_nothing() {
    let named = File::default()
        .input("x", &[1, 3, 8, 8])
        .weight("w", &[4, 3, 1, 1])
        .node("Conv", &["x", "w"], "resnet50_yolo", &[])
        .output("resnet50_yolo");
    let other = File::default()
        .input("y", &[1, 3, 8, 8])
        .weight("bert", &[4, 3, 1, 1])
        .node("Conv", &["y", "bert"], "z", &[])
        .output("z");
    assert_eq!(read(named), read(other));
}

/// Attention, a decomposed layer normalisation and GELU, as exporters write them.
#[test]
fn what_exporters_take_apart_is_put_together() {
    let file = File::default()
        .input("x", &[1, 10, 64])
        .weight("query", &[64, 64])
        .weight("key", &[64, 64])
        .weight("value", &[64, 64])
        .weight("gain", &[64])
        .weight("shift", &[64])
        .list("heads", &[1, 10, 4, 16])
        .list("whole", &[1, 10, 64])
        .scalar("two", 2.0)
        .scalar("epsilon", 1e-5)
        .scalar("eight", 8.0)
        .node("ReduceMean", &["x"], "mean", &[("axes", &[-1])])
        .node("Sub", &["x", "mean"], "difference", &[])
        .node("Pow", &["difference", "two"], "squares", &[])
        .node("ReduceMean", &["squares"], "variance", &[("axes", &[-1])])
        .node("Add", &["variance", "epsilon"], "above", &[])
        .node("Sqrt", &["above"], "deviation", &[])
        .node("Div", &["difference", "deviation"], "normal", &[])
        .node("Mul", &["normal", "gain"], "gained", &[])
        .node("Add", &["gained", "shift"], "n", &[]);
    let mut file = file;
    for part in ["query", "key", "value"] {
        file = file
            .node("MatMul", &["n", part], &format!("{part}.a"), &[])
            .node("Reshape", &[&format!("{part}.a"), "heads"], &format!("{part}.b"), &[])
            .node("Transpose", &[&format!("{part}.b")], &format!("{part}.c"), &[("perm", &[0, 2, 1, 3])]);
    }
    let graph = read(
        file.node("Transpose", &["key.c"], "turned", &[("perm", &[0, 1, 3, 2])])
            .node("MatMul", &["query.c", "turned"], "scores", &[])
            .node("Div", &["scores", "eight"], "scaled", &[])
            .node("Softmax", &["scaled"], "probabilities", &[("axis", &[-1])])
            .node("MatMul", &["probabilities", "value.c"], "context", &[])
            .node("Transpose", &["context"], "back", &[("perm", &[0, 2, 1, 3])])
            .node("Reshape", &["back", "whole"], "joined", &[])
            .node("Add", &["joined", "x"], "sum", &[])
            .node("Div", &["sum", "two"], "g1", &[])
            .node("Erf", &["g1"], "g2", &[])
            .node("Add", &["g2", "epsilon"], "g3", &[])
            .node("Mul", &["sum", "g3"], "g4", &[])
            .node("Mul", &["g4", "two"], "g5", &[])
            .output("g5"),
    );
    let all = kinds(&graph);
    assert!(all.contains(&&OpKind::Norm { norm: Norm::Layer, elements: 640, groups: 10 }), "{all:?}");
    let attention = attention(10, false);
    assert!(all.contains(&&attention), "{all:?}");
    let gelu = OpKind::Activation { function: Function::Gelu, elements: 640, in_place: false };
    assert!(all.contains(&&gelu), "{all:?}");
    assert!(!all.iter().any(|kind| matches!(kind, OpKind::Softmax { .. } | OpKind::Product { .. })), "{all:?}");
    assert_eq!(graph.parameters(), 3 * 4096 + 128);
    assert!(graph.unknown.is_empty(), "{:?}", graph.unknown);
}

#[test]
fn what_is_not_understood_is_said() {
    let graph = read(
        File::default()
            .input("x", &[1, 8])
            .node("Frobnicate", &["x"], "y", &[])
            .node("Frobnicate", &["y"], "z", &[])
            .output("z"),
    );
    assert_eq!(graph.unknown, ["Frobnicate ×2"]);
}

#[test]
fn folded_normalisations_are_put_back() {
    let mut file = File::default().input("x", &[1, 8, 16, 16]);
    let mut at = "x".to_owned();
    for layer in 0..20 {
        let [weight, bias, convolved, sum] = ["w", "b", "c", "s"].map(|name| format!("{name}{layer}"));
        file = file
            .weight(&weight, &[8, 8, 3, 3])
            .weight(&bias, &[8])
            .node("Conv", &[&at, &weight, &bias], &convolved, &[("pads", &[1, 1, 1, 1])])
            .node("Add", &[&at, &convolved], &sum, &[]);
        at = sum;
    }
    let graph = read(file.output(&at));
    let norms = kinds(&graph).iter().filter(|kind| matches!(kind, OpKind::Norm { norm: Norm::Batch, .. })).count();
    assert_eq!(norms, 20);
    assert_eq!(graph.unknown, ["batch normalisation, folded into a convolution and put back ×20"]);
    assert_eq!(graph.parameters(), 20 * (8 * 8 * 9 + 16));
}

#[test]
fn recurrent_layers_are_read() {
    let graph = read(
        File::default()
            .input("x", &[30, 1, 64])
            .weight("w", &[2, 512, 64])
            .weight("r", &[2, 512, 128])
            .weight("b", &[2, 1024])
            .node("LSTM", &["x", "w", "r", "b"], "y", &[("hidden_size", &[128])])
            .output("y"),
    );
    assert_eq!(
        graph.operators[0].kind,
        OpKind::Recurrent { steps: 30, inner: 64, hidden: 128, gates: 4, directions: 2 }
    );
    assert_eq!(graph.parameters(), 2 * (512 * 64 + 512 * 128 + 1024));
}

#[test]
fn rows_of_a_image_are_sequences_of_one_sample() {
    let file = File::default()
        .input("x", &[1, 30, 7, 64])
        .list("rows", &[30, 7, 64])
        .weight("w", &[1, 512, 64])
        .weight("r", &[1, 512, 128])
        .node("Reshape", &["x", "rows"], "a", &[])
        .node("LSTM", &["a", "w", "r"], "y", &[("hidden_size", &[128])]);
    assert_eq!(read(file.output("y")).multiply_adds(), 7 * 30 * 512 * (64 + 128));
}

/// A weight in eight bits.
fn in_eight_bits(file: File, name: &str, dims: &[u64]) -> File {
    let mut stored = Message::default();
    for side in dims {
        stored = stored.number(1, *side);
    }
    let stored = stored.number(2, 3).bytes(8, name.as_bytes());
    File(file.0.bytes(5, &stored.0))
}

#[test]
fn weights_in_few_bits_are_those_that_are_trained() {
    let file = in_eight_bits(in_eight_bits(File::default().input("x", &[1, 8]), "few", &[8, 4]), "more", &[4, 2])
        .weight("scale", &[4])
        .node("DequantizeLinear", &["few", "scale"], "w", &[])
        .node("MatMul", &["x", "w"], "a", &[])
        .node("MatMulInteger", &["a", "more"], "b", &[])
        .node("MatMulNBits", &["b", "packed", "scale"], "y", &[("K", &[2]), ("N", &[6])]);
    let graph = read(file.output("y"));
    assert_eq!(graph.parameters(), 8 * 4 + 4 * 2 + 2 * 6);
    assert_eq!(graph.multiply_adds(), 8 * 4 + 4 * 2 + 2 * 6);
    assert_eq!(graph.unknown, ["weight in few bits, counted as one that is trained ×3"]);
}

#[test]
fn weights_of_what_is_not_known_are_counted() {
    let file = File::default().input("x", &[1, 8]).weight("w", &[8, 3]).node("Frobnicate", &["x", "w"], "y", &[]);
    let graph = read(file.output("y"));
    assert_eq!((graph.parameters(), graph.unknown), (24, vec!["Frobnicate ×1".to_owned()]));
}

#[test]
fn only_what_has_the_channels_of_a_image_is_one() {
    let inputs =
        |dims: &[i64]| read(File::default().input("x", dims).node("Relu", &["x"], "y", &[]).output("y")).inputs;
    assert_eq!(inputs(&[2, 3, 8, 6]), [Input::Image([3, 8, 6])]);
    assert_eq!(inputs(&[1, 12, 64, 64]), [Input::Values(12 * 64 * 64)]);
}

#[test]
fn attention_that_is_one_node_is_read() {
    let names = ["q", "k", "v"];
    let mut file = File::default().input("x", &[1, 16, 64]);
    for name in names {
        let weight = format!("w{name}");
        file = file.weight(&weight, &[64, 64]).node("MatMul", &["x", &weight], name, &[]);
    }
    let absurd: [(&str, &[i64]); 2] = [("q_num_heads", &[1 << 62]), ("kv_num_heads", &[1])];
    let graph = read(File(file.0.clone()).node("Attention", &names, "y", &absurd).output("y"));
    assert_eq!(graph.unknown, ["Attention ×1"]);
    let heads: [(&str, &[i64]); 3] = [("q_num_heads", &[4]), ("kv_num_heads", &[4]), ("is_causal", &[1])];
    let graph = read(file.node("Attention", &names, "y", &heads).output("y"));
    let kind = attention(16, true);
    assert_eq!(graph.operators[3].kind, kind);
    assert!(graph.unknown.is_empty());
}

#[test]
fn the_longer_branch_and_one_turn_of_a_loop_are_counted() {
    let held = |name: &str, body: Message| Message::default().bytes(1, name.as_bytes()).bytes(6, &body.0);
    let inner = |nodes: File, output: &str| nodes.output(output).0;
    let product = || File::default().node("MatMul", &["x", "w"], "inner", &[]);
    let long = inner(product().node("Relu", &["inner"], "done", &[]), "done");
    let branches = Message::default()
        .bytes(4, b"If")
        .bytes(1, b"which")
        .bytes(2, b"y")
        .bytes(5, &held("then_branch", inner(File::default().node("Relu", &["x"], "x1", &[]), "x1")).0)
        .bytes(5, &held("else_branch", long).0);
    let start = || File::default().input("x", &[1, 8]).input("which", &[1]).weight("w", &[8, 8]);
    let graph = read(File(start().0.bytes(1, &branches.0)).output("y"));
    assert_eq!((graph.parameters(), graph.multiply_adds()), (64, 64));
    assert_eq!(graph.unknown, ["If, of which the longer branch is counted ×1"]);
}

#[test]
fn a_shape_that_the_file_computes_is_known() {
    // As PyTorch's older exporter writes `x.view(x.shape[0], -1)`.
    let file = File::default()
        .input("x", &[1, 4, 6])
        .list("zero", &[0])
        .list("rest", &[-1])
        .node("Shape", &["x"], "sides", &[])
        .node("Gather", &["sides", "zero"], "samples", &[])
        .node("Concat", &["samples", "rest"], "target", &[("axis", &[0])])
        .node("Reshape", &["x", "target"], "flat", &[])
        .weight("weight", &[24, 10])
        .node("MatMul", &["flat", "weight"], "y", &[])
        .output("y");
    let graph = model(&file.done(), &SampleShape::default()).expect("it is a network");
    assert_eq!(graph.unknown, Vec::<String>::new());
    assert_eq!(graph.multiply_adds(), 240);
}
