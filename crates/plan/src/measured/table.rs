//! Comma-separated tables with a header line, as RFC 4180 has them.

/// Returns the fields of each line; quoted fields may hold commas, doubled quotes and line breaks.
pub fn lines(text: &str) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    let (mut line, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, quoted) {
            ('"', true) if characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            ('"', _) => quoted = !quoted,
            (',', false) => line.push(std::mem::take(&mut field)),
            ('\r', false) => {}
            ('\n', false) => {
                line.push(std::mem::take(&mut field));
                lines.push(std::mem::take(&mut line));
            }
            (other, _) => field.push(other),
        }
    }
    if !field.is_empty() || !line.is_empty() {
        line.push(field);
        lines.push(line);
    }
    lines.retain(|line| line.iter().any(|field| !field.is_empty()));
    lines
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
