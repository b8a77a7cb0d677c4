//! Wraps lines at words for a narrow terminal; continuations are indented to the text, not to its label.

/// The widest label that text is aligned below.
const LABEL: usize = 24;

/// Breaks each line of a text that is wider than `width`. A word that is wider than a line, such as a path, stays whole.
pub fn wrapped(text: &str, width: usize) -> String {
    text.split('\n').map(|line| of_line(line, width)).collect::<Vec<_>>().join("\n")
}

fn of_line(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let indent = indent(line).min(width / 2);
    let (mut lines, mut current) = (Vec::new(), String::new());
    for word in line.split_inclusive(' ') {
        let fits = current.chars().count() + word.trim_end().chars().count() <= width;
        if !fits && !current.trim().is_empty() {
            lines.push(current.trim_end().to_owned());
            current = " ".repeat(indent);
        }
        current.push_str(word);
    }
    lines.push(current.trim_end().to_owned());
    lines.join("\n")
}

/// Where the text of a line begins: behind its label, a word that at least two spaces follow; or at its own indent.
fn indent(line: &str) -> usize {
    let own = line.len() - line.trim_start().len();
    let label = line[own..].find("  ").filter(|end| own + end <= LABEL);
    let Some(end) = label else {
        // `hint: text` and `rank 0 | text` go on below the text.
        let sign = [": ", " | "].iter().filter_map(|sign| Some(line[own..].find(sign)? + sign.len())).min();
        return sign.filter(|at| *at <= 10).map_or(own + 2, |at| own + at);
    };
    let rest = &line[own + end..];
    own + end + (rest.len() - rest.trim_start().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_words_below_their_text() {
        let check = |line: &str, width: usize, expected: &str| assert_eq!(wrapped(line, width), expected, "{width}");
        check("job      digits", 60, "job      digits");
        check("assumed  a step takes 8.75 ms", 20, "assumed  a step\n         takes 8.75\n         ms");
        check("  hint: try `gradus status` first", 22, "  hint: try `gradus\n        status` first");
        check("error: no such run is known here", 20, "error: no such run\n       is known here");
        check("model    /a/very/long/path/of/a/file", 20, "model\n         /a/very/long/path/of/a/file");
        check("one two three", 8, "one two\n  three");
        check("a\nlonger line here", 8, "a\nlonger\n  line\n  here");
        check("rank 0 | epoch 1 loss 2.0", 18, "rank 0 | epoch 1\n         loss 2.0");
    }
}
