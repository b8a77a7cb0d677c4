//! A JSON value as YAML, for people to read.

use serde_json::Value;

/// Writes `value` in block style, with an indent of two spaces; keys without a value are omitted.
pub fn yaml(value: &Value) -> String {
    let mut text = String::new();
    block(&mut text, value, 0);
    text
}

fn block(text: &mut String, value: &Value, depth: usize) {
    let Value::Object(entries) = value else {
        text.push_str(&flow(value));
        text.push('\n');
        return;
    };
    for (key, value) in entries.iter().filter(|(_, value)| !is_nothing(value)) {
        text.push_str(&"  ".repeat(depth));
        text.push_str(&scalar(key));
        match value {
            Value::Object(_) => {
                text.push_str(":\n");
                block(text, value, depth + 1);
            }
            Value::String(lines) if lines.contains('\n') => literal(text, lines, depth + 1),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                text.push_str(": ");
                text.push_str(&flow(value));
                text.push('\n');
            }
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.values().all(is_nothing),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Text of several lines.
fn literal(text: &mut String, lines: &str, depth: usize) {
    text.push_str(if lines.ends_with('\n') { ": |\n" } else { ": |-\n" });
    for line in lines.trim_end_matches('\n').split('\n') {
        text.push_str(&"  ".repeat(depth));
        text.push_str(line);
        text.push('\n');
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{}: {}", scalar(key), flow(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A plain scalar if it is unambiguous, and a quoted one otherwise.
fn scalar(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./$ %".contains(letter);
    let begins_plain = text.starts_with(|letter: char| letter.is_alphanumeric() || "_/.$".contains(letter));
    let is_word = matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off");
    let is_number = text.parse::<f64>().is_ok();
    match begins_plain && text.chars().all(is_plain) && !text.ends_with(' ') && !is_word && !is_number {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_yaml() {
        let check = |json: &str, expected: &str| {
            assert_eq!(yaml(&serde_json::from_str(json).unwrap()), expected);
        };
        check(r#"{"name": "digits", "epochs": 3, "none": null, "empty": {"a": null}}"#, "name: digits\nepochs: 3\n");
        check(r#"{"a": {"b": [0.7, 0.2, 0.1]}}"#, "a:\n  b: [0.7, 0.2, 0.1]\n");
        check(
            r#"{"a": "true", "b": "1", "c": "x: y", "d": "", "e": "$12"}"#,
            "a: \"true\"\nb: \"1\"\nc: \"x: y\"\nd: \"\"\ne: $12\n",
        );
        check(r#"{"run": "one\ntwo\n"}"#, "run: |\n  one\n  two\n");
        check(r#"{"augment": ["flip", {"pad_crop": 4}]}"#, "augment: [flip, {pad_crop: 4}]\n");
    }
}
