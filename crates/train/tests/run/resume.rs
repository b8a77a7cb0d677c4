//! Runs that are stopped and resumed.

use std::fs;
use std::path::Path;

use domain::finding::Cause;
use domain::id::Fence;
use domain::rank::{RankCommand, Report};
use serde_json::{Value, json};
use train::run::Ending;
use train::state::OmittedState;

use crate::scene::bench;

/// AdamW with dropout (random numbers), and SGD with batch normalisation in another format and memory order.
fn jobs() -> [Value; 2] {
    [
        json!({
            "model": "cnn", "optimizer": {"adamw": {"lr": 2e-3}}, "accumulate": 3, "clip_norm": 1.0,
            "schedule": {"warmup": "4 steps", "decay": "cosine"}, "label_smoothing": 0.1,
        }),
        json!({
            "model": "resnet20", "optimizer": {"sgd": {"lr": 0.1, "nesterov": true, "weight_decay": 5e-4}}, "batch": 200,
            "precision": "bf16", "memory_format": "channels_last", "data": {"path": "", "augment": [{"pad_crop": 1}]},
            "schedule": {"decay": {"step": {"at": [1]}}},
        }),
    ]
}

/// Pictures that are mixed, saved as differences.
fn mixing() -> Value {
    json!({
        "optimizer": {"adamw": {"lr": 2e-3}}, "label_smoothing": 0.1, "accumulate": 2,
        "data": {"path": "", "augment": [{"pad_crop": 1}, {"mixup": 0.2}, {"cutmix": 1.0}]},
        "checkpoint": {"every": "5 steps", "keep": 100, "codec": "delta"},
    })
}

#[test]
fn a_resumed_run_ends_with_the_same_bytes() {
    for job in jobs().into_iter().chain([mixing()]) {
        let whole = bench(job.clone()).finish();
        assert_eq!(whole.ending, Ok(Ending::Trained));
        let last = *whole.steps().last().unwrap();
        let per_epoch = last / 2;
        // After the first step, within an epoch, at an epoch's end, and before the last step.
        for (stop, lose) in [(1, None), (per_epoch - 2, Some(5)), (per_epoch, None), (last - 1, Some(10))] {
            let mut bench = bench(job.clone());
            let stopped = bench.stop_after(stop);
            let Ok(Ending::Stopped { step }) = stopped.ending else { panic!("{:?}", stopped.ending) };
            assert!(step >= stop, "no step that was reported is given up");
            bench.lose_after(lose.unwrap_or(step));
            let resumed = bench.finish();
            assert_eq!(resumed.resumed_from(), lose.unwrap_or(step));
            let (from, losses) = (resumed.resumed_from() as usize, resumed.losses());
            assert_eq!(losses, whole.losses()[from..], "stopped at {step}, resumed from {from}");
            assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256);
            assert_eq!(resumed.exported().test_accuracy, whole.exported().test_accuracy);
        }
    }
}

#[test]
fn what_a_resume_leaves_out_is_seen_in_the_result() {
    let [job, _] = jobs();
    let whole = bench(job.clone()).finish();
    let none = OmittedState::default();
    for omitted in [
        OmittedState { random: true, ..none },
        OmittedState { optimizer: true, ..none },
        OmittedState { position: true, ..none },
    ] {
        let mut bench = bench(job.clone());
        bench.stop_after(7);
        bench.lose_after(5);
        let resumed = bench.attempt(omitted, |_| None);
        assert_ne!(resumed.exported().model_sha256, whole.exported().model_sha256, "{omitted:?}");
    }
}

#[test]
fn an_order_saves_and_another_stops_before_the_run_is_through() {
    // Far more steps than are made before an order arrives, however slow the machine is.
    let mut bench = bench(json!({"epochs": 100_000, "checkpoint": {"every": "10000000 steps"}}));
    let outcome = bench.attempt(OmittedState::default(), |report| match report {
        Report::Step(done) if done.step == 3 => Some(RankCommand::Checkpoint),
        Report::Checkpointed(_) => Some(RankCommand::Stop { within_us: None }),
        _ => None,
    });
    let saved = |report: &Report| if let Report::Checkpointed(done) = report { Some(done.step) } else { None };
    let saved: Vec<u64> = outcome.reports.iter().filter_map(saved).collect();
    // By order, whenever it arrived, and at the stop.
    assert!(saved.len() == 2 && saved[0] >= 3 && saved[1] >= saved[0], "{saved:?}");
    assert_eq!(saved.last(), outcome.steps().last());
    assert_eq!(outcome.ending, Ok(Ending::Stopped { step: saved[1] }));
}

