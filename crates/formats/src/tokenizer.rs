//! Tokenizers of the HuggingFace library: loading, training and encoding.
//!
//! Training depends on the texts alone, so a resumed run trains the same tokenizer.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use plugin::TextEncoder;
use plugin::caught::caught;
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

use crate::words::WordIds;

/// A tokenizer of the library, and the ids of words that it has encoded.
#[derive(Debug)]
struct Loaded(Tokenizer, Option<WordIds>);

/// Reads a `tokenizer.json`.
pub(crate) fn of_file(path: &Path) -> Result<Box<dyn TextEncoder>, String> {
    opened(|| Tokenizer::from_file(path))
}

/// Reads the text of one.
pub(crate) fn of_json(json: &str) -> Result<Box<dyn TextEncoder>, String> {
    opened(|| json.parse::<Tokenizer>())
}

/// Truncation and padding are the caller's, whatever the file specifies.
fn opened(read: impl FnOnce() -> tokenizers::Result<Tokenizer>) -> Result<Box<dyn TextEncoder>, String> {
    let read = || {
        let mut tokenizer = guarded(read)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None)?;
        Ok(tokenizer)
    };
    done(read())
}

/// Trains a byte pair encoding.
pub(crate) fn bpe(
    texts: &mut (dyn Iterator<Item = String> + Send),
    size: usize,
    end: &str,
) -> Result<Box<dyn TextEncoder>, String> {
    done(pairs(texts, size, end))
}

/// Trains WordPiece.
pub(crate) fn word_pieces(
    texts: &mut dyn Iterator<Item = String>,
    size: usize,
    special: [&str; 5],
) -> Result<Box<dyn TextEncoder>, String> {
    let trained = pieces(texts, size, special).and_then(|mut tokenizer| {
        let [_, _, begin, end, _] = special;
        let id = |token: &str| tokenizer.token_to_id(token).ok_or_else(|| format!("`{token}` is missing"));
        let processor = BertProcessing::new((end.into(), id(end)?), (begin.into(), id(begin)?));
        tokenizer.with_post_processor(Some(processor));
        Ok(tokenizer)
    });
    done(trained)
}

fn done(tokenizer: tokenizers::Result<Tokenizer>) -> Result<Box<dyn TextEncoder>, String> {
    match tokenizer {
        Ok(tokenizer) => {
            let words = WordIds::of(&tokenizer);
            Ok(Box::new(Loaded(tokenizer, words)))
        }
        Err(error) => Err(error.to_string()),
    }
}

impl TextEncoder for Loaded {
    fn id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    fn largest(&self) -> Option<u32> {
        self.0.get_vocab(true).into_values().max()
    }

    fn truncate(&mut self, length: Option<usize>) -> Result<(), String> {
        let truncation = length.map(|max_length| TruncationParams { max_length, ..TruncationParams::default() });
        self.0.with_padding(None);
        self.0.with_truncation(truncation).map(|_| ()).map_err(|error| error.to_string())
    }

    fn encode(&self, texts: &[&str], framed: bool) -> Result<Vec<Vec<u32>>, String> {
        if let Some(words) = &self.1 {
            return guarded(|| words.encode(&self.0, texts, framed)).map_err(|error| error.to_string());
        }
        if let [text] = texts {
            let encoding = guarded(|| self.0.encode_fast(*text, framed)).map_err(|error| error.to_string())?;
            return Ok(vec![encoding.get_ids().to_vec()]);
        }
        let encodings = guarded(|| self.0.encode_batch_fast(texts.to_vec(), framed));
        let encodings = encodings.map_err(|error| error.to_string())?;
        Ok(encodings.iter().map(|encoding| encoding.get_ids().to_vec()).collect())
    }

    fn encode_pairs(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<u32>>, String> {
        let encodings =
            guarded(|| self.0.encode_batch_fast(pairs.to_vec(), true)).map_err(|error| error.to_string())?;
        Ok(encodings.iter().map(|encoding| encoding.get_ids().to_vec()).collect())
    }

    fn json(&self) -> Result<String, String> {
        self.0.to_string(true).map_err(|error| error.to_string())
    }

    fn specials(&self) -> Vec<u32> {
        let added = self.0.get_added_tokens_decoder().into_iter();
        let mut all: Vec<u32> = added.filter(|(_, token)| token.special).map(|(id, _)| id).collect();
        all.sort_unstable();
        all
    }
}

/// Calls the library, which panics on some damaged files.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> tokenizers::Result<T> {
    caught(work).unwrap_or_else(|| Err("the library for tokenizers cannot work with it".into()))
}

