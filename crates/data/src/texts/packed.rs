//! Texts that are token ids already: shards written by `gradus data pack --tokenizer`, and files of raw token ids.
//!
//! From packed documents, a classifier and a masked language model get the same rows as from the texts. A causal
//! language model gets rows that several documents share by best fit, with hardly any padding; a document's first token
//! is not predicted from the document before it. A file of raw token ids (`.u16` or `.u32`, little-endian) is one
//! stream.

use std::io::Read;
use std::path::{Path, PathBuf};

use domain::train::{Data, Folders, Split, Text};

use super::fit::{DocumentSlice, best_fit};
use super::rows::{ROWS, TokenRows};
use super::store::TokenWriter;
use super::tokenizer::{Special, TextTokenizer};
use super::tokens::{self, TOKENIZER, widen};
use super::{TextDataset, TextObjective, TextOutline, label_numbers};
use crate::error::layout;
use crate::files::remote::AccessTime;
use crate::formats::Targets;
use crate::identity::preparation::Preparation;
use crate::identity::{DataChange, Provenance, Reads, Rule, SampleList, hash};
use crate::sampling::split::{self, Parts};
use crate::shard::Shards;
use crate::shard::manifest::TokenFormat;
use crate::{Error, Part, ShardManifest};

/// Largest file of raw token ids, which is read into memory.
const LARGEST: u64 = 64 << 30;

/// Returns the outline of packed text; `None` if the path holds something else.
pub(super) fn outline(spec: &Data, goal: TextObjective, path: &Path, seed: u64) -> Result<Option<TextOutline>, Error> {
    if width_of(path).is_some() {
        check_stream(goal, path)?;
        return Ok(Some(TextOutline { classes: Vec::new(), counts: None }));
    }
    let Some((manifest, _)) = tokens::find(path)? else { return Ok(None) };
    let (_, _, parts) = documents(spec, goal, path, &manifest, seed)?;
    let classes = if goal == TextObjective::Class { manifest.classes } else { Vec::new() };
    let counts = (goal != TextObjective::Next).then(|| parts.each_ref().map(|part| part.len() as u64));
    Ok(Some(TextOutline { classes, counts }))
}

/// Refuses keys that say how texts become token ids, where they are token ids already.
fn check_keys(keys: &Text, path: &Path) -> Result<(), Error> {
    if keys.tokenizer.is_some() {
        let why = "it holds token ids already, and its pack has its own tokenizer";
        return Err(layout(path, why, "leave `tokenizer` out of `text`"));
    }
    if keys.pair.is_some() {
        let why = "it holds token ids already, of one text per row";
        return Err(layout(path, why, "name the CSV or JSONL with both texts, or leave `pair` out of `text`"));
    }
    Ok(())
}

