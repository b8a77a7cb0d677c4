//! Texts as rows of token ids, ready to be collated into batches.
//!
//! A classifier and a masked language model see each text as one row, truncated to the longest length. A causal language
//! model sees the texts of each part as one stream, divided into rows: row `n` ends with the token that row `n + 1`
//! begins with, so that each token is predicted once. Read on in `read` (files), `packed` (what `gradus data pack` made
//! of them), `tokenizer` (text to token ids) and `batch` (what a training step is given).

mod batch;
pub(crate) mod documents;
mod encode;
mod fit;
#[cfg(test)]
mod kept_rows;
mod packed;
mod read;
mod rows;
mod store;
mod survey;
#[cfg(test)]
mod tests;
mod tokenizer;
pub(crate) mod tokens;
pub(crate) mod vocabulary;

use std::path::Path;

use domain::train::{Data, Documents, Sampling, Text};

use crate::files::library;
use crate::formats::Targets;
use crate::identity::preparation::Preparation;
use crate::identity::{Provenance, Reads, SampleList, hash};
use crate::{BalancedOrder, Error, Part, SampleOrder, TrainOrder};

pub use batch::{TextBatch, TextLoader};
use encode::RowEncoding;
use rows::TokenRows;
use survey::{TextFile, TextSurvey};
use tokenizer::Special;
use tokenizer::{TOKENIZERS, TextTokenizer};

/// The training objective of a text model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextObjective {
    /// Classification: the class of the text.
    Class,
    /// Masked language modelling: the masked tokens.
    Masked,
    /// Causal language modelling: the next token at each position.
    Next,
}

/// All texts of a data set as token ids, divided into training, validation and test. Immutable and shared.
#[derive(Debug)]
pub struct TextDataset {
    goal: TextObjective,
    classes: Vec<String>,
    /// The rows of each part.
    rows: TokenRows,
    /// The class of each row; empty unless the objective is classification.
    labels: Vec<u32>,
    /// What a label stands for; `None` where it is the class.
    targets: Option<Targets>,
    /// Whether attention is limited to the tokens of a document.
    apart: bool,
    /// Whether each row is a pair of texts.
    has_pairs: bool,
    special: Special,
    specials: Vec<u32>,
    vocabulary: usize,
    tokenizer: String,
}

/// The classes and sizes of a text data set, found without tokenizing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextOutline {
    /// Names of the classes, in label order, or of what else is predicted; empty unless the objective is classification.
    pub classes: Vec<String>,
    /// Rows of training, validation and test; `None` if they depend on the tokens.
    pub counts: Option<[u64; 3]>,
}

impl TextOutline {
    /// Reads the outline of the file at `path`, as [`TextDataset::open`] would open it.
    pub fn of(spec: &Data, keys: &Text, goal: TextObjective, path: &Path, seed: u64) -> Result<TextOutline, Error> {
        if !packed::is_stream(path) || keys.tokenizer.is_some() {
            // A job that cannot be trained must not be planned.
            library(TOKENIZERS)?;
        }
        if let Some(outline) = packed::outline(spec, goal, path, seed)? {
            return outline.of_labels(spec, goal, path);
        }
        let survey = TextSurvey::of(&TextFile::at(path, keys)?, spec, goal, seed, (&Preparation::default(), false))?;
        let counts = match goal {
            TextObjective::Class | TextObjective::Masked => Some(survey.parts.each_ref().map(|part| part.len() as u64)),
            TextObjective::Next => None,
        };
        TextOutline { classes: survey.classes, counts }.of_labels(spec, goal, path)
    }

    /// The same with the names of what is predicted, where labels are not classes.
    fn of_labels(self, spec: &Data, goal: TextObjective, path: &Path) -> Result<TextOutline, Error> {
        let targets = targets_of(spec, goal, path, &self.classes)?;
        Ok(TextOutline { classes: targets.map_or(self.classes, |targets| targets.names()), ..self })
    }
}

