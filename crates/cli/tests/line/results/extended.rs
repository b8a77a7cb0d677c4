//! Runs that go on with other values of their keys, job files whose last run did not end well, and models for other
//! programs.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::home::{Home, Said, text};

/// A small job on the digits of the repository, with more keys of `train:`.
fn digits(home: &Home, name: &str, keys: &str) -> PathBuf {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits.csv.gz");
    let job = format!(
        "train:\n  model: mlp\n  data: {{path: {data}}}\n  batch: 100\n  optimizer: {{sgd: {{lr: 0.05}}}}\n  threads: 1\n{keys}"
    );
    home.job(name, &job)
}

fn went_well(said: &Said) -> Value {
    assert_eq!(said.code, Some(0), "{}", said.err);
    said.last()
}

#[test]
fn a_run_that_has_ended_is_extended_to_the_same_model() {
    let home = Home::new();
    let short = digits(&home, "short.yaml", "  epochs: 2\n");
    went_well(&home.gradus(&["run", text(&short), "--json"]));
    let refused = home.gradus(&["resume", "last", "--set", "epochs=2"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(
        refused.err.contains("has ended with its result") && refused.err.contains("--set epochs="),
        "{}",
        refused.err
    );
    // There is nothing to resume, follow or give back, and each says so.
    let again = home.gradus(&["resume", "last"]);
    assert!(again.code == Some(0) && again.err.contains("is already trained, and nothing was done"), "{}", again.err);
    for (words, told) in [
        (&["attach", "last"][..], "to train on: `gradus resume short-"),
        (&["machines", "down", "last"], "has no machine that is up"),
        (&["checkpoints", "rm", "last", "--yes"], "`--keep NUMBER`; there are "),
    ] {
        let refused = home.gradus(words);
        assert!(refused.code == Some(2) && refused.err.contains(told), "{words:?}: {}", refused.err);
    }
    let refused = home.gradus(&["resume", "last", "--set", "epoch=4"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("did you mean `epochs`?"), "{}", refused.err);
    let refused = home.gradus(&["resume", "last", "--set", "epochs=4", "--set", "seed=9"]);
    assert!(refused.err.contains("`train.seed`: a checkpoint of another value cannot be resumed"), "{}", refused.err);
    let longer = went_well(&home.gradus(&["resume", "last", "--set", "epochs=4", "--json"]));
    let events = home.gradus(&["events", "last"]).out;
    assert!(events.contains("resume requested with epochs=4"), "{events}");

    let other = Home::new();
    let whole = digits(&other, "whole.yaml", "  epochs: 4\n");
    let whole = went_well(&other.gradus(&["run", text(&whole), "--json"]));
    assert_eq!(longer["model_sha256"], whole["model_sha256"]);

    // The model as ONNX, as the planner reads it.
    let folder = home.path().join("onnx");
    let exported = home.gradus(&["models", "export", "last", "--to", text(&folder), "--onnx"]);
    assert_eq!(exported.code, Some(0), "{}", exported.err);
    let read = home.gradus(&["plan", "model", text(&folder.join("model.onnx")), "--json"]);
    assert_eq!(went_well(&read)[0]["parameters"], 64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10);

    // And as TorchScript, which is read back with the same logits before it is named.
    let exported = home.gradus(&["models", "export", "last", "--to", text(&folder), "--torchscript", "--json"]);
    assert_eq!(exported.code, Some(0), "{}", exported.err);
    assert!(PathBuf::from(exported.last()["torchscript"].as_str().unwrap()).is_file());
    assert!(!folder.join("model.part").exists());

    // A checkpoint is copied with its manifest, and of one that is deleted nothing is left.
    let copy = home.path().join("copy");
    let pulled = home.gradus(&["checkpoints", "pull", "last", "-o", text(&copy)]);
    assert_eq!(pulled.code, Some(0), "{}", pulled.err);
    let copied: Vec<String> = names(&copy).filter(|name| name.starts_with("manifest-")).collect();
    assert_eq!(copied.len(), 1, "{copied:?}");
    let removed = home.gradus(&["checkpoints", "rm", "last", "--keep", "0", "--yes"]);
    assert_eq!(removed.code, Some(0), "{}", removed.err);
    let listed = home.gradus(&["checkpoints", "list", "last"]);
    assert!(listed.out.is_empty() && listed.err.contains("has no checkpoints"), "{}{}", listed.out, listed.err);

    // Nor is there anything to train on from, and step 0 would be paid again.
    let refused = home.gradus(&["resume", "last", "--set", "epochs=6"]);
    let told = ["has no checkpoint left to train on from", "--new` with `weights: "];
    assert!(refused.code == Some(2) && told.iter().all(|part| refused.err.contains(part)), "{}", refused.err);
}

/// The names of the files in a folder.
fn names(folder: &Path) -> impl Iterator<Item = String> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap())
}

#[test]
fn two_processes_become_one() {
    let home = Home::new();
    let job = digits(&home, "two.yaml", "  processes: 2\n  epochs: 2\n  stop: {epochs: 1}\n");
    went_well(&home.gradus(&["run", text(&job), "--json"]));
    let set = ["resume", "last", "--set", "processes=1", "--set", "stop=null", "--json"];
    let longer = went_well(&home.gradus(&set));
    assert_eq!(longer["attempts"], 2);
    let ranks = |attempt: &str| {
        let runs: Vec<PathBuf> =
            std::fs::read_dir(home.path().join("runs")).unwrap().map(|run| run.unwrap().path()).collect();
        let files = std::fs::read_dir(runs[0].join("attempts")).unwrap().map(|entry| entry.unwrap().path());
        let folder = files.into_iter().find(|path| path.to_string_lossy().ends_with(attempt)).unwrap();
        (0..4).take_while(|rank| folder.join(format!("rank-{rank}.json")).exists()).count()
    };
    assert_eq!((ranks("a1"), ranks("a2")), (2, 1));
}

#[test]
fn a_run_that_was_left_behind_is_named() {
    let home = Home::new();
    let job = home.job("bad.yaml", "name: bad\nrun: exit 7\n");
    let first = home.gradus(&["run", text(&job)]);
    assert!(!first.err.contains("of this file is"), "{}", first.err);
    let second = home.gradus(&["run", text(&job)]);
    assert!(second.err.contains("of this file is failed: resume it with `gradus resume bad-"), "{}", second.err);
    let other = home.gradus(&["run", text(&job), "--new"]);
    assert!(!other.err.contains("of this file is"), "{}", other.err);
}
