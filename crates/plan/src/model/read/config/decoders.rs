//! Decoders. Each function says what its type has that others have not; [`plain`] holds what most share.

use domain::problem::Problem;

use super::fields::ConfigFields;
use super::mixtures;
use crate::model::families::DecoderOnly;
use crate::model::families::block::{Order, TransformerBlock};
use crate::model::{Function, Graph, Norm};

/// A decoder with layer normalisation, biases everywhere and a plain feed-forward part of four times the width.
fn plain(
    figures: &ConfigFields,
    hidden: u64,
    heads: u64,
    layers: u64,
    length: &[&str],
) -> Result<DecoderOnly, Problem> {
    plain_of(figures, hidden, heads, layers, figures.number(&["vocab_size"])?, length)
}

fn plain_of(
    figures: &ConfigFields,
    hidden: u64,
    heads: u64,
    layers: u64,
    vocabulary: u64,
    length: &[&str],
) -> Result<DecoderOnly, Problem> {
    Ok(DecoderOnly {
        layers,
        block: TransformerBlock { joined: true, causal: true, ..TransformerBlock::pre_norm(hidden, heads) },
        plain: (0, 0),
        vocabulary,
        embedding: hidden,
        positions: 0,
        embedding_norm: false,
        last_norm: true,
        tied: true,
        bounded: false,
        score_bias: false,
        transform: false,
        head: figures.decoder_head()?,
        sequence: figures.sequence(length)?,
    })
}

/// Width, heads and layers by the names that most types use.
fn usual(figures: &ConfigFields) -> Result<DecoderOnly, Problem> {
    let hidden = figures.number(&["hidden_size"])?;
    let heads = figures.free_heads(&["num_attention_heads"])?;
    let latent = mixtures::latent(figures)?;
    let head_width = match (latent, figures.positive_or_usual("head_dim")?) {
        (Some((_, width)), _) | (None, Some(width)) => width,
        (None, None) => {
            figures.divides("num_attention_heads", heads, hidden)?;
            hidden / heads
        }
    };
    let layers = figures.layers(&["num_hidden_layers"])?;
    let mut decoder = plain(figures, hidden, heads.min(hidden), layers, &["max_position_embeddings"])?;
    decoder.block.heads = heads;
    decoder.block.head_width = head_width;
    decoder.block.value_width = figures.positive_or_usual("v_head_dim")?.filter(|_| latent.is_none());
    decoder.block.latent = latent.map(|(latent, _)| latent);
    decoder.block.key_heads = figures.key_heads(&["num_key_value_heads"], heads)?;
    decoder.block.feed.width = figures.number(&["intermediate_size", "ffn_dim", "ffn_hidden_size"])?;
    decoder.block.window = window(figures)?;
    decoder.block.rotary = true;
    decoder.block.joined = false;
    Ok(decoder)
}

fn window(figures: &ConfigFields) -> Result<Option<u64>, Problem> {
    match figures.flag("use_sliding_window", true) {
        true => figures.maybe(&["sliding_window"]),
        false => Ok(None),
    }
}

pub(super) fn gpt2(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["n_embd", "hidden_size"])?;
    let heads = figures.heads(&["n_head", "num_attention_heads"], hidden)?;
    let layers = figures.layers(&["n_layer", "num_hidden_layers"])?;
    let lengths = ["n_positions", "n_ctx", "max_position_embeddings", "block_size"];
    let mut decoder = plain(figures, hidden, heads, layers, &lengths)?;
    decoder.positions = figures.or(&lengths, 1024)?;
    decoder.sequence = figures.sequence_within(decoder.positions)?;
    decoder.block.feed.width = figures.or(&["n_inner", "dff"], 4 * hidden)?;
    let fused = figures.text("model_type") == Some("gpt_bigcode");
    let usual = if fused { Function::Gelu } else { Function::GeluNew };
    decoder.block.feed.function = figures.function(&["activation_function"], usual);
    decoder.block.dropout = figures.rate("resid_pdrop", true);
    decoder.block.attention_dropout = figures.rate("attn_pdrop", true);
    if figures.flag("multi_query", false) {
        decoder.block.key_heads = 1;
    }
    decoder.tied = figures.flag("tie_word_embeddings", true);
    if !figures.flag("bias", true) {
        let block = &mut decoder.block;
        (block.norm_bias, block.query_bias, block.output_bias, block.feed.bias) = (false, false, false, false);
    }
    Ok(decoder.graph())
}

pub(super) fn gpt_neo(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["hidden_size"])?;
    let heads = figures.heads(&["num_heads"], hidden)?;
    let layers = figures.layers(&["num_layers"])?;
    let mut decoder = plain(figures, hidden, heads, layers, &["max_position_embeddings"])?;
    decoder.positions = figures.or(&["max_position_embeddings"], 2048)?;
    decoder.sequence = figures.sequence_within(decoder.positions)?;
    decoder.block.feed.width = figures.or(&["intermediate_size"], 4 * hidden)?;
    decoder.block.feed.function = figures.function(&["activation_function"], Function::GeluNew);
    decoder.block.joined = false;
    decoder.block.query_bias = false;
    Ok(decoder.graph())
}

