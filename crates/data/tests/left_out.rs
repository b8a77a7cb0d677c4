//! An executable built without Parquet, Arrow and tokenizers reports which library it lacks, and what to do.

use std::path::Path;

use data::{Dataset, Error, TextObjective, TextOutline};
use domain::train::{Data, Text};

#[track_caller]
fn check<T>(found: Result<T, Error>, lacks: &str) {
    let Err(error @ Error::LeftOut { what }) = found else { panic!("it must fail with `LeftOut`") };
    assert_eq!(what, lacks);
    assert_eq!(error.to_string(), format!("this executable was built without {lacks}"));
    assert_eq!(error.hint().as_deref(), Some("build all of gradus with `cargo xtask install`"));
}

#[test]
fn a_missing_library_is_named_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, "an article\n\nand another\n").unwrap();
        path
    };
    let data: Data = serde_json::from_str(r#"{"path": "", "split": [0.5, 0.5, 0.0]}"#).unwrap();
    let open = |path: &Path| Dataset::open(&data, path, 0);
    check(open(&file("images.parquet")), "Parquet files");
    check(open(&file("images.arrow")), "Arrow files");
    let outline = |path: &Path, keys: &str| {
        let keys: Text = serde_json::from_str(keys).unwrap();
        TextOutline::of(&data, &keys, TextObjective::Next, path, 0)
    };
    check(outline(&file("text.txt"), "{}"), "tokenizers");
    check(outline(&file("tokens.u16"), r#"{"tokenizer": "tokenizer.json"}"#), "tokenizers");
    assert!(outline(&file("tokens.u16"), "{}").is_ok(), "tokens need no tokenizer");
}
