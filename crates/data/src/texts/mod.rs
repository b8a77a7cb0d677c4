//! Texts as rows of token ids, ready to be collated into batches.
//!
//! A classifier and a masked language model see each text as one row, truncated to the longest length. A causal language
//! model sees the texts of each part as one stream, divided into rows: row `n` ends with the token that row `n + 1`
//! begins with, so that each token is predicted once. Read on in `read` (files), `packed` (what `gradus data pack` made
//! of them), `tokenizer` (text to token ids) and `batch` (what a training step is given).

mod batch;
pub(crate) mod documents;
mod fit;
mod packed;
mod read;
#[cfg(test)]
mod tests;
mod tokenizer;
pub(crate) mod tokens;
pub(crate) mod vocabulary;

use std::path::Path;

use domain::train::{Data, Documents, Split, Text};

use crate::error::layout;
use crate::identity::preparation::Preparation;
use crate::identity::{Provenance, Reads, Rule, SampleList, hash};
use crate::sampling::split::{self, Parts};
use crate::{Error, Part};

use crate::formats::Record;
pub use batch::{TextBatch, TextLoader};
use read::Form;
use tokenizer::Special;
use tokenizer::TextTokenizer;

/// What is trained on a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextObjective {
    /// Its class.
    Class,
    /// The tokens that are masked in it.
    Masked,
    /// The next token, at each position.
    Next,
}

/// All texts of a data set as token ids, divided into training, validation and test. Immutable and shared.
#[derive(Debug)]
pub struct TextDataset {
    goal: TextObjective,
    classes: Vec<String>,
    /// The rows, one after another.
    tokens: Vec<u32>,
    /// Where each row begins in `tokens`, and where the last one ends.
    starts: Vec<usize>,
    /// The class of each row; empty where none is trained.
    labels: Vec<u32>,
    /// Places in `tokens` where a document begins that is not to be predicted from the one before, in ascending order.
    borders: Vec<usize>,
    /// Whether tokens attend to their own document only.
    apart: bool,
    parts: Parts,
    special: Special,
    specials: Vec<u32>,
    vocabulary: usize,
    tokenizer: String,
}

/// What a text data set is made of, found without tokenizing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextOutline {
    /// Names of the classes, in label order; none where no class is trained.
    pub classes: Vec<String>,
    /// Rows of training, validation and test; none where they depend on the tokens.
    pub counts: Option<[u64; 3]>,
}

impl TextOutline {
    /// Reads the file at `path` as [`TextDataset::open`] does.
    pub fn of(spec: &Data, keys: &Text, goal: TextObjective, path: &Path, seed: u64) -> Result<TextOutline, Error> {
        if let Some(outline) = packed::outline(spec, goal, path, seed)? {
            return Ok(outline);
        }
        let sorted = Sorted::read(spec, keys, goal, path, seed, &Preparation::default())?;
        let counts = match goal {
            TextObjective::Class | TextObjective::Masked => Some(sorted.parts.each_ref().map(|part| part.len() as u64)),
            TextObjective::Next => None,
        };
        Ok(TextOutline { classes: sorted.classes, counts })
    }
}

impl TextDataset {
    /// Reads the texts at `path` and tokenizes them. A tokenizer that is not given is trained on the training
    /// texts alone.
    ///
    /// # Errors
    /// When the file, its columns or the tokenizer are not what `spec` says, or a part would be left empty.
    pub fn open(spec: &Data, keys: &Text, goal: TextObjective, path: &Path, seed: u64) -> Result<TextDataset, Error> {
        TextDataset::open_known(spec, keys, goal, path, seed, &mut Provenance::unknown())
    }

