//! Each node of an ONNX file as an operator of the graph, with the dimensions of what it writes.

mod attention;
mod attributes;
mod constants;
mod flow;
mod norms;
mod products;
mod quantised;
mod shapes;

use std::collections::BTreeSet;

use domain::problem::Problem;

use self::attributes::{axis, broadcast, int, ints};
use self::constants::fold;
use self::norms::{batch_norm, layer_norm, normalise};
use self::products::{convolution, einsum, gemm, matmul, recurrent};
use super::super::SampleShape;
use super::file::{Graph, Node};
use super::patterns::{self, Role};
use super::values::{State, Value, product};
use super::weights::Missing;
use crate::model::builder::Owned;
use crate::model::{Function, Norm, OpKind, TensorId};

/// Translates every node, and returns the graph, how many samples it is for, and which of its listed weights it lacks.
pub(super) fn translate<'a>(
    graph: &'a Graph<'a>,
    shape: &SampleShape,
) -> Result<(crate::model::Graph, u64, Option<Missing>), Problem> {
    let mut state = State::new(graph, shape)?;
    let roles = patterns::find(graph);
    for (index, node) in graph.nodes.iter().enumerate() {
        (state.at_work, state.module) = (node.name, node.module);
        // Shapes are computed with the same pieces as activations; those are left to `plain`.
        let varies = |of: &str| state.get(of).is_some_and(|value| !value.is_fixed());
        let role = roles.get(&index).filter(|role| match role {
            Role::Skip { of } | Role::Same { of } | Role::Function { of, .. } | Role::Norm { of, .. } => varies(of),
        });
        if role.is_none() {
            step(&mut state, node);
            continue;
        }
        let done = match role {
            Some(Role::Skip { .. }) => Some(()),
            Some(Role::Same { of }) => state.get(of).cloned().map(|value| state.set(node, 0, value)),
            Some(Role::Function { function, of }) => apply(&mut state, node, of, *function, false),
            Some(Role::Norm { norm, of, weights }) => {
                let weights: Vec<Value> = weights.iter().filter_map(|name| state.get(name).cloned()).collect();
                let from = state.get(of).cloned();
                from.and_then(|from| {
                    let groups = from.elements() / from.last().max(1);
                    normalise(&mut state, node, &from, *norm, groups, &weights)
                })
            }
            None => None,
        };
        if done.is_none() {
            give_up(&mut state, node);
        }
    }
    add_loss(&mut state, graph);
    Ok(state.finish())
}

/// Translates a node that is no part of a larger pattern.
fn step<'a>(state: &mut State<'a>, node: &'a Node<'a>) {
    (state.at_work, state.module) = (node.name, node.module);
    let done = match flow::inner(node) {
        Some(inner) => flow::run(state, node, inner, step),
        None => quantised::read(state, node).unwrap_or_else(|| plain(state, node)),
    };
    if done.is_none() {
        give_up(state, node);
    }
}

/// A node that is what it seems. None where it is not understood.
fn plain<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<()> {
    if node.operator == "Constant"
        && let Some(stored) = node.attributes.get("value").and_then(|attribute| attribute.tensor.as_ref())
    {
        let value = state.stored(stored);
        state.set(node, 0, value);
        return Some(());
    }
    if let Some(mut value) = fold(state, node) {
        value.weights = fixed_weights(state, node);
        value.tensor = None;
        state.set(node, 0, value);
        return Some(());
    }
    let present: Vec<Value> = (0..node.inputs.len()).filter_map(|index| state.at(node, index)).collect();
    // A product of a constant, or of another weight, with a weight is computed in each step.
    let is_step = match node.operator {
        "RandomNormalLike" | "RandomUniformLike" => true,
        "MatMul" | "Gemm" => present.iter().any(|value| state.is_trained_matrix(value)),
        _ => false,
    };
    if present.iter().all(Value::is_fixed) && !is_step {
        if node.operator == "Split" {
            return split(state, node);
        }
        // Made of weights and constants alone: no operator of a training step.
        let dims = shapes::dims(state, node).or_else(|| state.told(node.outputs.first()?)).unwrap_or_default();
        let weights = fixed_weights(state, node);
        state.set(node, 0, Value { dims, weights, ..Value::default() });
        return Some(());
    }
    operator(state, node)
}

