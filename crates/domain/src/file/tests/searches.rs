//! The `sweep:` section: parsing, and messages about problems.

use super::{Job, check};
use crate::job::Work;
use crate::sweep::{Asha, Between, Goal, Method, Metric, Range, Setting, Sweep};
use crate::train::{Model, Optimizer};

/// A job whose sweep, from line 7 on, searches `parameters` and has `more` keys.
fn sweep_of(parameters: &str, more: &str) -> String {
    format!(
        "train:\n  model: cnn\n  data: {{path: d.csv}}\n  epochs: 9\n  batch: 64\nsweep:\n  {more}\n  parameters:\n    {parameters}\n"
    )
}

/// Checks the messages about one searched key, on line 9.
#[track_caller]
fn check_key(parameter: &str, expected: &str) {
    check(&sweep_of(parameter, "trials: 4"), expected);
}

#[track_caller]
fn read(text: &str) -> (Job, Sweep) {
    let job = Job::parse(text, "job.yaml").unwrap_or_else(|problems| panic!("{problems}\n{text}")).job;
    let sweep = job.sweep.clone().unwrap();
    (job, sweep)
}

#[test]
fn keys_are_read_by_their_types() {
    let text = sweep_of(
        "optimizer.adamw.lr: {min: 1e-4, max: 1e-2, log: true}\n    batch: {min: 16, max: 128}\n    model: [mlp, cnn]\n    schedule.warmup: {choices: [1 epochs, 20 steps]}\n    label_smoothing: {min: 0, max: 0.1}",
        "trials: 4",
    );
    let (job, sweep) = read(&text);
    let between = |min, max, log| Range::Numbers(Between { min, max, log, points: None });
    let ranges: Vec<(&str, Range)> =
        sweep.parameters.iter().map(|parameter| (parameter.key.as_str(), parameter.range.clone())).collect();
    assert_eq!(
        ranges,
        [
            ("optimizer.adamw.lr", between(1e-4, 1e-2, true)),
            ("batch", Range::Integers(Between { min: 16, max: 128, log: false, points: None })),
            ("model", Range::Choices(vec!["mlp".into(), "cnn".into()])),
            ("schedule.warmup", Range::Choices(vec!["1 epochs".into(), "20 steps".into()])),
            ("label_smoothing", between(0.0, 0.1, false)),
        ]
    );
    assert_eq!((sweep.metric, sweep.goal, sweep.method), (Some(Metric::Accuracy), Goal::Maximize, Method::Random));
    assert_eq!((sweep.trials, sweep.parallel, sweep.max_failed, sweep.seed), (Some(4), 1, 3, 0));
    let Work::Train(train) = job.work else { panic!("no training") };
    assert_eq!((train.model.named(), train.batch), (Some(Model::Mlp), 16), "the first values stand in the base");
}

#[test]
fn values_make_other_work() {
    let (job, _) = read(&sweep_of("optimizer.adamw.lr: [0.1, 0.2]\n    clip_norm: [1.0, 2.0]", "method: grid"));
    let Work::Train(train) = job.work else { panic!("no training") };
    let setting = |key: &str, value: serde_json::Value| Setting { key: key.into(), value };
    let other = train
        .with(&[
            setting("optimizer.adamw.lr", 0.2.into()),
            setting("clip_norm", 2.0.into()),
            setting("model", serde_json::json!({"gpt": {"layers": 2, "width": 32, "heads": 2}})),
            setting("model.gpt.layers", 3.into()),
        ])
        .unwrap();
    assert!(matches!(other.optimizer, Optimizer::Adamw(adamw) if adamw.lr == 0.2 && adamw.eps == 1e-8));
    assert!(matches!(other.model.named(), Some(Model::Gpt(size)) if (size.layers, size.positions) == (3, 256)));
    assert_eq!((other.clip_norm, other.batch), (Some(2.0), train.batch));
    assert!(train.with(&[setting("model.gpt.layers", 3.into())]).is_err(), "a size lacks its other keys");
}

#[test]
fn what_train_leaves_out_can_be_searched() {
    let text = "train:\n  data: {path: d.csv}\n  epochs: 9\n  batch: 64\nsweep:\n  method: grid\n  parameters:\n    model: [mlp, {resnet: {blocks: [1, 1, 1, 1], width: 8}}]\n";
    let (job, sweep) = read(text);
    assert_eq!(sweep.grid_size(), 2);
    assert!(job.problems().is_empty());
}

