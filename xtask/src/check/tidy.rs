//! Checks beyond the compiler's: where a word may stand, how long a file may be, how it must begin.
//!
//! Each rule is a row in a table, read against the text of every tracked file. Clippy bans calls by what they resolve
//! to (`clippy.toml`, one for each crate that forbids more); here are the rules that clippy cannot say. Tests are
//! exempt from all but the last table.

use std::error::Error;
use std::path::Path;

use super::source::Source;

/// Words that are allowed only in some paths.
struct Ban {
    /// Any of these, outside comments.
    words: &'static [&'static str],
    /// Paths begin with one of these.
    within: &'static [&'static str],
    /// Unless they begin with one of these.
    except: &'static [&'static str],
    /// What to write instead.
    instead: &'static str,
}

/// The crates that hold values and decisions, and touch nothing.
const PURE: &[&str] = &["crates/domain/src/", "crates/plan/src/", "crates/control/src/"];

/// The modules with unsafe code; they contain nothing else.
const UNSAFE: &[&str] = &[
    "crates/agent/src/devices/nvml.rs",
    "crates/agent/src/signals.rs",
    "crates/node/src/session.rs",
    "crates/data/src/decode/kernels/avx2.rs",
    "crates/data/src/transform/slots.rs",
    "crates/door/src/dlpack.rs",
    "crates/door/src/memory.rs",
    "crates/program/src/streamed.rs",
    "crates/train/src/torch/",
];

const BANS: &[Ban] = &[
    Ban {
        words: &["std::fs", "std::net", "std::thread", "std::process", "std::env", "std::os"],
        within: PURE,
        except: &[],
        instead: "let the caller gather the facts and pass them in",
    },
    Ban {
        words: &["Instant::now", "SystemTime", "Utc::now", "Timestamp::now", "Zoned::now"],
        within: PURE,
        except: &[],
        instead: "take the time as an argument",
    },
    Ban {
        words: &["HashMap", "HashSet", "rand::", "RandomState"],
        within: &["crates/plan/src/"],
        except: &[],
        instead: "take a `BTreeMap` or `BTreeSet`, whose order is the same on every run, and random numbers as arguments",
    },
    Ban {
        words: &["async fn", "async move", "async {", ".await"],
        within: &["crates/"],
        except: &[
            "crates/server/src/",
            "crates/cloud/src/",
            "crates/store/src/",
            "crates/agent/src/loop_request.rs",
            "crates/agent/src/reclaim/mod.rs",
        ],
        instead: "use plain threads; only `server`, `cloud` and `store` wait for many things at once",
    },
    Ban {
        words: &["println!", "eprintln!", "print!(", "eprint!(", "dbg!"],
        within: &["crates/"],
        except: &["crates/cli/src/printer", "crates/train/src/main.rs"],
        instead: "return it; only `cli::printer` prints",
    },
    Ban {
        words: &["env::var", "env::set_var", "env::remove_var"],
        within: &["crates/"],
        except: &["crates/cli/src/settings", "crates/train/src/main.rs"],
        instead: "take it as an argument; only `cli::settings` and a rank's `main` read the environment",
    },
    Ban {
        words: &["allow(unsafe_code)", "expect(unsafe_code)"],
        within: &["crates/"],
        except: UNSAFE,
        instead: "look for a safe call in `rustix`; unsafe code has an address, and `ARCHITECTURE.md` lists it",
    },
];

/// Names that do not describe what is inside.
const EMPTY_NAMES: [&str; 9] =
    ["util", "utils", "common", "helper", "helpers", "misc", "manager", "managers", "shared"];

/// Lines of a file, its tests aside.
const LINES: usize = 400;

/// Files that may be longer; this list stays empty.
const LONG_FILES: [&str; 0] = [];

/// Words of a developer's machine that no tracked file holds; split, so that this file does not hold them either.
const MACHINE: [&str; 2] = [concat!("/wo", "rk/"), concat!("../sha", "red")];

/// Returns a sentence for each rule that is broken.
pub fn check(root: &Path, sources: &[Source]) -> Result<Vec<String>, Box<dyn Error>> {
    let mut complaints: Vec<String> = sources.iter().flat_map(read).collect();
    let [english, chinese] = ["README.md", "README.zh-CN.md"].map(|path| std::fs::read_to_string(root.join(path)));
    if blocks(&english?) != blocks(&chinese?) {
        complaints.push("README.zh-CN.md: its commands and examples are not those of README.md".into());
    }
    Ok(complaints)
}

/// The contents of code fences: commands, examples and their output, which no translation changes.
fn blocks(text: &str) -> Vec<&str> {
    text.split("\n```").skip(1).step_by(2).collect()
}

/// Compares one file with every rule.
fn read(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in source.lines.iter().enumerate() {
        if let Some(word) = MACHINE.iter().find(|word| line.contains(**word)) {
            complaints.push(format!("{}:{}: `{word}` is a place on a developer's machine", source.path, number + 1));
        }
    }
    if source.is_rust() && !source.is_test() {
        complaints.extend(read_source(source));
    }
    complaints
}

