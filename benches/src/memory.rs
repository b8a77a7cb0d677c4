//! Memory saved by number formats, accumulation and recomputation: the peak memory of training steps with each.

use std::error::Error;
use std::path::Path;

use serde_json::{Value, json};

use crate::built;
use crate::case::{ALL, Case};
use crate::measure::program::{Program, as_in_a_run};
use xtask::doing::Outcome;

/// Steps of each; the most memory is taken in the second, when the optimiser has its moments.
const STEPS: usize = 3;

const MODELS: [&str; 3] = ["resnet50", "bert_mini", "gpt_tiny"];

/// Keys of a job in addition to those of the plain run.
fn ways() -> [(&'static str, Value); 9] {
    [
        ("plain", json!({})),
        ("`precision: bf16`", json!({"precision": "bf16"})),
        ("`precision: fp16`", json!({"precision": "fp16"})),
        ("`accumulate: 4`", json!({"accumulate": 4})),
        ("`recompute: blocks`", json!({"recompute": "blocks"})),
        ("`recompute: {every: 2}`", json!({"recompute": {"every": 2}})),
        ("`chunked_loss: true`", json!({"chunked_loss": true})),
        ("`accumulate: 4`, `recompute: blocks`", json!({"accumulate": 4, "recompute": "blocks"})),
        (
            "`precision: bf16`, `accumulate: 4`, `recompute: blocks`",
            json!({"precision": "bf16", "accumulate": 4, "recompute": "blocks"}),
        ),
    ]
}

/// Prints one table over the networks that are named, or over three.
pub fn memory(root: &Path, models: &[String]) -> Outcome {
    let program = built(root)?.join("gradus-rank");
    let models: Vec<&str> =
        if models.is_empty() { MODELS.to_vec() } else { models.iter().map(String::as_str).collect() };
    let cases = models.iter().map(|model| {
        let of_model = |case: &Case| case.model == *model;
        Case::named(&format!("{model}-fp32")).or_else(|| ALL.into_iter().find(of_model))
    });
    let cases: Vec<Case> = cases.collect::<Option<_>>().ok_or_else(|| {
        format!("`{}`: one of them is not measured\n  hint: known are resnet18, {}", models.join(" "), Case::others())
    })?;
    println!("| peak memory, MiB | {} |", cases.iter().map(|case| case.model).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(cases.len()));
    let mut plain = Vec::new();
    for (name, keys) in ways() {
        let mut cells = Vec::new();
        for (at, case) in cases.iter().enumerate() {
            let peak = peak(&program, *case, &keys)?;
            plain.extend((plain.len() == at && keys == json!({})).then_some(peak));
            cells.push(format!("{peak:.0} ({:.0} %)", 100.0 * peak / plain[at]));
        }
        println!("| {name} | {} |", cells.join(" | "));
    }
    let batches: Vec<String> = cases.iter().map(|case| format!("{} {}", case.model, case.batch())).collect();
    Ok(format!("bench: batches of {}; each figure from a process of its own, {STEPS} steps", batches.join(", ")))
}

/// The most memory that a process has which makes a few steps, in MiB.
fn peak(program: &Path, case: Case, keys: &Value) -> Result<f64, Box<dyn Error>> {
    let description = case.described_with(keys);
    let mut steps = Program::start("our step", as_in_a_run(program)?.arg("bench"), &description)?;
    Ok(steps.steps(STEPS)?.peak_bytes / f64::from(1 << 20))
}