#[test]
fn successive_halving_is_read() {
    let more = "method: {asha: {min_epochs: 1, reduction_factor: 2}}\n  trials: 8\n  metric: loss";
    let (_, sweep) = read(&sweep_of("batch: [32, 64]", more));
    let asha = Asha { min_epochs: 1, max_epochs: None, reduction_factor: 2 };
    assert_eq!((sweep.method, sweep.goal), (Method::Asha(asha), Goal::Minimize));
}

#[test]
fn jobs_without_a_sweep_are_written_as_before() {
    let job = Job::parse("run: echo\n", "job.yaml").unwrap().job;
    assert!(!serde_json::to_string(&job).unwrap().contains("sweep"));
    let text = sweep_of("optimizer.adamw.lr: {min: 1e-4, max: 1e-2, log: true}\n    batch: [1, 2]", "trials: 4");
    let (job, _) = read(&text);
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
}

#[test]
fn wrong_keys_are_told_with_their_place() {
    check_key(
        "optimzer.adamw.lr: [1]",
        "9 sweep.parameters.optimzer.adamw.lr: unknown key (did you mean `optimizer`?)",
    );
    check_key("optimizer.adam.lr: [1]", "9 sweep.parameters.optimizer.adam.lr: unknown kind (did you mean `adamw`?)");
    check_key(
        "optimizer.adamw.rl: [1]",
        "9 sweep.parameters.optimizer.adamw.rl: unknown key (did you mean `lr`?)\n9 train.optimizer.adamw.lr: this key is missing (add `lr: …`: learning rate)",
    );
    check_key(
        "train.batch: [1, 2]",
        "9 sweep.parameters.train.batch: all keys that are searched stand under `train` (write `batch`)",
    );
    check_key(
        "data.augment[0]: [flip]",
        "9 sweep.parameters.data.augment[0]: `data.augment[0]` is no key of `train` (name keys with points between them, and lists as a whole)",
    );
    check_key(
        "checkpoint.keep: [1, 2]",
        "9 sweep.parameters.checkpoint.keep: `checkpoint` does not change the trained model (write it under `train` for all trials)",
    );
    check_key(
        "optimizer: [{sgd: {lr: 0.1}}]\n    optimizer.sgd.lr: [1]",
        "10 sweep.parameters.optimizer.sgd.lr: `optimizer` and `optimizer.sgd.lr` are both searched, and one is a part of the other (keep one of the two)",
    );
}

#[test]
fn wrong_values_are_told_with_their_place() {
    check_key("batch: [32, none]", "9 sweep.parameters.batch: expected a whole number, found the text `none`");
    check_key("batch: [32, 0]", "9 sweep.parameters.batch: `0` is out of range: it must be at least 1");
    check_key("batch: {min: 0.5, max: 4}", "9 sweep.parameters.batch: expected a whole number, found the number `0.5`");
    check_key(
        "batch: []",
        "9 sweep.parameters.batch: the list is empty, so there is nothing to choose from (write its values)",
    );
    check_key("batch: [8, 8]", "9 sweep.parameters.batch[1]: the same value stands here twice (keep one of the two)");
    check_key(
        "batch: {min: 64, max: 8}",
        "9 sweep.parameters.batch: the range is empty: `min` 64 is more than `max` 8 (exchange the two)",
    );
    check_key(
        "batch: {min: 8, max: 8}",
        "9 sweep.parameters.batch: the range is the single value 8 (make `max` larger; a fixed value stands under `train`)",
    );
    check_key(
        "label_smoothing: {min: 0, max: 0.1, log: true}",
        "9 sweep.parameters.label_smoothing.log: a logarithm needs numbers above 0, and `min` is 0 (raise `min`, or leave `log` out)",
    );
    check_key(
        "model: {min: mlp, max: cnn}",
        "9 sweep.parameters.model: `mlp` to `cnn` is no range of numbers (write the values as a list)",
    );
    check_key(
        "batch: {min: 8}",
        "9 sweep.parameters.batch: a range goes from `min` to `max` (write a list of values, or `{min: …, max: …}`)",
    );
    check_key("batch: {mim: 8, max: 9}", "9 sweep.parameters.batch.mim: unknown key (did you mean `min`?)");
    check_key(
        "batch: {choices: [1], min: 1}",
        "9 sweep.parameters.batch: `choices` and `min` or `max` exclude each other (keep one of the two)",
    );
    check_key(
        "batch: {min: 1, max: 2, log: sometimes}",
        "9 sweep.parameters.batch.log: expected `true` or `false` (write `log: true`, or leave it out)",
    );
    check_key(
        "batch: 64",
        "9 sweep.parameters.batch: `64` is a single value, so there is nothing to search (write a list of values, or `{min: …, max: …}`; a fixed value stands under `train`)",
    );
    check_key("accumulate: [1, 128]", "ok");
}

