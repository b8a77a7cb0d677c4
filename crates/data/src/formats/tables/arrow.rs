//! Images and texts in Arrow files and streams, as HuggingFace's `save_to_disk` and cache write them.
//!
//! Their columns lie plainly in the file, so a sample is a span of it.

use std::path::{Path, PathBuf};

use plugin::{NamedClass, Want};

use super::{library, refused};
use crate::Error;
use crate::error::layout;
use crate::files::handles::{Handles, Opened};
use crate::formats::encoded::spans::{Names, Span, Spans};

/// What the rows of some files are.
pub(in crate::formats) struct Listing {
    pub spans: Spans,
    pub named: Vec<Option<NamedClass>>,
    pub names: Option<Vec<String>>,
}

/// Lists all rows of some files.
pub(in crate::formats) fn list(files: Vec<PathBuf>, want: Want<'_>) -> Result<Listing, Error> {
    let library = library("Arrow files")?;
    let (mut spans, mut numbers, mut named, mut names) = (Vec::new(), Vec::new(), Vec::new(), None);
    for (path, file) in files.iter().zip(0_u32..) {
        let unreadable = |source| Error::Read { name: path.display().to_string(), source };
        let opened = Opened::open(path).map_err(unreadable)?;
        let (rows, classes) = library.arrow(&opened, want).map_err(refused(path, damaged))?;
        numbers.extend(rows.iter().map(|row| row.number));
        spans.extend(rows.iter().map(|row| Span { file, bytes: row.bytes, offset: row.offset, record: None }));
        named.extend(classes.named);
        names = names.or(classes.names);
    }
    let rows = Names::Numbered { word: "row", numbers };
    Ok(Listing { spans: Spans { files: Handles::new(files), spans, names: rows, beside: Vec::new() }, named, names })
}

fn damaged(path: &Path, why: &str) -> Error {
    layout(path, format!("the Arrow file cannot be used: {why}"), "get the file again, or save it as Parquet")
}
