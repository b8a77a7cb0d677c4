//! What text is packed: the records of a CSV or JSONL, files of plain text, rows of Parquet or Arrow files. All of it is
//! in memory while it is packed.

use std::path::{Path, PathBuf};

use domain::train::Text;

use super::TextOptions;
use crate::Error;
use crate::source::texts_of_tables;
use crate::texts::{Form, Record, classes_of, form, records};

/// The documents of a data set.
#[derive(Debug)]
pub(crate) struct Documents {
    records: Vec<Record>,
    /// Names of the classes, if each document has one.
    pub classes: Vec<String>,
    /// The class of each document, or 0.
    pub labels: Vec<u32>,
}

impl Documents {
    /// Reads a file, or all files of one form in a folder.
    pub fn read(path: &Path, options: &TextOptions) -> Result<Documents, Error> {
        let (columns, label) = (options.columns.clone(), options.label.clone());
        let keys = Text { columns, label, length: 8, tokenizer: None, vocabulary: 300 };
        let mut all = Vec::new();
        for file in files(path)? {
            match file.extension().is_some_and(|ending| ending == "parquet" || ending == "arrow") {
                true => all.extend(texts_of_tables(&file, &keys)?),
                false => match form(&file)? {
                    Form::Plain => {
                        let lines = records(&file, Form::Plain, &keys)?;
                        let text = lines.into_iter().map(|line| line.text).collect();
                        all.push(Record { text, class: None });
                    }
                    other @ (Form::Csv | Form::Jsonl) => all.extend(records(&file, other, &keys)?),
                },
            }
        }
        let classes = match all.iter().all(|record| record.class.is_some()) {
            true => classes_of(&all),
            false if options.label.is_some() => {
                let why = "not every text of it has a class".to_owned();
                return Err(Error::Layout { path: path.into(), why, hint: "leave out `--label`".into() });
            }
            false => Vec::new(),
        };
        let place = |record: &Record| {
            let class = record.class.as_ref()?;
            classes.iter().position(|name| name == class).map(|place| place as u32)
        };
        let labels = all.iter().map(|record| place(record).unwrap_or(0)).collect();
        Ok(Documents { records: all, classes, labels })
    }

    pub fn text(&self, document: usize) -> &str {
        &self.records[document].text
    }

    /// What tells these documents from others.
    pub fn identity(&self) -> blake3::Hash {
        let mut hash = blake3::Hasher::new();
        for Record { text, .. } in &self.records {
            hash.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        hash.finalize()
    }
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
