//! The token ids of words that were encoded before: most words of a text are repetitions, and a lookup is far cheaper
//! than the encoding, which allocates for every byte.
//!
//! A text is divided before spaces where its tokenizer divides it anyway, so the ids of the parts are those of the whole.
//! [`WordIds::of`] knows the tokenizers for which that holds; with others, texts are encoded by the library alone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokenizers::normalizers::NormalizerWrapper as Normalizing;
use tokenizers::parallelism::MaybeParallelSlice;
use tokenizers::pre_tokenizers::PreTokenizerWrapper as Dividing;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    Encoding, Model, ModelWrapper, OffsetType, PostProcessorWrapper, PreTokenizer, Result, SplitDelimiterBehavior,
    Tokenizer,
};

/// Words of each of the two generations of a [`Memory`]: some 7 MB for both.
const WORDS: usize = 1 << 15;
/// Bytes of the longest word that is kept.
const LONGEST: usize = 64;
/// Groups of texts that are encoded in parallel, and the texts of a group at most.
const GROUPS: usize = 256;
const GROUP: usize = 64;

/// Patterns of which no match contains a space behind another character: those of GPT-2, Qwen 2 and Llama 3.
const PATTERNS: [&str; 3] = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// The ids of words, of one tokenizer.
#[derive(Debug)]
pub(crate) struct WordIds {
    /// Added tokens that are found by what is around them. A text that contains one is encoded as a whole.
    dependent: Vec<String>,
    /// Whether ids without a frame are the model's, whatever the post-processor is.
    is_bare: bool,
    /// What threads remember that encode nothing now.
    idle: Mutex<Vec<Memory>>,
}

/// The words that a thread has met: when there are too many, those not met lately are dropped.
#[derive(Debug, Default)]
struct Memory {
    recent: HashMap<Box<str>, Box<[u32]>>,
    older: HashMap<Box<str>, Box<[u32]>>,
}

/// What happens to white space at a division.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spaces {
    /// No piece has any, so there is a border at all of it.
    Removed,
    /// There is a border before a space that follows another character.
    Kept,
}

impl WordIds {
    /// `None` for a tokenizer of a kind that is not known to divide texts before spaces.
    pub fn of(tokenizer: &Tokenizer) -> Option<WordIds> {
        let spaces = spaces(tokenizer.get_pre_tokenizer()?)?;
        if !tokenizer.get_normalizer().is_none_or(|normalizer| is_local(normalizer, spaces)) {
            return None;
        }
        let is_random = match tokenizer.get_model() {
            ModelWrapper::BPE(model) => model.dropout.is_some_and(|share| share > 0.0),
            ModelWrapper::Unigram(model) => model.alpha.is_some_and(|alpha| alpha > 0.0),
            ModelWrapper::WordPiece(_) | ModelWrapper::WordLevel(_) => false,
        };
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        // These are looked for after normalization.
        let is_hidden = tokenizer.get_normalizer().is_some() && added.values().any(|token| token.normalized);
        if is_random || is_hidden {
            return None;
        }
        let dependent = added.values().filter(|token| {
            token.lstrip || token.rstrip || token.single_word || token.content.contains(char::is_whitespace)
        });
        let is_bare = match tokenizer.get_post_processor() {
            None => true,
            Some(processor) => matches!(
                processor,
                PostProcessorWrapper::ByteLevel(_) | PostProcessorWrapper::Bert(_) | PostProcessorWrapper::Roberta(_)
            ),
        };
        let dependent = dependent.map(|token| token.content.clone()).collect();
        Some(WordIds { dependent, is_bare, idle: Mutex::default() })
    }

    /// The ids that `tokenizer` gives for each text.
    pub fn encode(&self, tokenizer: &Tokenizer, texts: &[&str], framed: bool) -> Result<Vec<Vec<u32>>> {
        let group = (texts.len() / GROUPS).clamp(1, GROUP);
        let groups = texts.maybe_par_chunks_cond(texts.len() > 1, group).map(|some| {
            let mut memory = self.idle().pop().unwrap_or_default();
            let ids = some.iter().map(|text| self.text(tokenizer, text, framed, &mut memory)).collect();
            self.idle().push(memory);
            ids
        });
        Ok(groups.collect::<Result<Vec<Vec<Vec<u32>>>>>()?.into_iter().flatten().collect())
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Memory>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self, tokenizer: &Tokenizer, text: &str, framed: bool, memory: &mut Memory) -> Result<Vec<u32>> {
        let limit = tokenizer.get_truncation().map(|truncation| truncation.max_length);
        let ids = if self.dependent.iter().any(|token| text.contains(token)) {
            whole(tokenizer, text)?
        } else {
            memory.words(tokenizer, text, limit.unwrap_or(usize::MAX))?
        };
        if self.is_bare && !framed && limit.is_none() {
            return Ok(ids);
        }
        let unframed: Encoding = ids.into_iter().map(|id| (id, String::new(), (0, 0), None, 0)).collect();
        Ok(tokenizer.post_process(unframed, None, framed)?.get_ids().to_vec())
    }
}

