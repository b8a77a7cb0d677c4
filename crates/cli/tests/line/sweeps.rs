//! Searches over the digits, with real trials: the table, the bill, and what a kill or a stop in the middle changes,
//! which is nothing.
//!
//! These need `gradus-rank` beside `gradus`: `cargo xtask test` builds both.

mod pipelines;
mod tables;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::home::{Home, Said, said, signal, text};

/// A sweep over a small training of the digits.
fn job(home: &Home, sweep: &str) -> PathBuf {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.csv.gz").canonicalize().unwrap();
    let text = format!(
        "name: search\ntrain:\n  model: mlp\n  data: {{path: {}}}\n  epochs: 2\n  batch: 96\n  threads: 1\nsweep:\n{sweep}",
        digits.display()
    );
    home.job("search.yaml", &text)
}

/// Four trials of one epoch, of which two go on to the second.
const HALVING: &str = "  method: {asha: {min_epochs: 1, reduction_factor: 2}}\n  trials: 4\n  parameters:\n    optimizer.adamw.lr: {min: 1e-4, max: 1e-1, log: true}\n    batch: [32, 96]\n    model: [mlp, {resnet: {blocks: [1, 1, 1, 1], width: 4}}]\n";

/// Each trial's number, values, epochs and metric.
fn table(done: &Value) -> Vec<String> {
    let trials = done["trials"].as_array().unwrap();
    let line = |trial: &Value| {
        let Value::Object(fields) = trial else { panic!("{trial}") };
        ["trial", "word", "epochs", "value", "values"].map(|key| fields[key].to_string()).join(" ")
    };
    trials.iter().map(line).collect()
}

