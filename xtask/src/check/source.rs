//! The tracked files as the checks read them: code apart from its comments and its strings, and from its tests.
//!
//! No parser of Rust is used, for everybody's first command would build it. rustfmt has laid the code out, and the
//! checks ask for little: which lines are code, what they say outside strings, and where braces close.

use std::error::Error;
use std::path::Path;

use xtask::doing;

/// A span of text and the line that it starts in, from 1.
pub type Piece = (usize, String);

/// One tracked text file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Source {
    /// Below the root, with `/`.
    pub path: String,
    /// Its lines as they are.
    pub lines: Vec<String>,
    /// The same lines of Rust without comments, and without what stands in strings; none of other files.
    pub code: Vec<String>,
    /// Comments that document an item or a module.
    pub docs: Vec<Piece>,
    /// All other comments.
    pub comments: Vec<Piece>,
    /// The contents of string literals.
    pub strings: Vec<Piece>,
    /// Whether each line belongs to tests.
    pub tests: Vec<bool>,
}

/// Reads every file that git tracks, and those that it would take.
pub fn read(root: &Path) -> Result<Vec<Source>, Box<dyn Error>> {
    let mut git = std::process::Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let paths = doing::read(&mut git)?;
    // Images and other data are no text, and a deleted file is still in git's index.
    let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let paths = paths.split('\0').filter(|path| !path.is_empty());
    Ok(paths.filter_map(|path| Some(Source::new(path, &text(path)?))).collect())
}

impl Source {
    /// Takes the text of one file apart.
    pub fn new(path: &str, text: &str) -> Source {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut source = Source { path: path.to_owned(), tests: vec![false; lines.len()], lines, ..Source::default() };
        if source.is_rust() {
            let mut scan = Scan { text: text.chars().collect(), line: 1, ..Scan::default() };
            scan.run();
            source.code = scan.code.lines().map(|line| line.trim_end().to_owned()).collect();
            source.code.resize(source.lines.len(), String::new());
            (source.docs, source.comments, source.strings) = (scan.docs, scan.comments, scan.strings);
            source.tests = source.lines_of_tests();
        }
        source
    }

    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether all of it is a test, a benchmark or an example.
    pub fn is_test(&self) -> bool {
        let tests = ["tests", "benches", "examples", "fuzz_targets"];
        let mut folders = self.path.split('/').skip(1);
        self.path.ends_with("/tests.rs") || folders.any(|folder| tests.contains(&folder))
    }

    /// The lines of code that are no tests, with their numbers from 1.
    pub fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code.iter().zip(&self.tests).zip(1..);
        lines.filter(|((_, test), _)| !**test).map(|((line, _), number)| (number, line.as_str()))
    }

    /// The line that closes the first brace opened in or after line `start`; `None` if a `;` comes before it.
    pub fn end_of_block(&self, start: usize) -> Option<usize> {
        let (mut braces, mut brackets) = (0_i32, 0_i32);
        for (number, line) in (start..).zip(self.code.get(start - 1..)?) {
            for symbol in line.chars() {
                match symbol {
                    '{' => braces += 1,
                    '}' => braces -= 1,
                    '(' | '[' => brackets += 1,
                    ')' | ']' => brackets -= 1,
                    ';' if braces == 0 && brackets == 0 => return None,
                    _ => {}
                }
                if symbol == '}' && braces == 0 {
                    return Some(number);
                }
            }
        }
        None
    }

    fn lines_of_tests(&self) -> Vec<bool> {
        let mut tests = vec![self.is_test(); self.code.len()];
        for start in 1..=self.code.len() {
            if self.code[start - 1].trim() == "#[cfg(test)]" {
                // Of `mod tests;` and `use …;` only the line itself.
                let next = (start + 1..=self.code.len()).find(|line| !self.code[line - 1].trim().starts_with("#["));
                let next = next.unwrap_or(start);
                let end = self.end_of_block(next).unwrap_or(next);
                tests[start - 1..end].fill(true);
            }
        }
        tests
    }
}