impl TextDataset {
    /// Reads the texts at `path` and tokenizes them into memory. Without a given tokenizer, one is trained on the
    /// training texts alone.
    ///
    /// # Errors
    /// If the file, its columns or the tokenizer do not match `spec`, or a part would be empty.
    pub fn open(spec: &Data, keys: &Text, goal: TextObjective, path: &Path, seed: u64) -> Result<TextDataset, Error> {
        TextDataset::open_known(spec, keys, goal, path, seed, None, &mut Provenance::unknown())
    }

    /// Opens the data of a run: compares it with the data that the run was trained on and reuses its tokenizer.
    /// With a folder `cache`, tokens are stored in a subfolder of it, which the ranks of a machine and later runs on
    /// the same texts share.
    ///
    /// # Errors
    /// Also [`Error::Changed`] if the data differs and the change is not accepted.
    pub fn open_known(
        spec: &Data,
        keys: &Text,
        goal: TextObjective,
        path: &Path,
        seed: u64,
        cache: Option<&Path>,
        provenance: &mut Provenance,
    ) -> Result<TextDataset, Error> {
        if let Some(texts) = packed::open(spec, keys, goal, path, seed, provenance)? {
            return Ok(texts);
        }
        let file = TextFile::of_run(path, keys, goal, provenance.samples_before())?;
        TextDataset::open_file(spec, goal, seed, file, cache, provenance)
    }

