use super::super::{SampleShape, model};
use crate::model::Graph;
use crate::model::families::language::bert::Head;
use crate::model::families::{Bert, Gpt, Llama, Resnet};

/// The header of a file with these tensors, without data.
fn file(tensors: &[(String, Vec<u64>)]) -> Vec<u8> {
    let entry = |(name, shape): &(String, Vec<u64>)| {
        let buffer = name.ends_with("position_ids") || name.ends_with("num_batches_tracked");
        let dtype = if buffer { "I64" } else { "F32" };
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[0,0]}}"#)
    };
    let entries: Vec<String> = tensors.iter().map(entry).collect();
    framed(&format!(r#"{{"__metadata__":{{"format":"pt"}},{}}}"#, entries.join(",")))
}

fn framed(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()
}

/// Tensors from lines such as `wte.weight 100 64`; `*` counts up to `layers`.
fn tensors(layers: u64, lines: &str) -> Vec<(String, Vec<u64>)> {
    let mut tensors = Vec::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a line has a name");
        let shape: Vec<u64> = words.map(|word| word.parse().expect("a side is a number")).collect();
        let count = if name.contains('*') { layers } else { 1 };
        tensors.extend((0..count).map(|layer| (name.replace('*', &layer.to_string()), shape.clone())));
    }
    tensors
}

fn read(tensors: &[(String, Vec<u64>)]) -> Graph {
    match model(&file(tensors), &SampleShape::default()) {
        Ok(graph) => graph,
        Err(problem) => panic!("{problem:?}"),
    }
}

/// Compares what is read with the family's own graph, and returns what was assumed.
#[track_caller]
fn check(tensors: &[(String, Vec<u64>)], expected: Graph) -> Vec<String> {
    let mut graph = read(tensors);
    let unknown = std::mem::take(&mut graph.unknown);
    assert_eq!(graph, expected);
    unknown
}

fn bert_tensors() -> Vec<(String, Vec<u64>)> {
    tensors(
        12,
        "bert.embeddings.word_embeddings.weight 30522 768
        bert.embeddings.position_embeddings.weight 512 768
        bert.embeddings.position_ids 1 512
        bert.embeddings.token_type_embeddings.weight 2 768
        bert.embeddings.LayerNorm.gamma 768
        bert.embeddings.LayerNorm.beta 768
        bert.encoder.layer.*.attention.self.query.weight 768 768
        bert.encoder.layer.*.attention.self.query.bias 768
        bert.encoder.layer.*.attention.self.key.weight 768 768
        bert.encoder.layer.*.attention.self.key.bias 768
        bert.encoder.layer.*.attention.self.value.weight 768 768
        bert.encoder.layer.*.attention.self.value.bias 768
        bert.encoder.layer.*.attention.output.dense.weight 768 768
        bert.encoder.layer.*.attention.output.dense.bias 768
        bert.encoder.layer.*.attention.output.LayerNorm.weight 768
        bert.encoder.layer.*.attention.output.LayerNorm.bias 768
        bert.encoder.layer.*.intermediate.dense.weight 3072 768
        bert.encoder.layer.*.intermediate.dense.bias 3072
        bert.encoder.layer.*.output.dense.weight 768 3072
        bert.encoder.layer.*.output.dense.bias 768
        bert.encoder.layer.*.output.LayerNorm.weight 768
        bert.encoder.layer.*.output.LayerNorm.bias 768
        bert.pooler.dense.weight 768 768
        bert.pooler.dense.bias 768
        classifier.weight 3 768
        classifier.bias 3",
    )
}

#[test]
fn bert_is_recovered() {
    let unknown = check(&bert_tensors(), Bert::base(512, Head::Sequence { classes: 3 }).graph());
    assert_eq!(unknown, ["heads, taken to be 64 wide ×1", "GELU and dropout, taken from BERT ×1"]);
}

#[test]
fn gpt2_is_recovered() {
    let stored = tensors(
        12,
        "wte.weight 50257 768
        wpe.weight 1024 768
        h.*.ln_1.weight 768
        h.*.ln_1.bias 768
        h.*.attn.bias 1 1 1024 1024
        h.*.attn.c_attn.weight 768 2304
        h.*.attn.c_attn.bias 2304
        h.*.attn.c_proj.weight 768 768
        h.*.attn.c_proj.bias 768
        h.*.ln_2.weight 768
        h.*.ln_2.bias 768
        h.*.mlp.c_fc.weight 768 3072
        h.*.mlp.c_fc.bias 3072
        h.*.mlp.c_proj.weight 3072 768
        h.*.mlp.c_proj.bias 768
        ln_f.weight 768
        ln_f.bias 768",
    );
    let own = Gpt { positions: 1024, ..Gpt::megatron(768, 12, 12, 50257, 512) };
    assert_eq!(own.graph().parameters(), 124_439_808);
    assert_eq!(check(&stored, own.graph()).len(), 2);
}

#[test]
fn llama_is_recovered() {
    let stored = tensors(
        32,
        "model.embed_tokens.weight 128256 4096
        model.layers.*.input_layernorm.weight 4096
        model.layers.*.self_attn.q_proj.weight 4096 4096
        model.layers.*.self_attn.k_proj.weight 1024 4096
        model.layers.*.self_attn.v_proj.weight 1024 4096
        model.layers.*.self_attn.o_proj.weight 4096 4096
        model.layers.*.post_attention_layernorm.weight 4096
        model.layers.*.mlp.gate_proj.weight 14336 4096
        model.layers.*.mlp.up_proj.weight 14336 4096
        model.layers.*.mlp.down_proj.weight 4096 14336
        model.norm.weight 4096
        lm_head.weight 128256 4096",
    );
    let unknown = check(&stored, Llama::three_8b(512).graph());
    assert_eq!(unknown[0], "heads, taken to be 128 wide ×1");
}

