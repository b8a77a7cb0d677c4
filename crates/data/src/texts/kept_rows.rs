//! Batches of a text data set are the same as in earlier versions: tokens, order, split and document borders.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::train::{Data, Text};
use serde_json::json;

use crate::texts::TextObjective;
use crate::texts::survey::TextFile;
use crate::{Cursor, Part, Provenance, TextDataset, TextLoader};

/// A text of some sentences that repeat words often enough to train a vocabulary.
fn sentence(number: usize) -> String {
    const WORDS: [&str; 12] =
        ["the", "loss", "falls", "while", "learning", "rate", "Größe", "steps,", "rises", "again", "and", "stays"];
    let words = 1 + number * 11 % 40;
    let all: Vec<&str> = (0..words).map(|word| WORDS[(number * 7 + word * word) % 12]).collect();
    all.join(" ")
}

/// A hash of every batch of two epochs of training, and of validation and test.
fn digest(texts: TextDataset) -> String {
    let texts = Arc::new(texts);
    let mut hash = blake3::Hasher::new();
    let loaders = [
        TextLoader::train(Arc::clone(&texts), 7, 3, Cursor::START, 2),
        TextLoader::evaluate(Arc::clone(&texts), Part::Validation, 7, 3),
        TextLoader::evaluate(Arc::clone(&texts), Part::Test, 7, 3),
    ];
    for mut loader in loaders {
        while let Some(batch) = loader.next() {
            let batch = batch.unwrap();
            hash.update(format!("{:?}", (batch.tokens, batch.mask, batch.places, batch.labels, batch.rows)).as_bytes());
        }
    }
    hash.update(texts.tokenizer().as_bytes());
    hash.finalize().to_hex()[..16].to_owned()
}

fn open(path: &Path, keys: serde_json::Value, goal: TextObjective, cache: Option<&Path>) -> TextDataset {
    let spec: Data = serde_json::from_value(json!({"path": "", "split": [0.6, 0.2, 0.2]})).unwrap();
    let keys: Text = serde_json::from_value(keys).unwrap();
    TextDataset::open_known(&spec, &keys, goal, path, 5, cache, &mut Provenance::unknown()).unwrap()
}

#[test]
fn batches_are_those_of_earlier_versions() {
    let root = tempfile::tempdir().unwrap();
    let [csv, jsonl, plain] = ["a.csv", "a.jsonl", "a.txt"].map(|name| root.path().join(name));
    let rows: String = (0..90).map(|number| format!("{},\"{}\"\n", number % 3, sentence(number))).collect();
    fs::write(&csv, format!("label,text\n{rows}")).unwrap();
    let lines: String = (0..90).map(|number| json!({"text": sentence(number)}).to_string() + "\n").collect();
    fs::write(&jsonl, lines).unwrap();
    fs::write(&plain, (0..90).map(|number| sentence(number) + "\n").collect::<String>()).unwrap();
    let folder = root.path().join("tokens");
    // In memory, on disk, and as it was found there.
    for cache in [None, Some(&folder), Some(&folder)] {
        let digest = |path, keys, goal| digest(open(path, keys, goal, cache.map(PathBuf::as_path)));
        let found = [
            digest(&csv, json!({"label": "label", "length": 24, "vocabulary": 200}), TextObjective::Class),
            digest(&csv, json!({"length": 24, "vocabulary": 200}), TextObjective::Masked),
            digest(&jsonl, json!({"length": 16, "vocabulary": 300}), TextObjective::Next),
            digest(&jsonl, json!({"length": 16, "vocabulary": 300, "documents": "apart"}), TextObjective::Next),
            digest(&plain, json!({"length": 16, "vocabulary": 300}), TextObjective::Next),
        ];
        let expected =
            ["84a8241701027804", "97dac01c81c1c6f3", "0da48830f2b47cfe", "27a2394e3ed23ba0", "2483de53eccee7e3"];
        assert_eq!(found, expected, "{cache:?}");
    }
    // Neither the masks nor the attention between documents depend on the stored tokens.
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
}

/// A large plain text is indexed by blocks of lines rather than by line; its tokens are the same.
#[test]
fn blocks_of_lines_have_the_tokens_of_the_lines() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.txt");
    fs::write(&path, (0..900).map(|number| sentence(number) + "\n").collect::<String>()).unwrap();
    let spec: Data = serde_json::from_value(json!({"path": "", "split": [1.0, 0.0, 0.0]})).unwrap();
    let keys: Text = serde_json::from_value(json!({"length": 16, "vocabulary": 300})).unwrap();
    let lines = TextFile::at(&path, &keys).unwrap();
    let open = |file| {
        let mut provenance = Provenance::of_run(None, false, true);
        let texts = TextDataset::open_file(&spec, TextObjective::Next, 5, file, None, &mut provenance).unwrap();
        (digest(texts), provenance.found().unwrap().len())
    };
    let ((of_lines, records), (of_blocks, blocks)) = (open(lines), open(lines.by_blocks(2_000)));
    assert_eq!(of_lines, of_blocks);
    let bytes = fs::metadata(&path).unwrap().len() as usize;
    assert!(records == 900 && blocks <= bytes / 2_000 + 1, "{records} lines, {blocks} blocks");
}

/// Whether a file is indexed by blocks: `bytes` long, of which a run knew so many records before.
#[test]
fn a_run_that_was_begun_by_lines_stays_with_lines() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.txt");
    let keys: Text = serde_json::from_value(json!({"length": 16, "vocabulary": 300})).unwrap();
    let check = |bytes: u64, goal, known, expected: bool| {
        // A sparse file of that length.
        fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        let file = TextFile::of_run(&path, &keys, goal, known).unwrap();
        assert_eq!(file.is_by_blocks(), expected, "{bytes} bytes, {goal:?}, {known:?}");
    };
    check(256 << 20, TextObjective::Next, None, false);
    check(3 << 30, TextObjective::Next, None, true);
    check(3 << 30, TextObjective::Next, Some(40_000), true);
    check(3 << 30, TextObjective::Next, Some(30_000_000), false);
    check(3 << 30, TextObjective::Masked, None, false);
}
