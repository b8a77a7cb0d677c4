//! The parser of job files.
//!
//! The text becomes a [`tree`] with line numbers; the tree is checked against the [`shape`] of the types in [`keys`];
//! only then does serde read it and [`lower`] create a [`Job`], whose values [`sense`] checks against each other. Every
//! step collects problems and continues, so that all of them are reported at once. [`served`] defines the support of
//! SkyPilot's keys, [`scalar`] the parsing of scalars. [`written`] is the inverse: job files that gradus writes itself.

mod elsewhere;
mod keys;
mod lower;
pub mod nearest;
mod pipeline;
mod ranks;
mod scalar;
mod sense;
mod served;
mod shape;
mod sweep;
#[cfg(test)]
mod tests;
mod tree;
pub mod written;

use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::job::{Job, Work};
use crate::problem::{Problem, Problems};
use crate::schedule::{DueRun, DueTimes, JobSchedule};
use crate::time::Timestamp;
use crate::train::{ModelSource, Module};
use crate::workload::{Workload, WorkloadModel};

use sweep::{Space, TableFiles};

pub use pipeline::{JobPipeline, PipelineTask, place_outputs};
pub use sense::{SET_VARIABLES, is_variable};
pub use served::{RENTED, SKY_KEYS, SkyKey, SkySupport};
pub use tree::{MAX_BYTES, MAX_DEPTH, MAX_NODES};

/// A parsed job, and remarks about its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The job with every default filled in; its paths stand as they were written, see [`Job::resolve`].
    pub job: Job,
    /// Warnings, in the order of the lines.
    pub warnings: Vec<Problem>,
    /// Requests for machines that can be planned but not yet rented, in the order of the lines: `gradus run` refuses
    /// them.
    pub unrentable: Vec<Problem>,
    /// Variables of `envs` without a value, as `envs.NAME: null` writes them: each must be given with `--env`.
    pub unset: Vec<Problem>,
}

impl Job {
    /// Parses a job file. `file_name` appears in problems, and its stem names a job that has no `name`.
    ///
    /// # Errors
    /// All problems of the file, in the order of its lines.
    pub fn parse(text: &str, file_name: &str) -> Result<Parsed, Problems> {
        Job::parse_with(text, file_name, &|_| Err("is a file that is not read here".to_owned()))
    }

    /// As [`Job::parse`]; `table` returns the text of a file that `sweep.table` names, or why it cannot be had, such as
    /// `cannot be read: …`.
    ///
    /// # Errors
    /// All problems of the file, in the order of its lines.
    pub fn parse_with(
        text: &str,
        file_name: &str,
        table: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Parsed, Problems> {
        read(text, file_name, table).map_err(|problems| Problems { file: file_name.to_owned(), problems })
    }

    /// The problems of its `train:` section, such as one with the values of a sweep's trial.
    pub fn problems(&self) -> Vec<Problem> {
        match &self.work {
            Work::Train(train) => sense::of_train(train),
            Work::Command(_) => Vec::new(),
        }
    }

    /// Makes the paths of the job absolute: relative ones are resolved against `base`, the job file's folder.
    pub fn resolve(&mut self, base: &Path) {
        // An address is absolute already.
        let join = |path: &mut String| {
            if !path.contains("://") {
                *path = base.join(&*path).to_string_lossy().into_owned();
            }
        };
        match &mut self.work {
            Work::Train(train) => {
                join(&mut train.data.path);
                if let ModelSource::Module(Module::Torchscript(path)) = &mut train.model {
                    join(path);
                }
                train.weights.iter_mut().chain(&mut train.data.trained_on).for_each(join);
                train.data.text.iter_mut().filter_map(|text| text.tokenizer.as_mut()).for_each(join);
            }
            Work::Command(command) => command.workdir.iter_mut().chain(command.file_mounts.values_mut()).for_each(join),
        }
        if let Some(Workload { model: WorkloadModel::File(path), .. }) = &mut self.workload {
            join(path);
        }
    }
}

/// The line of a key of a job file, such as `workload.model`, or of the nearest key above it; `None` if there is none.
pub fn line_of(text: &str, key: &str) -> Option<u32> {
    tree::read(text).ok()?.0.line_of(key)
}

/// The due times of a job file with `schedule:`, or of a pipeline with one in its first document; `None` for others, or where
/// the times are wrong.
pub fn due_times(text: &str) -> Option<DueTimes> {
    let (tree, _) = tree::read(&pipeline::first_document(text)).ok()?;
    let (_, schedule) = tree.get("schedule")?;
    let scalar = |key: &str| match &schedule.get(key)?.1.value {
        tree::Value::Scalar(raw) => Some(raw.text.clone()),
        tree::Value::List(_) | tree::Value::Map(_) => None,
    };
    JobSchedule::at(scalar("cron")?, scalar("timezone")).times().ok()
}

/// A job file or pipeline with `schedule:` as one that is due now has it: with the times that it names.
pub fn due_now(text: &str, now: Timestamp) -> String {
    let is_named = DueRun::is_named_in(text);
    match due_times(text).filter(|_| is_named) {
        Some(times) => DueRun::now(&times, now).placed(text),
        None => text.to_owned(),
    }
}

/// The published JSON Schema of a job file.
pub fn schema() -> &'static serde_json::Value {
    static SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(|| schemars::schema_for!(keys::JobFile).into());
    &SCHEMA
}

