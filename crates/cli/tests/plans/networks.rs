//! Networks from files and of ours: what they are read as, and what is no network.

use std::path::Path;

use serde_json::Value;

use crate::workdir::Workdir;

#[test]
fn a_model_file_that_cannot_be_read_is_told() {
    let workdir = Workdir::new();
    workdir.file("job.yaml", "run: a\nworkload: {model: model.onnx, batch: 8, steps: 5}\n");
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("job.yaml:2: `workload.model`: cannot read the model"), "{}", said.err);
    assert!(said.err.contains("model.onnx") && said.err.contains("hint: name a `config.json`"), "{}", said.err);
    // The name of a network that `train:` knows is no file.
    workdir.file("job.yaml", "run: a\nworkload:\n  model: resnet50\n  batch: 8\n  steps: 5\n");
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("job.yaml:3: `workload.model`"), "{}", said.err);
    assert!(
        said.err.contains("`resnet50` is a network that `train: {model: resnet50, …}` trains here"),
        "{}",
        said.err
    );
    workdir.file("job.yaml", "run: a\nworkload: {model: model.onnx, batch: 8, steps: 5}\n");
    workdir.file("model.onnx", "this is no model");
    let said = workdir.gradus(&["plan", "job.yaml"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("workload.model"), "{}", said.err);
}

#[test]
fn one_file_that_is_no_network_hides_nothing_of_the_others() {
    let workdir = Workdir::new();
    workdir.file("good.json", r#"{"model_type": "gpt2"}"#);
    workdir.file("bad.json", r#"{"model_type": "gpt2", "n_embed": 64}"#);
    let said = workdir.gradus(&["plan", "model", "bad.json", "good.json", "none.json", "/dev/zero"]);
    assert_eq!(said.code, Some(2));
    assert!(said.out.contains("124,439,808"), "{}", said.out);
    for wrong in [
        "`n_embed`: networks of this type have no such key, and `n_embd` is missing",
        "none.json",
        "not a regular file",
    ] {
        assert!(said.err.contains(wrong), "{wrong}: {}", said.err);
    }
    let said = workdir.gradus(&["plan", "model", "bad.json", "good.json", "--json"]);
    let read: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert!(read[0]["error"].as_str().is_some_and(|error| error.contains("n_embd")), "{read}");
    assert_eq!(read[1]["parameters"], 124_439_808);
    // As PyTorch counts them of a sample of 128 tokens, with `saved_tensors_hooks`.
    let said = workdir.gradus(&["plan", "model", "good.json", "--sequence", "128", "--json"]);
    let read: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    for (key, counted) in [("saved_bytes", 161_197_568.0), ("saved_bytes_written_out", 182_357_504.0)] {
        let told = read[0][key].as_f64().expect("a number");
        assert!((told / counted - 1.0).abs() < 0.02, "{key}: {told} against {counted}");
    }
}

#[test]
fn lengths_and_sizes_that_a_network_does_not_have_are_refused() {
    let workdir = Workdir::new();
    workdir.file("sees.json", r#"{"model_type": "resnet", "num_labels": 10}"#);
    workdir.file("reads.json", r#"{"model_type": "gpt2"}"#);
    let plan = |model: &str, more: &str| {
        workdir.file("job.yaml", format!("run: a\nworkload: {{model: {model}, batch: 64, {more}}}\n"));
        workdir.gradus(&["plan", "job.yaml"])
    };
    let said = plan("sees.json", "steps: 100, sequence: 128");
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("`workload.sequence`: this network reads images"), "{}", said.err);
    let said = plan("reads.json", "steps: 100, image: 224");
    assert!(said.err.contains("`workload.image`: this network takes no images"), "{}", said.err);
    let said = plan("reads.json", "steps: 100, sequence: 2048");
    assert!(said.err.contains("`workload.sequence`: 2048 tokens are more than the 1024 positions"), "{}", said.err);
    // The length of the network's own sequences.
    let said = plan("reads.json", "tokens: 1B");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let all = format!("{}{}", said.out, said.err);
    assert!(all.contains("sequences are 512 tokens; say `sequence` for others"), "{all}");
}

#[test]
fn an_answer_depends_on_what_stands_in_a_file_and_not_on_its_name() {
    let workdir = Workdir::new();
    let config = r#"{"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522}"#;
    workdir.file("bert.json", config);
    workdir.file("gpt4.bin", config);
    let with = |file: &str| {
        let yaml = format!(
            "name: same\nrun: a\ndata: {{bytes: 1 GB}}\nworkload: {{model: {file}, sequence: 128, batch: 256, steps: 1000}}\n"
        );
        let mut plan = workdir.plan(&yaml, &[]);
        plan["job"] = Value::Null;
        plan
    };
    assert_eq!(with("bert.json"), with("gpt4.bin"));
}

#[test]
fn shipped_examples_are_planned() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let workdir = Workdir::new();
    for name in ["imagenet-resnet50", "bert-large", "llama-8b-finetune", "yolo-coco"] {
        let file = examples.join(format!("{name}.yaml"));
        let said = workdir.gradus(&["plan", file.to_str().unwrap()]);
        assert_eq!(said.code, Some(0), "{name}: {}", said.err);
        assert!(said.out.contains("recommended") && said.out.contains("prices of"), "{}", said.out);
    }
}

#[test]
fn networks_of_ours_are_planned_over_the_catalog_and_told_whether_they_fit() {
    let workdir = Workdir::new();
    let train = |model: &str, data: &str| {
        format!(
            "name: ours\ndata: {{samples: 100000}}\ntrain:\n  model: {model}\n  data: {{{data}}}\n  epochs: 2\n  batch: 64\n"
        )
    };
    let text = "path: texts.csv, text: {columns: [text], label: class, length: 128}, classes: 4";
    for (yaml, parameters) in [
        (train("mobilenet_v2", "path: pictures, size: 224, classes: 1000"), 3_504_872.0),
        (train("bert_base", text), 92_188_420.0),
    ] {
        let plan = workdir.plan(&yaml, &["--catalog"]);
        assert_eq!(plan["parameters"], parameters);
        let way = &plan["picks"][0]["way"];
        assert_eq!(way["verdict"], "fits", "{way}");
        let bytes = |key: &str| way[key].as_f64().unwrap();
        assert!(bytes("needed_low") < bytes("needed") && bytes("needed") < bytes("needed_high"), "{way}");
    }
}
