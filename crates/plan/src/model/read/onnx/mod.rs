//! Networks from ONNX files: messages are parsed in place, shapes are inferred node by node, and each node becomes an
//! operator of the graph.
//!
//! [`file`] reads messages; [`values`] holds what is known of each value (its dimensions, small constants, which weights it
//! is made of) and [`weights`] how much of each weight is trained; [`nodes`] translates, helped by [`patterns`], which
//! finds what exporters wrote out in small pieces (normalisations, GELU, SiLU). Then the graph is put in order:
//! [`folded`] adds what the exporter left out, [`attention`] fuses what it wrote out, [`blocks`] finds the repeated parts.
//! [`beside`] says which values in another file matter.

mod attention;
pub mod beside;
mod blocks;
mod file;
mod folded;
mod nodes;
mod patterns;
#[cfg(test)]
mod tests;
mod values;
mod weights;

use domain::problem::Problem;

use super::SampleShape;
use crate::model::Graph;

/// What may be wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    /// It ends too early.
    Cut,
    /// It is not in the format.
    Strange,
    /// It claims more than any network has.
    TooMuch,
}

/// Reads an ONNX file. Weights may be in the file or in an external one: only their dimensions are used.
pub fn read(bytes: &[u8], shape: &SampleShape) -> Result<Graph, Problem> {
    let hint = "export the model again, or give its `config.json`";
    let message = match file::model(bytes) {
        Ok(Some(graph)) if !graph.nodes.is_empty() => graph,
        Ok(_) => return Err(Problem::at("", "the file holds no network that ONNX would").hint(hint)),
        Err(broken) => {
            let why = match broken {
                Broken::Cut => "it ends too early",
                Broken::Strange => "its bytes are not in the format",
                Broken::TooMuch => "it claims more parts than any network has",
            };
            return Err(Problem::at("", format!("the file cannot be read as ONNX: {why}")).hint(hint));
        }
    };
    let (mut graph, batch, missing) = nodes::translate(&message, shape)?;
    match missing {
        Some(missing) => folded::restore(&mut graph, missing),
        None => folded::unfold(&mut graph),
    }
    attention::fuse(&mut graph);
    blocks::find(&mut graph);
    per_sample(&mut graph, batch);
    Ok(graph)
}

/// Divides the sizes of a file with a fixed batch size by the batch.
fn per_sample(graph: &mut Graph, batch: u64) {
    use crate::model::OpKind;
    if batch <= 1 {
        return;
    }
    for elements in &mut graph.tensors {
        *elements = elements.div_ceil(batch);
    }
    for operator in &mut graph.operators {
        let divided = |size: &mut u64| *size = size.div_ceil(batch);
        match &mut operator.kind {
            OpKind::Convolution { positions, .. } => divided(positions),
            OpKind::Linear { rows, .. } | OpKind::Embedding { rows, .. } | OpKind::Loss { rows, .. } => divided(rows),
            OpKind::Attention { heads, key_heads, .. } => {
                divided(heads);
                divided(key_heads);
            }
            OpKind::Product { batch: products, .. } => divided(products),
            OpKind::Recurrent { .. } | OpKind::View => {}
            OpKind::Norm { norm, elements, groups } => {
                divided(elements);
                match norm {
                    crate::model::Norm::Batch => {}
                    crate::model::Norm::Layer | crate::model::Norm::Rms | crate::model::Norm::Group => divided(groups),
                }
            }
            OpKind::Pool { inputs, outputs, .. } => {
                divided(inputs);
                divided(outputs);
            }
            OpKind::Activation { elements, .. }
            | OpKind::Elementwise { elements, .. }
            | OpKind::Softmax { elements }
            | OpKind::Dropout { elements }
            | OpKind::Resize { elements }
            | OpKind::Copy { elements } => divided(elements),
        }
    }
}
