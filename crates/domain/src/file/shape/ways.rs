//! The alternatives of a value's schema: what each accepts, and its description in messages.

use serde_json::Value as Json;

use super::super::scalar::Scalar;
use super::super::tree::{Raw, clip};

/// Whether the schema names this type.
pub(super) fn allows(way: &Json, name: &str) -> bool {
    way["type"] == name || way["type"].as_array().is_some_and(|types| types.iter().any(|one| one == name))
}

pub(super) fn is_null(way: &Json) -> bool {
    way["type"] == "null"
}

/// The kind that an alternative of a closed enum holds its value under, such as `sgd`.
pub(super) fn tag(way: &Json) -> Option<&str> {
    // Only enums write an object of exactly one required key without a description of that key.
    let properties = way["properties"].as_object()?;
    let (name, schema) = properties.iter().next()?;
    let is_kind = properties.len() == 1 && way["required"][0] == name.as_str() && schema["description"].is_null();
    is_kind.then_some(name.as_str())
}

pub(super) fn is_tagged(way: &Json) -> bool {
    tag(way).is_some()
}

/// The allowed literal values.
pub(super) fn words<'schema>(ways: &[&'schema Json]) -> Vec<&'schema str> {
    ways.iter().filter_map(|way| way["const"].as_str()).collect()
}

/// The meaning of a bare text in place of a tagged value, if any text is allowed.
pub(super) fn alone(ways: &[&Json]) -> Option<String> {
    let text = ways.iter().find(|way| way["type"] == "string" && way["const"].is_null() && way["enum"].is_null())?;
    text["description"].as_str().map(sentence)
}

/// The format of an alternative that is read from text and numbers alike.
pub(super) fn human_format(way: &Json) -> Option<&str> {
    (allows(way, "string") && allows(way, "number")).then(|| way["format"].as_str()).flatten()
}

pub(super) fn human_name(format: &str) -> &'static str {
    match format {
        "money" => "an amount of money such as `$120`",
        "rate" => "a price such as `0.35/h`",
        "bytes" => "a size such as `16 GiB`",
        "duration" => "a duration such as `1h30m`",
        "fraction" => "a share such as `80%`",
        "span" => "a stretch of training such as `5 epochs`",
        "every" => "an interval such as `auto`, `500 steps` or `10m`",
        "cores" => "a number of cores such as `4`",
        "gigabytes" => "a size in GB such as `32`",
        "accelerators" => "GPUs such as `A100:8`",
        "count" => "a number such as `1.28M`",
        "gpu_memory" => "memory of one GPU such as `96GB`",
        "bandwidth" => "a memory bandwidth such as `3.35TB/s`",
        "flops" => "a peak rate such as `989TFLOPS`",
        "watts" => "a power limit such as `700W`",
        "link" => "a link such as `switch 900GB/s`",
        "limit" => "a duration such as `10m`, or `false`",
        _ => "text",
    }
}

/// Describes the allowed values.
pub(super) fn expected(ways: &[&Json]) -> String {
    let mut names: Vec<String> = Vec::new();
    for way in ways.iter().filter(|way| !is_null(way)) {
        let name = match (way["const"].as_str(), tag(way), way["type"].as_str().or(way["type"][0].as_str())) {
            (Some(word), _, _) => format!("`{word}`"),
            (None, Some(tag), _) => format!("`{tag}: …`"),
            (None, None, _) if human_format(way).is_some() => {
                human_name(human_format(way).unwrap_or_default()).to_owned()
            }
            (None, None, Some("integer")) => "a whole number".to_owned(),
            (None, None, Some("number")) => "a number".to_owned(),
            (None, None, Some("boolean")) => "`true` or `false`".to_owned(),
            (None, None, Some("array")) => "a list".to_owned(),
            (None, None, Some("object")) => "a mapping".to_owned(),
            (None, None, _) => "text".to_owned(),
        };
        names.push(name);
    }
    match &names[..] {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

pub(super) fn found(raw: &Raw, meaning: &Scalar) -> String {
    let shown = clip(&raw.text);
    match meaning {
        Scalar::Null => "nothing".to_owned(),
        Scalar::Bool(value) if raw.text.to_lowercase() == value.to_string() => format!("`{value}`"),
        Scalar::Bool(value) => format!("`{shown}`, which YAML reads as `{value}`"),
        Scalar::Int(value) if value.to_string() == raw.text => format!("the number `{shown}`"),
        Scalar::Int(value) => format!("`{shown}`, which YAML reads as the number `{value}`"),
        Scalar::Float(_) => format!("the number `{shown}`"),
        Scalar::Date => format!("the date `{shown}`"),
        Scalar::Text => format!("the text `{shown}`"),
    }
}

pub(super) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The first sentence of a doc comment, as it stands in a hint.
pub(super) fn sentence(text: &str) -> String {
    let first = text.split(". ").next().unwrap_or(text).trim_end_matches('.');
    let mut letters = first.chars();
    match letters.next() {
        Some(letter) => letter.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}
