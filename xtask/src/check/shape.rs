//! The shape of the code: functions of a length that can be proofread, public items that say what they are, folders
//! that can be surveyed.

use std::collections::{BTreeMap, BTreeSet};

use super::items;
use super::ratchet::Offence;
use super::source::Source;

/// Entries of a folder with code; a file `a.rs` and its folder `a` count as one.
pub const ENTRIES: usize = 15;

/// Returns an offence for each function that is too long.
pub fn functions(sources: &[Source]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        for function in items::functions(source).into_iter().filter(|function| function.lines > items::LINES) {
            let (name, line, lines) = (&function.name, function.line, function.lines);
            let path = &source.path;
            let sentence = format!("{path}:{line}: `{name}` has {lines} lines; divide it, {} at most", items::LINES);
            offences.push(Offence { sentence });
        }
    }
    offences
}

/// Returns an offence for each public item without documentation.
pub fn documentation(sources: &[Source]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        for item in items::public(source).into_iter().filter(|item| !item.has_docs) {
            let (path, kind, name) = (&source.path, item.kind, &item.name);
            let sentence = format!("{path}:{}: public {kind} `{name}` has no documentation", item.line);
            offences.push(Offence { sentence });
        }
    }
    offences
}

/// Returns an offence for each folder with code that has too many entries.
pub fn folders(sources: &[Source]) -> Vec<Offence> {
    let crowded = entries(sources).into_iter().filter(|(_, count)| *count > ENTRIES);
    let offence = |(folder, count): (String, usize)| {
        let sentence =
            format!("{folder}: {count} entries; give it folders that are concepts, {ENTRIES} entries at most");
        Offence { sentence }
    };
    crowded.map(offence).collect()
}

/// The number of entries of each folder that holds Rust.
pub fn entries(sources: &[Source]) -> BTreeMap<String, usize> {
    let mut entries: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut with_code = BTreeSet::new();
    for source in sources {
        let mut path = source.path.as_str();
        if let (true, Some((folder, _))) = (source.is_rust(), path.rsplit_once('/')) {
            with_code.insert(folder);
        }
        while let Some((folder, name)) = path.rsplit_once('/') {
            entries.entry(folder).or_default().insert(name.strip_suffix(".rs").unwrap_or(name));
            path = folder;
        }
    }
    let of_code = entries.into_iter().filter(|(folder, _)| with_code.contains(folder));
    of_code.map(|(folder, names)| (folder.to_owned(), names.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_items_have_limits() {
        let long = format!("/// A.\npub fn a() {{\n{}}}\npub fn b() {{}}\n", "    c();\n".repeat(items::LINES - 1));
        let sources = [Source::new("crates/a/src/lib.rs", &long)];
        let sentences =
            |offences: Vec<Offence>| offences.into_iter().map(|offence| offence.sentence).collect::<Vec<_>>();
        assert_eq!(sentences(functions(&sources)), ["crates/a/src/lib.rs:2: `a` has 61 lines; divide it, 60 at most"]);
        assert_eq!(sentences(documentation(&sources)), ["crates/a/src/lib.rs:63: public fn `b` has no documentation"]);
    }

    #[test]
    fn folders_have_a_limit() {
        let mut sources: Vec<Source> = (0..15).map(|number| Source::new(&format!("a/src/f{number}.rs"), "")).collect();
        sources.extend((0..30).map(|number| Source::new(&format!("docs/{number}.md"), "")));
        // The folder of `f0.rs`.
        sources.push(Source::new("a/src/f0/b.rs", ""));
        assert_eq!(folders(&sources), []);
        sources.push(Source::new("a/src/c/data/d.txt", ""));
        assert_eq!(
            folders(&sources)[0].sentence,
            "a/src: 16 entries; give it folders that are concepts, 15 entries at most"
        );
    }
}
