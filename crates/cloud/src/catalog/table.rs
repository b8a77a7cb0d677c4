//! Reads CSV tables row by row, and reports errors with their line. Columns are found by name, so that a table may gain
//! columns without breaking older readers.

use crate::catalog::Error;

/// Calls `take` with the cells of `columns` of every row, in that order, trimmed.
///
/// # Errors
/// [`Error`] with file and line: malformed CSV, a missing column, or an error of `take`.
pub fn rows<const N: usize>(
    file: &str,
    text: &str,
    columns: [&str; N],
    mut take: impl FnMut([&str; N]) -> Result<(), String>,
) -> Result<(), Error> {
    optional_rows(file, text, columns, N, |cells, _| take(cells))
}

/// As [`rows`], where only the first `needed` columns must be there; cells of a missing column are empty. `take` also
/// gets the line.
pub fn optional_rows<const N: usize>(
    file: &str,
    text: &str,
    columns: [&str; N],
    needed: usize,
    mut take: impl FnMut([&str; N], u64) -> Result<(), String>,
) -> Result<(), Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // Cells are trimmed when they are taken: trimming a whole record copies it.
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let at = |line: u64, message: String| Error::row(file, line, message);
    let wrong = |error: csv::Error| at(error.position().map_or(1, csv::Position::line), describe(&error));
    let head: Vec<String> = reader.headers().map_err(wrong)?.iter().map(|name| name.trim().to_owned()).collect();
    if head.iter().all(String::is_empty) {
        return Err(at(1, "the file is empty; its first line must name its columns".to_owned()));
    }
    let mut places = [None; N];
    for (place, column) in places.iter_mut().zip(columns) {
        *place = head.iter().position(|name| name == column);
    }
    let missing: Vec<String> =
        (0..needed).filter(|index| places[*index].is_none()).map(|index| format!("`{}`", columns[index])).collect();
    if !missing.is_empty() {
        let there = head.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return Err(at(1, format!("no column {}; there are {there}", missing.join(", "))));
    }
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(wrong)? {
        let line = record.position().map_or(1, csv::Position::line);
        let cells = places.map(|place| place.and_then(|place| record.get(place)).unwrap_or_default().trim());
        take(cells, line).map_err(|message| at(line, message))?;
    }
    Ok(())
}

/// The error without its position, which is printed anyway.
fn describe(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the row has {len} cells and the first line {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "the row is not UTF-8".to_owned(),
        _ => error.to_string(),
    }
}

/// A finite, non-negative number; `None` for an empty cell.
///
/// # Errors
/// A sentence with the column's name.
pub fn number(column: &str, cell: &str) -> Result<Option<f64>, String> {
    if cell.is_empty() {
        return Ok(None);
    }
    let number: f64 = cell.parse().map_err(|_| format!("`{column}`: `{cell}` is no number"))?;
    if !number.is_finite() || number < 0.0 {
        return Err(format!("`{column}`: `{cell}` is not a finite number of 0 or more"));
    }
    Ok(Some(number))
}

/// A number that must be there.
///
/// # Errors
/// As [`number`], and for an empty cell.
pub fn needed(column: &str, cell: &str) -> Result<f64, String> {
    number(column, cell)?.ok_or_else(|| format!("`{column}` is empty"))
}

/// An integer; `None` for an empty cell. `8.0` is 8.
///
/// # Errors
/// A sentence with the column's name.
pub fn whole(column: &str, cell: &str) -> Result<Option<u32>, String> {
    match number(column, cell)? {
        Some(number) if number.fract() == 0.0 && number <= f64::from(u32::MAX) => Ok(Some(number as u32)),
        Some(_) => Err(format!("`{column}`: `{cell}` is no whole number")),
        None => Ok(None),
    }
}

/// Nonempty text.
pub fn text(cell: &str) -> Option<String> {
    Some(cell.to_owned()).filter(|cell| !cell.is_empty())
}

/// A size in GiB; `None` for an empty cell.
///
/// # Errors
/// As [`number`].
pub fn gibibytes(column: &str, cell: &str) -> Result<Option<domain::Bytes>, String> {
    Ok(number(column, cell)?.map(|gibibytes| domain::Bytes((gibibytes * f64::from(1 << 30)).round() as u64)))
}
