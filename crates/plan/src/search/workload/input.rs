//! What enters a network for one sample, as far as a plan depends on it: its bytes, and whether it is a photograph that
//! must be made ready.

use domain::problem::Problem;
use domain::workload::Workload;

use crate::estimate::limits::{self, PreprocessingRate};
use crate::model::{Graph, Input, ModelDescription};

/// Bytes of a token in a file of token numbers.
pub(super) const TOKEN_BYTES: u64 = 4;
/// Bytes of one value of a sound, as in WAV files.
const SOUND_BYTES: u64 = 2;
/// Bytes of another number.
const VALUE_BYTES: u64 = 4;

/// What making a photograph ready takes.
pub(super) fn photographs() -> PreprocessingRate {
    limits::SampleKind::Photographs.preparation()
}

/// What enters for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InputSpec {
    /// Bytes of one sample as it is stored.
    pub bytes: u64,
    /// Tokens, for a network over text.
    pub tokens: Option<u64>,
    /// A photograph is part of it.
    pub has_images: bool,
}

impl InputSpec {
    /// The input of one sample: that of the network's graph, else tokens if the job has a `sequence`, else a
    /// photograph.
    pub fn of(model: &ModelDescription, workload: &Workload) -> InputSpec {
        match model {
            ModelDescription::Graph(graph) if !graph.inputs.is_empty() => InputSpec::of_graph(graph),
            ModelDescription::Graph(_) | ModelDescription::Summary(_) => match workload.sequence {
                Some(tokens) => InputSpec { bytes: TOKEN_BYTES * tokens, tokens: Some(tokens), has_images: false },
                None => InputSpec { bytes: photographs().bytes as u64, tokens: None, has_images: true },
            },
        }
    }

    fn of_graph(graph: &Graph) -> InputSpec {
        let tokens = graph.tokens();
        let mut bytes = TOKEN_BYTES.saturating_mul(tokens.unwrap_or(0));
        let mut has_images = false;
        for input in &graph.inputs {
            let more = match input {
                Input::Tokens(_) => 0,
                Input::Image(_) => {
                    has_images = true;
                    photographs().bytes as u64
                }
                Input::Sound(values) => SOUND_BYTES.saturating_mul(*values),
                Input::Values(values) => VALUE_BYTES.saturating_mul(*values),
            };
            bytes = bytes.saturating_add(more);
        }
        InputSpec { bytes: bytes.max(1), tokens, has_images }
    }
}

/// Refuses a sequence length or an image size that the network does not support.
///
/// # Errors
/// The key of the job that does not match.
pub(super) fn fits(graph: &Graph, workload: &Workload) -> Result<(), Problem> {
    if graph.inputs.is_empty() {
        return Ok(());
    }
    let hears = |input: &Input| matches!(input, Input::Sound(_) | Input::Values(_));
    if let Some(asked) = workload.sequence {
        let takes = graph.inputs.iter().any(|input| matches!(input, Input::Tokens(tokens) if *tokens == asked));
        match graph.tokens() {
            Some(tokens) if !takes => {
                return Err(Problem::at(
                    "workload.sequence",
                    format!("the file of the network is for sequences of {tokens} tokens and no others"),
                )
                .hint(format!("write `sequence: {tokens}`, or export the network again for {asked} tokens")));
            }
            None if !graph.inputs.iter().any(hears) => {
                return Err(Problem::at("workload.sequence", "this network reads images, and no sequences of tokens")
                    .hint("leave `sequence` out"));
            }
            Some(_) | None => {}
        }
    }
    let Some(side) = workload.image else { return Ok(()) };
    let images: Vec<[u64; 3]> = graph
        .inputs
        .iter()
        .filter_map(|input| match input {
            Input::Image(image) => Some(*image),
            Input::Tokens(_) | Input::Sound(_) | Input::Values(_) => None,
        })
        .collect();
    match images.first() {
        None => Err(Problem::at("workload.image", "this network takes no images").hint("leave `image` out")),
        Some(_) if images.iter().any(|image| image.contains(&side)) => Ok(()),
        Some([_, height, width]) => Err(Problem::at(
            "workload.image",
            format!("the file of the network is for images of {height} × {width} pixels and no others"),
        )
        .hint(format!("leave `image` out, or export the network again for {side} pixels"))),
    }
}
