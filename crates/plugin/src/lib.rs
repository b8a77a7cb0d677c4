//! Optional libraries of an executable: the interface between `data` and the libraries for Parquet, Arrow and
//! tokenizers.
//!
//! These libraries take a fifth of the time of a build, and most jobs need none of them. So `data` calls them through
//! [`Formats`], and an executable that includes them installs them first thing in `main` (`formats::install`). Using a
//! library that is not installed is an error that says how to get it.

pub mod caught;
mod classes;
mod read_at;
mod tables;
mod tokenizer;
mod window;

use std::path::Path;
use std::sync::{Arc, OnceLock};

pub use classes::{LABELS, NamedClass};
pub use read_at::{LARGEST_FILE, ReadAt};
pub use tables::{ArrowRow, ArrowTable, ParquetTable, TableClasses, TableError, Want};
pub use tokenizer::TextEncoder;
pub use window::Window;

/// The formats that need large libraries.
pub trait Formats: Sync {
    /// Opens a Parquet file, and reads the classes of its rows.
    ///
    /// # Errors
    /// [`TableError`].
    fn parquet(
        &self,
        file: &Arc<dyn ReadAt>,
        want: Want<'_>,
    ) -> Result<(Box<dyn ParquetTable>, TableClasses), TableError>;

    /// Lists the rows of an Arrow file or stream, unpacking compressed columns to at most `room` bytes.
    ///
    /// # Errors
    /// [`TableError`].
    fn arrow(&self, file: &dyn ReadAt, want: Want<'_>, room: u64) -> Result<ArrowTable, TableError>;

    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    fn tokenizer(&self, file: &Path) -> Result<Box<dyn TextEncoder>, String>;

    /// Reads the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    fn tokenizer_of_json(&self, json: &str) -> Result<Box<dyn TextEncoder>, String>;

    /// Trains a byte pair encoding of at most `size` tokens, as GPT-2's, with the special token `end`.
    ///
    /// # Errors
    /// Why that was not possible.
    fn train_bpe(
        &self,
        texts: &mut (dyn Iterator<Item = String> + Send),
        size: usize,
        end: &str,
    ) -> Result<Box<dyn TextEncoder>, String>;

    /// Trains WordPiece with at most `size` tokens, like that of the uncased BERT, with its five special tokens in the
    /// order padding, unknown, beginning, end and mask.
    ///
    /// # Errors
    /// Why training failed.
    fn train_word_pieces(
        &self,
        texts: &mut (dyn Iterator<Item = String> + Send),
        size: usize,
        special: [&str; 5],
    ) -> Result<Box<dyn TextEncoder>, String>;
}

static INSTALLED: OnceLock<&'static dyn Formats> = OnceLock::new();

/// Installs the formats for this process; those that came first stay.
pub fn install(formats: &'static dyn Formats) {
    let _ = INSTALLED.set(formats);
}

/// The formats of this process, if its executable has them.
pub fn formats() -> Option<&'static dyn Formats> {
    INSTALLED.get().copied()
}
