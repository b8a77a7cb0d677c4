//! `gpu read`: lines of results as the tables of `docs/gpu.md`.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::section::SECTIONS;
use super::{End, Line, Section, Verdict};
use crate::doing::Outcome;

/// The page, and the lines between which the tables stand.
const PAGE: &str = "docs/gpu.md";
const BEGIN: &str = "<!-- measured: begin -->";
const FINISH: &str = "<!-- measured: end -->";

/// Puts the tables of a file into the page.
pub(super) fn read(root: &Path, file: &Path) -> Outcome {
    let text = open(file)?;
    let devices: Vec<String> = text.lines().filter_map(Line::parse).filter_map(device).collect();
    let Some(first) = devices.first() else {
        return Err(format!(
            "the lines of `{}` are of a machine without a CUDA device\n  hint: `--print` shows them",
            file.display()
        )
        .into());
    };
    if let Some(other) = devices.iter().find(|device| *device != first) {
        return Err(format!("`{}` mixes lines of `{first}` and `{other}`", file.display()).into());
    }
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    fs::write(&path, replaced(&page, &tables(&text))?)?;
    Ok(format!("`{PAGE}` has the tables of `{}`", file.display()))
}

/// Prints the tables of a file.
pub(super) fn print(file: &Path) -> Outcome {
    println!("{}", tables(&open(file)?));
    Ok(format!("tables of `{}`", file.display()))
}

fn open(file: &Path) -> Result<String, Box<dyn Error>> {
    Ok(fs::read_to_string(file).map_err(|error| format!("cannot read `{}`: {error}", file.display()))?)
}

fn device(line: Line) -> Option<String> {
    match line {
        Line::Machine { device, .. } => device,
        Line::Case { .. } | Line::Ended { .. } => None,
    }
}

/// The page with other tables.
pub(super) fn replaced(page: &str, tables: &str) -> Result<String, String> {
    let found = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(FINISH)?.1)));
    let (before, after) = found.ok_or_else(|| format!("`{PAGE}` has no lines `{BEGIN}` and `{FINISH}`"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{FINISH}{after}", tables.trim()))
}

/// How many cases passed, and how many did not: cases that failed, and sections that did not come to their end.
pub(super) fn counts(text: &str) -> (usize, usize) {
    let (mut passed, mut failed) = (0, 0);
    for section in SECTIONS {
        let (cases, end) = of_section(text, &section);
        passed += cases.iter().filter(|case| case.verdict == Verdict::Passed).count();
        failed += cases.iter().filter(|case| case.verdict == Verdict::Failed).count();
        failed += usize::from(matches!(end, Some((End::Failed | End::TimedOut, _))));
    }
    (passed, failed)
}

/// All tables, below a sentence that says when and where.
pub fn tables(text: &str) -> String {
    let mut tables = String::new();
    for line in text.lines().filter_map(Line::parse) {
        if let Line::Machine { date, device, facts } = line {
            let device = device.unwrap_or_else(|| "a machine without a CUDA device".to_owned());
            let facts: Vec<String> = facts.iter().map(|(key, value)| format!("{key} {}", shown(value))).collect();
            tables.clear();
            let day = date.split('T').next().unwrap_or(&date);
            let _ = writeln!(tables, "Measured on {day} on {device} ({}) by `cargo xtask gpu run`.", facts.join(", "));
        }
    }
    for section in SECTIONS {
        if let Some(table) = table_of(text, &section) {
            let _ = write!(tables, "\n{table}");
        }
    }
    tables
}

/// A case as a row of a table.
struct Row {
    case: String,
    verdict: Verdict,
    note: String,
    figures: Map<String, Value>,
}

/// The newest line of each case of a section, and how the section ended last.
fn of_section(text: &str, section: &Section) -> (Vec<Row>, Option<(End, String)>) {
    let (mut rows, mut ended): (Vec<Row>, _) = (Vec::new(), None);
    for line in text.lines().filter_map(Line::parse) {
        match line {
            Line::Case { section: of, case, verdict, note, figures } if of == section.name => {
                let row = Row { case, verdict, note, figures };
                match rows.iter_mut().find(|known| known.case == row.case) {
                    Some(known) => *known = row,
                    None => rows.push(row),
                }
            }
            Line::Ended { section: of, end, note, .. } if of == section.name => ended = Some((end, note)),
            Line::Machine { .. } | Line::Case { .. } | Line::Ended { .. } => {}
        }
    }
    (rows, ended)
}

/// The table of one section; none where its lines say nothing of it.
pub fn table_of(text: &str, section: &Section) -> Option<String> {
    let (rows, ended) = of_section(text, section);
    if rows.is_empty() && ended.is_none() {
        return None;
    }
    let mut table = format!("### {}\n\n", section.what);
    let how = match &ended {
        Some((End::Done, _)) => None,
        Some((end, note)) if note.is_empty() => Some(end.name().to_owned()),
        Some((end, note)) => Some(format!("{}: {note}", end.name())),
        None => Some("cut off".to_owned()),
    };
    if let Some(how) = how {
        let _ = writeln!(table, "`{}`: {how}.\n", section.name);
    }
    if rows.is_empty() {
        return Some(table.trim_end().to_owned() + "\n");
    }
    let mut keys: Vec<&String> = Vec::new();
    for key in rows.iter().flat_map(|row| row.figures.keys()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let has_notes = rows.iter().any(|row| !row.note.is_empty());
    let mut heads = vec!["case".to_owned(), "passed".to_owned()];
    heads.extend(keys.iter().map(|key| key.replace('_', " ")));
    heads.extend(has_notes.then(|| "note".to_owned()));
    let _ = writeln!(table, "| {} |\n|{}", heads.join(" | "), "---|".repeat(heads.len()));
    for row in &rows {
        let verdict = match row.verdict {
            Verdict::Passed => "yes",
            Verdict::Failed => "**no**",
            Verdict::Stated => "–",
        };
        let mut fields = vec![row.case.clone(), verdict.to_owned()];
        fields.extend(keys.iter().map(|key| row.figures.get(*key).map_or_else(String::new, shown)));
        fields.extend(has_notes.then(|| row.note.replace('|', "/").replace('\n', " ")));
        let _ = writeln!(table, "| {} |", fields.join(" | "));
    }
    Some(table)
}

/// A figure with as many digits as it is worth.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.replace('|', "/"),
        Value::Number(number) if !number.is_f64() => number.to_string(),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            match number.abs() {
                0.0 => "0".to_owned(),
                size if size >= 100.0 => format!("{number:.0}"),
                size if size >= 10.0 => format!("{number:.1}"),
                size if size >= 0.1 => format!("{number:.3}"),
                size if size >= 0.001 => format!("{number:.4}"),
                _ => format!("{number:.1e}"),
            }
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
