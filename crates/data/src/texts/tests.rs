//! Texts in, rows and batches out.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::Cursor;

/// A folder with one file of texts.
struct Shelf {
    folder: tempfile::TempDir,
    name: &'static str,
}

impl Shelf {
    fn new(name: &'static str, content: &str) -> Shelf {
        let folder = tempfile::tempdir().unwrap();
        let file = fs::File::create(folder.path().join(name)).unwrap();
        if name.ends_with(".gz") {
            let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            packed.write_all(content.as_bytes()).unwrap();
            packed.finish().unwrap();
        } else {
            fs::write(folder.path().join(name), content).unwrap();
        }
        Shelf { folder, name }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    fn open(&self, keys: &str, goal: TextObjective) -> Result<TextDataset, Error> {
        TextDataset::open(&spec(), &text(keys), goal, &self.path(), 3)
    }
}

fn numbers_of(texts: &TextDataset, part: Part) -> Vec<u32> {
    (0..texts.rows.count(part)).map(|index| texts.rows.number(part, index)).collect()
}

fn row_of(texts: &TextDataset, number: u32) -> Vec<u32> {
    texts.rows.tokens(&texts.rows.span(number).unwrap()).unwrap()
}

/// The rows of training, validation and test.
fn all_rows(texts: &TextDataset) -> Vec<Vec<u32>> {
    let parts = [Part::Train, Part::Validation, Part::Test];
    parts.into_iter().flat_map(|part| numbers_of(texts, part)).map(|number| row_of(texts, number)).collect()
}

fn spec() -> Data {
    serde_json::from_str(r#"{"path": "", "split": [0.6, 0.2, 0.2]}"#).unwrap()
}

fn text(keys: &str) -> Text {
    serde_json::from_str(keys).unwrap()
}

#[test]
fn a_mark_of_utf8_is_passed_over_and_numbers_that_nobody_has_are_refused() {
    let line = "{\"text\": \"some words of a text\"}\n";
    let [plain, marked] = [line.repeat(20), format!("\u{feff}{}", line.repeat(20))]
        .map(|content| Shelf::new("a.jsonl", &content).open(r#"{"vocabulary": 300}"#, TextObjective::Next).unwrap());
    assert_eq!(all_rows(&plain), all_rows(&marked));

    let shelf = Shelf::new("a.jsonl", &line.repeat(20));
    let vocabulary = r#"{"a": 0, "b": 4294967294, "<|endoftext|>": 1}"#;
    let tokenizer = shelf.folder.path().join("tokenizer.json");
    let model = format!(r#"{{"version": "1.0", "model": {{"type": "BPE", "vocab": {vocabulary}, "merges": []}}}}"#);
    fs::write(&tokenizer, model).unwrap();
    let keys = format!("{{\"tokenizer\": {:?}}}", tokenizer.display().to_string());
    let report = shelf.open(&keys, TextObjective::Next).unwrap_err().finding();
    assert!(report.message.contains("a token of id 4294967294"), "{}", report.message);
}

/// Sentences of two kinds of words.
fn rows() -> Vec<(usize, String)> {
    let words = [["cat", "dog", "bird"], ["ship", "train", "plane"]];
    let sentence = |number: usize| {
        let kind = number % 2;
        let pick = |step: usize| words[kind][(number / 2 + step) % 3];
        (kind, format!("the {} and a {} saw {} {}", pick(0), pick(1), number % 7, pick(2)))
    };
    (0..50).map(sentence).collect()
}

fn csv(header: &str) -> String {
    let line = |(kind, text): (usize, String)| format!("\"{}\",\"{text}\",\"so, it \"\"was\"\"\"\n", kind + 1);
    header.to_owned() + &rows().into_iter().map(line).collect::<String>()
}

const NUMBERED: &str = r#"{"columns": ["2", "3"], "label": "1", "length": 16, "vocabulary": 300}"#;
const NAMED: &str = r#"{"columns": ["title", "body"], "label": "class", "length": 16, "vocabulary": 300}"#;

#[test]
fn every_form_gives_the_same_rows() {
    let lines = |(kind, text): (usize, String)| {
        serde_json::json!({"class": kind + 1, "title": text, "body": "so, it \"was\""}).to_string() + "\n"
    };
    let jsonl: String = rows().into_iter().map(lines).collect();
    let shelves = [
        (Shelf::new("texts.csv", &csv("")), NUMBERED),
        (Shelf::new("texts.csv", &csv("class,title,body\n")), NAMED),
        (Shelf::new("texts.csv.gz", &csv("")), NUMBERED),
        (Shelf::new("texts.jsonl", &jsonl), NAMED),
    ];
    let opened: Vec<TextDataset> =
        shelves.iter().map(|(shelf, keys)| shelf.open(keys, TextObjective::Class).unwrap()).collect();
    for texts in &opened {
        assert_eq!((texts.classes(), texts.counts()), (&["1".to_owned(), "2".to_owned()][..], [30, 10, 10]));
        assert_eq!((all_rows(texts), &texts.labels), (all_rows(&opened[0]), &opened[0].labels));
        // Training the tokenizer again must give the same one, or a resumed run would see other token ids.
        assert_eq!(texts.tokenizer(), opened[0].tokenizer());
    }
    let outline = TextOutline::of(&spec(), &text(NUMBERED), TextObjective::Class, &shelves[0].0.path(), 3).unwrap();
    assert_eq!(outline, TextOutline { classes: vec!["1".into(), "2".into()], counts: Some([30, 10, 10]) });
}

/// A row of a pair is `[CLS] first [SEP] second [SEP]`, as the `tokenizers` library encodes pairs, and the longer text of
/// one that is too long is truncated.
#[test]
fn pairs_of_texts_are_encoded_as_pairs() {
    let row = |(kind, text): (usize, String)| format!("{kind},\"{text}\",the {kind}\n");
    let csv = format!("class,one,two\n{}", rows().into_iter().map(row).collect::<String>());
    let row = |(kind, text): (usize, String)| {
        serde_json::json!({"class": kind, "one": text, "two": format!("the {kind}")}).to_string() + "\n"
    };
    let jsonl: String = rows().into_iter().map(row).collect();
    let keys = |length: usize, pair: &str| {
        format!(r#"{{"columns": ["one"], {pair} "label": "class", "length": {length}, "vocabulary": 300}}"#)
    };
    let shelf = Shelf::new("texts.csv", &csv);
    let open = |shelf: &Shelf, length, pair| shelf.open(&keys(length, pair), TextObjective::Class).unwrap();
    let pairs = open(&shelf, 40, r#""pair": "two","#);
    assert_eq!(all_rows(&pairs), all_rows(&open(&Shelf::new("texts.jsonl", &jsonl), 40, r#""pair": "two","#)));
    let tokenizer = tokenizers::Tokenizer::from_bytes(pairs.tokenizer()).unwrap();
    let ids = |text: &str| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    let (begin, separator) = (tokenizer.token_to_id("[CLS]").unwrap(), pairs.separator().unwrap());
    let short = open(&shelf, 10, r#""pair": "two","#);
    for (number, (kind, first)) in (0..).zip(rows()) {
        let second = format!("the {kind}");
        let encoding = tokenizer.encode((first.as_str(), second.as_str()), true).unwrap();
        assert_eq!(row_of(&pairs, number), encoding.get_ids());
        let (first, second) = (ids(&first), ids(&second));
        assert_eq!(row_of(&pairs, number), [&[begin], &first[..], &[separator], &second, &[separator]].concat());
        let kept = &first[..10 - 3 - second.len()];
        assert_eq!(row_of(&short, number), [&[begin], kept, &[separator], &second, &[separator]].concat());
    }
    assert_eq!(open(&shelf, 40, "").separator(), None);
}

#[test]
fn a_saved_tokeniser_is_read_again() {
    let shelf = Shelf::new("texts.csv", &csv(""));
    let first = shelf.open(NUMBERED, TextObjective::Class).unwrap();
    let file = shelf.folder.path().join("tokenizer.json");
    fs::write(&file, first.tokenizer()).unwrap();
    let keys = Text { tokenizer: Some(file.display().to_string()), ..text(NUMBERED) };
    let second = TextDataset::open(&spec(), &keys, TextObjective::Class, &shelf.path(), 3).unwrap();
    assert_eq!((all_rows(&second), second.vocabulary), (all_rows(&first), first.vocabulary));
}

#[test]
fn batches_are_filled_up_and_resumed() {
    let texts = Arc::new(Shelf::new("texts.csv", &csv("")).open(NUMBERED, TextObjective::Class).unwrap());
    let all = |from: Cursor| {
        let mut loader = TextLoader::train(Arc::clone(&texts), 7, 1, from, 2);
        let mut batches = Vec::new();
        while let Some(batch) = loader.next() {
            batches.push(TextBatch { wait: Duration::ZERO, ..batch.unwrap() });
        }
        batches
    };
    let batches = all(Cursor::START);
    assert_eq!(batches.iter().map(|batch| batch.rows).collect::<Vec<_>>(), [7, 7, 7, 7, 2, 7, 7, 7, 7, 2]);
    assert_eq!(all(batches[2].cursor_after), batches[3..]);
    assert_ne!(batches[0].tokens, batches[5].tokens, "each epoch has another order");
    for batch in &batches {
        assert_eq!((batch.tokens.len(), batch.labels.len()), (batch.rows * batch.length, batch.rows));
        assert!(batch.length <= 16 && batch.length % 8 == 0);
        for row in 0..batch.rows {
            let tokens = &batch.tokens[row * batch.length..][..batch.length];
            // `[CLS]` is 2 and `[PAD]` is 0; padding is masked out.
            assert_eq!(tokens[0], 2);
            for (position, token) in tokens.iter().enumerate() {
                let attended = batch.mask.as_ref().is_none_or(|mask| mask[row * batch.length + position]);
                assert_eq!(attended, *token != 0);
            }
        }
    }
    let beyond = TextLoader::train(Arc::clone(&texts), 7, 1, Cursor { epoch: 0, pos: 99 }, 2).next();
    assert!(matches!(beyond, Some(Err(Error::Position { .. }))));
}

#[test]
fn masked_tokens_are_targets_and_drawn_again_each_epoch() {
    let keys = r#"{"columns": ["2"], "length": 16, "vocabulary": 300}"#;
    let texts = Shelf::new("texts.csv", &csv("")).open(keys, TextObjective::Masked).unwrap();
    let numbers: Vec<u32> = (0..50).collect();
    let epoch = |epoch| texts.batch(&numbers, epoch, 9).unwrap();
    let (first, second) = (epoch(Some(0)), epoch(Some(1)));
    assert_ne!(first.labels, second.labels);
    assert_eq!(epoch(None).labels, epoch(None).labels);
    let plain = texts.batch(&numbers, Some(0), 9).unwrap();
    assert_eq!((&plain.tokens, &plain.labels), (&first.tokens, &first.labels));
    let mut masked = 0;
    for row in 0..first.rows {
        let range = row * first.length..(row + 1) * first.length;
        let labels = &first.labels[range.clone()];
        assert!(labels.iter().any(|label| *label >= 0), "every row has a target");
        for (label, original) in labels.iter().zip(&row_of(&texts, row as u32)) {
            if *label >= 0 {
                masked += 1;
                assert_eq!(*label, i64::from(*original));
                assert!(!texts.specials.contains(original));
            }
        }
    }
    assert!((60..200).contains(&masked), "{masked} of about 450 tokens");
}

#[test]
fn each_next_token_is_predicted_once() {
    let story: String = (0..60).map(|line| format!("line {line} follows line {} and so on\n", line / 2)).collect();
    let keys = r#"{"length": 10, "vocabulary": 300}"#;
    let texts = Shelf::new("story.txt", &story).open(keys, TextObjective::Next).unwrap();
    let mut targets = Vec::new();
    for number in numbers_of(&texts, Part::Train) {
        let batch = texts.batch(&[number], Some(0), 0).unwrap();
        assert!(batch.mask.is_none() && batch.length <= 10);
        targets.extend(batch.labels.clone());
        assert_eq!(batch.tokens[1..], batch.labels[..batch.length - 1]);
    }
    let first = i64::from(row_of(&texts, 0)[0]);
    let stream: Vec<u32> = [first].iter().chain(&targets).map(|token| *token as u32).collect();
    let tokenizer = tokenizers::Tokenizer::from_bytes(texts.tokenizer()).unwrap();
    let expected: String = story.split_inclusive('\n').take(36).collect();
    assert_eq!(tokenizer.decode(&stream, true).unwrap(), expected);
}

#[test]
fn errors_in_a_text_are_reported() {
    let check = |name: &'static str, content: &str, keys: &str, message: &str| {
        let error = Shelf::new(name, content).open(keys, TextObjective::Class).unwrap_err();
        assert!(error.to_string().contains(message) && error.hint().is_some(), "{error}");
    };
    check("texts.csv", "", NUMBERED, "holds no text");
    check("texts.csv", "1,a,b\n2,c\n", NUMBERED, "the row in line 2 has 2 columns");
    check("texts.csv", "class,title\n1,a\n", NAMED, "no column `body`, only `class`, `title`");
    check("texts.csv", "1,a,b\n1,c,d\n", NUMBERED, "all its texts are of the class `1`");
    check("texts.csv", "1,a,b\n ,\"c\n\",d\n2,e,f\n", NUMBERED, "the text in line 2 has no class");
    check("texts.csv", "class,title,body\n1,a,b\n2,c,d\n,e,f\n", NAMED, "the text in line 4 has no class");
    let empty = "{\"class\": \"\", \"title\": \"x\", \"body\": \"y\"}\n";
    check("texts.jsonl", &format!("\n{empty}"), NAMED, "the text in line 2 has no class");
    check("texts.jsonl", "{\"class\": 1, \"title\": \"x\"}\n", NAMED, "line 1: the key `body` is missing");
    check("texts.jsonl", "{\n", NAMED, "line 1: no JSON");
    check("texts.txt", "a\nb\n", NUMBERED, "a plain text has no classes");
    check("texts.pdf", "a\n", NUMBERED, "no text that is known by its name");
    let classes = Data { classes: Some(5), ..spec() };
    let shelf = Shelf::new("texts.csv", &csv(""));
    let error = TextDataset::open(&classes, &text(NUMBERED), TextObjective::Class, &shelf.path(), 3).unwrap_err();
    assert!(matches!(error, Error::Classes { found: 2, wanted: 5, .. }), "{error}");
    let keys = Text { tokenizer: Some("/nowhere/tokenizer.json".into()), ..text(NUMBERED) };
    let error = TextDataset::open(&spec(), &keys, TextObjective::Class, &shelf.path(), 3).unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
}

#[test]
fn very_long_words_are_split_or_skipped_in_tokenizer_training() {
    let train = |texts: &[String], goal| TextTokenizer::train(texts.iter(), 400, goal).unwrap().json().unwrap();
    let word = |length: usize| (0..length).map(|at| char::from(b'a' + (at * at / 7 % 26) as u8)).collect::<String>();
    let long = word(30_000);
    let parts: Vec<String> = (0..30).map(|part| long[part * 1000..][..1000].to_owned()).collect();
    assert_eq!(train(std::slice::from_ref(&long), TextObjective::Next), train(&parts, TextObjective::Next));
    let short = ["some short words".to_owned(), "some more".to_owned()];
    let both = [short[0].clone(), short[1].clone(), long];
    assert_eq!(train(&both, TextObjective::Masked), train(&short, TextObjective::Masked));
    assert_ne!(train(&[word(1000)], TextObjective::Masked), train(&short, TextObjective::Masked));
}

/// The way around that the documents name for pairs of texts.
#[test]
fn a_separator_in_a_text_gives_the_token_ids_of_a_pair() {
    let shelf = Shelf::new("texts.csv", &csv(""));
    let first = shelf.open(NUMBERED, TextObjective::Class).unwrap();
    let file = shelf.folder.path().join("tokenizer.json");
    fs::write(&file, first.tokenizer()).unwrap();
    let pairs: Vec<(String, String)> =
        rows().into_iter().take(20).map(|(kind, text)| (text, format!("it was {kind} of a train"))).collect();
    let line = |(number, (one, two)): (usize, &(String, String))| format!("{},{one} [SEP] {two}\n", number % 2);
    let joined = Shelf::new("pairs.csv", &pairs.iter().enumerate().map(line).collect::<String>());
    let keys =
        format!(r#"{{"columns": ["2"], "label": "1", "length": 64, "tokenizer": {:?}}}"#, file.display().to_string());
    let mut found = all_rows(&joined.open(&keys, TextObjective::Class).unwrap());
    let tokenizer = tokenizers::Tokenizer::from_bytes(first.tokenizer()).unwrap();
    let encoded = |pair: (String, String)| tokenizer.encode(pair, true).unwrap().get_ids().to_vec();
    let mut expected: Vec<Vec<u32>> = pairs.into_iter().map(encoded).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

/// A tokenization that was killed after 20 of 50 records: what is there is kept, and the rest comes behind it.
#[test]
fn an_interrupted_tokenization_continues_with_the_next_text() {
    let shelf = Shelf::new("texts.csv", &csv(""));
    let (path, cache) = (shelf.path(), tempfile::tempdir().unwrap());
    let open = || {
        let (keys, mut known) = (text(NUMBERED), Provenance::unknown());
        TextDataset::open_known(&spec(), &keys, TextObjective::Class, &path, 3, Some(cache.path()), &mut known).unwrap()
    };
    let whole = all_rows(&open());
    assert_eq!(whole, all_rows(&shelf.open(NUMBERED, TextObjective::Class).unwrap()));

    let store = fs::read_dir(cache.path()).unwrap().next().unwrap().unwrap().path();
    let [tokens, ends] = ["column-0", "column-1"].map(|column| fs::read(store.join(column)).unwrap());
    assert_eq!(ends.len(), 50 * 8);
    let end = u64::from_le_bytes(ends[19 * 8..20 * 8].try_into().unwrap());
    let columns = [&tokens[..end as usize * 2], &ends[..20 * 8]].map(|bytes| (bytes.len(), crc32c::crc32c(bytes)));
    let line = serde_json::json!({"records": 20, "columns": columns}).to_string() + "\n";
    fs::write(store.join("journal.jsonl"), line).unwrap();
    fs::remove_file(store.join("manifest.json")).unwrap();
    fs::remove_file(store.join("sums")).unwrap();
    assert_eq!(all_rows(&open()), whole);
    assert_eq!(fs::read(store.join("column-0")).unwrap(), tokens);
}

#[test]
fn an_evaluation_resumes_at_a_row() {
    let line = |number: usize| format!("{{\"text\": \"number {number} of many\", \"kind\": \"{}\"}}\n", number % 2);
    let shelf = Shelf::new("a.jsonl", &(0..40).map(line).collect::<String>());
    let texts = Arc::new(shelf.open(r#"{"vocabulary": 300, "label": "kind"}"#, TextObjective::Class).unwrap());
    let rows = |mut loader: TextLoader| {
        let batches = std::iter::from_fn(move || loader.next()).map(|batch| batch.unwrap());
        batches.map(|batch| (batch.tokens, batch.labels, batch.cursor_after)).collect::<Vec<_>>()
    };
    let whole = rows(TextLoader::evaluate(Arc::clone(&texts), Part::Validation, 3, 1));
    assert_eq!(whole.len(), 3);
    assert_eq!(rows(TextLoader::evaluate_from(texts, Part::Validation, 3, 1, 3)), whole[1..]);
}
