//! Trials that are written row by row: `sweep.table` is a CSV file, or a list of rows. Its columns are keys as under
//! `sweep.parameters`, and every row has a value of each.

use serde_json::Value as Json;

use super::super::sense::is_variable;
use super::super::tree::{self, Key, Kind, MAX_BYTES, Node, Raw, Value, clip};
use super::{Reader, Space};
use crate::problem::Problem;
use crate::sweep::{MOST_TRIALS, VARIABLES};

/// Where the rows stand.
pub(super) const PLACE: &str = "sweep.table";

/// The text of a file that is named by `sweep.table`, or why it cannot be had: `cannot be read: …`.
pub(in crate::file) type TableFiles<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Columns, each with a value for every row.
type Columns = Vec<(Key, Vec<Node>)>;

/// The columns of a table whose key is on `line`; none if it cannot be read, which is a problem.
pub(super) fn columns(line: u32, node: &Node, tables: TableFiles, problems: &mut Vec<Problem>) -> Columns {
    let (found, hint) = match &node.value {
        Value::Scalar(raw) => {
            let named = |why: String| (line, format!("`{}` {why}", clip(&raw.text)));
            let found = tables(&raw.text).and_then(|text| of_csv(&text, line)).map_err(named);
            (found, "the first line names the keys, such as `envs.LR,envs.SEED`; each other line is a trial")
        }
        Value::List(rows) => (of_rows(rows, line), "write rows such as `- {envs.LR: 0.1, envs.SEED: 1}`"),
        Value::Map(_) => {
            (Err((line, "expected a file or a list of rows".to_owned())), "write for example `table: trials.csv`")
        }
    };
    found.unwrap_or_else(|(line, message)| {
        problems.push(Problem { line: Some(line), ..Problem::at(PLACE, message) }.hint(hint));
        Vec::new()
    })
}

/// Says in which row a problem is.
pub(super) fn in_row(problem: &mut Problem, index: usize) {
    problem.message = format!("row {}: {}", index + 1, problem.message);
}

/// A number; variables have theirs as text.
pub(super) fn number(value: &Json) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()).filter(|number: &f64| number.is_finite())
}

/// A whole number; variables have theirs as text.
pub(super) fn integer(value: &Json) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Rows as they stand in the job file.
fn of_rows(rows: &[Node], line: u32) -> Result<Columns, (u32, String)> {
    let mut columns: Columns = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let Value::Map(cells) = &row.value else {
            return Err((row.line, format!("row {} is no mapping of keys to values", index + 1)));
        };
        if index == 0 {
            columns.extend(cells.iter().map(|(key, _)| (key.clone(), Vec::new())));
        }
        for (key, values) in &mut columns {
            let name = &key.raw.text;
            let (_, cell) = row.get(name).ok_or_else(|| (row.line, format!("row {} has no `{name}`", index + 1)))?;
            values.push(cell.clone());
        }
        let is_known = |key: &Key| columns.iter().any(|(column, _)| column.raw.text == key.raw.text);
        if let Some((key, _)) = cells.iter().find(|(key, _)| !is_known(key)) {
            return Err((key.line, format!("row {} has `{}`, and row 1 has not", index + 1, clip(&key.raw.text))));
        }
    }
    if columns.is_empty() { Err((line, "the table has no rows".to_owned())) } else { Ok(columns) }
}

/// The rows of a CSV text, whose first record names the keys.
fn of_csv(text: &str, line: u32) -> Result<Columns, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("has {} bytes; a table has at most {MAX_BYTES}", text.len()));
    }
    let mut records = records(text)?.into_iter();
    let head = records.next().ok_or("is empty")?;
    let mut columns: Columns = Vec::new();
    for (name, _) in head {
        let name = name.trim().to_owned();
        if name.is_empty() {
            return Err(format!("has no name for column {}", columns.len() + 1));
        }
        if columns.iter().any(|(column, _)| column.raw.text == name) {
            return Err(format!("has two columns `{}`", clip(&name)));
        }
        columns.push((Key { line, raw: Raw { text: name, kind: Kind::Text } }, Vec::new()));
    }
    for (record, row) in records.zip(1_u32..) {
        if row > MOST_TRIALS {
            return Err(format!("has more than {MOST_TRIALS} rows, the most that a sweep may have"));
        }
        if record.len() != columns.len() {
            return Err(format!("has {} cells in row {row}, and {} columns", record.len(), columns.len()));
        }
        for ((key, values), cell) in columns.iter_mut().zip(record) {
            values.push(node_of(&key.raw.text, cell, line).map_err(|why| format!("{why} in row {row}"))?);
        }
    }
    let is_empty = columns.iter().all(|(_, values)| values.is_empty());
    if is_empty { Err("has no rows below the names of its columns".to_owned()) } else { Ok(columns) }
}

