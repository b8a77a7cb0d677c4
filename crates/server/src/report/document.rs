//! What every page of a report is made of: the frame of the document, and tables that fit a narrow screen.
//!
//! Pages are written with `maud`, which escapes every text and value of an attribute. What it leaves as it is, control
//! characters of a terminal, [`document`] replaces in the finished page, so that none can come through anywhere.

use std::fmt::Display;

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A page that stands alone: `body` within `main`, with the style sheet of all reports.
pub fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · gradus" }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body { main { (body) } }
        }
    };
    let visible = |letter: char| match letter {
        '\n' | '\t' => letter,
        _ if letter.is_control() => '\u{fffd}',
        _ => letter,
    };
    page.into_string().chars().map(visible).chain(['\n']).collect()
}

/// A table with many columns. Where the screen is narrower than the table, the table scrolls and the page does not; it
/// can be reached and scrolled with the keyboard. `label` says what it holds.
pub fn table(label: &str, class: &str, head: &Markup, rows: &Markup) -> Markup {
    html! {
        div class="scroll" role="region" tabindex="0" aria-label=(label) {
            table class=(class) { thead { tr { (head) } } (rows) }
        }
    }
}

/// A column's header.
pub fn column(name: &str) -> Markup {
    html! { th scope="col" { (name) } }
}

/// The header of a column of numbers.
pub fn number_column(name: &str) -> Markup {
    html! { th scope="col" class="number" { (name) } }
}

/// A cell of a column of numbers.
pub fn number(value: impl Display) -> Markup {
    html! { td class="number" { (value) } }
}

/// A row of a table of names and values.
pub fn fact(name: &str, value: impl Display) -> Markup {
    html! { tr { th scope="row" { (name) } td { (value) } } }
}

/// A figure of the row at the top of a page.
pub fn figure(name: &str, value: impl Display) -> Markup {
    html! { div { b { (value) } span { (name) } } }
}

/// The top of a page: the job's name, how the run or sweep stands, and what there is to say of that.
pub fn header(name: &str, (word, class): (&str, &str), about: &Markup, detail: Option<&str>) -> Markup {
    html! {
        header {
            h1 { (name) }
            span class=(format!("badge {class}")) { (word) }
            p { (about) }
            @if let Some(detail) = detail {
                p class=(class) { (detail) }
            }
        }
    }
}

/// A configuration, as a reader of job files knows it.
pub fn configuration(title: &str, text: &str) -> Markup {
    html! { summary { (title) } pre tabindex="0" role="region" aria-label=(title) { (text) } }
}