/// Words of code in sequence: identifiers, and every other symbol for itself.
pub fn tokens(line: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (token, after) = rest.split_at(if word == 0 { first.len_utf8() } else { word });
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

#[derive(Default)]
struct Scan {
    text: Vec<char>,
    at: usize,
    line: usize,
    code: String,
    docs: Vec<Piece>,
    comments: Vec<Piece>,
    strings: Vec<Piece>,
}

impl Scan {
    fn run(&mut self) {
        while let Some(&symbol) = self.text.get(self.at) {
            match symbol {
                '/' if self.sees("//") => self.comment(),
                '/' if self.sees("/*") => self.block_comment(),
                '"' => self.string(),
                'r' if !self.in_word() && self.raw().is_some() => self.raw_string(),
                '\'' => self.quote(),
                _ => self.keep(),
            }
        }
    }

    fn sees(&self, word: &str) -> bool {
        word.chars().enumerate().all(|(offset, symbol)| self.text.get(self.at + offset) == Some(&symbol))
    }

    /// Whether the symbol before this one is of a name; the `b` of a byte string aside.
    fn in_word(&self) -> bool {
        let before = |back: usize| self.at.checked_sub(back).and_then(|at| self.text.get(at)).copied();
        let named = |symbol: Option<char>| symbol.is_some_and(|symbol| symbol.is_alphanumeric() || symbol == '_');
        named(before(1)) && (before(1) != Some('b') || named(before(2)))
    }

    fn keep(&mut self) {
        let symbol = self.text[self.at];
        self.code.push(symbol);
        self.line += usize::from(symbol == '\n');
        self.at += 1;
    }

    /// Steps over one token that is not code, into `piece`.
    fn take(&mut self, piece: &mut String) {
        let symbol = self.text[self.at];
        piece.push(symbol);
        self.code.push(if symbol == '\n' { '\n' } else { ' ' });
        self.line += usize::from(symbol == '\n');
        self.at += 1;
    }

    fn comment(&mut self) {
        let (line, mut piece) = (self.line, String::new());
        while self.text.get(self.at).is_some_and(|symbol| *symbol != '\n') {
            self.take(&mut piece);
        }
        let documents = piece.starts_with("//!") || (piece.starts_with("///") && !piece.starts_with("////"));
        let list = if documents { &mut self.docs } else { &mut self.comments };
        list.push((line, piece.trim_start_matches(['/', '!']).trim().to_owned()));
    }

    fn block_comment(&mut self) {
        let (line, mut piece, mut depth) = (self.line, String::new(), 0);
        while self.at < self.text.len() {
            let (opens, closes) = (self.sees("/*"), self.sees("*/"));
            depth += i32::from(opens) - i32::from(closes);
            if opens || closes {
                self.take(&mut piece);
            }
            self.take(&mut piece);
            if depth == 0 {
                break;
            }
        }
        self.comments.push((line, piece));
    }

    fn string(&mut self) {
        self.keep();
        let (line, mut piece) = (self.line, String::new());
        while self.text.get(self.at).is_some_and(|symbol| *symbol != '"') {
            if self.text[self.at] == '\\' {
                self.take(&mut piece);
            }
            if self.at < self.text.len() {
                self.take(&mut piece);
            }
        }
        self.strings.push((line, piece));
        if self.at < self.text.len() {
            self.keep();
        }
    }

    /// The number of `#` of a raw string that begins here.
    fn raw(&self) -> Option<usize> {
        let marks = self.text[self.at + 1..].iter().take_while(|symbol| **symbol == '#').count();
        (self.text.get(self.at + 1 + marks) == Some(&'"')).then_some(marks)
    }

    fn raw_string(&mut self) {
        let marks = self.raw().unwrap_or(0);
        for _ in 0..marks + 2 {
            self.keep();
        }
        let end = format!("\"{}", "#".repeat(marks));
        let (line, mut piece) = (self.line, String::new());
        while self.at < self.text.len() && !self.sees(&end) {
            self.take(&mut piece);
        }
        self.strings.push((line, piece));
        for _ in 0..end.len().min(self.text.len() - self.at) {
            self.keep();
        }
    }

    /// A character, or the mark of a lifetime.
    fn quote(&mut self) {
        let after = |offset: usize| self.text.get(self.at + offset).copied();
        let length = match (after(1), after(2)) {
            (Some('\\'), _) => (3..12).find(|offset| after(*offset) == Some('\'')),
            (Some(_), Some('\'')) => Some(2),
            _ => None,
        };
        self.keep();
        for _ in 1..length.unwrap_or(0) {
            self.take(&mut String::new());
        }
        if length.is_some() {
            self.keep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new("a.rs", text).code.join("\n")
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        assert_eq!(code("a(\"fn {\"); // fn b\nc"), "a(\"    \");\nc");
        assert_eq!(code("let a = r#\"x \" {\"#; b"), "let a = r#\"     \"#; b");
        assert_eq!(code("b\"}\" br\"}\" c"), "b\" \" br\" \" c");
        assert_eq!(code("let a: &'a str = ['{', '\\'', '\\u{41}'];"), "let a: &'a str = [' ', '  ', '      '];");
        assert_eq!(code("a /* { /* } */ { */ b"), "a                   b");
        assert_eq!(code("a\\\n\"b\\\"\nc\" d"), "a\\\n\"\n \" d");
    }

    #[test]
    fn pieces_know_their_lines_and_kinds() {
        let source = Source::new("a.rs", "//! One.\n/// Two.\nfn a() {\n    b(\"three\"); // Four.\n}\n");
        assert_eq!(source.docs, [(1, "One.".to_owned()), (2, "Two.".to_owned())]);
        assert_eq!(source.comments, [(4, "Four.".to_owned())]);
        assert_eq!(source.strings, [(4, "three".to_owned())]);
        assert_eq!(source.end_of_block(3), Some(5));
    }

    #[test]
    fn tests_are_known() {
        let text = "a();\n#[cfg(test)]\nmod tests {\n    b();\n}\n#[cfg(test)]\nmod more;\nc();\n";
        let source = Source::new("crates/a/src/a.rs", text);
        assert_eq!(source.shipped().map(|(number, _)| number).collect::<Vec<_>>(), [1, 8]);
        assert_eq!(Source::new("crates/a/tests/a.rs", text).shipped().count(), 0);
    }

    #[test]
    fn a_line_has_tokens() {
        assert_eq!(tokens("  pub fn a_1(b: &C)"), ["pub", "fn", "a_1", "(", "b", ":", "&", "C", ")"]);
    }
}
