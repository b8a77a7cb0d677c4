//! What the rows of a table are, whichever library reads it.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use crate::{NamedClass, ReadAt};

/// What the rows of a table are read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want<'a> {
    /// Images, with their classes.
    Images,
    /// The text in a column, with the class in another.
    Texts {
        /// The column of texts.
        column: &'a str,
        /// The column of classes, if they are wanted.
        label: Option<&'a str>,
    },
}

/// The classes of a table's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableClasses {
    /// The class of each row; `None` where the row has none.
    pub named: Vec<Option<NamedClass>>,
    /// What the classes are called, from label 0, where the table says so.
    pub names: Option<Vec<String>>,
}

/// One row of an Arrow file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrowRow {
    /// Where its sample begins in the file, or in what was unpacked of it, in bytes.
    pub offset: u64,
    /// Bytes of the sample; none where the row has no sample.
    pub bytes: u32,
    /// Its number in the file, from 1.
    pub number: u64,
}

/// What an Arrow file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrowTable {
    /// All of its rows.
    pub rows: Vec<ArrowRow>,
    /// Their classes.
    pub classes: TableClasses,
    /// What its columns unpack to, where they are compressed; samples lie there then.
    pub unpacked: Option<Vec<u8>>,
}

/// Why a table cannot be used.
#[derive(Debug)]
pub enum TableError {
    /// The system refused to read it.
    Read(io::Error),
    /// It is damaged, or lacks what is wanted.
    Broken(String),
    /// Its compressed columns unpack to more than there is room for.
    TooLarge,
    /// The column that is named as that of the classes holds none.
    NoClasses(String),
}

impl From<io::Error> for TableError {
    fn from(error: io::Error) -> TableError {
        TableError::Read(error)
    }
}

/// An open Parquet file.
pub trait ParquetTable: Debug + Send + Sync {
    /// Number of rows.
    fn rows(&self) -> u64;

    /// Appends the sample of a row, counted from 0, to `bytes`.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, file: &Arc<dyn ReadAt>, row: u64, bytes: &mut Vec<u8>) -> Result<(), String>;

    /// The texts of all rows.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn texts(&self, file: &Arc<dyn ReadAt>) -> Result<Vec<String>, String>;
}