#[test]
fn searches_that_do_not_end_or_fit_are_told() {
    let with = |parameter: &str, more: &str, expected: &str| check(&sweep_of(parameter, more), expected);
    with(
        "batch: [32, 64]",
        "seed: 1",
        "6 sweep: nothing ends this search: neither `trials`, nor `budget`, nor `deadline` is given (write for example `trials: 20`)",
    );
    with("batch: [32, 64]", "method: grid", "ok");
    with(
        "label_smoothing: {min: 0, max: 0.1}",
        "method: grid",
        "9 sweep.parameters.label_smoothing: a grid takes a number of values, and how many of this range is not said (add `points: 5`, or write the values as a list)",
    );
    with("label_smoothing: {min: 0, max: 0.1, points: 3}", "method: grid", "ok");
    with(
        "label_smoothing: {min: 0, max: 0.1, points: 3}",
        "trials: 3",
        "9 sweep.parameters.label_smoothing.points: only a grid takes so many values (leave the key out, or write `method: grid`)",
    );
    with(
        "seed: {min: 0, max: 99999}",
        "method: grid",
        "8 sweep.parameters: the grid has 100000 combinations; a sweep has at most 10000 trials (take fewer values, or `method: random`)",
    );
    with(
        "batch: [1, 2, 3]",
        "method: grid\n  trials: 2",
        "8 sweep.trials: the grid has 3 combinations, of which only the first 2 are tried (leave `trials` out, or take `method: random`)\nok",
    );
    with(
        "batch: [32, 64]",
        "trials: 2\n  metric: map",
        "8 sweep.metric: `map` is not measured for `cnn` (write one of `accuracy`, `loss`, `f1`, `top5`)",
    );
    with(
        "batch: [32, 64]",
        "trials: 2\n  metric: acc",
        "8 sweep.metric: `acc` is not known here (write one of `accuracy`, `loss`, `f1`, `top5`, `perplexity`, `map`, `map50`)",
    );
    with(
        "batch: [32, 64]",
        "trials: 2\n  goal: minimize",
        "8 sweep.goal: the worst trial is looked for: less `accuracy` is worse (leave `goal` out)\nok",
    );
    with("batch: [32, 64]", "trials: 0", "7 sweep.trials: `0` is out of range: it must be at least 1");
    with(
        "batch: [32, 64]",
        "trials: 2\n  method: {asha: {min_epochs: 9}}",
        "8 sweep.method.asha.min_epochs: trials of 9 epochs have nothing to go on to: 9 are the most (make `min_epochs` smaller than `max_epochs`, which is `train.epochs` unless it is given)",
    );
    with(
        "epochs: [3, 6]",
        "trials: 2\n  method: {asha: {min_epochs: 1}}",
        "10 sweep.parameters.epochs: successive halving itself says how many epochs a trial has (leave the key out, or write `method: random`)",
    );
    check(
        "run: echo\nsweep: {trials: 1, parameters: {batch: [1, 2]}}\n",
        "2 sweep.parameters.batch: `batch` is no variable, and a `run:` program has no other keys to search (write `envs.BATCH`)",
    );
    check(
        "train:\n  model: cnn\n  data: {path: d.csv, split: [0.8, 0, 0.2]}\n  epochs: 9\n  batch: 64\nsweep: {trials: 2, parameters: {batch: [1, 2]}}\n",
        "6 sweep: trials are judged by validation samples, and the split has none (give validation a share in `train.data.split`)",
    );
}

#[test]
fn a_program_is_swept_by_its_variables() {
    let job =
        "run: echo $LR\nsweep:\n  method: grid\n  parameters: {envs.LR: [1e-3, 0.1], envs.SEED: {min: 1, max: 3}}\n";
    let (job, sweep) = read(job);
    let ranges: Vec<Range> = sweep.parameters.iter().map(|parameter| parameter.range.clone()).collect();
    let seeds = Range::Integers(Between { min: 1, max: 3, log: false, points: None });
    assert_eq!((ranges.len(), &ranges[1], sweep.grid_size(), sweep.metric), (2, &seeds, 6, None));
    assert_eq!(job.envs["SEED"], "1", "the first values stand in the base");
    let refused = |more: &str, expected: &str| check(&format!("run: echo\nsweep:\n  {more}\n"), expected);
    refused(
        "{trials: 2, parameters: {envs.1X: [1, 2]}}",
        "3 sweep.parameters.envs.1X: `1X` is no name of a variable (use letters, digits and `_`, and no digit first)",
    );
    refused("{trials: 2, metric: loss, goal: minimize, parameters: {envs.X: [1, 2]}}", "ok");
    refused(
        "{trials: 2, method: {asha: {}}, parameters: {envs.X: [1, 2]}}",
        "3 sweep.method.asha: successive halving counts epochs, and those of a `run:` program are not known (write `method: grid` or `method: random`)",
    );
    check(
        "run: echo\nsecrets: {X: null}\nsweep:\n  {trials: 2, parameters: {envs.X: [1, 2]}}\n",
        "4 sweep.parameters.envs.X: this variable is a secret, whose value all trials have (leave it out of `secrets`, or sweep another variable)",
    );
    check_key(
        "envs.X: [1, 2]",
        "9 sweep.parameters.envs.X: only a `run:` program has variables (name a key of `train`)",
    );
}

