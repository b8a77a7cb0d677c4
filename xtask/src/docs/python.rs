//! `docs/python.md`: the functions, classes and methods of the Python package, from their docstrings.
//!
//! The sources are read as text, so that the check of the documents needs no Python: definitions begin a line or are
//! indented by four, and a docstring is the first thing after one.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

/// What stands above the reference.
const OPENING: &str = include_str!("python-opening.md");

/// Where the package is.
const PACKAGE: &str = "crates/door/python/gradus";

/// Modules, and the name that users know each by.
const MODULES: [(&str, &str); 10] = [
    ("_run.py", "gradus"),
    ("_loader.py", "gradus"),
    ("_loaders/text.py", "gradus"),
    ("_loaders/detection.py", "gradus"),
    ("_loaders/samples.py", "gradus"),
    ("huggingface.py", "gradus.huggingface"),
    ("lightning.py", "gradus.lightning"),
    ("accelerate.py", "gradus.accelerate"),
    ("torchtitan.py", "gradus.torchtitan"),
    ("torchtune.py", "gradus.torchtune"),
];

/// The reference.
pub(super) fn reference(root: &Path) -> Result<String, Box<dyn Error>> {
    let mut text = OPENING.to_owned();
    for (file, module) in MODULES {
        let path = root.join(PACKAGE).join(file);
        let source =
            std::fs::read_to_string(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        for found in definitions(&source) {
            let _ = writeln!(text, "\n{} `{}`\n\n{}", found.heading(), found.signature(module), body(&found.docstring));
        }
    }
    Ok(text.trim_end().to_owned() + "\n")
}

/// A public definition that has a docstring.
#[derive(Debug, PartialEq)]
struct Definition {
    /// The class that it is a method of.
    class: Option<String>,
    /// As it stands in the source, on one line: `class Run` or `def save(self, state, step)`.
    head: String,
    is_property: bool,
    docstring: Vec<String>,
}

impl Definition {
    fn heading(&self) -> &'static str {
        if self.class.is_some() { "###" } else { "##" }
    }

    /// How it is called.
    fn signature(&self, module: &str) -> String {
        let head = self.head.trim_start_matches("def ").trim_start_matches("class ");
        let head = if self.head.starts_with("class ") { head.split('(').next().unwrap_or(head) } else { head };
        match &self.class {
            None => format!("{module}.{head}"),
            Some(class) => {
                let head = head.replacen("(self, ", "(", 1).replacen("(self)", "()", 1);
                let head = if self.is_property { head.trim_end_matches("()") } else { &head };
                format!("{class}.{head}")
            }
        }
    }
}

/// The public definitions of a source, in its order.
fn definitions(source: &str) -> Vec<Definition> {
    let mut found = Vec::new();
    let (mut class, mut is_property) = (None, false);
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        let inner = line.trim_start();
        let depth = line.len() - inner.len();
        if inner.starts_with("class ") && depth == 0 {
            class = None;
        }
        let is_definition = depth == 0 && (inner.starts_with("def ") || inner.starts_with("class "))
            || depth == 4 && class.is_some() && inner.starts_with("def ");
        if !is_definition {
            is_property |= inner == "@property";
            is_property &= inner.starts_with('@') || inner.is_empty();
            continue;
        }
        let mut head = inner.to_owned();
        while !head.ends_with(':') {
            let Some(next) = lines.next() else { break };
            head.push_str(if head.ends_with('(') { "" } else { " " });
            head.push_str(next.trim());
        }
        let head = head.trim_end_matches(':').replace(", )", ")").replace(",)", ")");
        let name = head.split(' ').nth(1).unwrap_or_default();
        let name = name.split('(').next().unwrap_or_default().to_owned();
        let owner = if depth == 0 { None } else { class.clone() };
        if head.starts_with("class ") {
            class = (!name.starts_with('_')).then(|| name.clone());
        } else if depth == 0 {
            class = None;
        }
        let docstring = lines.peek().is_some_and(|next| next.trim_start().starts_with("\"\"\""));
        if docstring && !name.starts_with('_') {
            found.push(Definition { class: owner, head, is_property, docstring: docstring_of(&mut lines, depth + 4) });
        }
        is_property = false;
    }
    found
}

