//! The contents of a text file, found by reading it once: the number of records, their classes and a hash of each.
//! The texts themselves are read again when they are needed, to keep memory bounded.

use std::path::Path;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;

use domain::train::{Data, Labels, Split, Text};

use super::read::{self, Form, Take};
use super::tokenizer::TextTokenizer;
use super::{TextObjective, in_order};
use crate::Error;
use crate::error::layout;
use crate::formats::Record;
use crate::identity::Rule;
use crate::identity::preparation::Preparation;
use crate::sampling::split::{self, Parts};

/// A plain text larger than this is divided into blocks of lines rather than lines; otherwise the per-line index
/// would grow to gigabytes.
const LARGE: u64 = 256 << 20;
/// Bytes of such a block, at least.
const BLOCK: usize = 64 << 10;

/// Texts that wait for the thread that trains a tokenizer.
const WAITING: usize = 256;

/// A text file, and where its texts are in its records.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextFile<'a> {
    pub(super) path: &'a Path,
    form: Form,
    keys: &'a Text,
    /// Minimum bytes per record of a plain text; `None` if each line is a record.
    block: Option<usize>,
}

impl<'a> TextFile<'a> {
    /// Opens the file at `path`, whose extension determines its format.
    pub fn at(path: &'a Path, keys: &'a Text) -> Result<TextFile<'a>, Error> {
        Ok(TextFile { path, form: read::form(path)?, keys, block: None })
    }

    /// The same to be trained on by a run that has known so many records of it before. A run that was begun by lines
    /// stays with lines.
    pub fn of_run(
        path: &'a Path,
        keys: &'a Text,
        goal: TextObjective,
        known: Option<usize>,
    ) -> Result<TextFile<'a>, Error> {
        let file = TextFile::at(path, keys)?;
        if !file.is_plain() || goal != TextObjective::Next {
            return Ok(file);
        }
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let blocks = bytes / BLOCK as u64 + 1;
        let is_by_blocks = bytes > LARGE && known.is_none_or(|known| known as u64 <= blocks);
        Ok(TextFile { block: is_by_blocks.then_some(BLOCK), ..file })
    }

    /// Sets the block size.
    #[cfg(test)]
    pub fn by_blocks(self, bytes: usize) -> TextFile<'a> {
        TextFile { block: Some(bytes), ..self }
    }

    /// Whether its records are blocks of lines.
    #[cfg(test)]
    pub fn is_by_blocks(&self) -> bool {
        self.block.is_some()
    }

    /// The keys of the job that say how it is read.
    pub fn keys(&self) -> &'a Text {
        self.keys
    }

    /// Whether the file is one text rather than separate documents.
    pub fn is_plain(&self) -> bool {
        self.form == Form::Plain
    }

    /// Reads it record by record.
    pub fn each(&self, take: Take<'_>) -> Result<(), Error> {
        let Some(block) = self.block else { return read::each(self.path, self.form, self.keys, take) };
        let mut text = String::new();
        read::each(self.path, self.form, self.keys, &mut |line| {
            text.push_str(&line.text);
            match text.len() >= block {
                true => take(Record { text: std::mem::take(&mut text), pair: None, class: None, line: 0 }),
                false => Ok(()),
            }
        })?;
        match text.is_empty() {
            true => Ok(()),
            false => take(Record { text, pair: None, class: None, line: 0 }),
        }
    }

    /// The texts of a record that become tokens by themselves: the lines of a plain text that is one stream.
    pub fn pieces<'t>(&self, text: &'t str, goal: TextObjective) -> impl Iterator<Item = &'t str> {
        let is_stream = self.is_plain() && goal == TextObjective::Next;
        let lines = is_stream.then(|| text.split_inclusive('\n'));
        let all = (!is_stream).then_some(text);
        lines.into_iter().flatten().chain(all)
    }

    /// Trains a tokenizer on the given records, in ascending order.
    pub fn train_tokenizer(
        &self,
        records: &[u32],
        goal: TextObjective,
        preparation: &Preparation,
    ) -> Result<TextTokenizer, Error> {
        let (sender, texts) = mpsc::sync_channel(WAITING);
        let failed = Mutex::new(None);
        let read = || {
            let mut remaining = records.iter().copied().peekable();
            let mut number = 0;
            let read = self.each(&mut |record| {
                // The trainer may have stopped early with an error.
                if remaining.next_if_eq(&number).is_some() {
                    for text in self.pieces(&record.text, goal).chain(record.pair.as_deref()) {
                        let sent = sender.send(text.to_owned());
                        sent.map_err(|_| Error::Internal("the tokenizer's training has ended".into()))?;
                    }
                }
                number += 1;
                Ok(())
            });
            if let Err(error) = read {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
            drop(sender);
        };
        let trained = thread::scope(|scope| {
            scope.spawn(read);
            let texts = texts.into_iter().inspect(|_: &String| preparation.advance(1));
            TextTokenizer::train(texts, self.keys.vocabulary as usize, goal)
        });
        match (trained, failed.into_inner().unwrap_or_else(PoisonError::into_inner)) {
            (Err(error), _) | (Ok(_), Some(error)) => Err(error),
            (Ok(trained), None) => Ok(trained),
        }
    }
}

