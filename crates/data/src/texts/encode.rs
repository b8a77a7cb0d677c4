//! From the records of a file to rows of tokens, a few thousand records at a time.

use std::path::{Path, PathBuf};

use domain::train::{Documents, Text};

use super::TextObjective;
use super::rows::{ROWS, STREAMS, TokenRows};
use super::store::{StoreAccess, TokenStore, TokenWriter};
use super::survey::TextFile;
use super::tokenizer::TextTokenizer;
use crate::formats::Record;
use crate::identity::preparation::Preparation;
use crate::sampling::split::Parts;
use crate::{Error, Part};

/// Records that are encoded together: enough for all cores, and few enough that progress is seen.
const RECORDS: usize = 1 << 12;
/// Bytes of text that are encoded together.
const BYTES: usize = 2 << 20;

/// How the records of a file become rows.
pub(super) struct RowEncoding<'a> {
    pub file: TextFile<'a>,
    pub goal: TextObjective,
    pub keys: &'a Text,
    /// The token that ends a document.
    pub end: u32,
    /// A hash of the hashes of all texts, to detect a file that changed while it was read.
    pub contents: blake3::Hash,
    pub parts: Parts,
    pub preparation: Preparation,
}

impl RowEncoding<'_> {
    /// Returns the rows: from a folder in `cache` if it holds them already, else encoded into such a folder or into
    /// memory.
    pub fn rows(self, tokenizer: TextTokenizer, json: &str, cache: Option<&Path>) -> Result<TokenRows, Error> {
        let (columns, vocabulary) = (self.columns(), tokenizer.count());
        let store = match cache.map(|cache| self.folder(cache, json)) {
            None => self.encode(tokenizer, TokenWriter::in_memory(columns, vocabulary))?,
            Some(folder) => match TokenStore::access(&folder, &self.preparation)? {
                StoreAccess::Complete(store) => store,
                StoreAccess::Write(lock) => {
                    self.encode(tokenizer, TokenWriter::on_disk(&folder, lock, columns, vocabulary)?)?
                }
            },
        };
        let RowEncoding { goal, keys, parts, .. } = self;
        if goal != TextObjective::Next {
            return TokenRows::ended(store, parts, Vec::new());
        }
        let rows = TokenRows::streams(store, keys.length, keys.documents == Documents::Apart)?;
        let names = ["training", "validation", "test"];
        for ((records, part), name) in parts.iter().zip([Part::Train, Part::Validation, Part::Test]).zip(names) {
            if rows.count(part) == 0 && !records.is_empty() {
                let why = format!("the texts for {name} are too short for a single row");
                return Err(Error::Split { why, hint: "give more text, or a larger share".into() });
            }
        }
        Ok(rows)
    }

    /// The number of columns: those of tokens, plus those of document ends where these are needed.
    fn columns(&self) -> usize {
        match (self.goal, self.file.is_plain()) {
            (TextObjective::Class | TextObjective::Masked, _) => ROWS.len(),
            (TextObjective::Next, true) => STREAMS,
            (TextObjective::Next, false) => 2 * STREAMS,
        }
    }

    /// The folder of these tokens, named after a hash of all that they depend on.
    fn folder(&self, cache: &Path, json: &str) -> PathBuf {
        let mut all = blake3::Hasher::new();
        all.update(self.contents.as_bytes());
        for part in &self.parts {
            all.update(&(part.len() as u64).to_le_bytes());
            for record in part {
                all.update(&record.to_le_bytes());
            }
        }
        let layout = match self.goal {
            TextObjective::Class | TextObjective::Masked if self.keys.pair.is_some() => {
                format!("pairs in rows of {}", self.keys.length)
            }
            TextObjective::Class | TextObjective::Masked => format!("rows of {}", self.keys.length),
            TextObjective::Next => format!("streams, {} columns", self.columns()),
        };
        all.update(layout.as_bytes()).update(json.as_bytes());
        cache.join(format!("tokens-{}", &all.finalize().to_hex()[..32]))
    }

    /// Encodes the records that are not in the store yet.
    fn encode(&self, tokenizer: TextTokenizer, writer: TokenWriter) -> Result<TokenStore, Error> {
        let mut waiting = Waiting {
            encoding: self,
            first: writer.records() as usize,
            tokenizer,
            writer,
            texts: Vec::new(),
            pairs: Vec::new(),
            bytes: 0,
            positions: [0; 3],
        };
        let mut number = 0;
        let mut contents = blake3::Hasher::new();
        self.file.each(&mut |record| {
            contents.update(&record.hash().to_le_bytes());
            number += 1;
            waiting.take(number - 1, record)
        })?;
        waiting.flush()?;
        if contents.finalize() != self.contents {
            waiting.writer.discard()?;
            let why = "the file of texts changed while it was read".into();
            return Err(Error::Split { why, hint: "start again once nothing writes to it".into() });
        }
        waiting.writer.finish()
    }
}