fn read(text: &str, file_name: &str, tables: TableFiles) -> Result<Parsed, Vec<Problem>> {
    let (mut tree, mut problems) = tree::read(text)?;
    if !matches!(tree.value, tree::Value::Map(_)) {
        let message = "a job file is a mapping of keys to values";
        let problem = Problem { line: Some(tree.line), ..Problem::at("", message) };
        return Err(vec![problem.hint("start with `train:` or `run:`")]);
    }
    let left_out = shape::choices::settle(&mut tree, &mut problems);
    let space = Space::read(&tree, tables, &mut problems);
    let filled = space.as_ref().map(|space| space.filled(&tree));
    let whole = filled.as_ref().unwrap_or(&tree);
    let mut unrentable = Vec::new();
    let shaped = shape::check(schema(), whole, &mut problems, &mut unrentable);
    let parameters = space.as_ref().map(|space| space.parameters(schema(), whole, &mut problems)).unwrap_or_default();
    let keys = match keys::JobFile::deserialize(&shaped) {
        Ok(keys) => keys,
        Err(error) => {
            // A required key that could not be parsed is missing; then the problem about it is sufficient.
            if problems.is_empty() {
                problems.push(Problem::at("", error.to_string()));
            }
            without_holes(shaped)
        }
    };
    let unset = unset(&keys, &tree);
    let lowered = lower::lower(keys, parameters, &tree, file_name, &mut problems);
    let sense = sense::check(&lowered.rest, lowered.work.as_ref());
    let is_new = |found: &Problem| !problems.iter().any(|said| said.key.starts_with(&found.key));
    let new: Vec<Problem> = sense.problems.into_iter().filter(is_new).collect();
    problems.extend(new);
    let mut warnings = sense.warnings;
    warnings.extend(bare_deadline(&tree));
    warnings.extend(unprovisioned(&tree, &lowered.rest));
    warnings.extend(left_out.into_iter().chain(without_effect(&tree)));
    if let Some(space) = &space {
        space.rename(&mut problems);
        space.rename(&mut warnings);
    }
    in_order(&mut problems, &tree);
    in_order(&mut warnings, &tree);
    match lowered.job() {
        Some(job) if problems.is_empty() => {
            // Nodes are there already, as many as are asked for; machines of clouds are rented.
            let is_elsewhere = job.wants.node.is_some() || job.wants.only_cloud("aws");
            if is_elsewhere && job.wants.nodes.len() == 1 {
                unrentable.retain(|problem| !matches!(&*problem.key, "num_nodes" | "resources.nodes"));
            }
            // Whether nodes have such GPUs is looked up when they are chosen.
            if job.wants.node.is_some() {
                unrentable.retain(|problem| &*problem.key != "resources.accelerators");
            }
            if job.wants.is_rented() {
                unrentable.retain(|problem| !served::RENTED.contains(&&*problem.key));
            }
            Ok(Parsed { job, warnings, unrentable, unset })
        }
        Some(_) | None => Err(problems),
    }
}