impl Memory {
    /// The ids of a text, at least `limit` if there are so many.
    fn words(&mut self, tokenizer: &Tokenizer, text: &str, limit: usize) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity((text.len() / 4).min(limit));
        let mut from = 0;
        for to in text.match_indices(' ').map(|(at, _)| at).chain([text.len()]) {
            let last = text[from..to].chars().next_back();
            if to == text.len() || last.is_some_and(|last| !last.is_whitespace()) {
                self.word(tokenizer, &text[from..to], &mut ids)?;
                from = to;
            }
            if ids.len() >= limit {
                break;
            }
        }
        Ok(ids)
    }

    /// Appends the ids of a word with the space before it.
    fn word(&mut self, tokenizer: &Tokenizer, word: &str, ids: &mut Vec<u32>) -> Result<()> {
        if let Some(known) = self.recent.get(word) {
            ids.extend_from_slice(known);
            return Ok(());
        }
        let (word, known) = match self.older.remove_entry(word) {
            Some(entry) => entry,
            None => (word.into(), whole(tokenizer, word)?.into_boxed_slice()),
        };
        ids.extend_from_slice(&known);
        if word.len() > LONGEST {
            return Ok(());
        }
        if self.recent.len() >= WORDS {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(word, known);
        Ok(())
    }
}

/// The ids of a text by the library, without truncation and frame.
fn whole(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let mut pieces = tokenizer.get_added_vocabulary().extract_and_normalize(tokenizer.get_normalizer(), text);
    if let Some(divider) = tokenizer.get_pre_tokenizer() {
        divider.pre_tokenize(&mut pieces)?;
    }
    tokenizer.get_model().tokenize_in_pretokenized(&mut pieces, None)?;
    Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
}

/// What a pre-tokenizer does with spaces; `None` if it does not divide before them.
fn spaces(divider: &Dividing) -> Option<Spaces> {
    match divider {
        Dividing::BertPreTokenizer(_) | Dividing::Whitespace(_) | Dividing::WhitespaceSplit(_) => Some(Spaces::Removed),
        Dividing::ByteLevel(bytes) => bytes.use_regex.then_some(Spaces::Kept),
        Dividing::Metaspace(meta) => meta.split.then_some(Spaces::Kept),
        Dividing::Split(Split { pattern: SplitPattern::Regex(pattern), behavior, invert, .. }) => {
            let takes_matches = match behavior {
                SplitDelimiterBehavior::Isolated => !invert,
                SplitDelimiterBehavior::Removed => *invert,
                _ => false,
            };
            (takes_matches && PATTERNS.contains(&pattern.as_str())).then_some(Spaces::Kept)
        }
        Dividing::Sequence(all) => {
            // Digits are told from others character by character; what follows a division has each piece by itself.
            let mut rest = all.as_ref().iter().skip_while(|divider| matches!(divider, Dividing::Digits(_)));
            let spaces = spaces(rest.next()?)?;
            let is_by_piece = |divider: &Dividing| {
                matches!(
                    divider,
                    Dividing::BertPreTokenizer(_)
                        | Dividing::ByteLevel(_)
                        | Dividing::Digits(_)
                        | Dividing::Punctuation(_)
                        | Dividing::Whitespace(_)
                        | Dividing::WhitespaceSplit(_)
                )
            };
            rest.all(is_by_piece).then_some(spaces)
        }
        _ => None,
    }
}

