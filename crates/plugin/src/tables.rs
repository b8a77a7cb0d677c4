//! The rows of a table, independent of the library that reads it.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use crate::{NamedClass, ReadAt};

/// The purpose of reading a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want<'a> {
    /// Images, with their classes.
    Images,
    /// The text in a column, with the class in another.
    Texts {
        /// The column of texts.
        column: &'a str,
        /// The column of classes, if they are requested.
        label: Option<&'a str>,
    },
}

/// The classes of a table's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableClasses {
    /// The class of each row; `None` where the row has none.
    pub named: Vec<Option<NamedClass>>,
    /// Names of the classes, from label 0, if the table has them.
    pub names: Option<Vec<String>>,
}

/// One row of an Arrow file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrowRow {
    /// Offset of its sample in the file, or in the unpacked bytes.
    pub offset: u64,
    /// Bytes of the sample; 0 if the row has none.
    pub bytes: u32,
    /// Its number in the file, from 1.
    pub number: u64,
}

/// The contents of an Arrow file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrowTable {
    /// All of its rows.
    pub rows: Vec<ArrowRow>,
    /// Their classes.
    pub classes: TableClasses,
    /// The unpacked columns, if they are compressed; offsets refer to these then.
    pub unpacked: Option<Vec<u8>>,
}

/// Why a table cannot be used.
#[derive(Debug)]
pub enum TableError {
    /// The system refused to read it.
    Read(io::Error),
    /// It is damaged, or lacks requested data.
    Broken(String),
    /// Its compressed columns unpack to more than the limit.
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
