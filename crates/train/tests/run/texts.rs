//! Runs over texts.

use std::fs;
use std::path::Path;

use domain::finding::Cause;
use domain::rank::Report;
use serde_json::{Value, json};
use train::run::Ending;

use crate::scene::{Bench, bench};

/// Texts of three topics with distinct words, and a few common ones.
fn texts() -> String {
    let subjects = [
        ["goal", "match", "team", "coach"],
        ["bank", "share", "price", "market"],
        ["chip", "code", "phone", "network"],
    ];
    let line = |number: usize| {
        let words = subjects[number % 3];
        let word = |step: usize| words[(number / 3 * 7 + step * step + number / 11) % 4];
        format!(
            "{},the {} and the {} of a {} today\n",
            ["sport", "trade", "tech"][number % 3],
            word(0),
            word(1),
            word(2)
        )
    };
    (0..240).map(line).collect()
}

/// A small job over texts.
pub fn reading(file: &str, text: Value, changes: Value) -> Bench {
    let mut job = json!({
        "model": "bert_mini", "data": {"path": "", "text": text}, "batch": 16, "epochs": 2, "seed": 2,
        "optimizer": {"adamw": {"lr": 5e-4}}, "schedule": {"warmup": "4 steps", "decay": "cosine"},
    });
    for (key, value) in changes.as_object().unwrap() {
        job[key] = value.clone();
    }
    let mut bench = bench(job);
    bench.data = bench.path(file);
    fs::write(&bench.data, if file.ends_with(".csv") { format!("class,text\n{}", texts()) } else { texts() }).unwrap();
    bench
}

#[test]
fn classes_of_texts_are_learnt_and_a_resumed_run_ends_with_the_same_bytes() {
    let job = || reading("texts.csv", json!({"label": "class", "length": 16, "vocabulary": 300}), json!({}));
    let mut whole = job();
    let outcome = whole.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let Report::Ready(ready) = &outcome.reports[1] else { panic!("{:?}", outcome.reports[1]) };
    assert_eq!((ready.samples, &ready.classes[..]), ([168, 48, 24], &["sport", "tech", "trade"].map(String::from)[..]));
    assert!(outcome.exported().test_accuracy > 0.9, "{:?}", outcome.exported());
    let file = |name: &str| fs::read_to_string(whole.path("export").join(name)).unwrap();
    let config: Value = serde_json::from_str(&file("config.json")).unwrap();
    assert_eq!((&config["model_type"], &config["id2label"]["1"]), (&json!("bert"), &json!("tech")));
    assert!(file("tokenizer.json").contains("[MASK]"));

    let mut stopped = job();
    stopped.stop_after(7);
    stopped.lose_after(5);
    let resumed = stopped.finish();
    assert_eq!(resumed.losses(), outcome.losses()[resumed.resumed_from() as usize..]);
    assert_eq!(resumed.exported().model_sha256, outcome.exported().model_sha256);
}

/// Each training feature with state of its own: resumed in the middle, it ends with the same bytes.
#[test]
fn every_way_of_learning_goes_on_as_if_it_had_not_been_stopped() {
    let ways = [
        json!({"optimizer": {"adamw": {"lr": 5e-4}}, "precision": "fp16", "recompute": "blocks"}),
        json!({"optimizer": {"lamb": {"lr": 5e-3}}, "average": {"swa": {"from": 0}}}),
        json!({"optimizer": {"adafactor": {"lr": 1e-2}}, "parameters": {"decay": "matrices", "layer_rate": 0.8}}),
        json!({"average": {"ema": {}}, "parameters": {"freeze": ["bert.embeddings."]}, "accumulate": 3, "clip_norm": 1}),
    ];
    for way in ways {
        let mut changes = way.clone();
        changes["checkpoint"] = json!({"every": "2 steps", "keep": 100});
        let text = json!({"label": "class", "length": 8, "vocabulary": 300});
        let job = || reading("texts.csv", text.clone(), changes.clone());
        let whole = job().finish();
        assert_eq!(whole.ending, Ok(Ending::Trained), "{way}");
        for (stop, lose) in [(5, 4), (14, 12)] {
            let mut stopped = job();
            stopped.stop_after(stop);
            stopped.lose_after(lose);
            let resumed = stopped.finish();
            assert_eq!(resumed.resumed_from(), lose, "{way}");
            assert_eq!(resumed.losses(), whole.losses()[lose as usize..], "{way}");
            assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256, "{way}");
        }
    }
}

