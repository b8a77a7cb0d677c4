//! `cargo xtask bench models`: parameters, multiply-adds and activation memory of networks as we read them from their
//! `config.json`, compared with PyTorch's own count.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use xtask::doing::{self, Outcome};
use xtask::{build, peers, setup};

/// A figure that is compared with theirs, by its name in `plan model --json`.
struct Held {
    key: &'static str,
    /// Beyond this, in per cent, a count is another one.
    alike: f64,
    of: u64,
    near: u64,
}

impl Held {
    fn new(key: &'static str, alike: f64) -> Held {
        Held { key, alike, of: 0, near: 0 }
    }

    /// Tells how far ours is off, where it is; nothing where they counted nothing.
    fn compare(&mut self, ours: &Value, theirs: &Value) -> Option<String> {
        let theirs = theirs.as_f64().filter(|theirs| *theirs > 0.0)?;
        let ours = ours[self.key].as_f64().unwrap_or_default();
        let off = 100.0 * (ours / theirs - 1.0);
        self.of += 1;
        if off.abs() <= self.alike {
            self.near += 1;
            return None;
        }
        Some(format!("{} {ours:.0} against {theirs:.0}, {off:+.2} %", self.key))
    }
}

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
    let mut held = [
        Held::new("parameters", 0.01),
        Held::new("multiply_adds", 0.5),
        Held::new("kept_bytes_written_out", 8.0),
        Held::new("kept_bytes", 8.0),
    ];
    let [weights, products, kept, fused] = &mut held;
    let (mut told, mut refused, mut all) = (String::new(), 0, 0);
    for line in counted.lines() {
        let line: Value = serde_json::from_str(line)?;
        let file = line["file"].as_str().unwrap_or_default();
        all += 1;
        let lengths = line["multiply_adds"].as_object().into_iter().flatten();
        for (index, (length, counted)) in lengths.enumerate() {
            let mut command = Command::new(&program);
            command.args(["plan", "model", "--json"]).arg(folder.join(file));
            if length != "0" {
                command.args(["--sequence", length]);
            }
            let output = command.output()?;
            let read = serde_json::from_slice::<Value>(&output.stdout).ok().filter(|_| output.status.success());
            let Some(ours) = read.map(|read| read[0].clone()) else {
                refused += 1;
                let why = String::from_utf8_lossy(&output.stderr);
                writeln!(told, "{file}: refused: {}", why.lines().next().unwrap_or_default())?;
                break;
            };
            let mut off = vec![products.compare(&ours, counted)];
            if index == 0 {
                off.push(weights.compare(&ours, &line["parameters"]));
                off.push(kept.compare(&ours, &line["kept_bytes_written_out"]));
                off.push(fused.compare(&ours, &line["kept_bytes"]));
            }
            for what in off.into_iter().flatten() {
                writeln!(told, "{file} at {length}: {what}")?;
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    for Held { key, alike, of, near } in &held {
        writeln!(told, "{key}: {near} of {of} within {alike} %")?;
    }
    Ok(format!("{told}models: {all}, {refused} refused"))
}
