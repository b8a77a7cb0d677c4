//! Encoders, and encoders with decoders.

use domain::problem::Problem;

use super::fields::ConfigFields;
use crate::model::families::block::{Feed, Order, TransformerBlock};
use crate::model::families::language::bert::{Distances, Head};
use crate::model::families::language::decoder::DecoderHead;
use crate::model::families::language::encoder_decoder;
use crate::model::families::{Bert, DecoderOnly, EncoderDecoder};
use crate::model::{Function, Graph, Norm};

/// What is asked of a type that pools nothing where nothing is asked.
fn unpooled(figures: &ConfigFields) -> Result<Head, Problem> {
    Ok(match figures.encoder_head()? {
        Head::Pooled => Head::Nothing,
        head => head,
    })
}

pub(super) fn bert(figures: &ConfigFields, kind: &str) -> Result<Graph, Problem> {
    let hidden = figures.number(&["hidden_size"])?;
    let positions = figures.or(&["max_position_embeddings"], 512)?;
    let bert = Bert {
        layers: figures.layers(&["num_hidden_layers"])?,
        hidden,
        heads: figures.heads(&["num_attention_heads"], hidden)?,
        feed_forward: figures.number(&["intermediate_size"])?,
        function: figures.function(&["hidden_act"], if kind == "albert" { Function::GeluNew } else { Function::Gelu }),
        vocabulary: figures.number(&["vocab_size"])?,
        positions,
        embedding: figures.or(&["embedding_size"], 0)?,
        shared: kind == "albert",
        token_types: figures.positive_or_usual("type_vocab_size")?.unwrap_or(0),
        dropout: figures.rate("hidden_dropout_prob", kind != "albert"),
        attention_dropout: figures.rate("attention_probs_dropout_prob", kind != "albert"),
        window: if kind == "longformer" { Some(reach(figures)?) } else { None },
        distances: None,
        head: match kind {
            "electra" if figures.architecture().ends_with("ForPreTraining") => Head::Replaced,
            "electra" => unpooled(figures)?,
            _ => figures.encoder_head()?,
        },
        sequence: figures.sequence_within(if skips_two(kind) {
            positions.saturating_sub(2).max(1)
        } else {
            positions
        })?,
    };
    Ok(bert.graph())
}

/// Tokens that each one of a Longformer sees: a number, or one for each block.
fn reach(figures: &ConfigFields) -> Result<u64, Problem> {
    match figures.list("attention_window") {
        Ok(each) => Ok(each.and_then(|each| each.iter().copied().max()).unwrap_or(512)),
        Err(_) => figures.or(&["attention_window"], 512),
    }
}

/// Whether the first two positions of a type are never used, as in RoBERTa.
fn skips_two(kind: &str) -> bool {
    kind.contains("roberta") || matches!(kind, "camembert" | "data2vec-text" | "mpnet" | "longformer")
}

/// DeBERTa, whose scores depend on distances, and its second and third version.
pub(super) fn deberta(figures: &ConfigFields, second: bool) -> Result<Graph, Problem> {
    let hidden = figures.number(&["hidden_size"])?;
    let positions = figures.or(&["max_position_embeddings"], 512)?;
    let kinds = figures.words("pos_att_type").unwrap_or_default();
    let [to_keys, to_queries] = ["c2p", "p2c"].map(|kind| u64::from(kinds.iter().any(|word| word == kind)));
    let shared = second && figures.flag("share_att_key", false);
    let buckets = if second { figures.positive("position_buckets")? } else { None };
    let farthest = buckets.or(figures.positive("max_relative_positions")?).unwrap_or(positions);
    let relative = figures.flag("relative_attention", false);
    let sequence = figures.sequence_within(positions)?;
    let norms = figures.text("norm_rel_ebd").unwrap_or("none").to_lowercase();
    let distances = Distances {
        entries: if relative { 2 * farthest } else { 0 },
        seen: 2 * if second { farthest } else { farthest.min(sequence) },
        looks: if relative { to_keys + to_queries } else { 0 },
        products: if relative && !shared { to_keys + to_queries } else { 0 },
        // The first version has none for keys.
        biases: if relative && !shared { to_queries + if second { to_keys } else { 0 } } else { 0 },
        norm: relative && norms.contains("layer_norm"),
        kernel: figures.positive("conv_kernel_size")?.unwrap_or(0).min(1024),
        key_bias: second,
        first: !second,
    };
    let bert = Bert {
        layers: figures.layers(&["num_hidden_layers"])?,
        hidden,
        heads: figures.heads(&["num_attention_heads"], hidden)?,
        feed_forward: figures.number(&["intermediate_size"])?,
        function: figures.function(&["hidden_act"], Function::Gelu),
        vocabulary: figures.number(&["vocab_size"])?,
        positions: if figures.flag("position_biased_input", true) { positions } else { 0 },
        embedding: figures.or(&["embedding_size"], 0)?,
        shared: false,
        token_types: figures.positive("type_vocab_size")?.unwrap_or(0),
        dropout: figures.rate("hidden_dropout_prob", true),
        attention_dropout: figures.rate("attention_probs_dropout_prob", true),
        window: None,
        distances: Some(distances),
        head: unpooled(figures)?,
        sequence,
    };
    Ok(bert.graph())
}