/// A node of a training step, which notes all that it writes. None where it is not understood.
fn operator<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<()> {
    match node.operator {
        "LSTM" => recurrent(state, node, 4),
        "GRU" => recurrent(state, node, 3),
        "RNN" => recurrent(state, node, 1),
        "BatchNormalization" => batch_norm(state, node),
        "LayerNormalization" | "SkipLayerNormalization" | "RMSNormalization" | "SimplifiedLayerNormalization" => {
            layer_norm(state, node)
        }
        "InstanceNormalization" | "GroupNormalization" | "LRN" | "LpNormalization" | "MeanVarianceNormalization" => {
            let from = state.at(node, 0)?;
            let weights: Vec<Value> = (1..3).filter_map(|index| state.at(node, index)).collect();
            let groups = product(&from.dims[..from.dims.len().min(2)]);
            normalise(state, node, &from, Norm::Group, groups, &weights)
        }
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" | "Sum" | "Mean" | "Pow" | "Mod" | "BiasGelu" | "FastGelu" => {
            combine(state, node)
        }
        "Gather" => gather(state, node),
        "Split" => split(state, node),
        name => match function(name) {
            Some((function, in_place)) => apply(state, node, node.inputs.first()?, function, in_place),
            None => {
                let written = written(state, node)?;
                state.set(node, 0, written);
                Some(())
            }
        },
    }
}

/// What a node writes that has one output. None where it is not understood.
fn written<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<Value> {
    match node.operator {
        "Conv" | "FusedConv" => convolution(state, node, false),
        "ConvTranspose" => convolution(state, node, true),
        "Gemm" => gemm(state, node),
        "MatMul" | "FusedMatMul" => matmul(state, node),
        "Einsum" => einsum(state, node),
        "Attention" | "MultiHeadAttention" | "GroupQueryAttention" => attention::operator(state, node),
        "MaxPool" | "AveragePool" | "LpPool" | "GlobalAveragePool" | "GlobalMaxPool" | "ReduceMean" | "ReduceMax"
        | "ReduceMin" | "ReduceSum" | "ReduceL1" | "ReduceL2" | "ReduceLogSumExp" | "ReduceSumSquare"
        | "ReduceProd" => {
            let from = state.at(node, 0)?;
            let dims = shapes::dims(state, node)?;
            let maximum = node.operator.contains("Max");
            let kind = OpKind::Pool { maximum, inputs: from.elements(), outputs: product(&dims) };
            Some(write(state, node, kind, dims))
        }
        "Softmax" | "LogSoftmax" => {
            let from = state.at(node, 0)?;
            Some(write(state, node, OpKind::Softmax { elements: from.elements() }, from.dims))
        }
        "Dropout" => {
            let from = state.at(node, 0)?;
            Some(write(state, node, OpKind::Dropout { elements: from.elements() }, from.dims))
        }
        "Resize" | "Upsample" => {
            let dims = shapes::dims(state, node)?;
            Some(write(state, node, OpKind::Resize { elements: product(&dims) }, dims))
        }
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Identity" | "Cast" | "CastLike" | "Transpose" | "Slice"
        | "QuantizeLinear" | "DequantizeLinear" => {
            let dims = shapes::dims(state, node)?;
            let from = state.at(node, 0)?;
            Some(Value { known: from.known, ..write(state, node, OpKind::View, dims) })
        }
        "Concat" | "Pad" | "Expand" | "Tile" | "DepthToSpace" | "SpaceToDepth" | "Where" | "GatherElements"
        | "GatherND" | "ScatterND" | "ScatterElements" | "Trilu" | "CumSum" | "OneHot" | "ArgMax" | "ArgMin"
        | "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "Not" | "And" | "Or" | "IsNaN"
        | "IsInf" | "Shape" => copied(state, node),
        "PRelu" => {
            let (from, slope) = (state.at(node, 0)?, state.at(node, 1)?);
            let owned = state.own(&[&slope]);
            let kind = OpKind::Activation { function: Function::Other, elements: from.elements(), in_place: false };
            Some(write_with(state, node, kind, from.dims, owned))
        }
        _ => None,
    }
}

