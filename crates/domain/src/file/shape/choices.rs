//! SkyPilot's other ways to write `name` and `resources`, as the ones that [`keys`](super::super::keys) has: a name with
//! capitals, a set of accelerators (`{A100:8, H100:8}`), the name of a recovery strategy alone, a tier of disks in any case,
//! and a choice between sets of resources (`any_of`, `ordered`). The tree is rewritten before it is checked, so lines stay those of the file.

use super::super::lower::name_from;
use super::super::scalar::{Dialect, Scalar, resolve};
use super::super::tree::{Key, Kind, Node, Raw, Value};
use super::scripts;
use crate::problem::Problem;
use crate::wants::RENTED_CLOUDS;

/// Rewrites `name`, `resources`, and what [`scripts`] do instead; returns what is not taken over. Problems are of choices
/// that are none.
pub(in crate::file) fn settle(tree: &mut Node, problems: &mut Vec<Problem>) -> Vec<Problem> {
    let mut notes: Vec<Problem> = tree.get_mut("name").and_then(rename).into_iter().collect();
    notes.extend(scripts::settle(tree, problems));
    let Some(Node { value: Value::Map(entries), .. }) = tree.get_mut("resources") else { return notes };
    for name in ["any_of", "ordered"] {
        choose(entries, name, &mut notes, problems);
    }
    // Its old name. That nothing is tried again is money; another strategy changes nothing.
    let is_none = |node: &Node| matches!(&node.value, Value::Scalar(raw) if raw.text.eq_ignore_ascii_case("none"));
    if !entries.iter().any(|(key, _)| key.raw.text == "job_recovery")
        && let Some((key, _)) = entries.iter_mut().find(|(key, node)| key.raw.text == "spot_recovery" && is_none(node))
    {
        key.raw.text = "job_recovery".to_owned();
    }
    for (key, node) in entries.iter_mut() {
        match key.raw.text.as_str() {
            "accelerators" => as_list(node),
            "job_recovery" => as_rules(node, key.line),
            "disk_tier" => as_tier(node),
            _ => {}
        }
    }
    notes
}

/// A name as SkyPilot takes it, with capitals, `_` and `.`: the nearest one that is allowed here.
fn rename(node: &mut Node) -> Option<Problem> {
    let Value::Scalar(raw) = &mut node.value else { return None };
    let is_theirs = raw.text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    let differs = raw.text.bytes().any(|byte| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'.'));
    if !is_theirs || !differs || raw.text.len() > 63 || resolve(raw, Dialect::Python) != Scalar::Text {
        return None;
    }
    let name = name_from(&raw.text);
    let message = format!("the name is `{name}` here: it takes letters a–z, digits and `-`");
    raw.text.clone_from(&name);
    Some(Problem { line: Some(node.line), ..Problem::at("name", message) }.hint(format!("write `name: {name}`")))
}

/// `any_of` or `ordered`: replaced by the choice that is taken, whose keys override those beside it.
fn choose(entries: &mut Vec<(Key, Node)>, name: &str, notes: &mut Vec<Problem>, problems: &mut Vec<Problem>) {
    let Some(at) = entries.iter().position(|(key, _)| key.raw.text == name) else { return };
    let (key, node) = entries.remove(at);
    let path = format!("resources.{name}");
    let mut choices = Vec::new();
    match node.value {
        Value::List(items) => {
            for item in items {
                let Value::Map(choice) = item.value else {
                    let wrong = Problem { line: Some(item.line), ..Problem::at(path, "each choice is a mapping") };
                    return problems.push(wrong.hint("write for example `- {accelerators: A100:8}`"));
                };
                choices.push(choice);
            }
        }
        Value::Scalar(raw) if resolve(&raw, Dialect::Python) == Scalar::Null => {}
        Value::Scalar(_) | Value::Map(_) => {
            let wrong = Problem { line: Some(key.line), ..Problem::at(path, "expected a list of mappings") };
            return problems.push(wrong.hint("write for example `[{accelerators: A100:8}, {accelerators: H100:8}]`"));
        }
    }
    let is_ordered = name == "ordered";
    let taken = if let Some(joined) = joined(&choices, key.line) {
        if is_ordered && choices.len() > 1 {
            let message = "any of the choices is taken, by its price";
            let note = Problem { line: Some(key.line), ..Problem::at(path, message) };
            notes.push(note.hint("keep one of them if the order matters"));
        }
        joined
    } else {
        let number = choices.len();
        let at = best(&choices, is_ordered);
        if number == 0 {
            return;
        }
        if number > 1 {
            let message = format!("choice {} of {number} is taken: a job has one set of resources", at + 1);
            let note = Problem { line: Some(key.line), ..Problem::at(path, message) };
            notes.push(note.hint("`gradus plan JOB --catalog` compares all machines that would do"));
        }
        choices.swap_remove(at)
    };
    for (key, node) in taken {
        entries
            .retain(|(known, _)| known.raw.text != key.raw.text && !same_as(&key.raw.text).contains(&&*known.raw.text));
        entries.push((key, node));
    }
}