/// The lines of the docstring that comes next, without its quotes and its margin.
fn docstring_of<'a>(lines: &mut impl Iterator<Item = &'a str>, margin: usize) -> Vec<String> {
    let mut found = Vec::new();
    for line in lines {
        let is_first = found.is_empty();
        let line =
            if is_first { line.trim_start().trim_start_matches("\"\"\"") } else { line.get(margin..).unwrap_or("") };
        let (line, is_last) = match line.strip_suffix("\"\"\"") {
            Some(line) => (line, true),
            None => (line, false),
        };
        found.push(line.to_owned());
        if is_last {
            break;
        }
    }
    found
}

/// A docstring as Markdown: `name  meaning` becomes an item of a list, what is indented without one becomes code.
fn body(docstring: &[String]) -> String {
    let mut text = String::new();
    for block in docstring.split(|line| line.trim().is_empty()).filter(|block| !block.is_empty()) {
        text.push_str(if text.is_empty() { "" } else { "\n" });
        let is_list = item(&block[0]).is_some();
        let is_code = block[0].starts_with("    ");
        if is_code {
            let code: Vec<&str> = block.iter().map(|line| line.get(4..).unwrap_or("")).collect();
            let _ = writeln!(text, "```text\n{}\n```", code.join("\n"));
            continue;
        }
        for line in block {
            match item(line).filter(|_| is_list) {
                Some((names, meaning)) => {
                    let names: Vec<String> = names.split(", ").map(|name| format!("`{name}`")).collect();
                    let _ = writeln!(text, "- {}: {meaning}", names.join(", "));
                }
                None if is_list => {
                    let _ = writeln!(text, "  {}", line.trim_start());
                }
                None => {
                    let _ = writeln!(text, "{line}");
                }
            }
        }
    }
    text.trim_end().to_owned()
}

/// The names and the meaning of a line such as `rank, world  which part of each batch comes here`.
fn item(line: &str) -> Option<(&str, &str)> {
    let (names, meaning) = line.split_once("  ")?;
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_*".contains(c));
    names.split(", ").all(is_name).then(|| (names, meaning.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_and_docstrings_become_sections() {
        let source = "\"\"\"A module.\"\"\"\n\ndef begin(\n    *, a=None, b=(1, 2),\n):\n    \"\"\"Begins.\n\n    a     what it is,\n          on two lines\n    b, c  others\n\n        code = 1\n    \"\"\"\n    return 1\n\n\nclass Run(Base):\n    \"\"\"A run.\"\"\"\n\n    def __init__(self):\n        \"\"\"Hidden.\"\"\"\n\n    @property\n    def is_up(self):\n        \"\"\"Whether it is up.\"\"\"\n\n    def save(self, x, *, y=1):\n        \"\"\"Saves.\"\"\"\n\n    def _inner(self):\n        \"\"\"No.\"\"\"\n\n\ndef _private():\n    \"\"\"No.\"\"\"\n";
        let shown: Vec<String> = definitions(source)
            .iter()
            .map(|found| format!("{} {}\n{}", found.heading(), found.signature("gradus"), body(&found.docstring)))
            .collect();
        let expected = [
            "## gradus.begin(*, a=None, b=(1, 2))\nBegins.\n\n- `a`: what it is,\n  on two lines\n- `b`, `c`: others\n\n```text\ncode = 1\n```",
            "## gradus.Run\nA run.",
            "### Run.is_up\nWhether it is up.",
            "### Run.save(x, *, y=1)\nSaves.",
        ];
        assert_eq!(shown, expected);
    }
}
