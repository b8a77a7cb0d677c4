//! BERT, GPT-2 and Llama by their tensors.

use super::super::SampleShape;
use super::header::Header;
use crate::model::families::language::bert::Head;
use crate::model::families::{Bert, Gpt, Llama};
use crate::model::{Function, Graph};

/// Tokens of a sample where none are asked for, as in the other readers.
const USUAL: u64 = 512;
const LONGEST: u64 = 1 << 24;

fn sequence(shape: &SampleShape, positions: u64) -> Option<u64> {
    let tokens = shape.sequence.unwrap_or(positions.min(USUAL));
    (1..=LONGEST).contains(&tokens).then_some(tokens)
}

/// Heads that are `width` wide, or one where that does not divide, and the sentence that says so.
pub(super) fn heads(hidden: u64, width: u64) -> (u64, String) {
    match hidden.is_multiple_of(width) {
        true => (hidden / width, format!("heads, taken to be {width} wide ×1")),
        false => (1, "heads, taken to be one ×1".to_owned()),
    }
}

pub(super) fn bert(header: &Header, shape: &SampleShape) -> Option<Graph> {
    let [vocabulary, width] = *header.shape("embeddings.word_embeddings.weight")? else { return None };
    let [positions, _] = *header.shape("embeddings.position_embeddings.weight")? else { return None };
    let (layers, &[hidden, _]) = header.layers("encoder.layer", "attention.self.query.weight")? else { return None };
    let (_, &[feed_forward, _]) = header.layers("encoder.layer", "intermediate.dense.weight")? else { return None };
    let rows = |name: &str| header.shape(name).and_then(|shape| shape.first().copied());
    let classes = |stored: u64| shape.classes.unwrap_or(stored).clamp(1, LONGEST);
    let pooled = header.has("pooler.dense.weight");
    let head = if header.has("cls.seq_relationship.weight") {
        Head::PreTraining
    } else if header.has("cls.predictions.transform.dense.weight") || header.has("lm_head.dense.weight") {
        Head::MaskedLanguage
    } else if let Some(stored) = rows("qa_outputs.weight") {
        Head::Tokens { classes: stored }
    } else {
        match (rows("classifier.out_proj.weight"), rows("classifier.weight"), shape.classes) {
            (Some(stored), _, _) => Head::Sequence { classes: classes(stored) },
            (None, Some(stored), _) if pooled => Head::Sequence { classes: classes(stored) },
            (None, Some(stored), _) => Head::Tokens { classes: classes(stored) },
            (None, None, Some(asked)) => Head::Sequence { classes: classes(asked) },
            (None, None, None) => Head::Pooled,
        }
    };
    let (heads, note) = heads(hidden, 64);
    let network = Bert {
        layers,
        hidden,
        heads,
        feed_forward,
        function: Function::Gelu,
        vocabulary,
        positions,
        embedding: if width == hidden { 0 } else { width },
        shared: false,
        token_types: rows("embeddings.token_type_embeddings.weight").unwrap_or(0),
        window: None,
        distances: None,
        dropout: true,
        attention_dropout: true,
        head,
        sequence: sequence(shape, positions)?,
    };
    let mut graph = network.graph();
    graph.unknown.push(note);
    graph.unknown.push("GELU and dropout, taken from BERT ×1".to_owned());
    Some(graph)
}

pub(super) fn gpt2(header: &Header, shape: &SampleShape) -> Option<Graph> {
    let [vocabulary, hidden] = *header.shape("wte.weight")? else { return None };
    let [positions, _] = *header.shape("wpe.weight")? else { return None };
    // Stored with the inputs first.
    let (layers, attention) = header.layers("h", "attn.c_attn.weight")?;
    let (_, &[_, feed_forward]) = header.layers("h", "mlp.c_fc.weight")? else { return None };
    if *attention != [hidden, 3 * hidden] {
        return None;
    }
    let (heads, note) = heads(hidden, 64);
    let sequence = sequence(shape, positions)?;
    let network = Gpt { hidden, layers, heads, feed_forward, vocabulary, positions, dropout: true, sequence };
    let mut graph = network.graph();
    graph.unknown.push(note);
    graph.unknown.push("GELU and dropout, taken from GPT-2 ×1".to_owned());
    Some(graph)
}

pub(super) fn llama(header: &Header, shape: &SampleShape) -> Option<Graph> {
    let [vocabulary, hidden] = *header.shape("embed_tokens.weight")? else { return None };
    let (layers, &[wide, _]) = header.layers("layers", "self_attn.q_proj.weight")? else { return None };
    let (_, &[narrow, _]) = header.layers("layers", "self_attn.k_proj.weight")? else { return None };
    let (_, &[feed_forward, _]) = header.layers("layers", "mlp.gate_proj.weight")? else { return None };
    // Normalised heads are another network's.
    if header.layers("layers", "self_attn.q_norm.weight").is_some() {
        return None;
    }
    let divides = |width: &u64| wide.is_multiple_of(*width) && narrow.is_multiple_of(*width);
    let (width, note) = match header.layers("layers", "self_attn.rotary_emb.inv_freq") {
        Some((_, &[half])) if divides(&(2 * half)) => (2 * half, None),
        _ => {
            // Llama's own: 128 from 2560 on.
            let usual = if hidden >= 2560 { 128 } else { 64 };
            let width = [usual, 64].into_iter().find(divides).unwrap_or(narrow);
            (width, Some(format!("heads, taken to be {width} wide ×1")))
        }
    };
    if !divides(&width) {
        return None;
    }
    let network = Llama {
        hidden,
        layers,
        heads: wide / width,
        key_heads: narrow / width,
        head_width: width,
        feed_forward,
        experts: None,
        vocabulary,
        tied: !header.has("lm_head.weight"),
        query_bias: header.layers("layers", "self_attn.q_proj.bias").is_some(),
        window: None,
        sequence: sequence(shape, USUAL)?,
    };
    let mut graph = network.graph();
    graph.unknown.extend(note);
    graph.unknown.push("SiLU, RMS normalisation and attention without a window, taken from Llama ×1".to_owned());
    Some(graph)
}
