//! Which files of a crate import which: modules stand in layers, and no more than two files import each other.
//!
//! A path is resolved through re-exports to the file that defines the item, so a `mod.rs` that only re-exports creates
//! no cycle. A module and its ancestors are no layers, and are ignored.

mod circles;
mod paths;

use std::collections::{BTreeMap, BTreeSet};

pub use circles::circles;

use super::ratchet::Offence;
use super::source::Source;

/// Files that may import each other.
pub const FILES: usize = 2;

/// Returns an offence for each circle of too many files.
pub fn check(sources: &[Source]) -> Vec<Offence> {
    let offence = |circle: &Vec<String>| {
        let count = circle.len();
        let sentence = format!("{count} files import each other in a circle: {}", circle.join(", "));
        Offence { sentence }
    };
    circles(&imports(sources)).iter().filter(|circle| circle.len() > FILES).map(offence).collect()
}

/// The files of all crates, each with those that it imports from.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// The imports of each file of each crate, by path, except between a module and its ancestors.
pub fn imports(sources: &[Source]) -> Imports {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust() && !source.is_test()) {
        if let Some((name, _)) = source.path.split_once("/src/") {
            crates.entry(name).or_default().push(source);
        }
    }
    crates.values().flat_map(|files| paths::Crate::new(files).imports()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as `path: text`, one a line; returns the circles.
    fn check(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(&format!("crates/x/src/{path}.rs"), text)).collect();
        let found = circles(&imports(&sources)).into_iter().filter(|circle| circle.len() > FILES);
        let name = |path: String| path["crates/x/src/".len()..path.len() - 3].to_owned();
        found.map(|circle| circle.into_iter().map(name).collect()).collect()
    }

    const LIB: (&str, &str) = ("lib", "mod a;\nmod b;\nmod c;\npub use a::A;\n");

    #[test]
    fn three_files_are_a_circle_and_two_are_none() {
        let b = ("b", "use crate::c::C;\npub struct B;\n");
        let a = ("a", "use crate::b::B;\npub struct A;\n");
        assert_eq!(check(&[LIB, a, b, ("c", "pub struct C;\n")]), Vec::<Vec<String>>::new());
        assert_eq!(check(&[LIB, a, ("b", "use crate::A;\npub struct B;\n")]), Vec::<Vec<String>>::new());
        assert_eq!(check(&[LIB, a, b, ("c", "use crate::a::A;\npub struct C;\n")]), [["a", "b", "c"]]);
    }

    #[test]
    fn re_exports_are_followed() {
        let files = [
            LIB,
            ("a", "use super::b::{self, B};\npub struct A;\n"),
            ("b", "use crate::c::{C, D as _};\npub struct B;\n"),
            // `crate::A` is `a`'s.
            ("c", "fn c() -> crate::A { todo!() }\npub struct C;\n"),
        ];
        assert_eq!(check(&files), [["a", "b", "c"]]);
        let mut tested = files;
        tested[3].1 = "pub struct C;\n#[cfg(test)]\nmod tests {\n    use crate::A;\n}\n";
        assert_eq!(check(&tested), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_folder_passes_names_on() {
        let files = [
            LIB,
            ("a/mod", "mod deep;\nmod flat;\npub use deep::*;\n"),
            ("a/deep", "use super::flat::Flat;\npub struct A;\n"),
            ("a/flat", "use crate::b::B;\npub struct Flat;\n"),
            ("b", "use crate::a::A;\npub struct B;\n"),
        ];
        assert_eq!(check(&files), [["a/deep", "a/flat", "b"]]);
    }
}
