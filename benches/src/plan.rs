//! `cargo xtask bench plan`: the time of a plan over all offers, of the process and of the search.
//!
//! Each example is planned several times, each time by a new process; the minimum is the program's own time, the rest
//! is other load on the machine. Processor time is reported by the process itself.

use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use crate::measure::quiet::Watch;
use xtask::build;
use xtask::doing::{self, Outcome};

const EXAMPLES: [&str; 3] = ["imagenet-resnet50", "bert-large", "llama-8b-finetune"];

/// Plans each example `rounds` times.
pub fn plan(root: &Path, rounds: usize) -> Outcome {
    // The full workspace is named so that cargo finds everything built.
    let arguments = ["build", "--release", "--workspace", "--bin", "gradus"];
    doing::run(&mut doing::cargo(root, &arguments), "read the compiler's message above")?;
    let program = build::target(root).join("release/gradus");
    let home = std::env::temp_dir().join(format!("gradus-bench-plan-{}", std::process::id()));
    let watch = Watch::begin(&[std::process::id()]);
    let mut lines =
        vec!["example               offers  compared  estimates  search ms  again ms  process ms  wall ms".to_owned()];
    for example in EXAMPLES {
        let file = root.join("examples").join(format!("{example}.yaml"));
        let (mut least, mut last) = ([f64::INFINITY; 4], Value::Null);
        for _ in 0..rounds {
            let plan = |arguments: &[&str]| {
                let mut command = std::process::Command::new(&program);
                command.arg("--home").arg(&home).arg("plan").args(arguments).arg(&file);
                doing::read(&mut command)
            };
            // As a user asks for it: with the timings it would be searched twice.
            let begun = Instant::now();
            plan(&[])?;
            let wall = begun.elapsed().as_secs_f64();
            let text = plan(&["--json", "--timings"])?;
            last = serde_json::from_str(&text)?;
            if last["timings"]["same"] != true {
                return Err(format!("`{example}` was answered differently when it was asked again").into());
            }
            let seconds = |key: &str| last["timings"][key].as_f64().unwrap_or(f64::NAN);
            for (least, now) in least.iter_mut().zip([seconds("search"), seconds("again"), seconds("process"), wall]) {
                *least = least.min(now);
            }
        }
        let [search, again, process, wall] = least.map(|seconds| 1e3 * seconds);
        let count = |key: &str| last["counts"][key].as_u64().unwrap_or_default();
        lines.push(format!(
            "{example:<20}  {:>6}  {:>8}  {:>9}  {search:>9.1}  {again:>8.1}  {process:>10.1}  {wall:>7.1}",
            count("offers"),
            count("compared"),
            count("estimated"),
        ));
    }
    let quiet = watch.end();
    lines.push(format!("the least of {rounds} processes each; processor time but for the last column; {quiet}"));
    Ok(lines.join("\n"))
}
