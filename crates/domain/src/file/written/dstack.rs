//! Tasks of dstack.

use super::super::lower::name_from;
use super::super::tree::{Key, Node, Value};
use super::imported::{ForeignFormat, Import, Imported};
use super::yaml::YamlValue;
use crate::problem::{Problem, Problems};

/// dstack's variables in terms of those that gradus sets for a program.
const VARIABLES: [(&str, &str); 8] = [
    ("DSTACK_RUN_NAME", "$GRADUS_RUN"),
    ("DSTACK_RUN_ID", "$GRADUS_RUN"),
    ("DSTACK_NODE_RANK", "$NODE_RANK"),
    ("DSTACK_NODES_NUM", "$SKYPILOT_NUM_NODES"),
    ("DSTACK_NODES_IPS", "\"$SKYPILOT_NODE_IPS\""),
    ("DSTACK_MASTER_NODE_IP", "$MASTER_ADDR"),
    ("DSTACK_GPUS_PER_NODE", "$SKYPILOT_NUM_GPUS_PER_NODE"),
    ("DSTACK_GPUS_NUM", "$((SKYPILOT_NUM_GPUS_PER_NODE * SKYPILOT_NUM_NODES))"),
];

/// Keys without a counterpart: the reason, and the hint.
const LEFT_OUT: [(&[&str], &str, &str); 10] = [
    (&["registry_auth"], "the machine's own podman or docker pulls the image", "log in to the registry on the machine"),
    (
        &["docker", "privileged", "entrypoint"],
        "a container has no privileges, no docker in it, and starts with `setup`",
        "",
    ),
    (&["python", "nvcc"], "the machine's own Python and CUDA are used", "install another one in `setup`"),
    (&["volumes"], "volumes are not mounted", "put files under `workdir`, and what must last into $GRADUS_CHECKPOINTS"),
    (&["ports"], "opening ports is not supported yet", "`gradus ssh` reaches a node"),
    (&["user", "shell", "home_dir"], "commands run in bash, as the user that gradus runs as", ""),
    (
        &["idle_duration", "creation_policy", "fleets", "instances", "utilization_policy"],
        "a machine is rented for one run, and released when it ends",
        "",
    ),
    (&["reservation", "availability_zones"], "a job does not choose them", ""),
    (&["priority", "startup_order"], "runs start in order of submission", ""),
    (&["stop_criteria", "tags", "groups"], "it has no counterpart", ""),
];

/// Converts a task to a job file.
pub(super) fn import(tree: &Node, file_name: &str) -> Result<Imported, Problems> {
    let kind = tree.get("type").and_then(|(_, value)| scalar(value)).unwrap_or("task");
    if kind != "task" {
        let line = tree.get("type").map(|(key, _)| key.line);
        let problem =
            Problem { line, ..Problem::at("type", format!("`{kind}` is not a task: it does not run to an end")) };
        let problem =
            problem.hint("import files with `type: task`; a `service` or `dev-environment` has no counterpart");
        return Err(Problems { file: file_name.to_owned(), problems: vec![problem] });
    }
    let mut import = Import::default();
    let entries: &[(Key, Node)] = match &tree.value {
        Value::Map(entries) => entries,
        Value::List(_) | Value::Scalar(_) => &[],
    };
    // A repository is cloned before the commands of `setup`, independent of the order of the keys.
    let is_source = |(key, _): &&(Key, Node)| matches!(&*key.raw.text, "files" | "repos");
    let ordered = entries.iter().filter(is_source).chain(entries.iter().filter(|entry| !is_source(entry)));
    for (key, value) in ordered.filter(|(_, value)| !YamlValue::of(value).is_empty()) {
        top(&mut import, key, value);
    }
    commands(&mut import, tree);
    // The key of dstack's for a key of the job file.
    let theirs = |path: &str| {
        match path {
            "run" => "commands",
            "num_nodes" => "nodes",
            "deadline" => "max_duration",
            "stop_grace" => "stop_duration",
            "resources.image_id" => "image",
            "workdir" => "files",
            "resources.accelerators" => "resources.gpu",
            "resources.cpus" => "resources.cpu",
            "resources.disk_size" => "resources.disk",
            "resources.infra" | "resources.cloud" => "backends",
            "resources.region" => "regions",
            "resources.spot" => "spot_policy",
            "resources.max_price" => "max_price",
            "resources.instance_type" => "instance_types",
            "resources.job_recovery" => "retry",
            other => other,
        }
        .to_owned()
    };
    import.finish(ForeignFormat::Dstack, file_name, &|path| tree.line_of(&theirs(path)))
}

