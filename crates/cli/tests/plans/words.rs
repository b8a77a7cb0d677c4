//! Wrong words and wrong jobs of newcomers: each is refused before anything starts, with its place and what to type.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::jobs::resnet;
use crate::workdir::Workdir;

/// Twelve grey images of 8×8 of two classes, as a table of pixels.
fn images() -> String {
    let line = |label: u32| format!("{}{label}\n", format!("{},", label * 9).repeat(64));
    (0..12).map(|index| line(index % 2)).collect()
}

/// A job that trains on them; `data` and `more` are lines of its sections.
fn training(data: &str, more: &str) -> String {
    format!("train:\n  model: cnn\n  data:\n    path: images.csv\n    {data}\n  epochs: 1\n  batch: 4\n{more}\n")
}

#[track_caller]
fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
}

#[test]
fn what_the_data_and_this_machine_contradict_has_its_line() {
    let workdir = Workdir::new();
    workdir.file("images.csv", images());
    let check = |yaml: &str, parts: &[&str]| {
        workdir.file("job.yaml", yaml);
        for verb in ["plan", "run"] {
            holds(&workdir.refused(&[verb, "job.yaml"], 2), parts);
        }
    };
    check(&training("classes: 7", ""), &["error: job.yaml:5: `train.data.classes`: the data has 2 classes", "hint:"]);
    check(&training("split: folders", ""), &["error: job.yaml:4: `train.data.path`: ", "leave out `split: folders`"]);
    check(
        &training("seed: 1", "").replace("    seed: 1\n", "").replace("batch: 4", "batch: 64"),
        &["error: job.yaml:6: `train.batch`: a batch of 64 is more than the", "hint: write `batch: "],
    );
    check(
        &training("classes: 2", "resources:\n  cpus: 4000\n  memory: 900000"),
        &[
            "error: job.yaml:9: `resources.cpus`: `this-machine` has ",
            "\njob.yaml:10: `resources.memory`: `this-machine` has ",
        ],
    );
    if !Path::new("/dev/nvidia0").exists() {
        check(
            &training("classes: 2", "  precision: tf32"),
            &[
                "error: job.yaml:8: `train.precision`: `tf32` is a format of NVIDIA GPUs",
                "`precision: auto`, or `fp32`",
            ],
        );
    }
    // A budget that pays for nothing is no matter of machines elsewhere.
    workdir.file("job.yaml", training("classes: 2", "budget: {max: $0.000001}"));
    let said = workdir.refused(&["run", "job.yaml", "--price", "100/h", "--yes"], 2);
    holds(&said, &["job.yaml:8: `budget.max`: ", "or a lower `--price`"]);
    assert!(!said.contains("no offer"), "{said}");
}

#[test]
fn files_that_are_no_job_are_told_apart() {
    let workdir = Workdir::new();
    fs::create_dir_all(workdir.0.path().join("pictures/cats")).unwrap();
    workdir.file("job.yaml", training("classes: 2", ""));
    workdir.file("train.py", "import torch\nx: int = 3\n");
    for path in ["~/images.csv", "$DATA/images.csv"] {
        workdir.file("far.yaml", training("classes: 2", "").replace("images.csv", path));
        holds(&workdir.refused(&["plan", "far.yaml"], 2), &["`~` and variables are not expanded in a job file"]);
    }
    holds(&workdir.refused(&["plan", "pictures"], 2), &["`pictures` is a folder, not a job file", "train.data.path"]);
    holds(&workdir.refused(&["import", "job.yaml"], 2), &["job.yaml:1: this is a job file of gradus already"]);
    holds(&workdir.refused(&["import", "train.py"], 2), &["this is a Python program", "`gradus launch train.py`"]);
}

