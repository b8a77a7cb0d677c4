//! `cargo xtask test --long`: what takes hours, step by step. Each step can be run alone by its name.

use std::error::Error;
use std::path::{Path, PathBuf};

use xtask::build::{self, wheel};
use xtask::doing::{self, Outcome, step};
use xtask::lab::hosts;
use xtask::peers;

use super::{BEFORE, LONG, moto, over_ssh, versions, whole};
use crate::{chaos, mutants};

/// Installs Python packages, and returns their folder.
type Packages = fn() -> Result<PathBuf, Box<dyn Error>>;

/// A part of the long layer.
struct LongStep {
    name: &'static str,
    /// What is printed of it.
    title: &'static str,
    run: fn(&Path) -> Outcome,
    /// Whether `everything` has done it already.
    is_in_everything: bool,
}

const fn part(name: &'static str, title: &'static str, run: fn(&Path) -> Outcome) -> LongStep {
    LongStep { name, title, run, is_in_everything: false }
}

const STEPS: [LongStep; 13] = [
    part("everything", "everything that `cargo xtask test` runs, and more of it", |root| whole(root, &LONG)),
    LongStep { is_in_everything: true, ..part("moto", "buckets and machines of AWS, on moto", moto) },
    LongStep { is_in_everything: true, ..part("hosts", "hosts, over SSH", |root| over_ssh(root, LONG.server_away)) },
    part("trainer", "mutants of the trainer, killed", |root| chaos::chaos(root, &["--mutants".to_owned()])),
    part("mutants", "mutants, tested", |root| mutants::mutants(root, &[])),
    part("versions", "loops and agents of the version before", |root| versions(root, BEFORE)),
    part("schemathesis", "API, tried by schemathesis", |root| {
        let hint = "its report says how to send a request again";
        ignored(root, "line", &["schemathesis"], Some(peers::schemathesis), hint)
    }),
    part("output", "a program that prints 10 GB", |root| {
        let hint = "it needs 6 GB of the disk of temporary files";
        ignored(root, "line", &["ten_gigabytes", "--nocapture"], None, hint)
    }),
    part("containers", "programs in containers of podman", |root| {
        let hint = "where podman cannot run a container it says so and passes";
        ignored(root, "agent", &["podman::", "--nocapture"], None, hint)
    }),
    part("skypilot", "task files, read by SkyPilot", |root| {
        let hint = "`benches/peers/skypilot_read.py FILE` shows what SkyPilot reads";
        ignored(root, "skypilot", &["--include-ignored", "--nocapture"], Some(peers::skypilot), hint)
    }),
    part("sdks", "requests to clouds, sent again by their SDKs", |root| {
        let hint = "`benches/peers/cloud_sdks.py FILE` shows what an SDK would send";
        ignored(root, "sdk", &["--nocapture"], Some(peers::cloud_sdks), hint)
    }),
    part("package", "Python package, killed and with other packages", wheel::long),
    part("cloud", "machines of a cloud, with 200 faults", |root| match hosts::requirements::obstacle() {
        None => chaos::chaos(root, &["--cloud".to_owned()]),
        Some(obstacle) => {
            Ok(format!("machines of a cloud were left out: {}", obstacle.lines().next().unwrap_or_default()))
        }
    }),
];

/// Runs the named steps, or all of them.
///
/// # Errors
///
/// If a name is of no step, before any is run, and that of the first step that fails.
pub fn long(root: &Path, names: &[String]) -> Outcome {
    if let Some(name) = names.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        let known = STEPS.map(|step| step.name).join(", ");
        return Err(format!("`{name}` is no step of the long tests; there are {known}").into());
    }
    if !names.is_empty() {
        eprintln!("{}", build::setup(root)?);
        step("build", || build::executables(root))?;
    }
    let is_chosen = |one: &LongStep| match names.is_empty() {
        true => !one.is_in_everything,
        false => names.iter().any(|name| name == one.name),
    };
    let lines = STEPS.iter().filter(|one| is_chosen(one)).map(|one| step(one.title, || (one.run)(root)));
    Ok(lines.collect::<Result<Vec<String>, _>>()?.join("\n"))
}

/// Runs tests that are ignored by default, with Python packages if they need some.
fn ignored(root: &Path, target: &str, arguments: &[&str], packages: Option<Packages>, hint: &str) -> Outcome {
    let mut tests = doing::cargo(root, &["test", "--release", "--workspace", "--test", target, "--"]);
    if !arguments.contains(&"--include-ignored") {
        tests.arg("--ignored");
    }
    tests.args(arguments);
    if let Some(packages) = packages {
        tests.env("PYTHONPATH", packages()?);
    }
    doing::run(&mut tests, hint)?;
    Ok(format!("tests of `{target}` passed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_known_by_one_name_and_any_other_is_refused_at_once() {
        let names: std::collections::BTreeSet<&str> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
        let error = long(Path::new("/nonexistent"), &["sdks".to_owned(), "sdk".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("`sdk` is no step of the long tests; there are everything, moto, "), "{error}");
    }
}
