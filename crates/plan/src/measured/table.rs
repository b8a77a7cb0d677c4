//! Comma-separated tables with a header line, as RFC 4180 has them.

/// Returns the fields of each line; lines may differ in length, and those that hold nothing are left out.
pub fn lines(text: &str) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    // Text is no source of errors: it is valid UTF-8, and lines may have any length.
    let records = reader.records().filter_map(Result::ok);
    let lines = records.map(|record| record.iter().map(str::to_owned).collect::<Vec<_>>());
    lines.filter(|line| line.iter().any(|field| !field.is_empty())).collect()
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn quotes_hold_commas_quotes_and_line_breaks() {
        let read = lines("a,b\r\n\"1,\"\"x\"\"\n2\",\n\n3,4");
        assert_eq!(read, [vec!["a", "b"], vec!["1,\"x\"\n2", ""], vec!["3", "4"]]);
    }
}
