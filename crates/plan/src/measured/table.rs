//! Comma-separated tables with a header line, as RFC 4180 has them.

/// Returns the fields of each line; lines may differ in length, and those that hold nothing are left out.
pub fn lines(text: &str) -> Vec<Vec<String>> {
    numbered(text).into_iter().map(|(_, fields)| fields).collect()
}

/// The same with the number of each line, from 1.
pub fn numbered(text: &str) -> Vec<(u64, Vec<String>)> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    // Text is no source of errors: it is valid UTF-8, and lines may have any length.
    let records = reader.records().filter_map(Result::ok);
    let (bytes, mut line, mut counted) = (text.as_bytes(), 1, 0);
    let lines = records.map(|record| {
        // A record's place is behind the one before, and empty lines may follow that.
        let behind = record.position().map_or(counted, |place| (place.byte() as usize).clamp(counted, bytes.len()));
        let empty = bytes[behind..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let begin = behind + empty;
        line += bytes[counted..begin].iter().filter(|byte| **byte == b'\n').count() as u64;
        counted = begin;
        (line, record.iter().map(str::to_owned).collect::<Vec<_>>())
    });
    lines.filter(|(_, line)| line.iter().any(|field| !field.is_empty())).collect()
}

#[cfg(test)]
mod tests {
    use super::{lines, numbered};

    #[test]
    fn quotes_hold_commas_quotes_and_line_breaks() {
        let read = lines("a,b\r\n\"1,\"\"x\"\"\n2\",\n\n3,4");
        assert_eq!(read, [vec!["a", "b"], vec!["1,\"x\"\n2", ""], vec!["3", "4"]]);
        let places: Vec<u64> = numbered("a\n\"x\ny\"\n\n3\n").into_iter().map(|(line, _)| line).collect();
        assert_eq!(places, [1, 2, 5]);
    }
}
