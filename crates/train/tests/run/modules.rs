//! Users' modules, written by `tests/modules/make.py`.

use std::fs;
use std::path::{Path, PathBuf};

use domain::finding::Cause;
use serde_json::{Value, json};
use tch::Device;
use train::run::Ending;
use train::torch::module::ScriptModule;

use crate::scene::{Bench, bench};
use crate::texts::reading;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/modules").join(name)
}

/// A job that trains the module of this file on the digits.
fn module(path: &Path, changes: Value) -> Bench {
    let mut job = json!({
        "model": {"torchscript": path}, "loss": "cross_entropy", "optimizer": {"adamw": {"lr": 0.01}}, "clip_norm": 1.0,
    });
    for (key, value) in changes.as_object().unwrap() {
        job[key] = value.clone();
    }
    bench(job)
}

#[test]
fn a_module_learns_and_a_resumed_run_ends_with_the_same_bytes() {
    for change in [json!({}), json!({"precision": "bf16", "memory_format": "channels_last", "accumulate": 2})] {
        let mut whole = module(&file("pictures.pt"), change.clone());
        let outcome = whole.finish();
        let losses = outcome.losses();
        assert!(losses.last().unwrap() < &(0.5 * losses[0]), "{losses:?}");
        assert!(outcome.exported().test_accuracy > 0.7, "{:?}", outcome.exported());
        let last = outcome.steps().len() as u64;

        for stop in [1, last / 2 - 2, last - 1] {
            let mut bench = module(&file("pictures.pt"), change.clone());
            let Ok(Ending::Stopped { step }) = bench.stop_after(stop).ending else { panic!("it must stop") };
            let resumed = bench.finish();
            assert_eq!(resumed.resumed_from(), step);
            assert_eq!(resumed.losses(), losses[step as usize..]);
            assert_eq!(resumed.exported().model_sha256, outcome.exported().model_sha256);
        }
    }
}

#[test]
fn what_is_exported_is_the_module_with_the_trained_weights() {
    let mut bench = module(&file("pictures.pt"), json!({}));
    let outcome = bench.finish();
    let weights = checkpoint::read_tensors(Path::new(&outcome.exported().model)).unwrap();
    let names: Vec<&str> = weights.iter().map(|tensor| tensor.name.as_str()).collect();
    let expected = [
        "classify.bias",
        "classify.weight",
        "conv.bias",
        "conv.weight",
        "norm.bias",
        "norm.num_batches_tracked",
        "norm.running_mean",
        "norm.running_var",
        "norm.weight",
    ];
    assert_eq!(names, expected);
    let script = ScriptModule::load(&bench.path("export/model.pt"), Device::Cpu).unwrap();
    let tensors: Vec<_> = script.parameters().unwrap().into_iter().chain(script.buffers().unwrap()).collect();
    assert_eq!(tensors.len(), weights.len());
    for (name, tensor) in tensors {
        let saved = weights.iter().find(|saved| saved.name == name).unwrap();
        let mut bytes = vec![0; saved.bytes.len()];
        tensor.detach().copy_data_u8(&mut bytes, tensor.numel());
        assert!(bytes == saved.bytes, "{name}");
    }
    let card = fs::read_to_string(bench.path("export/model.json")).unwrap();
    let card: Value = serde_json::from_str(&card).unwrap();
    assert_eq!((&card["architecture"], &card["module"]), (&json!("torchscript"), &json!("model.pt")));

    // The exported module, and the first one with the exported weights, train identically.
    let again = module(&bench.path("export/model.pt"), json!({"epochs": 1})).finish();
    let weights = json!({"epochs": 1, "weights": outcome.exported().model});
    assert_eq!(again.losses(), module(&file("pictures.pt"), weights).finish().losses());
    assert!(again.losses()[0] < 0.5 * outcome.losses()[0]);
}

