//! `cargo xtask bench deployed`: exported models in onnxruntime and `torch.jit`, against torchvision with their weights.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::built;
use crate::measure::program::number;
use xtask::doing::{self, Outcome};
use xtask::{peers, setup};

const MODELS: [&str; 12] = [
    "resnet18",
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
];

/// The largest difference of a logit, relative to the largest, that rounding explains.
const MOST: f64 = 1e-4;

/// Trains, exports and runs the models that are named, or all of them.
pub fn deployed(root: &Path, named: &[String]) -> Outcome {
    if let Some(unknown) = named.iter().find(|name| !MODELS.contains(&name.as_str())) {
        return Err(format!("`{unknown}` is not compared\n  hint: one of {}", MODELS.join(", ")).into());
    }
    let folder = built(root)?;
    let build = ["build", "--release", "--package", "gradus-cli", "--features", "formats"];
    doing::run(&mut doing::cargo(root, &build), "read the compiler's message above")?;
    let paths = std::env::join_paths([peers::pytorch()?, peers::onnxruntime()?])?;
    let mut script = Command::new(setup::python()?);
    script.arg(root.join("benches/peers/deployed.py")).arg(folder.join("gradus")).env("PYTHONPATH", &paths);
    script.args(MODELS.iter().filter(|model| named.is_empty() || named.iter().any(|name| name == *model)));
    let answer = doing::read(&mut script)?;
    print!("{answer}");
    let lines = answer.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let mut wrong = Vec::new();
    for line in &lines {
        for key in ["onnxruntime", "torchscript"] {
            let found = number(line, key)?;
            // Not `>`: a difference that is no number must fail too.
            if !matches!(found.partial_cmp(&MOST), Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)) {
                wrong.push(format!("{} in {key} ({found:.1e}, more than {MOST:.0e})", line["model"]));
            }
        }
    }
    match wrong.is_empty() {
        true => Ok(format!("deployed: {} models have torchvision's logits in onnxruntime and torch.jit", lines.len())),
        false => Err(format!("these differ from torchvision: {}", wrong.join(", ")).into()),
    }
}