/// Characters of the longest word that is trained on. Longer ones are data rather than words, and the time for their
/// pairs grows with the square of the length.
const LONGEST: usize = 1000;

/// A byte pair encoding of at most `size` tokens (Sennrich et al. 2015), as in GPT-2; words of more than [`LONGEST`]
/// bytes are split for training.
fn pairs(texts: &mut (dyn Iterator<Item = String> + Send), size: usize, end: &str) -> tokenizers::Result<Tokenizer> {
    let alphabet: HashSet<char> = ByteLevel::alphabet().into_iter().collect();
    let builder = BpeTrainer::builder().vocab_size(size).min_frequency(2).show_progress(false);
    let special = AddedToken::from(end.to_owned(), true);
    let mut trainer: TrainerWrapper = builder.special_tokens(vec![special]).initial_alphabet(alphabet).build().into();
    let bytes = ByteLevel::default().add_prefix_space(false);
    let mut tokenizer = Tokenizer::new(BPE::default());
    let parts = Sequence::new(vec![bytes.into(), FixedLength::new(LONGEST).into()]);
    tokenizer.with_pre_tokenizer(Some(parts)).with_decoder(Some(bytes));
    tokenizer.train(&mut trainer, texts)?;
    tokenizer.with_pre_tokenizer(Some(bytes));
    Ok(tokenizer)
}

/// Largest count with which a word is passed at once.
const HANDED: usize = 1 << 12;

/// A word, and its count.
struct Handed {
    word: String,
    count: usize,
}

impl Handed {
    /// Encodes the word and its count as one text; a word contains no line break.
    fn text(&self) -> String {
        format!("{}\n{}", self.count, self.word)
    }

    /// Decodes the words of such a text.
    fn words(text: &str) -> Vec<String> {
        let (count, word) = text.split_once('\n').unwrap_or(("1", text));
        vec![word.to_owned(); count.parse().unwrap_or(1)]
    }
}

/// WordPiece with at most `size` tokens (Wu et al. 2016), lower-case and without accents, as in the uncased models of
/// Devlin et al.
///
/// Words of more than [`LONGEST`] characters are skipped, as they also are in encoding.
///
/// The trainer numbers characters in the order of an unordered map, and breaks ties by these numbers. So they are
/// numbered beforehand, as special tokens, in their order.
fn pieces(texts: &mut dyn Iterator<Item = String>, size: usize, five: [&str; 5]) -> tokenizers::Result<Tokenizer> {
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    for text in texts {
        let mut normalized = NormalizedString::from(text.as_str());
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
    let special: Vec<AddedToken> = five.iter().map(|text| AddedToken::from((*text).to_owned(), true)).collect();
    let numbered = within.iter().map(|c| AddedToken::from(format!("##{c}"), true));
    let first = special.iter().cloned().chain(numbered).collect();
    let builder = WordPieceTrainer::builder().vocab_size(size).min_frequency(2).show_progress(false);
    let mut trainer = builder.special_tokens(first).build();
    // The trainer counts words itself, so each is repeated up to its count, in batches.
    let often = |(word, count): (&String, &usize)| {
        let (word, count) = (word.clone(), *count);
        (0..count).step_by(HANDED).map(move |from| Handed { word: word.clone(), count: HANDED.min(count - from) })
    };
    // It requires text, and a function that splits it into words.
    let handed: Vec<Handed> = all.iter().flat_map(often).collect();
    trainer.feed(handed.iter().map(Handed::text), |text| Ok(Handed::words(text)))?;
    let mut model = WordPiece::builder().unk_token(five[1].into()).build()?;
    trainer.train(&mut model)?;
    let mut tokenizer = Tokenizer::new(model);
    tokenizer.with_normalizer(Some(BertNormalizer::default()))?;
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    tokenizer.add_special_tokens(special)?;
    Ok(tokenizer)
}
