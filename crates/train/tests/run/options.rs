//! Validation, classes and augmentation as the job says, also across a resume.

use std::fs;
use std::path::Path;

use domain::rank::{EvaluatedSplit, Report};
use serde_json::{Value, json};
use train::run::Ending;

use crate::scene::{Bench, Outcome, bench};

/// Colour images of three classes, of which the last is rare, in CIFAR-10's binary form.
fn colours(folder: &Path) {
    let mut bytes = Vec::new();
    for sample in 0..240_u32 {
        let class = if sample % 12 == 0 { 2 } else { sample % 2 };
        bytes.push(class as u8);
        let pixel = |at: u32| (at * (7 + class) + sample * 31 + at * at % (50 + 20 * class)) as u8;
        bytes.extend((0..3 * 32 * 32).map(pixel));
    }
    fs::write(folder.join("data_batch_1.bin"), bytes).unwrap();
}

/// A run on them.
fn coloured(changes: &Value) -> Bench {
    let mut job = json!({
        "batch": 24, "validate_every": "3 steps", "export_every": "1 epochs", "class_weights": "balanced",
        "parameters": {"groups": [{"names": ["fc3."], "lr_factor": 2.0, "decay_factor": 0.0}]},
        "data": {
            "path": "", "split": [0.8, 0.1, 0.1], "sampling": "balanced",
            "augment": [
                "flip", {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}},
                {"pad_crop": 4}, {"auto_augment": "cifar10"}, "trivial_augment", {"random_erasing": {}},
            ],
        },
    });
    for (key, value) in changes.as_object().unwrap() {
        job[key] = value.clone();
    }
    let mut bench = bench(job);
    let data = bench.path("colours");
    fs::create_dir(&data).unwrap();
    colours(&data);
    bench.data = data;
    bench
}

fn validated(outcome: &Outcome) -> Vec<u64> {
    let step = |report: &Report| match report {
        Report::Evaluated(evaluated) if evaluated.split == EvaluatedSplit::Validation => Some(evaluated.step),
        _ => None,
    };
    outcome.reports.iter().filter_map(step).collect()
}

#[test]
fn every_new_option_resumes_with_the_same_bytes() {
    let whole = coloured(&json!({})).finish();
    assert_eq!(whole.ending, Ok(Ending::Trained));
    let last = *whole.steps().last().unwrap();
    for (stop, lose) in [(2, None), (7, Some(5)), (last / 2, None), (last - 1, Some(10))] {
        let mut bench = coloured(&json!({}));
        let Ok(Ending::Stopped { step }) = bench.stop_after(stop).ending else { panic!("it was not stopped") };
        bench.lose_after(lose.unwrap_or(step));
        let resumed = bench.finish();
        let from = resumed.resumed_from() as usize;
        assert_eq!(from as u64, lose.unwrap_or(step));
        assert_eq!(resumed.losses(), whole.losses()[from..], "stopped at {step}, resumed from {from}");
        assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256);
    }
    // Each option changes what is trained.
    for other in [
        json!({"class_weights": null}),
        json!({"class_weights": [1.0, 1.0, 9.0]}),
        json!({"parameters": {}}),
        json!({"data": {"path": "", "split": [0.8, 0.1, 0.1]}}),
        json!({"data": {"path": "", "split": [0.8, 0.1, 0.1], "sampling": "balanced"}}),
        json!({"data": {"path": "", "split": [0.8, 0.1, 0.1], "sampling": "balanced", "augment": [{"random_erasing": {"p": 1}}]}}),
    ] {
        assert_ne!(coloured(&other).finish().losses(), whole.losses(), "{other}");
    }
}

#[test]
fn a_run_validates_and_exports_as_often_as_it_says() {
    let mut bench = bench(json!({"validate_every": "4 steps", "export_every": "7 steps"}));
    let outcome = bench.finish();
    let last = *outcome.steps().last().unwrap();
    let mut expected: Vec<u64> = (1..=last / 4).map(|time| 4 * time).collect();
    if !last.is_multiple_of(4) {
        expected.push(last);
    }
    assert_eq!(validated(&outcome), expected);
    let exports = |name: &str| bench.path("export").join(name).exists();
    assert!((1..=last).all(|step| exports(&format!("step-{step}.safetensors")) == (step % 7 == 0)));
    assert!(exports("last.safetensors") && exports("model.safetensors"));
    // What is looked at changes no step.
    let usual = self::bench(json!({})).finish();
    assert_eq!(usual.losses(), outcome.losses());
    assert_eq!(validated(&usual), [last / 2, last]);
    assert!(!self::bench(json!({})).path("export").join("last.safetensors").exists());
}

#[test]
fn patience_counts_validations() {
    // A rate at which nothing is learned after the first steps, if anything was.
    let job = json!({
        "epochs": 40, "validate_every": "2 steps", "stop": {"patience": 3},
        "optimizer": {"sgd": {"lr": 1e-9}},
    });
    let mut bench = bench(job.clone());
    let outcome = bench.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    // The first validation is the best, and three more are no better.
    assert_eq!(validated(&outcome), [2, 4, 6, 8]);
    assert_eq!(outcome.exported().step, 2);
    assert_eq!(bench.finish().steps().len(), 0, "the end is the end also after a resume");
}

#[test]
fn weights_for_other_classes_are_refused() {
    let outcome = bench(json!({"class_weights": [1.0, 2.0]})).finish();
    let finding = outcome.finding(domain::finding::Cause::Job);
    assert_eq!(finding.message, "`class_weights` has 2 weights, and the data has 10 classes");
    let groups = json!({"parameters": {"groups": [{"names": ["fc9."]}]}});
    let outcome = bench(groups).finish();
    let finding = outcome.finding(domain::finding::Cause::Job);
    assert!(finding.message.contains("begins with `fc9.`"), "{finding:?}");
    let grey = json!({"data": {"path": "", "augment": [{"color_jitter": {"hue": 0.1}}]}});
    let outcome = bench(grey).finish();
    assert!(outcome.finding(domain::finding::Cause::Job).message.contains("need three channels"));
}
