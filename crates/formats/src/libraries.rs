//! The libraries behind the interface.

use std::path::Path;
use std::sync::Arc;

use plugin::{ArrowTable, Formats, ParquetTable, ReadAt, TableClasses, TableError, TextEncoder, Want};

use crate::{arrow, parquet, tokenizer};

/// All formats.
#[derive(Debug)]
pub(crate) struct Libraries;

impl Formats for Libraries {
    fn parquet(
        &self,
        file: &Arc<dyn ReadAt>,
        want: Want<'_>,
    ) -> Result<(Box<dyn ParquetTable>, TableClasses), TableError> {
        parquet::open(file, want)
    }

    fn arrow(&self, file: &dyn ReadAt, want: Want<'_>, room: u64) -> Result<ArrowTable, TableError> {
        arrow::list(file, want, room)
    }

    fn tokenizer(&self, file: &Path) -> Result<Box<dyn TextEncoder>, String> {
        tokenizer::of_file(file)
    }

    fn tokenizer_of_json(&self, json: &str) -> Result<Box<dyn TextEncoder>, String> {
        tokenizer::of_json(json)
    }

    fn train_bpe(
        &self,
        texts: &mut (dyn Iterator<Item = String> + Send),
        size: usize,
        end: &str,
    ) -> Result<Box<dyn TextEncoder>, String> {
        tokenizer::bpe(texts, size, end)
    }

    fn train_word_pieces(
        &self,
        texts: &mut (dyn Iterator<Item = String> + Send),
        size: usize,
        special: [&str; 5],
    ) -> Result<Box<dyn TextEncoder>, String> {
        tokenizer::word_pieces(texts, size, special)
    }
}
