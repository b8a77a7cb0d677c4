//! `cargo xtask test`: everything that can be shown on one machine, in the order in which it fails fastest.
//!
//! There are three layers. The fast one, `--fast`, is the checks that need no build and the unit tests of all crates
//! except the trainer's: nothing is trained and no process is killed. The full one is what CI runs. The long one,
//! `--long`, kills ten times as many runs, simulates a million schedules, proves that deliberate mistakes are noticed,
//! tries the API with requests of others' making, compares task files with SkyPilot's parser and requests to clouds with those
//! of their SDKs, kills users' programs, runs some in containers where there is podman, and trains on rented machines of
//! the lab's cloud while 200 faults happen.

mod long;
mod packages;
mod versions;

use std::path::{Path, PathBuf};

use serde_json::Value;
use xtask::doing::{self, Outcome, step};
use xtask::lab::hosts;
use xtask::{build, peers};

use crate::{chaos, check};

pub use long::long;
pub use versions::{BEFORE, versions};

/// Sizes of the open-ended tests in the full and the long layer.
struct Extent {
    /// Runs that are killed and compared.
    chaos_runs: u64,
    /// Schedules of the simulated control protocol.
    schedules: u64,
    /// Seconds for which a server is away from nodes that train.
    server_away: u64,
}

const WHOLE: Extent = Extent { chaos_runs: 100, schedules: 200_000, server_away: 60 };
const LONG: Extent = Extent { chaos_runs: 1000, schedules: 1_000_000, server_away: 600 };

/// Machines that tests may reach over SSH, and the variable in which they find the lab's folder.
const LAB_HOSTS: u8 = 33;
const LAB_FOLDER: &str = "GRADUS_LAB_HOSTS";

/// Tests over SSH at once, each with hosts of its own.
const AT_ONCE: u8 = 4;

/// The variable that says for how many seconds a server is away from nodes that train.
const SERVER_AWAY: &str = "GRADUS_SERVER_AWAY";

/// Its tests train.
const TRAINER: &str = "gradus-train";

/// Says what to install where a part of the toolchain is missing; in CI that is an error.
fn missing() -> check::Missing {
    match std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false") {
        true => check::Missing::Fails,
        false => check::Missing::IsSaid,
    }
}

/// Sets up, checks, builds both executables and runs every test.
pub fn test(root: &Path) -> Outcome {
    whole(root, &WHOLE)
}

fn whole(root: &Path, extent: &Extent) -> Outcome {
    eprintln!("{}", build::setup(root)?);
    check::check(root, missing())?;
    step("build", || build::executables(root))?;
    step("tests", || {
        let mut tests = doing::cargo(root, &["test", "--release", "--workspace", "--no-fail-fast"]);
        doing::run(&mut tests, "`cargo test --release -p PACKAGE NAME` runs one test alone")
    })?;
    step("event files, read by TensorBoard", || {
        // The full workspace is named so that cargo finds everything built.
        let mut tests =
            doing::cargo(root, &["test", "--release", "--workspace", "--test", "tensorboard", "--", "--ignored"]);
        tests.env("PYTHONPATH", peers::tensorboard()?);
        doing::run(&mut tests, "`benches/peers/tensorboard_read.py FOLDER` shows what TensorBoard sees")
    })?;
    let packages = packages::packages(root, missing())?;
    step("buckets and machines of AWS, on moto", || moto(root))?;
    let line = hosts_and_schedules(root, extent)?;
    Ok(format!("{packages}\n{line}\neverything passed"))
}

/// Runs the tests that need moto: those called `moto`, of any crate.
fn moto(root: &Path) -> Outcome {
    let mut tests = doing::cargo(root, &["test", "--release", "--workspace", "--test", "moto", "--", "--ignored"]);
    tests.env("PYTHONPATH", peers::moto()?);
    doing::run(&mut tests, "`cargo xtask lab start` starts the same moto to try by hand")?;
    Ok("tests of `moto` passed".to_owned())
}

/// Tests over SSH mostly wait, and schedules and runs that are killed compute: both at once, the schedules with the time that
/// is left. Returns what chaos has seen.
fn hosts_and_schedules(root: &Path, extent: &Extent) -> Outcome {
    let seeds = ["--seeds".to_owned(), format!("0..{}", extent.schedules)];
    let runs = ["--runs", &extent.chaos_runs.to_string(), "--seed", "1"].map(str::to_owned);
    let computing = || {
        step("schedules", || doing::run(&mut doing::nice(&simulation(root, &seeds)), SIM_HINT))?;
        step("chaos", || chaos::chaos(root, &runs))
    };
    std::thread::scope(|scope| {
        let computing = scope.spawn(|| computing().map_err(|error| error.to_string()));
        let waiting = step("hosts, over SSH", || over_ssh(root, extent.server_away));
        let computed = computing.join().map_err(|_| "the step of the schedules panicked")?;
        let (waiting, computed) = (waiting?, computed?);
        Ok(format!("{waiting}\n{computed}"))
    })
}

