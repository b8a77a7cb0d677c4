//! What goes into the operations log: each thing once, until it is over.

use std::collections::BTreeMap;

use super::{Controller, ControllerOutput};

/// Something that went wrong in operation and is no event of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationNote {
    /// What it is about: a provider, a machine or a run.
    pub subject: String,
    /// What happened.
    pub text: String,
    /// Whether it is a fault of gradus itself.
    pub is_mistake: bool,
}

/// What was noted and is not over: subject and what tells one note about it from another, with whether it is a fault of
/// gradus.
#[derive(Debug, Default)]
pub(super) struct Notes(BTreeMap<(String, String), bool>);

impl Controller {
    /// Notes something once, until [`Controller::clear`] says that it is over.
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

    /// What was noted about a subject is over; if it happens again it is noted again.
    pub(super) fn clear(&mut self, subject: &str) {
        self.notes.0.retain(|(noted, _), is_mistake| noted != subject || *is_mistake);
    }
}

/// The words of a text, with those that contain a digit replaced.
fn without_numbers(text: &str) -> String {
    let words = text.split_whitespace();
    let words = words.map(|each| if each.contains(|c: char| c.is_ascii_digit()) { "#" } else { each });
    words.collect::<Vec<&str>>().join(" ")
}
