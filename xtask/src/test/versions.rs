//! `cargo xtask versions`: loops and agents of another version work with those of this one, with the executables of both.
//!
//! The other version is built from its commit, below `target/`; the tests `versions` of the command line do the rest.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use xtask::build;
use xtask::doing::{self, Outcome, step};

use crate::mutants::seed;

/// The last commit whose agents have no incarnation number and whose loops write no keepers down: its messages and
/// events lack what this version has in its own.
pub const BEFORE: &str = "348e401f";

/// Builds the executable of a commit, and runs the tests that need one.
pub fn versions(root: &Path, commit: &str) -> Outcome {
    let folder = build::target(root).join("versions");
    let (checkout, built) = (folder.join("checkout").join(commit), folder.join("build"));
    unpack(root, commit, &checkout)?;
    step("libraries of the release build", || Ok(seed::seed(&build::target(root), &built)?))?;
    step(&format!("the executable of {commit}"), || {
        let mut cargo = doing::cargo(&checkout, &["build", "--release", "--package", "gradus-cli", "--bin", "gradus"]);
        doing::run(
            cargo.env("CARGO_TARGET_DIR", &built),
            "name a commit that builds alone: `cargo xtask versions COMMIT`",
        )
    })?;
    let mut tests = doing::cargo(root, &["test", "--release", "--package", "gradus-cli", "--test", "line"]);
    tests.args(["versions", "--", "--ignored", "--nocapture"]);
    tests.env("GRADUS_OTHER_VERSION", built.join("release/gradus"));
    doing::run(&mut tests, "`gradus logs` and `gradus events` in the home that failed say more")?;
    Ok(format!("versions: loops and agents of {commit} work with those of this checkout"))
}

/// Writes the files of a commit into a folder, once.
fn unpack(root: &Path, commit: &str, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    if folder.join("Cargo.toml").exists() {
        return Ok(());
    }
    // Renamed when it is complete.
    let part = folder.with_extension("part");
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(&part)?;
    let mut archive = Command::new("git");
    let mut archive = archive.args(["archive", commit]).current_dir(root).stdout(Stdio::piped()).spawn()?;
    let files = archive.stdout.take().ok_or("git has no output")?;
    let mut tar = Command::new("tar");
    doing::run(tar.arg("-x").arg("-C").arg(&part).stdin(files), "install tar")?;
    match archive.wait()?.success() {
        true => Ok(fs::rename(part, folder)?),
        false => {
            Err(format!("this clone has no commit `{commit}`\n  hint: `git fetch --unshallow`, or name another").into())
        }
    }
}
