//! What a tokenizer of any library must do.

use std::fmt::Debug;

/// Turns text into token ids.
pub trait TextEncoder: Debug + Send + Sync {
    /// The id of a token, if it has one.
    fn id(&self, token: &str) -> Option<u32>;

    /// The largest id; none where there is no token at all.
    fn largest(&self) -> Option<u32>;

    /// Cuts what is encoded from now on to so many tokens, those that begin and end a text among them.
    ///
    /// # Errors
    /// Where that cannot be done.
    fn truncate(&mut self, length: Option<usize>) -> Result<(), String>;

    /// The ids of some texts; where `framed`, with the special tokens that begin and end a text.
    ///
    /// # Errors
    /// Why one of them cannot be encoded.
    fn encode(&self, texts: &[&str], framed: bool) -> Result<Vec<Vec<u32>>, String>;

    /// Its `tokenizer.json`.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn json(&self) -> Result<String, String>;

    /// The ids of its special tokens, in ascending order.
    fn specials(&self) -> Vec<u32>;
}
