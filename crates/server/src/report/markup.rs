//! HTML under construction. Tags are words of this program; whatever else is written is escaped.

use std::fmt::{Display, Write};

/// A piece of HTML.
#[derive(Debug, Default)]
pub struct Markup(String);

impl Markup {
    /// Writes tags, which only this program's own words can be.
    pub fn tags(&mut self, tags: &'static str) -> &mut Markup {
        self.0.push_str(tags);
        self
    }

    /// Writes text or the value of an attribute, escaped.
    pub fn text(&mut self, text: impl Display) -> &mut Markup {
        let mut escaping = Escaping(&mut self.0);
        // Writing to a string cannot fail.
        let _ = write!(escaping, "{text}");
        self
    }

    /// Writes one element around text.
    pub fn element(&mut self, open: &'static str, text: impl Display, close: &'static str) -> &mut Markup {
        self.tags(open).text(text).tags(close)
    }

    /// Writes a piece that was made elsewhere.
    pub fn piece(&mut self, piece: Markup) -> &mut Markup {
        self.0.push_str(&piece.0);
        self
    }

    /// The text of the page.
    pub fn finish(self) -> String {
        self.0
    }
}

struct Escaping<'a>(&'a mut String);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Nothing of a terminal's language, and no character that a browser must not see.
                '\n' | '\t' => self.0.push(letter),
                _ if letter.is_control() => self.0.push('\u{fffd}'),
                _ => self.0.push(letter),
            }
        }
        Ok(())
    }
}