/// The records of a file, with their classes, divided into parts.
pub(super) struct TextSurvey {
    /// A hash of each text.
    pub contents: Vec<u64>,
    pub classes: Vec<String>,
    /// The class of each record; empty unless the objective is classification.
    pub labels: Vec<u32>,
    pub parts: Parts,
    /// The rule by which records were assigned to parts.
    pub rule: Rule,
}

impl TextSurvey {
    /// Reads all records once. Where it `takes_empty`, a record without the name of a class is of the class "".
    pub fn of(
        file: &TextFile<'_>,
        spec: &Data,
        goal: TextObjective,
        seed: u64,
        (preparation, takes_empty): (&Preparation, bool),
    ) -> Result<TextSurvey, Error> {
        let mut contents = Vec::new();
        let mut seen = ClassNumbers::default();
        file.each(&mut |record| {
            contents.push(record.hash());
            if goal == TextObjective::Class {
                if !takes_empty {
                    check_class(file, spec.labels, &record)?;
                }
                seen.add(record.class);
            }
            preparation.advance(1);
            Ok(())
        })?;
        let (mut classes, mut labels) = (Vec::new(), Vec::new());
        if goal == TextObjective::Class {
            if file.is_plain() {
                let hint = "give a `.csv` or `.jsonl` with a column of classes";
                return Err(layout(file.path, "a plain text has no classes", hint));
            }
            (classes, labels) = seen.sorted();
            if classes.len() < 2 {
                let why = format!("all its texts are of the class {}", crate::error::shorten(&classes));
                return Err(layout(file.path, &why, "name the column of the classes with `data.text.label`"));
            }
            if spec.classes.is_some_and(|expected| expected as usize != classes.len()) {
                let expected = spec.classes.unwrap_or_default();
                return Err(Error::Classes { found: classes.len(), wanted: expected, names: classes });
            }
        }
        let Split::Shares(shares) = spec.split else {
            return Err(Error::Split {
                why: "a text file has no folders".into(),
                hint: "write for example `split: [0.7, 0.2, 0.1]`".into(),
            });
        };
        let (parts, rule) = match (goal, file.form) {
            // A plain text is not shuffled: validation and test follow the training part.
            (TextObjective::Next, Form::Plain) => (split::in_order(contents.len(), shares)?, Rule::InOrder),
            (TextObjective::Next | TextObjective::Class | TextObjective::Masked, _) => {
                (split::by_shares(contents.len(), shares, seed)?, Rule::Shares(shares))
            }
        };
        Ok(TextSurvey { contents, classes, labels, parts, rule })
    }
}

/// Refuses an empty text as the name of a class. Of several labels it names none.
fn check_class(file: &TextFile<'_>, labels: Labels, record: &Record) -> Result<(), Error> {
    let is_empty = record.class.as_ref().is_some_and(|class| class.trim().is_empty());
    match labels {
        Labels::Class | Labels::Number if is_empty => {
            let what = if labels == Labels::Class { "class" } else { "number" };
            let why = format!("the text in line {} has no {what}", record.line);
            Err(layout(file.path, why, format!("write its {what}, or remove the line")))
        }
        Labels::Class | Labels::Number | Labels::MultiLabel => Ok(()),
    }
}

/// A hash of the hashes of all texts, in their order.
pub(super) fn hash_of(contents: &[u64]) -> blake3::Hash {
    let mut all = blake3::Hasher::new();
    for content in contents {
        all.update(&content.to_le_bytes());
    }
    all.finalize()
}

/// Classes by the order in which they came.
#[derive(Default)]
struct ClassNumbers {
    numbers: std::collections::BTreeMap<String, u32>,
    labels: Vec<u32>,
}

impl ClassNumbers {
    fn add(&mut self, class: Option<String>) {
        let next = self.numbers.len() as u32;
        self.labels.extend(class.map(|class| *self.numbers.entry(class).or_insert(next)));
    }

    /// The names in label order, and the labels.
    fn sorted(self) -> (Vec<String>, Vec<u32>) {
        let classes = in_order(self.numbers.keys().cloned().collect());
        let mut ranks = vec![0; classes.len()];
        for (class, rank) in classes.iter().zip(0..) {
            ranks[self.numbers[class] as usize] = rank;
        }
        (classes, self.labels.into_iter().map(|label| ranks[label as usize]).collect())
    }
}
