//! The built-in models of images as ONNX graphs. What blocks there are follows from the names of the weights, as
//! torchvision has them; what does not (strides, functions) stands here.

use super::graph::Attribute::{Float, Int, Ints};
use super::graph::{Graph, INPUT};

/// Height and width from which residual networks have the usual stem.
const LARGE: u64 = 64;
const EPS: f32 = 1e-5;
const LAYER_EPS: f32 = 1e-6;

/// The logits of the model of this name; none for one that is not written.
pub(super) fn logits(graph: &mut Graph, model: &str, image: [u64; 3]) -> Option<String> {
    let [_, height, width] = image;
    Some(match model {
        "mlp" => mlp(graph),
        "cnn" => cnn(graph),
        "resnet20" | "resnet56" => resnet(graph, false),
        "resnet" | "resnet18" | "resnet34" | "resnet50" | "resnet101" | "resnet152" => {
            resnet(graph, height.min(width) >= LARGE)
        }
        "mobilenet_v2" => mobilenet_v2(graph),
        "mobilenet_v3_small" => mobilenet_v3(graph, &[2, 2, 1, 2, 1, 1, 1, 1, 2, 1, 1], 3),
        "mobilenet_v3_large" => mobilenet_v3(graph, &[1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1], 6),
        "efficientnet_b0" => efficientnet(graph),
        "convnext_tiny" => convnext(graph),
        "vit_s_16" | "vit_b_16" => vit(graph, 64),
        _ => return None,
    })
}

fn relu(graph: &mut Graph, from: &str) -> String {
    graph.node("Relu", &[from], &[])
}

fn mlp(graph: &mut Graph) -> String {
    let mut at = graph.node("Flatten", &[INPUT], &[("axis", Int(1))]);
    for name in ["fc1", "fc2"] {
        let hidden = graph.named_linear(&at, name);
        at = relu(graph, &hidden);
    }
    graph.named_linear(&at, "fc3")
}

fn cnn(graph: &mut Graph) -> String {
    let mut at = INPUT.to_owned();
    for name in ["conv1", "conv2"] {
        let convolved = graph.padded(&at, name, 1, false);
        at = relu(graph, &convolved);
    }
    let pooled = graph.node("MaxPool", &[&at], &[("kernel_shape", Ints(&[2, 2])), ("strides", Ints(&[2, 2]))]);
    let flat = graph.node("Flatten", &[&pooled], &[("axis", Int(1))]);
    let hidden = graph.named_linear(&flat, "fc1");
    let hidden = relu(graph, &hidden);
    graph.named_linear(&hidden, "fc2")
}

/// A convolution and its normalisation.
fn unit(graph: &mut Graph, from: &str, names: [&str; 2], stride: i64, is_depthwise: bool, eps: f32) -> String {
    let convolved = graph.padded(from, names[0], stride, is_depthwise);
    graph.batch_norm(&convolved, names[1], eps)
}

fn resnet(graph: &mut Graph, is_pooled: bool) -> String {
    let stem = unit(graph, INPUT, ["conv1", "bn1"], if is_pooled { 2 } else { 1 }, false, EPS);
    let mut at = relu(graph, &stem);
    if is_pooled {
        let attributes = [("kernel_shape", Ints(&[3, 3])), ("strides", Ints(&[2, 2])), ("pads", Ints(&[1; 4]))];
        at = graph.node("MaxPool", &[&at], &attributes);
    }
    for stage in 1.. {
        if !graph.has(&format!("layer{stage}.0.conv1.weight")) {
            break;
        }
        for place in 0.. {
            let name = format!("layer{stage}.{place}");
            if !graph.has(&format!("{name}.conv1.weight")) {
                break;
            }
            let stride = if stage > 1 && place == 0 { 2 } else { 1 };
            at = residual(graph, &at, &name, stride);
        }
    }
    let mean = graph.average(&at);
    graph.named_linear(&mean, "fc")
}

