//! `cargo xtask bench`: what is claimed of speed and likeness, measured against the program that people know.
//!
//! Two programs that are compared stay alive side by side and work in turn, a block each, so that start-up is not
//! measured and whatever else the machine does hits both alike. [`program`] asks for blocks, [`figures`] sums them up,
//! [`quiet`] says how much of the machine others took meanwhile; the other modules are the comparisons.
//! `docs/benchmarks.md` holds what came out.

mod case;
mod data;
mod figures;
mod likeness;
mod load;
mod memory;
mod models;
mod parity;
mod plan;
mod program;
mod quiet;
mod run;
mod step;
mod train;
mod transfer;

use std::path::{Path, PathBuf};

use crate::build;
use crate::doing::{self, Outcome};

const USAGE: &str = "\
usage: cargo xtask bench train [CASE…] [--pairs N] [--steps N] [--compiled] [--beside-load]
                                                                 a run's step function against PyTorch's
       cargo xtask bench step [CASE…] [--pairs N] [--steps N]    the run's step against the step function; snapshots
       cargo xtask bench memory [MODEL…]                         what each way of saving memory leaves at most
       cargo xtask bench parity --all [MODEL…]                   every network against its peer; docs/parity.md
       cargo xtask bench optimizers                              every update rule against torch.optim's
       cargo xtask bench parity MODEL_FOLDER [PICTURES.tar]      an exported resnet18 in torchvision
       cargo xtask bench data [--pictures N|FOLDER] [--rounds N] [--threads N]   pictures, made or yours, to batches, and
                                                                 other loaders
       cargo xtask bench data --numerics N                       N pictures' pixels beside torchvision's
       cargo xtask bench transfer                                bytes and time beside rsync, rclone, s5cmd, aws and gzip
       cargo xtask bench plan [--rounds N]                       a plan over everything that is offered
       cargo xtask bench models                                  weights read from model files beside PyTorch's count
cases: fp32, fp32-channels_last, bf16, bf16-channels_last of resnet18 on small pictures; with a model before it, such as
       resnet50-fp32, those of resnet50, mobilenet_v3_large, bert_mini and gpt_tiny
--compiled measures against torch.compile; --beside-load while other processes keep half of the cores busy";

/// How much is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    /// Which cases; all where none is named.
    cases: Vec<case::Case>,
    /// Blocks of each of the two programs.
    pairs: usize,
    /// Steps in a block.
    steps: usize,
    /// Whether PyTorch compiles its step.
    compiled: bool,
    /// Whether other processes keep half of the cores busy meanwhile.
    beside_load: bool,
}

/// Runs the comparison that `arguments` name.
pub fn bench(root: &Path, arguments: &[String]) -> Outcome {
    let Some((what, rest)) = arguments.split_first() else { return Err(USAGE.into()) };
    match (what.as_str(), rest) {
        ("train", rest) => train::train(root, &options(rest)?),
        ("step", rest) => step::step(root, &options(rest)?),
        ("data", rest) => data::data(root, rest),
        ("optimizers", []) => likeness::optimizers(root),
        ("transfer", []) => transfer::transfer(root),
        ("memory", names) => memory::memory(root, names),
        ("models", []) => models::models(root),
        ("plan", []) => plan::plan(root, 9),
        ("plan", [flag, rounds]) if flag == "--rounds" => match rounds.parse() {
            Ok(rounds) if rounds > 0 => plan::plan(root, rounds),
            Ok(_) | Err(_) => Err(format!("`{rounds}` is no number above 0").into()),
        },
        ("parity", [flag, models @ ..]) if flag == "--all" => likeness::likeness(root, models),
        ("parity", [folder]) => parity::parity(root, folder, None),
        ("parity", [folder, pictures]) => parity::parity(root, folder, Some(pictures)),
        (_, _) => Err(USAGE.into()),
    }
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { cases: Vec::new(), pairs: 15, steps: 10, compiled: false, beside_load: false };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut number = || -> Result<usize, String> {
            let text = words.next().ok_or_else(|| format!("`{word}` needs a number"))?;
            text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("`{text}` is no number above 0"))
        };
        match word.as_str() {
            "--pairs" => options.pairs = number()?,
            "--steps" => options.steps = number()?,
            "--compiled" => options.compiled = true,
            "--beside-load" => options.beside_load = true,
            name => options.cases.push(case::Case::named(name).ok_or(USAGE)?),
        }
    }
    if options.cases.is_empty() {
        options.cases = case::ALL.to_vec();
    }
    Ok(options)
}

/// Sets up and builds the trainer and its examples, and returns the folder of the built executables.
fn built(root: &Path) -> Result<PathBuf, Box<dyn std::error::Error>> {
    eprintln!("{}", build::setup(root)?);
    let arguments = ["build", "--release", "--package", "gradus-train", "--bins", "--examples"];
    doing::run(&mut doing::cargo(root, &arguments), "read the compiler's message above")?;
    Ok(build::target(root).join("release"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str, expected: Result<(usize, usize, usize), &str>) {
        let arguments: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let result = options(&arguments).map(|options| (options.cases.len(), options.pairs, options.steps));
        match expected {
            Ok(expected) => assert_eq!(result, Ok(expected), "{words}"),
            Err(part) => assert!(result.as_ref().is_err_and(|message| message.contains(part)), "{words}: {result:?}"),
        }
    }

    #[test]
    fn options_are_read() {
        check("", Ok((4, 15, 10)));
        check("bf16 fp32 --pairs 3", Ok((2, 3, 10)));
        check("--steps 7 bf16-channels_last", Ok((1, 15, 7)));
        check("--steps", Err("needs a number"));
        check("--pairs 0", Err("above 0"));
        check("fp8", Err("cases:"));
        check("bert_mini-fp32 resnet50-bf16-channels_last --compiled", Ok((2, 15, 10)));
        check("bert_mini-channels_last", Err("cases:"));
        check("fp32 --beside-load", Ok((1, 15, 10)));
    }
}
