//! Suggestions for mistyped names.

/// The known name with the smallest edit distance to `written`, if it is near enough; the first one on a tie.
pub fn nearest<'word>(written: &str, known: impl IntoIterator<Item = &'word str>) -> Option<&'word str> {
    let letters = written.chars().count();
    if letters > 64 {
        return None;
    }
    // A third of the letters may differ, and in short names one of them.
    let limit = (letters / 3).max(1);
    let lower = written.to_lowercase().replace('-', "_");
    let mut best: Option<(usize, &str)> = None;
    for word in known {
        let distance = distance(&lower, &word.to_lowercase());
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, word));
        }
    }
    best.map(|(_, word)| word)
}

/// Optimal string alignment distance: insertions, deletions, replacements and transpositions.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_is_found() {
        let check = |written: &str, expected: Option<&str>| {
            let known = ["model", "data", "epochs", "batch", "lr", "momentum", "weight_decay"];
            assert_eq!(nearest(written, known), expected, "{written}");
        };
        check("modle", Some("model"));
        check("Model", Some("model"));
        check("epoch", Some("epochs"));
        check("weight-decay", Some("weight_decay"));
        check("rl", Some("lr"));
        check("momentmu", Some("momentum"));
        check("x", None);
        check("completely", None);
        check("", None);
    }
}
