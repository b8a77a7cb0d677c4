//! The batches of a text data set stay what they were in earlier versions: the same tokens, order, split and borders.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::train::{Data, Text};
use serde_json::json;

use crate::texts::TextObjective;
use crate::{Cursor, Part, Provenance, TextDataset, TextLoader};

/// A text of some sentences that repeat words often enough for a vocabulary to be trained.
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

fn open(path: &Path, keys: serde_json::Value, goal: TextObjective, kept: Option<&Path>) -> TextDataset {
    let spec: Data = serde_json::from_value(json!({"path": "", "split": [0.6, 0.2, 0.2]})).unwrap();
    let keys: Text = serde_json::from_value(keys).unwrap();
    TextDataset::open_known(&spec, &keys, goal, path, 5, kept, &mut Provenance::unknown()).unwrap()
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
    for kept in [None, Some(&folder), Some(&folder)] {
        let digest = |path, keys, goal| digest(open(path, keys, goal, kept.map(PathBuf::as_path)));
        let found = [
            digest(&csv, json!({"label": "label", "length": 24, "vocabulary": 200}), TextObjective::Class),
            digest(&csv, json!({"length": 24, "vocabulary": 200}), TextObjective::Masked),
            digest(&jsonl, json!({"length": 16, "vocabulary": 300}), TextObjective::Next),
            digest(&jsonl, json!({"length": 16, "vocabulary": 300, "documents": "apart"}), TextObjective::Next),
            digest(&plain, json!({"length": 16, "vocabulary": 300}), TextObjective::Next),
        ];
        let wanted =
            ["84a8241701027804", "97dac01c81c1c6f3", "0da48830f2b47cfe", "27a2394e3ed23ba0", "2483de53eccee7e3"];
        assert_eq!(found, wanted, "{kept:?}");
    }
    // What is masked and how tokens attend to each other is no matter of the stored tokens.
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
}
