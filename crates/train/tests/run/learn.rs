//! Training results, reports and exports of a run, its initialization, and refusals.

use std::fs;
use std::path::Path;

use domain::finding::Cause;
use domain::rank::{EvaluatedSplit, Pause, Report};
use serde_json::{Value, json};
use train::run::Ending;

use crate::scene::bench;

#[test]
fn a_part_without_samples_has_no_score() {
    let mut bench = bench(json!({"data": {"path": "digits.csv.gz", "split": [0.8, 0.2, 0.0]}, "epochs": 1}));
    let outcome = bench.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let is_test = |report: &Report| matches!(report, Report::Evaluated(score) if score.split == EvaluatedSplit::Test);
    assert!(!outcome.reports.iter().any(is_test));
    let card: Value = serde_json::from_str(&fs::read_to_string(bench.path("export/model.json")).unwrap()).unwrap();
    assert_eq!((card.get("test_loss"), card.get("test_accuracy")), (None, None));
    assert!(card["validation_loss"].is_f64());
}

#[test]
fn a_run_learns_reports_and_exports() {
    let mut bench = bench(json!({"epochs": 6, "optimizer": {"adamw": {"lr": 3e-3}}}));
    let outcome = bench.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let Report::Hello { environment, .. } = &outcome.reports[0] else { panic!("{:?}", outcome.reports[0]) };
    assert_eq!((environment.torch.as_str(), environment.precision.as_str()), (domain::torch::VERSION, "fp32"));
    let Report::Ready(ready) = &outcome.reports[1] else { panic!("{:?}", outcome.reports[1]) };
    assert_eq!((ready.samples.iter().sum::<u64>(), ready.classes.len()), (1797, 10));
    assert_eq!(outcome.steps(), (1..=ready.steps).collect::<Vec<_>>());
    // What its agent needs to know so as not to take them for a hang.
    for pause in [Pause::Evaluation, Pause::Checkpoint, Pause::Export] {
        assert!(outcome.reports.contains(&Report::Pausing { pause }), "{pause:?}");
    }

    let mut best = 0.0;
    let mut evaluations = [0, 0];
    for report in &outcome.reports {
        let Report::Evaluated(evaluated) = report else { continue };
        match evaluated.split {
            EvaluatedSplit::Validation => {
                assert_eq!(evaluated.best, evaluated.accuracy > best);
                best = evaluated.accuracy.max(best);
                evaluations[0] += 1;
            }
            EvaluatedSplit::Test => evaluations[1] += 1,
        }
    }
    assert_eq!(evaluations, [6, 1], "each epoch, and the test split once");
    let exported = outcome.exported();
    assert_eq!(exported.validation_accuracy, best);
    assert!(exported.test_accuracy > 0.9, "{exported:?}");

    let tensors = checkpoint::read_tensors(Path::new(&exported.model)).unwrap();
    assert_eq!(
        tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(),
        ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight", "fc3.bias", "fc3.weight"]
    );
    assert_eq!(tensors[1].shape, [128, 64]);
    let card: Value = serde_json::from_slice(&fs::read(bench.path("export/model.json")).unwrap()).unwrap();
    assert_eq!(card["weights_sha256"], json!(exported.model_sha256));
    assert_eq!((card["architecture"].as_str(), card["input"]["height"].as_u64()), (Some("mlp"), Some(8)));
    assert_eq!(card["classes"].as_array().unwrap().len(), 10);

    // Another attempt finds all steps done, and only exports again.
    let again = bench.finish();
    assert_eq!((again.steps().len(), again.ending.clone()), (0, Ok(Ending::Trained)));
    assert_eq!(again.exported().model_sha256, exported.model_sha256);
}