/// What a node writes that moves values. Tokens that are trained are joined to those that are computed.
fn copied<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<Value> {
    let dims = shapes::dims(state, node)?;
    let trained: Vec<Value> = match node.operator {
        "Concat" => (0..node.inputs.len()).filter_map(|at| state.at(node, at)).filter(Value::is_fixed).collect(),
        _ => Vec::new(),
    };
    let owned = state.own(&trained.iter().collect::<Vec<_>>());
    Some(write_with(state, node, OpKind::Copy { elements: product(&dims) }, dims, owned))
}

/// Functions of each value, and whether most networks overwrite their input with it.
fn function(operator: &str) -> Option<(Function, bool)> {
    Some(match operator {
        "Relu" | "LeakyRelu" | "Clip" | "ThresholdedRelu" => (Function::Relu, true),
        "Sigmoid" | "HardSigmoid" => (Function::Sigmoid, false),
        "Tanh" => (Function::Tanh, false),
        "Gelu" | "QuickGelu" => (Function::Gelu, false),
        "Swish" => (Function::Silu, false),
        "HardSwish" => (Function::HardSwish, false),
        "Elu" | "Selu" | "Celu" | "Mish" | "Softplus" | "Softsign" | "Erf" | "Exp" | "Log" | "Sqrt" | "Abs" | "Neg"
        | "Reciprocal" | "Sin" | "Cos" | "Tan" | "Atan" | "Floor" | "Ceil" | "Round" | "Sign" | "Shrink" => {
            (Function::Other, false)
        }
        _ => return None,
    })
}

/// A weight that a file computes is made of few others; a longer list would grow with each node of a chain.
const MOST_MADE_OF: usize = 64;

/// Trained weights that a node makes a weight of.
fn fixed_weights<'a>(state: &mut State<'a>, node: &Node<'a>) -> Vec<usize> {
    let mut all: BTreeSet<usize> = BTreeSet::new();
    for index in 0..node.inputs.len() {
        let of = state.at(node, index).map(|value| value.weights).unwrap_or_default();
        all.extend(of.into_iter().filter(|weight| state.is_trained(*weight)));
        if all.len() > MOST_MADE_OF {
            state.unknown("weights beyond the first 64 that one is computed from");
            break;
        }
    }
    let mut all: Vec<usize> = all.into_iter().take(MOST_MADE_OF).collect();
    state.without_copies(&mut all);
    all
}

/// Adds an operator over the node's activations.
fn write<'a>(state: &mut State<'a>, node: &Node<'a>, kind: OpKind, dims: Vec<u64>) -> Value {
    write_with(state, node, kind, dims, Owned::NOTHING)
}

fn write_with<'a>(state: &mut State<'a>, node: &Node<'a>, kind: OpKind, dims: Vec<u64>, owned: Owned) -> Value {
    let inputs: Vec<TensorId> = (0..node.inputs.len()).filter_map(|index| state.at(node, index)?.tensor).collect();
    let tensor = state.builder.add(node.name, kind, &inputs, product(&dims), owned);
    Value { dims, tensor: Some(tensor), ..Value::default() }
}

fn apply<'a>(state: &mut State<'a>, node: &Node<'a>, of: &str, function: Function, in_place: bool) -> Option<()> {
    let from = state.get(of).cloned()?;
    let kind = OpKind::Activation { function, elements: from.elements(), in_place };
    let tensor = state.builder.add(node.name, kind, &[from.tensor?], from.elements(), Owned::NOTHING);
    state.set(node, 0, Value { dims: from.dims, tensor: Some(tensor), ..Value::default() });
    Some(())
}