#[track_caller]
fn went_well(said: &Said) {
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[test]
fn killed_or_stopped_in_the_middle_a_sweep_has_the_same_table() {
    let home = Home::new();
    let run = home.gradus(&["run", text(&job(&home, HALVING)), "--json", "--yes", "--price", "3.60/h"]);
    went_well(&run);
    let done = run.last();
    assert_eq!((done["event"].as_str(), done["outcome"].as_str()), (Some("done"), Some("done")));
    let expected = table(&done);
    assert_eq!(expected.len(), 4);
    let epochs = |wanted: u64| {
        let trials = done["trials"].as_array().unwrap();
        trials.iter().filter(|trial| trial["epochs"] == wanted).count()
    };
    assert_eq!((epochs(1), epochs(2)), (2, 2), "{expected:?}");
    let sweep = done["sweep"].as_str().unwrap().to_owned();

    // The bill is the sum of its trials', exactly, and what `cost` says of them.
    let costs = done["trials"].as_array().unwrap().iter().map(|trial| trial["cost_micro_usd"].as_u64().unwrap());
    let bill = done["bill_micro_usd"].as_u64().unwrap();
    assert_eq!(costs.sum::<u64>(), bill);
    let cost = home.gradus(&["cost", &sweep, "--json"]);
    let costs = cost.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(costs.map(|value| value["cost_micro_usd"].as_u64().unwrap()).sum::<u64>(), bill);

    // The best is named, its model and the reports stand, and it can be exported by the sweep's name.
    let (best, model) = (&done["best"], done["model"].as_str().unwrap());
    assert_eq!(best["number"], done["trials"][0]["trial"]);
    assert!(Path::new(model).exists() && best["value"].as_f64().unwrap() > 0.5, "{best}");
    let page = std::fs::read_to_string(Path::new(done["folder"].as_str().unwrap()).join("report.html")).unwrap();
    assert!(page.matches("<polyline").count() == 4 && page.matches("<circle").count() == 12);
    assert!(home.path().join("runs").join(best["run"].as_str().unwrap()).join("report.html").exists());
    let to = home.path().join("copy");
    went_well(&home.gradus(&["models", "export", &sweep, "--to", text(&to)]));
    assert_eq!(std::fs::read(to.join("model.safetensors")).unwrap(), std::fs::read(model).unwrap());

    // `status` shows the same table, and for people the best trial first.
    assert_eq!(table(&home.gradus(&["status", &sweep, "--json"]).last()), expected);
    let shown = home.gradus(&["status", "last"]).out;
    let first = shown.lines().skip_while(|line| !line.starts_with("trial ")).nth(1).unwrap();
    assert!(first.starts_with(&best["number"].to_string()), "{shown}");

    // The loop is killed in the middle, and the same command goes on.
    let other = Home::new();
    let file = job(&other, HALVING);
    let words = ["run", text(&file), "--json", "--yes", "--price", "3.60/h"];
    let running = other.start(&words);
    other.until("the second trial", || other.gradus(&["status"]).out.contains("-t2"));
    signal(running.id(), "KILL");
    said(running.wait_with_output().unwrap());
    let again = other.gradus(&words);
    went_well(&again);
    assert!(again.err.contains("resuming sweep"), "{}", again.err);
    assert_eq!(table(&again.last()), expected);

    // It is stopped with all of its trials, and resumed.
    let third = Home::new();
    let file = job(&third, HALVING);
    let running = third.start(&["run", text(&file), "--json", "--yes", "--price", "3.60/h"]);
    third.until("the third trial", || third.gradus(&["status"]).out.contains("-t3"));
    went_well(&third.gradus(&["stop", "last"]));
    let stopped = said(running.wait_with_output().unwrap());
    assert_eq!((stopped.code, stopped.last()["outcome"].as_str()), (Some(103), Some("stopped")), "{}", stopped.err);
    assert!(third.pids(" agent ").is_empty());
    let resumed = third.gradus(&["resume", "last", "--json"]);
    went_well(&resumed);
    assert_eq!(table(&resumed.last()), expected);
}

#[test]
fn a_trial_that_fails_is_counted_and_the_others_go_on() {
    let home = Home::new();
    let sweep = "  method: grid\n  parallel: 2\n  parameters:\n    optimizer.sgd.lr: [1e38, 0.1, 0.01]\n";
    let run = home.gradus(&["run", text(&job(&home, sweep)), "--json"]);
    went_well(&run);
    let done = run.last();
    let words: Vec<&str> =
        done["trials"].as_array().unwrap().iter().map(|trial| trial["word"].as_str().unwrap()).collect();
    assert_eq!(words, ["trained", "trained", "failed"], "{}", run.out);
    let careful = Home::new();
    let run = careful.gradus(&["run", text(&job(&careful, &format!("{sweep}  max_failed: 0\n")))]);
    assert_eq!(run.code, Some(100), "{}", run.err);
    assert!(run.err.contains("1 trials have failed; at most 0 may") && run.err.contains("hint:"), "{}", run.err);
}

#[test]
fn a_search_that_cannot_work_is_refused_before_it_starts() {
    let home = Home::new();
    let refused = |sweep: &str, words: &[&str]| {
        let said = home.gradus(&["run", text(&job(&home, sweep))]);
        assert_eq!(said.code, Some(2), "{}", said.err);
        for word in words {
            assert!(said.err.contains(word), "`{word}` is missing: {}", said.err);
        }
    };
    refused("  parameters: {batch: [1, 2]}\n", &["search.yaml:8", "nothing ends this search", "hint:"]);
    refused(
        "  method: grid\n  parameters:\n    batch: [96, 5000]\n",
        &["trial 2 (batch 5000) cannot run", "1258 training samples", "hint:"],
    );
    refused(
        "  trials: 2\n  parameters:\n    optimizer.adamw.rate: [1, 2]\n",
        &["search.yaml:11", "`sweep.parameters.optimizer.adamw.rate`: unknown key"],
    );
    refused("  trials: 2\n  parallel: 1000\n  parameters:\n    batch: [1, 2]\n", &["sweep.parallel", "at most"]);
    assert!(home.gradus(&["status"]).err.contains("no runs yet"));
    let planned = home.gradus(&["plan", text(&job(&home, HALVING)), "--price", "3.60/h", "--json"]);
    went_well(&planned);
    let sweep = &planned.last()["sweep"];
    assert_eq!((&sweep["trials"], &sweep["starts"], &sweep["epochs"]), (&4.into(), &6.into(), &6.into()));
    assert!(sweep["cost_micro_usd"].as_u64().unwrap() > 0);
    assert_eq!((&sweep["seconds_are_at_most"], &sweep["cost_is_at_most"]), (&false.into(), &false.into()));
}

#[test]
fn trials_on_other_data_are_compared_only_if_that_is_accepted() {
    let home = Home::new();
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.csv.gz");
    let data = home.path().with_file_name("digits.csv");
    let rows = std::process::Command::new("gunzip").arg("-c").arg(packed).output().unwrap().stdout;
    std::fs::write(&data, &rows).unwrap();
    let file = home.job(
        "search.yaml",
        &format!(
            "name: search\ntrain:\n  model: mlp\n  data: {{path: {}}}\n  epochs: 2\n  batch: 96\n  threads: 1\nsweep:\n  method: grid\n  parameters:\n    optimizer.sgd.lr: [0.1, 0.05, 0.02, 0.01]\n",
            data.display()
        ),
    );
    let running = home.start(&["run", text(&file), "--json", "--yes"]);
    home.until("the second trial", || home.gradus(&["status"]).out.contains("-t2"));
    went_well(&home.gradus(&["stop", "last"]));
    said(running.wait_with_output().unwrap());
    // A row less.
    let first = rows.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    std::fs::write(&data, &rows[first..]).unwrap();
    let refused = home.gradus(&["resume", "last", "--json"]);
    assert_eq!(refused.code, Some(100), "{}", refused.err);
    assert!(refused.err.contains("other data") && refused.err.contains("--accept-data-change"), "{}", refused.err);
    let accepted = home.gradus(&["resume", "last", "--accept-data-change", "--json"]);
    went_well(&accepted);
    let done = accepted.last();
    let words: Vec<&str> =
        done["trials"].as_array().unwrap().iter().map(|trial| trial["word"].as_str().unwrap()).collect();
    assert_eq!(words, ["trained"; 4], "{}", accepted.err);
}