/// Keys beside a choice that its key overrides, because they say the same.
fn same_as(key: &str) -> &'static [&'static str] {
    match key {
        "infra" => &["cloud", "region", "zone"],
        "spot" => &["use_spot"],
        "use_spot" => &["spot"],
        _ => &[],
    }
}

/// Choices that differ in one key which can name them all: in accelerators, or spot machines and others.
fn joined(choices: &[Vec<(Key, Node)>], line: u32) -> Option<Vec<(Key, Node)>> {
    let is_in = |(key, node): &(Key, Node), choice: &[(Key, Node)]| {
        choice.iter().any(|(other, value)| other.raw.text == key.raw.text && is_same(value, node))
    };
    let is_shared = |entry: &(Key, Node)| choices.iter().all(|choice| is_in(entry, choice));
    let mut nodes = Vec::new();
    let (mut all, differing): (Vec<_>, Vec<_>) = choices.first()?.iter().cloned().partition(is_shared);
    let [(first, _)] = &differing[..] else { return None };
    for choice in choices {
        let own: Vec<&(Key, Node)> = choice.iter().filter(|entry| !is_shared(entry)).collect();
        match own[..] {
            [(key, node)] if key.raw.text == first.raw.text => nodes.push(node.clone()),
            _ => return None,
        }
    }
    let text = |text: &str| Raw { text: text.to_owned(), kind: Kind::Text };
    let one = match first.raw.text.as_str() {
        "accelerators" => {
            let mut kinds = Vec::new();
            for node in nodes {
                kinds.extend(listed(node)?);
            }
            (first.clone(), Node { line, value: Value::List(kinds) })
        }
        "use_spot" => {
            let both = [true, false].iter().all(|wanted| nodes.iter().any(|node| means(node, &Scalar::Bool(*wanted))));
            let key = Key { line: first.line, raw: text("spot") };
            both.then(|| (key, Node { line, value: Value::Scalar(text("auto")) }))?
        }
        _ => return None,
    };
    all.push(one);
    Some(all)
}

/// Whether two values are the same text, wherever they stand.
fn is_same(one: &Node, other: &Node) -> bool {
    matches!((&one.value, &other.value), (Value::Scalar(one), Value::Scalar(other)) if one.text == other.text)
}

/// The place of the choice that is taken: the first, but of unordered ones the first that can be rented.
fn best(choices: &[Vec<(Key, Node)>], is_ordered: bool) -> usize {
    let names_rented = |choice: &Vec<(Key, Node)>| {
        choice.iter().any(|(key, node)| match (&*key.raw.text, &node.value) {
            ("infra" | "cloud", Value::Scalar(raw)) => {
                let cloud = raw.text.split('/').next().unwrap_or_default();
                RENTED_CLOUDS.iter().any(|name| name.eq_ignore_ascii_case(cloud))
            }
            _ => false,
        })
    };
    if is_ordered { 0 } else { choices.iter().position(names_rented).unwrap_or(0) }
}

/// A set of accelerators is a mapping to nulls in YAML: `{A100:8, H100:8}`, which becomes a list.
fn as_list(node: &mut Node) {
    let Value::Map(entries) = &node.value else { return };
    if entries.iter().any(|(_, value)| means(value, &Scalar::Null))
        && let Some(kinds) = listed(node.clone())
    {
        node.value = Value::List(kinds);
    }
}

/// Whether a value is this scalar.
fn means(node: &Node, meaning: &Scalar) -> bool {
    match &node.value {
        Value::Scalar(raw) => resolve(raw, Dialect::Python) == *meaning,
        Value::List(_) | Value::Map(_) => false,
    }
}

/// The kinds of GPUs of any form of `accelerators`; none if it has a form that no file has.
fn listed(node: Node) -> Option<Vec<Node>> {
    let line = node.line;
    match node.value {
        Value::Scalar(_) => Some(vec![node]),
        Value::List(items) => Some(items),
        Value::Map(entries) => {
            let kind = |(key, count): (Key, Node)| {
                let Value::Scalar(raw) = count.value else { return None };
                let text = match resolve(&raw, Dialect::Python) {
                    Scalar::Null => key.raw.text,
                    _ => format!("{}:{}", key.raw.text, raw.text),
                };
                Some(Node { line, value: Value::Scalar(Raw { text, kind: Kind::Text }) })
            };
            entries.into_iter().map(kind).collect()
        }
    }
}

/// A tier of disks is written in any case, and `none` is no tier.
fn as_tier(node: &mut Node) {
    let Value::Scalar(raw) = &mut node.value else { return };
    raw.text.make_ascii_lowercase();
    if raw.text == "none" {
        *raw = Raw { text: "null".to_owned(), kind: Kind::Plain };
    }
}

/// `job_recovery: FAILOVER` is short for `{strategy: FAILOVER}`.
fn as_rules(node: &mut Node, line: u32) {
    let Value::Scalar(raw) = &node.value else { return };
    if resolve(raw, Dialect::Python) == Scalar::Text && !raw.text.eq_ignore_ascii_case("none") {
        let key = Key { line, raw: Raw { text: "strategy".to_owned(), kind: Kind::Plain } };
        node.value = Value::Map(vec![(key, node.clone())]);
    }
}