/// A head whose gradients overflow at the initial scale: the scale falls before the checkpoint, and a resume that began
/// with the initial one again would skip steps that the undisturbed run makes.
#[test]
fn a_loss_scale_that_has_fallen_is_resumed() {
    let text = json!({"label": "class", "length": 8, "vocabulary": 300});
    let mut first = reading("texts.csv", text.clone(), json!({"epochs": 1}));
    let mut tensors = checkpoint::read_tensors(Path::new(&first.finish().exported().model)).unwrap();
    let head = tensors.iter_mut().find(|tensor| tensor.name == "classifier.weight").unwrap();
    for value in head.bytes.chunks_exact_mut(4) {
        let large = 1e4 * f32::from_le_bytes(value.try_into().unwrap());
        value.copy_from_slice(&large.to_le_bytes());
    }
    let weights = first.path("large.safetensors");
    checkpoint::write_tensors(&weights, &tensors, &[]).unwrap();

    let tokenizer = first.path("export/tokenizer.json");
    let text = json!({"label": "class", "length": 8, "tokenizer": tokenizer});
    let job = || {
        let checkpoint = json!({"every": "2 steps", "keep": 100});
        let changes = json!({"precision": "fp16", "weights": weights, "epochs": 2, "checkpoint": checkpoint});
        reading("texts.csv", text.clone(), changes)
    };
    let whole = job().finish();
    assert_eq!(whole.ending, Ok(Ending::Trained));
    let mut stopped = job();
    stopped.stop_after(14);
    stopped.lose_after(12);
    let saved = checkpoint::newest_verified(&stopped.path("checkpoints"), "job").unwrap().0.unwrap();
    let scale = saved.training.iter().find(|tensor| tensor.name == "scaler.scale").unwrap();
    let scale = f32::from_le_bytes(scale.bytes[..].try_into().unwrap());
    assert!((1.0..65_536.0).contains(&scale), "{scale}");
    let resumed = stopped.finish();
    assert_eq!(resumed.resumed_from(), 12);
    assert_eq!(resumed.losses(), whole.losses()[12..]);
    assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256);
}

#[test]
fn words_are_learnt_masked_or_one_after_another() {
    let text = json!({"length": 16, "vocabulary": 300});
    for (file, model) in [("texts.txt", "gpt_tiny"), ("texts.csv", "gpt_tiny"), ("texts.csv", "bert_mini")] {
        let outcome = reading(file, text.clone(), json!({"model": model, "epochs": 3, "accumulate": 2})).finish();
        assert_eq!(outcome.ending, Ok(Ending::Trained), "{file} {model}");
        let losses = outcome.losses();
        assert!(losses[losses.len() - 1] < 0.8 * losses[0], "{file} {model}: {losses:?}");
        let figures = *outcome.exported().figures;
        assert!(figures.perplexity.is_some_and(|value| value > 1.0), "{figures:?}");
    }
}

#[test]
fn weights_of_one_task_begin_another() {
    let text = json!({"length": 16, "vocabulary": 300});
    let mut first = reading("texts.csv", text.clone(), json!({"epochs": 1}));
    let model = first.finish().exported().model.clone();
    let mut keys = text;
    keys["label"] = json!("class");
    keys["tokenizer"] = json!(first.path("export/tokenizer.json"));
    let outcome = reading("texts.csv", keys.clone(), json!({"epochs": 1, "weights": model})).finish();
    let note = |report: &Report| if let Report::Note { text } = report { Some(text.clone()) } else { None };
    let notes = outcome.reports.iter().filter_map(note).collect::<Vec<_>>().join("\n");
    assert!(notes.contains("the head keeps its initial weights: `bert.pooler.dense.bias` is missing"), "{notes}");
    assert!(notes.contains("this network does not have: `cls.predictions.bias`"), "{notes}");
    // A tokenizer of another size has another vocabulary.
    keys.as_object_mut().unwrap().remove("tokenizer");
    keys["vocabulary"] = json!(60);
    let outcome = reading("texts.csv", keys, json!({"weights": model})).finish();
    assert!(outcome.finding(Cause::Job).message.contains("`bert.embeddings.word_embeddings.weight` is ["));
}
