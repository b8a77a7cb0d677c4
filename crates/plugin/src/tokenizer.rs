//! The interface of a tokenizer.

use std::fmt::Debug;

/// Encodes text as token ids.
pub trait TextEncoder: Debug + Send + Sync {
    /// The id of a token, if it has one.
    fn id(&self, token: &str) -> Option<u32>;

    /// The largest id; `None` for an empty vocabulary.
    fn largest(&self) -> Option<u32>;

    /// Truncates further encodings to `length` tokens, including special tokens.
    ///
    /// # Errors
    /// If truncation cannot be set.
    fn truncate(&mut self, length: Option<usize>) -> Result<(), String>;

    /// The ids of some texts; where `framed`, with the special tokens that begin and end a text.
    ///
    /// # Errors
    /// Why one of them cannot be encoded.
    fn encode(&self, texts: &[&str], framed: bool) -> Result<Vec<Vec<u32>>, String>;

    /// The ids of some pairs of texts, with the special tokens that begin, separate and end them. Of a pair that is too
    /// long, the longer text is truncated.
    ///
    /// # Errors
    /// Why one of them cannot be encoded.
    fn encode_pairs(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<u32>>, String>;

    /// Its `tokenizer.json`.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn json(&self) -> Result<String, String>;

    /// The ids of its special tokens, in ascending order.
    fn specials(&self) -> Vec<u32>;
}
