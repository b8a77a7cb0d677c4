//! What SkyPilot does before a program starts, done by the program's own scripts: a repository as `workdir` is cloned by
//! `setup`, and a bucket that is made for what the program writes is a folder that outlives attempts, to which `run`
//! links.

use super::super::scalar::{Dialect, Scalar, resolve};
use super::super::tree::{Key, Kind, Node, Raw, Value};
use super::super::written::quoted;
use super::is_empty;
use crate::mounts::MountPlace;
use crate::problem::Problem;

/// Makes a folder that outlives attempts, `$1`, and a link to it, `$2`. What is there already is never touched, but for such
/// a link of a program that has ended: a running one holds a lock on its folder.
const KEEP: &str = r#"gradus_keep() {
  mkdir -p "$1" && exec {gradus_kept}<"$1" && flock -s "$gradus_kept" || return
  local other; other="$(readlink "$2")"
  if [ "$other" = "$1" ]; then return; fi
  if [ -e "$2" ] || [ -L "$2" ]; then
    case "$other" in
      */checkpoints/outputs/*) ;;
      *) echo "$2 is there already, and not a link of an earlier run" >&2; return 1 ;;
    esac
    if [ -d "$other" ] && ! flock -n "$other" true; then
      echo "$2 is a link to what another run writes" >&2; return 1
    fi
  fi
  { mkdir -p "$(dirname "$2")" && ln -sfnT "$1" "$2"; } ||
    sudo -n sh -c 'mkdir -p "$(dirname "$2")" && ln -sfnT "$1" "$2"' sh "$1" "$2"
}"#;

/// Rewrites `workdir`, `file_mounts`, `setup` and `run` of a task file; returns what is done instead. Problems are of
/// repositories that cannot be cloned.
pub(super) fn settle(tree: &mut Node, problems: &mut Vec<Problem>) -> Vec<Problem> {
    let Value::Map(entries) = &mut tree.value else { return Vec::new() };
    let has_program = entries.iter().any(|(key, node)| key.raw.text == "run" && text(node).is_some());
    match has_program {
        true => clone(entries, problems).into_iter().chain(keep(entries)).collect(),
        false => Vec::new(),
    }
}

/// `workdir: {url, ref}`: a repository is cloned at the beginning of each attempt.
fn clone(entries: &mut Vec<(Key, Node)>, problems: &mut Vec<Problem>) -> Option<Problem> {
    let at = entries.iter().position(|(key, _)| key.raw.text == "workdir")?;
    let (key, node) = &entries[at];
    let Value::Map(parts) = &node.value else { return None };
    let (line, before) = (key.line, problems.len());
    problems.extend(parts.iter().filter_map(|(key, value)| wrong_part(key, value)));
    let part = |name: &str| node.get(name).and_then(|(_, value)| text(value));
    let checkout = part("ref").map(|name| format!(" && git checkout {}", quoted(name))).unwrap_or_default();
    // Without it, the commands after these would prepare an empty folder.
    let command = part("url").map(|url| format!("git clone {} .{checkout} || exit 1", quoted(url)));
    if command.is_none() && problems.len() == before {
        return None;
    }
    if fills_workdir(entries) {
        let message = "a repository is cloned to an empty folder, and `outputs` or `file_mounts` are in it before";
        let full = Problem { line: Some(line), ..Problem::at("workdir", message) };
        problems
            .push(full.hint("write to $GRADUS_CHECKPOINTS, mount below `~/`, or clone it here and name its folder"));
    }
    entries.remove(at);
    if problems.len() > before {
        return None;
    }
    begin_with(entries, "setup", command?, line);
    let message = "the repository is cloned by `setup` at the beginning of each attempt";
    let note = Problem { line: Some(line), ..Problem::at("workdir", message) };
    Some(note.hint("the machine needs git and access to it"))
}

/// What is wrong with a key of a repository. One that was left out in silence would be another version of the program.
fn wrong_part(key: &Key, value: &Node) -> Option<Problem> {
    let (message, hint) = match (&*key.raw.text, text(value)) {
        ("url" | "ref", Some(written)) if written.contains('$') => {
            ("variables are not filled in", "write the value out, or clone the repository in `setup`")
        }
        ("url" | "ref", Some(_)) => return None,
        ("url" | "ref", None) if is_empty(value) => return None,
        ("url" | "ref", None) => ("expected text", "put it in quotes"),
        _ => ("unknown key", "known keys here: `url` and `ref`"),
    };
    let wrong = Problem { line: Some(key.line), ..Problem::at(format!("workdir.{}", key.raw.text), message) };
    Some(wrong.hint(hint))
}

/// Whether something is put into the working folder before `setup`.
fn fills_workdir(entries: &[(Key, Node)]) -> bool {
    let is_inside = |(target, source): &(Key, Node)| {
        matches!(MountPlace::parse(&target.raw.text), Ok(MountPlace::Workdir(_))) && !is_made(source)
    };
    entries.iter().any(|(key, node)| match (&*key.raw.text, &node.value) {
        ("outputs", Value::List(folders)) => !folders.is_empty(),
        ("file_mounts", Value::Map(mounts)) => mounts.iter().any(is_inside),
        _ => false,
    })
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
        links.push(format!("gradus_keep \"$GRADUS_CHECKPOINTS\"/outputs/{folder} {link} || exit 1"));
        let message = "no bucket is made: what node rank 0 writes there is kept with the run";
        let note =
            Problem { line: Some(target.line), ..Problem::at(format!("file_mounts.{}", target.raw.text), message) };
        notes.push(note.hint("copy it to a bucket at the end of `run` if others need it there"));
        false
    });
    if let Some(line) = notes.first().and_then(|note: &Problem| note.line) {
        begin_with(entries, "run", format!("{KEEP}\n{}", links.join("\n")), line);
    }
    notes
}

/// Whether a mount is a bucket of its own, to which the program writes. One with a misspelt `source` is none.
fn is_made(source: &Node) -> bool {
    let Value::Map(keys) = &source.value else { return false };
    let is_known =
        |(key, _): &(Key, Node)| matches!(&*key.raw.text, "name" | "store" | "persistent" | "mode" | "source");
    let part = |name: &str| source.get(name).map(|(_, value)| value).filter(|value| !is_empty(value));
    let is_mode = |mode: &str| ["mount", "mount_cached"].iter().any(|known| mode.eq_ignore_ascii_case(known));
    let is_mounted = part("mode").is_none_or(|mode| text(mode).is_some_and(is_mode));
    keys.iter().all(is_known) && part("name").is_some() && part("source").is_none() && is_mounted
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
