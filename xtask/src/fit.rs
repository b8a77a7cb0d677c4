//! `cargo xtask fit FOLDER`: the numbers that the planner's estimates need, fitted anew to tables of measurements.
//!
//! The tables are not part of the repository. The program is `crates/plan/examples/fit`; here it is only built, given
//! the day, and told where to write.

use std::path::Path;
use std::process::Command;

use xtask::doing::{self, Outcome};

/// Fits `catalog/fitted.json` to the tables in `folder`.
pub fn fit(root: &Path, folder: &str) -> Outcome {
    let folder = std::fs::canonicalize(folder).map_err(|error| format!("cannot open `{folder}`: {error}"))?;
    let folder = folder.to_string_lossy();
    let day = doing::read(Command::new("date").args(["-u", "+%F"]))?;
    let arguments = ["run", "--release", "--package", "gradus-plan", "--example", "fit", "--"];
    let arguments = [&arguments[..], &[&folder, day.trim(), "catalog/fitted.json"]].concat();
    doing::step("fitting, with and without each group of rows", || {
        doing::run(&mut doing::cargo(root, &arguments), "name a folder with files `throughput_….csv`")
    })?;
    Ok("`catalog/fitted.json` is written; its report says how far it is from the rows that each fit left out".into())
}
