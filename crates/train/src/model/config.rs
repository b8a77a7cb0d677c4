//! The `config.json` with which the `transformers` library opens an exported model.

use domain::architecture::Architecture;
use serde_json::{Value, json};

use super::block::{bert, gpt};
use super::family::bert::PAD;
use super::shape::{InputShape, ModelShape, OutputShape};

/// The configuration of the model; `None` for an architecture that the library does not have in this form.
pub fn config(architecture: Architecture, shape: ModelShape, classes: &[String]) -> Option<Value> {
    let InputShape::Text(text) = shape.input else { return None };
    match architecture {
        Architecture::Bert { layers, width, heads } => {
            let name = match (shape.output, shape.output.units()) {
                (_, Some(_)) => "BertForSequenceClassification",
                (OutputShape::Boxes(_), None) => return None,
                (_, None) => "BertForMaskedLM",
            };
            let mut config = json!({
                "architectures": [name],
                "model_type": "bert",
                "vocab_size": text.vocabulary,
                "hidden_size": width,
                "num_hidden_layers": layers,
                "num_attention_heads": heads,
                "intermediate_size": 4 * width,
                "hidden_act": "gelu",
                "hidden_dropout_prob": bert::DROPOUT,
                "attention_probs_dropout_prob": bert::DROPOUT,
                "max_position_embeddings": architecture.positions(),
                "type_vocab_size": 2,
                "initializer_range": bert::DEVIATION,
                "layer_norm_eps": bert::EPS,
                "pad_token_id": PAD,
            });
            if !classes.is_empty() {
                let by_number = classes.iter().enumerate().map(|(id, name)| (id.to_string(), json!(name)));
                let by_name = classes.iter().enumerate().map(|(id, name)| (name.clone(), json!(id)));
                config["id2label"] = Value::Object(by_number.collect());
                config["label2id"] = Value::Object(by_name.collect());
            }
            if let Some(kind) = problem_type(shape.output) {
                config["problem_type"] = json!(kind);
            }
            Some(config)
        }
        Architecture::Gpt { layers, width, heads, positions } => Some(json!({
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "vocab_size": text.vocabulary,
            "n_positions": positions,
            "n_embd": width,
            "n_layer": layers,
            "n_head": heads,
            "activation_function": "gelu_new",
            "embd_pdrop": gpt::DROPOUT,
            "attn_pdrop": gpt::DROPOUT,
            "resid_pdrop": gpt::DROPOUT,
            "layer_norm_epsilon": gpt::EPS,
            "initializer_range": gpt::DEVIATION,
            "tie_word_embeddings": true,
        })),
        Architecture::Mlp | Architecture::Cnn | Architecture::SmallResnet { .. } => None,
        Architecture::Resnet { .. } | Architecture::MobilenetV2 | Architecture::MobilenetV3 { .. } => None,
        Architecture::Vit { .. } | Architecture::Convnext { .. } | Architecture::EfficientnetB0 => None,
        Architecture::Yolo { .. } => None,
    }
}

/// What the library trains such outputs with, where they are not logits of one class per sample.
fn problem_type(output: OutputShape) -> Option<&'static str> {
    match output {
        OutputShape::Labels(_) => Some("multi_label_classification"),
        OutputShape::Number => Some("regression"),
        OutputShape::Classes(_) | OutputShape::Tokens | OutputShape::Boxes(_) => None,
    }
}
