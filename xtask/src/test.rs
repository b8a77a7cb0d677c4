//! `cargo xtask test`: everything that can be shown on one machine, in the order in which it fails fastest.

use std::path::Path;

use crate::doing::{self, Outcome, step};
use crate::{build, check};

/// Sets up, checks, builds both executables and runs every test.
pub fn test(root: &Path) -> Outcome {
    eprintln!("{}", build::setup(root)?);
    check::check(root)?;
    step("build", || build::executables(root))?;
    step("tests", || {
        let mut tests = doing::cargo(root, &["test", "--release", "--workspace"]);
        doing::run(&mut tests, "`cargo test --release -p PACKAGE NAME` runs one test alone")
    })?;
    Ok("everything passed".into())
}
