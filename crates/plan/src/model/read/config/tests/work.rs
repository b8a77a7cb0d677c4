//! Multiply-adds and what is kept for the backward pass, beside `transformers` 5.23 on PyTorch 2.11 as
//! `benches/peers/counted.py` counts them: `FlopCounterMode` and `saved_tensors_hooks`, a sample of 128 tokens or an image.

use super::super::super::{SampleShape, model};
use crate::estimate::memory::saved_bytes;

/// Holds multiply-adds to 0.5 % and kept bytes, without and with fused attention, to 8 %; 0 was not counted.
fn check(config: &str, multiply_adds: u64, kept: u64, fused: u64) {
    let value: serde_json::Value = serde_json::from_str(config).expect("JSON");
    let reads = value["model_type"].as_str().is_some_and(|kind| !IMAGES.contains(&kind));
    let shape = SampleShape { sequence: reads.then_some(128), ..SampleShape::default() };
    let graph = model(config.as_bytes(), &shape).expect("a network");
    let near = |what: &str, ours: f64, theirs: u64, most: f64| {
        let off = 100.0 * (ours / theirs as f64 - 1.0);
        assert!(theirs == 0 || off.abs() <= most, "{config}: {what} {ours} against {theirs}, {off:+.2} %");
    };
    near("multiply-adds", graph.multiply_adds() as f64, multiply_adds, 0.5);
    near("kept", saved_bytes(&graph, false), kept, 8.0);
    near("kept with fused attention", saved_bytes(&graph, true), fused, 8.0);
}

const IMAGES: [&str; 8] = ["clip", "convnextv2", "detr", "efficientnet", "mobilenet_v2", "resnet", "swin", "vit"];

