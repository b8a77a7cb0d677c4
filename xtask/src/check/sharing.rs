//! Whether a full build reuses the packages of a first build, and the Python module those of a full build: the same
//! packages with the same features.
//!
//! Cargo enables in each package what all that is built with it asks for, so a library that a first build leaves out can
//! change crates that it has, and with them everything that stands on these. `crates/cli/Cargo.toml` evens that out, and
//! `crates/door/Cargo.toml` for the module, which maturin builds alone.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

use serde_json::Value;
use xtask::{build, doing};

/// The features of each package, once for each way in which it is built.
type Features = BTreeMap<String, BTreeSet<String>>;

/// As maturin calls cargo.
const MODULE: [&str; 5] = ["rustc", "--release", "--lib", "--package", "gradus-door"];

/// Returns a message for each third-party package that a full build or the module would build again.
pub fn check(root: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let units = |arguments: &[&str]| -> Result<Features, Box<dyn Error>> {
        let mut cargo = doing::cargo(root, arguments);
        // The graph is not for everybody yet; nothing is built.
        cargo.args(["--unit-graph", "-Z", "unstable-options"]).env("RUSTC_BOOTSTRAP", "1");
        features(&doing::read(&mut cargo)?)
    };
    let first = units(&[&build::BUILD[..], &["--no-default-features"]].concat())?;
    let whole = units(&["test", "--release", "--workspace"])?;
    let mut complaints = built_again(&first, &whole, "a first build", "crates/cli");
    complaints.extend(built_again(&units(&MODULE)?, &whole, "the Python module", "crates/door"));
    Ok(complaints)
}

/// Reads a graph of units, those of our own packages aside.
fn features(text: &str) -> Result<Features, Box<dyn Error>> {
    let graph: Value = serde_json::from_str(text)?;
    let mut features = Features::new();
    for unit in graph["units"].as_array().ok_or("cargo lists no units")? {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let package = word(&unit["pkg_id"]);
        if package.starts_with("path+") {
            continue;
        }
        let place = if unit["platform"].is_null() { " for a build script or macro" } else { "" };
        let enabled: Vec<String> = unit["features"].as_array().into_iter().flatten().map(word).collect();
        let name = package.rsplit(['/', '#']).next().unwrap_or(&package).to_owned();
        features.entry(format!("`{name}`{place}")).or_default().insert(enabled.join(", "));
    }
    Ok(features)
}

/// What `part`, built alone, has with features that nothing in the whole has; its crate at `folder` can enable them.
fn built_again(alone: &Features, whole: &Features, part: &str, folder: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (package, enabled) in alone {
        let Some(others) = whole.get(package) else { continue };
        for features in enabled.difference(others) {
            let other = others.iter().map(|other| format!("`{other}`")).collect::<Vec<_>>().join(" or ");
            complaints.push(format!(
                "{package} has the features `{features}` in {part} and {other} in a whole build, so it is built twice; \
                 enable them in `{folder}/Cargo.toml`"
            ));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(units: &[(&str, bool, &str)]) -> Features {
        let unit = |(package, is_for_target, features): &(&str, bool, &str)| {
            let features: Vec<&str> = features.split_whitespace().collect();
            let platform = is_for_target.then_some("x86_64-unknown-linux-gnu");
            serde_json::json!({ "pkg_id": package, "platform": platform, "features": features })
        };
        let graph = serde_json::json!({ "units": units.iter().map(unit).collect::<Vec<_>>() });
        features(&graph.to_string()).unwrap()
    }

    #[test]
    fn a_package_with_other_features_is_named() {
        let libc = "registry+https://github.com/rust-lang/crates.io-index#libc@0.2.191";
        let ours = "path+file:///gradus/crates/cli#gradus-cli@0.1.0";
        let first = [(libc, true, "std"), (libc, false, "std"), (ours, true, ""), ("r#only@1.0.0", true, "")];
        let whole = [(libc, true, "extra_traits std"), (libc, false, "std"), (ours, true, "formats")];
        let again =
            |whole: &[(&str, bool, &str)]| built_again(&units(&first), &units(whole), "a first build", "crates/cli");
        let complaints = again(&whole);
        let [complaint] = &complaints[..] else { panic!("one package differs: {complaints:?}") };
        let named = "`libc@0.2.191` has the features `std` in a first build and `extra_traits, std` in a whole build";
        assert!(complaint.starts_with(named) && complaint.ends_with("`crates/cli/Cargo.toml`"), "{complaint}");
        assert!(again(&first).is_empty());
    }
}
