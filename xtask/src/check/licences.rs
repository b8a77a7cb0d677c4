//! Licences of every dependency, compared with the list of `deny.toml`, and its source, which is the default registry;
//! duplicate versions of a package, compared with the list of justified ones.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

use super::graph::Graph;

/// Returns a sentence for each package whose licence or source is not allowed.
pub fn check(root: &Path, graph: &Graph) -> Result<Vec<String>, Box<dyn Error>> {
    let text =
        std::fs::read_to_string(root.join("deny.toml")).map_err(|error| format!("cannot read `deny.toml`: {error}"))?;
    let mut complaints = complaints(&list(&text, "\nallow = [")?, graph)?;
    complaints.extend(duplicates(&skipped(&text)?, graph));
    Ok(complaints)
}

/// The entries of the list `skip`, as `name@version`.
fn skipped(text: &str) -> Result<BTreeSet<String>, String> {
    let (_, rest) = text.split_once("\nskip = [").ok_or("`deny.toml` has no list `skip = [`")?;
    let rows = rest.lines().take_while(|line| *line != "]").filter(|line| line.contains("crate = "));
    let row = |line: &str| {
        let mut words = line.split('"').skip(1).step_by(2);
        let (name, reason) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match line.contains("reason = ") && !reason.is_empty() {
            true => Ok(name.to_owned()),
            false => Err(format!("`deny.toml` skips `{name}` without a reason")),
        }
    };
    rows.map(row).collect()
}

/// A message for each duplicate older version that is not listed, and for each row that matches none.
fn duplicates(skipped: &BTreeSet<String>, graph: &Graph) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in graph.values() {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let mut older = BTreeSet::new();
    for (name, versions) in &mut versions {
        versions.sort_by_key(|version| number(version));
        versions.pop();
        older.extend(versions.iter().map(|version| format!("{name}@{version}")));
    }
    let fresh = older.difference(skipped).map(|package| {
        format!("`{package}` is built beside a newer version; use that one, or list it under `skip` in `deny.toml` with the reason")
    });
    let gone = skipped
        .difference(&older)
        .map(|package| format!("`deny.toml` skips `{package}`, which is not built beside a newer version"));
    fresh.chain(gone).collect()
}

/// The numbers of a version, to compare.
fn number(version: &str) -> Vec<u64> {
    let plain = version.split(['+', '-']).next().unwrap_or_default();
    plain.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// The quoted strings of one list.
fn list(text: &str, start: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("`deny.toml` has no list `{}`", start.trim());
    let (_, rest) = text.split_once(start).ok_or_else(wrong)?;
    let (words, _) = rest.split_once(']').ok_or_else(wrong)?;
    Ok(words.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

fn complaints(licences: &[String], graph: &Graph) -> Result<Vec<String>, Box<dyn Error>> {
    let mut complaints = Vec::new();
    for package in graph.values() {
        let who = format!("`{}` {}", package.name, package.version);
        if let Some(source) = package.source.as_ref().filter(|source| !is_default_registry(source)) {
            complaints.push(format!("{who} comes from `{source}`, which is not the default registry"));
        }
        let Some(text) = &package.license else {
            complaints.push(format!("{who} states no licence"));
            continue;
        };
        let expression = spdx::Expression::parse_mode(text, spdx::ParseMode::LAX)
            .map_err(|error| format!("the licence of {who} cannot be read: {error}"))?;
        let is_allowed = expression.evaluate(|requirement| licences.contains(&requirement.to_string()));
        if !is_allowed {
            complaints.push(format!("{who} is under `{text}`, which `deny.toml` does not allow"));
        }
    }
    Ok(complaints)
}

/// Whether cargo names its default registry; cargo-deny compares its full address.
fn is_default_registry(source: &str) -> bool {
    source.starts_with("registry+") && source.ends_with("/crates.io-index")
}

#[cfg(test)]
mod tests {
    use super::super::graph::Package;
    use super::*;

    #[test]
    fn expressions_are_evaluated() {
        let check = |license: &str| {
            let package = Package { license: Some(license.into()), ..Package::default() };
            let graph = Graph::from([("a".to_owned(), package)]);
            let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
            complaints(&allowed, &graph).unwrap().is_empty()
        };
        assert!(check("MIT OR GPL-3.0-only"));
        assert!(check("MIT/Apache-2.0"));
        assert!(check("(MIT OR Unlicense) AND Apache-2.0"));
        assert!(check("Apache-2.0 WITH LLVM-exception"));
        assert!(!check("MIT AND GPL-3.0-only"));
        assert!(!check("GPL-3.0-only"));
    }

    #[test]
    fn only_the_default_registry_is_a_source() {
        let text = "[licenses]\nallow = [\n  \"MIT\", # why\n]\n[sources]\n";
        assert_eq!(list(text, "\nallow = [").unwrap(), ["MIT"]);
        let check = |source: &str| {
            let package = Package { license: Some("MIT".into()), source: Some(source.into()), ..Package::default() };
            complaints(&["MIT".to_owned()], &Graph::from([("a".to_owned(), package)])).unwrap().len()
        };
        assert_eq!(check("registry+https://index/crates.io-index"), 0);
        assert_eq!(check("git+https://index/crates.io-index"), 1);
        assert_eq!(check("registry+https://elsewhere"), 1);
    }

    #[test]
    fn older_versions_are_justified() {
        let package = |name: &str, version: &str| {
            let package = Package { name: name.into(), version: version.into(), ..Package::default() };
            (format!("{name}#{version}"), package)
        };
        let graph = Graph::from([package("a", "0.9.0"), package("a", "0.10.1"), package("b", "1.0.0")]);
        let check = |rows: &str| duplicates(&skipped(&format!("[bans]\nskip = [\n{rows}]\n")).unwrap(), &graph);
        assert_eq!(check("    { crate = \"a@0.9.0\", reason = \"c\" },\n"), Vec::<String>::new());
        assert!(check("")[0].starts_with("`a@0.9.0` is built beside a newer version"));
        let gone =
            check("    { crate = \"a@0.9.0\", reason = \"c\" },\n    { crate = \"b@1.0.0\", reason = \"c\" },\n");
        assert_eq!(gone, ["`deny.toml` skips `b@1.0.0`, which is not built beside a newer version"]);
        assert!(skipped("\nskip = [\n{ crate = \"a@0.9.0\" },\n]\n").unwrap_err().contains("without a reason"));
    }
}