/// Opens packed text; `None` if the path holds something else.
pub(super) fn open(
    spec: &Data,
    keys: &Text,
    goal: TextObjective,
    path: &Path,
    seed: u64,
    provenance: &mut Provenance,
) -> Result<Option<TextDataset>, Error> {
    if let Some(width) = width_of(path) {
        check_stream(goal, path)?;
        return stream(spec, keys, path, width, seed, provenance).map(Some);
    }
    let Some((manifest, tokens)) = tokens::find(path)? else { return Ok(None) };
    check_keys(keys, path)?;
    let (all, labels, parts) = documents(spec, goal, path, &manifest, seed)?;
    let rule = match spec.split {
        Split::Shares(shares) => Rule::Shares(shares),
        Split::Folders(_) => Rule::AsDrawn,
    };
    let targets = super::targets_of(spec, goal, path, &manifest.classes)?;
    let (names, numbers) = labels_of(spec, &manifest, &all, targets.as_ref(), provenance);
    let list = |_: Reads<'_>| Ok(listing(spec, &manifest, &all, &numbers));
    let parts = provenance.divide(&names, parts, rule, seed, list)?;
    let tokenizer = packed_tokenizer(path, goal, &tokens, provenance)?;
    let (classes, labels) = if goal == TextObjective::Class { (manifest.classes, labels) } else { Default::default() };
    let mut texts = TextDataset::without_rows(keys, goal, (classes, targets), labels, &tokenizer)?;
    provenance.uses_tokenizer(&texts.tokenizer);
    let preparation = provenance.preparation();
    let mut documents = Documents { path: path.to_owned(), shards: all, tokens, bytes: Vec::new(), preparation };
    let mut rows = PackedRows::new(texts.vocabulary, texts.special.end);
    let parts = match goal {
        TextObjective::Class | TextObjective::Masked => {
            let (before, behind) = tokenizer.frame()?;
            let most = (keys.length as usize).saturating_sub(before.len() + behind.len());
            for document in 0..documents.shards.places().len() {
                let mut row = before.clone();
                documents.read(document, 0, most, &mut row)?;
                row.extend(&behind);
                rows.add(&row)?;
            }
            parts
        }
        TextObjective::Next => {
            let mut shared = Parts::default();
            for (number, part) in parts.iter().enumerate() {
                shared[number] = rows.share(&mut documents, part, keys.length)?;
                if shared[number].is_empty() && !part.is_empty() {
                    let why = format!("the documents of part {} hold no token to predict", number + 1);
                    return Err(Error::Split { why, hint: "give more text, or a larger share".into() });
                }
            }
            shared
        }
    };
    texts.rows = TokenRows::ended(rows.writer.finish()?, parts, rows.borders)?;
    Ok(Some(texts))
}

/// What a run remembers of the labels: the names of what is predicted, and a number for each label. Earlier versions
/// remembered texts that name several labels, or a number, as if they were classes, and their runs stay with that.
fn labels_of(
    spec: &Data,
    manifest: &ShardManifest,
    shards: &Shards,
    targets: Option<&Targets>,
    provenance: &Provenance,
) -> (Vec<String>, Vec<u64>) {
    let by_place = label_numbers(&manifest.classes, false);
    let Some(targets) = targets else { return (manifest.classes.clone(), by_place) };
    match provenance.has_recorded(&manifest.classes, &targets.names(), || listing(spec, manifest, shards, &by_place)) {
        true => (manifest.classes.clone(), by_place),
        false => (targets.names(), label_numbers(&manifest.classes, true)),
    }
}

/// The documents as a run remembers them: by their content, with the number of their label and the split that their shard
/// is of.
fn listing(spec: &Data, manifest: &ShardManifest, shards: &Shards, numbers: &[u64]) -> SampleList {
    let home = |shard: u32| match spec.split {
        Split::Shares(_) => 0,
        Split::Folders(_) => manifest.shards[shard as usize].part.map_or(0, |part| 1 + part as u64) << 32,
    };
    let contents = shards.places().iter().map(|entry| entry.hash).collect();
    let number = |label: u32| numbers.get(label as usize).copied().unwrap_or(u64::from(label));
    let targets = shards.places().iter().map(|entry| number(entry.label) | home(entry.shard)).collect();
    SampleList::of_contents(contents, targets)
}

/// Returns the tokenizer that the documents were packed with.
///
/// # Errors
/// If it differs from the tokenizer that the run was trained with or that the manifest describes.
fn packed_tokenizer(
    path: &Path,
    goal: TextObjective,
    tokens: &TokenFormat,
    provenance: &mut Provenance,
) -> Result<TextTokenizer, Error> {
    let tokenizer = TextTokenizer::load(&path.join(TOKENIZER), goal)?;
    if !provenance.allows_tokenizer(&tokenizer.json()?)? {
        return Err(Error::Changed(Box::new(DataChange::packed_again())));
    }
    let (found, vocabulary) = (tokenizer.count(), tokens.vocabulary);
    if found != vocabulary as usize {
        let why = format!("its tokenizer has {found} tokens, but its manifest says {vocabulary}");
        return Err(layout(path, why, "pack the text again"));
    }
    Ok(tokenizer)
}