#[test]
fn words_of_the_command_line_say_what_to_type() {
    let workdir = Workdir::new();
    workdir.file("job.yaml", training("classes: 2", ""));
    workdir.file("images.csv", images());
    let check = |words: &[&str], parts: &[&str]| holds(&workdir.refused(words, 2), parts);
    check(&["run", "job.yaml", "--price", "-3/h"], &["`-3/h` is below zero"]);
    check(&["run", "job.yaml", "--seed", "abc"], &["expected a whole number from 0"]);
    check(&["run", "job.yaml", "--gpus", "A100:8"], &["has no `--gpus`", "hint:", "resources: {accelerators: A100:8}"]);
    check(&["sbatch", "x.sh"], &["no command `sbatch`", "`gradus import SCRIPT"]);
    check(&["bench", "train", "--model", "resnetx"], &["did you mean `resnet20`?"]);
    check(&["cost", "--since", "2026-12-01", "--until", "2026-11-01"], &["`--since 2026-12-01` is after `--until"]);
    check(&["status", ""], &["the name of the run is empty"]);
    check(&["run", "job.yaml", "--env", "BAD-NAME=1"], &["`BAD-NAME` is no name of a variable"]);
    check(&["nodes", "add", "east", "--address", ""], &["the address of the node is empty", "`--address user@host`"]);
    check(&["machines", "up", "box", "--infra", "local"], &["this machine is up, and not rented"]);
    let up = ["machines", "up", "box", "--gpus", "H100:1", "--mig", "3g.40gb,3g.40gb", "--infra"];
    check(&[&up[..], &["ssh/lab"]].concat(), &["`--mig`: the GPUs of a node are not divided", "`nvidia-smi mig`"]);
    let unknown = ["error: `--infra`: ", "hint: use `--infra aws`"];
    check(&["machines", "up", "box", "--infra", "oci"], &unknown);
    check(&["machines", "up", "box", "--infra", "oci", "--dry-run"], &unknown);
    let tip = workdir.refused(&["run", "job.yaml", "--nonsense"], 2);
    assert!(tip.contains("unexpected argument '--nonsense'") && !tip.contains("-- --nonsense"), "{tip}");
}

#[test]
fn secrets_that_are_none_say_how_they_are_given() {
    let workdir = Workdir::new();
    workdir.file("job.yaml", "run: echo\nsecrets: {HF_TOKEN: null}\n");
    workdir.file("noise", [0xFF_u8, 0xFE, 0, 1]);
    let said = workdir.refused(&["run", "job.yaml", "--secret-file", "noise"], 2);
    holds(&said, &["`noise` is no file of secrets: it is not UTF-8 text", "`NAME=VALUE`"]);
    let said = workdir.refused(&["run", "job.yaml", "--env", "HF_TOKEN=planted"], 2);
    holds(&said, &["`HF_TOKEN` has no value; `--env` sets a plain variable", "`--secret HF_TOKEN`"]);
    assert!(!said.contains("planted"), "{said}");
}

