//! Compares a `config.json` of the `transformers` library with the network that is to be filled.
//!
//! Most of it is reflected in the tensors' shapes. The rest, such as the number of heads or the activation, would be
//! wrong without notice, so it is compared with the network here.

use domain::architecture::Architecture;
use domain::train::Model;
use serde_json::{Value, json};

/// The models that this library has in our form.
const MODELS: [Model; 8] = [
    Model::BertMini,
    Model::BertBase,
    Model::BertLarge,
    Model::GptTiny,
    Model::Gpt2,
    Model::Gpt2Medium,
    Model::Gpt2Large,
    Model::Gpt2Xl,
];

/// Differences between `config` and the network, each part of a sentence; empty for models that the library does not
/// have.
pub(super) fn differences(config: &Value, model: Model) -> Vec<String> {
    let mut found = Vec::new();
    for (key, here) in expected(model) {
        let there = &config[key];
        let is_same = match (there.as_f64(), here.as_f64()) {
            (Some(there), Some(here)) => (there - here).abs() <= 1e-9 * here.abs(),
            (_, _) => *there == here,
        };
        // A missing key has the library's default, which is BERT's or GPT-2's own.
        if !there.is_null() && !is_same {
            found.push(format!("`{key}` is {there}, and {here} here"));
        }
    }
    found
}

/// The model that `config` describes, if there is one.
pub(super) fn described(config: &Value) -> Option<Model> {
    let is_whole = |model: &Model| expected(*model).iter().take(4).all(|(key, _)| !config[*key].is_null());
    MODELS.into_iter().find(|model| is_whole(model) && differences(config, *model).is_empty())
}

/// Keys and their expected values, the first four of which distinguish models.
fn expected(model: Model) -> Vec<(&'static str, Value)> {
    match Architecture::of(model) {
        Architecture::Bert { layers, width, heads } => vec![
            ("model_type", json!("bert")),
            ("num_hidden_layers", json!(layers)),
            ("hidden_size", json!(width)),
            ("num_attention_heads", json!(heads)),
            ("intermediate_size", json!(4 * width)),
            ("hidden_act", json!("gelu")),
            ("layer_norm_eps", json!(1e-12)),
            ("position_embedding_type", json!("absolute")),
        ],
        Architecture::Gpt { layers, width, heads, .. } => vec![
            ("model_type", json!("gpt2")),
            ("n_layer", json!(layers)),
            ("n_embd", json!(width)),
            ("n_head", json!(heads)),
            ("n_inner", json!(4 * width)),
            ("activation_function", json!("gelu_new")),
            ("layer_norm_epsilon", json!(1e-5)),
            ("scale_attn_by_inverse_layer_idx", json!(false)),
        ],
        Architecture::Mlp | Architecture::Cnn | Architecture::SmallResnet { .. } => Vec::new(),
        Architecture::Resnet { .. } | Architecture::MobilenetV2 | Architecture::MobilenetV3 { .. } => Vec::new(),
        Architecture::Vit { .. } | Architecture::Convnext { .. } | Architecture::EfficientnetB0 => Vec::new(),
        Architecture::Yolo { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shapes_do_not_show_is_held_against_the_network() {
        let base = json!({"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12,
                          "intermediate_size": 3072, "hidden_act": "gelu", "vocab_size": 30522, "layer_norm_eps": 1e-12});
        assert_eq!(differences(&base, Model::BertBase), Vec::<String>::new());
        assert_eq!(described(&base), Some(Model::BertBase));
        assert_eq!(differences(&base, Model::BertMini).len(), 4);
        let mut other = base.clone();
        other["num_attention_heads"] = json!(8);
        assert_eq!(differences(&other, Model::BertBase), ["`num_attention_heads` is 8, and 12 here"]);
        assert_eq!(described(&other), None);
        other = base.clone();
        other["hidden_act"] = json!("relu");
        assert_eq!(differences(&other, Model::BertBase), ["`hidden_act` is \"relu\", and \"gelu\" here"]);
        let gpt = json!({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_inner": null});
        assert_eq!(differences(&gpt, Model::Gpt2), Vec::<String>::new());
        assert_eq!(differences(&gpt, Model::BertBase), ["`model_type` is \"gpt2\", and \"bert\" here"]);
        assert_eq!(described(&gpt), Some(Model::Gpt2));
        assert_eq!(differences(&json!({"anything": 1}), Model::Resnet18), Vec::<String>::new());
    }
}