pub(super) fn gptj(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["n_embd"])?;
    let heads = figures.heads(&["n_head"], hidden)?;
    let layers = figures.layers(&["n_layer"])?;
    let mut decoder = plain(figures, hidden, heads, layers, &["n_positions"])?;
    decoder.block.order = Order::Parallel { norms: 1 };
    decoder.block.joined = false;
    decoder.block.query_bias = false;
    decoder.block.output_bias = false;
    decoder.block.rotary = true;
    decoder.block.feed.width = figures.or(&["n_inner"], 4 * hidden)?;
    decoder.block.feed.function = figures.function(&["activation_function"], Function::GeluNew);
    decoder.tied = figures.flag("tie_word_embeddings", false);
    decoder.score_bias = true;
    Ok(decoder.graph())
}

pub(super) fn gpt_neox(figures: &ConfigFields) -> Result<Graph, Problem> {
    let mut decoder = usual(figures)?;
    decoder.block.joined = true;
    if figures.flag("use_parallel_residual", true) {
        decoder.block.order = Order::Parallel { norms: 2 };
    }
    decoder.block.query_bias = figures.flag("attention_bias", true);
    decoder.block.output_bias = decoder.block.query_bias;
    decoder.block.feed.function = figures.function(&["hidden_act"], Function::Gelu);
    decoder.block.dropout = figures.rate("hidden_dropout", false);
    decoder.block.attention_dropout = figures.rate("attention_dropout", false);
    decoder.tied = figures.flag("tie_word_embeddings", false);
    Ok(decoder.graph())
}

pub(super) fn opt(figures: &ConfigFields) -> Result<Graph, Problem> {
    let mut decoder = usual(figures)?;
    let before = figures.flag("do_layer_norm_before", true);
    decoder.block.order = if before { Order::Before } else { Order::After };
    decoder.last_norm = before && !figures.flag("_remove_final_layer_norm", false);
    decoder.block.rotary = false;
    // Two more than are used.
    let positions = figures.or(&["max_position_embeddings"], 2048)?;
    decoder.positions = positions + 2;
    decoder.sequence = figures.sequence_within(positions)?;
    decoder.block.feed.function = figures.function(&["activation_function"], Function::Relu);
    decoder.block.dropout = figures.rate("dropout", true);
    decoder.embedding = figures.or(&["word_embed_proj_dim"], decoder.block.hidden)?;
    Ok(decoder.graph())
}

pub(super) fn bloom(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["hidden_size", "n_embed"])?;
    let heads = figures.heads(&["n_head", "num_attention_heads"], hidden)?;
    let layers = figures.layers(&["n_layer", "num_hidden_layers"])?;
    let mut decoder = plain(figures, hidden, heads, layers, &["seq_length"])?;
    decoder.embedding_norm = true;
    decoder.block.dropout = figures.rate("hidden_dropout", false);
    decoder.block.attention_dropout = figures.rate("attention_dropout", false);
    Ok(decoder.graph())
}

pub(super) fn falcon(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["hidden_size"])?;
    let heads = figures.heads(&["num_attention_heads", "n_head"], hidden)?;
    let layers = figures.layers(&["num_hidden_layers", "n_layer"])?;
    let mut decoder = plain(figures, hidden, heads, layers, &["max_position_embeddings"])?;
    let new = figures.flag("new_decoder_architecture", false);
    let parallel = figures.flag("parallel_attn", true);
    decoder.block.order = match (new, parallel) {
        (true, _) => Order::Parallel { norms: figures.or(&["num_ln_in_parallel_attn"], 2)?.min(2) as u8 },
        (false, true) => Order::Parallel { norms: 1 },
        (false, false) => Order::Before,
    };
    decoder.block.key_heads = match (new, figures.flag("multi_query", true)) {
        (true, _) => figures.key_heads(&["num_kv_heads", "n_head_kv"], heads)?,
        (false, true) => 1,
        (false, false) => heads,
    };
    let bias = figures.flag("bias", false);
    decoder.block.query_bias = bias;
    decoder.block.output_bias = bias;
    decoder.block.feed.bias = bias;
    decoder.block.feed.width = figures.or(&["ffn_hidden_size"], 4 * hidden)?;
    decoder.block.rotary = !figures.flag("alibi", false);
    decoder.tied = figures.flag("tie_word_embeddings", true);
    Ok(decoder.graph())
}

