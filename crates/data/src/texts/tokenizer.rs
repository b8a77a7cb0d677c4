//! From text to numbers: a tokeniser that is loaded (`tokenizer.json`) or trained on the training texts.
//!
//! What is trained depends on the texts alone, so a resumed run has the same one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainer};
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::fixed_length::FixedLength;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::utils::truncation::TruncationParams;
use tokenizers::{
    AddedToken, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    Tokenizer, Trainer,
};

use super::TextObjective;
use crate::Error;
use crate::error::layout;
use crate::files::caught::caught;
use crate::identity::preparation::Preparation;

/// The words that mean something to a network; their places in the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Special {
    /// Fills rows.
    pub pad: u32,
    /// Stands for a word to be guessed; where the goal is none of that, as `pad`.
    pub mask: u32,
    /// Ends a text that another follows.
    pub end: u32,
}

/// The special words of BERT, in the order of their numbers.
const BERT: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
/// Far above any vocabulary that is in use; a network has a row of weights for each word.
const MOST_WORDS: u32 = 1 << 22;
/// The one of GPT.
const GPT: &str = "<|endoftext|>";

/// A tokeniser with what the rest needs to know of it.
#[derive(Debug)]
pub(crate) struct TextTokenizer {
    tokenizer: Tokenizer,
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
        let failed = |error| refused(format!("no tokeniser: {error}"));
        let tokenizer = guarded(|| Tokenizer::from_file(path)).map_err(failed)?;
        TextTokenizer::of(tokenizer, goal).map_err(refused)
    }

    /// Reads the text of a `tokenizer.json` that [`TextTokenizer::json`] wrote.
    pub fn of_json(json: &str, goal: TextObjective) -> Result<TextTokenizer, Error> {
        let failed = |why: String| Error::Internal(format!("the tokenizer of the checkpoint cannot be used: {why}"));
        let tokenizer = guarded(|| json.parse::<Tokenizer>()).map_err(|error| failed(error.to_string()))?;
        TextTokenizer::of(tokenizer, goal).map_err(failed)
    }

    /// The same, or what is wrong with a tokenizer, as half a sentence.
    fn of(mut tokenizer: Tokenizer, goal: TextObjective) -> Result<TextTokenizer, String> {
        let largest = tokenizer.get_vocab(true).into_values().max().unwrap_or(0);
        if largest >= MOST_WORDS {
            return Err(format!("the tokeniser numbers a word {largest}, and at most {MOST_WORDS} words are served"));
        }
        // Texts are cut and filled here, whatever the file says.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| format!("no tokeniser: {error}"))?;
        let id = |word: &str| tokenizer.token_to_id(word);
        let special = match goal {
            TextObjective::Next => id(GPT).map(|end| Special { pad: end, mask: end, end }),
            TextObjective::Class | TextObjective::Masked => match (id("[PAD]"), id("[MASK]"), id("[SEP]")) {
                (Some(pad), Some(mask), Some(end)) => Some(Special { pad, mask, end }),
                _ => None,
            },
        };
        let special = special.ok_or("the tokeniser lacks the special words of this model")?;
        Ok(TextTokenizer { tokenizer, special })
    }

    /// Learns a vocabulary of at most `size` words: word pieces for BERT, pairs of bytes for GPT.
    pub fn train(
        texts: impl Iterator<Item: AsRef<str> + Send> + Send,
        size: usize,
        goal: TextObjective,
    ) -> Result<TextTokenizer, Error> {
        let failed = |error| Error::Internal(format!("no tokeniser could be trained: {error}"));
        let mut tokenizer = match goal {
            TextObjective::Next => pairs(texts, size).map_err(failed)?,
            TextObjective::Class | TextObjective::Masked => pieces(texts, size).map_err(failed)?,
        };
        let id = |text: &str| tokenizer.token_to_id(text).ok_or_else(|| failed(format!("`{text}` is missing").into()));
        let special = match goal {
            TextObjective::Next => {
                let end = id(GPT)?;
                Special { pad: end, mask: end, end }
            }
            TextObjective::Class | TextObjective::Masked => {
                Special { pad: id("[PAD]")?, mask: id("[MASK]")?, end: id("[SEP]")? }
            }
        };
        if goal != TextObjective::Next {
            let processor = BertProcessing::new(("[SEP]".into(), id("[SEP]")?), ("[CLS]".into(), id("[CLS]")?));
            tokenizer.with_post_processor(Some(processor));
        }
        Ok(TextTokenizer { tokenizer, special })
    }

    /// Every number is below it; files with gaps in their numbers have fewer words.
    pub fn count(&self) -> usize {
        self.tokenizer.get_vocab(true).values().max().map_or(0, |largest| *largest as usize + 1)
    }

    /// The numbers of each text; with `length`, cut to so many with what begins and ends a text.
    pub fn encode(
        &mut self,
        texts: &[&str],
        length: Option<usize>,
        preparation: &Preparation,
    ) -> Result<Vec<Vec<u32>>, Error> {
        let failed = |error| Error::Internal(format!("a text could not be divided into words: {error}"));
        let truncation = length.map(|max_length| TruncationParams { max_length, ..TruncationParams::default() });
        self.tokenizer.with_truncation(truncation).map_err(failed)?;
        self.tokenizer.with_padding(None);
        let mut ids = Vec::with_capacity(texts.len());
        for some in texts.chunks(AT_A_TIME) {
            let encodings = guarded(|| self.tokenizer.encode_batch_fast(some.to_vec(), length.is_some()));
            ids.extend(encodings.map_err(failed)?.iter().map(|encoding| encoding.get_ids().to_vec()));
            preparation.advance(some.len());
        }
        self.tokenizer.with_truncation(None).map_err(failed)?;
        Ok(ids)
    }

    /// The numbers of one text, without what begins and ends it.
    pub fn numbers(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoding = guarded(|| self.tokenizer.encode_fast(text, false)).map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().to_vec())
    }

    /// What stands before and behind the words of a text.
    pub fn frame(&self) -> Result<(Vec<u32>, Vec<u32>), Error> {
        let failed = |error| Error::Internal(format!("a text could not be divided into words: {error}"));
        let framed = guarded(|| self.tokenizer.encode_fast("a", true)).map_err(failed)?.get_ids().to_vec();
        let bare = guarded(|| self.tokenizer.encode_fast("a", false)).map_err(failed)?.get_ids().to_vec();
        let before = framed.windows(bare.len().max(1)).position(|part| part == bare).unwrap_or(framed.len());
        let behind = framed.get(before + bare.len()..).unwrap_or_default().to_vec();
        Ok((framed[..before].to_vec(), behind))
    }

    /// The `tokenizer.json` of it.
    pub fn json(&self) -> Result<String, Error> {
        self.tokenizer
            .to_string(true)
            .map_err(|error| Error::Internal(format!("no tokeniser could be written: {error}")))
    }

    /// Whether a word is one of those that begin, end or fill, which are never guessed.
    pub fn specials(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self
            .tokenizer
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| id)
            .collect();
        all.sort_unstable();
        all
    }
}

