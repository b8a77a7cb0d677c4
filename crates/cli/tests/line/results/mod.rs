//! What a user is told of a run that goes well, and of one that does not.

mod evaluate;
mod extended;
mod programs;
mod reconcile;
mod searched;

use crate::home::{Home, text};

#[test]
fn a_program_runs_with_torchruns_variables_and_is_billed() {
    let home = Home::new();
    let job = home.job("hello.yaml", "name: hello\nenvs: {WHO: world}\nsetup: echo setting up\nrun: echo hello $WHO, rank $RANK of $WORLD_SIZE, local $LOCAL_RANK, at $MASTER_ADDR\n");
    let said = home.gradus(&["run", text(&job), "--json", "--yes", "--price", "3.60/h"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let done = said.last();
    assert_eq!(done["event"], "done");
    assert_eq!(done["outcome"], "succeeded");
    assert_eq!(done["attempts"], 1);
    let micros = done["bill_micro_usd"].as_u64().unwrap();
    let elapsed = (done["rented_seconds"].as_f64().unwrap() * 1e6).round() as u64;
    assert_eq!(micros, elapsed.div_ceil(1_000), "3.60 dollars an hour are a micro-dollar a millisecond, rounded up");
    assert!(micros > 0);
    let logs = home.gradus(&["logs", "last"]);
    assert_eq!(logs.out, "setting up\nhello world, rank 0 of 1, local 0, at 127.0.0.1\n");
    let cost = home.gradus(&["cost", "--json"]).last();
    assert_eq!(cost["cost_micro_usd"], micros);
}

#[test]
fn a_program_that_fails_says_its_code_and_where_to_look() {
    let home = Home::new();
    let job = home.job("bad.yaml", "name: bad\nrun: |\n  echo something is wrong >&2\n  exit 7\n");
    let said = home.gradus(&["run", text(&job)]);
    assert_eq!(said.code, Some(100), "{}", said.err);
    assert!(
        said.err.contains("code 7") && said.err.contains("hint: read") && said.err.contains("rank-0.log"),
        "{}",
        said.err
    );
    assert!(home.gradus(&["logs", "last"]).out.contains("something is wrong"));
    assert_eq!(home.state(), "failed");
}

#[test]
fn a_failed_set_up_is_told_apart() {
    let home = Home::new();
    let job = home.job("setup.yaml", "name: setup\nsetup: exit 3\nrun: echo never\n");
    let said = home.gradus(&["run", text(&job)]);
    assert_eq!(said.code, Some(100), "{}", said.err);
    assert!(said.err.contains("set-up") || said.err.contains("setup"), "{}", said.err);
    assert!(!home.gradus(&["logs", "last"]).out.contains("never"));
}

#[test]
fn a_price_is_confirmed_before_it_is_spent() {
    let home = Home::new();
    let job = home.job("job.yaml", "name: job\nrun: echo hi\n");
    let said = home.gradus(&["run", text(&job), "--price", "1/h"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("--yes"), "{}", said.err);
    assert!(home.gradus(&["status"]).err.contains("no runs yet"));
}

#[test]
fn every_problem_of_a_job_file_is_told_with_its_line() {
    let home = Home::new();
    let job = home.job("job.yaml", "name: job\ntrain:\n  modle: cnn\n  data: {path: x.csv}\n  epochs: 0\n  batch: 8\n");
    let said = home.gradus(&["run", text(&job)]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("job.yaml:3") && said.err.contains("`model`"), "{}", said.err);
    assert!(home.gradus(&["status"]).err.contains("no runs yet"));
}

#[test]
fn a_run_that_nobody_knows_has_a_code_of_its_own() {
    let home = Home::new();
    for command in
        [["status", "nobody"], ["logs", "nobody"], ["stop", "nobody"], ["resume", "nobody"], ["cost", "nobody"]]
    {
        let said = home.gradus(&command);
        assert_eq!(said.code, Some(102), "{command:?}: {}", said.err);
        assert!(said.err.contains("gradus status"), "{command:?}: {}", said.err);
    }
}

#[test]
fn a_program_that_faults_is_not_tried_again() {
    let home = Home::new();
    let job = home.job("fault.yaml", "name: fault\nrun: kill -SEGV $$\n");
    let said = home.gradus(&["run", text(&job), "--json"]);
    assert_eq!(said.code, Some(100), "{}", said.err);
    assert_eq!(said.last()["attempts"], 1);
}

#[test]
fn what_cannot_be_read_or_written_is_told() {
    let home = Home::new();
    let latin = home.job("latin.yaml", "");
    std::fs::write(&latin, b"name: job\n# caf\xe9\n").unwrap();
    let said = home.gradus(&["plan", text(&latin)]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("line 2") && said.err.contains("UTF-8"), "{}", said.err);
    let gone = home.job("gone.yaml", "name: gone\nworkdir: nowhere\nrun: echo\n");
    let said = home.gradus(&["plan", text(&gone)]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("nowhere"), "{}", said.err);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = home.command(&["cost"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_variable_without_a_value_must_be_given() {
    let home = Home::new();
    let job = home.job("token.yaml", "name: token\nrun: '[ $TOKEN = x ]'\nenvs: {TOKEN: null}\n");
    let refused = home.gradus(&["run", text(&job)]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("token.yaml:3: `envs.TOKEN`: this variable has no value"), "{}", refused.err);
    assert!(refused.err.contains("hint: pass `--env TOKEN=VALUE`"), "{}", refused.err);
    let given = home.gradus(&["run", text(&job), "--env", "TOKEN=x"]);
    assert_eq!(given.code, Some(0), "{}", given.err);
    let mut taken = home.command(&["run", text(&job), "--env", "TOKEN", "--new"]);
    let taken = crate::home::said(taken.env("TOKEN", "x").output().unwrap());
    assert_eq!(taken.code, Some(0), "{}", taken.err);
    let unset = home.gradus(&["run", text(&job), "--env", "TOKEN_THAT_IS_NOT_SET"]);
    assert!(unset.err.contains("the environment has no variable `TOKEN_THAT_IS_NOT_SET`"), "{}", unset.err);
}

#[test]
fn weights_that_are_not_there_are_refused_in_the_plan() {
    let home = Home::new();
    let train = "model: resnet18, weights: none.safetensors, data: {path: images, size: 32}, epochs: 1, batch: 8";
    let job = home.job("weights.yaml", &format!("train: {{{train}}}\n"));
    for command in ["plan", "run"] {
        let refused = home.gradus(&[command, text(&job)]);
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains("weights.yaml:1: `train.weights`: there is no file `/"), "{}", refused.err);
        assert!(refused.err.contains("hint: correct the path, which is relative to the job file"), "{}", refused.err);
    }
    for (name, content, why) in [
        ("lfs.safetensors", "version https://git-lfs.github.com/spec/v1\n", "is damaged: it does not begin as"),
        ("data.csv", "1,2\n", "is no file of weights"),
    ] {
        home.job(name, content);
        let job = home.job("weights.yaml", &format!("train: {{{}}}\n", train.replace("none.safetensors", name)));
        let refused = home.gradus(&["plan", text(&job)]);
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains(why), "{}", refused.err);
    }
    assert!(home.gradus(&["status"]).err.contains("no runs yet"));
}

#[test]
fn a_script_in_place_of_a_job_file_is_told_its_command() {
    let home = Home::new();
    let check = |name: &str, content: &str, hint: &str| {
        let job = home.job(name, content);
        let refused = home.gradus(&["plan", text(&job)]);
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains("is a script, not a job file") && refused.err.contains(hint), "{}", refused.err);
    };
    check("train.py", "import torch\nx = {1: 2}\n", "hint: start it with `gradus launch ");
    check(
        "batch.sh",
        "#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n",
        "hint: turn it into a job file with `gradus import ",
    );
    check("train.sh", "#!/bin/sh\npython train.py\n", "hint: write a job file with `run: bash FILE`");
}