#[test]
fn rows_of_a_table_are_trials() {
    let train = "train:\n  model: cnn\n  data: {path: d.csv}\n  epochs: 9\n  batch: 64\nsweep:\n";
    let csv = |text: &'static str| move |_: &str| Ok::<String, String>(text.to_owned());
    let file = format!("{train}  table: trials.csv\n");
    let parsed = Job::parse_with(&file, "job.yaml", &csv("batch,optimizer.adamw.betas\n8,\"[0.8, 0.9]\"\n"));
    assert!(parsed.is_err(), "a cell in quotes is text");
    let parsed = Job::parse_with(&file, "job.yaml", &csv("batch,model\n8,mlp\n16,cnn\n8,mlp\n")).unwrap();
    let sweep = parsed.job.sweep.clone().unwrap();
    assert_eq!((sweep.method, sweep.grid_size(), sweep.metric), (Method::Table, 3, Some(Metric::Accuracy)));
    assert_eq!(sweep.parameters[0].range, Range::Choices(vec![8.into(), 16.into(), 8.into()]));
    let text = serde_json::to_string(&parsed.job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), parsed.job);

    let wrong = |text: &'static str| Job::parse_with(&file, "job.yaml", &csv(text)).unwrap_err().problems;
    assert_eq!(wrong("batch\n8\n0\n")[0].message, "row 2: `0` is out of range: it must be at least 1");
    assert_eq!(wrong("batch,model\n8\n")[0].message, "`trials.csv` has 1 cells in row 1, and 2 columns");
    assert_eq!(wrong("batch,model\n8,\n")[0].message, "`trials.csv` has no value of `model` in row 1");
    assert_eq!(wrong("batch\n")[0].message, "`trials.csv` has no rows below the names of its columns");

    let rows =
        "run: echo\nsweep:\n  table:\n    - {envs.A: 1, envs.B: x}\n    - {envs.A: 010, envs.B: y}\n  parallel: 2\n";
    let (job, sweep) = read(rows);
    assert_eq!((job.envs["B"].as_str(), sweep.grid_size(), sweep.parallel), ("x", 2, 2));
    check(
        &format!("{train}  method: grid\n  table: [{{batch: 8}}]\n"),
        "7 sweep.method: the rows of a table are tried in their order (leave the key out)",
    );
    check(
        "run: echo\nsweep:\n  table: [{envs.A: 1}, {envs.B: 2}]\n",
        "3 sweep.table: row 2 has no `envs.A` (write rows such as `- {envs.LR: 0.1, envs.SEED: 1}`)",
    );
    check(
        "run: echo\nsweep:\n  table: trials.csv\n",
        "3 sweep.table: `trials.csv` is a file that is not read here (the first line names the keys, such as `envs.LR,envs.SEED`; each other line is a trial)",
    );
}

#[test]
fn keys_of_the_optimizer_are_searched_by_their_whole_names() {
    check_key(
        "lr: [0.1, 0.2]",
        "9 sweep.parameters.lr: unknown key (write the key with its sections: `optimizer.adamw.lr`)",
    );
    check_key(
        "momentum: [0.1, 0.2]",
        "9 sweep.parameters.momentum: unknown key (write the key with its sections: `optimizer.sgd.momentum`)",
    );
}

#[test]
fn a_goal_of_programs_needs_a_metric() {
    check(
        "envs: {LR: 1}\nrun: echo $LR\nsweep:\n  method: grid\n  goal: minimize\n  parameters:\n    envs.LR: [1, 2]\n",
        "5 sweep.goal: trials of a `run:` program are compared only by a metric that is named (add for example `metric: accuracy`, which the program reports)",
    );
}
