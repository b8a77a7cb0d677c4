//! `cargo xtask docs`: `docs/job-file.md` and `docs/job-file.schema.json` from the types of the job file, and
//! `docs/cli.md` from the definitions of the command line, and `docs/python.md` from docstrings ([`python`]).
//!
//! The types, their doc comments, the table of SkyPilot's keys and the help texts are the source; `cargo xtask check`
//! fails when a document is out of date.

mod python;

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use xtask::build;
use xtask::doing::{self, Outcome};

/// What stands above the reference of commands.
const COMMANDS: &str = include_str!("cli-opening.md");

/// What stands above the tables.
const OPENING: &str = include_str!("job-file-opening.md");

/// What stands below them.
const CLOSING: &str = include_str!("job-file-closing.md");

/// Writes the generated documents or, with `check`, fails when one of them is stale.
pub fn docs(root: &Path, check: bool) -> Outcome {
    // Both executables, because those are what `cargo xtask test` builds next.
    let gradus = build::executables(root)?.join("gradus");
    let reference = |subject: &str| doing::read(Command::new(&gradus).args(["reference", subject]));
    let source: Value = serde_json::from_str(&reference("job-file")?)?;
    let documents = [
        ("docs/cli.md", format!("{COMMANDS}\n{}", reference("commands")?)),
        ("docs/python.md", python::reference(root)?),
        ("docs/job-file.schema.json", schema(&source)?),
        ("docs/job-file.md", format!("{OPENING}\n{}{}\n{CLOSING}", sections(&source["schema"]), sky_table(&source))),
    ];
    let mut stale = Vec::new();
    for (path, text) in &documents {
        let is_new = std::fs::read_to_string(root.join(path)).map_or(true, |old| old != *text);
        if is_new && check {
            stale.push(format!("`{path}`"));
        } else if is_new {
            std::fs::write(root.join(path), text).map_err(|error| format!("cannot write `{path}`: {error}"))?;
        }
    }
    match stale.is_empty() {
        true => Ok("the generated documents are up to date".into()),
        false => Err(format!("out of date: {}\n  hint: `cargo xtask docs`", stale.join(", ")).into()),
    }
}

/// The schema, preceded by `$schema`.
fn schema(source: &Value) -> Result<String, Box<dyn Error>> {
    let mut front = serde_json::Map::new();
    for key in ["$schema", "title", "description"] {
        front.insert(key.to_owned(), source["schema"][key].clone());
    }
    for (key, value) in source["schema"].as_object().into_iter().flatten() {
        front.entry(key).or_insert(value.clone());
    }
    Ok(serde_json::to_string_pretty(&Value::Object(front))? + "\n")
}

/// One table of keys, and their values.
struct Section<'schema> {
    path: String,
    schema: &'schema Value,
    /// Where a key's meaning was already given above, the definition's own is omitted.
    meaning: &'schema str,
}

/// A table for each mapping of keys, in the order in which they are first used.
fn sections(schema: &Value) -> String {
    let mut text = String::new();
    let mut waiting = vec![Section { path: String::new(), schema, meaning: "" }];
    let mut told = BTreeSet::new();
    while !waiting.is_empty() {
        let section = waiting.remove(0);
        let table = Table { all: schema, section };
        let inner = table.write(&mut text);
        let new: Vec<Section> = inner.into_iter().filter(|section| told.insert(section.path.clone())).collect();
        // A section is followed by those inside it.
        waiting.splice(0..0, new);
    }
    text
}

struct Table<'schema> {
    all: &'schema Value,
    section: Section<'schema>,
}

