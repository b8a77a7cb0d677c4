//! Task files of SkyPilot: the same keys, but for those that [`SKY_KEYS`](super::super::SKY_KEYS) refuses and a few that
//! are written otherwise here.

use super::super::served::{SkySupport, served};
use super::super::tree::{Key, Node, Value};
use super::imported::{ForeignFormat, Import, Imported};
use super::processes::quoted;
use super::yaml::YamlValue;
use crate::problem::Problems;

/// Converts a task file to a job file.
pub(super) fn import(tree: &Node, file_name: &str) -> Result<Imported, Problems> {
    let mut import = Import::default();
    let entries: &[(Key, Node)] = match &tree.value {
        Value::Map(entries) => entries,
        Value::List(_) | Value::Scalar(_) => &[],
    };
    // A repository is cloned before the commands of `setup`, independent of the order of the keys.
    let is_workdir = |(key, _): &&(Key, Node)| key.raw.text == "workdir";
    for (key, value) in entries.iter().filter(is_workdir).chain(entries.iter().filter(|entry| !is_workdir(entry))) {
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
        ("workdir", Value::Map(_)) => repository(import, key.line, value),
        ("setup", Value::Scalar(raw)) => {
            let clone = import.clone.take().map(|clone| clone + "\n").unwrap_or_default();
            import.job.text("setup", clone + &raw.text);
        }
        ("file_mounts", Value::Map(mounts)) => mounts.iter().for_each(|(target, source)| mount(import, target, source)),
        _ => keep_or_note(import, name, key.line, value),
    }
}

/// Keeps a key that is served, and notes one that is not.
fn keep_or_note(import: &mut Import, path: &str, line: u32, value: &Node) {
    match served(path) {
        Some(SkySupport::No { why, hint }) => import.note(Some(line), path, format!("left out: {why}"), hint),
        Some(SkySupport::Yes | SkySupport::Planned { .. }) | None => import.job.set(path, YamlValue::of(value)),
    }
}

/// `workdir: {url, ref}`: a repository is cloned at the beginning of each attempt.
fn repository(import: &mut Import, line: u32, value: &Node) {
    let text = |key: &str| value.get(key).and_then(|(_, value)| scalar(value));
    let Some(url) = text("url") else {
        return import.note(
            Some(line),
            "workdir",
            "left out: it has no `url`",
            "write the folder to copy, such as `.`",
        );
    };
    let checkout = text("ref").map(|name| format!(" && git checkout {}", quoted(name))).unwrap_or_default();
    let clone = format!("git clone {} .{checkout}", quoted(url));
    let note = "the repository is cloned by `setup` at the beginning of each attempt";
    import.note(Some(line), "workdir", note, "the machine needs git and access to it");
    import.job.text("setup", &clone);
    import.clone = Some(clone);
}

/// One of `file_mounts`.
fn mount(import: &mut Import, target: &Key, source: &Node) {
    let path = format!("file_mounts.{}", target.raw.text);
    let text = |key: &str| source.get(key).and_then(|(_, value)| scalar(value));
    let from = scalar(source).or_else(|| text("source"));
    let Some(from) = from.filter(|_| text("name").is_none()) else {
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
        ("any_of" | "ordered", Value::List(choices)) => choice(import, &path, key.line, choices),
        ("spot_recovery", _) => import.note(line, &path, RECOVERED, ""),
        ("job_recovery", Value::Scalar(raw)) if !raw.text.eq_ignore_ascii_case("none") => {
            import.note(line, &path, RECOVERED, "");
        }
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

/// `any_of` and `ordered`: the first that is named.
fn choice(import: &mut Import, path: &str, line: u32, choices: &[Node]) {
    let Some(Node { value: Value::Map(first), .. }) = choices.first() else { return };
    let others = choices.len() - 1;
    let note = format!("the first choice is taken, and {others} more left out: a job has one set of resources");
    import.note(Some(line), path, note, "`gradus plan JOB --catalog` compares all machines that would do");
    first.iter().for_each(|(key, value)| resource(import, key, value));
}

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
