mod values;
mod work;

use super::super::{SampleShape, model};

/// Reads a file and compares its parameters with those that the model's page or `transformers` tells.
fn check(config: &str, parameters: u64) {
    let graph = match model(config.as_bytes(), &SampleShape { sequence: Some(64), ..SampleShape::default() }) {
        Ok(graph) => graph,
        Err(problem) => panic!("{config}: {problem:?}"),
    };
    assert_eq!(graph.parameters(), parameters, "{config}");
    assert!(graph.unknown.is_empty(), "{:?}", graph.unknown);
}

#[test]
fn encoders_have_the_parameters_that_are_published() {
    let base = r#""hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072"#;
    check(
        &format!(r#"{{"model_type": "bert", {base}, "vocab_size": 30522, "architectures": ["BertModel"]}}"#),
        109_482_240,
    );
    check(
        &format!(r#"{{"model_type": "bert", {base}, "vocab_size": 30522, "architectures": ["BertForMaskedLM"]}}"#),
        109_514_298,
    );
    let roberta = r#""vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1"#;
    check(&format!(r#"{{"model_type": "roberta", {base}, {roberta}}}"#), 124_645_632);
    let distil = r#""dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522"#;
    check(
        &format!(r#"{{"model_type": "distilbert", {distil}, "architectures": ["DistilBertForMaskedLM"]}}"#),
        66_985_530,
    );
    check(&format!(r#"{{"model_type": "albert", {base}, "vocab_size": 30000, "embedding_size": 128}}"#), 11_683_584);
    let t5 = r#""d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "vocab_size": 32128"#;
    check(&format!(r#"{{"model_type": "t5", {t5}}}"#), 60_506_624);
    let bart = r#""d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
        "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "vocab_size": 50265"#;
    check(&format!(r#"{{"model_type": "bart", {bart}, "max_position_embeddings": 1024}}"#), 139_420_416);
}

#[test]
fn decoders_have_the_parameters_that_are_published() {
    let usual = |hidden: u64, layers: u64, heads: u64, feed: u64, vocabulary: u64| {
        format!(
            r#""hidden_size": {hidden}, "num_hidden_layers": {layers}, "num_attention_heads": {heads},
            "intermediate_size": {feed}, "vocab_size": {vocabulary}"#
        )
    };
    let as_type = |kind: &str, keys: String| format!(r#"{{"model_type": "{kind}", {keys}}}"#);
    let with = |keys: String, more: &str| format!("{keys}, {more}");
    let gpt2 = r#""n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024"#;
    check(&as_type("gpt2", gpt2.to_owned()), 124_439_808);
    let eight = usual(4096, 32, 32, 14336, 128_256);
    check(&as_type("llama", with(eight, r#""num_key_value_heads": 8"#)), 8_030_261_248);
    let mistral = with(usual(4096, 32, 32, 14336, 32000), r#""num_key_value_heads": 8, "sliding_window": 4096"#);
    check(&as_type("mistral", mistral.clone()), 7_241_732_096);
    let mixtral = with(mistral, r#""num_local_experts": 8, "num_experts_per_tok": 2"#);
    check(&as_type("mixtral", mixtral), 46_702_792_704);
    let qwen = with(usual(3584, 28, 28, 18944, 152_064), r#""num_key_value_heads": 4"#);
    check(&as_type("qwen2", qwen), 7_615_616_512);
    let small = with(usual(896, 24, 14, 4864, 151_936), r#""num_key_value_heads": 2, "tie_word_embeddings": true"#);
    check(&as_type("qwen2", small), 494_032_768);
    check(&as_type("phi", usual(2560, 32, 32, 10240, 51200)), 2_779_683_840);
    check(&as_type("phi3", usual(3072, 32, 32, 8192, 32064)), 3_821_079_552);
    let gemma = with(usual(2048, 18, 8, 16384, 256_000), r#""num_key_value_heads": 1, "head_dim": 256"#);
    check(&as_type("gemma", gemma), 2_506_172_416);
    let gemma = with(usual(2304, 26, 8, 9216, 256_000), r#""num_key_value_heads": 4, "head_dim": 256"#);
    check(&as_type("gemma2", gemma), 2_614_341_888);
    check(&as_type("gpt_neox", usual(512, 6, 8, 2048, 50304)), 70_426_624);
    let opt = r#""hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "ffn_dim": 3072,
        "vocab_size": 50272, "max_position_embeddings": 2048"#;
    check(&as_type("opt", opt.to_owned()), 125_239_296);
    let bloom = r#""hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880"#;
    check(&as_type("bloom", bloom.to_owned()), 559_214_592);
    let gptj = r#""n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400, "n_positions": 2048"#;
    check(&as_type("gptj", gptj.to_owned()), 6_050_882_784);
    let falcon = r#""hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024,
        "multi_query": true, "parallel_attn": true, "bias": false"#;
    check(&as_type("falcon", falcon.to_owned()), 6_921_720_704);
    let mpt = r#""d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432, "attn_config": {"alibi": true}"#;
    check(&as_type("mpt", mpt.to_owned()), 6_649_286_656);
}

#[test]
fn networks_over_images_have_the_parameters_that_are_published() {
    let base = r#""hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072"#;
    check(&format!(r#"{{"model_type": "vit", {base}, "image_size": 224, "patch_size": 16}}"#), 86_567_656);
    check(r#"{"model_type": "resnet", "depths": [3, 4, 6, 3], "layer_type": "bottleneck"}"#, 25_557_032);
    check(r#"{"model_type": "resnet", "depths": [2, 2, 2, 2], "layer_type": "basic"}"#, 11_689_512);
    check(r#"{"model_type": "convnext", "depths": [3, 3, 9, 3], "hidden_sizes": [96, 192, 384, 768]}"#, 28_589_128);
}

/// The first line of the problem.
fn refused(config: &str) -> String {
    match model(config.as_bytes(), &SampleShape::default()) {
        Ok(graph) => panic!("read {} operators from {config}", graph.operators.len()),
        Err(problem) => format!("{}: {}", problem.key, problem.message),
    }
}

#[test]
fn what_cannot_be_read_says_why() {
    assert!(refused("").contains("empty"));
    assert!(refused("{").contains("not JSON"));
    assert!(refused("version https://git-lfs.github.com/spec/v1").contains("Git LFS"));
    assert!(refused("PK\u{3}\u{4}").contains("torch.save"));
    assert!(refused(r#"{"peft_type": "LORA", "r": 8}"#).contains("an adapter"));
    assert!(refused(r#"{"model_type": "wavenet"}"#).contains("`wavenet` is not known"));
    assert!(
        refused(r#"{"model_type": "swin", "depths": [2, 2], "num_heads": [3]}"#).contains("do not belong together")
    );
    assert!(refused(r#"{"model_type": "swin", "embed_dim": 8, "num_heads": [16, 16, 16, 16]}"#).contains("heads"));
    assert!(refused(r#"{"model_type": "regnet", "depths": [9, 9000, 9, 9]}"#).contains("deeper"));
    assert!(refused(r#"{"model_type": "internlm2"}"#).contains("no `hidden_size`"));
    let huge = r#"{"model_type": "gpt2", "n_embd": 18446744073709551615, "n_layer": 1, "n_head": 1, "vocab_size": 5}"#;
    assert!(refused(huge).contains("no size"));
    let deep = r#"{"model_type": "gpt2", "n_embd": 8, "n_layer": 99999, "n_head": 1, "vocab_size": 5}"#;
    assert!(refused(deep).contains("layers"));
    let odd = r#"{"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 0, "vocab_size": 5}"#;
    assert!(refused(odd).contains("no size"));
}

#[test]
fn an_unknown_type_with_the_keys_of_a_decoder_is_read_and_said_so() {
    let config = r#"{"model_type": "brandnew", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 100, "rms_norm_eps": 1e-5}"#;
    let graph = model(config.as_bytes(), &SampleShape::default()).expect("its keys are enough");
    assert_eq!(graph.unknown, ["`model_type` `brandnew`, read as a decoder like Llama by its keys ×1"]);
    let strange = format!("{}, \"lru_width\": 64}}", config.trim_end_matches('}'));
    assert!(refused(&strange).contains("`lru_width` says so"), "{}", refused(&strange));
    let hears = r#"{"model_type": "hears", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 32, "conv_dim": [8, 8], "conv_kernel": [10, 3], "conv_stride": [5, 2]}"#;
    let graph = model(hears.as_bytes(), &SampleShape::default()).expect("its keys are those of an encoder of sounds");
    assert!(graph.unknown[0].contains("like wav2vec 2.0"), "{:?}", graph.unknown);
    let inside = format!(r#"{{"model_type": "sees", "vision_config": {{}}, "text_config": {config}}}"#);
    let graph = model(inside.as_bytes(), &SampleShape::default()).expect("its text part is enough");
    assert_eq!(graph.unknown.len(), 2, "{:?}", graph.unknown);
}

proptest::proptest! {
    /// Whatever figures a file claims, there is an answer, and it is a graph or a problem.
    #[test]
    fn no_figure_makes_it_fail(
        kind in 0..28usize,
        figures in proptest::collection::vec(proptest::prop_oneof![0..9u64, 0..5000u64, 0..=u64::MAX], 8),
    ) {
        let kinds = [
            "bert", "gpt2", "llama", "mixtral", "falcon", "mpt", "t5", "bart", "vit", "resnet", "convnext", "x",
            "mobilenet_v1", "mobilenet_v2", "mobilenet_v3", "yolo", "swin", "swinv2", "regnet", "efficientnet",
            "segformer", "clip", "whisper", "wav2vec2", "mamba", "deberta-v2", "mobilevit", "yolos",
        ];
        let keys = [
            ["hidden_size", "n_embd", "d_model"], ["num_hidden_layers", "n_layer", "num_layers"],
            ["num_attention_heads", "n_head", "num_heads"], ["intermediate_size", "n_inner", "d_ff"],
            ["vocab_size", "encoder_layers", "decoder_layers"], ["num_local_experts", "n_heads", "embed_dim"],
            ["num_key_value_heads", "patch_size", "image_size"], ["max_position_embeddings", "head_dim", "d_kv"],
        ];
        let mut object = serde_json::Map::new();
        object.insert("model_type".to_owned(), kinds[kind].into());
        for (names, figure) in keys.iter().zip(&figures) {
            // Few layers, so that the test is quick.
            let is_depth = names[0] == "num_hidden_layers" || names[0] == "vocab_size";
            for name in names {
                let figure = if is_depth && *figure < 1 << 20 { figure % 3 } else { *figure };
                object.insert((*name).to_owned(), figure.into());
            }
        }
        let text = serde_json::Value::Object(object).to_string();
        if let Ok(graph) = model(text.as_bytes(), &SampleShape::default()) {
            graph.multiply_adds();
            graph.parameters();
        }
    }
}

#[test]
fn images_have_the_parameters_that_pytorch_counts() {
    // `transformers` 5.23 and torchvision 0.26, counted by `sum(p.numel() for p in model.parameters())`.
    let classifies = r#""architectures": ["XForImageClassification"]"#;
    check(&format!(r#"{{"model_type": "resnet", {classifies}}}"#), 23_512_130);
    check(&format!(r#"{{"model_type": "resnet", "hidden_sizes": [64, 128, 256, 512], {classifies}}}"#), 1_488_770);
    check(&format!(r#"{{"model_type": "mobilenet_v1", {classifies}}}"#), 3_209_026);
    check(&format!(r#"{{"model_type": "mobilenet_v2", {classifies}}}"#), 2_226_434);
    check(&format!(r#"{{"model_type": "mobilenet_v2", "depth_multiplier": 1.4, {classifies}}}"#), 4_319_362);
    check(r#"{"model_type": "mobilenet_v2"}"#, 3_504_872);
    check(r#"{"model_type": "mobilenet_v3"}"#, 5_483_032);
    check(r#"{"model_type": "mobilenet_v3", "size": "small"}"#, 2_542_856);
    check(&format!(r#"{{"model_type": "vit", {classifies}}}"#), 85_800_194);
    // Ultralytics' own figures, less the 16 constants of its last convolution.
    let yolo = |depth: f64, width: f64, most: u64| {
        format!(
            r#"{{"model_type": "yolo", "depth_multiple": {depth}, "width_multiple": {width}, "max_channels": {most}}}"#
        )
    };
    check(&yolo(0.33, 0.25, 1024), 3_157_184);
    check(&yolo(0.33, 0.5, 1024), 11_166_544);
    check(&yolo(0.67, 0.75, 768), 25_902_624);
    check(&yolo(1.0, 1.25, 512), 68_229_632);
}

#[test]
fn what_a_file_leaves_out_is_what_transformers_takes() {
    check(r#"{"model_type": "bert", "architectures": ["BertForMaskedLM"]}"#, 109_514_298);
    check(r#"{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}"#, 124_439_808);
    check(r#"{"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"]}"#, 66_985_530);
    check(r#"{"model_type": "llama"}"#, 6_738_415_616);
    check(r#"{"model_type": "llama", "architectures": ["LlamaModel"]}"#, 6_607_343_616);
    let classes = r#""id2label": {"0": "a", "1": "b", "2": "c", "3": "d", "4": "e"}"#;
    check(
        &format!(r#"{{"model_type": "llama", {classes}, "architectures": ["LlamaForSequenceClassification"]}}"#),
        6_607_364_096,
    );
    // Its first block has no normalisation before attention: 768 fewer.
    check(r#"{"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"]}"#, 149_655_232 + 768);
    check(r#"{"model_type": "qwen2"}"#, 12_049_846_272);
    check(r#"{"model_type": "mistral"}"#, 7_241_732_096);
    check(r#"{"model_type": "mixtral"}"#, 46_702_792_704);
    check(r#"{"model_type": "t5"}"#, 60_506_624);
    check(r#"{"model_type": "mpt"}"#, 1_311_213_568);
    check(r#"{"model_type": "falcon"}"#, 6_921_720_704);
    check(r#"{"model_type": "gpt_neox"}"#, 20_554_567_680);
}

#[test]
fn networks_in_stages_over_sound_and_of_two_halves_have_the_parameters_that_transformers_counts() {
    let of = |kind: &str, class: &str, more: &str| {
        format!(r#"{{"model_type": "{kind}", "architectures": ["{class}"]{more}}}"#)
    };
    check(&of("swin", "SwinForImageClassification", ""), 27_520_892);
    check(&of("swinv2", "Swinv2ForImageClassification", r#", "window_size": 8, "image_size": 256"#), 27_579_692);
    check(&of("swinv2", "Swinv2Model", ""), 27_578_154);
    check(&of("regnet", "RegNetForImageClassification", r#", "num_labels": 1000"#), 20_646_656);
    let small = r#", "layer_type": "x", "hidden_sizes": [24, 56, 152, 368], "depths": [1, 1, 4, 7], "groups_width": 8"#;
    check(&of("regnet", "RegNetModel", small), 2_315_792);
    check(&of("efficientnet", "EfficientNetForImageClassification", ""), 63_792_082);
    let least = r#", "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280, "num_labels": 1000"#;
    check(&of("efficientnet", "EfficientNetForImageClassification", least), 5_288_548);
    check(&of("convnextv2", "ConvNextV2ForImageClassification", ""), 27_868_034);
    check(&of("segformer", "SegformerForImageClassification", ""), 3_319_906);
    check(&of("segformer", "SegformerForSemanticSegmentation", ""), 3_714_658);
    check(&of("mobilevit", "MobileViTForImageClassification", ""), 4_938_914);
    check(&of("clip", "CLIPModel", ""), 151_277_313);
    check(&of("clip", "CLIPForImageClassification", ""), 87_457_538);
    check(&of("clip_vision_model", "CLIPVisionModel", ""), 87_456_000);
    check(&of("whisper", "WhisperForConditionalGeneration", ""), 37_760_640);
    check(&of("whisper", "WhisperForCausalLM", ""), 29_552_256);
    check(&of("whisper", "WhisperForAudioClassification", ""), 8_307_458);
    check(&of("wav2vec2", "Wav2Vec2ForCTC", ""), 94_396_320);
    check(&of("wav2vec2", "Wav2Vec2ForSequenceClassification", ""), 94_569_090);
    check(&of("mamba", "MambaForCausalLM", ""), 159_308_544);
    check(&of("mamba", "MambaModel", r#", "use_bias": true, "expand": 3"#), 219_814_656);
}

#[test]
fn scores_by_distance_and_parts_of_which_some_blocks_have_no_choice_are_counted() {
    let base = r#""hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072"#;
    let third = r#""relative_attention": true, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": true,
        "pos_att_type": ["p2c", "c2p"], "position_biased_input": false, "type_vocab_size": 0, "vocab_size": 128100"#;
    for (class, parameters) in [("Model", 183_831_552), ("ForMaskedLM", 184_551_780)] {
        let class = format!(r#""architectures": ["DebertaV2{class}"]"#);
        check(&format!(r#"{{"model_type": "deberta-v2", {base}, {third}, {class}}}"#), parameters);
    }
    let first = r#""relative_attention": true, "pos_att_type": "c2p|p2c", "position_biased_input": false, "type_vocab_size": 0"#;
    let class = r#""vocab_size": 50265, "architectures": ["DebertaModel"]"#;
    check(&format!(r#"{{"model_type": "deberta", {base}, {first}, {class}}}"#), 138_601_728);
    // Meta's own file of Llama 3 8B.
    let meta = r#"{"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "multiple_of": 1024,
        "ffn_dim_multiplier": 1.3, "norm_eps": 1e-05, "rope_theta": 500000.0}"#;
    let graph = model(meta.as_bytes(), &SampleShape::default()).expect("its keys are enough");
    assert_eq!(graph.parameters(), 8_030_261_248);
}

#[test]
fn classes_that_nothing_names_are_assumed_and_said_so() {
    let read = |config: &str| model(config.as_bytes(), &SampleShape::default()).expect("a network").assumed.join("\n");
    assert!(read(r#"{"model_type": "resnet"}"#).contains("1000 classes are assumed"));
    assert!(!read(r#"{"model_type": "resnet", "num_classes": 10}"#).contains("classes"));
    assert!(!read(r#"{"model_type": "bert"}"#).contains("classes"));
}

#[test]
fn usual_figures_are_taken_and_said_so() {
    let read = |config: &str| model(config.as_bytes(), &SampleShape::default()).expect("a network").assumed.join("\n");
    let said = read(r#"{"model_type": "bert", "hidden_size": 384, "num_attention_heads": 6}"#);
    assert!(said.contains("`intermediate_size` 3072, "), "{said}");
    assert!(!said.contains("`hidden_size`"), "{said}");
    let said = read(r#"{"model_type": "llama"}"#);
    assert!(said.contains("a sample is 512 tokens; the network takes up to 2048"), "{said}");
}

#[test]
fn misspelt_keys_and_sizes_that_cannot_be_are_refused() {
    let llama = |more: &str| {
        format!(
            r#"{{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 128,
            "vocab_size": 100{more}}}"#
        )
    };
    let hidden = r#", "hidden_size": 64"#;
    assert!(
        refused(&llama(r#", "hiden_size": 64"#))
            .starts_with("hiden_size: networks of this type have no such key, and `hidden_size`")
    );
    assert!(refused(&llama(&format!(r#"{hidden}, "num_key_value_head": 2"#))).starts_with("num_key_value_head:"));
    assert!(refused(&llama(r#", "hidden_size": 60"#)).contains("8 heads do not divide a width of 60"));
    let keys = format!(r#"{hidden}, "num_key_value_heads": 3"#);
    assert!(refused(&llama(&keys)).contains("3 heads of keys do not divide 8 of queries"));
    let word = format!(r#"{hidden}, "tie_word_embeddings": "no""#);
    assert!(refused(&llama(&word)).contains("`\"no\"` is no `true` or `false`"), "{}", refused(&llama(&word)));
    let other = r#"{"model_type": "bert", "num_layers": 4}"#;
    assert!(
        refused(other)
            .starts_with("num_layers: networks of this type have no such key, and `num_hidden_layers` is missing")
    );
    let many = r#"{"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 9}"#;
    assert!(refused(many).contains("passes through 9 parts, and there are 8"), "{}", refused(many));
    let inside = r#"{"model_type": "llava", "text_config": {"model_type": "llama", "hiden_size": 64}}"#;
    assert!(refused(inside).starts_with("text_config.hiden_size:"), "{}", refused(inside));
    let long = |config: &str| {
        let shape = SampleShape { sequence: Some(4096), ..SampleShape::default() };
        model(config.as_bytes(), &shape).map_err(|problem| problem.message)
    };
    let said = long(r#"{"model_type": "bert"}"#).expect_err("too long");
    assert_eq!(said, "4096 tokens are more than the 512 positions of this network");
    let graph = long(r#"{"model_type": "llama"}"#).expect("positions are computed");
    assert!(graph.assumed.iter().any(|said| said.contains("longer than the 2048")), "{:?}", graph.assumed);
}

#[test]
fn what_some_classes_add_to_their_type_is_counted() {
    // `transformers` 5.23, counted by `sum(p.numel() for p in model.parameters())`.
    let of = |kind: &str, class: &str, more: &str| {
        format!(r#"{{"model_type": "{kind}", "architectures": ["{class}"]{more}}}"#)
    };
    let small = r#", "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "num_labels": 1000"#;
    check(&of("deit", "DeiTForImageClassificationWithTeacher", small), 22_436_432);
    let giant = r#", "image_size": 518, "patch_size": 14, "hidden_size": 1536, "num_hidden_layers": 40,
        "num_attention_heads": 24, "mlp_ratio": 4, "use_swiglu_ffn": true, "num_labels": 1000"#;
    check(&of("dinov2", "Dinov2ForImageClassification", giant), 1_139_553_768);
    let base = r#", "hidden_size": 768, "embedding_size": 768, "num_attention_heads": 12, "intermediate_size": 3072"#;
    check(&of("electra", "ElectraForPreTraining", base), 109_483_009);
    let marian = r#", "d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
        "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 58101,
        "max_position_embeddings": 512"#;
    check(&of("marian", "MarianMTModel", marian), 74_410_496);
    check(&of("blenderbot-small", "BlenderbotSmallForConditionalGeneration", r#", "vocab_size": 54944"#), 87_508_992);
    let bart = r#", "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
        "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "num_labels": 3"#;
    check(&of("bart", "BartForSequenceClassification", bart), 140_013_315);
    let beit = r#", "use_relative_position_bias": true, "num_labels": 1000"#;
    check(&of("beit", "BeitForImageClassification", beit), 86_530_984);
    check(&of("smollm3", "SmolLM3ForCausalLM", r#", "max_position_embeddings": 65536"#), 3_075_098_624);
    let longformer = r#", "max_position_embeddings": 4098, "type_vocab_size": 1, "vocab_size": 50265"#;
    check(&of("longformer", "LongformerForMaskedLM", longformer), 148_711_257);
    check(&of("persimmon", "PersimmonForCausalLM", r#", "vocab_size": 262144"#), 9_397_175_296);
}

#[test]
fn networks_that_see_and_write_are_both_their_halves() {
    // `transformers` 5.23, counted by `sum(p.numel() for p in model.parameters())`.
    let llava = r#"{"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"],
        "text_config": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32064},
        "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
        "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}}"#;
    check(llava, 7_063_427_072);
    let so400m = r#""hidden_size": 1152, "intermediate_size": 4304, "model_type": "siglip_vision_model",
        "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false"#;
    let paligemma = format!(
        r#"{{"model_type": "paligemma", "text_config": {{"hidden_size": 2048, "intermediate_size": 16384,
        "model_type": "gemma", "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1,
        "vocab_size": 257216}}, "vision_config": {{{so400m}}}}}"#
    );
    check(&paligemma, 2_923_466_480);
    let gemma = format!(
        r#"{{"model_type": "gemma3", "text_config": {{"hidden_size": 2560, "intermediate_size": 10240,
        "model_type": "gemma3_text", "num_hidden_layers": 34}}, "vision_config": {{"image_size": 896, {so400m}}}}}"#
    );
    check(&gemma, 4_300_079_472);
}

#[test]
fn attention_through_a_narrow_middle_and_two_halves_that_meet_are_counted() {
    let lite = r#"{"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16,
        "num_key_value_heads": 16, "intermediate_size": 10944, "vocab_size": 102400, "first_k_dense_replace": 1,
        "kv_lora_rank": 512, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "tie_word_embeddings": false, "architectures": ["DeepseekV2ForCausalLM"]}"#;
    check(lite, 15_706_484_224);
    check(r#"{"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}"#, 671_026_404_352);
    check(r#"{"model_type": "siglip", "architectures": ["SiglipModel"]}"#, 203_155_970);
    let large = r#"{"model_type": "siglip", "architectures": ["SiglipModel"],
        "text_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16,
        "num_hidden_layers": 27}, "vision_config": {"hidden_size": 1152, "image_size": 384, "intermediate_size": 4304,
        "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14}}"#;
    check(large, 877_960_498);
}