impl<'schema> Table<'schema> {
    /// Writes the section and returns those inside it.
    fn write(&self, text: &mut String) -> Vec<Section<'schema>> {
        let Section { path, schema, meaning } = &self.section;
        let heading = if path.is_empty() { "## Keys".to_owned() } else { format!("### `{path}`") };
        let _ = writeln!(text, "{heading}\n");
        if !meaning.is_empty() {
            let _ = writeln!(text, "{meaning}\n");
        }
        text.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let (mut inner, mut words) = (Vec::new(), String::new());
        for (key, value) in schema["properties"].as_object().into_iter().flatten() {
            let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let default = match (&value["default"], required.contains(&key.as_str())) {
                (_, true) => "required".to_owned(),
                (Value::Null, false) => "–".to_owned(),
                (given, false) => format!("`{}`", flow(given)),
            };
            let meaning = value["description"].as_str().unwrap_or_default();
            let ways = self.ways(value);
            let kind = cell(&self.kind(&ways, value));
            let _ = writeln!(text, "| `{key}` | {kind} | {} | {} |", cell(&default), cell(meaning));
            words.push_str(&choices(key, &ways));
            inner.extend(self.inner(&full, &ways));
        }
        if !words.is_empty() {
            let _ = write!(text, "\n{words}");
        }
        text.push('\n');
        inner
    }

    fn resolve(&self, schema: &'schema Value) -> &'schema Value {
        match schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
            Some(name) => &self.all["$defs"][name],
            None => schema,
        }
    }

    /// The alternatives of a value, with references resolved and without `null`.
    fn ways(&self, schema: &'schema Value) -> Vec<&'schema Value> {
        let resolved = self.resolve(schema);
        match resolved["anyOf"].as_array().or(resolved["oneOf"].as_array()) {
            Some(several) => {
                several.iter().flat_map(|one| self.ways(one)).filter(|way| way["type"] != "null").collect()
            }
            None => vec![resolved],
        }
    }

    /// Sections of the mappings that a value may hold.
    fn inner(&self, path: &str, ways: &[&'schema Value]) -> Vec<Section<'schema>> {
        let mut sections = Vec::new();
        for way in ways {
            if let Some((name, kind)) = tagged(way) {
                let schema = self.resolve(kind);
                if schema["properties"].is_object() {
                    let meaning = schema["description"].as_str().unwrap_or_default();
                    sections.push(Section { path: format!("{path}.{name}"), schema, meaning });
                }
            } else if way["properties"].is_object() {
                sections.push(Section { path: path.to_owned(), schema: way, meaning: "" });
            } else if way["items"].is_object() {
                sections.extend(self.inner(path, &self.ways(&way["items"])));
            }
        }
        sections
    }

    /// The type of a value as text. Bounds are with the key or its definition.
    fn kind(&self, ways: &[&'schema Value], key: &Value) -> String {
        let names: Vec<String> = ways.iter().map(|way| self.name(way, key)).collect();
        names.join(" or ")
    }

    fn name(&self, way: &'schema Value, key: &Value) -> String {
        if let Some(word) = way["const"].as_str() {
            return format!("`{word}`");
        }
        if let Some((name, _)) = tagged(way) {
            return format!("`{name}: …`");
        }
        if let Some(human) = way["format"].as_str().and_then(human) {
            return human.to_owned();
        }
        let name = match way["type"].as_str().or(way["type"][0].as_str()) {
            Some("integer") => "integer",
            Some("number") => "number",
            Some("boolean") => "`true` or `false`",
            Some("object") if way["additionalProperties"]["type"] == "integer" => "map of names to integers",
            Some("object") if way["additionalProperties"].is_object() => "map of names to strings",
            Some("object") => "mapping",
            Some("array") => {
                let items = self.kind(&self.ways(&way["items"]), &Value::Null);
                return match way["maxItems"].as_u64() {
                    Some(count) => format!("list of {count} × {items}"),
                    None => format!("list of {items}"),
                };
            }
            _ => "string",
        };
        let bounds = bounds(if way["type"] == key["type"] { key } else { way });
        if bounds.is_empty() { name.to_owned() } else { format!("{name}, {bounds}") }
    }
}

/// The name and value of an alternative such as `{sgd: {…}}`; see `ways` in the crate `domain`.
fn tagged(way: &Value) -> Option<(&str, &Value)> {
    let properties = way["properties"].as_object()?;
    let (name, schema) = properties.iter().next()?;
    let is_kind = properties.len() == 1 && way["required"][0] == name.as_str() && schema["description"].is_null();
    is_kind.then_some((name.as_str(), schema))
}

/// The values of a key, with their meaning.
fn choices(key: &str, ways: &[&Value]) -> String {
    let named: Vec<(&str, &str)> = ways
        .iter()
        .filter_map(|way| {
            Some((way["const"].as_str().or(tagged(way).map(|(name, _)| name))?, way["description"].as_str()?))
        })
        .collect();
    if named.len() < 2 {
        return String::new();
    }
    let lines = named.iter().map(|(name, meaning)| format!("- `{key}: {name}` – {meaning}\n"));
    lines.collect::<String>()
}

fn bounds(schema: &Value) -> String {
    let mut parts = Vec::new();
    for (key, sign) in [("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<")] {
        // That a count is not negative goes without saying.
        let is_plain = key == "minimum" && schema["format"].as_str().is_some_and(|format| format.starts_with("uint"));
        match &schema[key] {
            Value::Null => {}
            bound if is_plain && bound == 0 => {}
            bound => parts.push(format!("{sign} {bound}")),
        }
    }
    parts.join(", ")
}

/// The name of a format that is read from text and numbers alike.
fn human(format: &str) -> Option<&'static str> {
    Some(match format {
        "money" => "money",
        "rate" => "price",
        "bytes" => "size",
        "duration" => "duration",
        "fraction" => "fraction",
        "span" => "epochs or steps",
        "every" => "interval",
        "cores" => "cores",
        "gigabytes" => "size in GB",
        "accelerators" => "accelerators",
        "count" => "count",
        "gpu_memory" => "memory",
        "bandwidth" => "bandwidth",
        "flops" => "rate",
        "watts" => "power",
        "link" => "link",
        "limit" => "duration or `false`",
        "env" => "string",
        _ => return None,
    })
}

/// A JSON value as one would write it in a job file.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}: {}", flow(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The clouds that machines are rented from.
const RENTED: &str = "AWS, Lambda, Google Cloud, Azure, Alibaba Cloud or Tencent Cloud";

fn sky_table(source: &Value) -> String {
    let mut text = String::from(
        "## SkyPilot's keys\n\n| key | supported | if not: why, and what to use instead |\n|---|---|---|\n",
    );
    for key in source["sky_keys"].as_array().into_iter().flatten() {
        let [path, why, hint] = ["path", "why", "hint"].map(|name| key[name].as_str().unwrap_or_default());
        let words: Vec<&str> = key["words"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let is_planned = key["planned"].as_bool().unwrap_or_default();
        let is_noted = key["noted"].as_bool().unwrap_or_default();
        // The words of `infra` name the clouds themselves.
        let is_rented = key["rented"].as_bool().unwrap_or_default() && path != "resources.infra";
        let words = words.join("`, `");
        // Of nodes, it is known which GPUs they have.
        let nodes = if path == "resources.accelerators" { ", or nodes" } else { "" };
        let by_cloud = format!("`gradus plan`; `gradus run` if the job names {RENTED}{nodes}");
        let served = match (is_planned, is_rented, words.is_empty()) {
            _ if why.is_empty() => "yes".to_owned(),
            _ if is_noted => "accepted with a warning".to_owned(),
            (false, _, _) => "no".to_owned(),
            (true, false, true) => "`gradus plan` only".to_owned(),
            (true, false, false) => format!("`gradus plan`; `gradus run` accepts only `{words}`"),
            (true, true, true) => by_cloud,
            (true, true, false) => format!("{by_cloud}, else only `{words}`"),
        };
        let otherwise = if why.is_empty() { String::new() } else { format!("{why}; {hint}") };
        let _ = writeln!(text, "| `{path}` | {served} | {} |", cell(&otherwise));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_that_renting_fulfils_is_not_for_plans_alone() {
        let check = |path: &str, rented: bool, words: &[&str], expected: &str| {
            let key = json!({
                "path": path, "planned": true, "rented": rented, "words": words, "why": "none here", "hint": "leave it out"
            });
            let table = sky_table(&json!({ "sky_keys": [key] }));
            let row = format!("| `{path}` | {expected} | none here; leave it out |");
            assert_eq!(table.lines().last(), Some(row.as_str()));
        };
        let by_cloud = "`gradus plan`; `gradus run` if the job names AWS, Lambda, Google Cloud, Azure, Alibaba Cloud or Tencent Cloud";
        check("resources.accelerators", true, &[], &format!("{by_cloud}, or nodes"));
        check("resources.use_spot", true, &["false"], &format!("{by_cloud}, else only `false`"));
        check("resources.infra", true, &["local", "aws"], "`gradus plan`; `gradus run` accepts only `local`, `aws`");
        check("num_nodes", false, &["1"], "`gradus plan`; `gradus run` accepts only `1`");
        check("resources.max_carbon", false, &[], "`gradus plan` only");
    }
}
