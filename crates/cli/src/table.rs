//! Tables of aligned columns without borders, readable in a log.

/// Lines of a table: the head, then the rows.
pub fn lines(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let body = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(head.to_vec())).chain(body).collect()
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["digits-1".to_owned(), "trained".to_owned()], vec!["b".to_owned(), "é".to_owned()]];
        assert_eq!(lines(&["run", "state"], &rows), ["run       state", "digits-1  trained", "b         é"]);
    }
}