#[test]
fn a_met_target_ends_the_run_early_also_after_a_resume() {
    let mut bench = bench(json!({"epochs": 50, "stop": {"accuracy": "80%"}}));
    let outcome = bench.finish();
    assert_eq!(outcome.ending, Ok(Ending::Trained));
    let steps = outcome.steps().len();
    assert!(steps < 50 * 13 && outcome.exported().validation_accuracy >= 0.8);
    assert_eq!(bench.finish().steps().len(), 0);
}

#[test]
fn threads_stay_as_they_were() {
    let mut bench = bench(json!({}));
    bench.stop_after(3);
    bench.lose_after(5);
    bench.threads = 2;
    let resumed = bench.finish();
    let note = |report: &Report| matches!(report, Report::Note { text } if text.contains("1 threads"));
    assert!(resumed.reports.iter().any(note));
    let mut undisturbed = self::bench(json!({}));
    assert_eq!(undisturbed.finish().exported().model_sha256, resumed.exported().model_sha256);
}

/// The best weights are not needed to resume: without them, the next evaluation determines them again.
#[test]
fn damaged_best_weights_cost_no_step() {
    let mut bench = bench(json!({"checkpoint": {"every": "100000 steps", "keep": 100}}));
    let Ok(Ending::Stopped { step }) = bench.stop_after(15).ending else { panic!("it was not stopped") };
    for entry in fs::read_dir(bench.path("checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("best-") {
            flip(&path);
        }
    }
    let resumed = bench.finish();
    assert_eq!((resumed.resumed_from(), resumed.ending.clone()), (step, Ok(Ending::Trained)));
    let note = |report: &Report| matches!(report, Report::Note { text } if text.contains("are lost"));
    assert!(resumed.reports.iter().any(note));
    // The same weights as without the damage: those after the last epoch are the best.
    assert_eq!(resumed.exported().step, 26);
}

/// Starting over from step 0 repeats paid work, so it is the user's decision.
#[test]
fn where_no_checkpoint_verifies_the_run_does_not_start_over() {
    let mut bench = bench(json!({"checkpoint": {"every": "100000 steps", "keep": 100}}));
    bench.stop_after(5);
    for entry in fs::read_dir(bench.path("checkpoints")).unwrap() {
        let folder = entry.unwrap().path();
        if folder.is_dir() {
            flip(&folder.join("model.safetensors"));
        }
    }
    let refused = bench.finish();
    let finding = refused.finding(Cause::Internal);
    assert!(finding.message.contains("would start over from step 0: the checkpoint of step"), "{finding:?}");
    assert!(refused.steps().is_empty());
}

/// A run stopped by a deadline or a budget keeps its best and last models.
#[test]
fn a_stopped_run_leaves_its_best_and_its_last_model() {
    let mut bench = bench(json!({"epochs": 100_000}));
    let Ok(Ending::Stopped { step }) = bench.stop_after(15).ending else { panic!("it was not stopped") };
    let read = |name: &str| checkpoint::read_tensors(&bench.path("export").join(name)).unwrap();
    let saved = checkpoint::newest_verified(&bench.path("checkpoints"), "job").unwrap().0.unwrap();
    assert_eq!((saved.manifest.step, &saved.model), (step, &read("last.safetensors")));
    assert_eq!(saved.best.unwrap().model, read("model.safetensors"));
    let card: Value = serde_json::from_slice(&fs::read(bench.path("export/model.json")).unwrap()).unwrap();
    assert!(card["validation_accuracy"].as_f64().unwrap() > 0.3 && card["test_accuracy"].is_null(), "{card}");
    assert!(card["step"].as_u64().unwrap() <= card["steps"].as_u64().unwrap(), "{card}");
}

/// Changes one bit in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_folder_that_a_later_attempt_claimed_is_left_alone() {
    let mut bench = bench(json!({}));
    checkpoint::claim(&bench.path("checkpoints"), Fence(9)).unwrap();
    let finding = bench.finish();
    assert_eq!(finding.ending.as_ref().unwrap_err().cause, Cause::Fenced);
}
