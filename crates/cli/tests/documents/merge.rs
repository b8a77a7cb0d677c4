//! A document's output brought up to date: lines that still match stay as they were written, wildcards included.

use crate::text::line_without_figures;

/// What a document should show, from what it shows and what was printed.
pub fn merge(shown: &str, printed: &str, figures_vary: bool) -> String {
    let (shown, printed): (Vec<&str>, Vec<&str>) = (shown.lines().collect(), printed.lines().collect());
    let find = |line: &str, from: usize| (from..printed.len()).find(|at| matches(line, printed[*at], figures_vary));
    let (mut lines, mut at) = (Vec::new(), 0);
    for (index, line) in shown.iter().enumerate() {
        if *line == "..." {
            // Stands for all lines up to the next that is shown; without one, for the rest.
            let next = shown[index + 1..].iter().find_map(|next| find(next, at));
            lines.push(*line);
            at = next.unwrap_or(printed.len());
        } else if let Some(found) = find(line, at) {
            lines.extend(&printed[at..found]);
            lines.push(line);
            at = found + 1;
        }
    }
    lines.extend(&printed[at..]);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Whether a shown line stands for a printed one.
fn matches(shown: &str, printed: &str, figures_vary: bool) -> bool {
    let [shown, printed] = [shown, printed].map(|line| match figures_vary {
        true => line_without_figures(line),
        false => line.trim_end().to_owned(),
    });
    let Some((start, parts)) = shown.split_once("[..]") else { return shown == printed };
    let Some(mut rest) = printed.strip_prefix(start) else { return false };
    let mut parts = parts.split("[..]").peekable();
    while let Some(part) = parts.next() {
        let found = if parts.peek().is_none() { rest.strip_suffix(part).map(|_| rest.len()) } else { None };
        let found = found.or_else(|| parts.peek().and_then(|_| rest.find(part)).map(|at| at + part.len()));
        match found {
            Some(end) => rest = &rest[end..],
            None => return false,
        }
    }
    true
}

#[test]
fn lines_that_match_stay_and_others_follow_what_was_printed() {
    let shown = "job  a\nmachine [..]: 2 cores\nold\nepoch 1/30\n...\nbill $1\n";
    let printed = "job  a\nmachine Xeon: 2 cores\nnew\nepoch 2/30\nepoch 3/30\nnote\nbill $2\nend\n";
    let merged = "job  a\nmachine [..]: 2 cores\nnew\nepoch 1/30\n...\nbill $1\nend\n";
    assert_eq!(merge(shown, printed, true), merged);
    assert_eq!(merge("", "a\n", false), "a\n");
}
