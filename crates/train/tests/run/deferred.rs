//! Steps whose outcome is read late, as on a device: nothing but the time at which it is known may differ.

use serde_json::{Value, json};
use train::run::Ending;

use crate::finite::{assert_finite, black_images, notes};
use crate::scene::{Bench, Outcome, bench};

/// What must be the same: how it ended, every step that was reported with the bits of its loss, what was noted, and the
/// exported weights.
fn of_run(mut bench: Bench, lag: usize) -> (Value, Outcome) {
    bench.lag = lag;
    let outcome = bench.finish();
    let losses: Vec<u64> = outcome.losses().into_iter().map(f64::to_bits).collect();
    let weights = &outcome.exported().model_sha256;
    let noted: Vec<String> = notes(&outcome).into_iter().filter(|note| !note.contains("waits for data")).collect();
    let all = json!({"steps": outcome.steps(), "losses": losses, "weights": weights, "notes": noted});
    assert_finite(bench.folder.path());
    (all, outcome)
}

#[test]
fn late_reading_changes_no_bit() {
    for changes in [
        json!({"optimizer": {"adamw": {"lr": 0.01}}}),
        json!({"clip_norm": 0.1, "accumulate": 2}),
        json!({"precision": "fp16", "optimizer": {"adamw": {"lr": 0.01}}, "clip_norm": 1.0}),
        json!({"optimizer": {"lamb": {"lr": 0.01}}, "average": {"ema": {"decay": 0.9}}}),
        json!({"optimizer": {"lars": {"lr": 0.5}}}),
        json!({"precision": "fp16", "optimizer": {"adafactor": {"lr": 0.01}}, "accumulate": 2}),
        json!({"optimizer": {"adamw": {"lr": 0.01}}, "offload": "optimizer"}),
    ] {
        let at_once = of_run(bench(changes.clone()), 0).0;
        for lag in [1, 3] {
            assert_eq!(of_run(bench(changes.clone()), lag).0, at_once, "{changes} read {lag} steps late");
        }
    }
}

#[test]
fn steps_that_are_not_finite_are_judged_as_if_at_once() {
    for (model, white, note) in
        [("mlp", &[4, 5][..], "the step is skipped"), ("resnet20", &[4], "rolled back to the newest checkpoint")]
    {
        let images = || black_images(json!({"model": model}), white);
        let (at_once, outcome) = of_run(images(), 0);
        assert!(notes(&outcome).iter().any(|text| text.contains(note)), "{model}: {:?}", notes(&outcome));
        for lag in [1, 4] {
            assert_eq!(of_run(images(), lag).0, at_once, "{model} read {lag} steps late");
        }
    }
}

/// A stop is followed between two steps, when the outcome of some is not known yet: they are judged and reported first.
#[test]
fn a_stopped_run_resumes_bit_for_bit() {
    let job = || bench(json!({"optimizer": {"adamw": {"lr": 0.01}}, "dropout": 0.1}));
    let whole = of_run(job(), 2).1;
    let mut stopped = job();
    stopped.lag = 2;
    let first = stopped.stop_after(6);
    let Ok(Ending::Stopped { step }) = first.ending else { panic!("{:?}", first.ending) };
    assert_eq!(first.steps().last(), Some(&step), "every step that was saved was reported");
    let rest = stopped.finish();
    assert_eq!(rest.resumed_from(), step);
    assert_eq!([first.losses(), rest.losses()].concat(), whole.losses());
    assert_eq!(rest.exported().model_sha256, whole.exported().model_sha256);
}
