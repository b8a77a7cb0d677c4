//! Programs that are swept by their variables, row by row of a table.

use crate::home::{Home, text};

#[test]
fn each_row_of_a_table_is_a_trial_of_the_program() {
    let home = Home::new();
    home.job("rows.csv", "envs.LR,envs.SEED\n0.1,1\n0.2,2\n0.1,1\n");
    let sweep = "sweep:\n  table: rows.csv\n  parallel: 2\n";
    let job = home.job("array.yaml", &format!("name: array\nenvs: {{SEED: 9}}\nrun: test $LR-$SEED != 0.2-2\n{sweep}"));
    let run = home.gradus(&["run", text(&job), "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let done = run.last();
    assert_eq!((done["outcome"].as_str(), done["best"].is_null()), (Some("done"), true), "{done}");
    let mut trials: Vec<String> = done["trials"].as_array().unwrap().iter().map(said).collect();
    trials.sort();
    assert_eq!(trials, ["1 succeeded 0.1 1", "2 failed 0.2 2", "3 succeeded 0.1 1"]);

    home.job("rows.csv", "envs.LR,envs.SEED\n0.1\n");
    let refused = home.gradus(&["run", text(&job)]);
    assert!(refused.code == Some(2) && refused.err.contains("has 1 cells in row 1"), "{}", refused.err);
}

/// Number, state and values of a trial.
fn said(trial: &serde_json::Value) -> String {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let values = &trial["values"];
    format!("{} {} {} {}", trial["trial"], text(&trial["word"]), text(&values["envs.LR"]), text(&values["envs.SEED"]))
}
