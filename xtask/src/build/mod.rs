//! Set up, build, run: what the README's first command does.

pub mod cuda;
pub mod environment;
pub mod install;
pub mod package;
pub mod wheel;

use std::error::Error;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::doing::{self, Outcome};
use crate::setup;

/// Puts libtorch where cargo finds it.
pub fn setup(root: &Path) -> Outcome {
    Ok(setup::setup(root, &|line| eprintln!("{line}"))?)
}

/// Asks `run` for everything.
const WHOLE: &str = "--whole";

/// Builds both executables.
pub const BUILD: [&str; 7] = ["build", "--release", "--package", "gradus-cli", "--package", "gradus-train", "--bins"];

/// Builds all of both executables, `gradus` and `gradus-rank`, and returns the folder they are in.
pub fn executables(root: &Path) -> Result<PathBuf, Box<dyn Error>> {
    doing::run(&mut doing::cargo(root, &BUILD), "read the compiler's message above")?;
    std::fs::write(marker(root), "")?;
    Ok(target(root).join("release"))
}

/// The same without the libraries that few jobs need, unless all was built here before: then there is nothing to save.
fn first_executables(root: &Path) -> Result<PathBuf, Box<dyn Error>> {
    if marker(root).exists() {
        return executables(root);
    }
    let mut build = doing::cargo(root, &BUILD);
    doing::run(build.arg("--no-default-features"), "read the compiler's message above")?;
    Ok(target(root).join("release"))
}

/// It exists once all of the executables were built.
fn marker(root: &Path) -> PathBuf {
    target(root).join("release/.gradus-whole")
}

/// The executables that the chaos test starts.
#[derive(Debug, Clone)]
pub struct Programs {
    pub gradus: PathBuf,
    pub rank: PathBuf,
}

/// Builds both executables; with `mutants`, a trainer that can make deliberate mistakes, in a separate folder.
pub fn programs(root: &Path, mutants: bool) -> Result<Programs, Box<dyn Error>> {
    setup(root)?;
    let folder = target(root).join("release");
    let mut rank = folder.join("gradus-rank");
    if mutants {
        let arguments = [
            "build",
            "--release",
            "--package",
            "gradus-train",
            "--bin",
            "gradus-rank",
            "--features",
            "mutants,formats/default",
        ];
        doing::run(&mut doing::cargo(root, &arguments), "read the compiler's message above")?;
        let plain = std::mem::replace(&mut rank, folder.join("gradus-rank-mutants"));
        std::fs::copy(plain, &rank)?;
    }
    // Last, so that the plain trainer replaces it again.
    executables(root)?;
    Ok(Programs { gradus: folder.join("gradus"), rank })
}

/// Sets up, builds, and becomes `gradus run ARGUMENTS`; returns only when that could not be started.
///
/// A first build omits what most jobs do not need. A job that needs it calls this again with `--whole`, before it is
/// submitted.
pub fn run(root: &Path, arguments: &[String]) -> Outcome {
    eprintln!("{}", setup(root)?);
    let (folder, arguments) = match arguments {
        [first, rest @ ..] if first == WHOLE => (executables(root)?, rest),
        all => (first_executables(root)?, all),
    };
    let gradus = folder.join("gradus");
    let mut command = Command::new(&gradus);
    let error = command.arg("run").args(arguments).env("GRADUS_XTASK", std::env::current_exe()?).exec();
    Err(format!("cannot start `{}`: {error}", gradus.display()).into())
}

/// The target directory of cargo.
pub fn target(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(path) => root.join(path),
        None => root.join("target"),
    }
}
