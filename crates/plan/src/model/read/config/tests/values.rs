//! Heads whose values are not as wide as their keys.

use super::super::super::{SampleShape, model};
use crate::model::{Graph, OpKind};

fn graph(config: &str) -> Graph {
    model(config.as_bytes(), &SampleShape { sequence: Some(128), ..SampleShape::default() }).expect("a network")
}

/// Width of a head's keys and of its values in the first attention.
fn widths(graph: &Graph) -> [u64; 2] {
    let attention = graph.operators.iter().find_map(|operator| match operator.kind {
        OpKind::Attention { width, value_width, .. } => Some([width, value_width]),
        _ => None,
    });
    attention.expect("attention")
}

#[test]
fn latent_attention_has_values_of_their_own_width() {
    let lite = r#"{"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 16,
        "num_key_value_heads": 16, "intermediate_size": 10944, "vocab_size": 102400, "kv_lora_rank": 512,
        "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "n_routed_experts": null, "architectures": ["DeepseekV2ForCausalLM"]}"#;
    assert_eq!(widths(&graph(lite)), [192, 128]);
    let scores =
        |values: u64| graph(&lite.replace("\"v_head_dim\": 128", &format!("\"v_head_dim\": {values}"))).multiply_adds();
    // Each further value of a head: a product with the scores, one that makes it of the narrow middle, one that reads it.
    assert_eq!(scores(129) - scores(128), 2 * 16 * (128 * 128 + 128 * 512 + 128 * 2048));
}

#[test]
fn plain_attention_has_values_of_their_own_width_too() {
    let config = |extra: &str| {
        format!(
            r#"{{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
            "num_key_value_heads": 2, "head_dim": 96, "intermediate_size": 1024, "vocab_size": 1000{extra},
            "architectures": ["LlamaForCausalLM"]}}"#
        )
    };
    let (usual, narrow) = (graph(&config("")), graph(&config(r#", "v_head_dim": 64"#)));
    assert_eq!((widths(&usual), widths(&narrow)), ([96, 96], [96, 64]));
    // Values of two heads are made, and the output of eight is read.
    assert_eq!(usual.parameters() - narrow.parameters(), 2 * 32 * (2 * 512 + 8 * 512));
}
