//! `cargo xtask check`: what a machine can check, a machine checks.
//!
//! [`arrows`] reads the table in `ARCHITECTURE.md` and compares it with cargo's graph; [`tidy`], [`words`], [`names`],
//! [`modules`] and [`shape`] read every tracked file; [`licences`] compares every dependency with `deny.toml`; [`sharing`]
//! compares a first build with a whole one; format and lints are left to rustfmt and clippy. All parts run, so that one call shows everything that is wrong.

mod arrows;
mod figures;
mod graph;
mod items;
mod licences;
mod modules;
mod names;
mod ratchet;
mod shape;
mod sharing;
mod source;
mod tidy;
mod words;

use std::error::Error;
use std::path::Path;

use crate::docs;
use source::Source;
use xtask::doing::{self, Outcome, step};

/// A check's name, and what it does.
type Check<'a> = (&'a str, &'a dyn Fn() -> Result<(), Box<dyn Error>>);

/// The remedy without rustfmt or clippy, which a minimal toolchain lacks.
#[derive(Debug, Clone, Copy)]
pub enum Missing {
    /// Say what to type.
    Fails,
    /// Report what was skipped, and continue: the tests do not need it.
    IsSaid,
}

/// Runs every check; the fast ones first.
pub fn check(root: &Path, missing: Missing) -> Outcome {
    let graph = graph::read(root)?;
    let mut failed = quick(root, &graph)?;
    let slow: [Check; 3] = [
        ("generated documents", &|| docs::docs(root, true).map(drop)),
        ("format", &|| format(root, missing)),
        ("lints", &|| lints(root, missing)),
    ];
    failed.extend(failing(&slow));
    summary(&failed)
}

/// Runs the checks that compile nothing.
pub fn fast(root: &Path, missing: Missing) -> Outcome {
    let graph = graph::read(root)?;
    let mut failed = quick(root, &graph)?;
    failed.extend(failing(&[("format", &|| format(root, missing))]));
    summary(&failed)
}

/// The checks that only read, and the names of those that failed.
fn quick(root: &Path, graph: &graph::Graph) -> Result<Vec<String>, Box<dyn Error>> {
    let sources = source::read(root)?;
    let known = std::fs::read_to_string(root.join(ratchet::FILE)).unwrap_or_default();
    let structure = structure(&sources)?;
    let structure = || all_well(ratchet::complaints(&structure, &known));
    let checks: [Check; 5] = [
        ("arrows between crates", &|| all_well(arrows::check(root, graph)?)),
        ("tidiness", &|| all_well(tidy::check(root, &sources)?)),
        ("words and structure", &structure),
        ("licences and sources", &|| licences(root, graph)),
        ("first and whole build", &|| all_well(sharing::check(root)?)),
    ];
    Ok(failing(&checks))
}

/// Runs some checks, prints what they find, and returns the names of those that failed.
fn failing(checks: &[Check]) -> Vec<String> {
    let mut failed = Vec::new();
    for (name, check) in checks {
        if let Err(error) = step(name, check) {
            eprintln!("error: {name}: {error}");
            failed.push((*name).to_owned());
        }
    }
    failed
}

fn summary(failed: &[String]) -> Outcome {
    match failed.is_empty() {
        true => Ok("all checks passed".into()),
        false => Err(format!("these checks failed: {}", failed.join(", ")).into()),
    }
}

/// Prints the structure of the code in numbers.
pub fn figures(root: &Path) -> Outcome {
    print!("{}", figures::figures(&source::read(root)?, &graph::read(root)?)?);
    Ok("these are the figures of the checkout as it is".into())
}

/// Prints every offence of the checks whose offences may be known, a line each: the check, a tab, and the sentence.
pub fn offences(root: &Path) -> Outcome {
    let found = structure(&source::read(root)?)?;
    for (check, offences) in &found {
        offences.iter().for_each(|offence| println!("{check}\t{}", offence.sentence));
    }
    Ok(format!("{} offences, known ones included", found.values().map(Vec::len).sum::<usize>()))
}

/// Lowers the numbers of known offences to what offends now.
pub fn prune(root: &Path) -> Outcome {
    let left = ratchet::prune(root, &structure(&source::read(root)?)?)?;
    Ok(format!("{left} known offences are left in `{}`", ratchet::FILE))
}

/// The results of the checks whose offences may be known.
fn structure(sources: &[Source]) -> Result<ratchet::Found, String> {
    Ok(ratchet::Found::from([
        ("vocabulary", words::check(sources)?),
        ("one name", names::check(sources)?),
        ("circle", modules::check(sources)),
        ("crowded folder", shape::folders(sources)),
        ("long function", shape::functions(sources)),
        ("undocumented", shape::documentation(sources)),
    ]))
}

/// Turns a list of complaints into one error.
fn all_well(complaints: Vec<String>) -> Result<(), Box<dyn Error>> {
    match complaints.is_empty() {
        true => Ok(()),
        false => Err(complaints.join("\n  ").into()),
    }
}

/// cargo-deny reads the same `deny.toml` more strictly than we do, and takes minutes to build: it is run where it is
/// installed, and a fresh machine does without.
fn licences(root: &Path, graph: &graph::Graph) -> Result<(), Box<dyn Error>> {
    all_well(licences::check(root, graph)?)?;
    if !doing::works(&mut doing::cargo(root, &["deny", "--version"])) {
        eprintln!("xtask: cargo-deny is not installed, so its advisories were not asked");
        return Ok(());
    }
    let mut deny = doing::cargo(root, &["deny", "--log-level=error", "check", "licenses", "bans", "sources"]);
    doing::run(&mut deny, "`deny.toml` holds what is allowed")?;
    // Without a network, the cached database of `cargo deny fetch` is used.
    let mut online = doing::cargo(root, &["deny", "fetch", "db"]);
    let offline: &[&str] = if doing::works(&mut online) { &[] } else { &["--offline"] };
    let arguments = [&["deny", "--log-level=error"], offline, &["check", "advisories"]].concat();
    doing::run(&mut doing::cargo(root, &arguments), "update what is named, or `cargo deny fetch` where it has no copy")
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
