//! Task files of SkyPilot: the same keys, but for those that [`SKY_KEYS`](super::super::SKY_KEYS) refuses and a few that
//! are written otherwise here.

use super::super::served::{SkySupport, served};
use super::super::shape::choices;
use super::super::tree::{Key, Node, Value};
use super::imported::{ForeignFormat, Import, Imported};
use super::yaml::YamlValue;
use crate::problem::{Problem, Problems};

/// Converts a task file to a job file.
pub(super) fn import(mut tree: Node, file_name: &str) -> Result<Imported, Problems> {
    let mut import = Import::default();
    let mut problems = Vec::new();
    import.notes = choices::settle(&mut tree, &mut problems);
    let left_out = |problem: Problem| Problem { message: format!("left out: {}", problem.message), ..problem };
    import.notes.extend(problems.into_iter().map(left_out));
    let entries: &[(Key, Node)] = match &tree.value {
        Value::Map(entries) => entries,
        Value::List(_) | Value::Scalar(_) => &[],
    };
    for (key, value) in entries {
        top(&mut import, key, value);
    }
    import.finish(ForeignFormat::SkyPilot, file_name, &|path| tree.line_of(path))
}

/// A key of the file itself.
fn top(import: &mut Import, key: &Key, value: &Node) {
    let name = key.raw.text.as_str();
    if YamlValue::of(value).is_empty() {
        return;
    }
    match (name, &value.value) {
        ("resources", Value::Map(entries)) => entries.iter().for_each(|(key, value)| resource(import, key, value)),
        ("outputs", Value::Map(_)) => {
            let note = "left out: object stores are not supported there";
            let hint = "name folders that outlive an attempt: `outputs: [out]`";
            import.note(Some(key.line), "outputs", note, hint);
        }
        ("workdir", Value::Map(_)) => {
            let hint = "write the folder to copy, such as `.`";
            import.note(Some(key.line), "workdir", "left out: it has no `url`", hint);
        }
        ("file_mounts", Value::Map(mounts)) => mounts.iter().for_each(|(target, source)| mount(import, target, source)),
        _ => keep_or_note(import, name, key.line, value),
    }
}

/// Keeps a key that is served, and notes one that is not.
fn keep_or_note(import: &mut Import, path: &str, line: u32, value: &Node) {
    match served(path) {
        Some(SkySupport::Noted { why, hint } | SkySupport::No { why, hint }) => {
            import.note(Some(line), path, format!("left out: {why}"), hint)
        }
        Some(SkySupport::Yes | SkySupport::Planned { .. }) | None => import.job.set(path, YamlValue::of(value)),
    }
}

/// One of `file_mounts`.
fn mount(import: &mut Import, target: &Key, source: &Node) {
    let path = format!("file_mounts.{}", target.raw.text);
    let text = |key: &str| source.get(key).and_then(|(_, value)| scalar(value));
    let Some(from) = scalar(source).or_else(|| text("source")) else {
        let hint = "write what must last to $GRADUS_CHECKPOINTS, which outlives the machine";
        return import.note(Some(target.line), &path, "left out: no bucket is made or mounted", hint);
    };
    let is_copied = scalar(source).is_some() || text("mode").is_some_and(|mode| mode.eq_ignore_ascii_case("copy"));
    if !is_copied {
        let note = format!("`{from}` is copied before `setup`, and not mounted: what is written there is not kept");
        import.note(
            Some(target.line),
            &path,
            note,
            "write what must last to $GRADUS_CHECKPOINTS, or name its folder in `outputs`",
        );
    }
    import.job.text(&path, from);
}

/// A key of `resources`.
fn resource(import: &mut Import, key: &Key, value: &Node) {
    let name = key.raw.text.as_str();
    let (path, line) = (format!("resources.{name}"), Some(key.line));
    if YamlValue::of(value).is_empty() {
        return;
    }
    match (name, &value.value) {
        ("ephemeral_storage", Value::Scalar(_)) => import.job.set("resources.disk_size", YamlValue::of(value)),
        ("spot_recovery", _) => import.note(line, &path, RECOVERED, ""),
        ("job_recovery", Value::Map(rules)) => {
            for (rule, value) in rules.iter().filter(|(_, value)| !YamlValue::of(value).is_empty()) {
                match &*rule.raw.text {
                    "strategy" => import.note(Some(rule.line), "resources.job_recovery.strategy", RECOVERED, ""),
                    name => import.job.set(&format!("resources.job_recovery.{name}"), YamlValue::of(value)),
                }
            }
        }
        ("infra", Value::Scalar(raw)) => infra(import, key.line, &raw.text),
        _ => keep_or_note(import, &path, key.line, value),
    }
}

const RECOVERED: &str = "left out: there is one way to recover, which is the default: from the newest checkpoint";

/// Infrastructure other than a known cloud.
fn infra(import: &mut Import, line: u32, place: &str) {
    let system = place.split('/').next().unwrap_or_default();
    let name = match system {
        "k8s" | "kubernetes" => "a Kubernetes cluster",
        "slurm" => "a Slurm cluster",
        _ => return import.job.text("resources.infra", place),
    };
    let why = format!("left out: gradus does not run jobs on {name}");
    import.note(Some(line), "resources.infra", why, "add its machines with `gradus nodes add`, and write `infra: ssh`");
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(raw) => Some(&raw.text),
        Value::List(_) | Value::Map(_) => None,
    }
}
