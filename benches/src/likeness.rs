//! Every network against its peer, number by number: `docs/parity.md` is written from what came out.

pub mod deployed;

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::built;
use crate::measure::program::number;
use xtask::doing::{self, Outcome};
use xtask::{peers, setup};

/// What is compared; after a colon the task, where a model has two.
const MODELS: [&str; 25] = [
    "resnet20",
    "resnet56",
    "resnet18",
    "resnet18:labels",
    "resnet18:number",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "vit_s_16",
    "vit_b_16",
    "convnext_tiny",
    "efficientnet_b0",
    "yolo_n",
    "bert_mini",
    "bert_mini:words",
    "bert_mini:labels",
    "bert_mini:number",
    "bert_base",
    "gpt_tiny",
    "gpt2",
    "torchscript",
];

/// Key of a figure, its heading and the largest that is right.
const FIGURES: [(&str, &str, f64); 5] = [
    ("logits", "logits", 1e-5),
    ("loss", "loss", 1e-5),
    ("gradients", "gradients", 1e-4),
    ("curve", "losses of 20 steps", 1e-3),
    ("weights", "weights after them", 1e-3),
];

const OPENING: &str = "\
# Numerical parity

`cargo xtask bench parity --all` writes this page and needs no data. The reference implementation's random weights are
saved in its own format and loaded by gradus under the same names; both then see the same batch on one CPU thread in
fp32. The references are torchvision 0.26 and `transformers` 5.23 on PyTorch 2.11. What torchvision lacks (the residual
networks for small images, the detector) and a TorchScript module are written out in `benches/peers/`.

Images are 64×64 in batches of eight; texts are four rows of 48 tokens from a vocabulary of 1,000, two of them padded.
Dropout is active in training passes and drawn from the same seed. After 20 updates (SGD with momentum for convolutional
networks, AdamW for the others) the reference loads our weights by name.

AdamW runs with an eps of 1e-6. A softmax ignores what is added to all of its inputs, so the gradients of the attention
keys' biases are pure rounding error; with the default eps of 1e-8, Adam divides them by their own size and turns them
into full steps, different ones in any two programs.

Each figure is the largest difference within a tensor, relative to the tensor's largest value. Gradients that are tiny
compared with the others are divided by a thousandth of the largest gradient instead.

The detector may exceed the bounds on the 20 updates, and so does PyTorch itself: the row below it compares PyTorch with
PyTorch after each initial weight is changed by about its last bit (a relative 6e-8). A detector assigns objects to
anchor points by scores that lie close together, so rounding is amplified. Its last two columns are held to that row.

";

/// Compares the models that are named, or all of them; then the table is written.
pub fn likeness(root: &Path, named: &[String]) -> Outcome {
    if let Some(unknown) = named.iter().find(|name| !MODELS.contains(&name.as_str())) {
        return Err(format!("`{unknown}` is not compared\n  hint: one of {}", MODELS.join(", ")).into());
    }
    let ours = built(root)?.join("examples/parity");
    let paths = std::env::join_paths([peers::pytorch()?, peers::transformers()?])?;
    let mut lines = Vec::new();
    for model in MODELS.iter().filter(|model| named.is_empty() || named.iter().any(|name| name == *model)) {
        let mut script = Command::new(setup::python()?);
        script.arg(root.join("benches/peers/parity.py")).arg(&ours).arg(model).env("PYTHONPATH", &paths);
        // The peer looks for nothing beyond this machine.
        script.env("HF_HUB_OFFLINE", "1").env("TRANSFORMERS_VERBOSITY", "error");
        let answer: Value = serde_json::from_str(doing::read(&mut script)?.trim())?;
        println!("{answer}");
        lines.push(answer);
    }
    let wrong: Vec<String> = lines.iter().map(misses).collect::<Result<Vec<_>, _>>()?.concat();
    if named.is_empty() {
        let path = root.join("docs/parity.md");
        let text = format!("{OPENING}{}", table(&lines)?);
        std::fs::write(&path, text).map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
    }
    match wrong.is_empty() {
        true => Ok(format!("parity: {} networks match their references", lines.len())),
        false => Err(format!("these differ from their references: {}", wrong.join(", ")).into()),
    }
}

