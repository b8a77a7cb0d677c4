//! YAML itself: invalid documents, merge keys, scalars, and hostile files.

use std::fmt::Write;

use proptest::prelude::*;

use super::{Job, check, said, train_with};
use crate::file::MAX_BYTES;
use crate::job::Work;

#[test]
fn yaml_itself_is_checked() {
    let empty = "- -: the file is empty (write a `train:` section, or a `run:` program of your own)";
    check("", empty);
    check("# only a comment\n", empty);
    check("---\n", empty);
    check("hello", "1 -: a job file is a mapping of keys to values (start with `train:` or `run:`)");
    check("- run: a", "1 -: a job file is a mapping of keys to values (start with `train:` or `run:`)");
    check("run: a\nrun: b\n", "2 run: the key stands here twice (keep one of the two)");
    check(
        "name: a\n---\nrun: b\n",
        "2 -: several documents in one file are a pipeline, and a single job is expected here (start it with `gradus run FILE`, or keep one document)",
    );
    check("run: *nothing\n", "1 -: this is not YAML: while parsing node, found unknown anchor");
    check("envs: &me {a: *me}\nrun: a\n", "1 -: an alias stands inside the value that it names");
    check(
        "run: !exec a\n",
        "1 -: the tag `!exec` has no meaning in a job file (put text that starts with `!` in quotes)",
    );
    check(
        "? [a]\n: b\nrun: a\n",
        "1 -: a key is a list or a mapping (write a word as the key; text with `{` or `[` in it needs quotes)",
    );
    check(
        "train:\n\tmodel: cnn\n",
        "2 -: this is not YAML: tabs disallowed within this context (block indentation) (indent with spaces, not with tabs)",
    );
    check(
        "run: a\nenvs: [b\n",
        "3 -: this is not YAML: while parsing a flow sequence, expected ',' or ']' (close the bracket that is open, or put text that begins with one in quotes)",
    );
    check(
        "run: a\nname: b: c\n",
        "2 -: this is not YAML: mapping values are not allowed in this context (put text that has `: ` in it in quotes)",
    );
    check(
        "train: {model: cnn\nname: a\n",
        "2 -: this is not YAML: while parsing a flow mapping, did not find expected ',' or '}' (close the bracket that is open, or put text that begins with one in quotes)",
    );
    check("\u{feff}run: a\n", "ok");
    check("run: a\r\nname: b\r\n", "ok");
    check("run: !!str 5\n", "ok");
}

#[test]
fn merged_keys_give_way_to_given_ones() {
    let yaml = "envs: {<<: &base {A: one, B: two}, B: three}\nrun: a\n";
    let job = Job::parse(yaml, "job.yaml").unwrap().job;
    assert_eq!(job.envs.into_iter().collect::<Vec<_>>(), [("A".into(), "one".into()), ("B".into(), "three".into())]);
    check("envs: {<<: 5}\nrun: a\n", "1 -: `<<` takes a mapping, or a list of mappings");
}