/// A cell as a job file has the value: a variable's is text, others may be lists.
fn node_of(name: &str, (text, is_quoted): (String, bool), line: u32) -> Result<Node, String> {
    if is_quoted || name.starts_with(VARIABLES) {
        let text = if is_quoted { text } else { text.trim().to_owned() };
        return Ok(Node { line, value: Value::Scalar(Raw { text, kind: Kind::Text }) });
    }
    if text.trim().is_empty() {
        return Err(format!("has no value of `{}`", clip(name)));
    }
    let read = tree::read(&format!("value: {}", text.trim())).ok();
    let node = read.and_then(|(tree, _)| tree.get("value").map(|(_, node)| Node { line, ..node.clone() }));
    node.ok_or_else(|| format!("has the value `{}` of `{}`, which cannot be read", clip(&text), clip(name)))
}

/// The records of a CSV text (RFC 4180) without blank lines; each cell with whether it is in quotes.
fn records(text: &str) -> Result<Vec<Vec<(String, bool)>>, String> {
    let (mut records, mut record) = (Vec::new(), Vec::new());
    let (mut cell, mut is_quoted, mut is_open) = (String::new(), false, false);
    let mut letters = text.trim_start_matches('\u{feff}').chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_open && letters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' if is_open => is_open = false,
            '"' if cell.is_empty() && !is_quoted => (is_open, is_quoted) = (true, true),
            _ if is_open => cell.push(letter),
            ',' => record.push((std::mem::take(&mut cell), std::mem::take(&mut is_quoted))),
            '\r' if letters.peek() == Some(&'\n') => {}
            '\n' => {
                record.push((std::mem::take(&mut cell), std::mem::take(&mut is_quoted)));
                records.push(std::mem::take(&mut record));
            }
            _ => cell.push(letter),
        }
    }
    if is_open {
        return Err("has a cell whose quotes do not end".to_owned());
    }
    if is_quoted || !cell.is_empty() || !record.is_empty() {
        record.push((cell, is_quoted));
        records.push(record);
    }
    let is_blank = |record: &[(String, bool)]| matches!(record, [(text, false)] if text.trim().is_empty());
    records.retain(|record| !is_blank(record.as_slice()));
    Ok(records)
}

impl Reader<'_> {
    /// Whether the key is a variable of a program.
    pub(super) fn is_swept_variable(&mut self, space: &Space) -> bool {
        let (key, line) = (self.key.raw.text.as_str(), self.key.line);
        match key.strip_prefix(VARIABLES) {
            Some(_) if !space.is_program => {
                self.wrong("", line, "only a `run:` program has variables", "name a key of `train`");
            }
            None => {
                let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
                let name: String = key.chars().map(upper).collect();
                let message =
                    format!("`{}` is no variable, and a `run:` program has no other keys to search", clip(key));
                self.wrong("", line, message, format!("write `{VARIABLES}{}`", clip(&name)));
            }
            Some(name) if !is_variable(name) => {
                let message = format!("`{}` is no name of a variable", clip(name));
                self.wrong("", line, message, "use letters, digits and `_`, and no digit first");
            }
            Some(_) => return true,
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::records;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let said = match records(text) {
            Ok(records) => {
                let cell =
                    |(text, is_quoted): &(String, bool)| if *is_quoted { format!("<{text}>") } else { text.clone() };
                let line = |record: &Vec<(String, bool)>| record.iter().map(cell).collect::<Vec<_>>().join("|");
                records.iter().map(line).collect::<Vec<_>>().join("/")
            }
            Err(why) => why,
        };
        assert_eq!(said, expected, "{text:?}");
    }

    #[test]
    fn csv_is_read_as_rfc_4180_has_it() {
        check("a,b\n1,2\n", "a|b/1|2");
        check("\u{feff}a,b\r\n1,2", "a|b/1|2");
        check("a\n\n  \n1\n", "a/1");
        check("a,b\n\"x, \"\"y\"\"\nz\",\n", "a|b/<x, \"y\"\nz>|");
        check("a\n\"\"\n", "a/<>");
        check("a\n\"x\n", "has a cell whose quotes do not end");
        check("", "");
    }
}