#[test]
fn modules_read_text() {
    let job = |name: &str, loss: &str, text: Value, data: &str| {
        let mut bench = reading(
            data,
            text,
            json!({"model": {"torchscript": file(name)}, "loss": loss, "epochs": 6, "optimizer": {"adamw": {"lr": 0.05}}}),
        );
        let outcome = bench.finish();
        (bench, outcome)
    };
    let text = json!({"columns": ["text"], "label": "class", "length": 16, "vocabulary": 400});
    let (_, classes) = job("rows.pt", "cross_entropy", text, "texts.csv");
    assert!(classes.exported().test_accuracy > 0.9, "{:?}", classes.exported());
    let (_folder, words) = job("words.pt", "next_word", json!({"length": 16, "vocabulary": 400}), "texts.txt");
    let losses = words.losses();
    assert!(losses.last().unwrap() < &(0.5 * losses[0]), "{losses:?}");
    // A weight with two names is one, and is saved once.
    let saved = checkpoint::read_tensors(Path::new(&words.exported().model)).unwrap();
    assert_eq!(saved.iter().filter(|tensor| tensor.shape == [400, 6]).count(), 1);
}

#[test]
fn what_does_not_fit_is_said_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let whole = fs::read(file("pictures.pt")).unwrap();
    let cases = [
        (PathBuf::from("/nowhere/module.pt"), json!({}), "there is no such file"),
        (write("text.pt", b"import torch\n"), json!({}), "cannot be used"),
        (write("empty.pt", b""), json!({}), "cannot be used"),
        (write("half.pt", &whole[..whole.len() / 2]), json!({}), "cannot be used"),
        (file("state.pt"), json!({}), "cannot be used"),
        (file("frozen.pt"), json!({}), "it has no parameters to train"),
        (file("seven.pt"), json!({}), "returns [2, 7] for 2 samples instead of [2, 10], one logit per class"),
        (file("rows.pt"), json!({}), "does not take images, float32 [samples, 1, 8, 8]: Expected tensor for argument"),
        (file("spare.pt"), json!({}), "1 of 7 parameters of"),
        (file("pictures.pt"), json!({"average": {"ema": {}}}), "`average` recomputes the statistics"),
        (file("pictures.pt"), json!({"parameters": {"freeze": ["layer9."]}}), "`layer9.`"),
    ];
    for (path, change, message) in cases {
        let outcome = module(&path, change).finish();
        let finding = outcome.finding(Cause::Job);
        assert!(finding.message.contains(message), "{finding:?}");
        assert!(outcome.steps().is_empty());
    }
    let frozen = json!({"parameters": {"freeze": ["spare"]}});
    assert_eq!(module(&file("spare.pt"), frozen).finish().ending, Ok(Ending::Trained));
}

#[test]
fn another_file_under_the_same_name_does_not_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("module.pt");
    fs::copy(file("pictures.pt"), &path).unwrap();
    let mut bench = module(&path, json!({}));
    bench.stop_after(3);
    fs::copy(file("spare.pt"), &path).unwrap();
    bench.train.parameters.freeze = vec!["spare".into()];
    assert!(bench.finish().finding(Cause::Job).message.contains("not the one that this run began with"));
    fs::copy(file("pictures.pt"), &path).unwrap();
    bench.train.parameters.freeze.clear();
    assert_eq!(bench.finish().ending, Ok(Ending::Trained));
}

#[test]
fn damaged_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let (path, whole) = (folder.path().join("damaged.pt"), fs::read(file("pictures.pt")).unwrap());
    let mut seed = 1u64;
    let mut next = |below: usize| {
        // Knuth's linear congruential generator.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut refused = 0;
    for _ in 0..150 {
        let mut bytes = whole.clone();
        for _ in 0..1 + next(4) {
            let place = next(bytes.len());
            bytes[place] ^= 1 << next(8);
        }
        fs::write(&path, &bytes).unwrap();
        refused += u32::from(ScriptModule::load(&path, Device::Cpu).is_err());
    }
    assert!(refused > 30, "{refused}");
}