/// Sums and products of tensors, with weights or with each other.
fn combine<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<()> {
    let values: Vec<Value> = (0..node.inputs.len()).filter_map(|index| state.at(node, index)).collect();
    let dims = values.iter().fold(Vec::new(), |dims, value| broadcast(&dims, &value.dims));
    let elements = product(&dims);
    let varying: Vec<&Value> = values.iter().filter(|value| !value.is_fixed()).collect();
    let fixed: Vec<&Value> = values.iter().filter(|value| value.is_fixed()).collect();
    let inputs: Vec<TensorId> = varying.iter().filter_map(|value| value.tensor).collect();
    if let ("Add", [.., rows, columns]) = (node.operator, dims.as_slice())
        && rows == columns
    {
        fixed.iter().for_each(|value| state.added_to_scores(value, *rows));
    }
    if node.operator == "Mul" {
        fixed.iter().for_each(|value| state.multiplied(value));
    }
    // Single numbers scale; longer ones are weights, such as the bias of a product.
    let owned = match fixed.iter().any(|value| value.elements() > 1) {
        true => state.own(&fixed.iter().copied().filter(|value| value.elements() > 1).collect::<Vec<_>>()),
        false => Owned::NOTHING,
    };
    let is_sum = matches!(node.operator, "Add" | "Sub" | "Sum" | "Mean");
    if let (true, [one], true) = (is_sum, varying.as_slice(), owned.parameters > 0)
        && one.elements() == elements
        && state.builder.add_bias(one.tensor?, owned)
    {
        let value = Value { dims, tensor: one.tensor, ..Value::default() };
        state.set(node, 0, value);
        return Some(());
    }
    let kind = match node.operator {
        "BiasGelu" | "FastGelu" => OpKind::Activation { function: Function::Gelu, elements, in_place: false },
        _ => {
            let product = matches!(node.operator, "Mul" | "Div") && (inputs.len() > 1 || owned.parameters > 0);
            OpKind::Elementwise { elements, inputs: inputs.len() as u32, product }
        }
    };
    let tensor = state.builder.add(node.name, kind, &inputs, elements, owned);
    state.set(node, 0, Value { dims, tensor: Some(tensor), ..Value::default() });
    Some(())
}

fn gather<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<()> {
    let (data, indices) = (state.at(node, 0)?, state.at(node, 1)?);
    let dims = shapes::dims(state, node)?;
    let table = data.is_fixed() && data.dims.len() >= 2;
    let kind = match table {
        true => OpKind::Embedding {
            rows: indices.elements(),
            vocabulary: data.dims[0],
            width: product(&data.dims[1..]),
            split: crate::model::WeightSplit::Rows,
        },
        false => OpKind::Copy { elements: product(&dims) },
    };
    if table {
        state.looked_up(&data);
    }
    let owned = state.own(&[&data]);
    let value = write_with(state, node, kind, dims, owned);
    state.set(node, 0, value);
    Some(())
}

fn split<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<()> {
    let from = state.at(node, 0)?;
    let rank = from.dims.len();
    let axis = axis(int(node, "axis", 0), rank).filter(|axis| *axis < rank)?;
    let parts = node.outputs.len() as u64;
    let sizes = ints(node, "split").or_else(|| state.at(node, 1).and_then(|value| value.known));
    let even = (from.dims[axis].div_ceil(parts.max(1))) as f64;
    for index in 0..node.outputs.len() {
        let mut dims = from.dims.clone();
        dims[axis] = sizes.as_ref().map_or(even, |sizes| sizes.get(index).copied().unwrap_or(even)).max(0.0) as u64;
        let value = match from.is_fixed() {
            true => Value { dims, weights: from.weights.clone(), ..Value::default() },
            false => write(state, node, OpKind::View, dims),
        };
        state.set(node, index, value);
    }
    Some(())
}

/// Notes what was not understood, and goes on with what the file says of its output, or as if it copied its input.
fn give_up<'a>(state: &mut State<'a>, node: &Node<'a>) {
    state.unknown(node.operator);
    let from = (0..node.inputs.len())
        .filter_map(|index| state.at(node, index))
        .max_by_key(Value::elements)
        .unwrap_or_default();
    let fixed: Vec<Value> =
        (0..node.inputs.len()).filter_map(|index| state.at(node, index)).filter(Value::is_fixed).collect();
    // Whatever it does with its weights, they are trained.
    let mut owned = state.own(&fixed.iter().collect::<Vec<_>>());
    for (index, name) in node.outputs.iter().enumerate() {
        let dims = state.told(name).unwrap_or_else(|| from.dims.clone());
        let owned = std::mem::take(&mut owned);
        let value = write_with(state, node, OpKind::Copy { elements: product(&dims) }, dims, owned);
        state.set(node, index, value);
    }
}

/// Files hold no loss. Scores of classes at the end of a network are taken to be trained by one.
fn add_loss<'a>(state: &mut State<'a>, graph: &'a Graph<'a>) {
    let Some(output) = graph.outputs.first().and_then(|output| state.get(output.name)).cloned() else { return };
    let Some(tensor) = output.tensor else { return };
    if (2..=3).contains(&output.dims.len()) && output.last() > 1 && state.builder.is_product(tensor) {
        state.builder.loss(tensor, output.elements() / output.last(), output.last());
    }
}
