//! A network in words: `layers 24, hidden 2048, heads 16, kv 8, ffn 5632, vocab 49k`.
//!
//! Words become the keys of a `config.json`, so that they mean what [`config`](crate::model::read::config) means by them.
//! A decoder like Llama is meant unless a word such as `gpt` says otherwise.

use domain::problem::Problem;
use serde_json::{Map, Value, json};

/// Figures: the words for each, and its key in a `config.json`.
const FIGURES: [(&[&str], &str); 18] = [
    (&["layers", "l", "blocks"], "num_hidden_layers"),
    (&["hidden", "h", "width"], "hidden_size"),
    (&["heads", "a"], "num_attention_heads"),
    (&["kv", "key_heads"], "num_key_value_heads"),
    (&["ffn", "intermediate"], "intermediate_size"),
    (&["vocab", "vocabulary"], "vocab_size"),
    (&["head_dim", "head_width"], "head_dim"),
    (&["positions"], "max_position_embeddings"),
    (&["experts"], "num_experts"),
    (&["active"], "num_experts_per_tok"),
    (&["expert_ffn"], "moe_intermediate_size"),
    (&["shared_experts"], "n_shared_experts"),
    (&["dense"], "first_k_dense_replace"),
    (&["q_lora"], "q_lora_rank"),
    (&["kv_lora"], "kv_lora_rank"),
    (&["rope_dim"], "qk_rope_head_dim"),
    (&["nope_dim"], "qk_nope_head_dim"),
    (&["v_dim"], "v_head_dim"),
];

/// Kinds of decoders: a word, and the `model_type` that it stands for.
const KINDS: [(&str, &str); 10] = [
    ("llama", "llama"),
    ("llama-like", "llama"),
    ("gpt", "gpt2"),
    ("opt", "opt"),
    ("neox", "gpt_neox"),
    ("phi", "phi"),
    ("gemma", "gemma"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("deepseek", "deepseek_v3"),
];

/// Whether a text reads as a shape: it names layers and a width at least.
pub fn is_shape(text: &str) -> bool {
    let named = |key: &str| {
        pairs(text).iter().any(|(word, number)| number.is_some() && figure(word).is_some_and(|found| found == key))
    };
    named("num_hidden_layers") && named("hidden_size")
}

/// The `config.json` that a shape in words stands for.
///
/// # Errors
/// The first word that stands for nothing, or what is missing.
pub fn config(text: &str) -> Result<Vec<u8>, Problem> {
    let mut keys = Map::new();
    keys.insert("model_type".to_owned(), json!("llama"));
    let mut multi_head = false;
    for (word, number) in pairs(text) {
        match (figure(&word), number) {
            (Some(key), Some(number)) => {
                keys.insert(key.to_owned(), json!(number));
            }
            (Some(_), None) => return Err(Problem::at("shape", format!("`{word}` has no number behind it"))),
            (None, _) => match word.as_str() {
                "mha" => multi_head = true,
                "mqa" => {
                    keys.insert("num_key_value_heads".to_owned(), json!(1));
                    keys.insert("multi_query".to_owned(), json!(true));
                }
                "tied" | "tied-emb" => {
                    keys.insert("tie_word_embeddings".to_owned(), json!(true));
                }
                "untied" => {
                    keys.insert("tie_word_embeddings".to_owned(), json!(false));
                }
                "relu2" => {
                    keys.insert("hidden_act".to_owned(), json!("relu2"));
                }
                "qkv_bias" => {
                    keys.insert("qkv_bias".to_owned(), json!(true));
                }
                "dropout" => {
                    for key in ["resid_pdrop", "attn_pdrop"] {
                        keys.insert(key.to_owned(), json!(0.1));
                    }
                }
                word if is_size(word) => {}
                word => match KINDS.iter().find(|(name, _)| *name == word) {
                    Some((_, kind)) => {
                        keys.insert("model_type".to_owned(), json!(kind));
                    }
                    None => return Err(unknown(word)),
                },
            },
        }
    }
    complete(&mut keys, multi_head)?;
    Ok(Value::Object(keys).to_string().into_bytes())
}

/// Fills in what follows from other figures.
fn complete(keys: &mut Map<String, Value>, multi_head: bool) -> Result<(), Problem> {
    let number = |keys: &Map<String, Value>, key: &str| keys.get(key).and_then(Value::as_u64);
    let missing = |word: &str| Problem::at("shape", format!("it does not say `{word}`"));
    let hidden = number(keys, "hidden_size").ok_or_else(|| missing("hidden"))?;
    number(keys, "num_hidden_layers").ok_or_else(|| missing("layers"))?;
    number(keys, "vocab_size").ok_or_else(|| missing("vocab"))?;
    let heads = number(keys, "num_attention_heads").ok_or_else(|| missing("heads"))?;
    let kind = keys.get("model_type").and_then(Value::as_str).unwrap_or_default().to_owned();
    // As many as of queries, unless stated.
    if multi_head || (!keys.contains_key("num_key_value_heads") && kind != "gpt2") {
        keys.insert("num_key_value_heads".to_owned(), json!(heads));
    }
    if number(keys, "intermediate_size").is_none() {
        match (kind.as_str(), number(keys, "moe_intermediate_size")) {
            ("gpt2" | "opt" | "gpt_neox" | "phi", _) => {
                keys.insert("intermediate_size".to_owned(), json!(4 * hidden));
            }
            (_, Some(width)) => {
                keys.insert("intermediate_size".to_owned(), json!(width));
            }
            (_, None) => return Err(missing("ffn")),
        }
    }
    if number(keys, "num_experts").is_some() && kind == "llama" {
        keys.insert("model_type".to_owned(), json!("qwen3_moe"));
        keys.insert("use_qk_norm".to_owned(), json!(false));
    }
    if kind == "gpt2" {
        let width = keys.get("intermediate_size").cloned().unwrap_or_default();
        keys.insert("n_inner".to_owned(), width);
        keys.entry("multi_query".to_owned()).or_insert(json!(false));
        // No dropout unless it is named: pre-training since GPT-3 has none.
        for key in ["resid_pdrop", "attn_pdrop"] {
            keys.entry(key.to_owned()).or_insert(json!(0.0));
        }
        // `gpt_bigcode` has GELU as one operator, as Megatron has.
        keys.insert("model_type".to_owned(), json!("gpt_bigcode"));
    }
    Ok(())
}

fn unknown(word: &str) -> Problem {
    Problem::at("shape", format!("`{word}` stands for nothing in a shape"))
        .hint("write it as `layers 24, hidden 2048, heads 16, kv 8, ffn 5632, vocab 49k`")
}

fn figure(word: &str) -> Option<&'static str> {
    FIGURES.iter().find(|(words, _)| words.contains(&word)).map(|(_, key)| *key)
}