/// A deadline without a unit, which is in seconds: hours are far more often meant.
fn bare_deadline(tree: &tree::Node) -> Option<Problem> {
    let (_, node) = tree.get("deadline")?;
    let tree::Value::Scalar(raw) = &node.value else { return None };
    let text = raw.text.trim();
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0)?;
    let message = format!("a bare number is in seconds: the run ends {seconds} s after its submission");
    let hint = format!("write the unit: `{text}m`, `{text}h`, or `{text}s` if seconds are meant");
    Some(Problem::at("deadline", message).hint(hint))
}

/// The speed of a disk, of a job that may run on other machines than those of AWS.
fn unprovisioned(tree: &tree::Node, job: &Job) -> Option<Problem> {
    if job.needs.speed.is_open() || job.wants.only_cloud("aws") {
        return None;
    }
    let (_, resources) = tree.get("resources")?;
    let key = if resources.get("disk_tier").is_some() { "resources.disk_tier" } else { "resources.disk" };
    let message = "only AWS provisions the speed of a disk: on other machines this changes nothing";
    Some(Problem::at(key, message).hint("add `infra: aws`, or leave it out"))
}

/// SkyPilot's keys that change nothing here.
fn without_effect(tree: &tree::Node) -> Vec<Problem> {
    let mut notes = Vec::new();
    for key in SKY_KEYS {
        let SkySupport::Noted { why, hint } = key.served else { continue };
        let mut parts = key.path.split('.');
        let found = parts.try_fold(tree, |node, part| node.get(part).map(|(_, value)| value));
        if found.is_some_and(|node| !shape::is_empty(node)) {
            notes.push(Problem::at(key.path, format!("this key changes nothing: {why}")).hint(hint));
        }
    }
    notes
}

/// The variables of `envs` that are null.
fn unset(keys: &keys::JobFile, tree: &tree::Node) -> Vec<Problem> {
    let names = keys.envs.iter().flatten().filter(|(_, value)| value.is_none());
    let problem = |(name, _): (&String, _)| {
        let key = format!("envs.{name}");
        let problem = Problem { line: tree.line_of(&key), ..Problem::at(key, "this variable has no value") };
        problem.hint(format!("pass `--env {name}=VALUE`, or write a value; `\"\"` is the empty text"))
    };
    names.map(problem).collect()
}

/// The sections that can be parsed independently, so that an invalid one does not hide problems of the others.
fn without_holes(shaped: serde_json::Value) -> keys::JobFile {
    let sections = shaped.as_object().into_iter().flatten();
    let readable = sections.filter(|(key, value)| {
        let alone = serde_json::Map::from_iter([((*key).clone(), (*value).clone())]);
        keys::JobFile::deserialize(serde_json::Value::Object(alone)).is_ok()
    });
    let readable = readable.map(|(key, value)| (key.clone(), value.clone())).collect();
    keys::JobFile::deserialize(serde_json::Value::Object(readable)).unwrap_or_default()
}

/// Adds the line of its key to each problem and sorts them by line; those about the file come first.
fn in_order(problems: &mut [Problem], tree: &tree::Node) {
    for problem in problems.iter_mut().filter(|problem| problem.line.is_none() && !problem.key.is_empty()) {
        problem.line = tree.line_of(&problem.key);
    }
    problems.sort_by_key(|problem| problem.line);
}