/// A schedule; both take UTC where nothing else is said.
fn schedule(import: &mut Import, line: Option<u32>, value: &Node) {
    match value.get("cron").and_then(|(_, cron)| scalar(cron)) {
        Some(cron) => {
            import.job.text("schedule.cron", cron);
            let what = "kept, and takes effect with `gradus schedules add`";
            import.note(line, "schedule", what, "`gradus run` runs the job once");
        }
        None => import.note(
            line,
            "schedule",
            "left out: a job has one expression of cron",
            "write for example `schedule: {cron: 0 3 * * *}`, in a job file for each",
        ),
    }
}

fn top(import: &mut Import, key: &Key, value: &Node) {
    let (name, line) = (key.raw.text.as_str(), Some(key.line));
    let text = scalar(value).unwrap_or_default();
    match name {
        "type" | "commands" | "working_dir" => {}
        "name" => import.job.text("name", name_from(text)),
        "nodes" => import.job.plain("num_nodes", text),
        "setup" => {
            let clone = import.clone.take().map(|clone| clone + "\n").unwrap_or_default();
            import.job.text("setup", clone + &texts(value).join("\n"));
        }
        "schedule" => schedule(import, line, value),
        "env" => variables(import, value),
        "files" | "repos" => folders(import, name, value),
        "resources" => resources(import, value),
        "backends" => match &texts(value)[..] {
            [one] => import.job.text("resources.infra", one),
            _ => import.job.set("resources.cloud", YamlValue::of(value)),
        },
        "regions" => import.job.set("resources.region", YamlValue::of(value)),
        "instance_types" => match &texts(value)[..] {
            [one] => import.job.text("resources.instance_type", one),
            _ => import.note(
                line,
                name,
                "left out: a job names one type of machine",
                "name one with `resources: {instance_type: …}`",
            ),
        },
        "spot_policy" => match text {
            "spot" => import.job.text("resources.spot", "only"),
            "on-demand" => import.job.text("resources.spot", "never"),
            _ => import.job.text("resources.spot", "auto"),
        },
        "max_price" => import.job.plain("resources.max_price", format!("{text}/h")),
        "max_duration" if matches!(text, "off" | "false" | "unlimited") => {}
        "max_duration" => {
            import.job.plain("deadline", text);
            import.note(line, name, "it is the `deadline` here, which counts from submission", "");
        }
        "stop_duration" if matches!(text, "off" | "false") => {
            import.note(
                line,
                name,
                "left out: a job has 60 s to save when it is stopped",
                "write `stop_grace: 30m` for the most",
            );
        }
        "stop_duration" => import.job.plain("stop_grace", text),
        "image" => import.job.text("resources.image_id", format!("docker:{text}")),
        "retry" => retry(import, key.line, value),
        _ => match LEFT_OUT.iter().find(|(keys, ..)| keys.contains(&name)) {
            Some((_, why, hint)) => import.note(line, name, format!("left out: {why}"), hint),
            None => import.note(line, name, "left out: no key of a dstack task", ""),
        },
    }
}