#[test]
fn scalars_follow_the_section_they_stand_in() {
    // SkyPilot's keys are read as PyYAML reads them, ours by YAML 1.2.
    let yaml =
        "envs: {A: yes, B: 010, C: 1:30, D: 1e3, E: 0o10, F: 1_000, G: 1.0, H: '010', I: 2024-01-31, J: ''}\nrun: a\n";
    let job = Job::parse(yaml, "job.yaml").unwrap().job;
    let expected = ["True", "8", "90", "1e3", "0o10", "1000", "1.0", "010", "2024-01-31", ""];
    assert_eq!(job.envs.values().collect::<Vec<_>>(), expected);
    check(
        "run: a\nname: on\n",
        "2 name: expected text, found `on`, which YAML reads as `true` (put it in quotes: `\"on\"`)",
    );
    check(
        "run: a\nname: 010\n",
        "2 name: expected text, found `010`, which YAML reads as the number `8` (put it in quotes: `\"010\"`)",
    );
    check("run: a\nresources: {cpus: 010}\n", "ok");
    check(&train_with("seed: 010"), "ok");
    check(&train_with("seed: 0o10"), "ok");
    check(&train_with("seed: 1_000"), "6 train.seed: expected a whole number, found the text `1_000`");
    let seed = |text: &str| match Job::parse(&train_with(&format!("seed: {text}")), "job.yaml").unwrap().job.work {
        Work::Train(train) => train.seed,
        Work::Command(_) => unreachable!(),
    };
    assert_eq!((seed("010"), seed("0o10")), (10, 8));
    check("run: a\nenvs: {A: }\n", "ok");
    check("run: a\nenvs: {A: [b]}\n", "2 envs.A: expected text, found a list");
    check(
        "run: a\nenvs: {A: 2024-01-31T12:00:00Z}\n",
        "2 envs.A: expected text, found the date `2024-01-31T12:00:00Z` (write a value in quotes; `\"\"` is the empty text)",
    );
    check(
        "run: a\nenvs: {1A: b}\n",
        "2 envs.1A: `1A` is no name of a variable (use letters, digits and `_`, and no digit first)",
    );
    check("run: a\nenvs: [A=b]\n", "2 envs: expected a mapping, found a list (write `envs: {NAME: value}`)");
}

/// Files beyond the budget are refused after a bounded amount of work: each of these takes milliseconds, and would take
/// minutes or all memory without the budget.
#[test]
fn bombs_are_refused() {
    let mut billion = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(billion, "a{level}: &a{level} [{below}]").unwrap();
    }
    let many = (0..60_000).map(|index| format!("k{index}: 1\n")).collect::<String>();
    let half = MAX_BYTES / 2;
    let cases = [
        (billion, "unfolds to more than 50000 keys and values"),
        (many, "unfolds to more than 50000 keys and values"),
        ("[".repeat(half), "nested more than 32 deep"),
        ("{a: ".repeat(half / 4), "nested more than 32 deep"),
        ("- ".repeat(half), "nested more than 32 deep"),
        ("? ".repeat(half), "nested more than 32 deep"),
        ("a: &a [&b [&c [*a]]]".to_owned(), "an alias stands inside the value that it names"),
        ("x".repeat(MAX_BYTES + 1), "a job file has at most 1048576"),
        (format!("run: {}", "x".repeat(half)), "at most 131071 can be handed to a program"),
        ("\"".repeat(half), "not YAML"),
        ("&a ".repeat(half / 3), "not YAML"),
        ("%".repeat(half), "not YAML"),
    ];
    for (yaml, expected) in cases {
        let said = said(&yaml);
        assert!(said.contains(expected), "{expected}\n{}", said.chars().take(300).collect::<String>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        said(&String::from_utf8_lossy(&bytes));
    }

    /// Tokens with a meaning in YAML or here, in any order.
    #[test]
    fn no_pieces_panic(pieces in proptest::collection::vec(0..PIECES.len(), 0..60)) {
        said(&pieces.iter().map(|piece| PIECES[*piece]).collect::<String>());
    }

    /// A right file with one byte changed is right or has a problem with a message.
    #[test]
    fn no_change_of_a_right_file_panics(at in 0usize..500, byte in any::<u8>()) {
        let mut bytes = include_bytes!("../../../../../examples/cifar10.yaml").to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        prop_assert!(!said(&String::from_utf8_lossy(&bytes)).is_empty());
    }
}

const PIECES: [&str; 48] = [
    "train",
    "run",
    "data",
    "model",
    "optimizer",
    "sgd",
    "lr",
    "envs",
    "resources",
    "cpus",
    "job_recovery",
    "budget",
    "max",
    "split",
    "augment",
    "pad_crop",
    "path",
    "cnn",
    "folders",
    ":",
    ": ",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "&a ",
    "*a",
    "<<",
    "!!str ",
    "'",
    "\"",
    "|\n",
    "? ",
    "0",
    "-1",
    "1e999",
    "1:30",
    ".nan",
    "yes",
    "null",
    "é",
    "\t",
    "#",
];
