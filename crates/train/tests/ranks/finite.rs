//! Steps and states that are not finite, among several ranks: all of them skip, roll back and end together.

use std::fs;

use domain::finding::Cause;
use domain::rank::Report;
use serde_json::{Value, json};

use crate::scene::{Outcome, Scene};

/// Sixty black images of two classes; the pixels of the images in `white` are 10³⁶ after normalization.
fn black_images(changes: Value, white: &[usize]) -> Scene {
    let mut job = json!({
        "data": {"path": "", "split": [0.9, 0.05, 0.05], "normalize": {"mean": [0.0], "std": [1e-36]}},
        "batch": 8, "epochs": 2, "checkpoint": {"every": "3 steps", "keep": 100},
    });
    for (key, value) in changes.as_object().unwrap() {
        job[key] = value.clone();
    }
    let mut scene = Scene::new(job);
    scene.data = scene.path("images.csv");
    let row = |number| {
        let pixel = if white.contains(&number) { "16," } else { "0," };
        format!("{}{}\n", pixel.repeat(64), number % 2)
    };
    fs::write(&scene.data, (0..60).map(row).collect::<String>()).unwrap();
    scene
}

fn count(outcome: &Outcome, text: &str) -> usize {
    let is_it = |report: &&Report| matches!(report, Report::Note { text: note } if note.contains(text));
    outcome.reports.iter().filter(is_it).count()
}

/// One of the two white images is predicted wrongly, and its gradients overflow on the one rank that has it.
#[test]
fn a_step_that_overflows_on_one_rank_is_skipped_by_all() {
    for (ranks, shard) in [(2, "none"), (2, "optimizer"), (2, "gradients"), (2, "parameters"), (4, "none")] {
        let mut scene = black_images(json!({"model": "mlp", "parallel": {"shard": shard}}), &[4, 5]);
        let outcome = scene.finish(ranks);
        outcome.exported();
        let skipped = count(&outcome, "are not finite: the step is skipped");
        assert!((1..=4).contains(&skipped), "{ranks} ranks, {shard}: {skipped}");
        assert_eq!(outcome.losses().len(), 14, "{ranks} ranks, {shard}");
        assert!(outcome.weights.iter().all(|weight| weight.is_finite()), "{ranks} ranks, {shard}");
    }
}

/// A forward pass over the white image makes running variances infinite, of the rank that has it.
#[test]
fn a_state_that_is_not_finite_on_one_rank_is_rolled_back_by_all() {
    for shard in ["none", "parameters"] {
        let mut scene = black_images(json!({"model": "resnet20", "parallel": {"shard": shard}}), &[4]);
        let outcome = scene.finish(2);
        outcome.exported();
        assert_eq!(count(&outcome, "rolled back to the newest checkpoint"), 2, "{shard}");
        assert!(outcome.weights.iter().all(|weight| weight.is_finite()), "{shard}");
        let last = outcome.reports.iter().rev().find_map(|report| match report {
            Report::Step(step) => Some(step.step),
            _ => None,
        });
        assert_eq!(last, Some(14), "{shard}");
    }
}

#[test]
fn a_third_roll_back_ends_the_run_of_all_ranks() {
    let job = json!({"model": "resnet20", "epochs": 3, "checkpoint": {"every": "1 steps", "keep": 100}});
    let outcome = black_images(job, &[4]).finish(2);
    let finding = outcome.finding();
    assert_eq!(finding.cause, Cause::NotFinite, "{finding:?}");
    assert!(finding.message.contains("again after two roll-backs"), "{finding:?}");
    assert!(outcome.others.iter().all(Option::is_some), "{:?}", outcome.others);
}