/// `commands`, each of which must succeed, in `working_dir`, with dstack's variables.
fn commands(import: &mut Import, tree: &Node) {
    let commands = tree.get("commands").map(|(_, value)| texts(value)).unwrap_or_default();
    let body = commands.join("\n");
    if body.is_empty() {
        return;
    }
    let used = VARIABLES.iter().filter(|(name, _)| names(&body, name));
    let mut lines: Vec<String> = used.map(|(name, value)| format!("export {name}={value}")).collect();
    for name in ["DSTACK_MPI_HOSTFILE", "DSTACK_JOB_ID"].iter().filter(|name| names(&body, name)) {
        let line = tree.line_of("commands");
        import.note(
            line,
            "commands",
            format!("`{name}` is not set"),
            "use SKYPILOT_NODE_IPS, MASTER_ADDR or GRADUS_RUN",
        );
    }
    if let Some((_, value)) = tree.get("working_dir") {
        lines.extend(
            scalar(value).filter(|folder| !folder.is_empty()).map(|folder| format!("cd {}", super::quoted(folder))),
        );
    }
    if commands.len() > 1 || !lines.is_empty() {
        lines.insert(0, "set -e".to_owned());
    }
    lines.push(body);
    let text = lines.join("\n");
    import.job.text("run", if text.contains('\n') && !text.ends_with('\n') { text + "\n" } else { text });
}

/// Whether a script uses this variable, rather than one with a longer name.
pub(super) fn names(script: &str, variable: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    script.match_indices(variable).any(|(at, _)| !goes_on(&script[at + variable.len()..]))
}

/// `env`: a list of `K=V` and `K`, or a mapping.
fn variables(import: &mut Import, value: &Node) {
    let pairs: Vec<(String, Option<String>, u32)> = match &value.value {
        Value::Map(entries) => entries
            .iter()
            .map(|(key, value)| (key.raw.text.clone(), scalar(value).map(str::to_owned), key.line))
            .collect(),
        Value::List(items) => items
            .iter()
            .filter_map(|item| Some((scalar(item)?, item.line)))
            .map(|(text, line)| match text.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned()), line),
                None => (text.to_owned(), None, line),
            })
            .collect(),
        Value::Scalar(_) => Vec::new(),
    };
    for (name, value, line) in pairs {
        match value.filter(|value| !value.contains("${{")) {
            Some(value) => import.job.text(&format!("envs.{name}"), value),
            None => {
                import.job.set(&format!("secrets.{name}"), YamlValue::Null);
                let hint = format!("pass it with `gradus run JOB --secret {name}`");
                import.note(Some(line), &format!("env.{name}"), "its value comes from your environment", &hint);
            }
        }
    }
}

/// `files` and `repos`: the folder that is copied, or a repository that is cloned.
fn folders(import: &mut Import, key: &str, value: &Node) {
    let Value::List(items) = &value.value else { return };
    for item in items {
        let field = |name: &str| item.get(name).and_then(|(_, value)| scalar(value));
        let from = scalar(item).or_else(|| field("local_path")).or_else(|| field("url"));
        let from = from.unwrap_or_default();
        let is_address = from.contains("://") || from.starts_with("git@");
        let local = if is_address { from } else { from.split(':').next().unwrap_or_default() };
        if is_address && import.clone.is_none() {
            let clone = format!("git clone {} .", super::quoted(local));
            import.note(
                Some(item.line),
                key,
                "the repository is cloned by `setup` at the beginning of each attempt",
                "",
            );
            import.job.text("setup", &clone);
            import.clone = Some(clone);
        } else if is_address || import.job.has("workdir") {
            let hint = "put it under the folder that `workdir` names";
            import.note(Some(item.line), key, format!("left out: one folder is copied, and not `{from}`"), hint);
        } else {
            import.job.text("workdir", local);
        }
    }
}

fn retry(import: &mut Import, line: u32, value: &Node) {
    let events = value.get("on_events").map(|(_, value)| texts(value)).unwrap_or_default();
    match scalar(value) {
        Some("false") => return import.job.text("resources.job_recovery", "none"),
        Some(_) => import.job.plain("resources.job_recovery.max_restarts_on_errors", "3"),
        None if events.iter().any(|event| event == "error") => {
            import.job.plain("resources.job_recovery.max_restarts_on_errors", "3");
        }
        None => {}
    }
    let note =
        "lost machines are always replaced; errors of the program are retried 3 times if they were retried before";
    import.note(Some(line), "retry", note, "change `max_restarts_on_errors`");
}

