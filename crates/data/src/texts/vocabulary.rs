//! The tokenizer of a pack: one that is given, or one that is trained on the documents.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::TextObjective;
use super::documents::Documents;
use super::tokenizer::TextTokenizer;
use super::tokens::TOKENIZER;
use crate::Error;
use crate::files::replace::replace;
use crate::shard::manifest::TokenFormat;

/// How text is packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextOptions {
    /// The tokenizer.
    pub vocabulary: TokenizerSource,
    /// Columns or keys that hold the text, as in `data.text` of a job.
    pub columns: Vec<String>,
    /// Column or key of the class, if there is one.
    pub label: Option<String>,
}

/// Source of the tokenizer of a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenizerSource {
    /// That of a `tokenizer.json` of HuggingFace.
    File(PathBuf),
    /// Pairs of bytes, as GPT-2 has them, trained on the documents for training.
    Bpe(u32),
    /// WordPiece, as in BERT, trained on the training documents.
    WordPiece(u32),
}

/// Encodes text as token ids in bytes; shared by all threads.
pub(crate) struct Encoder {
    tokenizer: TextTokenizer,
    pub tokens: TokenFormat,
}

impl TokenizerSource {
    /// Returns a string that identifies the tokenizer, to recognize an equal pack.
    pub(crate) fn identity(&self) -> Result<String, Error> {
        match self {
            TokenizerSource::File(path) => {
                let refused = |source: std::io::Error| match source.kind() {
                    std::io::ErrorKind::NotFound => Error::Missing { path: path.clone() },
                    _ => Error::Read { name: path.display().to_string(), source },
                };
                Ok(blake3::hash(&crate::files::plain_file::bytes(path).map_err(refused)?).to_hex().to_string())
            }
            TokenizerSource::Bpe(_) | TokenizerSource::WordPiece(_) => Ok(format!("{self:?}")),
        }
    }

    /// Returns the tokenizer and saves it in the folder `out`; an existing one of the same plan is reused. It is
    /// trained on the documents in `train`.
    pub(crate) fn encoder(
        &self,
        documents: &Documents,
        train: impl Iterator<Item = u32> + Send,
        out: &Path,
    ) -> Result<Encoder, Error> {
        let path = out.join(TOKENIZER);
        let failed = Mutex::new(None);
        let texts = train.map(|document| {
            documents.text(document as usize).unwrap_or_else(|error| {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                String::new()
            })
        });
        let tokenizer = match self {
            // The job reports which special tokens its model needs; either kind is packed.
            TokenizerSource::File(path) => TextTokenizer::load(path, TextObjective::Next)
                .or_else(|_| TextTokenizer::load(path, TextObjective::Masked))?,
            TokenizerSource::Bpe(_) if path.exists() => TextTokenizer::load(&path, TextObjective::Next)?,
            TokenizerSource::WordPiece(_) if path.exists() => TextTokenizer::load(&path, TextObjective::Masked)?,
            TokenizerSource::Bpe(size) => TextTokenizer::train(texts, *size as usize, TextObjective::Next)?,
            TokenizerSource::WordPiece(size) => TextTokenizer::train(texts, *size as usize, TextObjective::Masked)?,
        };
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let text = tokenizer.json()?;
        replace(out, TOKENIZER, text.as_bytes())
            .map_err(|source| Error::Write { name: path.display().to_string(), source })?;
        let vocabulary = tokenizer.count() as u32;
        let width = if vocabulary <= 1 << 16 { 2 } else { 4 };
        let blake3 = blake3::hash(text.as_bytes()).to_hex().to_string();
        Ok(Encoder { tokenizer, tokens: TokenFormat { blake3, vocabulary, width } })
    }
}

impl Encoder {
    /// The tokens of a text, without those that mark its ends.
    pub fn encode(&self, text: &str) -> Result<Vec<u8>, String> {
        let width = self.tokens.width as usize;
        let numbers = self.tokenizer.numbers(text)?;
        Ok(numbers.iter().flat_map(|token| token.to_le_bytes().into_iter().take(width)).collect())
    }
}