/// The documents in shards.
struct Documents {
    path: PathBuf,
    shards: Shards,
    tokens: TokenFormat,
    bytes: Vec<u8>,
    preparation: Preparation,
}

impl Documents {
    /// Tokens of a document.
    fn count(&self, document: usize) -> u32 {
        self.shards.places()[document].bytes / self.tokens.width
    }

    /// Appends at most `most` tokens of a document, starting at token `from`.
    fn read(&mut self, document: usize, from: usize, most: usize, into: &mut Vec<u32>) -> Result<(), Error> {
        self.shards.read(document, &mut self.bytes, AccessTime::SOME_TIME)?;
        self.preparation.advance(1);
        let width = self.tokens.width as usize;
        let (from, to) = (from.saturating_mul(width), from.saturating_add(most).saturating_mul(width));
        let bytes = &self.bytes[from.min(self.bytes.len())..to.min(self.bytes.len())];
        widen(bytes, self.tokens.width, self.tokens.vocabulary, into).map_err(|why| {
            let why = format!("`{}` in its shards cannot be used: {why}", self.shards.name(document));
            layout(&self.path, why, "pack the text again")
        })
    }
}

/// Rows under construction.
struct PackedRows {
    writer: TokenWriter,
    count: u32,
    borders: Vec<u64>,
    /// The end-of-document token.
    end: u32,
}

impl PackedRows {
    fn new(vocabulary: usize, end: u32) -> PackedRows {
        PackedRows { writer: TokenWriter::in_memory(ROWS.len(), vocabulary), count: 0, borders: Vec::new(), end }
    }

    fn add(&mut self, row: &[u32]) -> Result<u32, Error> {
        let [column, ends] = ROWS;
        self.writer.add(column, row)?;
        self.writer.end(column, ends)?;
        self.count += 1;
        Ok(self.count - 1)
    }

    /// Appends rows that the documents of a part share; each document is followed by the end-of-document token.
    fn share(&mut self, documents: &mut Documents, part: &[u32], length: u32) -> Result<Vec<u32>, Error> {
        let counts: Vec<u32> = part.iter().map(|document| documents.count(*document as usize) + 1).collect();
        let mut rows = Vec::new();
        for slices in best_fit(&counts, length) {
            let start = self.writer.tokens(ROWS[0]);
            let mut row = Vec::new();
            for DocumentSlice { document, from, tokens } in slices {
                if !row.is_empty() {
                    self.borders.push(start + row.len() as u64);
                }
                let whole = counts[document as usize];
                let ends = from + tokens == whole;
                let most = tokens as usize - usize::from(ends);
                documents.read(part[document as usize] as usize, from as usize, most, &mut row)?;
                if ends {
                    row.push(self.end);
                }
            }
            rows.push(self.add(&row)?);
        }
        Ok(rows)
    }
}

type Found = (Shards, Vec<u32>, Parts);

/// The documents of a pack, their classes, and the parts that they are divided into.
fn documents(
    spec: &Data,
    goal: TextObjective,
    path: &Path,
    manifest: &ShardManifest,
    seed: u64,
) -> Result<Found, Error> {
    let shards = tokens::shards(path, manifest)?;
    let classes = &manifest.classes;
    if goal == TextObjective::Class && classes.is_empty() {
        return Err(layout(path, "its texts were packed without classes", "pack them with `--label COLUMN`"));
    }
    if goal == TextObjective::Class && spec.classes.is_some_and(|expected| expected as usize != classes.len()) {
        let expected = spec.classes.unwrap_or_default();
        return Err(Error::Classes { found: classes.len(), wanted: expected, names: classes.clone() });
    }
    let labels = shards.places().iter().map(|entry| entry.label).collect();
    let parts = match spec.split {
        Split::Shares(shares) => split::by_shares(shards.places().len(), shares, seed)?,
        Split::Folders(Folders::Folders) => {
            let mut parts = Parts::default();
            for (entry, document) in shards.places().iter().zip(0..) {
                let part = manifest.shards[entry.shard as usize].part;
                let part = part.ok_or_else(|| {
                    let why = "it was packed without parts";
                    layout(path, why, "pack it with `--split 8:1:1`, or leave out `split: folders`")
                })?;
                parts[part as usize].push(document);
            }
            if parts[Part::Train as usize].is_empty() {
                return Err(layout(path, "it has no training samples", "pack it with a larger first share"));
            }
            parts
        }
    };
    Ok((shards, labels, parts))
}