/// Texts that are encoded together: enough for all cores, and few enough that progress is seen.
const AT_A_TIME: usize = 1 << 12;

/// Runs the library on what a file says, over some of which it panics.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> tokenizers::Result<T> {
    caught(work).unwrap_or_else(|| Err("the library for tokenisers cannot work with it".into()))
}

/// Characters of the longest word that is trained on. What is longer is no word but data, and the time that pairs in it
/// take grows with the square of its length.
const LONGEST: usize = 1000;

/// A byte pair encoding of at most `size` words (Sennrich et al. 2015), as GPT-2's; words of more than [`LONGEST`] bytes
/// are trained on in parts.
fn pairs(texts: impl Iterator<Item: AsRef<str> + Send> + Send, size: usize) -> tokenizers::Result<Tokenizer> {
    let alphabet: HashSet<char> = ByteLevel::alphabet().into_iter().collect();
    let builder = BpeTrainer::builder().vocab_size(size).min_frequency(2).show_progress(false);
    let special = AddedToken::from(GPT.to_owned(), true);
    let mut trainer: TrainerWrapper = builder.special_tokens(vec![special]).initial_alphabet(alphabet).build().into();
    let bytes = ByteLevel::default().add_prefix_space(false);
    let mut tokenizer = Tokenizer::new(BPE::default());
    let parts = Sequence::new(vec![bytes.into(), FixedLength::new(LONGEST).into()]);
    tokenizer.with_pre_tokenizer(Some(parts)).with_decoder(Some(bytes));
    tokenizer.train(&mut trainer, texts.map(|text| text.as_ref().to_owned()))?;
    tokenizer.with_pre_tokenizer(Some(bytes));
    Ok(tokenizer)
}

