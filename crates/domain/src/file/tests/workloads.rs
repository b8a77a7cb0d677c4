//! The `workload:` section of a program of the user's own.

use super::{check, train_with};

/// A `workload:` section that is right but for `line`.
fn workload_with(line: &str) -> String {
    format!("run: echo\ndata: {{samples: 1000}}\nworkload:\n  model: config.json\n  batch: 64\n  {line}\n")
}

#[test]
fn values_of_a_workload_make_sense() {
    let check = |line: &str, expected: &str| check(&workload_with(line), expected);
    check("epochs: 3", "ok");
    check("steps: 1.5k", "ok");
    check("tokens: 300B", "ok");
    check("epochs: 0.5\n  optimizer: sgd_momentum\n  precision: amp_bf16\n  evaluated: 50k", "ok");
    check("", "3 workload: how long it trains is not said (write `epochs: …`, `steps: …` or `tokens: …`)");
    check(
        "epochs: 3\n  steps: 5",
        "6 workload.epochs: `epochs`, `steps` and `tokens` exclude each other (keep one of them)",
    );
    check("epochs: 3\n  image: 224", "ok");
    check("epochs: 3\n  picture: 224", "ok");
    check("epochs: 3\n  picture: 4", "7 workload.image: `4` is out of range: it must be at least 8");
    check(
        "epochs: 3\n  picture: 224\n  image: 224",
        "8 workload.image: this key is also given by a former name (keep only `image`)",
    );
    check("steps: many", "6 workload.steps: `many` is no number (write for example `1281167`, `1.28M` or `300B`)");
    check("steps: 0", "6 workload.steps: `0` is out of range: it must be at least 1 (write the number of steps)");
    check("epochs: 0", "6 workload.epochs: `0` is out of range: it must be above 0");
    check("epochs: 1\n  optimizer: adamm", "7 workload.optimizer: `adamm` is not known here (did you mean `adam`?)");
    let described = |model: &str| format!("run: echo\nworkload: {{model: {model}, batch: 64, steps: 5}}\n");
    super::check(&described("{config: {model_type: bert, layers: [1, 2.5, yes, ~], tie: true}}"), "ok");
    super::check(&described("{totals: {parameters: 25.6M, multiply_adds: 4.1G, activations: 11M}}"), "ok");
    super::check(
        &described("{totals: {parameters: 25.6M, multiply_adds: 4.1G}}"),
        "2 workload.model.totals.activations: this key is missing (add `activations: …`: values that convolutions and linear layers write in one forward pass of one sample)",
    );
    super::check(
        "run: echo\nworkload: {model: a.onnx, batch: 64, epochs: 5}\n",
        "2 workload.epochs: epochs are counted in samples, and their number is not said (write `data: {samples: …}`, or `steps: …` instead of `epochs`)",
    );
    super::check(
        "run: echo\nworkload: {model: a.onnx, batch: 64, epochs: 5}\ndata: {samples: 0}\n",
        "3 data.samples: `0` is out of range: it must be at least 1 (write the number of samples)",
    );
    super::check(
        "run: echo\nworkload: {model: a.onnx, batch: 64, epochs: 5}\ndata: {samples: 10}\n",
        "2 workload.batch: a batch of 64 is more than the 10 training samples (write `batch: 10` or less)",
    );
    super::check(
        &(train_with("seed: 1") + "workload: {model: a.onnx, batch: 64, steps: 5}\n"),
        "7 workload: `train:` says itself what is trained (leave `workload` out, or write `run:` instead of `train:`)",
    );
}

#[test]
fn a_file_is_named_without_a_kind() {
    let file = "a Hugging Face `config.json`, an ONNX or a safetensors file, relative to the job file";
    let described = |model: &str| format!("run: echo\nworkload: {{model: {model}, batch: 64, steps: 5}}\n");
    check(
        &described("{onnx: a.onnx}"),
        &format!("2 workload.model.onnx: unknown kind (write one of `config`, `totals`, or without any: {file})"),
    );
    check(
        &described("{config: config.json}"),
        &format!(
            "2 workload.model.config: expected a mapping, found the text `config.json` (without `config:`, `config.json` may be {file})"
        ),
    );
}

#[test]
fn what_is_described_needs_a_program() {
    check(
        "workload: {model: a.onnx, batch: 64, steps: 5}\n",
        "- -: there is nothing to do: neither `train` nor `run` is given (`workload:` describes what a program trains: add `run: python train.py`, or how else yours is started)",
    );
}

#[test]
fn keys_are_found_again_by_their_lines() {
    let text = "run: echo\nworkload:\n  model: a.onnx\n  batch: 64\n";
    let found = ["workload.model", "workload.steps", "data.samples", "run"].map(|key| crate::file::line_of(text, key));
    assert_eq!(found, [Some(3), Some(2), None, Some(1)]);
}

#[test]
fn a_job_for_this_machine_says_so() {
    let here = |more: &str| {
        let text = format!("run: echo\n{more}");
        crate::Job::parse(&text, "job.yaml").map(|parsed| parsed.job.wants.here)
    };
    assert_eq!(
        [here("resources: {infra: local}\n"), here(""), here("resources: {cpus: 2}\n")],
        [Ok(true), Ok(false), Ok(false)]
    );
}
