//! One name, one meaning: a public type is defined once in the workspace.
//!
//! Developers' tools are excluded. `xtask/one_name.tsv` lists the names that may stand for several types, each with the
//! reason.

use std::collections::{BTreeMap, BTreeSet};

use super::items;
use super::ratchet::Offence;
use super::source::Source;

/// The kinds of items that are types.
const TYPES: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Path of the exceptions.
pub const EXCEPTIONS: &str = "xtask/one_name.tsv";

/// Returns an offence for each public type name that is defined more than once.
pub fn check(sources: &[Source]) -> Result<Vec<Offence>, String> {
    let exceptions = exceptions(sources)?;
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.starts_with("crates/") && source.is_rust()) {
        for item in items::public(source).into_iter().filter(|item| TYPES.contains(&item.kind)) {
            places.entry(item.name).or_default().push(format!("{}:{}", source.path, item.line));
        }
    }
    let several = places.into_iter().filter(|(_, places)| places.len() > 1);
    let offence = |(name, places): (String, Vec<String>)| {
        let count = places.len();
        let sentence = format!("`{name}` names {count} public types: {}; rename all but one", places.join(", "));
        Offence { sentence }
    };
    Ok(several.filter(|(name, _)| !exceptions.contains(name)).map(offence).collect())
}

/// The first column of the table of exceptions; each row has a reason in its second.
fn exceptions(sources: &[Source]) -> Result<BTreeSet<String>, String> {
    let Some(table) = sources.iter().find(|source| source.path == EXCEPTIONS) else {
        return Ok(BTreeSet::new());
    };
    let mut names = BTreeSet::new();
    for (line, number) in table.lines.iter().zip(1..).filter(|(line, _)| !line.starts_with('#')) {
        match line.split_once('\t') {
            Some((name, reason)) if !reason.trim().is_empty() => names.insert(name.to_owned()),
            _ => return Err(format!("{EXCEPTIONS}:{number}: a row is a name, a tab and a reason")),
        };
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_type() {
        let sources = [
            Source::new("crates/a/src/lib.rs", "pub struct Plan;\npub enum Error {}\npub fn Frame() {}\n"),
            Source::new("crates/b/src/lib.rs", "pub enum Error {}\npub(crate) struct Plan;\n"),
            Source::new("crates/c/src/lib.rs", "pub type Plan = u8;\n#[cfg(test)]\npub struct Frame;\n"),
            Source::new(EXCEPTIONS, "# name\treason\nError\teach crate has its own\n"),
        ];
        let found = check(&sources).unwrap();
        let sentence = "`Plan` names 2 public types: crates/a/src/lib.rs:1, crates/c/src/lib.rs:1; rename all but one";
        assert_eq!(found.iter().map(|offence| offence.sentence.as_str()).collect::<Vec<_>>(), [sentence]);
        assert!(check(&[Source::new(EXCEPTIONS, "Error\n")]).unwrap_err().contains("one_name.tsv:1: a row is"));
    }
}
