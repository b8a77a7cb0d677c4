//! `cargo xtask bench models`: weights of networks as we read them from their `config.json`, beside PyTorch's own count.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::doing::{self, Outcome};
use crate::{build, peers, setup};

/// Beyond this, in per cent, a count is another one.
const ALIKE: f64 = 0.01;

/// Has `transformers` describe and count its networks, reads the descriptions, and lists what differs.
pub fn models(root: &Path) -> Outcome {
    let arguments = ["build", "--release", "--package", "gradus-cli"];
    doing::run(&mut doing::cargo(root, &arguments), "read the compiler's message above")?;
    let program = build::target(root).join("release/gradus");
    let folder = std::env::temp_dir().join(format!("gradus-bench-models-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let paths = std::env::join_paths([peers::pytorch()?, peers::transformers()?])?;
    let mut script = Command::new(setup::python()?);
    script.arg(root.join("benches/peers/parameters.py")).arg(&folder);
    script.env("PYTHONPATH", &paths).env("TRANSFORMERS_VERBOSITY", "error");
    let counted = doing::read(&mut script)?;
    let (mut told, mut alike, mut refused, mut all) = (String::new(), 0, 0, 0);
    for line in counted.lines() {
        let line: Value = serde_json::from_str(line)?;
        let file = line["file"].as_str().unwrap_or_default();
        let theirs = line["parameters"].as_u64().unwrap_or_default();
        all += 1;
        let output = Command::new(&program).args(["plan", "model", "--json"]).arg(folder.join(file)).output()?;
        let read = serde_json::from_slice::<Value>(&output.stdout).ok().filter(|_| output.status.success());
        let Some(ours) = read.and_then(|read| read[0]["parameters"].as_u64()) else {
            refused += 1;
            let why = String::from_utf8_lossy(&output.stderr);
            writeln!(told, "{file}: refused: {}", why.lines().next().unwrap_or_default())?;
            continue;
        };
        let off = 100.0 * (ours as f64 / theirs as f64 - 1.0);
        match off.abs() <= ALIKE {
            true => alike += 1,
            false => writeln!(told, "{file}: {ours} against {theirs}, {off:+.2} %")?,
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(format!("{told}models: {alike} of {all} within {ALIKE} %, {refused} refused"))
}
