//! `cargo xtask bench`: measures our claims of speed and accuracy against the program that people know.
//!
//! Two programs that are compared stay alive side by side and work in turn, a block each, so that start-up is not
//! measured and whatever else the machine does hits both alike. [`measure`] does that; the other modules are the comparisons.
//! [`table`] lists the comparisons. `docs/benchmarks.md` holds what came out.

mod case;
mod data;
mod likeness;

mod measure;
mod memory;
mod models;
mod parity;
mod plan;
mod run;
mod server;
mod step;
mod table;
mod train;
mod transfer;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use xtask::doing;
use xtask::{build, root};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let outcome = match root::find(manifest.as_deref(), &std::env::current_dir().unwrap_or_default()) {
        Some(root) => table::bench(&root, &arguments),
        None => Err("this is not inside a checkout of gradus\n  hint: `cargo xtask bench …` in the checkout".into()),
    };
    match outcome {
        Ok(line) => {
            eprintln!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How much to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    /// Names of the cases; all if empty.
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
            name => options.cases.push(case::Case::named(name).ok_or_else(table::usage)?),
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
    let arguments =
        ["build", "--release", "--package", "gradus-train", "--bins", "--examples", "--features", "formats/default"];
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
