//! `cargo xtask test`: everything that can be shown on one machine, in the order in which it fails fastest.

use std::path::Path;

use crate::doing::{self, Outcome, step};
use crate::{build, chaos, check, peers};

/// Runs that are killed and compared; more of them by `cargo xtask chaos --runs N --seed S`.
const CHAOS_RUNS: &str = "100";

/// Sets up, checks, builds both executables and runs every test.
pub fn test(root: &Path) -> Outcome {
    eprintln!("{}", build::setup(root)?);
    check::check(root, check::Missing::IsSaid)?;
    step("build", || build::executables(root))?;
    step("tests", || {
        let mut tests = doing::cargo(root, &["test", "--release", "--workspace", "--no-fail-fast"]);
        doing::run(&mut tests, "`cargo test --release -p PACKAGE NAME` runs one test alone")
    })?;
    step("event files, read by TensorBoard", || {
        // The whole workspace is named so that cargo finds everything built.
        let mut tests =
            doing::cargo(root, &["test", "--release", "--workspace", "--test", "tensorboard", "--", "--ignored"]);
        tests.env("PYTHONPATH", peers::tensorboard()?);
        doing::run(&mut tests, "`benches/peers/tensorboard_read.py FOLDER` shows what TensorBoard sees")
    })?;
    step("buckets, on moto", || {
        let mut tests = doing::cargo(root, &["test", "--release", "--workspace", "--test", "moto", "--", "--ignored"]);
        tests.env("PYTHONPATH", peers::moto()?);
        doing::run(&mut tests, "`cargo xtask lab start` starts the same moto to try by hand")
    })?;
    let arguments = ["--runs", CHAOS_RUNS, "--seed", "1"].map(str::to_owned);
    let line = step("chaos", || chaos::chaos(root, &arguments))?;
    Ok(format!("{line}\neverything passed"))
}
