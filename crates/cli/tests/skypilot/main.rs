//! SkyPilot's own parser as the judge of ours: task files in the style of its public examples, read by both. Each value
//! that both know is the same, and what is not served is told by name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::process::Command;

use domain::accelerators::AcceleratorKind;
use domain::file::written::import;
use domain::wants::Spot;
use domain::{Bytes, Job, Problem, Work};
use serde_json::Value;

/// Files that are not about training: a service that does not end, and a cluster's volume.
const NO_TRAINING: [&str; 2] = ["serve-vllm.yaml", "volume.yaml"];

/// The least share of the files about training that are taken as they are; `gradus import` takes the others.
const SERVED: f64 = 0.95;

/// How a file is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// `gradus run` and `gradus plan` take it as it is.
    AsItIs,
    /// `gradus import` makes a job file of it, with a note for each key that is left out or changed.
    Imported,
    /// Not at all.
    Refused,
}

/// What becomes of a file: its job, and what is said about it.
struct Reading {
    how: How,
    job: Option<Job>,
    /// Why it does not run as it is, or what is not the same.
    said: Vec<Problem>,
}

fn read(name: &str, text: &str) -> Reading {
    let problems = match Job::parse(text, name) {
        Ok(parsed) => return Reading { how: How::AsItIs, job: Some(parsed.job), said: parsed.warnings },
        Err(problems) => problems.problems,
    };
    match import(text, name) {
        Ok(imported) => {
            let job = Job::parse(&imported.text, name).expect("an imported file is a job file").job;
            Reading { how: How::Imported, job: Some(job), said: problems }
        }
        Err(_) => Reading { how: How::Refused, job: None, said: problems },
    }
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/skypilot/tasks")
}

/// The task files by name.
fn tasks() -> BTreeMap<String, String> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let task = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    files.map(task).collect()
}

/// What SkyPilot reads in them, by name.
fn theirs() -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/peers/skypilot_read.py");
    let mut command = Command::new("python3");
    let output = command.arg(script).args(tasks().keys().map(|name| folder().join(name))).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// `A100:8` of a mapping with one entry, without regard to case.
fn accelerator(of: &Value) -> Option<String> {
    let (name, count) = of.as_object()?.iter().next()?;
    Some(format!("{}:{}", name.to_lowercase(), count.as_f64()?))
}

fn ours_accelerators(job: &Job) -> BTreeSet<String> {
    let named = job.wants.accelerators.iter().filter_map(|kind| match &kind.kind {
        AcceleratorKind::Named(name) => Some(format!("{}:{}", name.to_lowercase(), kind.count.unwrap_or(1))),
        AcceleratorKind::Memory { .. } => None,
    });
    named.collect()
}

/// A number such as `8+`.
fn number(of: &Value) -> Option<f64> {
    of.as_f64().or_else(|| of.as_str()?.trim_end_matches('+').parse().ok())
}

fn gigabytes(size: Option<Bytes>) -> Option<f64> {
    size.map(|size| size.0 as f64 / 1e9)
}

fn text(of: &Value) -> Option<&str> {
    of.as_str()
}

