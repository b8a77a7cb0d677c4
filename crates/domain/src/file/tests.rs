//! Job files and the messages about them.

mod data;
mod machines;
mod searches;
mod sky;
mod training;
mod workloads;
mod yaml;

use std::fmt::Write;

use super::*;

/// The result of parsing `yaml`: the problems with their lines, or `ok` with the warnings.
fn said(yaml: &str) -> String {
    let mut said = String::new();
    let mut tell = |problem: &Problem| {
        let line = problem.line.map_or("-".to_owned(), |line| line.to_string());
        let key = if problem.key.is_empty() { "-" } else { &problem.key };
        write!(said, "{line} {key}: {}", problem.message).unwrap();
        problem.hint.iter().for_each(|hint| write!(said, " ({hint})").unwrap());
        said.push('\n');
    };
    match Job::parse(yaml, "job.yaml") {
        Ok(parsed) => {
            parsed.warnings.iter().chain(&parsed.unrentable).for_each(&mut tell);
            said.push_str("ok");
        }
        Err(problems) => problems.problems.iter().for_each(&mut tell),
    }
    said.trim_end().to_owned()
}

#[track_caller]
fn check(yaml: &str, expected: &str) {
    let strip = |text: &str| text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    assert_eq!(said(yaml), strip(expected), "\n{yaml}\n");
}

/// A `train:` section that is right but for `line`.
fn train_with(line: &str) -> String {
    format!("train:\n  model: cnn\n  data: {{path: d.csv}}\n  epochs: 3\n  batch: 64\n  {line}\n")
}

/// A `run:` job that is right but for `line`.
fn run_with(line: &str) -> String {
    format!("run: echo\n{line}\n")
}

#[test]
fn shipped_examples_are_right() {
    check(include_str!("../../../../examples/digits.yaml"), "ok");
    check(include_str!("../../../../examples/digits-sweep.yaml"), "ok");
    check(include_str!("../../../../examples/hello.yaml"), "ok");
    check(include_str!("../../../../examples/cifar10.yaml"), "ok");
}

#[test]
fn every_problem_is_told_at_once_with_its_line() {
    check(
        r#"name: My Job
train:
  modle: resnet20
  data: {path: d.csv, split: [0.5, 0.2, 0.1]}
  epochs: 0
  batch: 1e3
  optimizer: {adam: {lr: 0.1}}
  schedule: {warmup: 5 parsecs, decay: cosinus}
  stop: {accuracy: 180%}
  checkpoint:
    every: soon
    keep: -1
    mtbf: {a: 1}
budget: {max: lots}
deadlin: 3h
resources:
  accelerators: A100:8
  cpus: x
num_nodes: 4
"#,
        "1 name: `My Job` is no name: it takes letters a–z, digits and `-`, at most 63 (write `my-job`)
         2 train.model: this key is missing (add `model: …`: the model to train: a name, or `{torchscript: module.pt}` for your own module (relative to the job file), which also needs a `loss`)
         3 train.modle: unknown key (did you mean `model`?)
         5 train.epochs: `0` is out of range: it must be at least 1
         6 train.batch: expected a whole number, found the number `1e3` (write `1000`)
         7 train.optimizer.adam: unknown kind (did you mean `adamw`?)
         8 train.schedule.warmup: `5 parsecs` is no stretch of training (write for example `5 epochs` or `200 steps`)
         8 train.schedule.decay: `cosinus` is not known here (did you mean `cosine`?)
         9 train.stop.accuracy: `180%` is not between 0 and 1
         11 train.checkpoint.every: `soon` is no interval (write for example `auto`, `500 steps` or `10m`)
         12 train.checkpoint.keep: `-1` is out of range: it must be at least 1
         13 train.checkpoint.mtbf: expected a duration such as `1h30m`, found a mapping
         14 budget.max: `lots` is no amount of money (amounts are in US dollars: write for example `$120` or `0.35`)
         15 deadlin: unknown key (did you mean `deadline`?)
         18 resources.cpus: `x` is no number of cores (write for example `4` or `4+`)",
    );
}

#[test]
fn train_and_run_exclude_each_other() {
    let neither = "- -: there is nothing to do: neither `train` nor `run` is given (write a `train:` section, or a `run:` program of your own)";
    check("name: a\n", neither);
    check("run:\n", neither);
    check(
        &(train_with("seed: 1") + "run: echo\n"),
        "7 run: `run` and `train` exclude each other (keep `train` for our own trainer, or `run` for a program of your own)",
    );
    check(
        &(train_with("seed: 1") + "setup: echo\nworkdir: .\n"),
        "7 setup: `setup` is for a `run:` program; `train:` needs none (leave the key out)
         8 workdir: `workdir` is for a `run:` program; `train:` needs none (leave the key out)",
    );
    let idle = "7 idle_timeout: it is for a `run:` program; a `train:` job that makes no steps is restarted as hung (leave the key out)";
    check(&(train_with("seed: 1") + "idle_timeout: 10m\n"), idle);
    check(&(train_with("seed: 1") + "envs: {A: 1}\nbudget: {max: $1}\ndeadline: 1h\n"), "ok");
    check("train: {}\n", "
        1 train.model: this key is missing (add `model: …`: the model to train: a name, or `{torchscript: module.pt}` for your own module (relative to the job file), which also needs a `loss`)
        1 train.data: this key is missing (add `data: …`: where the samples are and how they are split)
        1 train.epochs: this key is missing (add `epochs: …`: passes over the training split)
        1 train.batch: this key is missing (add `batch: …`: samples per optimizer step, over all ranks and micro-batches)
    ");
    check(
        "train: fast\n",
        "1 train: expected a mapping, found the text `fast` (write `train: {model: cnn, data: {path: FOLDER}, epochs: 10, batch: 64}`)",
    );
}

#[test]
fn defaults_and_names_are_filled_in() {
    let name = |file: &str| Job::parse("run: a", file).unwrap().job.name;
    assert_eq!(name("examples/digits.yaml"), "digits");
    assert_eq!(name("My Job_2.yml"), "my-job-2");
    assert_eq!(name("數.yaml"), "job");
    assert_eq!(name(&"a".repeat(100)).len(), 63);

    let mut job = Job::parse(include_str!("../../../../examples/digits.yaml"), "digits.yaml").unwrap().job;
    job.resolve(Path::new("/home/me/examples"));
    let Work::Train(train) = &job.work else { panic!("digits trains") };
    assert_eq!(train.data.path, "/home/me/examples/digits.csv.gz");
    assert_eq!((train.accumulate, train.deterministic, train.checkpoint.keep), (1, true, 3));
    let again: Job = serde_json::from_str(&serde_json::to_string(&job).unwrap()).unwrap();
    assert_eq!(again, job);

    let yaml = "run: a\nresources: {cpus: 2.5, memory: 0.5, disk_size: 10GiB, job_recovery: {max_restarts_on_errors: 2, recover_on_exit_codes: 7}}";
    let job = Job::parse(yaml, "job.yaml").unwrap().job;
    assert_eq!(job.needs.cores, Some(3));
    assert_eq!(job.needs.memory.map(|size| size.0), Some(500_000_000));
    assert_eq!(job.needs.disk.map(|size| size.0), Some(10 << 30));
    assert_eq!(
        (job.recovery.restarts, job.recovery.restarts_on_errors, &job.recovery.exit_codes[..]),
        (20, 2, &[7][..])
    );
    assert_eq!(Job::parse("run: a\nresources: {job_recovery: none}", "a").unwrap().job.recovery.restarts, 0);
}