pub(super) fn mpt(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["d_model"])?;
    let heads = figures.heads(&["n_heads"], hidden)?;
    let layers = figures.layers(&["n_layers"])?;
    let mut decoder = plain(figures, hidden, heads, layers, &["max_seq_len"])?;
    let attention = figures.part("attn_config");
    let alibi = attention.map_or(figures.flag("alibi", true), |attention| attention.flag("alibi", false));
    decoder.positions = match alibi || !figures.flag("learned_pos_emb", true) {
        true => 0,
        false => figures.or(&["max_seq_len"], 2048)?,
    };
    if decoder.positions > 0 {
        decoder.sequence = figures.sequence_within(decoder.positions)?;
    }
    if let Some(attention) = attention {
        let keys = if attention.text("attn_type") == Some("multiquery_attention") { 1 } else { heads };
        decoder.block.key_heads = match attention.positive("kv_n_heads")? {
            Some(_) => attention.key_heads(&["kv_n_heads"], heads)?,
            None => keys,
        };
        decoder.block.attention_dropout = attention.rate("attn_pdrop", false);
    }
    let bias = !figures.flag("no_bias", true);
    decoder.block.norm_bias = bias;
    decoder.block.query_bias = bias;
    decoder.block.output_bias = bias;
    decoder.block.feed.bias = bias;
    decoder.block.feed.width = hidden * figures.small(&["expansion_ratio"], 4)?.min(64);
    if let Some(feed) = figures.part("ffn_config") {
        decoder.block.feed.width = feed.or(&["ffn_hidden_size"], decoder.block.feed.width)?;
        decoder.block.feed.gated = feed.text("ffn_type").is_some_and(|kind| kind.contains("glu"));
    }
    if figures.text("norm_type").is_some_and(|kind| kind.contains("rms")) {
        decoder.block.norm = Norm::Rms;
    }
    decoder.block.rotary = attention.is_some_and(|attention| attention.flag("rope", false));
    decoder.tied = figures.flag("tie_word_embeddings", true);
    let block = &decoder.block;
    // What its own trainer obeys, and `transformers` (5.23, `modeling_mpt.py`) takes for what it usually is.
    let differing = [
        (decoder.positions > 0, "learned positions (`learned_pos_emb` without `alibi`)"),
        (block.feed.width != 4 * hidden, "the width of the feed-forward part (`expansion_ratio`, `ffn_config`)"),
        (block.feed.gated, "a gated feed-forward part (`ffn_config`)"),
        (bias, "biases (`no_bias`)"),
        (block.key_heads != heads, "fewer heads of keys (`attn_config`)"),
        (block.norm == Norm::Rms, "normalisation without a mean (`norm_type`)"),
        (block.rotary, "turned positions (`rope`)"),
    ];
    let told: Vec<&str> = differing.iter().filter(|(differs, _)| *differs).map(|(_, what)| *what).collect();
    if !told.is_empty() {
        let told = told.join(", ");
        figures.say(format!("read as llm-foundry reads it, which `transformers` does not in this: {told}"));
    }
    Ok(decoder.graph())
}

pub(super) fn phi(figures: &ConfigFields) -> Result<Graph, Problem> {
    let mut decoder = usual(figures)?;
    decoder.block.order = Order::Parallel { norms: 1 };
    decoder.block.feed.function = figures.function(&["hidden_act"], Function::GeluNew);
    decoder.block.dropout = figures.rate("resid_pdrop", false);
    decoder.block.attention_dropout = figures.rate("attention_dropout", false);
    decoder.tied = figures.flag("tie_word_embeddings", false);
    decoder.score_bias = true;
    Ok(decoder.graph())
}

/// Persimmon (Elsen et al. 2023): layer normalisation, also of each head's queries and keys, biases everywhere, and no
/// gate.
pub(super) fn persimmon(figures: &ConfigFields) -> Result<Graph, Problem> {
    let mut decoder = usual(figures)?;
    decoder.block.head_norm = figures.flag("qk_layernorm", true);
    decoder.block.feed.function = figures.function(&["hidden_act"], Function::SquaredRelu);
    decoder.block.dropout = figures.rate("hidden_dropout", false);
    decoder.block.attention_dropout = figures.rate("attention_dropout", false);
    decoder.tied = figures.flag("tie_word_embeddings", false);
    Ok(decoder.graph())
}

pub(super) fn starcoder2(figures: &ConfigFields) -> Result<Graph, Problem> {
    let mut decoder = usual(figures)?;
    let bias = figures.flag("use_bias", true);
    decoder.block.query_bias = bias;
    decoder.block.output_bias = bias;
    decoder.block.feed.bias = bias;
    decoder.block.dropout = figures.rate("residual_dropout", false);
    decoder.tied = figures.flag("tie_word_embeddings", true);
    Ok(decoder.graph())
}

