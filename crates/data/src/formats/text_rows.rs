//! Texts in the rows of Parquet and Arrow files.

use std::path::Path;

use domain::train::Text;
use plugin::{TableClasses, Want};

use super::class_names::Named;
use super::tables::{arrow, parquet};
use super::tree::Form;
use crate::Error;
use crate::error::layout;
use crate::files::remote::AccessTime;
use crate::identity::hash;

/// One text or pair of texts, and its class where a column of classes is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub text: String,
    /// The second text of a pair.
    pub pair: Option<String>,
    pub class: Option<String>,
    /// The line of its file that it begins in, from 1; 0 where it is not in a line.
    pub line: u64,
}

impl Record {
    /// A hash of its text or texts.
    pub fn hash(&self) -> u64 {
        match &self.pair {
            None => hash(self.text.as_bytes()),
            Some(pair) => hash(format!("{}\0{pair}", self.text).as_bytes()),
        }
    }
}

/// The texts in the rows of a Parquet or Arrow file, with their classes if requested.
pub(crate) fn texts_of_tables(file: &Path, keys: &Text) -> Result<Vec<Record>, Error> {
    let word = |named: Named| match named {
        Named::Number(number) => number.to_string(),
        Named::Word(word) => word,
    };
    let [column] = &keys.columns[..] else {
        let why = "the text of a table stands in one column";
        return Err(layout(file, why, "name one column with `--columns`"));
    };
    let want = Want::Texts { column, label: keys.label.as_deref() };
    let (texts, named, names) = match Form::of(file) {
        Some(Form::Parquet) => {
            let (texts, TableClasses { named, names }) = parquet::texts(file, want)?;
            (texts, named, names)
        }
        Some(Form::Arrow | Form::Tar | Form::Zip | Form::TfRecord) | None => {
            let arrow::Listing { spans, named, names } = arrow::list(vec![file.to_owned()], want)?;
            let mut texts = Vec::with_capacity(spans.spans.len());
            for sample in 0..spans.spans.len() {
                let mut bytes = Vec::new();
                spans.read(sample, &mut bytes, AccessTime::ONCE)?;
                let wrong = |_| Error::Image { name: spans.name(sample), why: "it is not UTF-8".into() };
                texts.push(String::from_utf8(bytes).map_err(wrong)?);
            }
            (texts, named, names)
        }
    };
    let named_class = |class: Named| match (&class, &names) {
        (Named::Number(number), Some(names)) => {
            usize::try_from(*number).ok().and_then(|place| names.get(place).cloned()).unwrap_or_else(|| word(class))
        }
        _ => word(class),
    };
    let class = |named: Option<Named>| named.filter(|_| keys.label.is_some()).map(named_class);
    let record = |(text, named)| Record { text, pair: None, class: class(named), line: 0 };
    Ok(texts.into_iter().zip(named).map(record).collect())
}