    /// The same for a run, whose data is compared with what it was trained on so far, and which keeps its tokenizer.
    ///
    /// # Errors
    /// [`Error::Changed`] besides, if it is other data and that is not accepted.
    pub fn open_known(
        spec: &Data,
        keys: &Text,
        goal: TextObjective,
        path: &Path,
        seed: u64,
        provenance: &mut Provenance,
    ) -> Result<TextDataset, Error> {
        if let Some(texts) = packed::open(spec, keys, goal, path, seed, provenance)? {
            return Ok(texts);
        }
        let preparation = provenance.preparation();
        let Sorted { records, classes, labels, parts, rule } =
            Sorted::read(spec, keys, goal, path, seed, &preparation)?;
        let list = |_: Reads<'_>| {
            let contents: Vec<u64> = records.iter().map(|record| hash(record.text.as_bytes())).collect();
            let targets = (0..contents.len()).map(|sample| labels.get(sample).map_or(0, |label| u64::from(*label)));
            let targets = targets.collect();
            Ok(SampleList::of_contents(contents, targets))
        };
        let parts = provenance.divide(&classes, parts, rule, seed, list)?;
        let given = keys.tokenizer.as_ref().map(|file| TextTokenizer::load(Path::new(file), goal)).transpose()?;
        let mut tokenizer = match kept_tokenizer(given, goal, provenance)? {
            Some(tokenizer) => tokenizer,
            None => {
                let texts = of_part(&records, &parts[Part::Train as usize]).into_iter();
                TextTokenizer::train(texts.inspect(|_| preparation.advance(1)), keys.vocabulary as usize, goal)?
            }
        };
        let mut texts = TextDataset::without_rows(keys, goal, classes, labels, &tokenizer)?;
        provenance.uses_tokenizer(&texts.tokenizer);
        match goal {
            TextObjective::Class | TextObjective::Masked => {
                let all: Vec<&str> = records.iter().map(|record| record.text.as_str()).collect();
                for row in tokenizer.encode(&all, Some(keys.length as usize), &preparation)? {
                    texts.tokens.extend(row);
                    texts.starts.push(texts.tokens.len());
                }
                texts.parts = parts;
            }
            TextObjective::Next => {
                let ends = read::form(path)? != Form::Plain;
                for (part, name) in parts.iter().zip(["training", "validation", "test"]) {
                    let encoded = tokenizer.encode(&of_part(&records, part), None, &preparation)?;
                    let rows = texts.divide(encoded, keys.length as usize, ends);
                    if rows.is_empty() && !part.is_empty() {
                        let why = format!("the texts for {name} are too short for a single row");
                        return Err(Error::Split { why, hint: "give more text, or a larger share".into() });
                    }
                    texts.parts[part_of(name) as usize] = rows;
                }
            }
        }
        Ok(texts)
    }

    /// A data set of texts that this tokenizer encodes, before its first row.
    fn without_rows(
        keys: &Text,
        goal: TextObjective,
        classes: Vec<String>,
        labels: Vec<u32>,
        tokenizer: &TextTokenizer,
    ) -> Result<TextDataset, Error> {
        Ok(TextDataset {
            goal,
            classes,
            tokens: Vec::new(),
            starts: vec![0],
            labels,
            borders: Vec::new(),
            apart: keys.documents == Documents::Apart,
            parts: Parts::default(),
            special: tokenizer.special,
            specials: tokenizer.specials(),
            vocabulary: tokenizer.count(),
            tokenizer: tokenizer.json()?,
        })
    }

    /// Adds the stream of texts as rows of at most `length` tokens and the one after, and returns their numbers.
    fn divide(&mut self, texts: Vec<Vec<u32>>, length: usize, ends: bool) -> Vec<u32> {
        let (mut stream, mut begins) = (Vec::new(), Vec::new());
        for text in texts {
            begins.push(stream.len());
            stream.extend(text);
            if ends {
                stream.push(self.special.end);
            }
        }
        let mut rows = Vec::new();
        let mut at = 0;
        while at + 1 < stream.len() {
            let end = (at + length + 1).min(stream.len());
            rows.push((self.starts.len() - 1) as u32);
            if self.apart && ends {
                let first = begins.partition_point(|begin| *begin <= at);
                let inside = begins[first..].iter().take_while(|begin| **begin < end);
                self.borders.extend(inside.map(|begin| self.tokens.len() + begin - at));
            }
            self.tokens.extend(&stream[at..end]);
            self.starts.push(self.tokens.len());
            at += length;
        }
        rows
    }

    /// What is trained.
    pub fn goal(&self) -> TextObjective {
        self.goal
    }

    /// Names of the classes, in label order; none where no class is trained.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Rows of training, validation and test.
    pub fn counts(&self) -> [u64; 3] {
        self.parts.each_ref().map(|part| part.len() as u64)
    }

    /// Tokens that the tokenizer knows; every token id is below it.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The tokenizer as a `tokenizer.json`.
    pub fn tokenizer(&self) -> &str {
        &self.tokenizer
    }

    fn part(&self, part: Part) -> &[u32] {
        &self.parts[part as usize]
    }

    fn row(&self, row: u32) -> &[u32] {
        &self.tokens[self.starts[row as usize]..self.starts[row as usize + 1]]
    }
}

