//! Runs of a detector.

use serde_json::{Value, json};
use train::run::Ending;

use crate::scene::{Bench, bench};

/// A small detector on drawn shapes.
fn finding(changes: Value) -> Bench {
    let mut job = json!({
        "model": "yolo_n", "epochs": 2, "batch": 8, "data": {"path": "", "split": [0.6, 0.2, 0.2], "augment": ["flip"]},
        "optimizer": {"adamw": {"lr": 2e-3}}, "clip_norm": 10.0,
    });
    for (key, value) in changes.as_object().unwrap() {
        job[key] = value.clone();
    }
    let mut bench = bench(job);
    data::shapes::write(&bench.path("shapes"), 40, 64, 3).unwrap();
    bench.data = bench.path("shapes");
    bench
}

#[test]
fn objects_are_found_and_a_resumed_run_ends_with_the_same_bytes() {
    let whole = finding(json!({})).finish();
    assert_eq!(whole.ending, Ok(Ending::Trained));
    let losses = whole.losses();
    // Six steps are only a start; `examples/shapes.yaml` shows that it trains.
    assert!(losses.len() == 6 && losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    let exported = whole.exported();
    assert!(exported.figures.map50.is_some_and(|found| (0.0..=1.0).contains(&found)), "{:?}", exported.figures);
    let mut bench = finding(json!({"accumulate": 1}));
    bench.stop_after(4);
    let resumed = bench.finish();
    assert_eq!(resumed.exported().model_sha256, exported.model_sha256);
    // With other classes, everything but the classification head is reused.
    let mut tensors = checkpoint::read_tensors(&bench.path("export/model.safetensors")).unwrap();
    tensors.retain(|tensor| !tensor.name.starts_with("model.22.cv3."));
    let file = bench.path("other.safetensors");
    checkpoint::write_tensors(&file, &tensors, &[]).unwrap();
    let other = finding(json!({"weights": file, "epochs": 1})).finish();
    assert_eq!(other.ending, Ok(Ending::Trained));
}
