//! The items of a file: functions and their length, public items, and unsafe code.

use super::source::{Source, tokens};

/// Lines of a function, from its name to its closing brace.
pub const LINES: usize = 60;

/// A function that ships.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// Its name, and how many of that name come before it in the file.
    pub name: String,
    /// First line, from 1.
    pub line: usize,
    /// Number of lines.
    pub lines: usize,
}

/// An item that is public outside its module.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// `fn`, `struct` and so on.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// First line, from 1.
    pub line: usize,
    /// Whether a comment documents it.
    pub has_docs: bool,
}

/// Words between `pub` or the start of a line and `fn`.
const QUALIFIERS: [&str; 5] = ["const", "async", "unsafe", "extern", "\""];

const KINDS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];

/// The functions of a file that are no tests.
pub fn functions(source: &Source) -> Vec<Function> {
    let mut found: Vec<Function> = Vec::new();
    for (line, code) in source.shipped() {
        let tokens = tokens(code);
        let Some(at) = tokens.iter().position(|token| *token == "fn") else { continue };
        let Some(name) = tokens.get(at + 1).filter(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_'))
        else {
            continue;
        };
        let Some(end) = source.end_of_block(line) else { continue };
        let same = found.iter().filter(|other| other.name.split('#').next() == Some(name)).count();
        let name = if same == 0 { (*name).to_owned() } else { format!("{name}#{}", same + 1) };
        found.push(Function { name, line, lines: end - line + 1 });
    }
    found
}

/// The public items of a file that are no tests; not its modules, which open with a paragraph, and no fields.
pub fn public(source: &Source) -> Vec<Item> {
    let mut found = Vec::new();
    for (line, code) in source.shipped() {
        let tokens = tokens(code);
        if tokens.first() != Some(&"pub") {
            continue;
        }
        let words = tokens[1..].iter().skip_while(|token| {
            // `pub const NAME` is an item, `pub const fn` a kind of function.
            QUALIFIERS.contains(token) && (**token != "const" || tokens.contains(&"fn"))
        });
        let words: Vec<&&str> = words.collect();
        let [kind, name, ..] = words.as_slice() else { continue };
        if let Some(kind) = KINDS.iter().find(|known| **known == **kind) {
            found.push(Item { kind, name: (**name).to_owned(), line, has_docs: has_docs(source, line) });
        }
    }
    found
}

/// Whether the lines above, attributes aside, are a comment that documents.
fn has_docs(source: &Source, line: usize) -> bool {
    let mut above = line - 1;
    while above > 0 {
        let text = source.lines[above - 1].trim();
        if text.starts_with("///") || text.starts_with("#[doc") || text.ends_with("*/") {
            return true;
        }
        if !text.ends_with(']') && !text.starts_with("#[") {
            return false;
        }
        let start = (1..=above).rev().find(|start| source.lines[start - 1].trim().starts_with("#["));
        above = start.map_or(0, |start| start - 1);
    }
    false
}

/// The number of unsafe blocks, functions and implementations in a file, tests aside.
pub fn unsafe_code(source: &Source) -> usize {
    let marks = source.shipped().flat_map(|(_, code)| tokens(code));
    marks.filter(|token| *token == "unsafe").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_lengths() {
        let text = "\
pub(crate) async fn a(
    b: [u8; 4],
) {
    let c = || {};
}
trait D {
    fn e(&self);
    fn a() {}
}
static F: fn(u8) = g;
";
        let found = functions(&Source::new("a.rs", text));
        let expected = [("a", 1, 5), ("a#2", 8, 1)];
        assert_eq!(found, expected.map(|(name, line, lines)| Function { name: name.into(), line, lines }));
    }

    #[test]
    fn items_have_docs_or_not() {
        let text = "\
/// Documented.
#[derive(
    Debug,
)]
#[serde(deny)]
pub struct A {
    pub field: u8,
}
pub const B: u8 = 1;
pub const fn c() {}
pub(crate) fn d() {}
pub unsafe extern \"C\" fn e() {}
pub use f::g;
pub mod h;
";
        let found = public(&Source::new("a.rs", text));
        let found: Vec<_> = found.iter().map(|item| (item.kind, item.name.as_str(), item.has_docs)).collect();
        assert_eq!(found, [("struct", "A", true), ("const", "B", false), ("fn", "c", false), ("fn", "e", false)]);
    }

    #[test]
    fn unsafe_code_is_counted() {
        let text = "unsafe impl A {}\nfn b() { unsafe { \"unsafe\" } }\n#[cfg(test)]\nfn c() { unsafe {} }\n";
        assert_eq!(unsafe_code(&Source::new("a.rs", text)), 2);
    }
}