/// The texts of some records.
fn of_part<'a>(records: &'a [Record], part: &[u32]) -> Vec<&'a str> {
    part.iter().map(|at| records[*at as usize].text.as_str()).collect()
}

/// The tokenizer that was given or that the run has already; none where one is to be trained.
fn kept_tokenizer(
    given: Option<TextTokenizer>,
    goal: TextObjective,
    provenance: &mut Provenance,
) -> Result<Option<TextTokenizer>, Error> {
    if let Some(given) = given
        && provenance.allows_tokenizer(&given.json()?)?
    {
        return Ok(Some(given));
    }
    provenance.tokenizer().map(|json| TextTokenizer::of_json(json, goal)).transpose()
}

fn part_of(name: &str) -> Part {
    match name {
        "training" => Part::Train,
        "validation" => Part::Validation,
        _ => Part::Test,
    }
}

/// Records with their classes, divided into parts.
struct Sorted {
    records: Vec<Record>,
    classes: Vec<String>,
    labels: Vec<u32>,
    parts: Parts,
    /// By what rule they were divided.
    rule: Rule,
}

impl Sorted {
    fn read(
        spec: &Data,
        keys: &Text,
        goal: TextObjective,
        path: &Path,
        seed: u64,
        preparation: &Preparation,
    ) -> Result<Sorted, Error> {
        let form = read::form(path)?;
        let records = read::records(path, form, keys, preparation)?;
        let (mut classes, mut labels) = (Vec::new(), Vec::new());
        if goal == TextObjective::Class {
            if form == Form::Plain {
                let hint = "give a `.csv` or `.jsonl` with a column of classes";
                return Err(layout(path, "a plain text has no classes", hint));
            }
            classes = classes_of(&records);
            if classes.len() < 2 {
                let why = format!("all its texts are of the class {}", crate::error::shorten(&classes));
                return Err(layout(path, &why, "name the column of the classes with `data.text.label`"));
            }
            if spec.classes.is_some_and(|wanted| wanted as usize != classes.len()) {
                let wanted = spec.classes.unwrap_or_default();
                return Err(Error::Classes { found: classes.len(), wanted, names: classes });
            }
            let place = |record: &Record| classes.iter().position(|class| Some(class) == record.class.as_ref());
            labels = records.iter().map(|record| place(record).unwrap_or(0) as u32).collect();
        }
        let Split::Shares(shares) = spec.split else {
            return Err(Error::Split {
                why: "a text file has no folders".into(),
                hint: "write for example `split: [0.7, 0.2, 0.1]`".into(),
            });
        };
        let (parts, rule) = match (goal, form) {
            // A plain text is not shuffled: what is held out comes after what is trained on.
            (TextObjective::Next, Form::Plain) => (split::in_order(records.len(), shares)?, Rule::InOrder),
            (TextObjective::Next | TextObjective::Class | TextObjective::Masked, _) => {
                (split::by_shares(records.len(), shares, seed)?, Rule::Shares(shares))
            }
        };
        Ok(Sorted { records, classes, labels, parts, rule })
    }
}

/// The names of the classes: by number where all are numbers, else by name.
fn classes_of(records: &[Record]) -> Vec<String> {
    in_order(records.iter().filter_map(|record| record.class.clone()).collect())
}

/// The same, of names that may come again and again.
pub(crate) fn in_order(mut classes: Vec<String>) -> Vec<String> {
    classes.sort_unstable();
    classes.dedup();
    let numbers: Option<Vec<i64>> = classes.iter().map(|class| class.parse().ok()).collect();
    if numbers.is_some() {
        classes.sort_by_key(|class| class.parse::<i64>().unwrap_or(0));
    }
    classes
}
