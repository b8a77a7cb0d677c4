//! Every ```` ```console ```` block of the README and of `docs/` is run, and its output compared.
//!
//! The blocks of a document run one after another in a folder with a copy of `examples/` and a home of their own. A YAML
//! block that starts with a comment such as `# train.yaml` is written to that file first. In the expected output `[..]`
//! stands for anything within a line and a line of `...` for any lines; where the fence says `figures vary`, any number
//! equals any other and names of runs do too. A command must succeed unless its output shows an error.
//!
//! `SNAPSHOTS=overwrite` brings the documents up to date; lines that still match, and wildcards in them, stay.
//! Some commands train, so these tests need `gradus-rank` beside `gradus`: `cargo xtask test` builds both.

mod links;
mod merge;
mod page;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use crate::page::Page;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs every block of a document; the message of the panic shows what differs.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the test harness takes no arguments of ours")]
fn check(document: &str) {
    let path = repository().join(document);
    let mut text = fs::read_to_string(&path).unwrap();
    let differences = Page::new(&repository()).run(&text::blocks(&text));
    if std::env::var("SNAPSHOTS").is_ok_and(|word| word == "overwrite") {
        for difference in differences {
            text = text.replace(&difference.expected, &difference.merged);
        }
        fs::write(path, text).unwrap();
        return;
    }
    let messages: Vec<&str> = differences.iter().map(|difference| &*difference.message).collect();
    assert!(messages.is_empty(), "{document}\n{}", messages.join("\n"));
}

#[test]
fn readme() {
    check("README.md");
}

#[test]
fn readme_in_chinese() {
    check("README.zh-CN.md");
}

#[test]
fn first_run() {
    check("docs/first-run.md");
}

#[test]
fn coming_from_pytorch() {
    check("docs/from-pytorch.md");
}

#[test]
fn coming_from_skypilot_or_slurm() {
    check("docs/from-skypilot-slurm.md");
}

#[test]
fn bring_your_script() {
    check("docs/own-program.md");
}

#[test]
fn reading_a_plan() {
    check("docs/reading-a-plan.md");
}

#[test]
fn troubleshooting() {
    check("docs/troubleshooting.md");
}

/// The Markdown files at the root and in `docs/`, as paths below the root.
fn documents() -> Vec<String> {
    let root = repository();
    let entries = fs::read_dir(root.join("docs")).unwrap().chain(fs::read_dir(&root).unwrap());
    let paths =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "md"));
    paths.map(|path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned()).collect()
}

/// A document with console blocks that no test above runs would go stale unnoticed.
#[test]
fn no_document_with_console_blocks_is_left_out() {
    let this = include_str!("main.rs");
    for name in documents() {
        let text = fs::read_to_string(repository().join(&name)).unwrap();
        let is_run = this.contains(&format!("check(\"{name}\")"));
        assert!(
            is_run || !text::blocks(&text).iter().any(text::Block::is_console),
            "no test runs the blocks of {name}"
        );
    }
}

#[test]
fn links_lead_somewhere() {
    let broken: Vec<String> = documents().iter().flat_map(|name| links::broken(&repository(), name)).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
