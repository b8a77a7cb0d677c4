//! A batch is the same for any number of ranks, and so is the result of training.

use domain::rank::Report;
use serde_json::{Value, json};

use crate::scene::{Scene, apart};

/// Runs a job with 1, 2 and 4 ranks: losses and scores differ by no more than `bound`, weights by no more than the
/// other.
fn check(job: Value, bounds: [f64; 2]) {
    check_scene(Scene::new, job, &[2, 4], bounds);
}

/// Like `check`, with another kind of data and other numbers of ranks.
pub fn check_scene(scene: impl Fn(Value) -> Scene, job: Value, sizes: &[u32], [bound, of_weights]: [f64; 2]) {
    let several = |ranks: u32| {
        let mut job = job.clone();
        if ranks == 1 {
            job.as_object_mut().unwrap().remove("parallel");
        }
        scene(job).finish(ranks)
    };
    let one = several(1);
    for ranks in sizes.iter().copied() {
        let outcome = several(ranks);
        let (losses, weights) = (apart(&outcome.losses(), &one.losses()), apart(&outcome.weights, &one.weights));
        assert!(
            losses <= bound && weights <= of_weights,
            "{ranks} ranks, {job}: losses {losses:e}, weights {weights:e}"
        );
        let pairs = outcome.evaluated().into_iter().zip(one.evaluated());
        for (found, expected) in pairs {
            assert!((found.loss - expected.loss).abs() <= bound * expected.loss.max(1.0), "{found:?} {expected:?}");
            // Less than one sample; what is no share of samples is rounded.
            assert!((found.accuracy - expected.accuracy).abs() <= bound, "{found:?} {expected:?}");
            assert_eq!(found.best, expected.best, "{found:?} {expected:?}");
        }
        assert_eq!(outcome.reports.last(), Some(&Report::Trained));
        assert!(outcome.others.iter().all(|last| *last == Some(Report::Trained)), "{:?}", outcome.others);
    }
}

#[test]
fn any_number_of_ranks_learns_the_same() {
    // The last batch of an epoch has two samples, so that of four ranks two have none.
    for shard in ["none", "gradients", "parameters"] {
        let parallel = json!({"shard": shard});
        let job = json!({"accumulate": 2, "clip_norm": 1.0, "label_smoothing": 0.1, "parallel": parallel});
        check(job, [1e-6; 2]);
    }
}

#[test]
fn any_number_of_ranks_mixes_the_same_pictures() {
    let augment = json!([{"pad_crop": 1}, {"mixup": 0.4}, {"cutmix": 1.0}]);
    let mut job = json!({"data": {"path": "", "augment": augment}, "accumulate": 2, "label_smoothing": 0.1});
    check(job.clone(), [1e-6; 2]);
    // Two of four ranks have no image of the last batch, and make the same collective calls as the others.
    job["class_weights"] = json!("balanced");
    check(job, [2e-6; 2]);
}

#[test]
fn ranks_normalise_together_if_they_are_told_to() {
    // One rank uses the fused kernel, whose backward pass rounds differently, most visibly in the first layers.
    let job = json!({
        "model": "resnet20", "batch": 629, "epochs": 1, "optimizer": {"sgd": {"lr": 0.01}},
        "parallel": {"sync_batch_norm": true},
    });
    check(job, [1e-5, 2e-4]);
}

#[test]
fn recomputation_and_means_of_the_weights_are_those_of_one_rank() {
    let job = json!({"recompute": "blocks", "average": {"ema": {"decay": 0.8}}, "clip_norm": 1.0});
    check_scene(Scene::of_texts, job, &[2], [1e-6; 2]);
    let job = json!({"chunked_loss": true, "accumulate": 2, "label_smoothing": 0.1});
    check_scene(Scene::of_texts, job, &[2], [1e-6; 2]);
    let job = json!({"average": {"swa": {"from": 0}}, "accumulate": 2});
    check_scene(Scene::new, job, &[2], [1e-6; 2]);
}

#[test]
fn detectors_add_up_what_ranks_are_to_find() {
    let scene = |changes: Value| {
        let mut scene = Scene::new(changes);
        data::shapes::write(&scene.path("shapes"), 40, 64, 3).unwrap();
        scene.data = scene.path("shapes");
        scene
    };
    let job = json!({
        "model": "yolo_n", "data": {"path": "", "split": [0.6, 0.2, 0.2]}, "batch": 8, "epochs": 2,
        "optimizer": {"sgd": {"lr": 1e-3}}, "clip_norm": 10.0, "parallel": {"sync_batch_norm": true},
    });
    check_scene(scene, job, &[2], [1e-5, 2e-4]);
}

#[test]
fn several_labels_and_numbers_are_scored_over_all_ranks() {
    for labels in ["multi_label", "number"] {
        let data = json!({"path": "", "labels": labels});
        check(json!({"data": data, "accumulate": 2, "optimizer": {"sgd": {"lr": 0.005}}}), [2e-5; 2]);
    }
}

#[test]
fn shards_of_the_optimiser_change_no_bit() {
    let adamw = json!({"optimizer": {"adamw": {"lr": 2e-3}}, "clip_norm": 0.5});
    let scaled = json!({"precision": "fp16", "clip_norm": 0.5, "parameters": {"freeze": ["fc1"]}, "epochs": 1});
    for job in [adamw, scaled] {
        let plain = Scene::new(job.clone()).finish(2);
        let sharded = Scene::new(job).with("parallel", json!({"shard": "optimizer"})).finish(2);
        assert_eq!(plain.losses(), sharded.losses());
        assert_eq!(plain.exported().model_sha256, sharded.exported().model_sha256);
    }
}

#[test]
fn gradients_may_be_sent_as_half_as_many_bytes() {
    let plain = Scene::new(json!({})).finish(2);
    let half = Scene::new(json!({})).with("parallel", json!({"exchange": "bf16"})).finish(2);
    let difference = apart(&half.losses(), &plain.losses());
    assert!(difference > 0.0 && difference < 0.01, "{difference:e}");
}
