//! Images and texts in the rows of Parquet files, as HuggingFace publishes them.
//!
//! Only the column of classes is read when the data is opened; a row is read by its position.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plugin::{ParquetTable, ReadAt, TableClasses, Want};

use super::{library, refused};
use crate::Error;
use crate::error::layout;
use crate::files::handles::Handles;

/// Rows of Parquet files.
#[derive(Debug)]
pub(crate) struct Rows {
    files: Handles,
    tables: Vec<Box<dyn ParquetTable>>,
    /// Number of the file, and row in it.
    pub places: Vec<(u32, u64)>,
}

/// Lists all rows of some files; without a column of classes, every class is `None`.
pub(in crate::formats) fn list(files: Vec<PathBuf>, want: Want<'_>) -> Result<(Rows, TableClasses), Error> {
    let library = library("Parquet files")?;
    let mut rows = Rows { files: Handles::new(files), tables: Vec::new(), places: Vec::new() };
    let mut classes = TableClasses { named: Vec::new(), names: None };
    for number in 0..rows.files.paths().len() as u32 {
        let path = rows.files.path(number);
        let unreadable = |source| Error::Read { name: path.display().to_string(), source };
        let file: Arc<dyn ReadAt> = rows.files.file(number).map_err(unreadable)?;
        let (table, found) = library.parquet(&file, want).map_err(refused(path, damaged))?;
        rows.places.extend((0..table.rows()).map(|row| (number, row)));
        classes.named.extend(found.named);
        classes.names = classes.names.or(found.names);
        rows.tables.push(table);
    }
    Ok((rows, classes))
}

/// Reads the texts in one column of a file.
pub(in crate::formats) fn texts(path: &Path, want: Want<'_>) -> Result<(Vec<String>, TableClasses), Error> {
    let (rows, classes) = list(vec![path.to_owned()], want)?;
    let unreadable = |source| Error::Read { name: path.display().to_string(), source };
    let file: Arc<dyn ReadAt> = rows.files.file(0).map_err(unreadable)?;
    let texts = rows.tables[0].texts(&file).map_err(|why| damaged(path, &why))?;
    Ok((texts, classes))
}

impl Rows {
    /// The name of a row in messages: its file and its number, from 1.
    pub fn name(&self, sample: usize) -> String {
        let (file, row) = self.places[sample];
        let path = self.files.path(file);
        format!("{}, row {}", path.file_name().unwrap_or_default().to_string_lossy(), row + 1)
    }

    /// The Parquet files.
    pub fn files(&self) -> &Handles {
        &self.files
    }

    /// Reads the bytes of an image or text into `bytes`.
    pub fn read(&self, sample: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        bytes.clear();
        let (number, row) = self.places[sample];
        let unreadable = |source| Error::Read { name: self.name(sample), source };
        let file: Arc<dyn ReadAt> = self.files.file(number).map_err(unreadable)?;
        let read = self.tables[number as usize].read(&file, row, bytes);
        read.map_err(|why| Error::Image { name: self.name(sample), why })
    }
}

fn damaged(path: &Path, why: &str) -> Error {
    layout(
        path,
        format!("the Parquet file cannot be used: {why}"),
        "get the file again, or name its columns as they are usually named: `image`, `text`, `label`",
    )
}