/// The differences between a job and one of SkyPilot's sets of resources.
fn differences_of_resources(job: &Job, theirs: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |key: &str, ours: String, theirs: String| {
        if ours != theirs {
            found.push(format!("resources.{key}: {ours} here, {theirs} there"));
        }
    };
    let wants = &job.wants;
    let cloud = wants.clouds.first().map(|cloud| cloud.to_lowercase());
    // Taken out by `gradus import`, with a note.
    if theirs["cloud"] != "kubernetes" {
        check("cloud", format!("{:?}", cloud.as_deref()), format!("{:?}", text(&theirs["cloud"])));
    }
    // SkyPilot takes the region of a zone alone from its catalog.
    if theirs["zone"].is_null() || !theirs["region"].is_null() {
        let region = wants.regions.first().map(String::as_str);
        check("region", format!("{region:?}"), format!("{:?}", text(&theirs["region"])));
    }
    check("zone", format!("{:?}", wants.zone.as_deref()), format!("{:?}", text(&theirs["zone"])));
    let instance_type = wants.instance_type.as_deref();
    check("instance_type", format!("{instance_type:?}"), format!("{:?}", text(&theirs["instance_type"])));
    let cores = job.needs.cores.map(f64::from);
    check("cpus", format!("{cores:?}"), format!("{:?}", number(&theirs["cpus"])));
    check("memory", format!("{:?}", gigabytes(job.needs.memory)), format!("{:?}", number(&theirs["memory"])));
    // SkyPilot's default is 256 GB.
    let disk = gigabytes(job.needs.disk).or(Some(256.0));
    check("disk_size", format!("{disk:?}"), format!("{:?}", number(&theirs["disk_size"])));
    if let Work::Command(command) = &job.work {
        let image = command.image.as_ref().map(ToString::to_string);
        check("image_id", format!("{:?}", image.as_deref()), format!("{:?}", text(&theirs["image"])));
    }
    let recovery = &theirs["recovery"];
    let errors = recovery["max_restarts_on_errors"].as_u64().unwrap_or_default();
    check("max_restarts_on_errors", job.recovery.restarts_on_errors.to_string(), errors.to_string());
    let codes: Vec<u64> =
        recovery["recover_on_exit_codes"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    check("recover_on_exit_codes", format!("{:?}", job.recovery.exit_codes), format!("{codes:?}"));
    found
}

/// Of several sets of resources a job has one, or what differs in accelerators or spot machines as one.
fn differences_of_choices(job: &Job, choices: &[Value]) -> Vec<String> {
    let best = choices.iter().map(|choice| differences_of_resources(job, choice)).min_by_key(Vec::len);
    let mut found = best.unwrap_or_else(|| vec!["resources: none there".to_owned()]);
    let ours = ours_accelerators(job);
    let theirs: BTreeSet<String> = choices.iter().filter_map(|choice| accelerator(&choice["accelerators"])).collect();
    if ours != theirs {
        found.push(format!("resources.accelerators: {ours:?} here, {theirs:?} there"));
    }
    let spot: BTreeSet<Option<bool>> = choices.iter().map(|choice| choice["use_spot"].as_bool()).collect();
    let is_allowed = match job.wants.spot {
        Spot::Only => spot.contains(&Some(true)),
        Spot::Never => spot.contains(&Some(false)),
        // Not said, or both.
        Spot::Auto => spot.contains(&None) || spot.len() > 1,
    };
    if !is_allowed {
        found.push(format!("resources.use_spot: {:?} here, {spot:?} there", job.wants.spot));
    }
    found
}

/// The values of a mapping that are text.
fn map(of: &Value) -> BTreeMap<String, String> {
    let entries = of.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// Every value that both know and read differently. `setup` and `run` may begin with what stands in for a
/// repository or a bucket.
fn differences(reading: &Reading, theirs: &Value) -> Vec<String> {
    let Some(job) = &reading.job else { return Vec::new() };
    let Work::Command(command) = &job.work else { return vec!["run: none here".to_owned()] };
    let choices = theirs["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut found = differences_of_choices(job, choices);
    let mut check = |key: &str, is_same: bool, ours: String, theirs: &Value| {
        if !is_same {
            found.push(format!("{key}: {ours} here, {theirs} there"));
        }
    };
    let is_script = |ours: &str, theirs: &str| ours.ends_with(theirs);
    // The nearest name that is allowed here.
    let name = text(&theirs["name"]).map(domain::file::written::name_from);
    check("name", name.is_none_or(|name| name == job.name), job.name.clone(), &theirs["name"]);
    check("num_nodes", theirs["num_nodes"] == job.nodes(), job.nodes().to_string(), &theirs["num_nodes"]);
    let run = text(&theirs["run"]).unwrap_or_default();
    check("run", is_script(&command.run, run), command.run.clone(), &theirs["run"]);
    let (ours, setup) = (command.setup.as_deref().unwrap_or_default(), text(&theirs["setup"]).unwrap_or_default());
    check("setup", is_script(ours, setup), ours.to_owned(), &theirs["setup"]);
    if !theirs["workdir"].is_object() {
        let workdir = command.workdir.as_deref();
        check("workdir", workdir == text(&theirs["workdir"]), format!("{workdir:?}"), &theirs["workdir"]);
    }
    check("envs", job.envs == map(&theirs["envs"]), format!("{:?}", job.envs), &theirs["envs"]);
    let secrets: BTreeMap<String, String> =
        job.secrets.iter().filter_map(|(name, secret)| Some((name.clone(), secret.0.clone()?))).collect();
    check("secrets", secrets == map(&theirs["secrets"]), format!("{secrets:?}"), &theirs["secrets"]);
    // A bucket without a source is a folder that is kept here.
    let sources = theirs["file_mounts"].as_object().into_iter().flatten();
    let sources: BTreeMap<String, String> =
        sources.filter_map(|(target, source)| Some((target.clone(), source[0].as_str()?.to_owned()))).collect();
    let mounts = format!("{:?}", command.file_mounts);
    check("file_mounts", command.file_mounts == sources, mounts, &theirs["file_mounts"]);
    found
}

fn row(name: &str, how: How, said: &[Problem]) -> String {
    let how = match how {
        How::AsItIs => "as it is",
        How::Imported => "imported",
        How::Refused => "refused",
    };
    let said: Vec<String> = said.iter().map(|problem| format!("`{}`: {}", problem.key, problem.message)).collect();
    format!("| {name} | {how} | {} |", said.join("; "))
}

#[test]
fn task_files_about_training_are_served() {
    let (mut served, mut imported, mut whole) = (0, 0, 0);
    let mut table = String::from("| file | served | what is refused or changes nothing, and why |\n|---|---|---|\n");
    for (name, text) in tasks() {
        let reading = read(&name, &text);
        table += &(row(&name, reading.how, &reading.said) + "\n");
        let is_told = reading.said.iter().all(|problem| !problem.key.is_empty() && problem.hint.is_some());
        assert!(is_told, "{name}: {:?}", reading.said);
        if !NO_TRAINING.contains(&name.as_str()) {
            whole += 1;
            served += usize::from(reading.how == How::AsItIs);
            imported += usize::from(reading.how == How::Imported);
        }
    }
    println!("{table}\nof {whole} files about training, {served} run as they are, and {imported} once imported");
    assert!(whole >= 40 && served as f64 >= SERVED * whole as f64, "{served} of {whole}\n{table}");
    assert_eq!(served + imported, whole, "{table}");
}

/// What stands in for a bucket: a link to what outlives attempts, in place of nothing that others put there or write to.
#[test]
fn a_bucket_is_a_link_that_replaces_no_other_work() {
    let home = tempfile::tempdir().unwrap();
    let run = |of: &str, script: &str| {
        let text = format!("file_mounts:\n  ~/a/ckpt: {{name: b}}\nrun: |\n  {script}\n");
        let Work::Command(program) = Job::parse(&text, "job.yaml").unwrap().job.work else { panic!("it is a program") };
        let checkpoints = home.path().join(of).join("checkpoints");
        let mut command = Command::new("bash");
        command.args(["-c", &program.run]).env("HOME", home.path()).env("GRADUS_CHECKPOINTS", checkpoints);
        command.current_dir(home.path());
        command
    };
    let said = |command: &mut Command| {
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let kept = |of: &str| std::fs::read_to_string(home.path().join(of).join("checkpoints/outputs/a/ckpt/f"));
    // It ends with its input.
    let mut first = run("1", "echo one > ~/a/ckpt/f; echo; read")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    first.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let (is_done, why) = said(&mut run("2", "echo two > ~/a/ckpt/f"));
    assert!(!is_done && why.contains("what another run writes"), "{why}");
    assert_eq!(said(&mut run("1", "cat ~/a/ckpt/f")), (true, String::new()));
    drop(first.stdin.take());
    first.wait().unwrap();
    assert_eq!(said(&mut run("2", "echo two > ~/a/ckpt/f")), (true, String::new()));
    assert_eq!((kept("1").unwrap(), kept("2").unwrap()), ("one\n".to_owned(), "two\n".to_owned()));
    let place = home.path().join("a/ckpt");
    std::fs::remove_file(&place).unwrap();
    std::fs::write(&place, "mine").unwrap();
    let (is_done, why) = said(&mut run("2", "echo two"));
    assert!(!is_done && why.contains("is there already"), "{why}");
    assert_eq!(std::fs::read_to_string(&place).unwrap(), "mine");
}

#[test]
#[ignore = "needs SkyPilot: `cargo xtask test --long` provides it"]
fn skypilot_reads_the_same() {
    let theirs = theirs();
    let mut found = Vec::new();
    for (name, text) in tasks() {
        let theirs = &theirs[&name];
        match theirs["refused"].as_str() {
            Some(why) => found.push(format!("{name}: SkyPilot refuses it: {why}")),
            None => {
                let differences = differences(&read(&name, &text), theirs);
                found.extend(differences.into_iter().map(|difference| format!("{name}: {difference}")));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
