//! What is tried before a run: learning rates, and samples at a time.

use std::path::PathBuf;

use crate::home::{Home, text};

fn digits(home: &Home, keys: &str) -> PathBuf {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits.csv.gz");
    let job = format!("train:\n  model: mlp\n  data: {{path: {data}}}\n  epochs: 3\n  batch: 64\n  threads: 1\n{keys}");
    home.job("digits.yaml", &job)
}

#[test]
fn a_learning_rate_is_suggested_with_which_the_job_learns() {
    let home = Home::new();
    let job = digits(&home, "  optimizer: {sgd: {lr: 1e-6}}\n");
    let found = home.gradus(&["bench", "lr", text(&job), "--json"]);
    assert_eq!(found.code, Some(0), "{}", found.err);
    let again = home.gradus(&["bench", "lr", text(&job), "--json"]);
    assert_eq!(found.out, again.out, "the same job has the same losses");
    let found = found.last();
    assert_eq!((&found["key"], &found["diverged"]), (&"optimizer.sgd.lr".into(), &true.into()), "{found}");
    let rate = found["suggested"].as_f64().unwrap();
    assert!((1e-3..1.0).contains(&rate), "{rate}");
    assert!(home.gradus(&["status"]).err.contains("no runs yet"), "nothing is left of it");
    let trained = |rate: f64| {
        let job = digits(&home, &format!("  optimizer: {{sgd: {{lr: {rate:e}}}}}\n"));
        home.gradus(&["run", text(&job), "--json"]).last()["test_accuracy"].as_f64().unwrap()
    };
    assert!(trained(rate) > 0.8 && trained(1e-6) < 0.5);
    let shown = home.gradus(&["bench", "lr", text(&job)]).out;
    assert!(shown.contains("smoothed") && shown.contains("\noptimizer.sgd.lr: "), "{shown}");
    let refused = home.gradus(&["bench", "lr", text(&job), "--from", "1", "--to", "0.1"]);
    assert!(refused.code == Some(2) && refused.err.contains("do not grow"), "{}", refused.err);
}

#[test]
fn samples_at_a_time_are_measured_up_to_the_batch() {
    let home = Home::new();
    let job = digits(&home, "");
    let found = home.gradus(&["bench", "batch", text(&job), "--smallest", "16", "--json"]);
    assert_eq!(found.code, Some(0), "{}", found.err);
    let found = found.last();
    let sizes: Vec<[u64; 2]> = found["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| {
            assert!(size["fits"] == true && size["step_seconds"].as_f64().unwrap() > 0.0, "{size}");
            ["samples", "accumulate"].map(|key| size[key].as_u64().unwrap())
        })
        .collect();
    assert_eq!(sizes, [[16, 4], [32, 2], [64, 1]]);
    assert!([1, 2, 4].contains(&found["accumulate"].as_u64().unwrap()), "{found}");
}
