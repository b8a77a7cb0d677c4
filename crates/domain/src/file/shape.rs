//! Validates a tree against the JSON schema of the types: every unknown key, wrong type, missing key, unknown value and
//! unparsable amount at once, each with its line and a hint.
//!
//! The same traversal builds the JSON value that serde then reads, so that a scalar is parsed once, according to its
//! schema and its dialect. It supports the subset of JSON Schema that schemars generates for our types.

mod amounts;
pub(super) mod choices;
mod hints;
mod scripts;
mod ways;

use serde_json::{Map, Value as Json, json};

use super::elsewhere::{in_form, instead};
use super::nearest::nearest;
use super::scalar::{Dialect, Scalar, python_text, resolve};
use super::served::{SKY_KEYS, SkySupport, served};
use super::tree::{Key, Node, Raw, Value, clip};
use crate::problem::Problem;

use ways::{allows, alone, expected, found, human_format, is_null, is_tagged, quoted, sentence, tag, words};

/// Sections that are ours alone and so follow YAML 1.2; everything else is shared with SkyPilot.
pub(super) const OUR_SECTIONS: [&str; 13] = [
    "project",
    "train",
    "sweep",
    "schedule",
    "workload",
    "data",
    "budget",
    "deadline",
    "idle_timeout",
    "stop_grace",
    "hang_after",
    "checkpoint_store",
    "progress",
];

/// Validates `node` against `schema` (with `$defs`); invalid parts are omitted from the result. Valid requests that
/// cannot be rented yet are collected separately.
pub(super) fn check(schema: &Json, node: &Node, problems: &mut Vec<Problem>, unrentable: &mut Vec<Problem>) -> Json {
    let mut walk = Walk { definitions: &schema["$defs"], problems, unrentable };
    let place = Place { path: String::new(), line: 1, dialect: Dialect::Python };
    walk.value(schema, node, &place).unwrap_or(Json::Null)
}

/// Whether a value is not empty and not among these; one that ends with `/` matches all with that prefix.
fn asks_for(node: &Node, words: &[&str]) -> bool {
    let Value::Scalar(raw) = &node.value else { return !is_empty(node) };
    let is = |word: &str, text: &str| word == text || (word.ends_with('/') && text.starts_with(word));
    let is_word = python_text(raw).is_some_and(|text| words.iter().any(|word| is(word, &text.to_lowercase())));
    !is_empty(node) && !is_word
}

/// Whether a value asks for nothing: null, or without entries.
pub(super) fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::Scalar(raw) => resolve(raw, Dialect::Python) == Scalar::Null,
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
    }
}

/// The current name of a key; a schema lists former names under `aliases`.
fn canonical<'a>(properties: &'a Json, written: &'a str) -> &'a str {
    let is_alias =
        |schema: &Json| schema["aliases"].as_array().is_some_and(|names| names.iter().any(|name| name == written));
    let renamed = || properties.as_object()?.iter().find(|(_, schema)| is_alias(schema)).map(|(name, _)| name.as_str());
    if properties.get(written).is_some() { written } else { renamed().unwrap_or(written) }
}

/// The position of the traversal.
struct Place {
    path: String,
    /// Line of the key, for problems with a list or mapping.
    line: u32,
    dialect: Dialect,
}

struct Walk<'schema, 'problems> {
    definitions: &'schema Json,
    problems: &'problems mut Vec<Problem>,
    /// Requests that can be planned but not yet rented.
    unrentable: &'problems mut Vec<Problem>,
}

/// One form of a value: a schema without references and alternatives.
type Alternative<'schema> = &'schema Json;

