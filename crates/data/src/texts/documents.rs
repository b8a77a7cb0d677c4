//! The text documents that are packed: records of CSV or JSONL files, plain-text files, rows of Parquet or Arrow
//! files.
//!
//! They are read once, in their order, into an unlinked temporary file next to the pack, because they are packed in
//! another order. Memory holds a few bytes per document and one document: a record, or the text of a complete `.txt`
//! file; for Parquet and Arrow, the texts of one file.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use domain::train::{Documents as Sight, Text};

use super::in_order;
use super::read::{Form, each, form};
use super::vocabulary::TextOptions;
use crate::Error;
use crate::formats::{Record, texts_of_tables};

/// The documents of a data set.
#[derive(Debug)]
pub(crate) struct Documents {
    texts: File,
    /// Where each text ends.
    ends: Vec<u64>,
    /// Names of the classes, if each document has one.
    pub classes: Vec<String>,
    /// The class of each document, or 0.
    pub labels: Vec<u32>,
    identity: blake3::Hash,
}

/// Documents that are still being read.
struct Writing<'a> {
    beside: &'a Path,
    texts: BufWriter<File>,
    ends: Vec<u64>,
    /// Classes by the order in which they came.
    numbers: HashMap<String, u32>,
    labels: Vec<u32>,
    unlabelled: bool,
    hash: blake3::Hasher,
}

impl Writing<'_> {
    fn take(&mut self, Record { text, class, .. }: Record) -> Result<(), Error> {
        let written = self.texts.write_all(text.as_bytes());
        written.map_err(|source| Error::Write { name: self.beside.display().to_string(), source })?;
        self.ends.push(self.ends.last().copied().unwrap_or(0) + text.len() as u64);
        self.hash.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        let next = self.numbers.len() as u32;
        match class {
            Some(class) => self.labels.push(*self.numbers.entry(class).or_insert(next)),
            None => self.unlabelled = true,
        }
        Ok(())
    }
}

impl Documents {
    /// Reads a file, or all files of one form in a folder, to be packed into the folder `out`.
    pub fn read(path: &Path, options: &TextOptions, out: &Path) -> Result<Documents, Error> {
        let (columns, label) = (options.columns.clone(), options.label.clone());
        let keys = Text {
            columns,
            pair: None,
            label,
            length: 8,
            tokenizer: None,
            vocabulary: 300,
            documents: Sight::default(),
        };
        let files = files(path)?;
        let beside = out.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
        let mut writing = Writing {
            beside,
            texts: BufWriter::with_capacity(1 << 20, nameless(beside)?),
            ends: Vec::new(),
            numbers: HashMap::new(),
            labels: Vec::new(),
            unlabelled: false,
            hash: blake3::Hasher::new(),
        };
        for file in files {
            if file.extension().is_some_and(|ending| ending == "parquet" || ending == "arrow") {
                texts_of_tables(&file, &keys)?.into_iter().try_for_each(|record| writing.take(record))?;
                continue;
            }
            match form(&file)? {
                Form::Plain => {
                    let mut text = String::new();
                    each(&file, Form::Plain, &keys, &mut |line| {
                        text.push_str(&line.text);
                        Ok(())
                    })?;
                    writing.take(Record { text, pair: None, class: None, line: 0 })?;
                }
                other @ (Form::Csv | Form::Jsonl) => each(&file, other, &keys, &mut |record| writing.take(record))?,
            }
        }
        let Writing { texts, ends, numbers, mut labels, unlabelled, hash, .. } = writing;
        if unlabelled && options.label.is_some() {
            let why = "not every text of it has a class".to_owned();
            return Err(Error::Layout { path: path.into(), why, hint: "leave out `--label`".into() });
        }
        let refused = |source| Error::Write { name: beside.display().to_string(), source };
        let texts = texts.into_inner().map_err(|error| refused(error.into_error()))?;
        let classes = if unlabelled { Vec::new() } else { in_order(numbers.keys().cloned().collect()) };
        if unlabelled {
            labels = vec![0; ends.len()];
        }
        let mut ranks = vec![0; numbers.len()];
        for (class, rank) in classes.iter().zip(0..) {
            ranks[numbers[class] as usize] = rank;
        }
        labels.iter_mut().filter(|_| !unlabelled).for_each(|label| *label = ranks[*label as usize]);
        Ok(Documents { texts, ends, classes, labels, identity: hash.finalize() })
    }

    /// The text of a document.
    pub fn text(&self, document: usize) -> Result<String, Error> {
        let start = if document == 0 { 0 } else { self.ends[document - 1] };
        let mut bytes = vec![0; (self.ends[document] - start) as usize];
        let name = || format!("text {}", document + 1);
        self.texts.read_exact_at(&mut bytes, start).map_err(|source| Error::Read { name: name(), source })?;
        String::from_utf8(bytes).map_err(|_| {
            Error::Internal(format!("{} is no longer valid UTF-8 in the temporary file that it was read into", name()))
        })
    }

    /// Returns a hash that identifies these documents.
    pub fn identity(&self) -> blake3::Hash {
        self.identity
    }
}

/// Creates a file without a name, which is deleted when the process ends.
fn nameless(folder: &Path) -> Result<File, Error> {
    let path = folder.join(format!(".gradus-texts-{}", std::process::id()));
    let made = File::options().read(true).write(true).create_new(true).open(&path);
    let made = made.and_then(|file| fs::remove_file(&path).map(|()| file));
    made.map_err(|source| Error::Write { name: folder.display().to_string(), source })
}

/// The file, or the files of a folder that hold text, sorted.
fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if !path.is_dir() {
        return if path.exists() { Ok(vec![path.to_owned()]) } else { Err(Error::Missing { path: path.into() }) };
    }
    let refused = |source| Error::Read { name: path.display().to_string(), source };
    let kind = |file: &Path| {
        let name = file.file_name()?.to_string_lossy().to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name).to_owned();
        let known = [".csv", ".jsonl", ".txt", ".parquet", ".arrow"].into_iter().find(|ending| name.ends_with(ending));
        known.filter(|_| !name.starts_with('.'))
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(refused)? {
        let file = entry.map_err(refused)?.path();
        found.extend(kind(&file).filter(|_| file.is_file()).map(|kind| (file, kind)));
    }
    found.sort();
    let layout = |why: &str, hint: &str| Error::Layout { path: path.into(), why: why.into(), hint: hint.into() };
    let Some(&(_, first)) = found.first() else {
        return Err(layout("it holds no text", "give `.csv`, `.jsonl`, `.txt`, `.parquet` or `.arrow` files"));
    };
    if let Some((_, other)) = found.iter().find(|(_, kind)| *kind != first) {
        return Err(layout(&format!("it holds both `{first}` and `{other}` files"), "give the files of one form"));
    }
    Ok(found.into_iter().map(|(file, _)| file).collect())
}
