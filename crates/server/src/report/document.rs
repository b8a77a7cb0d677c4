//! The common frame of a report's pages, and tables that fit a narrow screen.
//!
//! Pages are rendered with `maud`, which escapes every text and attribute value. Terminal control characters, which it
//! passes through, are replaced in the finished page by [`document`].

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
                style { (PreEscaped(include_str!("../../report.css"))) }
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

/// A table with many columns. On a narrow screen the table scrolls and not the page, also with the keyboard. `label`
/// describes its contents.
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

/// The header of a page: the job's name, the state of the run or sweep, and details about it.
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

/// A configuration, in the syntax of job files.
pub fn configuration(title: &str, text: &str) -> Markup {
    html! { summary { (title) } pre tabindex="0" role="region" aria-label=(title) { (text) } }
}