impl<'schema> Walk<'schema, '_> {
    fn problem(&mut self, line: u32, path: &str, message: String, hint: Option<String>) {
        self.problems.push(Problem { line: Some(line), key: path.to_owned(), message, hint });
    }

    /// All ways to write a value of this schema, references followed.
    fn ways(&self, schema: &'schema Json) -> Vec<Alternative<'schema>> {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
            return self.ways(&self.definitions[name]);
        }
        match schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            Some(several) => several.iter().flat_map(|one| self.ways(one)).collect(),
            None => vec![schema],
        }
    }

    fn value(&mut self, schema: &'schema Json, node: &Node, place: &Place) -> Option<Json> {
        let ways = self.ways(schema);
        match &node.value {
            Value::Scalar(raw) => self.scalar(&ways, raw, node.line, place),
            Value::List(items) => match ways.iter().find(|way| allows(way, "array")) {
                Some(way) => self.list(way, items, place),
                None => self.mismatch(&ways, "a list", place.line, place),
            },
            Value::Map(entries) => {
                let objects: Vec<Alternative> = ways.iter().copied().filter(|way| allows(way, "object")).collect();
                match objects[..] {
                    [] => self.not_a_map(&ways, entries, place),
                    [way] if !is_tagged(way) => self.map(way, entries, place),
                    _ => self.tagged(&ways, &objects, entries, place),
                }
            }
        }
    }

    fn list(&mut self, way: Alternative<'schema>, items: &[Node], place: &Place) -> Option<Json> {
        let before = self.problems.len();
        let bounds = (way["minItems"].as_u64(), way["maxItems"].as_u64());
        if let (Some(least), Some(most)) = bounds
            && !(least..=most).contains(&(items.len() as u64))
        {
            let numbers = if least == most { format!("{least}") } else { format!("{least} to {most}") };
            let message = format!("expected a list of {numbers} values, found {}", items.len());
            self.problem(place.line, &place.path, message, in_form(&place.path));
        }
        let mut values = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{}[{index}]", place.path);
            let inner = Place { path, line: item.line, dialect: place.dialect };
            values.extend(self.value(&way["items"], item, &inner));
        }
        (self.problems.len() == before).then_some(Json::Array(values))
    }

    fn map(&mut self, way: Alternative<'schema>, entries: &[(Key, Node)], place: &Place) -> Option<Json> {
        if way["format"] == "figures" {
            return Some(entries_json(entries, place.dialect));
        }
        let properties = &way["properties"];
        let others = way.get("additionalProperties").filter(|schema| schema.is_object());
        let mut values = Map::new();
        for (key, node) in entries {
            let name = canonical(properties, &key.raw.text);
            let path = if place.path.is_empty() { name.to_owned() } else { format!("{}.{name}", place.path) };
            let is_ours = place.path.is_empty() && OUR_SECTIONS.contains(&name);
            let dialect = if is_ours { Dialect::Core } else { place.dialect };
            let inner = Place { path, line: key.line, dialect };
            if values.contains_key(name) {
                let message = "this key is also given by a former name".to_owned();
                self.problem(key.line, &inner.path, message, Some(format!("keep only `{name}`")));
                continue;
            }
            if self.refused(node, properties.get(name).is_some(), &inner) {
                continue;
            }
            if let Some(schema) = properties.get(name) {
                if let Some(value) = self.value(schema, node, &inner) {
                    values.insert(name.to_owned(), value);
                }
            } else if let Some(schema) = others {
                let name = python_text(&key.raw).unwrap_or_else(|| name.to_owned());
                if let Some(value) = self.value(schema, node, &inner) {
                    values.insert(name, value);
                }
            } else {
                let known: Vec<&str> =
                    properties.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
                self.unknown_key(name, &known, &inner);
            }
        }
        for name in way["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
            if !entries.iter().any(|(key, _)| key.raw.text == name) {
                let meaning = properties[name]["description"].as_str().unwrap_or_default();
                let key = if place.path.is_empty() { name.to_owned() } else { format!("{}.{name}", place.path) };
                let hint = format!("add `{name}: …`: {}", sentence(meaning));
                self.problem(place.line, &key, "this key is missing".to_owned(), Some(hint));
            }
        }
        Some(Json::Object(values))
    }

    /// Whether the key is an unsupported one of SkyPilot's: it is refused with a problem, or empty.
    fn refused(&mut self, node: &Node, is_field: bool, place: &Place) -> bool {
        let (words, why, hint) = match served(&place.path) {
            Some(SkySupport::No { why, hint }) => (&[][..], why, hint),
            Some(SkySupport::Planned { words, why, hint }) => {
                // An empty value requests nothing, whatever the type of the key.
                if is_empty(node) {
                    return true;
                }
                if !asks_for(node, words) {
                    return false;
                }
                let problem = Problem { line: Some(place.line), ..Problem::at(&*place.path, why) };
                self.unrentable.push(problem.hint(hint));
                return false;
            }
            // The file is told so once it has been read.
            Some(SkySupport::Noted { .. }) => return true,
            Some(SkySupport::Yes) | None => return false,
        };
        if !asks_for(node, words) {
            return !is_field;
        }
        self.problem(place.line, &place.path, why.to_owned(), Some(hint.to_owned()));
        true
    }

    fn unknown_key(&mut self, name: &str, known: &[&str], place: &Place) {
        let parent = place.path.strip_suffix(name).unwrap_or_default();
        let theirs = SKY_KEYS.iter().filter_map(|key| key.path.strip_prefix(parent)).filter(|key| !key.contains('.'));
        let near = nearest(name, known.iter().copied().chain(theirs));
        let hint = match (instead(&place.path), near) {
            (Some(instead), _) => instead.to_owned(),
            (None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None) => format!("known keys here: {}", quoted(known)),
        };
        self.problem(place.line, &place.path, "unknown key".to_owned(), Some(hint));
    }

    /// A mapping where something else belongs; a refused form of the value is named as such.
    fn not_a_map(&mut self, ways: &[Alternative], entries: &[(Key, Node)], place: &Place) -> Option<Json> {
        let before = self.problems.len();
        for (key, node) in entries {
            let path = format!("{}.{}", place.path, key.raw.text);
            self.refused(node, false, &Place { path, line: key.line, dialect: place.dialect });
        }
        if self.problems.len() > before { None } else { self.mismatch(ways, "a mapping", place.line, place) }
    }

    /// An externally tagged value: a mapping with one key, such as `{sgd: {…}}`.
    fn tagged(
        &mut self,
        ways: &[Alternative],
        objects: &[Alternative<'schema>],
        entries: &[(Key, Node)],
        place: &Place,
    ) -> Option<Json> {
        let tags: Vec<&str> = objects.iter().flat_map(|way| tag(way)).collect();
        let choices: Vec<&str> = words(ways).into_iter().chain(tags.iter().copied()).collect();
        let alone = alone(ways);
        let choice = || match (&choices[..], &alone) {
            ([one], None) => format!("write `{one}: …`"),
            (_, None) => format!("write one of {}", quoted(&choices)),
            (_, Some(text)) => format!("write one of {}, or without any: {text}", quoted(&choices)),
        };
        let named = hints::of_named_kind(entries, &words(ways), &tags, place);
        let [(key, node)] = entries else {
            let message = format!("expected one key, found {}", entries.len());
            self.problem(place.line, &place.path, message, named.or_else(|| Some(choice())));
            return None;
        };
        let name = key.raw.text.as_str();
        let inner = Place { path: format!("{}.{name}", place.path), line: key.line, dialect: place.dialect };
        let Some(way) = objects.iter().find(|way| tag(way) == Some(name)) else {
            let words = words(ways);
            let hint = match (named, nearest(name, tags.iter().copied())) {
                (Some(hint), _) => hint,
                (None, Some(near)) => format!("did you mean `{near}`?"),
                (None, None) if words.contains(&name) => format!("write the word `{name}` alone, without a value"),
                (None, None) => choice(),
            };
            self.problem(key.line, &inner.path, "unknown kind".to_owned(), Some(hint));
            return None;
        };
        let said = self.problems.len();
        let Some(value) = self.value(&way["properties"][name], node, &inner) else {
            if let (Value::Scalar(raw), Some(text), Some(problem)) = (&node.value, alone, self.problems.get_mut(said)) {
                let shown = clip(&raw.text);
                problem.hint.get_or_insert_with(|| format!("without `{name}:`, `{shown}` may be {text}"));
            }
            return None;
        };
        Some(json!({ name: value }))
    }

    fn scalar(&mut self, ways: &[Alternative<'schema>], raw: &Raw, line: u32, place: &Place) -> Option<Json> {
        let meaning = resolve(raw, place.dialect);
        if meaning == Scalar::Null && ways.iter().any(|way| allows(way, "null")) {
            return Some(Json::Null);
        }
        if let Some(format) = ways.iter().find_map(|way| human_format(way)) {
            return self.human(format, raw, &meaning, line, place);
        }
        for way in ways {
            match (&meaning, way["type"].as_str().or(way["type"][0].as_str())) {
                (Scalar::Text, Some("string")) if way["const"].is_null() || way["const"] == raw.text.as_str() => {
                    return Some(Json::from(raw.text.as_str()));
                }
                (Scalar::Bool(value), Some("boolean")) => return Some(Json::from(*value)),
                (Scalar::Int(value), Some("integer")) => return self.integer(way, *value, line, place),
                (Scalar::Int(value), Some("number")) => return self.number(way, *value as f64, raw, line, place),
                (Scalar::Float(value), Some("number")) => return self.number(way, *value, raw, line, place),
                _ => {}
            }
        }
        self.wrong_scalar(ways, raw, &meaning, line, place)
    }

    fn wrong_scalar(
        &mut self,
        ways: &[Alternative],
        raw: &Raw,
        meaning: &Scalar,
        line: u32,
        place: &Place,
    ) -> Option<Json> {
        let shown = clip(&raw.text);
        let words = words(ways);
        let tagged = ways.iter().find(|way| tag(way) == Some(raw.text.as_str()));
        if let Some(way) = tagged {
            let needs = self.example(way, &raw.text);
            self.problem(line, &place.path, format!("`{shown}` needs a value"), Some(format!("write `{needs}`")));
            return None;
        }
        let takes_words_only = ways.iter().all(|way| way["const"].is_string() || tag(way).is_some() || is_null(way));
        if *meaning != Scalar::Null && !words.is_empty() && takes_words_only {
            let tags = ways.iter().filter_map(|way| tag(way));
            let choices: Vec<&str> = words.iter().copied().chain(tags).collect();
            let hint = hints::of_word(&raw.text, &choices);
            self.problem(line, &place.path, format!("`{shown}` is not known here"), Some(hint));
            return None;
        }
        let takes = |name: &str| ways.iter().any(|way| way["type"] == name || way["type"][0] == name);
        let hint = match meaning {
            Scalar::Float(value) if takes("integer") && value.fract() == 0.0 && value.abs() < 1e15 => {
                Some(format!("write `{value}`"))
            }
            Scalar::Int(_) | Scalar::Float(_) | Scalar::Bool(_) | Scalar::Date if takes("string") => {
                Some(format!("put it in quotes: `\"{shown}\"`"))
            }
            Scalar::Text if takes("boolean") => match raw.text.to_lowercase().as_str() {
                "yes" | "on" | "y" => Some("write `true`".to_owned()),
                "no" | "off" | "n" => Some("write `false`".to_owned()),
                _ => None,
            },
            Scalar::Text => self.nearest_way(ways, &words, &raw.text),
            _ => None,
        };
        let is_list = ways.iter().any(|way| allows(way, "array")) && !ways.iter().any(|way| allows(way, "object"));
        let in_list = || place.path.rsplit('.').next().map(|name| format!("write `{name}: [{shown}]`"));
        let is_guess = hint.as_ref().is_some_and(|hint| hint.starts_with("did you mean"));
        let hint = in_form(&place.path).filter(|_| !is_guess).or(hint);
        let hint = hint.or_else(|| self.in_its_key(ways, &shown, place));
        let hint = hint.or_else(|| in_list().filter(|_| is_list));
        let message = format!("expected {}, found {}", expected(ways), found(raw, meaning));
        self.problem(line, &place.path, message, hint);
        None
    }

    fn mismatch(&mut self, ways: &[Alternative], found: &str, line: u32, place: &Place) -> Option<Json> {
        let message = format!("expected {}, found {found}", expected(ways));
        self.problem(line, &place.path, message, in_form(&place.path));
        None
    }
}

/// Keys and values unchanged, for a section that another module parses.
fn entries_json(entries: &[(Key, Node)], dialect: Dialect) -> Json {
    Json::Object(entries.iter().map(|(key, node)| (key.raw.text.clone(), plain(node, dialect))).collect())
}

fn plain(node: &Node, dialect: Dialect) -> Json {
    match &node.value {
        Value::Scalar(raw) => match resolve(raw, dialect) {
            Scalar::Null => Json::Null,
            Scalar::Bool(value) => Json::from(value),
            Scalar::Int(value) => i64::try_from(value).map_or_else(|_| Json::from(value as f64), Json::from),
            Scalar::Float(value) => Json::from(value),
            Scalar::Date | Scalar::Text => Json::from(raw.text.as_str()),
        },
        Value::List(items) => Json::Array(items.iter().map(|item| plain(item, dialect)).collect()),
        Value::Map(entries) => entries_json(entries, dialect),
    }
}
