//! Networks over sound.

use domain::problem::Problem;

use super::fields::ConfigFields;
use crate::model::families::block::{Feed, Order, TransformerBlock};
use crate::model::families::sound::{Convolved, SpeechHead};
use crate::model::families::{Wav2vec, Whisper};
use crate::model::{Function, Graph};

/// Values of ten seconds of sound, 16,000 a second, which is taken where nothing is said.
const TEN_SECONDS: u64 = 160_000;

pub(super) fn whisper(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.or(&["d_model"], 384)?;
    let function = figures.function(&["activation_function"], Function::Gelu);
    let block = |side: &str| -> Result<TransformerBlock, Problem> {
        let heads = figures.or(&[&format!("{side}_attention_heads")], 6)?;
        figures.divides(&format!("{side}_attention_heads"), heads, hidden)?;
        Ok(TransformerBlock {
            key_bias: false,
            causal: side == "decoder",
            attention_dropout: figures.rate("attention_dropout", false),
            dropout: figures.rate("dropout", false),
            feed: Feed {
                function,
                dropout: figures.rate("activation_dropout", false),
                ..Feed::plain(figures.or(&[&format!("{side}_ffn_dim")], 1536)?)
            },
            ..TransformerBlock::pre_norm(hidden, heads)
        })
    };
    let positions = figures.or(&["max_target_positions"], 448)?;
    let network = Whisper {
        bands: figures.or(&["num_mel_bins"], 80)?.min(1 << 12),
        source: figures.or(&["max_source_positions"], 1500)?,
        positions,
        target: figures.shape.sequence.map_or(Ok(positions), |_| figures.sequence_within(positions))?,
        encoder_layers: match figures.architecture().ends_with("ForCausalLM") {
            true => 0,
            false => figures.layers_or("encoder_layers", 4)?,
        },
        decoder_layers: figures.layers_or("decoder_layers", 4)?,
        encoder: block("encoder")?,
        decoder: block("decoder")?,
        vocabulary: figures.or(&["vocab_size"], 51865)?,
        scores: !figures.is_bare(),
        class: match figures.architecture().ends_with("ForAudioClassification") {
            true => Some((figures.or(&["classifier_proj_size"], 256)?.min(1 << 16), figures.classes(2)?)),
            false => None,
        },
    };
    let mut graph = network.graph();
    if network.class.is_none() && network.encoder_layers > 0 {
        graph.assumed.push(format!("answers of {} tokens are written to 30 seconds of sound", network.target));
    }
    Ok(graph)
}

pub(super) fn wav2vec(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.or(&["hidden_size"], 768)?;
    let heads = figures.or(&["num_attention_heads"], 12)?;
    figures.divides("num_attention_heads", heads, hidden)?;
    let samples = figures.shape.sequence.unwrap_or(TEN_SECONDS);
    let before = figures.flag("do_stable_layer_norm", false);
    let network = Wav2vec {
        samples: samples.clamp(400, 1 << 24),
        convolutions: convolutions(figures)?,
        convolution_bias: figures.flag("conv_bias", false),
        norms_each: figures.text("feat_extract_norm") == Some("layer"),
        layers: figures.layers_or("num_hidden_layers", 12)?,
        block: TransformerBlock {
            order: if before { Order::Before } else { Order::After },
            attention_dropout: figures.rate("attention_dropout", true),
            dropout: figures.rate("hidden_dropout", true),
            feed: Feed {
                function: figures.function(&["hidden_act"], Function::Gelu),
                dropout: figures.rate("activation_dropout", true),
                ..Feed::plain(figures.or(&["intermediate_size"], 3072)?)
            },
            ..TransformerBlock::pre_norm(hidden, heads)
        },
        position_kernel: figures.or(&["num_conv_pos_embeddings"], 128)?.min(1 << 12),
        position_groups: figures.or(&["num_conv_pos_embedding_groups"], 16)?.clamp(1, hidden),
        head: match figures.architecture() {
            name if name.ends_with("ForCTC") => SpeechHead::Letters { vocabulary: figures.or(&["vocab_size"], 32)? },
            name if name.ends_with("ForSequenceClassification") => SpeechHead::Class {
                classes: figures.classes(2)?,
                width: figures.or(&["classifier_proj_size"], 256)?.min(1 << 16),
            },
            _ => SpeechHead::Nothing,
        },
    };
    let mut graph = network.graph();
    if figures.shape.sequence.is_none() {
        graph.assumed.push("a sample is ten seconds of sound, 16,000 values each; `sequence` is how many".to_owned());
    }
    if figures.architecture().ends_with("ForPreTraining") {
        graph.unknown.push("what pre-training adds to the blocks ×1".to_owned());
    }
    Ok(graph)
}

/// The convolutions over the sound, as three lists of one length say them.
fn convolutions(figures: &ConfigFields) -> Result<Vec<Convolved>, Problem> {
    let lists = [
        ("conv_dim", vec![512; 7]),
        ("conv_kernel", vec![10, 3, 3, 3, 3, 2, 2]),
        ("conv_stride", vec![5, 2, 2, 2, 2, 2, 2]),
    ];
    let mut read = Vec::new();
    for (key, usual) in lists {
        read.push(figures.list(key)?.unwrap_or(usual));
    }
    let count = read[0].len();
    if count == 0 || count > 32 || read.iter().any(|list| list.len() != count) {
        return Err(Problem::at("conv_dim", "`conv_dim`, `conv_kernel` and `conv_stride` do not belong together")
            .hint("one of each a convolution"));
    }
    let convolved = |index: usize| Convolved {
        channels: read[0][index].min(1 << 14),
        kernel: read[1][index].min(1 << 10),
        stride: read[2][index].min(1 << 10),
    };
    Ok((0..count).map(convolved).collect())
}