#[test]
fn vit_is_recovered() {
    let stored = tensors(
        12,
        "cls_token 1 1 768
        pos_embed 1 197 768
        patch_embed.proj.weight 768 3 16 16
        patch_embed.proj.bias 768
        blocks.*.norm1.weight 768
        blocks.*.norm1.bias 768
        blocks.*.attn.qkv.weight 2304 768
        blocks.*.attn.qkv.bias 2304
        blocks.*.attn.proj.weight 768 768
        blocks.*.attn.proj.bias 768
        blocks.*.norm2.weight 768
        blocks.*.norm2.bias 768
        blocks.*.mlp.fc1.weight 3072 768
        blocks.*.mlp.fc1.bias 3072
        blocks.*.mlp.fc2.weight 768 3072
        blocks.*.mlp.fc2.bias 768
        norm.weight 768
        norm.bias 768
        head.weight 1000 768
        head.bias 1000",
    );
    let graph = read(&stored);
    assert_eq!(graph.parameters(), 86_567_656);
    assert_eq!(graph.unknown.len(), 2, "{:?}", graph.unknown);
}

/// The tensors of torchvision's residual network.
fn resnet_tensors(blocks: [u64; 4], bottleneck: bool) -> Vec<(String, Vec<u64>)> {
    let mut stored = Vec::new();
    let mut add = |name: String, norm: &str, shape: [u64; 4]| {
        stored.push((format!("{name}.weight"), shape.to_vec()));
        for part in ["weight", "bias", "running_mean", "running_var"] {
            stored.push((format!("{norm}.{part}"), vec![shape[0]]));
        }
        stored.push((format!("{norm}.num_batches_tracked"), vec![]));
    };
    add("conv1".to_owned(), "bn1", [64, 3, 7, 7]);
    let mut from = 64;
    for (stage, count) in blocks.into_iter().enumerate() {
        let channels = 64 << stage;
        let out = if bottleneck { 4 * channels } else { channels };
        for block in 0..count {
            let name = format!("layer{}.{block}", stage + 1);
            let shapes = match bottleneck {
                true => vec![[channels, from, 1, 1], [channels, channels, 3, 3], [out, channels, 1, 1]],
                false => vec![[channels, from, 3, 3], [out, channels, 3, 3]],
            };
            for (index, shape) in shapes.into_iter().enumerate() {
                add(format!("{name}.conv{}", index + 1), &format!("{name}.bn{}", index + 1), shape);
            }
            if block == 0 && from != out {
                add(format!("{name}.downsample.0"), &format!("{name}.downsample.1"), [out, from, 1, 1]);
            }
            from = out;
        }
    }
    stored.push(("fc.weight".to_owned(), vec![1000, from]));
    stored.push(("fc.bias".to_owned(), vec![1000]));
    stored
}

#[test]
fn residual_networks_are_recovered() {
    for (depth, blocks, bottleneck) in [(18, [2, 2, 2, 2], false), (50, [3, 4, 6, 3], true)] {
        let own = Resnet::imagenet(depth).expect("it is published").graph();
        let unknown = check(&resnet_tensors(blocks, bottleneck), own);
        assert_eq!(unknown, ["size of the images, taken to be 224 pixels a side ×1"]);
    }
}

fn refused(bytes: &[u8]) -> String {
    match model(bytes, &SampleShape::default()) {
        Ok(graph) => panic!("read {} operators", graph.operators.len()),
        Err(problem) => problem.message,
    }
}

#[test]
fn what_cannot_be_recovered_says_why() {
    assert!(refused(&framed("{}")).contains("are not those of"));
    assert!(refused(&file(&tensors(1, "encoder.conv.weight 8 8 3"))).contains("`encoder.conv.weight`"));
    assert!(refused(&framed("{\"a\": 5}")).contains("cannot be read as safetensors"));
    let mut cut = file(&bert_tensors());
    cut.truncate(100);
    assert!(refused(&cut).contains("and 92 follow"));
    let long = [&(1_u64 << 31).to_le_bytes()[..], b"{}"].concat();
    assert!(refused(&long).contains("are the most"));
    // As BERT, and as much again beside it.
    let mut more = bert_tensors();
    more.push(("decoder.weight".to_owned(), vec![30522, 3072]));
    assert!(refused(&file(&more)).contains("the network that its names tell has"));
    // A layer is missing, and the rest do not count from 0.
    let without: Vec<_> = bert_tensors().into_iter().filter(|(name, _)| !name.contains("layer.0.")).collect();
    assert!(refused(&file(&without)).contains("are not those of"));
}

proptest::proptest! {
    /// Whatever dimensions a file claims, there is an answer.
    #[test]
    fn no_dimension_makes_it_fail(
        which in 0..2usize,
        changes in proptest::collection::vec((0..400usize, 0..5usize, proptest::prop_oneof![0..99u64, 0..=u64::MAX]), 1..6),
    ) {
        let mut stored = if which == 0 { bert_tensors() } else { resnet_tensors([1, 1, 1, 1], true) };
        for (at, side, size) in changes {
            let count = stored.len();
            let shape = &mut stored[at % count].1;
            match side < shape.len() {
                true => shape[side] = size,
                false => shape.push(size),
            }
        }
        if let Ok(graph) = model(&file(&stored), &SampleShape::default()) {
            graph.multiply_adds();
        }
    }

    /// Whatever bytes follow the length, there is an answer.
    #[test]
    fn no_bytes_make_it_fail(length in 0..300u32, bytes in proptest::collection::vec(0..=255u8, 0..200)) {
        let file = [&u64::from(length).to_le_bytes()[..], b"{", &bytes].concat();
        let _ = model(&file, &SampleShape::default());
    }
}
