//! Text that is packed as tokens is the text that it was.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use domain::train::{Data, Documents, Text};

use super::{complains, refused, scratch, spec};
use crate::texts::TextObjective;
use crate::{
    Cursor, Error, InspectOptions, PackOptions, SampleCodec, TextDataset, TextLoader, TextOptions, TextOutline,
    TokenizerSource,
};
use crate::{inspect, pack};

/// Texts of few and of many words.
fn documents() -> Vec<(String, i64)> {
    const WORDS: [&str; 8] = ["the", "learning", "rate", "falls", "while", "Größe", "\"quoted\"", "steps, rise"];
    let text = |number: usize| {
        let words = 3 + number * 7 % 90;
        let all: Vec<&str> = (0..words).map(|word| WORDS[(number * 5 + word * word) % 8]).collect();
        all.join(" ")
    };
    (0..60).map(|number| (text(number), number as i64 % 3)).collect()
}

fn written(root: &Path, ending: &str) -> PathBuf {
    let path = root.join(format!("text.{ending}"));
    let documents = documents();
    let texts = StringArray::from_iter_values(documents.iter().map(|(text, _)| text));
    let labels = Int64Array::from_iter_values(documents.iter().map(|(_, label)| *label));
    let batch = RecordBatch::try_from_iter([("label", Arc::new(labels) as _), ("text", Arc::new(texts) as _)]).unwrap();
    let file = File::create(&path).unwrap();
    match ending {
        "jsonl" => {
            let line =
                |(text, label): &(String, i64)| serde_json::json!({"text": text, "label": label}).to_string() + "\n\n";
            fs::write(&path, documents.iter().map(line).collect::<String>()).unwrap();
        }
        "csv" => {
            let mut writer = csv::Writer::from_writer(file);
            writer.write_record(["label", "text"]).unwrap();
            for (text, label) in &documents {
                writer.write_record([&label.to_string(), text]).unwrap();
            }
            writer.flush().unwrap();
        }
        "parquet" => {
            let mut writer = ::parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
        }
        _ => {
            let mut writer = arrow_ipc::writer::StreamWriter::try_new(file, &batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
    }
    path
}

fn options(vocabulary: TokenizerSource) -> PackOptions {
    let text = TextOptions { vocabulary, columns: vec!["text".into()], label: Some("label".into()) };
    PackOptions { shard_bytes: 5000, threads: 3, text: Some(text), ..PackOptions::default() }
}

fn keys(length: u32) -> Text {
    serde_json::from_value(serde_json::json!({"length": length, "label": "label", "vocabulary": 400})).unwrap()
}

fn shares() -> Data {
    serde_json::from_str(r#"{"path": "", "split": [0.6, 0.2, 0.2]}"#).unwrap()
}

fn opened(path: &Path, goal: TextObjective, keys: &Text) -> TextDataset {
    TextDataset::open(&shares(), keys, goal, path, 3).unwrap()
}

/// Every batch of an epoch.
fn rows(texts: TextDataset, batch: usize) -> Vec<(Vec<i64>, Vec<i64>)> {
    let mut loader = TextLoader::train(Arc::new(texts), batch, 3, Cursor::START, 1);
    let mut found = Vec::new();
    while let Some(batch) = loader.next() {
        let batch = batch.unwrap();
        found.push((batch.tokens, batch.labels));
    }
    found
}

#[test]
fn packed_text_gives_the_rows_of_the_text() {
    let root = scratch();
    for ending in ["jsonl", "csv", "parquet", "arrow"] {
        let source = written(root.path(), ending);
        let out = root.path().join(format!("out-{ending}"));
        let word_piece = options(TokenizerSource::WordPiece(400));
        let manifest = pack(&source, &out, &word_piece, &mut |_| {}).unwrap().manifest;
        let tokens = manifest.recipe.tokens.clone().unwrap();
        assert_eq!((manifest.recipe.codec, tokens.width, manifest.samples), (SampleCodec::Tokens, 2, 60), "{ending}");
        assert_eq!(manifest.classes, ["0", "1", "2"], "{ending}");
        assert!(manifest.shards.len() > 1);
        let tokenizer = Some(out.join("tokenizer.json").display().to_string());
        let with = Text { tokenizer, ..keys(24) };
        for goal in [TextObjective::Class, TextObjective::Masked] {
            let packed = rows(opened(&out, goal, &keys(24)), 4);
            if matches!(ending, "jsonl" | "csv") {
                assert_eq!(packed, rows(opened(&source, goal, &with), 4), "{ending} {goal:?}");
            }
            assert!(packed.len() > 8);
            let outline = TextOutline::of(&shares(), &keys(24), goal, &out, 3).unwrap();
            assert_eq!(outline.counts, Some([36, 12, 12]));
        }
        assert!(pack(&source, &out, &word_piece, &mut |_| {}).unwrap().nothing_to_do);
        // A deleted tokenizer is trained again, with the same result.
        let trained = fs::read(out.join("tokenizer.json")).unwrap();
        fs::remove_file(out.join("tokenizer.json")).unwrap();
        assert!(!pack(&source, &out, &word_piece, &mut |_| {}).unwrap().nothing_to_do);
        assert_eq!(fs::read(out.join("tokenizer.json")).unwrap(), trained);
        let found = inspect(&out, &InspectOptions { verify: true, sheet: None, threads: 1 }).unwrap();
        assert_eq!((found.verified, found.damaged.len(), found.kinds["tokens"]), (60, 0, 60));
        assert!(found.tokens.is_some_and(|count| count > 1000), "{:?}", found.tokens);
        let sheet = InspectOptions { verify: false, sheet: Some(&root.path().join("sheet.png")), threads: 1 };
        complains(&inspect(&out, &sheet).unwrap_err(), "a sheet shows images", "--sheet");
    }
    let out = root.path().join("out-csv");
    refused(&spec(), &out, "it holds text as tokens", "train a model of text");
    let with = Text { tokenizer: Some("x.json".into()), ..keys(24) };
    complains(
        &TextDataset::open(&shares(), &with, TextObjective::Class, &out, 3).unwrap_err(),
        "its own tokenizer",
        "leave",
    );
    let error = TextDataset::open(&shares(), &keys(24), TextObjective::Next, &out, 3).unwrap_err();
    complains(&error, "lacks the special tokens", "tokenizer.json");
}

#[test]
fn documents_share_rows_and_are_separated() {
    let root = scratch();
    let source = written(root.path(), "jsonl");
    let out = root.path().join("out");
    pack(&source, &out, &options(TokenizerSource::Bpe(400)), &mut |_| {}).unwrap();
    let train_only: Data = serde_json::from_str(r#"{"path": "", "split": [1, 0, 0]}"#).unwrap();
    let tokenizer = tokenizers::Tokenizer::from_file(out.join("tokenizer.json")).unwrap();
    let end = i64::from(tokenizer.token_to_id("<|endoftext|>").unwrap());
    let mut expected: Vec<Vec<i64>> = documents()
        .iter()
        .map(|(text, _)| {
            tokenizer.encode(text.as_str(), false).unwrap().get_ids().iter().map(|id| i64::from(*id)).collect()
        })
        .collect();
    let tokens: usize = expected.iter().map(Vec::len).sum();
    for length in [16, 100, 1024] {
        let texts = TextDataset::open(&train_only, &keys(length), TextObjective::Next, &out, 3).unwrap();
        let count = texts.counts()[0] as usize;
        // Each token but the first of each text is a target once, and so is the end token.
        let found = rows(texts, 4);
        let mut targets: Vec<i64> =
            found.iter().flat_map(|(_, labels)| labels).copied().filter(|id| *id >= 0).collect();
        let mut all: Vec<i64> = expected.iter().flat_map(|text| text[1..].iter().copied().chain([end])).collect();
        targets.sort_unstable();
        all.sort_unstable();
        assert_eq!(targets, all, "{length}");
        // Hardly any padding.
        let positions = count * length as usize;
        assert!(length > 100 || tokens as f64 / positions as f64 > 0.9, "{tokens} tokens in {positions} positions");
        for (tokens, labels) in &found {
            for (position, token) in tokens.iter().enumerate().filter(|(_, token)| **token == end) {
                assert!(labels[position] < 0, "the token after the end is a target: {token}");
            }
        }
    }
    // Split by documents: with the longest rows, every text is complete.
    let texts = TextDataset::open(&train_only, &keys(1024), TextObjective::Next, &out, 3).unwrap();
    let mut found: Vec<Vec<i64>> = Vec::new();
    for (tokens, _) in rows(texts, 1) {
        found.extend(tokens.split(|token| *token == end).filter(|text| !text.is_empty()).map(<[i64]>::to_vec));
    }
    // The end token of the last text of a row is a target only.
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn packed_text_keeps_its_parts() {
    let root = scratch();
    let source = root.path().join("texts");
    fs::create_dir(&source).unwrap();
    for (number, (text, _)) in documents().iter().enumerate() {
        fs::write(source.join(format!("{number:02}.txt")), text).unwrap();
    }
    let out = root.path().join("out");
    let mut options = options(TokenizerSource::Bpe(300));
    options.split = Some([0.5, 0.25, 0.25]);
    options.text.as_mut().unwrap().label = None;
    let manifest = pack(&source, &out, &options, &mut |_| {}).unwrap().manifest;
    assert_eq!((manifest.samples, manifest.classes.len()), (60, 0));
    let folders: Data = serde_json::from_str(r#"{"path": "", "split": "folders"}"#).unwrap();
    assert!(
        TextDataset::open(&folders, &keys(16), TextObjective::Next, &out, 3)
            .unwrap()
            .counts()
            .iter()
            .all(|count| *count > 5)
    );
    let error = TextDataset::open(&shares(), &keys(16), TextObjective::Class, &out, 3).unwrap_err();
    complains(&error, "packed without classes", "--label");
    // Errors in a text or in the options are reported.
    let fails = |options: &PackOptions, message: &str, hint: &str| {
        complains(&pack(&source, &root.path().join("none"), options, &mut |_| {}).unwrap_err(), message, hint);
    };
    let mut labelled = options.clone();
    labelled.text.as_mut().unwrap().label = Some("label".into());
    fails(&labelled, "not every text of it has a class", "leave out `--label`");
    let mut given = options.clone();
    given.text.as_mut().unwrap().vocabulary = TokenizerSource::File(source.join("00.txt"));
    fails(&given, "no tokenizer", "tokenizer.json");
    given.text.as_mut().unwrap().vocabulary = TokenizerSource::File(source.join("nothing.json"));
    fails(&given, "there is no data at", "");
    fs::write(source.join("bad.txt"), [0xFF, 0xFE, 0]).unwrap();
    fails(&options, "is not UTF-8", "iconv");
    fs::remove_file(source.join("bad.txt")).unwrap();
    fs::write(source.join("other.csv"), "text\nx\n").unwrap();
    fails(&options, "it holds both `.txt` and `.csv` files", "one form");
    let table = written(root.path(), "parquet");
    let mut named = options.clone();
    named.text.as_mut().unwrap().columns = vec!["story".into()];
    let error = pack(&table, &root.path().join("none"), &named, &mut |_| {}).unwrap_err();
    complains(&error, "none of its columns `label`, `text` is a text `story`", "");
    assert!(!root.path().join("none").join("manifest.json").exists());
}

/// Rows and targets stay the same; position ids restart at each document in the row.
#[test]
fn attention_may_be_limited_to_documents() {
    let root = scratch();
    let source = written(root.path(), "jsonl");
    let out = root.path().join("out");
    pack(&source, &out, &options(TokenizerSource::Bpe(400)), &mut |_| {}).unwrap();
    for path in [&source, &out] {
        let batches = |documents| {
            let keys = Text { documents, ..keys(40) };
            let keys = if *path == source { Text { label: None, ..keys } } else { keys };
            let mut loader =
                TextLoader::train(Arc::new(opened(path, TextObjective::Next, &keys)), 5, 3, Cursor::START, 1);
            std::iter::from_fn(|| loader.next().map(Result::unwrap)).collect::<Vec<_>>()
        };
        let (together, apart) = (batches(Documents::Together), batches(Documents::Apart));
        let mut shared = 0;
        for (together, apart) in together.iter().zip(&apart) {
            assert_eq!((&together.tokens, &together.places), (&apart.tokens, &None));
            let places = apart.places.as_ref().unwrap();
            for row in 0..apart.rows {
                let range = row * apart.length..(row + 1) * apart.length;
                let attended = |at: usize| apart.mask.as_ref().is_none_or(|mask| mask[at]);
                let tokens = range.clone().filter(|at| attended(*at)).count();
                assert_eq!(places[range.start], 0);
                for at in range.start + 1..range.start + tokens {
                    // A document's first token is not predicted from another document.
                    let begins = apart.labels[at - 1] == -100;
                    assert_eq!(places[at], if begins { 0 } else { places[at - 1] + 1 }, "row {row}");
                    shared += usize::from(begins);
                }
            }
            if *path == out {
                assert_eq!(together.labels, apart.labels);
            }
        }
        assert!(shared > 5, "{shared} documents share rows with others");
    }
}

#[test]
fn plain_tokens_are_one_stream() {
    let root = scratch();
    let path = root.path().join("tokens.u16");
    let tokens: Vec<u16> = (0..1000).map(|n| n * 3 % 389).collect();
    fs::write(&path, tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    let texts = opened(&path, TextObjective::Next, &keys(50));
    assert_eq!((texts.counts(), texts.vocabulary()), ([12, 4, 4], 400));
    let mut loader = TextLoader::evaluate(Arc::new(texts), crate::Part::Test, 4, 0);
    let batch = loader.next().unwrap().unwrap();
    let wide = |tokens: &[u16]| tokens.iter().map(|token| i64::from(*token)).collect::<Vec<_>>();
    assert_eq!(
        (&batch.tokens[..150], &batch.labels[..150]),
        (&wide(&tokens[800..950])[..], &wide(&tokens[801..951])[..])
    );
    let open = |goal, path: &Path| -> Error { TextDataset::open(&shares(), &keys(50), goal, path, 3).unwrap_err() };
    complains(&open(TextObjective::Class, &path), "only the next token is predicted", "GPT");
    fs::write(&path, [1, 2, 3]).unwrap();
    complains(&open(TextObjective::Next, &path), "3 bytes are no tokens of 2", "vocabulary");
    fs::write(&path, [0xFF, 2, 3, 4]).unwrap();
    complains(&open(TextObjective::Next, &path), "token 767 is outside the vocabulary of 400", "tokenizer");
    complains(&open(TextObjective::Next, &root.path().join("none.u32")), "there is no data at", "");
}

#[test]
fn hostile_tokens_are_refused() {
    let root = scratch();
    let source = written(root.path(), "jsonl");
    let out = root.path().join("out");
    pack(&source, &out, &options(TokenizerSource::WordPiece(400)), &mut |_| {}).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(out.join("manifest.json")).unwrap()).unwrap();
    let check = |change: fn(&mut serde_json::Value), message: &str| {
        let mut changed = manifest.clone();
        change(&mut changed["recipe"]["tokens"]);
        fs::write(out.join("manifest.json"), changed.to_string()).unwrap();
        let error = TextDataset::open(&shares(), &keys(24), TextObjective::Class, &out, 3).unwrap_err().to_string();
        assert!(error.contains(message), "`{message}` is not in: {error}");
    };
    check(|tokens| tokens["width"] = 3.into(), "its tokens are of 3 bytes");
    check(|tokens| tokens["width"] = 0.into(), "its tokens are of 0 bytes");
    check(|tokens| tokens["width"] = 4.into(), "in its shards cannot be used");
    check(|tokens| tokens["vocabulary"] = 7.into(), "its manifest says 7");
    check(|tokens| *tokens = 5.into(), "the manifest is damaged");
}
