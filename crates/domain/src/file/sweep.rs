//! The search space of a sweep. Values of a key are validated as under `train:` or `envs:`, so the messages are the same;
//! and the first values stand in for keys that the section lacks. [`table`] reads trials that are written row by row.

mod changed;
mod range;
mod ranges;
mod table;

use serde_json::Value as Json;

use super::nearest::nearest;
use super::scalar::{Dialect, Scalar, resolve};
use super::shape;
use super::tree::{Key, Kind, Node, Raw, Value, clip};
use crate::problem::Problem;
use crate::sweep::{Parameter, VARIABLES};

pub(super) use ranges::{Ranges, TrialRows};
pub(super) use table::TableFiles;

/// Where the keys stand.
const PLACE: &str = "sweep.parameters";

/// The keys of a range.
const WORDS: [&str; 5] = ["choices", "min", "max", "log", "points"];

/// Keys that do not change the trained model, or that the sweep sets itself.
const LEFT_ALONE: [&str; 5] = ["stop", "checkpoint", "profile", "validate_every", "export_every"];

/// Keys that name files next to the job file, and the keys that contain them.
const FILES: [&str; 5] = ["data", "data.path", "data.text", "data.text.tokenizer", "weights"];

/// The keys of a sweep as they were written.
pub(super) struct Space {
    entries: Vec<Entry>,
    /// The kind of the job's optimizer, if it names one.
    optimizer: Option<String>,
    /// Whether the keys are variables of a program.
    is_program: bool,
    /// Where they stand.
    place: &'static str,
}

struct Entry {
    key: String,
    line: u32,
    written: Written,
}

enum Written {
    Choices(Vec<Node>),
    /// The value of each row.
    Rows(Vec<Node>),
    Between {
        ends: [Node; 2],
        log: bool,
        points: Option<u32>,
    },
}

impl Space {
    /// Parses `sweep.table`, or `sweep.parameters` if it is a mapping.
    pub(super) fn read(tree: &Node, tables: TableFiles, problems: &mut Vec<Problem>) -> Option<Space> {
        let (_, sweep) = tree.get("sweep")?;
        let is_program = tree.get("run").is_some() && tree.get("train").is_none();
        let mut space = Space { entries: Vec::new(), optimizer: optimizer(tree), is_program, place: PLACE };
        if let Some((key, node)) = sweep.get("table") {
            space.place = table::PLACE;
            for (key, cells) in table::columns(key.line, node, tables, problems) {
                if (Reader { key: &key, place: space.place, problems }).is_key(&space) {
                    let (line, written) = (key.line, Written::Rows(cells));
                    space.entries.push(Entry { key: key.raw.text, line, written });
                }
            }
            return Some(space);
        }
        let (place, node) = sweep.get("parameters")?;
        let Value::Map(written) = &node.value else { return None };
        if written.is_empty() {
            let none = Problem { line: Some(place.line), ..Problem::at(PLACE, "nothing is searched") };
            problems.push(none.hint("write for example `optimizer.adamw.lr: {min: 1e-4, max: 1e-2, log: true}`"));
        }
        for (key, node) in written {
            let mut reader = Reader { key, place: PLACE, problems };
            if reader.is_key(&space)
                && let Some(written) = reader.written(node)
            {
                space.entries.push(Entry { key: key.raw.text.clone(), line: key.line, written });
            }
        }
        Some(space)
    }

    /// The file as that of the first values.
    pub(super) fn filled(&self, tree: &Node) -> Node {
        let mut filled = tree.clone();
        if self.is_program {
            for entry in &self.entries {
                if let Some(first) = entry.written.nodes().first() {
                    put(&mut filled, &entry.key, entry.line, first);
                }
            }
        } else if let Value::Map(sections) = &mut filled.value
            && let Some((_, train)) = sections.iter_mut().find(|(key, _)| key.raw.text == "train")
        {
            for entry in &self.entries {
                if let Some(first) = entry.written.nodes().first() {
                    put(train, &entry.key, entry.line, first);
                }
            }
        }
        filled
    }

