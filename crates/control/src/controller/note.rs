//! The operations log: each problem is logged once, until it is over.

use std::collections::BTreeMap;

use super::{Controller, ControllerOutput};

/// A problem in operation that is not an event of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationNote {
    /// Its subject: a provider, a machine or a run.
    pub subject: String,
    /// Its description.
    pub text: String,
    /// Whether it is a fault of gradus itself.
    pub is_mistake: bool,
}

/// Open problems: subject and a key that distinguishes its notes, with whether it is a bug in gradus.
#[derive(Debug, Default)]
pub(super) struct Notes(BTreeMap<(String, String), bool>);

impl Controller {
    /// Logs a problem once, until [`Controller::clear`] marks it as over.
    pub(super) fn note(&mut self, subject: impl Into<String>, text: impl Into<String>, is_mistake: bool) {
        let text = text.into();
        self.note_once(OperationNote { subject: subject.into(), text: text.clone(), is_mistake }, text);
    }

    /// Notes a failed request once, though each failure names another time, port or request.
    pub(super) fn note_failure(&mut self, subject: impl Into<String>, text: String) {
        let key = without_numbers(&text);
        self.note_once(OperationNote { subject: subject.into(), text, is_mistake: false }, key);
    }

    /// Notes something once for each `key` of its subject.
    pub(super) fn note_once(&mut self, note: OperationNote, key: String) {
        let before = self.notes.0.insert((note.subject.clone(), key), note.is_mistake);
        if before.is_none() {
            self.out.push(ControllerOutput::Note(note));
        }
    }

    /// Marks the problems of a subject as over; they are logged again if they recur.
    pub(super) fn clear(&mut self, subject: &str) {
        let first = (subject.to_owned(), String::new());
        let noted = self.notes.0.range(first..).take_while(|((noted, _), _)| noted == subject);
        let over = noted.filter(|(_, is_mistake)| !**is_mistake).map(|(key, _)| key.clone());
        for key in over.collect::<Vec<(String, String)>>() {
            self.notes.0.remove(&key);
        }
    }
}

/// A text with every word that contains a digit replaced.
fn without_numbers(text: &str) -> String {
    let words = text.split_whitespace();
    let words = words.map(|each| if each.contains(|c: char| c.is_ascii_digit()) { "#" } else { each });
    words.collect::<Vec<&str>>().join(" ")
}