/// Times that a word is handed over at once.
const HANDED: usize = 1 << 12;

/// A word, and how often it came.
struct Handed {
    word: String,
    count: usize,
}

impl Handed {
    /// As one text; a word holds no line break.
    fn text(&self) -> String {
        format!("{}\n{}", self.count, self.word)
    }

    /// The words of such a text.
    fn words(text: &str) -> Vec<String> {
        let (count, word) = text.split_once('\n').unwrap_or(("1", text));
        vec![word.to_owned(); count.parse().unwrap_or(1)]
    }
}

/// Pieces of words, at most `size` (Wu et al. 2016), in lower case and without accents, as the uncased models of Devlin
/// et al.
///
/// Words of more than [`LONGEST`] characters are left out: the network is not shown them either.
///
/// The trainer numbers pieces within words as they come out of a table without an order, and breaks ties by these
/// numbers. So they are numbered beforehand, as if they were special, by their characters.
fn pieces(texts: impl Iterator<Item: AsRef<str>>, size: usize) -> tokenizers::Result<Tokenizer> {
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    for text in texts {
        let mut normalized = NormalizedString::from(text.as_ref());
        BertNormalizer::default().normalize(&mut normalized)?;
        let mut divided = PreTokenizedString::from(normalized);
        BertPreTokenizer.pre_tokenize(&mut divided)?;
        let words = divided.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
        for (word, _, _) in words.into_iter().filter(|(word, _, _)| word.chars().nth(LONGEST).is_none()) {
            match all.get_mut(word) {
                Some(count) => *count += 1,
                None => drop(all.insert(word.to_owned(), 1)),
            }
        }
    }
    let within: BTreeSet<char> = all.keys().flat_map(|word| word.chars().skip(1)).collect();
    let special: Vec<AddedToken> = BERT.iter().map(|text| AddedToken::from((*text).to_owned(), true)).collect();
    let numbered = within.iter().map(|c| AddedToken::from(format!("##{c}"), true));
    let first = special.iter().cloned().chain(numbered).collect();
    let builder = WordPieceTrainer::builder().vocab_size(size).min_frequency(2).show_progress(false);
    let mut trainer = builder.special_tokens(first).build();
    // The trainer counts words by itself, so each is handed over as often as it came, a few at a time.
    let often = |(word, count): (&String, &usize)| {
        let (word, count) = (word.clone(), *count);
        (0..count).step_by(HANDED).map(move |from| Handed { word: word.clone(), count: HANDED.min(count - from) })
    };
    // It asks for text, and is given what to make words of.
    let handed: Vec<Handed> = all.iter().flat_map(often).collect();
    trainer.feed(handed.iter().map(Handed::text), |text| Ok(Handed::words(text)))?;
    let mut model = WordPiece::builder().unk_token("[UNK]".into()).build()?;
    trainer.train(&mut model)?;
    let mut tokenizer = Tokenizer::new(model);
    tokenizer.with_normalizer(Some(BertNormalizer::default()))?;
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    tokenizer.add_special_tokens(special)?;
    Ok(tokenizer)
}
