//! What is said where `workload:` is written as a first guess would have it.

use super::check;

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
