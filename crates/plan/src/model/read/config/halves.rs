//! Networks of two halves, one that sees and one that reads and writes: the first's patches are widened to tokens of the
//! second (Liu et al. 2023, LLaVA).

use domain::problem::Problem;

use super::fields::ConfigFields;
use super::images;
use crate::model::builder::Rows;
use crate::model::{Builder, Function, Graph, Norm, WeightSplit};

/// Joins the half that sees to `reads`, the graph of `text`; none where the type's way between them is not known.
pub(super) fn joined(figures: &ConfigFields, text: &ConfigFields, reads: &Graph) -> Result<Option<Graph>, Problem> {
    let between = match figures.text("model_type") {
        Some("llava" | "vipllava") => Between::Two,
        Some("paligemma") => Between::One,
        Some("gemma3") => Between::Normal,
        Some(_) | None => return Ok(None),
    };
    let usual = if between == Between::Two { "clip_vision_model" } else { "siglip_vision_model" };
    let sight = figures.part_or_usual("vision_config", usual);
    let kind = sight.text("model_type").unwrap_or(usual);
    if !matches!(kind, "clip_vision_model" | "siglip_vision_model") {
        return Ok(None);
    }
    let mut graph = images::clip_half(&sight, kind, true)?;
    let (from, to) = (sight.number(&["hidden_size"])?, text.number(&["hidden_size"])?);
    let patches = patches(&graph, from);
    graph.append(between.graph(patches, from, to));
    graph.append(reads.clone());
    graph.assumed.push(format!("the tokens of an image, {patches} at most, are among those of a sample"));
    Ok(Some(graph))
}

/// Rows of `width` that the half that sees leaves.
fn patches(graph: &Graph, width: u64) -> u64 {
    graph.tensors.last().map_or(1, |elements| elements / width.max(1)).max(1)
}

/// What stands between the halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    /// Two linear layers.
    Two,
    /// One linear layer.
    One,
    /// A normalisation, and a linear layer without bias.
    Normal,
}

impl Between {
    fn graph(self, rows: u64, from: u64, to: u64) -> Graph {
        let mut builder = Builder::new();
        let mut at = Rows { tensor: builder.input(rows * from), rows, width: from };
        if self == Between::Normal {
            at = builder.norm("between.norm", at, Norm::Rms, false);
        }
        at = builder.linear("between", at, to, self != Between::Normal, WeightSplit::Whole);
        if self == Between::Two {
            at = builder.apply("between.activation", at, Function::Gelu);
            builder.linear("between.second", at, to, true, WeightSplit::Whole);
        }
        builder.finish()
    }
}
