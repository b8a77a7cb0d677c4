//! What is measured with programs of our own: `cargo xtask bench`, which becomes the benchmarks, a package in `benches/` that
//! the first command of a fresh checkout need not build; and `cargo xtask fit FOLDER…`, which fits the numbers that the
//! planner's estimates need anew to tables of measurements.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::doing::{self, Outcome};

/// Becomes `gradus-bench ARGUMENTS`; returns only when that could not be started.
pub fn bench(root: &Path, arguments: &[String]) -> Outcome {
    let cargo = ["run", "--release", "--quiet", "--package", "gradus-bench", "--"];
    let arguments: Vec<&str> = cargo.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    Err(format!("cannot start `cargo`: {}", doing::cargo(root, &arguments).exec()).into())
}

/// Fits `catalog/fitted.json` to the tables in `folders`, which are not part of the repository. The program is
/// `crates/plan/examples/fit`; here it is only built, given the day, and told where to write.
pub fn fit(root: &Path, folders: &[String]) -> Outcome {
    let folders: Vec<String> = folders
        .iter()
        .map(|folder| {
            let full = std::fs::canonicalize(folder).map_err(|error| format!("cannot open `{folder}`: {error}"))?;
            Ok(full.to_string_lossy().into_owned())
        })
        .collect::<Result<_, String>>()?;
    let day = doing::read(Command::new("date").args(["-u", "+%F"]))?;
    let arguments = ["run", "--release", "--package", "gradus-plan", "--example", "fit", "--"];
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    let arguments = [&arguments[..], &[day.trim(), "catalog/fitted.json"], &folders].concat();
    doing::step("fitting, with and without each group of rows", || {
        doing::run(&mut doing::cargo(root, &arguments), "name a folder with files `throughput_….csv`")
    })?;
    Ok("`catalog/fitted.json` is written; its report says how far it is from the rows that each fit left out".into())
}