#[test]
fn data_commands_refuse_what_would_do_harm() {
    let workdir = Workdir::new();
    fs::create_dir_all(workdir.0.path().join("bare")).unwrap();
    fs::create_dir_all(workdir.0.path().join("pictures/cats")).unwrap();
    workdir
        .file("noise.tar", (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<u8>>());
    holds(&workdir.refused(&["data", "pull", "bare", "pulled"], 2), &["`bare` is empty", "`gradus data push`"]);
    holds(&workdir.refused(&["data", "probe", "bare", "--size", "900TB"], 2), &["`--size` asks for 900", "free"]);
    let said = workdir.refused(&["data", "pack", "pictures", "pictures/out"], 2);
    holds(&said, &["`pictures/out` lies in `pictures`", "name a folder outside of both"]);
    assert!(!workdir.0.path().join("pictures/out").exists());
    holds(&workdir.refused(&["data", "push", "pictures", "home/pushed"], 2), &["is in the home of gradus"]);
    holds(&workdir.refused(&["data", "push", "pictures", "s3:/bucket/x"], 2), &["write `s3://…`"]);
    holds(&workdir.refused(&["data", "inspect", "noise.tar"], 2), &["there is no header of a tar archive in it"]);
}

#[test]
fn what_this_machine_lacks_is_named_before_anything_starts() {
    let workdir = Workdir::new();
    workdir.file("job.yaml", training("classes: 2", ""));
    workdir.file("images.csv", images());
    let said = workdir.gradus_without_path(&["nodes", "add", "east", "--address", "a@b"]);
    assert_eq!(said.code, Some(3), "{}", said.err);
    holds(&said.err, &["cannot run `ssh a@b`", "hint: install the SSH client"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
    command.current_dir(workdir.0.path()).args(["--home", "home", "run", "job.yaml"]);
    let output = command.env("GRADUS_RANK", "/nonexistent").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    holds(&text, &["there is no trainer `/nonexistent`", "`GRADUS_RANK` names it"]);
    assert!(!text.contains("submitted"), "{text}");
}

#[test]
fn problems_for_scripts_stand_one_by_one() {
    let workdir = Workdir::new();
    workdir.file("job.yaml", training("classes: 2", "  lr: 0.1\n  colour: red"));
    let said = workdir.gradus(&["plan", "job.yaml", "--json"]);
    let value: Value = serde_json::from_str(said.err.lines().last().unwrap()).unwrap();
    let problems = value["problems"].as_array().unwrap();
    assert_eq!(problems.iter().map(|one| &one["line"]).collect::<Vec<_>>(), [8, 9], "{value}");
    assert_eq!((&problems[0]["key"], &value["code"]), (&"train.lr".into(), &2.into()));
    assert!(value["hint"].as_str().unwrap().contains("optimizer: {adamw: {lr: 0.001}}"), "{value}");
}

#[test]
fn names_that_nothing_has_are_said_with_their_line() {
    let workdir = Workdir::new();
    workdir.file("job.yaml", resnet("resources:\n  accelerators: H10000:8\n"));
    let said = workdir.refused(&["plan", "job.yaml"], 2);
    holds(&said, &["error: job.yaml:11: `resources.accelerators`: no GPU `H10000` is known", "gradus catalog gpus"]);
}

#[test]
fn a_pool_of_nodes_is_planned_with_its_own_nodes_only() {
    let workdir = Workdir::new();
    let node = |name: &str, pool: &str, rate: u32, cores: u32| {
        format!(
            r#"{{"name":"{name}","address":"{name}","pool":{pool},"rate":{rate},"node":{{"cpu":"","cores":{cores},"memory":8000000000,"disk_free":90000000000}}}}"#
        )
    };
    let nodes = [node("a", "null", 0, 64), node("b", "\"lab\"", 2, 4), node("c", "\"lab\"", 2, 8)];
    fs::create_dir_all(workdir.0.path().join("home")).unwrap();
    workdir.file("home/nodes.json", format!(r#"{{"hosts":[{}]}}"#, nodes.join(",")));
    let plan = |infra: &str, more: &str| {
        workdir.file("job.yaml", format!("resources: {{infra: {infra}}}\n{more}run: 'true'\n"));
        workdir.gradus(&["plan", "job.yaml"])
    };
    let said = plan("ssh/lab", "num_nodes: 2\n");
    holds(&said.out, &["any:lab", "4 cores", "$2.00/h"]);
    holds(&plan("ssh", "").out, &["64 cores"]);
    let refused = |infra: &str, more: &str, words: &[&str]| {
        let said = plan(infra, more);
        assert!(said.code == Some(2), "{}{}", said.out, said.err);
        holds(&said.err, words);
    };
    refused(
        "ssh/lba",
        "",
        &["there is no node or pool `lba`; there are the nodes a, b, c and the pools lab", "--pool POOL"],
    );
    refused("ssh/lab", "num_nodes: 3\n", &["asks for more than the 2 nodes of pool `lab`", "`num_nodes: 2` or less"]);
    refused("ssh", "num_nodes: 2\n", &["a at $0.00/h; b, c at $2.00/h", "(b, c), run `gradus nodes pool NODE POOL`"]);
    let change = |words: &[&str]| workdir.gradus(&[&["nodes", "pool"], words].concat());
    holds(&change(&["b", "a"]).err, &["`a` is the name of a node"]);
    holds(&change(&["b", "x y"]).err, &["`x y` cannot be the name of a pool"]);
    holds(&change(&["c"]).err, &["node c is in no pool"]);
    refused("ssh/lab", "num_nodes: 2\n", &["asks for more than the 1 node of pool `lab`"]);
    holds(&change(&["c", "lab"]).err, &["node c is in pool lab"]);
    for node in ["b", "c"] {
        assert_eq!(workdir.gradus(&["nodes", "drain", node]).code, Some(0));
    }
    refused("ssh/lab", "", &["all nodes of pool `lab` are drained"]);
    // One to which the programs were not copied yet.
    let half = node("d", "null", 0, 4).replace(r#""rate":0,"#, r#""rate":0,"is_prepared":false,"#);
    workdir.file("home/nodes.json", format!(r#"{{"hosts":[{half}]}}"#));
    for infra in ["ssh", "ssh/d"] {
        refused(infra, "", &["node `d` is not prepared", "type that command again"]);
    }
}

#[test]
fn nodes_with_different_gpus_do_not_train_together() {
    let workdir = Workdir::new();
    let node = |name: &str, pool: &str, gpus: &str| {
        format!(
            r#"{{"name":"{name}","address":"{name}","pool":{pool},"rate":0,"node":{{"cpu":"","cores":4,"memory":8000000000,"disk_free":90000000000}},"facts":{{"gpu":{{"devices":[{gpus}]}}}}}}"#
        )
    };
    let a10 = r#"{"name":"NVIDIA A10"}"#;
    let nodes = [node("a", "null", a10), node("b", "\"lab\"", ""), node("c", "\"lab\"", "")];
    fs::create_dir_all(workdir.0.path().join("home")).unwrap();
    workdir.file("home/nodes.json", format!(r#"{{"hosts":[{}]}}"#, nodes.join(",")));
    let plan = |infra: &str, more: &str| {
        workdir.file("job.yaml", format!("resources: {{infra: {infra}}}\n{more}run: 'true'\n"));
        workdir.gradus(&["plan", "job.yaml"])
    };
    let refused = plan("ssh", "num_nodes: 2\n");
    assert_eq!(refused.code, Some(2), "{}{}", refused.out, refused.err);
    holds(&refused.err, &["different GPUs: 1 × NVIDIA A10 on a; no GPU on b, c", "gradus nodes pool NODE POOL"]);
    holds(&refused.err, &["envs: {CUDA_VISIBLE_DEVICES: \"\"}"]);
    holds(&plan("ssh/lab", "num_nodes: 2\n").out, &["any:lab"]);
    holds(&plan("ssh", "").out, &["4 cores"]);
    // A job that uses no GPU may run on all of them; one that hides only some may not.
    for hidden in ["\"\"", "-1", "\"-1,0\""] {
        let planned = plan("ssh", &format!("num_nodes: 2\nenvs: {{CUDA_VISIBLE_DEVICES: {hidden}}}\n"));
        assert_eq!(planned.code, Some(0), "{hidden}: {}{}", planned.out, planned.err);
    }
    assert_eq!(plan("ssh", "num_nodes: 2\nenvs: {CUDA_VISIBLE_DEVICES: \"0,1\"}\n").code, Some(2));
}

/// A program that misses a file should not have to guess why.
#[test]
fn what_is_not_copied_of_a_working_folder_is_said() {
    let workdir = Workdir::new();
    let at = |path: &str| workdir.0.path().join(path);
    fs::create_dir_all(at("code/.git")).unwrap();
    for (path, text) in
        [("code/.gitignore", "*.bin\n"), ("code/a.bin", ""), ("code/b.bin", ""), ("code/c.bin", ""), ("code/d.bin", "")]
    {
        fs::write(at(path), text).unwrap();
    }
    workdir.file("job.yaml", "workdir: code\nrun: 'true'\n");
    let said = workdir.gradus(&["run", "job.yaml"]);
    let note = "note: `.gitignore` matches `a.bin`, `b.bin`, `c.bin` and 1 more in `workdir`, so they are not copied; \
                a `.skyignore` there replaces it";
    assert!(said.err.contains(note) && said.code == Some(0), "{}{}", said.out, said.err);
    fs::write(at("code/.skyignore"), "").unwrap();
    let said = workdir.gradus(&["run", "--new", "job.yaml"]);
    assert!(!said.err.contains("matches") && said.code == Some(0), "{}{}", said.out, said.err);
}