/// A size such as `1B` or `7.5B`, which follows from the rest.
fn is_size(word: &str) -> bool {
    word.strip_suffix(['b', 'm']).is_some_and(|digits| digits.parse::<f64>().is_ok())
}

/// Words with the number that belongs to each: `layers 24`, `layers=24`, `L24`, `vocab 49k`.
fn pairs(text: &str) -> Vec<(String, Option<u64>)> {
    let lower = text.to_lowercase();
    let divides = |character: char| character.is_whitespace() || ",;=:".contains(character);
    let mut pairs: Vec<(String, Option<u64>)> = Vec::new();
    for word in lower.split(divides).filter(|word| !word.is_empty()) {
        if let (Some(number), Some((name, none @ None))) = (count(word), pairs.last_mut())
            && figure(name).is_some()
        {
            *none = Some(number);
            continue;
        }
        let end = word.find(|character: char| character.is_ascii_digit()).unwrap_or(0);
        match (figure(&word[..end]), count(&word[end..])) {
            (Some(_), Some(number)) => pairs.push((word[..end].to_owned(), Some(number))),
            _ => pairs.push((word.to_owned(), None)),
        }
    }
    pairs
}

/// A whole number, maybe in thousands: `49k`.
fn count(word: &str) -> Option<u64> {
    match word.strip_suffix('k') {
        Some(thousands) => {
            thousands.parse::<f64>().ok().filter(|number| *number > 0.0).map(|number| (1e3 * number) as u64)
        }
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read::{self, SampleShape};

    /// A shape, and the millions of weights of the network that it stands for, or why there is none.
    fn check(text: &str, expected: &str) {
        let shape = SampleShape { sequence: Some(64), ..SampleShape::default() };
        let told = match config(text).and_then(|bytes| read::model(&bytes, &shape)) {
            Ok(graph) => (graph.parameters() / 1_000_000).to_string(),
            Err(problem) => problem.message,
        };
        assert_eq!(told, expected, "{text}");
    }

    #[test]
    fn a_shape_in_words_is_a_network() {
        // Llama 3 8B, Llama 3.2 1B, nanotron's 1.34B, GPT-3 13B of Megatron, Mixtral, Qwen3 30B-A3B.
        check("layers 32, hidden 4096, heads 32, kv 8, ffn 14336, vocab 128256", "8030");
        check("layers 16 hidden 2048 heads 32 kv 8 ffn 8192 vocab 128256 tied", "1235");
        check("Llama-like 1B L16 h2048 a32 ffn8192 vocab131072 MHA tied-emb", "1342");
        check("gpt L40 h5120 a40 vocab=51200 positions 2048", "12858");
        check("llama layers 32 hidden 4096 heads 32 kv 8 experts 8 active 2 expert_ffn 14336 vocab 32000", "46702");
        check(
            "layers 48 hidden 2048 heads 32 kv 4 head_dim 128 experts 128 active 8 expert_ffn 768 vocab 151936",
            "30532",
        );
        check("layers 24, hidden 2048, heads 16, kv 8, ffn 5632, vocab 49k", "1333");
    }

    #[test]
    fn what_stands_for_nothing_is_refused() {
        check("layers 2, hidden 64, heads 4, ffn 128, vocab 100, mixers 3", "`mixers` stands for nothing in a shape");
        check("layers 2, hidden 64, heads 4, vocab 100", "it does not say `ffn`");
        check("layers 2, hidden 64, ffn 128, vocab 100", "it does not say `heads`");
        assert!(is_shape("GPT 20B h14400 L8") && !is_shape("Llama-2-7B"));
    }
}