#[test]
fn usual_networks_keep_what_pytorch_packs_away() {
    let of = |kind: &str, class: &str| format!(r#"{{"model_type": "{kind}", "architectures": ["{class}"]}}"#);
    check(&of("bert", "BertForMaskedLM"), 14_249_558_016, 116_810_752, 95_650_816);
    check(&of("vit", "ViTForImageClassification"), 17_563_061_760, 140_401_208, 118_160_696);
    check(&of("resnet", "ResNetForImageClassification"), 4_087_140_352, 85_909_520, 0);
    check(&of("swin", "SwinForImageClassification"), 4_489_800_192, 106_634_188, 98_054_092);
}

#[test]
fn functions_that_are_written_out_keep_what_lies_between() {
    let of = |kind: &str, class: &str| format!(r#"{{"model_type": "{kind}", "architectures": ["{class}"]}}"#);
    check(&of("gpt2", "GPT2LMHeadModel"), 16_114_089_984, 182_357_504, 161_197_568);
    check(&of("albert", "AlbertForMaskedLM"), 311_473_995_776, 772_984_832, 723_046_400);
    check(&of("clip", "CLIPModel"), 7_388_582_400, 79_534_172, 75_875_804);
    // ReLU that is cut at six keeps what enters it, and is no other's memory.
    check(&of("mobilenet_v2", "MobileNetV2ForImageClassification"), 299_496_832, 79_854_300, 0);
    // What channels make of each other's norms is scaled, which is kept too.
    check(&of("convnextv2", "ConvNextV2ForImageClassification"), 4_454_764_800, 169_428_536, 0);
}

#[test]
fn values_are_left_out_within_the_feed_forward_part_of_t5() {
    let base = r#"{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 768, "d_ff": 2048,
        "num_layers": 12, "num_heads": 12, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false}"#;
    check(base, 17_040_408_576, 225_315_456, 197_556_864);
}

#[test]
fn turned_queries_and_keys_stand_beside_the_product_that_they_came_from() {
    let of = |kind: &str, class: &str| format!(r#"{{"model_type": "{kind}", "architectures": ["{class}"]}}"#);
    check(&of("gpt_neox", "GPTNeoXForCausalLM"), 2_599_730_282_496, 2_292_935_680, 2_525_064_192);
    check(&of("phi3", "Phi3ForCausalLM"), 479_685_771_264, 1_128_466_944, 1_212_877_312);
    // The scores of words are kept within bounds, and what bounds them is kept.
    check(&of("gemma2", "Gemma2ForCausalLM"), 336_349_626_368, 1_199_495_680, 0);
}

#[test]
fn images_of_odd_sides_are_padded_as_tensorflow_does() {
    let config =
        r#"{"model_type": "efficientnet", "image_size": 600, "architectures": ["EfficientNetForImageClassification"]}"#;
    check(config, 35_513_256_448, 3_783_828_924, 0);
}

#[test]
fn what_is_read_is_written_once_more_where_it_is_judged() {
    let of = |kind: &str, class: &str| format!(r#"{{"model_type": "{kind}", "architectures": ["{class}"]}}"#);
    check(&of("bart", "BartForQuestionAnswering"), 46_305_378_304, 287_115_280, 0);
    // A class whose name ends like a bare model's, and scores words.
    check(&of("marian", "MarianMTModel"), 30_618_058_752, 173_835_392, 0);
}

#[test]
fn scores_of_distances_are_products_of_a_sample() {
    let third = r#"{"model_type": "deberta-v2", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "relative_attention": true, "position_buckets": 256, "norm_rel_ebd": "layer_norm",
        "share_att_key": true, "pos_att_type": ["p2c", "c2p"], "position_biased_input": false, "type_vocab_size": 0,
        "architectures": ["DebertaV2Model"]}"#;
    // Without the products of the table of distances, 7.2 thousand million that a batch takes once.
    check(third, 12_381_585_408, 217_770_496, 0);
}

#[test]
fn what_only_its_own_trainer_obeys_is_said_of_mpt() {
    let said = |more: &str| {
        let config = format!(r#"{{"model_type": "mpt", "n_layers": 2{more}}}"#);
        model(config.as_bytes(), &SampleShape::default()).expect("a network").assumed.join("\n")
    };
    let told = said(r#", "expansion_ratio": 8, "no_bias": false, "attn_config": {"alibi": false}"#);
    assert!(told.contains("read as llm-foundry reads it"), "{told}");
    for key in ["`expansion_ratio`", "`no_bias`", "`learned_pos_emb`"] {
        assert!(told.contains(key), "{key} in {told}");
    }
    assert!(!said("").contains("llm-foundry"), "{}", said(""));
}

#[test]
fn networks_that_keep_a_state_are_read() {
    let of = |kind: &str, class: &str, more: &str| {
        format!(r#"{{"model_type": "{kind}", "architectures": ["{class}"]{more}}}"#)
    };
    let read = |config: &str| {
        model(config.as_bytes(), &SampleShape { sequence: Some(32), ..SampleShape::default() }).expect("read")
    };
    let small = r#", "num_hidden_layers": 24, "hidden_size": 768, "num_heads": 24, "n_groups": 1, "vocab_size": 50288,
        "tie_word_embeddings": true, "time_step_limit": [0.0, Infinity]"#;
    let graph = read(&of("mamba2", "Mamba2ForCausalLM", small));
    assert_eq!(graph.parameters(), 128_989_632);
    assert!(graph.assumed.iter().any(|said| said.contains("fused kernel")), "{:?}", graph.assumed);
    // A piece of 256 tokens. What tokens tell each other is the same for all heads of a group, and a fused kernel computes
    // it once; `transformers` without that kernel does so for each head, which is 3.3 % more.
    let large = of("mamba2", "Mamba2ForCausalLM", "");
    let graph = model(large.as_bytes(), &SampleShape { sequence: Some(256), ..SampleShape::default() }).expect("read");
    assert_eq!(graph.parameters(), 7_285_403_648);
    let repeated = 64 * (128 - 8) * 256 * 256 * 128;
    let off = (graph.multiply_adds() + repeated) as f64 / 1_968_042_409_984.0 - 1.0;
    assert!(off.abs() < 0.005, "{off}");
    let heads = of("mamba2", "Mamba2Model", r#", "num_heads": 100"#);
    let refused = model(heads.as_bytes(), &SampleShape::default()).expect_err("heads that do not fit");
    assert!(refused.message.contains("no inner width of 8192"), "{}", refused.message);
    let rwkv =
        r#", "hidden_size": 768, "num_hidden_layers": 12, "attention_hidden_size": 1024, "intermediate_size": 2048"#;
    assert_eq!(read(&of("rwkv", "RwkvModel", rwkv)).parameters(), 121_298_688);
}

#[test]
fn detr_is_a_residual_network_an_encoder_and_a_decoder() {
    let config = |more: &str| {
        let class = r#""architectures": ["DetrForObjectDetection"]"#;
        format!(r#"{{"model_type": "detr", {class}{more}}}"#)
    };
    let seen = r#", "backbone_config": {"model_type": "resnet", "out_features": ["stage4"]}"#;
    check(&config(seen), 81_164_953_600, 0, 0);
    let read = |config: &str| model(config.as_bytes(), &SampleShape::default());
    let parameters = |config: &str| read(config).expect("a network").parameters();
    assert_eq!(parameters(&config(seen)), 41_501_895);
    let thin = r#", "backbone_config": {"model_type": "resnet", "layer_type": "basic", "depths": [2, 2, 2, 2],
        "hidden_sizes": [64, 128, 256, 512]}, "num_queries": 50, "position_embedding_type": "learned", "num_labels": 20"#;
    assert_eq!(parameters(&config(thin)), 28_825_305);
    // As it is published: a network of timm, by a name that says how many layers it has.
    let named = r#", "backbone": "resnet50", "use_timm_backbone": true, "num_labels": 91"#;
    assert_eq!(parameters(&config(named)), 41_524_768);
    let other = read(&config(r#", "backbone": "convnext_tiny""#)).expect_err("another");
    assert!(other.message.contains("`convnext_tiny` names a network"), "{}", other.message);
}

#[test]
fn a_file_of_timm_says_only_a_name() {
    let refused = |config: &str| model(config.as_bytes(), &SampleShape::default()).expect_err("a name");
    for config in [
        r#"{"model_type": "timm_wrapper", "architecture": "resnet50", "num_classes": 1000}"#,
        r#"{"model_type": "timm_backbone", "backbone": "resnet50"}"#,
        r#"{"architecture": "resnet50", "num_classes": 1000}"#,
    ] {
        let problem = refused(config);
        assert!(problem.message.contains("names a network, `resnet50`, but not of what it is made"), "{problem:?}");
        assert!(problem.hint.is_some_and(|hint| hint.contains("ONNX")));
    }
}

#[test]
fn what_experts_answer_is_kept_to_be_weighed() {
    let config = r#"{"model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "num_hidden_layers": 3}"#;
    check(config, 73_095_970_816, 213_212_160, 210_091_008);
    let graph = model(config.as_bytes(), &SampleShape::default()).expect("a network");
    assert_eq!(graph.parameters(), 2_334_013_440);
}

#[test]
fn a_bare_network_scores_no_words() {
    let of = |class: &str| format!(r#"{{"model_type": "whisper", "architectures": ["{class}"]}}"#);
    check(&of("WhisperModel"), 21_935_456_256, 435_029_472, 209_982_048);
    check(&of("WhisperForConditionalGeneration"), 24_484_724_736, 435_226_080, 210_178_656);
}