pub(super) fn distilbert(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["dim", "hidden_size"])?;
    let positions = figures.or(&["max_position_embeddings"], 512)?;
    let bert = Bert {
        layers: figures.layers(&["n_layers", "num_hidden_layers"])?,
        hidden,
        heads: figures.heads(&["n_heads", "num_attention_heads"], hidden)?,
        feed_forward: figures.number(&["hidden_dim", "intermediate_size"])?,
        function: figures.function(&["activation"], Function::Gelu),
        vocabulary: figures.number(&["vocab_size"])?,
        positions,
        embedding: 0,
        shared: false,
        token_types: 0,
        dropout: figures.rate("dropout", true),
        attention_dropout: figures.rate("attention_dropout", true),
        window: None,
        distances: None,
        head: unpooled(figures)?,
        sequence: figures.sequence_within(positions)?,
    };
    Ok(bert.graph())
}

/// The encoder of 2024 (Warner et al.): a decoder's blocks that see what comes later too. Most blocks see only what is
/// near; the longest reach stands for all.
pub(super) fn modernbert(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["hidden_size"])?;
    let heads = figures.heads(&["num_attention_heads"], hidden)?;
    let bias = figures.flag("attention_bias", false);
    let encoder = DecoderOnly {
        layers: figures.layers(&["num_hidden_layers"])?,
        block: TransformerBlock {
            norm_bias: figures.flag("norm_bias", false),
            joined: true,
            query_bias: bias,
            output_bias: bias,
            rotary: true,
            attention_dropout: figures.rate("attention_dropout", false),
            dropout: figures.rate("mlp_dropout", false),
            feed: Feed {
                function: figures.function(&["hidden_activation"], Function::Gelu),
                gated: true,
                bias: figures.flag("mlp_bias", false),
                ..Feed::plain(figures.number(&["intermediate_size"])?)
            },
            ..TransformerBlock::pre_norm(hidden, heads)
        },
        plain: (0, 0),
        vocabulary: figures.number(&["vocab_size"])?,
        embedding: hidden,
        positions: 0,
        embedding_norm: true,
        last_norm: true,
        tied: figures.flag("tie_word_embeddings", true),
        bounded: false,
        score_bias: figures.flag("decoder_bias", true),
        transform: true,
        head: match figures.decoder_head()? {
            DecoderHead::Classes { classes, bias: _ } => DecoderHead::Classes { classes, bias: true },
            other => other,
        },
        sequence: figures.sequence(&["max_position_embeddings"])?,
    };
    Ok(encoder.graph())
}

pub(super) fn t5(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["d_model"])?;
    let heads = figures.free_heads(&["num_heads"])?;
    let feed = figures.text("feed_forward_proj").unwrap_or("relu");
    let dropout = figures.rate("dropout_rate", true);
    let block = TransformerBlock {
        head_width: figures.number(&["d_kv"])?,
        norm: Norm::Rms,
        norm_bias: false,
        query_bias: false,
        key_bias: false,
        output_bias: false,
        attention_dropout: dropout,
        dropout,
        feed: Feed {
            function: if feed.contains("gelu") { Function::GeluNew } else { Function::Relu },
            gated: feed.starts_with("gated"),
            bias: false,
            dropout,
            ..Feed::plain(figures.number(&["d_ff"])?)
        },
        ..TransformerBlock::pre_norm(hidden, heads)
    };
    let layers = figures.layers(&["num_layers"])?;
    let sequence = figures.sequence(&["n_positions"])?;
    let name = figures.architecture();
    let head = head(figures)?;
    let judges =
        matches!(head, encoder_decoder::EncoderDecoderHead::Class(_) | encoder_decoder::EncoderDecoderHead::Each(_));
    let encodes = name.ends_with("EncoderModel") || name.ends_with("ForTokenClassification");
    let network = EncoderDecoder {
        encoder_layers: layers,
        decoder_layers: if encodes { 0 } else { figures.layers_or("num_decoder_layers", layers)? },
        decoder: TransformerBlock { causal: true, ..block.clone() },
        encoder: block,
        vocabulary: figures.number(&["vocab_size"])?,
        positions: 0,
        distances: figures.or(&["relative_attention_num_buckets"], 32)? * heads,
        embedding_norm: false,
        last_norm: true,
        tied: figures.flag("tie_word_embeddings", true),
        source: sequence,
        // Answers are mostly shorter than what is asked; a quarter is T5's own ratio of pre-training (512 to 114).
        target: if judges { sequence } else { sequence.div_ceil(4) },
        head,
    };
    let mut graph = network.graph();
    if !network.tied && !encodes {
        let message = "the scores of words have a table of their own, as `tie_word_embeddings` says";
        graph.assumed.push(format!("{message}; `transformers` 5 shares it all the same"));
    }
    if !encodes && !judges {
        graph.assumed.push(answers(sequence));
    }
    Ok(graph)
}

