//! The graph of packages as cargo resolved it, reduced to what the checks ask for.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use serde_json::Value;

use xtask::doing;

/// All packages, by cargo's package id.
pub type Graph = BTreeMap<String, Package>;

/// One package in the graph.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Package {
    /// Name in its `Cargo.toml`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Folder below `crates/` for our own, and none for others.
    pub crate_name: Option<String>,
    /// SPDX expression.
    pub license: Option<String>,
    /// The registry that it comes from; `None` for a path dependency.
    pub source: Option<String>,
    /// Package ids of its normal and build dependencies; dev-dependencies are excluded, as they never ship.
    pub needs: Vec<String>,
}

/// Asks cargo for the graph on this platform.
pub fn read(root: &Path) -> Result<Graph, Box<dyn Error>> {
    let version = doing::read(std::process::Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("`rustc -vV` names no host")?;
    let platform = format!("--filter-platform={host}");
    let text = doing::read(&mut doing::cargo(root, &["metadata", "--format-version=1", &platform]))?;
    parse(&text)
}

/// Reads the output of `cargo metadata`.
fn parse(text: &str) -> Result<Graph, Box<dyn Error>> {
    let metadata: Value = serde_json::from_str(text)?;
    let mut graph = Graph::new();
    for package in list(&metadata["packages"]) {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().unwrap_or(manifest);
        let is_ours = package["source"].is_null();
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let package_ = Package {
            name: word(&package["name"]),
            version: word(&package["version"]),
            crate_name: name.filter(|_| is_ours),
            license: package["license"].as_str().map(str::to_owned),
            source: package["source"].as_str().map(str::to_owned),
            needs: Vec::new(),
        };
        graph.insert(word(&package["id"]), package_);
    }
    for node in list(&metadata["resolve"]["nodes"]) {
        let ships = |kind: &&Value| kind["kind"].as_str() != Some("dev");
        let needs = list(&node["deps"]).filter(|dependency| list(&dependency["dep_kinds"]).any(|kind| ships(&kind)));
        if let Some(package) = graph.get_mut(&word(&node["id"])) {
            package.needs = needs.map(|dependency| word(&dependency["pkg"])).collect();
        }
    }
    Ok(graph)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_tests_are_left_out() {
        let text = r#"{
            "packages": [
                {"id": "a#1", "name": "gradus-a", "version": "1.0.0", "source": null, "license": "MIT", "manifest_path": "/x/crates/a/Cargo.toml"},
                {"id": "b#1", "name": "b", "version": "2.0.0", "source": "registry+x", "license": null, "manifest_path": "/y/b-2/Cargo.toml"}
            ],
            "resolve": {"nodes": [{"id": "a#1", "deps": [
                {"pkg": "b#1", "dep_kinds": [{"kind": "dev"}]},
                {"pkg": "c#1", "dep_kinds": [{"kind": "dev"}, {"kind": "build"}]},
                {"pkg": "d#1", "dep_kinds": [{"kind": null}]}
            ]}]}
        }"#;
        let graph = parse(text).unwrap();
        assert_eq!(graph["a#1"].needs, ["c#1", "d#1"]);
        assert_eq!(graph["a#1"].crate_name.as_deref(), Some("a"));
        assert_eq!(graph["b#1"].crate_name, None);
    }
}