/// `resources`, whose values are ranges: the lower bound is the requirement.
fn resources(import: &mut Import, value: &Node) {
    let Value::Map(entries) = &value.value else { return };
    for (key, value) in entries.iter().filter(|(_, value)| !YamlValue::of(value).is_empty()) {
        let name = key.raw.text.as_str();
        let field = |inner: &str| value.get(inner).and_then(|(_, value)| scalar(value));
        let least =
            |text: &str| text.rsplit(':').next().unwrap_or(text).split("..").next().unwrap_or_default().to_owned();
        match name {
            "cpu" => {
                let least = least(scalar(value).or_else(|| field("count")).unwrap_or_default());
                import.job.plain("resources.cpus", format!("{least}+"));
            }
            "memory" => import.job.plain("resources.memory", least(scalar(value).unwrap_or_default())),
            "disk" => {
                import
                    .job
                    .plain("resources.disk_size", least(scalar(value).or_else(|| field("size")).unwrap_or_default()));
            }
            "gpu" => gpu(import, key.line, value),
            _ => import.note(Some(key.line), &format!("resources.{name}"), "left out: it has no counterpart", ""),
        }
    }
}

/// `gpu: nvidia:A100,A10G:40GB..80GB:4`, or the same as a mapping.
fn gpu(import: &mut Import, line: u32, value: &Node) {
    let (mut models, mut memory, mut count): (Vec<String>, Option<String>, Option<String>) = (Vec::new(), None, None);
    let least = |text: &str| text.split("..").next().unwrap_or_default().to_owned();
    match scalar(value) {
        Some(text) => {
            for part in text.split(':') {
                let is_vendor =
                    ["nvidia", "amd", "google", "intel", "tenstorrent"].contains(&part.to_lowercase().as_str());
                if part.to_uppercase().contains("GB") && part.starts_with(|c: char| c.is_ascii_digit()) {
                    memory = Some(least(part));
                } else if part.starts_with(|c: char| c.is_ascii_digit()) {
                    count = Some(least(part));
                } else if !is_vendor {
                    models = part.split(',').map(str::to_owned).collect();
                }
            }
        }
        None => {
            let field = |name: &str| value.get(name).map(|(_, value)| value);
            models = field("name").map(texts).unwrap_or_default();
            memory = field("memory").and_then(scalar).map(least);
            count = field("count").and_then(scalar).map(least);
        }
    }
    if models.is_empty() && memory.is_none() && count.as_deref() == Some("0") {
        return;
    }
    let count = count.filter(|count| count != "0").unwrap_or_else(|| "1".to_owned());
    let with_count = |kind: &String| YamlValue::Text(format!("{kind}:{count}"));
    if models.is_empty() {
        // Any GPU has this much memory.
        let memory = memory.unwrap_or_else(|| "1GB".to_owned());
        return import.job.text("resources.accelerators", format!("{memory}+:{count}"));
    }
    if let Some(memory) = &memory {
        let note = format!("`{memory}` is left out beside the name of a GPU");
        import.note(Some(line), "resources.gpu", note, "write the size as a part of the name, such as `A100-80GB`");
    }
    match &models[..] {
        [one] => import.job.set("resources.accelerators", with_count(one)),
        several => import.job.set("resources.accelerators", YamlValue::List(several.iter().map(with_count).collect())),
    }
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(raw) => Some(&raw.text),
        Value::List(_) | Value::Map(_) => None,
    }
}

/// One text or several.
fn texts(node: &Node) -> Vec<String> {
    match &node.value {
        Value::Scalar(raw) => vec![raw.text.clone()],
        Value::List(items) => items.iter().filter_map(scalar).map(str::to_owned).collect(),
        Value::Map(_) => Vec::new(),
    }
}