fn residual(graph: &mut Graph, from: &str, name: &str, stride: i64) -> String {
    let is_bottleneck = graph.has(&format!("{name}.conv3.weight"));
    // The stride is in the first 3×3 convolution.
    let strides = if is_bottleneck { [1, stride, 1] } else { [stride, 1, 1] };
    let count = if is_bottleneck { 3 } else { 2 };
    let mut at = from.to_owned();
    for (place, stride) in (1..=count).zip(strides) {
        let names = [format!("{name}.conv{place}"), format!("{name}.bn{place}")];
        at = unit(graph, &at, [&names[0], &names[1]], stride, false, EPS);
        if place < count {
            at = relu(graph, &at);
        }
    }
    let downsample = format!("{name}.downsample.0");
    let first = format!("{name}.conv1.weight");
    let (inputs, outputs) = (graph.dimension(&first, 1), graph.dimension(&first, 0));
    let shortcut = if graph.has(&format!("{downsample}.weight")) {
        unit(graph, from, [&downsample, &format!("{name}.downsample.1")], stride, false, EPS)
    } else if stride > 1 {
        padded_shortcut(graph, from, outputs - inputs)
    } else {
        from.to_owned()
    };
    let sum = graph.node("Add", &[&at, &shortcut], &[]);
    relu(graph, &sum)
}

/// Every second pixel, with zeros in so many new channels.
fn padded_shortcut(graph: &mut Graph, from: &str, widens: i64) -> String {
    let [starts, ends, axes, steps] = [&[0, 0], &[i64::MAX; 2], &[2, 3], &[2, 2]].map(|values| graph.ints(values));
    let halved = graph.node("Slice", &[from, &starts, &ends, &axes, &steps], &[]);
    let pads = graph.ints(&[0, widens / 2, 0, 0, 0, widens - widens / 2, 0, 0]);
    graph.node("Pad", &[&halved, &pads], &[])
}

/// The functions of mobile networks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Function {
    Relu,
    Relu6,
    HardSwish,
    Silu,
}

fn activate(graph: &mut Graph, from: &str, function: Function) -> String {
    match function {
        Function::Relu => relu(graph, from),
        Function::Relu6 => {
            let (low, high) = (graph.float(0.0), graph.float(6.0));
            graph.node("Clip", &[from, &low, &high], &[])
        }
        Function::HardSwish => graph.node("HardSwish", &[from], &[]),
        Function::Silu => graph.silu(from),
    }
}

/// `name.0` and `name.1` of torchvision's `Conv2dNormActivation`.
fn mix(graph: &mut Graph, from: &str, name: &str, stride: i64, function: Option<Function>, eps: f32) -> String {
    let names = [format!("{name}.0"), format!("{name}.1")];
    let weight = format!("{}.weight", names[0]);
    // The stem of a network for grey images has one channel in, too.
    let is_depthwise = name != "features.0" && graph.dimension(&weight, 1) == 1 && graph.dimension(&weight, 2) > 1;
    let mixed = unit(graph, from, [&names[0], &names[1]], stride, is_depthwise, eps);
    match function {
        Some(function) => activate(graph, &mixed, function),
        None => mixed,
    }
}

/// The sum with what went in, where it has the same shape.
fn join(graph: &mut Graph, out: String, from: &str, is_same: bool) -> String {
    if is_same { graph.node("Add", &[&out, from], &[]) } else { out }
}

fn mobilenet_v2(graph: &mut Graph) -> String {
    let function = Some(Function::Relu6);
    let mut at = mix(graph, INPUT, "features.0", 2, function, EPS);
    let strides = [1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1];
    for (block, stride) in (1..).zip(strides) {
        let name = format!("features.{block}.conv");
        let is_wide = graph.has(&format!("{name}.1.0.weight"));
        let mut out = at.clone();
        if is_wide {
            out = mix(graph, &out, &format!("{name}.0"), 1, function, EPS);
        }
        let place = usize::from(is_wide);
        out = mix(graph, &out, &format!("{name}.{place}"), stride, function, EPS);
        let narrow = [format!("{name}.{}", place + 1), format!("{name}.{}", place + 2)];
        out = unit(graph, &out, [&narrow[0], &narrow[1]], 1, false, EPS);
        let inputs = graph.dimension(&format!("{name}.0.0.weight"), if is_wide { 1 } else { 0 });
        let outputs = graph.dimension(&format!("{}.weight", narrow[0]), 0);
        at = join(graph, out, &at, stride == 1 && inputs == outputs);
    }
    let last = mix(graph, &at, "features.18", 1, function, EPS);
    let mean = graph.average(&last);
    graph.named_linear(&mean, "classifier.1")
}