/// Whether the normal form of a text consists of those of its parts, and what was divided before spaces still is.
fn is_local(normalizer: &Normalizing, spaces: Spaces) -> bool {
    match normalizer {
        Normalizing::Lowercase(_) | Normalizing::NFC(_) => true,
        // Some of their results are white space or nothing.
        Normalizing::BertNormalizer(_)
        | Normalizing::NFD(_)
        | Normalizing::NFKC(_)
        | Normalizing::NFKD(_)
        | Normalizing::StripAccents(_) => spaces == Spaces::Removed,
        Normalizing::Sequence(all) => all.as_ref().iter().all(|normalizer| is_local(normalizer, spaces)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tokenizer::{bpe, of_json, word_pieces};

    /// Pieces of text that tokenizers treat in different ways.
    const PIECES: [&str; 52] = [
        "the",
        "loss",
        "falls",
        "Größe",
        "İ",
        "ẞ",
        "e\u{301}",
        "\u{301}",
        "a",
        "A",
        "don't",
        "'s",
        "'",
        "it",
        "12345",
        "7",
        "...",
        ",",
        "-",
        "_",
        "▁",
        "<|endoftext|>",
        "[SEP]",
        "[MASK]",
        "<mask>",
        "two words",
        "🙂",
        "👩\u{200d}🚀",
        "中文",
        "한",
        "ｆｕｌｌ",
        "ﬁ",
        "\u{fdfa}",
        "¨",
        "½",
        "\u{0}",
        "\u{1f}",
        "\u{ad}",
        "\u{200b}",
        "\u{feff}",
        "\u{85}",
        "\u{a0}",
        "\u{2000}",
        "\u{3000}",
        "\n",
        "\r\n",
        "\t",
        "\u{b}",
        "  ",
        "   ",
        " ",
        " ",
    ];

    /// Texts that depend on `seed` alone; every second piece is a space more often than not.
    fn texts(seed: u64, count: usize) -> Vec<String> {
        let mut state = seed;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut text = || {
            let mut text = String::new();
            for _ in 0..draw(24) {
                text.push_str(PIECES[draw(PIECES.len())]);
                text.push_str(if draw(3) > 0 { " " } else { "" });
            }
            text
        };
        (0..count).map(|_| text()).collect()
    }

    fn trained() -> [Value; 2] {
        let five = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
        let byte_pairs = bpe(&mut texts(1, 400).into_iter(), 400, "<|endoftext|>").unwrap();
        let word_pieces = word_pieces(&mut texts(1, 400).into_iter(), 300, five).unwrap();
        [byte_pairs, word_pieces].map(|tokenizer| serde_json::from_str(&tokenizer.json().unwrap()).unwrap())
    }

    /// A Unigram of single characters and some words.
    fn unigram() -> Value {
        let characters = texts(1, 400).concat();
        let mut vocabulary: Vec<String> = characters.chars().filter(|c| !c.is_whitespace()).map(String::from).collect();
        vocabulary.extend(["▁the", "▁loss", "the", "oss", "▁▁", " the", "fall"].map(String::from));
        vocabulary.sort();
        vocabulary.dedup();
        let scored = vocabulary.iter().map(|word| json!([word, -10.0 + 2.0 * word.chars().count() as f64]));
        let all: Vec<Value> = [json!(["<unk>", 0.0])].into_iter().chain(scored).collect();
        json!({"version": "1.0", "added_tokens": [], "model": {"type": "Unigram", "unk_id": 0, "vocab": all}})
    }

    fn with(json: &Value, changes: &[(&str, Value)]) -> Value {
        let mut json = json.clone();
        for (key, value) in changes {
            json[*key] = value.clone();
        }
        json
    }

    fn added(content: &str, change: &str) -> Value {
        let mut token = json!({
            "id": 5, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true
        });
        if !change.is_empty() {
            token[change] = true.into();
        }
        token
    }

    fn split(pattern: &str, behavior: &str, invert: bool) -> Value {
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert});
        json!({"type": "Sequence", "pretokenizers": [split, bytes]})
    }

    /// Compares with the library's own encoding: with a frame and without, truncated and not.
    fn agrees(name: &str, json: &Value) {
        let mut tokenizer: Tokenizer = json.to_string().parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        let words = WordIds::of(&tokenizer).unwrap_or_else(|| panic!("{name} is not known"));
        let texts = texts(7, 1_500);
        let texts: Vec<&str> = texts.iter().map(String::as_str).chain([""]).collect();
        for (length, framed) in [(None, false), (None, true), (Some(9), true), (Some(4), false), (None, false)] {
            let truncation = length.map(|max_length| tokenizers::TruncationParams { max_length, ..Default::default() });
            tokenizer.with_truncation(truncation).unwrap();
            let expected = tokenizer.encode_batch_fast(texts.clone(), framed).unwrap();
            let found = words.encode(&tokenizer, &texts, framed).unwrap();
            assert_eq!(found.len(), texts.len());
            for ((found, expected), text) in found.iter().zip(&expected).zip(&texts) {
                assert_eq!(found, expected.get_ids(), "{name}: {text:?}, {length:?}, framed: {framed}");
            }
        }
    }

    #[test]
    fn ids_are_those_of_the_library() {
        let ([pairs, pieces], unigram) = (trained(), unigram());
        let normalizer = |kind: &str| ("normalizer", json!({"type": kind}));
        let divider = |kind: &str| ("pre_tokenizer", json!({"type": kind}));
        let prefixed = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let meta =
            |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
        let sequence = |all: &[Value]| ("pre_tokenizer", json!({"type": "Sequence", "pretokenizers": all}));
        let digits = json!({"type": "Digits", "individual_digits": true});
        agrees("byte pairs", &pairs);
        agrees("word pieces", &pieces);
        agrees("a prefix", &with(&pairs, &[("pre_tokenizer", prefixed.clone())]));
        agrees("NFC", &with(&pairs, &[normalizer("NFC"), ("added_tokens", json!([]))]));
        agrees("digits", &with(&pairs, &[sequence(&[digits, prefixed])]));
        for pattern in PATTERNS {
            agrees("a pattern", &with(&pairs, &[("pre_tokenizer", split(pattern, "Isolated", false))]));
            agrees("its inverse", &with(&pairs, &[("pre_tokenizer", split(pattern, "Removed", true))]));
        }
        for change in ["lstrip", "rstrip", "single_word", ""] {
            let tokens = json!([added("<mask>", change), added("two words", ""), added("loss", change)]);
            agrees(change, &with(&pairs, &[("added_tokens", tokens)]));
        }
        let frame = json!({"type": "RobertaProcessing", "sep": ["a", 70], "cls": ["b", 71], "trim_offsets": true, "add_prefix_space": false});
        agrees("a frame", &with(&pairs, &[("post_processor", frame)]));
        for kind in ["NFD", "NFKC", "NFKD", "StripAccents", "Lowercase"] {
            agrees(kind, &with(&pieces, &[normalizer(kind), divider("Whitespace")]));
            agrees(kind, &with(&unigram, &[normalizer(kind), divider("WhitespaceSplit")]));
        }
        for scheme in ["always", "first", "never"] {
            agrees(scheme, &with(&unigram, &[("pre_tokenizer", meta(scheme)), normalizer("Lowercase")]));
        }
        agrees(
            "word by word",
            &with(&unigram, &[sequence(&[json!({"type": "WhitespaceSplit"}), json!({"type": "Punctuation"})])]),
        );
    }

    #[test]
    fn other_tokenizers_are_left_to_the_library() {
        let ([pairs, pieces], unigram) = (trained(), unigram());
        let whole = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false});
        let others = [
            unigram.clone(),
            with(&unigram, &[("pre_tokenizer", whole)]),
            with(&pairs, &[("normalizer", json!({"type": "Strip", "strip_left": true, "strip_right": true}))]),
            with(&pairs, &[("normalizer", json!({"type": "NFKC"}))]),
            with(&pairs, &[("pre_tokenizer", split(r"\w+ \w+", "Isolated", false))]),
            with(&pairs, &[("pre_tokenizer", split(PATTERNS[0], "MergedWithNext", false))]),
            with(&pieces, &[("added_tokens", json!([added("<mask>", "normalized")]))]),
        ];
        for json in others {
            let tokenizer: Tokenizer = json.to_string().parse().unwrap();
            assert!(WordIds::of(&tokenizer).is_none(), "{}", json["pre_tokenizer"]);
            let texts = texts(3, 50);
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let encoded = of_json(&json.to_string()).unwrap().encode(&texts, false).unwrap();
            let expected = tokenizer.encode_batch_fast(texts, false).unwrap();
            assert!(encoded.iter().zip(&expected).all(|(found, expected)| found == expected.get_ids()));
        }
    }

    #[test]
    fn no_more_words_are_kept_than_two_generations() {
        let [json, _] = trained();
        let tokenizer: Tokenizer = json.to_string().parse().unwrap();
        let words = WordIds::of(&tokenizer).unwrap();
        let text: String = (0..2 * WORDS + 900).map(|number| format!("{} ", number % (2 * WORDS + 800))).collect();
        let texts = [text.as_str(), &text[..5_000], &"long".repeat(100)];
        let expected = tokenizer.encode_batch_fast(texts.to_vec(), false).unwrap();
        for text in [0, 1, 2, 0] {
            let found = words.encode(&tokenizer, &texts[text..=text], false).unwrap();
            assert_eq!(found[0], expected[text].get_ids());
        }
        let idle = words.idle();
        assert!(idle.len() == 1 && idle[0].older.len() == WORDS && idle[0].recent.len() <= WORDS);
        assert!(idle[0].recent.keys().chain(idle[0].older.keys()).all(|word| word.len() <= LONGEST));
    }
}