    /// The keys with their ranges; every value is validated in place of the first one. Each problem is reported once.
    pub(super) fn parameters(&self, schema: &Json, filled: &Node, problems: &mut Vec<Problem>) -> Vec<Parameter> {
        let (root, prefix) = if self.is_program { ("envs", VARIABLES) } else { ("train", "") };
        let Some((place, section)) = filled.get(root) else { return Vec::new() };
        let mut parameters = Vec::new();
        for entry in &self.entries {
            let mut values = Vec::new();
            let key = entry.key.strip_prefix(prefix).unwrap_or(&entry.key);
            for (index, node) in entry.written.nodes().iter().enumerate() {
                let mut changed = section.clone();
                put(&mut changed, key, entry.line, node);
                let whole = Node { line: filled.line, value: Value::Map(vec![(place.clone(), changed)]) };
                let mut found = Vec::new();
                let shaped = shape::check(schema, &whole, &mut found, &mut Vec::new());
                let value = key.split('.').fold(&shaped[root], |value, part| &value[part]);
                if value.is_null() && found.is_empty() && (self.is_program || self.place == table::PLACE) {
                    let place = format!("{}.{}[{index}]", self.place, entry.key);
                    found.push(Problem { line: Some(node.line), ..Problem::at(place, "this value is empty") });
                }
                found.retain(|one| !problems.contains(one));
                if let Written::Rows(_) = entry.written {
                    found.iter_mut().for_each(|problem| table::in_row(problem, index));
                }
                problems.extend(found);
                values.extend(Some(value).filter(|value| !value.is_null()).cloned());
            }
            if values.len() == entry.written.nodes().len()
                && let Some(range) = entry.range(values, problems)
            {
                parameters.push(Parameter { key: entry.key.clone(), range });
            }
        }
        parameters
    }

    /// The whole key for one that belongs to the optimizer: `lr` is `optimizer.adamw.lr`.
    fn below_optimizer(&self, key: &str) -> Option<String> {
        let name = match key {
            "lr" | "learning_rate" | "base_lr" | "max_lr" => "lr",
            "weight_decay" | "momentum" | "betas" => key,
            _ => return None,
        };
        let usual = if name == "momentum" { "sgd" } else { "adamw" };
        Some(format!("optimizer.{}.{name}", self.optimizer.as_deref().unwrap_or(usual)))
    }

    /// Translates the keys of problems to those in the file, under `sweep`.
    pub(super) fn rename(&self, problems: &mut [Problem]) {
        for problem in problems {
            let below = match problem.key.strip_prefix("train.") {
                Some(below) => below,
                None if problem.key.starts_with(VARIABLES) => problem.key.as_str(),
                None => continue,
            };
            let is_in = |entry: &&Entry| {
                let rest = below.strip_prefix(entry.key.as_str());
                // A kind or key that is not known is part of the swept key.
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                    || entry.key.strip_prefix(below).is_some_and(|rest| rest.starts_with('.'))
            };
            if let Some(entry) = self.entries.iter().find(is_in) {
                let rest = below.strip_prefix(entry.key.as_str()).unwrap_or_default();
                problem.key = format!("{}.{}{rest}", self.place, entry.key);
                if problem.message == UNKNOWN
                    && let Some(key) = self.below_optimizer(&entry.key)
                {
                    problem.hint = Some(format!("write the key with its sections: `{key}`"));
                }
            }
        }
    }
}

/// What is said of a key that the schema lacks.
const UNKNOWN: &str = "unknown key";

/// The kind of optimizer that `train` names.
fn optimizer(tree: &Node) -> Option<String> {
    let (_, train) = tree.get("train")?;
    match &train.get("optimizer")?.1.value {
        Value::Map(kinds) => kinds.first().map(|(kind, _)| kind.raw.text.clone()),
        Value::List(_) | Value::Scalar(_) => None,
    }
}