/// Every update rule that PyTorch has, against its own.
pub fn optimizers(root: &Path) -> Outcome {
    let ours = built(root)?.join("examples/parity");
    let mut script = Command::new(setup::python()?);
    script.arg(root.join("benches/peers/optimizers.py")).arg(&ours).env("PYTHONPATH", peers::pytorch()?);
    print!("{}", doing::read(&mut script)?);
    Ok("optimizers: every rule stays within 1e-3 of PyTorch's over 20 steps".into())
}

/// The figures of one answer that are too large.
fn misses(answer: &Value) -> Result<Vec<String>, Box<dyn Error>> {
    let mut wrong = Vec::new();
    for (key, heading, most) in FIGURES {
        let found = number(answer, key)?;
        // Who does not repeat itself more closely cannot be met more closely.
        let most = answer["itself"][key].as_f64().map_or(most, |itself| itself.max(most));
        // Not `>`: a difference that is no number must fail too.
        if !matches!(found.partial_cmp(&most), Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)) {
            wrong.push(format!("{} in {heading} ({found:.1e}, more than {most:.0e})", answer["model"]));
        }
    }
    Ok(wrong)
}

fn table(lines: &[Value]) -> Result<String, Box<dyn Error>> {
    let mut text = String::from("| network | reference | tensors |");
    for (_, heading, most) in FIGURES {
        write!(text, " {heading} (≤ {most:.0e}) |")?;
    }
    text.push_str("\n|---|---|---|---|---|---|---|---|\n");
    for answer in lines {
        let name = match answer["model"].as_str().unwrap_or_default().split_once(':') {
            Some((name, "labels")) => format!("`{name}`, several labels (`BCEWithLogitsLoss`)"),
            Some((name, "number")) => format!("`{name}`, a number (`MSELoss`)"),
            Some((name, _)) => format!("`{name}`, masked language modelling"),
            None => format!("`{}`", answer["model"].as_str().unwrap_or_default()),
        };
        write!(text, "| {name} | {} | {} |", answer["peer"].as_str().unwrap_or_default(), answer["tensors"])?;
        for (key, _, _) in FIGURES {
            write!(text, " {:.1e} |", number(answer, key)?)?;
        }
        text.push('\n');
        if let Some(itself) = answer["itself"].as_object() {
            write!(text, "| {name}, PyTorch against itself | | {} |", answer["tensors"])?;
            for (key, _, _) in FIGURES {
                match itself.get(key).and_then(Value::as_f64) {
                    Some(figure) => write!(text, " {figure:.1e} |")?,
                    None => text.push_str(" – |"),
                }
            }
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_judged_and_told() {
        let like = json!({"model": "bert_mini:words", "peer": "transformers", "tensors": 70, "logits": 1e-6, "loss": 0.0, "gradients": 1e-4, "curve": 1e-6, "weights": 1e-6});
        assert_eq!(misses(&like).unwrap(), Vec::<String>::new());
        let row = "| `bert_mini`, masked language modelling | transformers | 70 | 1.0e-6 | 0.0e0 | 1.0e-4 | 1.0e-6 | 1.0e-6 |\n";
        assert!(table(std::slice::from_ref(&like)).unwrap().ends_with(row));
        let mut unlike = like;
        unlike["gradients"] = json!(2e-4);
        assert_eq!(misses(&unlike).unwrap(), ["\"bert_mini:words\" in gradients (2.0e-4, more than 1e-4)"]);
        let mut detector = json!({"model": "yolo_n", "peer": "plain PyTorch", "tensors": 9, "logits": 0.0, "loss": 0.0, "gradients": 0.0, "curve": 9e-4, "weights": 9e-3, "itself": {"curve": 5e-4, "weights": 1e-2}});
        assert_eq!(misses(&detector).unwrap(), Vec::<String>::new());
        let row = "| `yolo_n`, PyTorch against itself | | 9 | – | – | – | 5.0e-4 | 1.0e-2 |\n";
        assert!(table(std::slice::from_ref(&detector)).unwrap().ends_with(row));
        detector["weights"] = json!(2e-2);
        assert_eq!(misses(&detector).unwrap().len(), 1);
    }
}
