//! Writes values as YAML that round-trips in either dialect.

use std::fmt::Write;

use super::super::scalar::{Dialect, Scalar, resolve};
use super::super::tree::{Kind, Node, Raw, Value};

/// A value of a job file that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum YamlValue {
    /// Null.
    Null,
    /// Written as it stands, such as a number or a size.
    Plain(String),
    /// Text, quoted where it would read as something else.
    Text(String),
    /// A list.
    List(Vec<YamlValue>),
    /// A mapping, in this order.
    Map(Vec<(String, YamlValue)>),
}

impl YamlValue {
    /// A value that was read, with its scalars as they were written.
    pub(super) fn of(node: &Node) -> YamlValue {
        match &node.value {
            Value::Scalar(raw) if raw.kind == Kind::Plain && raw.text.is_empty() => YamlValue::Null,
            Value::Scalar(raw) if raw.kind == Kind::Plain && !raw.text.contains('\n') => {
                YamlValue::Plain(raw.text.clone())
            }
            Value::Scalar(raw) => YamlValue::Text(raw.text.clone()),
            Value::List(items) => YamlValue::List(items.iter().map(YamlValue::of).collect()),
            Value::Map(entries) => YamlValue::Map(
                entries.iter().map(|(key, value)| (key.raw.text.clone(), YamlValue::of(value))).collect(),
            ),
        }
    }

    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            YamlValue::Null => true,
            YamlValue::Plain(_) | YamlValue::Text(_) => false,
            YamlValue::List(items) => items.is_empty(),
            YamlValue::Map(entries) => entries.is_empty(),
        }
    }
}

/// Writes `key: value` at this depth, over as many lines as it takes.
pub(super) fn write_entry(out: &mut String, key: &str, value: &YamlValue, depth: usize) {
    let margin = "  ".repeat(depth);
    let _ = write!(out, "{margin}{}:", scalar(key));
    write_value(out, value, depth);
}

/// Writes the value after `key:` or `-`.
fn write_value(out: &mut String, value: &YamlValue, depth: usize) {
    let margin = "  ".repeat(depth + 1);
    match value {
        YamlValue::Null => out.push_str(" null\n"),
        YamlValue::Plain(text) => {
            let _ = writeln!(out, " {text}");
        }
        YamlValue::Text(text) if is_block(text) => {
            let end = match text.strip_suffix('\n') {
                None => "-",
                Some(rest) if rest.ends_with('\n') => "+",
                Some(_) => "",
            };
            let indent = if text.starts_with([' ', '\n']) { "2" } else { "" };
            let _ = writeln!(out, " |{indent}{end}");
            for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
                let _ = if line.is_empty() { writeln!(out) } else { writeln!(out, "{margin}{line}") };
            }
        }
        YamlValue::Text(text) => {
            let _ = writeln!(out, " {}", scalar(text));
        }
        YamlValue::List(items) if items.is_empty() => out.push_str(" []\n"),
        YamlValue::Map(entries) if entries.is_empty() => out.push_str(" {}\n"),
        YamlValue::List(items) => {
            out.push('\n');
            for item in items {
                out.push_str(&margin);
                out.push('-');
                write_value(out, item, depth + 1);
            }
        }
        YamlValue::Map(entries) => {
            out.push('\n');
            entries.iter().for_each(|(key, value)| write_entry(out, key, value, depth + 1));
        }
    }
}

/// Text of several lines that a literal block holds as it is.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.trim_matches('\n').is_empty()
        && text.chars().all(|c| c == '\n' || c == '\t' || is_printable(c))
}

fn is_printable(letter: char) -> bool {
    !letter.is_control() && !matches!(letter, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// A text on one line, in quotes where it needs them.
fn scalar(text: &str) -> String {
    let raw = Raw { text: text.to_owned(), kind: Kind::Plain };
    let is_text = [Dialect::Core, Dialect::Python].iter().all(|dialect| resolve(&raw, *dialect) == Scalar::Text);
    let starts_well = text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '$' | '~' | '('));
    let ends_well = !text.ends_with([' ', ':']);
    let is_simple = !text.contains(": ") && !text.contains(" #") && text.chars().all(is_printable);
    if is_text && starts_well && ends_well && is_simple && !text.contains("\t") {
        return text.to_owned();
    }
    if text.chars().all(is_printable) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            _ if is_printable(letter) => quoted.push(letter),
            _ => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(letter));
            }
        }
    }
    quoted.push('"');
    quoted
}