fn read_source(source: &Source) -> Vec<String> {
    let (path, lines) = (source.path.as_str(), &source.lines);
    let mut complaints = Vec::new();
    let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "));
    let length = tests.unwrap_or(lines.len());
    if !lines.iter().find(|line| !line.starts_with("#![")).is_some_and(|line| line.starts_with("//!")) {
        complaints.push(format!("{path}:1: a module opens with a paragraph (`//!`): what it is, and its one idea"));
    }
    if length > LINES && !LONG_FILES.contains(&path) {
        complaints
            .push(format!("{path}:{LINES}: {length} lines without tests; a file is one thought, {LINES} at most"));
    }
    let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    let folder = Path::new(path).parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    if let Some(empty) = EMPTY_NAMES.iter().find(|empty| **empty == name || **empty == folder) {
        complaints.push(format!("{path}:1: `{empty}` says nothing; find the name of the concept"));
    }
    if path.ends_with("build.rs") {
        return complaints;
    }
    let starts = |list: &[&str]| list.iter().any(|start| path.starts_with(start));
    for ban in BANS.iter().filter(|ban| starts(ban.within) && !starts(ban.except)) {
        for (number, line) in source.shipped() {
            if let Some(word) = ban.words.iter().find(|word| mentions(line, word)) {
                complaints.push(format!("{path}:{number}: `{word}` is banned here: {}", ban.instead));
            }
        }
    }
    complaints
}

/// Whether a line of code has the word; `std::x` also as `std::{…, x, …}`.
fn mentions(line: &str, word: &str) -> bool {
    let code = line.trim_start();
    let starts_a_word = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if code.match_indices(word).any(|(at, _)| !word.starts_with(char::is_alphabetic) || starts_a_word(at)) {
        return true;
    }
    match (word.strip_prefix("std::"), code.split_once("use std::{")) {
        (Some(module), Some((_, group))) => {
            group.split(['{', '}', ',']).any(|item| item.trim().split("::").next() == Some(module))
        }
        (Some(_), None) | (None, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &str) {
        let complaints = read(&Source::new(path, text)).join("\n");
        let is_as_expected = match expected {
            "" => complaints.is_empty(),
            _ => complaints.contains(expected),
        };
        assert!(is_as_expected, "{path}: {text}\nexpected: {expected}\nfound: {complaints}");
    }

    #[test]
    fn words_have_places() {
        let code = |line: &str| format!("//! Words.\n{line}\n");
        check("crates/plan/src/a.rs", &code("use std::fs;"), "`std::fs` is banned here");
        check("crates/plan/src/a.rs", &code("use std::{fmt, fs};"), "`std::fs` is banned here");
        check("crates/plan/src/a.rs", &code("use std::{fmt, process::Command};"), "`std::process` is banned here");
        check("crates/plan/src/a.rs", &code("use std::{fmt, cmp};"), "");
        check("crates/agent/src/a.rs", &code("use std::fs;"), "");
        check("crates/plan/src/a.rs", &code("let now = Instant::now();"), "take the time as an argument");
        check("crates/plan/src/a.rs", &code("/// Never calls `Instant::now`."), "");
        check("crates/agent/src/a.rs", &code("    eprintln!(\"a\");"), "only `cli::printer` prints");
        check("crates/cli/src/printer.rs", &code("println!();"), "");
        check("crates/agent/src/a.rs", &code("async fn a() {}"), "plain threads");
        check("crates/server/src/a.rs", &code("a().await"), "");
        check("crates/agent/src/a.rs", &code("std::env::var(\"A\")"), "`env::var` is banned here");
        check("crates/data/src/a.rs", &code("#![allow(unsafe_code)]"), "unsafe code has an address");
    }

    #[test]
    fn blocks_are_what_stands_between_fences() {
        assert_eq!(blocks("a\n\n```sh\nb\n```\nc\n```text\nd\n```\n"), ["sh\nb", "text\nd"]);
    }

    #[test]
    fn tests_are_exempt() {
        check("crates/plan/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n", "");
        check("crates/plan/tests/a.rs", "use std::fs;\n", "");
    }

    #[test]
    fn files_have_a_shape() {
        check("crates/plan/src/a.rs", "use a;\n", "a module opens with a paragraph");
        check("crates/plan/src/a.rs", &format!("//! A.\n{}", "\n".repeat(400)), "401 lines without tests");
        check("crates/plan/src/a.rs", &format!("//! A.\n#[cfg(test)]\nmod tests {{\n{}}}", "\n".repeat(400)), "");
        check("crates/plan/src/utils.rs", "//! A.\n", "find the name");
        check("crates/plan/src/helpers/mod.rs", "//! A.\n", "find the name");
        check("README.md", concat!("see /wo", "rk/a\n"), "README.md:1:");
    }
}