pub(super) fn bart(figures: &ConfigFields, kind: &str) -> Result<Graph, Problem> {
    let hidden = figures.number(&["d_model"])?;
    let dropout = figures.rate("dropout", true);
    let function = figures.function(&["activation_function"], Function::Gelu);
    let before = !matches!(kind, "bart" | "marian" | "blenderbot-small");
    let block = |side: &str| -> Result<TransformerBlock, Problem> {
        let heads = figures.heads(&[&format!("{side}_attention_heads")], hidden)?;
        Ok(TransformerBlock {
            order: if before { Order::Before } else { Order::After },
            causal: side == "decoder",
            attention_dropout: figures.rate("attention_dropout", false),
            dropout,
            feed: Feed {
                function,
                dropout: figures.rate("activation_dropout", false),
                ..Feed::plain(figures.number(&[&format!("{side}_ffn_dim")])?)
            },
            ..TransformerBlock::pre_norm(hidden, heads)
        })
    };
    // BART and MBart learn two positions more than they use; those of Marian and Pegasus are computed once and kept
    // with the weights; those of M2M are not kept.
    let kept = kind != "m2m_100";
    let extra = if matches!(kind, "bart" | "mbart") { 2 } else { 0 };
    let most = figures.or(&["max_position_embeddings"], 1024)?;
    let sequence = figures.sequence_within(most)?;
    let name = figures.architecture();
    let alone = name.ends_with("ForCausalLM");
    let head = head(figures)?;
    // What is read is written once more where it is to be judged.
    let judges =
        matches!(head, encoder_decoder::EncoderDecoderHead::Class(_) | encoder_decoder::EncoderDecoderHead::Each(_));
    let target = if alone || judges { sequence } else { sequence.div_ceil(4) };
    let network = EncoderDecoder {
        encoder_layers: if alone { 0 } else { figures.layers(&["encoder_layers"])? },
        decoder_layers: figures.layers(&["decoder_layers"])?,
        encoder: block("encoder")?,
        decoder: block("decoder")?,
        vocabulary: figures.number(&["vocab_size"])?,
        positions: if kept { most + extra } else { 0 },
        distances: 0,
        embedding_norm: matches!(kind, "bart" | "mbart" | "blenderbot-small"),
        last_norm: before,
        tied: figures.flag("tie_word_embeddings", true),
        source: sequence,
        target,
        head,
    };
    let mut graph = network.graph();
    if !alone && !judges {
        graph.assumed.push(answers(sequence));
    }
    Ok(graph)
}

/// What is asked of an encoder with a decoder, where it is not the next token.
fn head(figures: &ConfigFields) -> Result<encoder_decoder::EncoderDecoderHead, Problem> {
    Ok(match figures.architecture() {
        name if name.ends_with("ForSequenceClassification") => {
            encoder_decoder::EncoderDecoderHead::Class(figures.classes(2)?)
        }
        name if name.ends_with("ForTokenClassification") => {
            encoder_decoder::EncoderDecoderHead::Each(figures.classes(2)?)
        }
        name if name.ends_with("ForQuestionAnswering") => encoder_decoder::EncoderDecoderHead::Each(2),
        _ if figures.is_bare() => encoder_decoder::EncoderDecoderHead::Nothing,
        _ => encoder_decoder::EncoderDecoderHead::Tokens,
    })
}

/// What is assumed of the length of answers.
fn answers(sequence: u64) -> String {
    format!("answers of {} tokens are written to {sequence} that are read: a quarter", sequence.div_ceil(4))
}
