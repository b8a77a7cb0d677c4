//! Steps with non-finite gradients or state: which are skipped, which are rolled back, and which are never saved.

use std::fs;
use std::path::Path;

use checkpoint::Dtype;
use domain::finding::Cause;
use domain::rank::Report;
use serde_json::{Value, json};
use train::run::Ending;
use train::state::OmittedState;

use crate::scene::{Bench, Outcome, bench};

/// Sixty black images of two classes; `white` are the numbers of images whose pixels are 10³⁶ after normalisation.
pub fn black_images(changes: Value, white: &[usize]) -> Bench {
    let mut job = json!({
        "data": {
            "path": "", "split": [0.9, 0.05, 0.05], "normalize": {"mean": [0.0], "std": [1e-36]},
        },
        "batch": 8, "epochs": 2, "checkpoint": {"every": "3 steps", "keep": 100},
    });
    for (key, value) in changes.as_object().unwrap() {
        job[key] = value.clone();
    }
    let mut bench = bench(job);
    bench.data = bench.path("images.csv");
    let row = |number| {
        let pixel = if white.contains(&number) { "16," } else { "0," };
        format!("{}{}\n", pixel.repeat(64), number % 2)
    };
    fs::write(&bench.data, (0..60).map(row).collect::<String>()).unwrap();
    bench
}

pub fn notes(outcome: &Outcome) -> Vec<String> {
    let note = |report: &Report| if let Report::Note { text } = report { Some(text.clone()) } else { None };
    outcome.reports.iter().filter_map(note).collect()
}

fn count(outcome: &Outcome, text: &str) -> usize {
    notes(outcome).iter().filter(|note| note.contains(text)).count()
}

/// Every value of every file of weights and state in `folder` is finite.
pub fn assert_finite(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_finite(&path);
        } else if path.extension().is_some_and(|extension| extension == "safetensors") {
            for tensor in checkpoint::read_tensors(&path).unwrap() {
                assert!(is_finite(&tensor), "{} of {}", tensor.name, path.display());
            }
        }
    }
}

fn is_finite(tensor: &checkpoint::Tensor) -> bool {
    let floats = tensor.bytes.chunks_exact(4).filter(|_| tensor.dtype == Dtype::F32);
    floats.map(|four| f32::from_le_bytes(four.try_into().unwrap())).all(f32::is_finite)
}

/// One of the two white images is predicted wrongly, and its gradients overflow.
#[test]
fn a_step_with_gradients_that_overflow_is_skipped() {
    let mut bench = black_images(json!({"model": "mlp"}), &[4, 5]);
    let outcome = bench.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let skipped = count(&outcome, "are not finite: the step is skipped");
    assert!((1..=4).contains(&skipped), "{:?}", notes(&outcome));
    assert_eq!(outcome.steps().len(), 14);
    assert_finite(bench.folder.path());
}

/// A forward pass over the white image makes running variances infinite, with or without an update.
#[test]
fn a_state_that_is_not_finite_is_rolled_back_and_its_batches_are_left_out() {
    let mut bench = black_images(json!({"model": "resnet20"}), &[4]);
    let outcome = bench.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    assert_eq!(count(&outcome, "rolled back to the newest checkpoint"), 2, "{:?}", notes(&outcome));
    assert_eq!(outcome.steps().last(), Some(&14));
    assert_finite(bench.folder.path());
}

#[test]
fn a_third_roll_back_ends_the_run_with_the_samples_of_the_batch() {
    let mut bench = black_images(json!({"model": "resnet20", "epochs": 3, "checkpoint": {"every": "1 steps"}}), &[4]);
    let outcome = bench.finish();
    let finding = outcome.finding(Cause::NotFinite);
    assert!(finding.message.contains("again after two roll-backs; its batch has the samples `"), "{finding:?}");
    assert!(finding.message.contains("`4`"), "{finding:?}");
    assert_finite(&bench.path("checkpoints"));
}

/// With such a small epsilon, a weight whose gradient is zero is updated by 0/0, while loss and gradients are finite.
#[test]
fn weights_that_are_not_finite_are_never_saved() {
    let optimizer = json!({"adamw": {"lr": 0.01, "eps": 1e-60}});
    let mut bench = bench(json!({"optimizer": optimizer, "checkpoint": {"every": "1 steps"}}));
    let outcome = bench.finish();
    let finding = outcome.finding(Cause::NotFinite);
    assert!(
        finding.message.starts_with("weights, running statistics or optimizer state are not finite"),
        "{finding:?}"
    );
    let saved = fs::read_dir(bench.path("checkpoints")).unwrap();
    let names = saved.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>();
    assert!(!names.iter().any(|name| name.starts_with("manifest-")), "{names:?}");

    // Without the check they are, which this test would notice.
    let none = OmittedState::default();
    bench.attempt(OmittedState { finite_check: true, ..none }, |_| None);
    let loaded = checkpoint::newest_verified(&bench.path("checkpoints"), "job").unwrap().0.unwrap();
    assert!(loaded.model.iter().any(|tensor| !is_finite(tensor)));

    // As found from an earlier version: it is not resumed, and there is no finite one to resume.
    let outcome = bench.attempt(none, |_| None);
    let finding = outcome.finding(Cause::Internal);
    assert!(finding.message.contains("has values that are not finite"), "{finding:?}");
}

/// The states after step 7 are saved with NaN, as by a version that did not look at them.
#[test]
fn a_checkpoint_that_is_not_finite_is_passed_over() {
    let optimizer = |eps: f64| serde_json::from_value(json!({"adamw": {"lr": 0.01, "eps": eps}})).unwrap();
    let mut bench = bench(json!({"checkpoint": {"every": "1 steps", "keep": 100}}));
    bench.train.optimizer = optimizer(1e-8);
    let last = bench.stop_after(7).steps().into_iter().max().unwrap();
    bench.train.optimizer = optimizer(1e-60);
    bench.attempt(OmittedState { finite_check: true, ..OmittedState::default() }, |_| None);
    let poisoned = checkpoint::newest_verified(&bench.path("checkpoints"), "job").unwrap().0.unwrap();
    assert!(poisoned.manifest.step > last && poisoned.model.iter().any(|tensor| !is_finite(tensor)));

    bench.train.optimizer = optimizer(1e-8);
    let resumed = bench.finish();
    assert_eq!(resumed.ending, Ok(Ending::Trained));
    assert_eq!(resumed.resumed_from(), last);
    let why = format!("the checkpoint of step {} is not used: `", poisoned.manifest.step);
    let said = format!("{:?}", resumed.reports);
    assert!(said.contains(&why) && said.contains("has values that are not finite"), "{:?}", notes(&resumed));
    assert_finite(&bench.path("export"));
}
