//! The plan of a job on this machine as a page that stands alone: what the terminal shows, in a table.

use maud::html;

use super::market::frame;

/// Columns of a line's label.
const LABEL: usize = 9;

/// Renders the page. A line is a label and a text; an indented line continues the one before it.
pub fn html(name: &str, lines: &[String]) -> String {
    let mut rows: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines {
        let (label, text) = line.split_at_checked(LABEL).unwrap_or((line, ""));
        match (label.trim(), rows.last_mut()) {
            ("", Some((_, texts))) => texts.push(text),
            (label, _) => rows.push((label, vec![text])),
        }
    }
    let (assumed, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(label, _)| *label == "assumed");
    let body = html! {
        p { "On this machine, as `gradus plan` shows it." }
        div class="scroll" role="region" tabindex="0" aria-label="Plan" {
            table class="ruled" {
                tbody {
                    @for (label, texts) in &rows {
                        tr { th scope="row" { (label) } td { (texts.join(" ")) } }
                    }
                }
            }
        }
        @if !assumed.is_empty() {
            h2 { "Assumed" }
            ul { @for (_, texts) in &assumed { li { (texts.join(" ")) } } }
        }
    };
    frame(name, &body)
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_become_rows_and_text_is_escaped() {
        let lines = ["job      a<b", "note     one", "         two", "assumed  a core"].map(str::to_owned);
        let page = super::html("a<b", &lines);
        assert!(page.contains("<th scope=\"row\">note</th><td>one two</td>"), "{page}");
        assert!(page.contains("<li>a core</li>") && !page.contains("a<b"), "{page}");
    }
}