/// Reads one key.
struct Reader<'a> {
    key: &'a Key,
    place: &'static str,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn wrong(&mut self, below: &str, line: u32, message: impl Into<String>, hint: impl Into<String>) {
        let place = format!("{}.{}{below}", self.place, self.key.raw.text);
        self.problems.push(Problem { line: Some(line), ..Problem::at(place, message) }.hint(hint));
    }

    /// Whether it is a valid key, given those before it.
    fn is_key(&mut self, space: &Space) -> bool {
        let (key, line) = (self.key.raw.text.as_str(), self.key.line);
        if space.is_program || key.starts_with(VARIABLES) {
            return self.is_swept_variable(space);
        }
        if let Some(below) = key.strip_prefix("train.") {
            let hint = format!("write `{below}`");
            self.wrong("", line, "all keys that are searched stand under `train`", hint);
            return false;
        }
        if key.contains('[') || key.split('.').any(str::is_empty) {
            let message = format!("`{}` is no key of `train`", clip(key));
            self.wrong("", line, message, "name keys with points between them, and lists as a whole");
            return false;
        }
        let first = key.split('.').next().unwrap_or_default();
        if LEFT_ALONE.contains(&first) {
            let message = format!("`{first}` does not change the trained model");
            self.wrong("", line, message, "write it under `train` for all trials");
            return false;
        }
        if FILES.contains(&key) {
            let message = format!("`{key}` names files, and those are the same for all trials");
            self.wrong("", line, message, "write it under `train`, and a job file for each of the others");
            return false;
        }
        let covers = |one: &str, other: &str| other.strip_prefix(one).is_some_and(|rest| rest.starts_with('.'));
        if let Some(other) = space.entries.iter().find(|other| covers(&other.key, key) || covers(key, &other.key)) {
            let message = format!("`{}` and `{key}` are both searched, and one is a part of the other", other.key);
            self.wrong("", line, message, "keep one of the two");
            return false;
        }
        true
    }

    fn written(&mut self, node: &Node) -> Option<Written> {
        let example = "write a list of values, or `{min: …, max: …}`";
        match &node.value {
            Value::List(items) => self.choices(items),
            Value::Map(entries) => {
                for (key, _) in entries {
                    let name = key.raw.text.as_str();
                    if !WORDS.contains(&name) {
                        let hint = match nearest(name, WORDS) {
                            Some(near) => format!("did you mean `{near}`?"),
                            None => "known keys here: `choices`, `min`, `max`, `log`, `points`".to_owned(),
                        };
                        self.wrong(&format!(".{}", clip(name)), key.line, "unknown key", hint);
                        return None;
                    }
                }
                let get = |name: &str| node.get(name).map(|(_, value)| value);
                match (get("choices"), get("min"), get("max")) {
                    (Some(choices), None, None) => {
                        for name in ["log", "points"] {
                            if let Some(given) = get(name) {
                                let message = "choices are taken as they are";
                                self.wrong(&format!(".{name}"), given.line, message, "leave the key out");
                                return None;
                            }
                        }
                        let Value::List(items) = &choices.value else {
                            self.wrong(".choices", choices.line, "expected a list", "write for example `[1, 2, 4]`");
                            return None;
                        };
                        self.choices(items)
                    }
                    (None, Some(min), Some(max)) => {
                        let log = self.log(get("log"))?;
                        let points = self.points(get("points"))?;
                        Some(Written::Between { ends: [min.clone(), max.clone()], log, points })
                    }
                    (Some(given), _, _) => {
                        let message = "`choices` and `min` or `max` exclude each other";
                        self.wrong("", given.line, message, "keep one of the two");
                        None
                    }
                    (None, _, _) => {
                        self.wrong("", self.key.line, "a range goes from `min` to `max`", example);
                        None
                    }
                }
            }
            Value::Scalar(raw) => {
                let message = format!("`{}` is a single value, so there is nothing to search", clip(&raw.text));
                self.wrong("", self.key.line, message, format!("{example}; a fixed value stands under `train`"));
                None
            }
        }
    }

    fn choices(&mut self, items: &[Node]) -> Option<Written> {
        if items.is_empty() {
            let message = "the list is empty, so there is nothing to choose from";
            self.wrong("", self.key.line, message, "write its values");
            return None;
        }
        Some(Written::Choices(items.to_vec()))
    }

    fn log(&mut self, node: Option<&Node>) -> Option<bool> {
        let Some(node) = node else { return Some(false) };
        match scalar(node) {
            Some(Scalar::Bool(log)) => Some(log),
            _ => {
                self.wrong(".log", node.line, "expected `true` or `false`", "write `log: true`, or leave it out");
                None
            }
        }
    }

    fn points(&mut self, node: Option<&Node>) -> Option<Option<u32>> {
        let Some(node) = node else { return Some(None) };
        let number = match scalar(node) {
            Some(Scalar::Int(number)) => u32::try_from(number).ok(),
            _ => None,
        };
        match number.filter(|number| (2..=crate::sweep::MOST_TRIALS).contains(number)) {
            Some(number) => Some(Some(number)),
            None => {
                let message = "expected how many values a grid takes of it, at least 2";
                self.wrong(".points", node.line, message, "write for example `points: 5`");
                None
            }
        }
    }
}

fn scalar(node: &Node) -> Option<Scalar> {
    match &node.value {
        Value::Scalar(raw) => Some(resolve(raw, Dialect::Core)),
        Value::List(_) | Value::Map(_) => None,
    }
}

impl Written {
    /// The values that it is written with.
    fn nodes(&self) -> &[Node] {
        match self {
            Written::Choices(items) | Written::Rows(items) => items,
            Written::Between { ends, .. } => ends,
        }
    }
}

/// Sets a value at a key path below `train`, replacing the existing one; new keys are on `line`.
pub(super) fn put(train: &mut Node, key: &str, line: u32, value: &Node) {
    let mut place = train;
    for part in key.split('.') {
        if !matches!(place.value, Value::Map(_)) {
            place.value = Value::Map(Vec::new());
        }
        let Value::Map(entries) = &mut place.value else { return };
        let at = entries.iter().position(|(name, _)| name.raw.text == part).unwrap_or_else(|| {
            let raw = Raw { text: part.to_owned(), kind: Kind::Text };
            entries.push((Key { line, raw }, Node { line, value: Value::Map(Vec::new()) }));
            entries.len() - 1
        });
        place = &mut entries[at].1;
    }
    *place = value.clone();
}
