//! Decoders without attention, which keep a state instead: Mamba, Mamba-2, RWKV.

use domain::problem::Problem;

use super::fields::ConfigFields;
use crate::model::Graph;
use crate::model::families::{Mamba, Mamba2, Rwkv};

/// What is said of all of them.
const FUSED: &str = "the states are computed by a fused kernel, which keeps none of them; written out, as `transformers` \
    does without that kernel, they take much more memory and time";

pub(super) fn mamba(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.or(&["hidden_size", "d_model"], 768)?;
    let inner = figures.or(&["intermediate_size"], hidden * figures.small(&["expand"], 2)?.min(64))?;
    let network = Mamba {
        layers: figures.layers(&["num_hidden_layers", "n_layer"])?,
        hidden,
        inner,
        state: figures.small(&["state_size"], 16)?,
        rank: match figures.text("time_step_rank") {
            Some(_) => hidden.div_ceil(16),
            None => figures.or(&["time_step_rank"], hidden.div_ceil(16))?,
        },
        kernel: figures.small(&["conv_kernel"], 4)?,
        bias: figures.flag("use_bias", false),
        convolution_bias: figures.flag("use_conv_bias", true),
        vocabulary: figures.or(&["vocab_size"], 50280)?,
        tied: figures.flag("tie_word_embeddings", true),
        scores: !figures.is_bare(),
        sequence: figures.sequence(&["max_position_embeddings"])?,
    };
    figures.say(FUSED.to_owned());
    Ok(network.graph())
}

/// Mamba-2: heads that do not make up the inner width are refused, as by `transformers`.
pub(super) fn mamba2(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["hidden_size"])?;
    let heads = figures.free_heads(&["num_heads"])?;
    let head_width = figures.number(&["head_dim"])?;
    let inner = hidden * figures.small(&["expand"], 2)?.min(64);
    if heads * head_width != inner {
        let message = format!("{heads} heads of {head_width} are no inner width of {inner}");
        return Err(Problem::at("num_heads", message).hint("`num_heads` × `head_dim` = `hidden_size` × `expand`"));
    }
    let groups = figures.small(&["n_groups"], 8)?;
    figures.divides("n_groups", groups, heads)?;
    let network = Mamba2 {
        layers: figures.layers(&["num_hidden_layers"])?,
        hidden,
        heads,
        head_width,
        groups,
        state: figures.small(&["state_size"], 128)?,
        kernel: figures.small(&["conv_kernel"], 4)?,
        piece: figures.small(&["chunk_size"], 256)?,
        bias: figures.flag("use_bias", false),
        convolution_bias: figures.flag("use_conv_bias", true),
        vocabulary: figures.number(&["vocab_size"])?,
        tied: figures.flag("tie_word_embeddings", false),
        scores: !figures.is_bare(),
        sequence: figures.sequence(&["max_position_embeddings"])?,
    };
    let graph = network.graph();
    figures.say(FUSED.to_owned());
    Ok(graph)
}

pub(super) fn rwkv(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["hidden_size"])?;
    let network = Rwkv {
        layers: figures.layers(&["num_hidden_layers"])?,
        hidden,
        inner: figures.or(&["attention_hidden_size"], hidden)?,
        feed_forward: figures.or(&["intermediate_size"], 4 * hidden)?,
        vocabulary: figures.number(&["vocab_size"])?,
        tied: figures.flag("tie_word_embeddings", false),
        scores: !figures.is_bare(),
        sequence: figures.sequence(&["context_length"])?,
    };
    figures.say(FUSED.to_owned());
    Ok(network.graph())
}
