//! What to write instead of a value that is none of the known ones.

use serde_json::Value as Json;

use super::super::elsewhere::{in_our_words, narrow_format, similar_model};
use super::super::nearest::nearest;
use super::super::scalar::python_text;
use super::super::tree::{Key, Node, Value};
use super::ways::{allows, is_tagged, quoted, tag};
use super::{Alternative, Place, Walk};
use crate::money::Money;

/// The hint for a text that is none of `choices`.
pub(super) fn of_word(text: &str, choices: &[&str]) -> String {
    if let Some(hint) = narrow_format(text, choices) {
        return hint.to_owned();
    }
    match in_our_words(text, choices).or_else(|| nearest(text, choices.iter().copied())) {
        Some(near) => format!("did you mean `{near}`?"),
        None if text.ends_with(".py") => {
            "a Python file is a program of its own: write `run: python FILE.py` in place of `train:`".to_owned()
        }
        None => similar_model(text, choices).unwrap_or_else(|| format!("write one of {}", quoted(choices))),
    }
}

/// The hint for a mapping that names its kind in a key, such as `{name: resnet18}` or `{type: adamw, lr: 0.1}`; `None` if
/// it names no kind that is known as a word or a tag.
pub(super) fn of_named_kind(entries: &[(Key, Node)], words: &[&str], tags: &[&str], place: &Place) -> Option<String> {
    let is_name = |key: &Key| matches!(key.raw.text.as_str(), "name" | "type" | "kind" | "class" | "_target_");
    let (_, node) = entries.iter().find(|(key, _)| is_name(key))?;
    let Value::Scalar(raw) = &node.value else { return None };
    let written = python_text(raw)?;
    let section = place.path.rsplit('.').next()?;
    if let Some(word) = in_our_words(&written, words) {
        return Some(format!("write `{section}: {word}`"));
    }
    in_our_words(&written, tags).map(|tag| format!("write `{section}: {{{tag}: {{…}}}}`"))
}

impl Walk<'_, '_> {
    /// The nearest valid value or tag for a text.
    pub(super) fn nearest_way(&self, ways: &[Alternative], words: &[&str], text: &str) -> Option<String> {
        let tags = ways.iter().filter_map(|way| tag(way));
        let near = nearest(text, words.iter().copied().chain(tags))?;
        let meant = match ways.iter().find(|way| tag(way) == Some(near)) {
            Some(way) => self.example(way, near),
            None => near.to_owned(),
        };
        Some(format!("did you mean `{meant}`?"))
    }

    /// The hint for a single value in place of a section with one required key, such as `budget: $5`.
    pub(super) fn in_its_key(&self, ways: &[Alternative], shown: &str, place: &Place) -> Option<String> {
        let section = ways.iter().find(|way| allows(way, "object") && !is_tagged(way))?;
        let [required] = &section["required"].as_array()?[..] else { return None };
        let name = place.path.rsplit('.').next()?;
        if name == "budget" && shown.parse::<Money>().is_err() {
            return Some("amounts are in US dollars: write `budget: {max: $5}`".to_owned());
        }
        Some(format!("write `{name}: {{{}: {shown}}}`", required.as_str()?))
    }

    /// How a kind that needs constants is written, with its required keys.
    pub(super) fn example(&self, way: Alternative, name: &str) -> String {
        let inner = self.definitions
            [way["properties"][name]["$ref"].as_str().unwrap_or_default().trim_start_matches("#/$defs/")]["required"]
            .as_array();
        match inner {
            Some(required) => {
                let keys: Vec<String> =
                    required.iter().filter_map(Json::as_str).map(|key| format!("{key}: …")).collect();
                format!("{name}: {{{}}}", keys.join(", "))
            }
            None => format!("{name}: …"),
        }
    }
}
