//! Reads texts from files: CSV or JSONL with a text per record, or plain text as one document.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use domain::train::Text;
use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::Error;
use crate::error::layout;
use crate::files::plain_file;
use crate::formats::Record;

/// The form of a file, inferred from its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Csv,
    Jsonl,
    /// The lines of a plain text, which together are the complete file.
    Plain,
}

/// Returns the format of the file at `path`; compressed files have the additional extension `.gz`.
pub(crate) fn form(path: &Path) -> Result<Form, Error> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    match name.strip_suffix(".gz").unwrap_or(&name) {
        name if name.ends_with(".csv") => Ok(Form::Csv),
        name if name.ends_with(".jsonl") => Ok(Form::Jsonl),
        name if name.ends_with(".txt") => Ok(Form::Plain),
        _ => Err(layout(
            path,
            "it is no text that is known by its name",
            "name a `.csv`, `.jsonl` or `.txt` file, or one of them with `.gz`",
        )),
    }
}

/// A callback for each record in turn.
pub(crate) type Take<'a> = &'a mut dyn FnMut(Record) -> Result<(), Error>;

/// Reads the file record by record, of which one is in memory at a time.
pub(crate) fn each(path: &Path, form: Form, keys: &Text, take: Take<'_>) -> Result<(), Error> {
    let mut is_empty = true;
    let taken: Take<'_> = &mut |record| {
        is_empty = false;
        take(record)
    };
    match form {
        Form::Csv => csv(path, open(path)?, keys, taken)?,
        Form::Jsonl => jsonl(path, keys, taken)?,
        Form::Plain => lines(path, |number, line| {
            taken(Record { text: line.to_owned(), pair: None, class: None, line: number as u64 })
        })?,
    }
    match is_empty {
        true => Err(layout(path, "it holds no text", "give a file with at least one record")),
        false => Ok(()),
    }
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, Error> {
    let read = |source| Error::Read { name: path.display().to_string(), source };
    let file = match plain_file::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Error::Missing { path: path.into() }),
        Err(error) => return Err(read(error)),
    };
    match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
        true => Ok(Box::new(BufReader::new(MultiGzDecoder::new(file)))),
        false => Ok(Box::new(file)),
    }
}

/// Every line with what ends it, and its number from 1.
fn lines(path: &Path, mut take: impl FnMut(usize, &str) -> Result<(), Error>) -> Result<(), Error> {
    let mut file = open(path)?;
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let read = file.read_until(b'\n', &mut bytes);
        if read.map_err(|source| Error::Read { name: path.display().to_string(), source })? == 0 {
            return Ok(());
        }
        take(number, std::str::from_utf8(&bytes).map_err(|_| no_utf8(path, number as u64))?)?;
    }
    Ok(())
}

fn no_utf8(path: &Path, line: u64) -> Error {
    layout(path, format!("line {line} is not UTF-8"), "convert it, for example with `iconv -t UTF-8`")
}

/// Columns are named by the first row, or counted from 1 where only numbers are given.
fn csv(path: &Path, file: impl Read, keys: &Text, take: Take<'_>) -> Result<(), Error> {
    let numbered = keys
        .columns
        .iter()
        .chain(&keys.pair)
        .chain(&keys.label)
        .all(|column| column.parse::<usize>().is_ok_and(|at| at > 0));
    let mut reader = csv::ReaderBuilder::new().has_headers(!numbered).flexible(true).from_reader(file);
    let broken = |error: csv::Error| {
        let why = format!("it is no CSV: {error}");
        match error.into_kind() {
            csv::ErrorKind::Utf8 { pos, .. } => no_utf8(path, pos.map_or(1, |pos| pos.line())),
            csv::ErrorKind::Io(source) => Error::Read { name: path.display().to_string(), source },
            _ => layout(path, &why, "put texts with commas or quotes in quotes"),
        }
    };
    let names: Vec<String> = match numbered {
        true => Vec::new(),
        false => reader.headers().map_err(broken)?.iter().map(|name| name.trim().to_owned()).collect(),
    };
    let index = |column: &String| -> Result<usize, Error> {
        if numbered {
            return Ok(column.parse::<usize>().unwrap_or(1) - 1);
        }
        names.iter().position(|name| name == column).ok_or_else(|| {
            let hint = "name columns of the first row, or number them from 1 (`\"1\"`) if it is not a header";
            layout(path, format!("it has no column `{column}`, only {}", crate::error::shorten(&names)), hint)
        })
    };
    let columns = keys.columns.iter().map(index).collect::<Result<Vec<usize>, Error>>()?;
    let [pair, label] = [&keys.pair, &keys.label].map(|key| key.as_ref().map(index).transpose());
    let (pair, label) = (pair?, label?);
    for row in reader.records() {
        let row = row.map_err(broken)?;
        let line = row.position().map_or(0, csv::Position::line);
        let field = |at: usize| {
            let missing =
                || format!("the row in line {line} has {} columns, and column {} is requested", row.len(), at + 1);
            row.get(at).ok_or_else(|| layout(path, missing(), "correct the row, or name other columns"))
        };
        let parts = columns.iter().map(|at| field(*at)).collect::<Result<Vec<&str>, Error>>()?;
        let pair = pair.map(field).transpose()?.map(str::to_owned);
        let class = label.map(field).transpose()?.map(|class| class.trim().to_owned());
        take(Record { text: parts.join(" "), pair, class, line })?;
    }
    Ok(())
}

fn jsonl(path: &Path, keys: &Text, take: Take<'_>) -> Result<(), Error> {
    lines(path, |number, line| {
        // Some programs of Windows begin a file with the mark of UTF-8.
        let line = if number == 1 { line.trim_start_matches('\u{feff}') } else { line };
        if line.trim().is_empty() {
            return Ok(());
        }
        let wrong = |why: String| layout(path, format!("line {number}: {why}"), "write one JSON object a line");
        let value: Value = serde_json::from_str(line).map_err(|error| wrong(format!("no JSON: {error}")))?;
        let field = |key: &String| match &value[key.as_str()] {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(value) => Ok(value.to_string()),
            Value::Null => Err(wrong(format!("the key `{key}` is missing"))),
            Value::Array(_) | Value::Object(_) => Err(wrong(format!("the value of `{key}` is no text"))),
        };
        let parts = keys.columns.iter().map(field).collect::<Result<Vec<String>, Error>>()?;
        let pair = keys.pair.as_ref().map(field).transpose()?;
        let class = keys.label.as_ref().map(field).transpose()?;
        take(Record { text: parts.join(" "), pair, class, line: number as u64 })
    })
}