/// Whether a file holds raw token ids, judged by its extension.
pub(super) fn is_stream(path: &Path) -> bool {
    width_of(path).is_some()
}

/// Bytes per token in a file of raw token ids, from its extension.
fn width_of(path: &Path) -> Option<u32> {
    match path.extension()?.to_str()? {
        "u16" => Some(2),
        "u32" => Some(4),
        _ => None,
    }
}

fn check_stream(goal: TextObjective, path: &Path) -> Result<(), Error> {
    match goal {
        TextObjective::Next => Ok(()),
        TextObjective::Class | TextObjective::Masked => {
            let why = "plain tokens are one stream, from which only the next token is predicted";
            Err(layout(path, why, "train a GPT on it, or give texts"))
        }
    }
}

/// A file of plain tokens, divided into rows in its order.
fn stream(
    spec: &Data,
    keys: &Text,
    path: &Path,
    width: u32,
    seed: u64,
    provenance: &mut Provenance,
) -> Result<TextDataset, Error> {
    let refused = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound => Error::Missing { path: path.into() },
        _ => Error::Read { name: path.display().to_string(), source },
    };
    let file = crate::files::plain_file::open(path).map_err(refused)?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(refused)?;
    let tokenizer =
        keys.tokenizer.as_ref().map(|file| TextTokenizer::load(Path::new(file), TextObjective::Next)).transpose()?;
    let json = tokenizer.as_ref().map(TextTokenizer::json).transpose()?.unwrap_or_default();
    if !provenance.allows_tokenizer(&json)? {
        return Err(Error::Changed(Box::new(DataChange::packed_again())));
    }
    let vocabulary = tokenizer.as_ref().map_or(keys.vocabulary as usize, TextTokenizer::count);
    let mut all = Vec::with_capacity(bytes.len() / width as usize);
    widen(&bytes, width, vocabulary as u32, &mut all).map_err(|why| {
        layout(path, why, "say in `text` how many tokens there are (`vocabulary`), or give the `tokenizer`")
    })?;
    let length = keys.length as usize;
    let rows = all.len().saturating_sub(1).div_ceil(length);
    let Split::Shares(shares) = spec.split else {
        return Err(layout(path, "a file has no folders", "write for example `split: [0.9, 0.05, 0.05]`"));
    };
    let parts = split::in_order(rows, shares)?;
    let list = |_: Reads<'_>| {
        let contents = bytes.chunks(length.max(1) * width as usize).map(hash).take(rows).collect();
        Ok(SampleList::of_contents(contents, vec![0; rows]))
    };
    let parts = provenance.divide(&[], parts, Rule::InOrder, seed, list)?;
    provenance.uses_tokenizer(&json);
    let mut packed = PackedRows::new(vocabulary, 0);
    for row in 0..rows {
        packed.add(&all[row * length..all.len().min((row + 1) * length + 1)])?;
    }
    Ok(TextDataset {
        goal: TextObjective::Next,
        classes: Vec::new(),
        labels: Vec::new(),
        targets: None,
        rows: TokenRows::ended(packed.writer.finish()?, parts, Vec::new())?,
        apart: false,
        has_pairs: false,
        special: tokenizer.as_ref().map_or(Special { pad: 0, mask: 0, end: 0 }, |tokenizer| tokenizer.special),
        specials: tokenizer.as_ref().map(TextTokenizer::specials).unwrap_or_default(),
        vocabulary,
        tokenizer: json,
    })
}