#[test]
fn a_run_begins_with_the_weights_of_a_file() {
    let mut first = bench(json!({"epochs": 4, "optimizer": {"adamw": {"lr": 3e-3}}}));
    let outcome = first.finish();
    let (file, fresh) = (outcome.exported().model.clone(), outcome.losses()[0]);
    let begin = |file: &Path, model: &str| {
        let outcome = bench(json!({"weights": file, "model": model, "epochs": 1})).finish();
        let note = |report: &Report| if let Report::Note { text } = report { Some(text.clone()) } else { None };
        let notes: Vec<String> = outcome.reports.iter().filter_map(note).collect();
        (outcome, notes.join("\n"))
    };
    let (outcome, notes) = begin(Path::new(&file), "mlp");
    assert!(outcome.losses()[0] < 0.2 * fresh, "{} after {fresh}", outcome.losses()[0]);
    assert!(notes.contains("6 tensors were taken from"), "{notes}");

    // With other classes, everything but the head is reused.
    let mut tensors = checkpoint::read_tensors(Path::new(&file)).unwrap();
    for tensor in tensors.iter_mut().filter(|tensor| tensor.name.starts_with("fc3.")) {
        tensor.shape[0] = 7;
        tensor.bytes.truncate(tensor.bytes.len() / 10 * 7);
    }
    let changed = first.path("changed.safetensors");
    checkpoint::write_tensors(&changed, &tensors, &[]).unwrap();
    let (outcome, notes) = begin(&changed, "mlp");
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    assert!(notes.contains("keeps its initial weights: `fc3.bias` is [7], and [10] here"), "{notes}");

    let (outcome, _) = begin(Path::new(&file), "cnn");
    let message = outcome.finding(Cause::Job).message.clone();
    assert!(message.contains("do not fit `cnn`") && message.contains("`conv1.weight` [32, 1, 3, 3] is missing"));
    assert_eq!(outcome.steps().len(), 0);
    begin(Path::new("/nowhere/model.safetensors"), "mlp").0.finding(Cause::Job);
    begin(Path::new("/nowhere/model.pth"), "mlp").0.finding(Cause::Job);
}

/// The mean of the weights, with statistics measured for it, stands in for them and does not disturb them.
#[test]
fn means_of_weights_are_what_is_judged_and_change_no_step() {
    let job = json!({
        "model": "resnet20", "optimizer": {"sgd": {"lr": 0.1}}, "batch": 200, "epochs": 4, "checkpoint": {"every": "4 steps", "keep": 100},
    });
    let plain = bench(job.clone()).finish();
    for average in [json!({"ema": {"decay": 0.8, "batches": 3}}), json!({"swa": {"from": 1, "batches": 3}})] {
        let mut changed = job.clone();
        changed["average"] = average.clone();
        let mut averaged = bench(changed);
        let outcome = averaged.finish();
        assert_eq!(outcome.losses(), plain.losses(), "{average}");
        assert_ne!(outcome.exported().model_sha256, plain.exported().model_sha256, "{average}");
        assert!(outcome.exported().validation_accuracy > 0.5, "{average}: {:?}", outcome.exported());
    }
}

/// Weights that hardly move are as good after each epoch as after the first.
#[test]
fn a_run_that_gets_no_better_stops_early() {
    let job = |epochs: u32, patience: u32| json!({"optimizer": {"sgd": {"lr": 1e-12}}, "epochs": epochs, "stop": {"patience": patience}});
    let mut whole = bench(job(9, 3));
    let outcome = whole.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let steps = outcome.steps().len();
    let epoch = bench(job(1, 9)).finish().steps().len();
    assert_eq!(steps, 4 * epoch, "three epochs after the first");
    outcome.exported();

    // The same after a resume in between.
    let mut stopped = bench(job(9, 3));
    stopped.stop_after(epoch as u64 * 2 + 3);
    let resumed = stopped.finish();
    assert_eq!(resumed.steps().last(), Some(&(steps as u64)));
    assert_eq!(resumed.exported().model_sha256, outcome.exported().model_sha256);
}

#[test]
fn what_cannot_be_trained_so_is_said_before_the_first_step() {
    for (change, message) in [
        (json!({"parameters": {"freeze": ["layer9."]}}), "no parameter's name begins with `layer9.`"),
        (json!({"parameters": {"freeze": ["fc1.", "fc2.", "fc3."]}}), "every parameter is frozen"),
        (json!({"precision": "tf32"}), "`precision: tf32` is a format of NVIDIA GPUs"),
    ] {
        let outcome = bench(change).finish();
        assert!(outcome.finding(Cause::Job).message.contains(message));
        assert!(outcome.steps().is_empty());
    }
}

#[test]
fn a_loss_that_is_no_number_is_told_with_its_step() {
    let outcome = bench(json!({"optimizer": {"sgd": {"lr": 1e30}}})).finish();
    let finding = outcome.finding(Cause::NotFinite);
    // Two roll-backs to fresh weights later, each after a step that was skipped.
    let expected = "the loss of step 8 is `NaN`, again after two roll-backs; its batch has the samples `1153`, `359`, ";
    assert!(finding.message.starts_with(expected), "{finding:?}");
    assert!(outcome.reports.iter().all(|report| !matches!(report, Report::Exported(_))));
}

#[test]
fn what_is_wrong_with_a_job_is_a_finding() {
    let mut missing = bench(json!({}));
    missing.data = "/nowhere/digits.csv".into();
    missing.finish().finding(Cause::Data);
    let classes = bench(json!({"data": {"path": "", "classes": 7}})).finish();
    assert!(classes.finding(Cause::Job).message.contains("10 classes"));
    let lone = bench(json!({"model": "resnet18", "batch": 1257})).finish();
    lone.finding(Cause::Job);
}