/// Starts hosts that speak SSH, and runs the tests that need them: those called `hosts`, of any crate.
fn over_ssh(root: &Path, server_away: u64) -> Outcome {
    if let Some(obstacle) = hosts::requirements::obstacle() {
        // Root in CI has chosen to run everything.
        if matches!(missing(), check::Missing::Fails) && hosts::requirements::is_root() {
            return Err(obstacle.into());
        }
        return Ok(format!("hosts were left out: {}", obstacle.lines().next().unwrap_or_default()));
    }
    let folder = build::target(root).join("lab/test-hosts");
    // Left behind by a killed run of the tests.
    hosts::down(&folder)?;
    let tested = hosts::up(root, &folder, LAB_HOSTS).and_then(|_| {
        let mut tests = doing::cargo(root, &["test", "--release", "--workspace", "--test", "hosts", "--", "--ignored"]);
        tests.env(LAB_FOLDER, &folder).env("PYTHONPATH", peers::moto()?);
        tests.env(SERVER_AWAY, server_away.to_string()).arg(format!("--test-threads={AT_ONCE}"));
        doing::run(&mut tests, "`cargo xtask lab hosts up 2` starts such hosts to try by hand")
    });
    let removed = hosts::down(&folder);
    tested.and(removed)?;
    Ok("tests of `hosts` passed".to_owned())
}

/// Runs schedules of the control protocol against a simulated cloud.
pub fn sim(root: &Path, arguments: &[String]) -> Outcome {
    doing::run(&mut simulation(root, arguments), SIM_HINT)?;
    Ok("every schedule came to its end".to_owned())
}

const SIM_HINT: &str = "`cargo xtask sim --explain SEED` shows what happens in a schedule";

fn simulation(root: &Path, arguments: &[String]) -> std::process::Command {
    let mut command = doing::cargo(root, &["run", "--release", "--quiet", "--package", "gradus-sim", "--"]);
    command.args(arguments);
    command
}

/// The fast layer: the checks that need no build, and the unit tests.
pub fn fast(root: &Path) -> Outcome {
    eprintln!("{}", build::setup(root)?);
    check::fast(root, missing())?;
    let tests = step("build", || {
        // The full workspace, with the features of a full build, so that nothing is built twice; only some of it is
        // run.
        let arguments = [
            "test",
            "--release",
            "--workspace",
            "--lib",
            "--bins",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ];
        executables(&doing::read(doing::cargo(root, &arguments).stderr(std::process::Stdio::inherit()))?)
    })?;
    step("tests", || {
        for Executable { path, folder } in &tests {
            let mut test = std::process::Command::new(path);
            test.arg("--quiet").current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
            doing::run(&mut test, "`cargo test --release -p PACKAGE NAME` runs one test alone")?;
        }
        Ok(())
    })?;
    Ok(format!("{} groups of tests passed; `cargo xtask test` runs the others too", tests.len()))
}

/// Tests that were built, and the folder of their package, in which cargo runs them.
#[derive(Debug, PartialEq)]
struct Executable {
    path: PathBuf,
    folder: PathBuf,
}

/// The executables of tests that cargo's messages name, but the trainer's.
fn executables(messages: &str) -> Result<Vec<Executable>, Box<dyn std::error::Error>> {
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line)?;
        let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
        let trains = message["package_id"].as_str().is_some_and(|id| id.contains(TRAINER));
        let of_tests = message["profile"]["test"] == true;
        if let (Some(path), Some(folder), true, false) =
            (message["executable"].as_str(), manifest.parent(), of_tests, trains)
        {
            found.push(Executable { path: path.into(), folder: folder.to_owned() });
        }
    }
    match found.is_empty() {
        true => Err("cargo named no tests".into()),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_in_cargos_messages() {
        let message = |package: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/crates/{package}#gradus-{package}@0.1.0","manifest_path":"/w/crates/{package}/Cargo.toml","profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let lines = [
            message("plan", true, "\"/t/plan-1\""),
            message("plan", false, "null"),
            message("cli", false, "\"/t/gradus\""),
            message("train", true, "\"/t/train-1\""),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let expected = Executable { path: "/t/plan-1".into(), folder: "/w/crates/plan".into() };
        assert_eq!(executables(&lines.join("\n")).unwrap(), [expected]);
        assert!(executables("").is_err());
    }
}
