//! Networks from the header of a safetensors file: the names, types and shapes of its tensors, and no data.
//!
//! [`header`] reads, within bounds; [`sequences`] and [`images`] recover five families by names that belong together
//! and the shapes under them. The recovered graph must hold as many weights as the file; what shapes cannot tell is
//! assumed and listed in the graph's `unknown`.

mod header;
mod images;
mod sequences;
#[cfg(test)]
mod tests;

use domain::problem::Problem;

use self::header::Header;
use super::SampleShape;
use crate::model::Graph;

/// What to give instead.
const INSTEAD: &str = "give the model's `config.json`, or export the network to ONNX and give that file";

/// A recovered graph may differ from the file by this share of the weights: a head or a pooler more or less.
const TOLERATED: f64 = 0.02;

/// Whether bytes begin as a safetensors file does: a length of 32 bits in 64, and a JSON object.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.len() > 8 && bytes[4..8] == [0; 4] && bytes[8] == b'{'
}

/// Reads the header of a safetensors file; the data behind it may be missing.
pub fn read(bytes: &[u8], shape: &SampleShape) -> Result<Graph, Problem> {
    let header = Header::read(bytes)?;
    let families: [fn(&Header, &SampleShape) -> Option<Graph>; 5] =
        [sequences::bert, sequences::gpt2, sequences::llama, images::vit, images::resnet];
    let Some(mut graph) = families.iter().find_map(|family| family(&header, shape)) else {
        let first = header.first().unwrap_or("nothing");
        return Err(Problem::at(
            "",
            format!(
                "the tensors of the safetensors file (the first is `{first}`) are not those of BERT, GPT-2, Llama, \
                ResNet or ViT"
            ),
        )
        .hint(INSTEAD));
    };
    let (recovered, stored) = (graph.parameters(), header.weights());
    if recovered.abs_diff(stored) as f64 > TOLERATED * stored as f64 {
        return Err(Problem::at(
            "",
            format!("the safetensors file holds {stored} weights, and the network that its names tell has {recovered}"),
        )
        .hint(INSTEAD));
    }
    if recovered != stored {
        graph.unknown.push(format!("{} weights more or less than the file holds ×1", recovered.abs_diff(stored)));
    }
    Ok(graph)
}