/// Blocks whose parts are `name.0` and so on: widening, if there is any, depthwise, weighing, narrowing.
fn inverted(graph: &mut Graph, from: &str, name: &str, stride: i64, function: Function, eps: f32) -> String {
    let is_depthwise = |graph: &Graph, place: usize| graph.dimension(&format!("{name}.{place}.0.weight"), 2) > 1;
    let mut place = 0;
    let mut out = from.to_owned();
    if !is_depthwise(graph, 0) {
        out = mix(graph, &out, &format!("{name}.0"), 1, Some(function), eps);
        place = 1;
    }
    let inputs = graph.dimension(&format!("{name}.0.0.weight"), if place == 1 { 1 } else { 0 });
    out = mix(graph, &out, &format!("{name}.{place}"), stride, Some(function), eps);
    place += 1;
    let squeeze = format!("{name}.{place}");
    if graph.has(&format!("{squeeze}.fc1.weight")) {
        out = weigh(graph, &out, &squeeze, function == Function::Silu);
        place += 1;
    }
    let narrow = format!("{name}.{place}");
    out = mix(graph, &out, &narrow, 1, None, eps);
    let outputs = graph.dimension(&format!("{narrow}.0.weight"), 0);
    join(graph, out, from, stride == 1 && inputs == outputs)
}

/// Squeeze-and-excitation, with smooth functions or with those of straight lines.
fn weigh(graph: &mut Graph, from: &str, name: &str, is_smooth: bool) -> String {
    let mean = graph.node("GlobalAveragePool", &[from], &[]);
    let thin = graph.padded(&mean, &format!("{name}.fc1"), 1, false);
    let thin = activate(graph, &thin, if is_smooth { Function::Silu } else { Function::Relu });
    let wide = graph.padded(&thin, &format!("{name}.fc2"), 1, false);
    let gate = match is_smooth {
        true => graph.node("Sigmoid", &[&wide], &[]),
        false => graph.node("HardSigmoid", &[&wide], &[("alpha", Float(1.0 / 6.0)), ("beta", Float(0.5))]),
    };
    graph.node("Mul", &[&gate, from], &[])
}

/// Strides of the blocks, and after how many blocks h-swish takes the place of ReLU.
fn mobilenet_v3(graph: &mut Graph, strides: &[i64], first_swish: usize) -> String {
    const NORM: f32 = 1e-3;
    let mut at = mix(graph, INPUT, "features.0", 2, Some(Function::HardSwish), NORM);
    for (block, stride) in strides.iter().enumerate() {
        let function = if block < first_swish { Function::Relu } else { Function::HardSwish };
        at = inverted(graph, &at, &format!("features.{}.block", block + 1), *stride, function, NORM);
    }
    let last = format!("features.{}", strides.len() + 1);
    let last = mix(graph, &at, &last, 1, Some(Function::HardSwish), NORM);
    let mean = graph.average(&last);
    let hidden = graph.named_linear(&mean, "classifier.0");
    let hidden = activate(graph, &hidden, Function::HardSwish);
    graph.named_linear(&hidden, "classifier.3")
}

fn efficientnet(graph: &mut Graph) -> String {
    let function = Function::Silu;
    let mut at = mix(graph, INPUT, "features.0", 2, Some(function), EPS);
    for (stage, stride) in (1..).zip([1, 2, 2, 2, 1, 2, 1]) {
        for place in 0.. {
            let name = format!("features.{stage}.{place}.block");
            if !graph.has(&format!("{name}.0.0.weight")) {
                break;
            }
            at = inverted(graph, &at, &name, if place == 0 { stride } else { 1 }, function, EPS);
        }
    }
    let last = mix(graph, &at, "features.8", 1, Some(function), EPS);
    let mean = graph.average(&last);
    graph.named_linear(&mean, "classifier.1")
}

/// Normalisation of each pixel over its channels.
fn pixel_norm(graph: &mut Graph, from: &str, name: &str) -> String {
    let last = graph.transpose(from, &[0, 2, 3, 1]);
    let normal = graph.layer_norm(&last, name, LAYER_EPS);
    graph.transpose(&normal, &[0, 3, 1, 2])
}