    fn open_file(
        spec: &Data,
        goal: TextObjective,
        seed: u64,
        file: TextFile<'_>,
        cache: Option<&Path>,
        provenance: &mut Provenance,
    ) -> Result<TextDataset, Error> {
        let keys = file.keys();
        let preparation = provenance.preparation();
        let TextSurvey { contents, classes, labels, parts, rule } =
            // Earlier versions trained on such records.
            TextSurvey::of(&file, spec, goal, seed, (&preparation, provenance.has_class("")))?;
        let (count, contents_hash) = (contents.len(), survey::hash_of(&contents));
        let targets = targets_of(spec, goal, file.path, &classes)?;
        let list = |_: Reads<'_>| {
            let numbers = label_numbers(&classes, targets.is_some());
            let of = (0..count).map(|sample| labels.get(sample).map_or(0, |label| numbers[*label as usize]));
            Ok(SampleList::of_contents(contents, of.collect()))
        };
        let outputs = targets.as_ref().map_or_else(|| classes.clone(), Targets::names);
        let parts = provenance.divide(&outputs, parts, rule, seed, list)?;
        let given = keys.tokenizer.as_ref().map(|file| TextTokenizer::load(Path::new(file), goal)).transpose()?;
        let tokenizer = match kept_tokenizer(given, goal, provenance)? {
            Some(tokenizer) => tokenizer,
            None => file.train_tokenizer(&parts[Part::Train as usize], goal, &preparation)?,
        };
        let mut texts = TextDataset::without_rows(keys, goal, (classes, targets), labels, &tokenizer)?;
        provenance.uses_tokenizer(&texts.tokenizer);
        texts.rows =
            RowEncoding { file, goal, keys, end: texts.special.end, contents: contents_hash, parts, preparation }
                .rows(tokenizer, &texts.tokenizer, cache)?;
        Ok(texts)
    }

    /// A data set of texts that this tokenizer encodes, before its first row.
    fn without_rows(
        keys: &Text,
        goal: TextObjective,
        (classes, targets): (Vec<String>, Option<Targets>),
        labels: Vec<u32>,
        tokenizer: &TextTokenizer,
    ) -> Result<TextDataset, Error> {
        Ok(TextDataset {
            goal,
            classes,
            rows: TokenRows::none()?,
            labels,
            targets,
            apart: keys.documents == Documents::Apart,
            has_pairs: keys.pair.is_some(),
            special: tokenizer.special,
            specials: tokenizer.specials(),
            vocabulary: tokenizer.count(),
            tokenizer: tokenizer.json()?,
        })
    }

    /// The training objective.
    pub fn goal(&self) -> TextObjective {
        self.goal
    }

    /// Names of the classes, in label order; empty unless the objective is classification.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// What a label stands for; `None` where it is the class.
    pub fn targets(&self) -> Option<&Targets> {
        self.targets.as_ref()
    }

    /// Names of what is predicted, in the order of the outputs: the classes, unless labels are something else.
    pub fn outputs(&self) -> Vec<String> {
        self.targets.as_ref().map_or_else(|| self.classes.clone(), Targets::names)
    }

    /// The same texts for a model that predicts these labels, in its order.
    ///
    /// # Errors
    /// [`Error::UnknownClasses`] with the labels that the model does not have.
    pub fn for_model(mut self, outputs: &[String]) -> Result<TextDataset, Error> {
        self.targets = self.targets.take().map(|targets| targets.for_model(&self.classes, outputs)).transpose()?;
        Ok(self)
    }

    /// Rows of training, validation and test.
    pub fn counts(&self) -> [u64; 3] {
        [Part::Train, Part::Validation, Part::Test].map(|part| self.rows.count(part))
    }

    /// The number from 1 of the record that a classifier reads as the row at this position of a part, in the order of the
    /// data.
    pub fn record(&self, part: Part, position: u64) -> u64 {
        u64::from(self.rows.number(part, position)) + 1
    }

    /// The order in which training rows are drawn.
    pub fn order(&self, sampling: Sampling, seed: u64) -> TrainOrder {
        match sampling {
            Sampling::Shuffle => TrainOrder::Shuffled(SampleOrder::new(self.rows.count(Part::Train), seed)),
            Sampling::Balanced => TrainOrder::Balanced(BalancedOrder::new(self.labels(Part::Train), seed)),
        }
    }

    /// Rows of each class in a part; none where no class is trained.
    pub fn class_counts(&self, part: Part) -> Vec<u64> {
        let mut counts = vec![0; self.classes.len()];
        self.labels(part).for_each(|label| counts[label as usize] += 1);
        counts
    }

    /// The class of each row of a part; 0 where none is trained.
    fn labels(&self, part: Part) -> impl Iterator<Item = u32> {
        let rows = (0..self.rows.count(part)).map(move |place| self.rows.number(part, place));
        rows.map(|row| self.labels.get(row as usize).copied().unwrap_or(0))
    }

    /// The size of the vocabulary; every token id is less than it.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The token that separates the two texts of a pair, if the rows are pairs.
    pub fn separator(&self) -> Option<u32> {
        self.has_pairs.then_some(self.special.end)
    }

    /// The tokenizer as a `tokenizer.json`.
    pub fn tokenizer(&self) -> &str {
        &self.tokenizer
    }
}

/// What the labels of texts stand for; `None` where they are classes, or where none is trained.
fn targets_of(spec: &Data, goal: TextObjective, path: &Path, classes: &[String]) -> Result<Option<Targets>, Error> {
    match goal {
        TextObjective::Class => Targets::of(spec.labels, path, classes),
        TextObjective::Masked | TextObjective::Next => Ok(None),
    }
}

/// What the identity of the data says of each class. The number of a text that is no class changes with the other texts.
fn label_numbers(classes: &[String], are_texts: bool) -> Vec<u64> {
    match are_texts {
        true => classes.iter().map(|text| u64::from(hash(text.as_bytes()) as u32)).collect(),
        false => (0..classes.len() as u64).collect(),
    }
}

/// Returns the tokenizer that was given or that the run uses already; `None` if one is to be trained.
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

/// The names of classes that may come again and again: by number where all are numbers, else by name.
pub(crate) fn in_order(mut classes: Vec<String>) -> Vec<String> {
    classes.sort_unstable();
    classes.dedup();
    let numbers: Option<Vec<i64>> = classes.iter().map(|class| class.parse().ok()).collect();
    if numbers.is_some() {
        classes.sort_by_key(|class| class.parse::<i64>().unwrap_or(0));
    }
    classes
}
