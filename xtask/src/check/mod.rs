//! `cargo xtask check`: what a machine can check, a machine checks.
//!
//! [`arrows`] reads the table in `ARCHITECTURE.md` and holds cargo's graph against it; [`tidy`] reads every tracked
//! file; [`licences`] holds every dependency against `deny.toml`; format and lints are left to rustfmt and clippy.
//! All parts run, so that one call tells everything that is wrong.

mod arrows;
mod graph;
mod licences;
mod tidy;

use std::error::Error;
use std::path::Path;

use crate::docs;
use crate::doing::{self, Outcome, step};

/// A check's name, and what it does.
type Check<'a> = (&'a str, &'a dyn Fn() -> Result<(), Box<dyn Error>>);

/// What to do without rustfmt or clippy, which a minimal toolchain lacks.
#[derive(Debug, Clone, Copy)]
pub enum Missing {
    /// Say what to type.
    Fails,
    /// Say what was left out, and go on: the tests do not need it.
    IsSaid,
}

/// Runs every check; the fast ones first.
pub fn check(root: &Path, missing: Missing) -> Outcome {
    let graph = graph::read(root)?;
    let checks: [Check; 6] = [
        ("arrows between crates", &|| all_well(arrows::check(root, &graph)?)),
        ("tidiness", &|| all_well(tidy::check(root)?)),
        ("licences and sources", &|| licences(root, &graph)),
        ("generated documents", &|| docs::docs(root, true).map(drop)),
        ("format", &|| format(root, missing)),
        ("lints", &|| lints(root, missing)),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        if let Err(error) = step(name, check) {
            eprintln!("error: {name}: {error}");
            failed.push(name);
        }
    }
    match failed.is_empty() {
        true => Ok("all checks passed".into()),
        false => Err(format!("these checks failed: {}", failed.join(", ")).into()),
    }
}

/// Turns a list of complaints into one error.
fn all_well(complaints: Vec<String>) -> Result<(), Box<dyn Error>> {
    match complaints.is_empty() {
        true => Ok(()),
        false => Err(complaints.join("\n  ").into()),
    }
}

/// cargo-deny reads the same `deny.toml` more strictly than we do, and takes minutes to build: it is asked where it is
/// installed, and a fresh machine does without.
fn licences(root: &Path, graph: &graph::Graph) -> Result<(), Box<dyn Error>> {
    all_well(licences::check(root, graph)?)?;
    if !doing::works(&mut doing::cargo(root, &["deny", "--version"])) {
        eprintln!("xtask: cargo-deny is not installed, so only its `licenses` and `sources` were checked");
        return Ok(());
    }
    let mut deny = doing::cargo(root, &["deny", "--log-level=error", "check", "licenses", "bans", "sources"]);
    doing::run(&mut deny, "`deny.toml` holds what is allowed")
}

fn format(root: &Path, missing: Missing) -> Result<(), Box<dyn Error>> {
    if !has_component(root, "fmt", "rustfmt", missing)? {
        return Ok(());
    }
    doing::run(&mut doing::cargo(root, &["fmt", "--all", "--check"]), "`cargo fmt --all`")
}

fn lints(root: &Path, missing: Missing) -> Result<(), Box<dyn Error>> {
    if !has_component(root, "clippy", "clippy", missing)? {
        return Ok(());
    }
    let arguments = ["clippy", "--release", "--workspace", "--quiet", "--", "-D", "warnings"];
    doing::run(&mut doing::cargo(root, &arguments), "a banned call names its replacement in `clippy.toml`")
}

/// Whether a part of the toolchain is there.
fn has_component(root: &Path, subcommand: &str, name: &str, missing: Missing) -> Result<bool, Box<dyn Error>> {
    if doing::works(&mut doing::cargo(root, &[subcommand, "--version"])) {
        return Ok(true);
    }
    let sentence = format!("`{name}` is not installed\n  hint: `rustup component add {name}`");
    match missing {
        Missing::Fails => Err(sentence.into()),
        Missing::IsSaid => {
            eprintln!("xtask: left out: {sentence}");
            Ok(false)
        }
    }
}
