//! `cargo xtask bench`: builds and becomes the benchmarks, a package of their own in `benches/`, which the first command
//! of a fresh checkout need not build.

use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::doing::{self, Outcome};

/// Becomes `gradus-bench ARGUMENTS`; returns only when that could not be started.
pub fn bench(root: &Path, arguments: &[String]) -> Outcome {
    let cargo = ["run", "--release", "--quiet", "--package", "gradus-bench", "--"];
    let arguments: Vec<&str> = cargo.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    Err(format!("cannot start `cargo`: {}", doing::cargo(root, &arguments).exec()).into())
}
