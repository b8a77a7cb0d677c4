//! From text to token ids: a tokenizer that is loaded (`tokenizer.json`) or trained on the training texts.
//!
//! Training depends on the texts alone, so a resumed run trains the same tokenizer.

use std::path::Path;

use plugin::TextEncoder;

use super::TextObjective;
use crate::Error;
use crate::error::layout;
use crate::files::library;
use crate::identity::preparation::Preparation;

/// The special tokens of a network; their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Special {
    /// Fills rows.
    pub pad: u32,
    /// The mask token; equal to `pad` unless the objective is masked language modelling.
    pub mask: u32,
    /// Separates a text from the next.
    pub end: u32,
}

/// The special tokens of BERT, in the order of their ids.
const BERT: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
/// Far above any vocabulary that is in use; a network has a row of weights for each token.
const MOST_TOKENS: u32 = 1 << 22;
/// The one of GPT.
const GPT: &str = "<|endoftext|>";

/// A tokenizer and its special tokens.
#[derive(Debug)]
pub(crate) struct TextTokenizer {
    tokenizer: Box<dyn TextEncoder>,
    pub special: Special,
}

impl TextTokenizer {
    /// Reads `tokenizer.json`.
    pub fn load(path: &Path, goal: TextObjective) -> Result<TextTokenizer, Error> {
        if !path.is_file() {
            return Err(Error::Missing { path: path.into() });
        }
        let hint = "give a `tokenizer.json` as the `tokenizers` library saves it, or leave `tokenizer` out to have one trained";
        let refused = |why: String| layout(path, &why, hint);
        let failed = |why| refused(format!("no tokenizer: {why}"));
        let tokenizer = library(TOKENIZERS)?.tokenizer(path).map_err(failed)?;
        TextTokenizer::of(tokenizer, goal).map_err(refused)
    }

    /// Reads the text of a `tokenizer.json` that [`TextTokenizer::json`] wrote.
    pub fn of_json(json: &str, goal: TextObjective) -> Result<TextTokenizer, Error> {
        let failed = |why: String| Error::Internal(format!("the tokenizer of the checkpoint cannot be used: {why}"));
        let tokenizer = library(TOKENIZERS)?.tokenizer_of_json(json).map_err(failed)?;
        TextTokenizer::of(tokenizer, goal).map_err(failed)
    }

    /// Wraps a tokenizer. The error is the reason why it cannot be used, as part of a sentence.
    fn of(tokenizer: Box<dyn TextEncoder>, goal: TextObjective) -> Result<TextTokenizer, String> {
        let largest = tokenizer.largest().unwrap_or(0);
        if largest >= MOST_TOKENS {
            return Err(format!("the tokenizer has a token of id {largest}, and ids below {MOST_TOKENS} are served"));
        }
        let special = Special::of(&*tokenizer, goal).ok_or("the tokenizer lacks the special tokens of this model")?;
        Ok(TextTokenizer { tokenizer, special })
    }

    /// Trains a vocabulary of at most `size` tokens: WordPiece for BERT, byte-level BPE for GPT.
    pub fn train(
        texts: impl Iterator<Item: AsRef<str> + Send> + Send,
        size: usize,
        goal: TextObjective,
    ) -> Result<TextTokenizer, Error> {
        let failed = |why| Error::Internal(format!("no tokenizer could be trained: {why}"));
        let mut texts = texts.map(|text| text.as_ref().to_owned());
        let library = library(TOKENIZERS)?;
        let trained = match goal {
            TextObjective::Next => library.train_bpe(&mut texts, size, GPT),
            TextObjective::Class | TextObjective::Masked => library.train_word_pieces(&mut texts, size, BERT),
        };
        let tokenizer = trained.map_err(failed)?;
        let special = Special::of(&*tokenizer, goal);
        let special = special.ok_or_else(|| failed("its special tokens are missing".into()))?;
        Ok(TextTokenizer { tokenizer, special })
    }

    /// Every id is below it; files with gaps in their ids have fewer tokens.
    pub fn count(&self) -> usize {
        self.tokenizer.largest().map_or(0, |largest| largest as usize + 1)
    }

    /// The token ids of each text; with `length`, cut to so many with what begins and ends a text.
    pub fn encode(
        &mut self,
        texts: &[&str],
        length: Option<usize>,
        preparation: &Preparation,
    ) -> Result<Vec<Vec<u32>>, Error> {
        self.tokenizer.truncate(length).map_err(undivided)?;
        let mut ids = Vec::with_capacity(texts.len());
        for some in texts.chunks(AT_A_TIME) {
            ids.extend(self.tokenizer.encode(some, length.is_some()).map_err(undivided)?);
            preparation.advance(some.len());
        }
        self.tokenizer.truncate(None).map_err(undivided)?;
        Ok(ids)
    }

    /// The token ids of each pair of texts, `[CLS] first [SEP] second [SEP]`, truncated to `length`.
    pub fn encode_pairs(
        &mut self,
        pairs: &[(&str, &str)],
        length: usize,
        preparation: &Preparation,
    ) -> Result<Vec<Vec<u32>>, Error> {
        self.tokenizer.truncate(Some(length)).map_err(undivided)?;
        let mut ids = Vec::with_capacity(pairs.len());
        for some in pairs.chunks(AT_A_TIME) {
            ids.extend(self.tokenizer.encode_pairs(some).map_err(undivided)?);
            preparation.advance(some.len());
        }
        self.tokenizer.truncate(None).map_err(undivided)?;
        Ok(ids)
    }

    /// The token ids of one text, without what begins and ends it.
    pub fn numbers(&self, text: &str) -> Result<Vec<u32>, String> {
        Ok(self.tokenizer.encode(&[text], false)?.into_iter().flatten().collect())
    }

    /// The tokens before and after those of a text.
    pub fn frame(&self) -> Result<(Vec<u32>, Vec<u32>), Error> {
        let encoded = |framed| Ok::<_, Error>(self.tokenizer.encode(&["a"], framed).map_err(undivided)?.concat());
        let (framed, bare) = (encoded(true)?, encoded(false)?);
        let before = framed.windows(bare.len().max(1)).position(|part| part == bare).unwrap_or(framed.len());
        let behind = framed.get(before + bare.len()..).unwrap_or_default().to_vec();
        Ok((framed[..before].to_vec(), behind))
    }

    /// The `tokenizer.json` of it.
    pub fn json(&self) -> Result<String, Error> {
        self.tokenizer.json().map_err(|why| Error::Internal(format!("no tokenizer could be written: {why}")))
    }

    /// The ids of special tokens, which are never masked.
    pub fn specials(&self) -> Vec<u32> {
        self.tokenizer.specials()
    }
}

impl Special {
    /// Looks up the special tokens of a tokenizer; `None` if one is missing.
    fn of(tokenizer: &dyn TextEncoder, goal: TextObjective) -> Option<Special> {
        match goal {
            TextObjective::Next => tokenizer.id(GPT).map(|end| Special { pad: end, mask: end, end }),
            TextObjective::Class | TextObjective::Masked => Some(Special {
                pad: tokenizer.id("[PAD]")?,
                mask: tokenizer.id("[MASK]")?,
                end: tokenizer.id("[SEP]")?,
            }),
        }
    }
}

/// The optional feature that tokenizers need, for its message.
pub(super) const TOKENIZERS: &str = "tokenizers";

/// Texts that are encoded together: enough for all cores, and few enough that progress is seen.
const AT_A_TIME: usize = 1 << 12;

fn undivided(why: String) -> Error {
    Error::Internal(format!("a text could not be divided into tokens: {why}"))
}
