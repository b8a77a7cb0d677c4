//! Images and texts in Arrow files and streams, as written by HuggingFace's `save_to_disk` and cache.
//!
//! Uncompressed columns are read in place: a sample is a span of the file. Compressed ones, as in most Feather files,
//! are unpacked into memory when the data is opened.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plugin::{ArrowTable, NamedClass, TableClasses, Want};

use super::{library, refused};
use crate::Error;
use crate::error::layout;
use crate::files::handles::{Handles, Opened};
use crate::formats::encoded::spans::{Names, Span, Spans, Wrapping};

/// Compressed columns of all files of a data set unpack to no more.
const MOST_UNPACKED: u64 = 4 << 30;

/// The rows of some files.
pub(in crate::formats) struct Listing {
    pub spans: Spans,
    pub named: Vec<Option<NamedClass>>,
    pub names: Option<Vec<String>>,
}

/// Lists all rows of some files.
pub(in crate::formats) fn list(files: Vec<PathBuf>, want: Want<'_>) -> Result<Listing, Error> {
    let library = library("Arrow files")?;
    let (mut spans, mut numbers, mut named, mut names) = (Vec::new(), Vec::new(), Vec::new(), None);
    let (mut held, mut room) = (HashMap::new(), MOST_UNPACKED);
    for (path, file) in files.iter().zip(0_u32..) {
        let unreadable = |source| Error::Read { name: path.display().to_string(), source };
        let opened = Opened::open(path).map_err(unreadable)?;
        let table = library.arrow(&opened, want, room).map_err(refused(path, damaged))?;
        let ArrowTable { rows, classes: TableClasses { named: more, names: called }, unpacked } = table;
        numbers.extend(rows.iter().map(|row| row.number));
        let wrapping = Wrapping::Plain;
        spans.extend(rows.iter().map(|row| Span { file, bytes: row.bytes, offset: row.offset, wrapping }));
        named.extend(more);
        names = names.or(called);
        if let Some(bytes) = unpacked {
            room = room.saturating_sub(bytes.len() as u64);
            held.insert(file, Arc::new(Opened::Memory(bytes)));
        }
    }
    let rows = Names::Numbered { word: "row", numbers };
    Ok(Listing {
        spans: Spans { files: Handles::with_held(files, held), spans, names: rows, beside: Vec::new() },
        named,
        names,
    })
}

fn damaged(path: &Path, why: &str) -> Error {
    layout(path, format!("the Arrow file cannot be used: {why}"), "get the file again, or save it as Parquet")
}
