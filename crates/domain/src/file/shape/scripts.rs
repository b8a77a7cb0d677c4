//! What SkyPilot does before a program starts, done by the program's own scripts: a repository as `workdir` is cloned by
//! `setup`, and a bucket that is made for what the program writes is a folder that outlives attempts, to which `run`
//! links.

use super::super::scalar::{Dialect, Scalar, resolve};
use super::super::tree::{Key, Kind, Node, Raw, Value};
use super::super::written::quoted;
use super::is_empty;
use crate::mounts::MountPlace;
use crate::problem::Problem;

/// Rewrites `workdir`, `file_mounts`, `setup` and `run` of a task file; returns what is done instead.
pub(super) fn settle(tree: &mut Node) -> Vec<Problem> {
    let Value::Map(entries) = &mut tree.value else { return Vec::new() };
    let has_program = entries.iter().any(|(key, node)| key.raw.text == "run" && text(node).is_some());
    match has_program {
        true => clone(entries).into_iter().chain(keep(entries)).collect(),
        false => Vec::new(),
    }
}

/// `workdir: {url, ref}`: a repository is cloned at the beginning of each attempt.
fn clone(entries: &mut Vec<(Key, Node)>) -> Option<Problem> {
    let at = entries.iter().position(|(key, _)| key.raw.text == "workdir")?;
    let (key, node) = &entries[at];
    let line = key.line;
    let part = |name: &str| node.get(name).and_then(|(_, value)| text(value));
    let checkout = part("ref").map(|name| format!(" && git checkout {}", quoted(name))).unwrap_or_default();
    let command = format!("git clone {} .{checkout}", quoted(part("url")?));
    entries.remove(at);
    begin_with(entries, "setup", command, line);
    let message = "the repository is cloned by `setup` at the beginning of each attempt";
    let note = Problem { line: Some(line), ..Problem::at("workdir", message) };
    Some(note.hint("the machine needs git and access to it"))
}

/// Buckets without a source that are mounted.
fn keep(entries: &mut Vec<(Key, Node)>) -> Vec<Problem> {
    let mounts = entries.iter_mut().find(|(key, _)| key.raw.text == "file_mounts").map(|(_, node)| &mut node.value);
    let Some(Value::Map(mounts)) = mounts else { return Vec::new() };
    let (mut notes, mut links) = (Vec::new(), Vec::new());
    mounts.retain(|(target, source)| {
        let place = MountPlace::parse(&target.raw.text).ok().filter(|_| is_made(source));
        let Some(place) = place else { return true };
        let (folder, link) = match place {
            MountPlace::Workdir(path) => (quoted(&path), quoted(&path)),
            MountPlace::Home(path) => (quoted(&path), format!("\"$HOME\"/{}", quoted(&path))),
            MountPlace::Root(path) => (quoted(&path), quoted(&format!("/{path}"))),
        };
        let kept = format!("\"$GRADUS_CHECKPOINTS\"/outputs/{folder}");
        let linked = format!("ln -sfnT {kept} {link}");
        let folders = format!("mkdir -p {kept} && mkdir -p \"$(dirname {link})\"");
        links.push(format!("{{ {folders} && {linked}; }} || sudo -n {linked} || exit 1"));
        let message = "no bucket is made: what is written there is kept with the run";
        let note =
            Problem { line: Some(target.line), ..Problem::at(format!("file_mounts.{}", target.raw.text), message) };
        notes.push(note.hint("copy it to a bucket at the end of `run` if others need it there"));
        false
    });
    if let Some(line) = notes.first().and_then(|note: &Problem| note.line) {
        begin_with(entries, "run", links.join("\n"), line);
    }
    notes
}

/// Whether a mount is a bucket of its own, to which the program writes.
fn is_made(source: &Node) -> bool {
    let part = |name: &str| source.get(name).map(|(_, value)| value).filter(|value| !is_empty(value));
    let is_copied = part("mode").and_then(text).is_some_and(|mode| mode.eq_ignore_ascii_case("copy"));
    part("name").is_some() && part("source").is_none() && !is_copied
}

/// Puts commands before those of a script.
fn begin_with(entries: &mut Vec<(Key, Node)>, script: &str, commands: String, line: u32) {
    let raw = |text: String| Raw { text, kind: Kind::Text };
    match entries.iter_mut().find(|(key, _)| key.raw.text == script) {
        Some((_, node)) => {
            let whole = match text(node) {
                Some(known) => format!("{commands}\n{known}"),
                None if is_empty(node) => commands,
                // It is refused as it is.
                None => return,
            };
            node.value = Value::Scalar(raw(whole));
        }
        None => {
            let key = Key { line, raw: raw(script.to_owned()) };
            entries.push((key, Node { line, value: Value::Scalar(raw(commands)) }));
        }
    }
}

/// The text of a value that is text.
fn text(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(raw) if resolve(raw, Dialect::Python) == Scalar::Text => Some(&raw.text),
        Value::Scalar(_) | Value::List(_) | Value::Map(_) => None,
    }
}