fn convnext(graph: &mut Graph) -> String {
    let patches = graph.convolution(INPUT, "features.0.0", 4, 0, false);
    let mut at = pixel_norm(graph, &patches, "features.0.1");
    for stage in 0..4 {
        if stage > 0 {
            let normal = pixel_norm(graph, &at, &format!("features.{}.0", 2 * stage));
            at = graph.convolution(&normal, &format!("features.{}.1", 2 * stage), 2, 0, false);
        }
        for place in 0.. {
            let name = format!("features.{}.{place}", 2 * stage + 1);
            if !graph.has(&format!("{name}.layer_scale")) {
                break;
            }
            let mixed = graph.padded(&at, &format!("{name}.block.0"), 1, true);
            let pixels = graph.transpose(&mixed, &[0, 2, 3, 1]);
            let normal = graph.layer_norm(&pixels, &format!("{name}.block.2"), LAYER_EPS);
            let hidden = graph.named_linear(&normal, &format!("{name}.block.3"));
            let hidden = graph.gelu(&hidden);
            let narrow = graph.named_linear(&hidden, &format!("{name}.block.5"));
            let narrow = graph.transpose(&narrow, &[0, 3, 1, 2]);
            let scaled = graph.node("Mul", &[&format!("{name}.layer_scale"), &narrow], &[]);
            at = graph.node("Add", &[&scaled, &at], &[]);
        }
    }
    let mean = graph.average(&at);
    let normal = graph.layer_norm(&mean, "classifier.0", LAYER_EPS);
    graph.named_linear(&normal, "classifier.2")
}

/// A vision transformer whose heads are so wide.
fn vit(graph: &mut Graph, head: i64) -> String {
    let patch = graph.dimension("conv_proj.weight", 2);
    let patches = graph.convolution(INPUT, "conv_proj", patch, 0, false);
    let width = graph.dimension("conv_proj.weight", 0);
    let rows = graph.reshape(&patches, &[0, width, -1]);
    let rows = graph.transpose(&rows, &[0, 2, 1]);
    // The class token, once for each sample.
    let shape = graph.node("Shape", &[&rows], &[("start", Int(0)), ("end", Int(1))]);
    let rest = graph.ints(&[1, width]);
    let shape = graph.node("Concat", &[&shape, &rest], &[("axis", Int(0))]);
    let token = graph.node("Expand", &["class_token", &shape], &[]);
    let joined = graph.node("Concat", &[&token, &rows], &[("axis", Int(1))]);
    let mut at = graph.node("Add", &[&joined, "encoder.pos_embedding"], &[]);
    for layer in 0.. {
        let name = format!("encoder.layers.encoder_layer_{layer}");
        if !graph.has(&format!("{name}.ln_1.weight")) {
            break;
        }
        let normal = graph.layer_norm(&at, &format!("{name}.ln_1"), LAYER_EPS);
        let attended = attention(graph, &normal, &format!("{name}.self_attention"), width, head);
        at = graph.node("Add", &[&attended, &at], &[]);
        let normal = graph.layer_norm(&at, &format!("{name}.ln_2"), LAYER_EPS);
        let hidden = graph.named_linear(&normal, &format!("{name}.mlp.0"));
        let hidden = graph.gelu(&hidden);
        let narrow = graph.named_linear(&hidden, &format!("{name}.mlp.3"));
        at = graph.node("Add", &[&narrow, &at], &[]);
    }
    let normal = graph.layer_norm(&at, "encoder.ln", LAYER_EPS);
    let first = graph.ints(&[0]);
    let first = graph.node("Gather", &[&normal, &first], &[("axis", Int(1))]);
    let first = graph.reshape(&first, &[0, width]);
    graph.named_linear(&first, "heads.head")
}

fn attention(graph: &mut Graph, from: &str, name: &str, width: i64, head: i64) -> String {
    let all = graph.linear(from, &format!("{name}.in_proj_weight"), &format!("{name}.in_proj_bias"));
    let sizes = graph.ints(&[width; 3]);
    let parts = graph.node_with("Split", &[&all, &sizes], &[("axis", Int(-1))], 3);
    // Keys are turned for the product.
    let orders = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]];
    let heads: Vec<String> = parts
        .iter()
        .zip(orders)
        .map(|(part, order)| {
            let split = graph.reshape(part, &[0, 0, width / head, head]);
            graph.transpose(&split, &order)
        })
        .collect();
    let scores = graph.node("MatMul", &[&heads[0], &heads[1]], &[]);
    let scale = graph.float(1.0 / (head as f32).sqrt());
    let scores = graph.node("Mul", &[&scores, &scale], &[]);
    let weights = graph.node("Softmax", &[&scores], &[("axis", Int(-1))]);
    let out = graph.node("MatMul", &[&weights, &heads[2]], &[]);
    let out = graph.transpose(&out, &[0, 2, 1, 3]);
    let out = graph.reshape(&out, &[0, 0, width]);
    graph.named_linear(&out, &format!("{name}.out_proj"))
}