/// Meta's own files of Llama (`params.json`): the width of the feed-forward part follows from the others.
pub(super) fn llama_of_dim(figures: &ConfigFields) -> Result<Graph, Problem> {
    let hidden = figures.number(&["dim"])?;
    let heads = figures.heads(&["n_heads"], hidden)?;
    let layers = figures.layers(&["n_layers"])?;
    let unusual = figures.positive("vocab_size")?.is_none();
    let vocabulary = figures.positive("vocab_size")?.unwrap_or(32000);
    let mut decoder = plain_of(figures, hidden, heads, layers, vocabulary, &["max_seq_len"])?;
    let multiple = figures.or(&["multiple_of"], 256)?.max(1);
    let wanted = (f64::from(u32::try_from(8 * hidden / 3).unwrap_or(u32::MAX))
        * figures.ratio("ffn_dim_multiplier", 1.0)?) as u64;
    decoder.block.feed.width = figures.or(&["hidden_dim"], wanted.div_ceil(multiple) * multiple)?;
    decoder.block.feed.gated = true;
    decoder.block.feed.bias = false;
    decoder.block.feed.function = Function::Silu;
    decoder.block.key_heads = figures.key_heads(&["n_kv_heads"], heads)?;
    decoder.block.head_width = figures.or(&["head_dim"], (hidden / heads).max(1))?;
    decoder.block.norm = Norm::Rms;
    decoder.block.rotary = true;
    let block = &mut decoder.block;
    (block.norm_bias, block.joined, block.query_bias, block.output_bias) = (false, false, false, false);
    decoder.tied = figures.flag("tie_word_embeddings", false);
    let mut graph = decoder.graph();
    if unusual {
        graph.assumed.push("the table of words has 32,000; the file leaves it to the tokenizer".to_owned());
    }
    Ok(graph)
}

/// Llama's parts with layer normalisation: StableLM, and OLMo, whose normalisations have no weights.
pub(super) fn layer_normed(figures: &ConfigFields) -> Result<Graph, Problem> {
    let mut decoder = usual(figures)?;
    gate(&mut decoder, figures);
    decoder.block.query_bias = figures.flag("use_qkv_bias", figures.flag("attention_bias", false));
    decoder.tied = figures.flag("tie_word_embeddings", false);
    Ok(decoder.graph())
}

fn gate(decoder: &mut DecoderOnly, figures: &ConfigFields) {
    decoder.block.feed.gated = true;
    decoder.block.feed.bias = figures.flag("mlp_bias", false);
    decoder.block.feed.function = figures.function(&["hidden_activation", "hidden_act"], Function::Silu);
    // Functions that square or learn their slope stand in feed-forward parts without a gate (Nemotron, Arcee, Apertus).
    let act = figures.text("hidden_act").unwrap_or_default();
    decoder.block.feed.gated = !matches!(act, "relu2" | "xielu") || figures.text("model_type") == Some("bitnet");
    decoder.block.query_bias = false;
    decoder.block.output_bias = false;
}

pub(super) fn gemma(figures: &ConfigFields, kind: &str) -> Result<Graph, Problem> {
    let mut decoder = usual(figures)?;
    gate(&mut decoder, figures);
    decoder.block.norm = Norm::Rms;
    decoder.block.norm_bias = false;
    decoder.block.head_width = figures.or(&["head_dim"], 256)?;
    if kind != "gemma" {
        decoder.block.order = Order::Around;
        decoder.bounded = figures.rate("final_logit_softcapping", kind == "gemma2");
        // Every second block or fewer sees all positions; the longest reach stands for all.
        decoder.block.window = None;
        decoder.block.head_norm = kind == "gemma3_text";
    }
    decoder.tied = figures.flag("tie_word_embeddings", true);
    Ok(decoder.graph())
}

pub(super) fn llama(figures: &ConfigFields, kind: &str) -> Result<Graph, Problem> {
    let mut decoder = usual(figures)?;
    gate(&mut decoder, figures);
    decoder.block.norm = Norm::Rms;
    decoder.block.norm_bias = false;
    // Two types ask with a key, under two names.
    let asked = figures.flag("use_qk_norm", false) || figures.flag("qk_layernorm", false);
    decoder.block.head_norm = asked || matches!(kind, "qwen3" | "qwen3_moe" | "olmo2");
    let qwen2 = matches!(kind, "qwen2" | "qwen2_moe");
    decoder.block.query_bias = figures.flag("attention_bias", figures.flag("qkv_bias", qwen2));
    decoder.block.output_bias = figures.flag("attention_bias", false) && !qwen2;
    if qwen2 && !figures.has("use_sliding_window") {
        decoder.block.window = None;
    }
    decoder.block.joined = matches!(kind, "phi3" | "internlm2" | "baichuan");
    mixtures::choose(figures, &mut decoder)?;
    decoder.tied = figures.flag("tie_word_embeddings", kind == "minicpm");
    Ok(decoder.graph())
}