/// Texts that wait to be encoded together.
struct Waiting<'a> {
    encoding: &'a RowEncoding<'a>,
    /// The first record that is not encoded yet.
    first: usize,
    tokenizer: TextTokenizer,
    writer: TokenWriter,
    texts: Vec<String>,
    /// The second text of each, where texts are pairs.
    pairs: Vec<String>,
    bytes: usize,
    /// Position in the list of each part.
    positions: [usize; 3],
}

impl Waiting<'_> {
    /// Takes a record that is not in the store yet.
    fn take(&mut self, number: usize, Record { text, pair, .. }: Record) -> Result<(), Error> {
        if number < self.first + self.texts.len() {
            return Ok(());
        }
        self.bytes += text.len() + pair.as_ref().map_or(0, String::len);
        self.texts.push(text);
        self.pairs.extend(pair);
        match self.texts.len() >= RECORDS || self.bytes >= BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Encodes what waits, and adds it to the store.
    fn flush(&mut self) -> Result<(), Error> {
        let encoding = self.encoding;
        let length = (encoding.goal != TextObjective::Next).then_some(encoding.keys.length as usize);
        let pieces = |text: &'_ str| encoding.file.pieces(text, encoding.goal).count();
        let counts: Vec<usize> = self.texts.iter().map(|text| pieces(text)).collect();
        let texts: Vec<&str> = self.texts.iter().flat_map(|text| encoding.file.pieces(text, encoding.goal)).collect();
        let encoded = match encoding.keys.pair {
            None => self.tokenizer.encode(&texts, length, &encoding.preparation)?,
            Some(_) => {
                let pairs = self.pairs.iter().map(String::as_str);
                let pairs: Vec<(&str, &str)> = texts.iter().copied().zip(pairs).collect();
                self.tokenizer.encode_pairs(&pairs, encoding.keys.length as usize, &encoding.preparation)?
            }
        };
        let mut encoded = encoded.into_iter();
        for (record, count) in (self.first..).zip(counts) {
            let part = self.part_of(record as u32);
            for mut tokens in encoded.by_ref().take(count) {
                if encoding.goal != TextObjective::Next {
                    let [column, ends] = ROWS;
                    self.writer.add(column, &tokens)?;
                    self.writer.end(column, ends)?;
                    continue;
                }
                let Some(part) = part else { continue };
                if encoding.file.is_plain() {
                    self.writer.add(part, &tokens)?;
                } else {
                    tokens.push(encoding.end);
                    self.writer.add(part, &tokens)?;
                    self.writer.end(part, STREAMS + part)?;
                }
            }
        }
        let records = self.texts.len();
        self.writer.complete(records as u64)?;
        self.first += records;
        self.texts.clear();
        self.pairs.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Returns the part of a record. Must be called with records in ascending order.
    fn part_of(&mut self, record: u32) -> Option<usize> {
        let parts = &self.encoding.parts;
        for (part, position) in self.positions.iter_mut().enumerate() {
            *position += parts[part][*position..].iter().take_while(|other| **other < record).count();
            if parts[part].get(*position) == Some(&record) {
                return Some(part);
            }
        }
        None
    }
}
