//! Tensor parallelism: training gives the same result as with undivided layers.

use domain::finding::Cause;
use serde_json::{Value, json};

use crate::same::check_scene;
use crate::scene::{Scene, apart};

/// Holds a mesh against one process: losses and scores, and weights.
fn check(job: Value, parallel: Value, ranks: u32, bound: f64) {
    let mut job = job;
    job["parallel"] = parallel;
    check_scene(Scene::of_texts, job, &[ranks], [bound; 2]);
}

/// Texts of which no class is learnt.
fn words() -> Value {
    json!({"path": "texts.csv", "text": {"length": 16, "vocabulary": 300, "columns": ["text"]}})
}

#[test]
fn layers_are_divided_among_two_ranks() {
    check(json!({"clip_norm": 0.5}), json!({"tensor": 2}), 2, 1e-5);
    check(json!({"model": "bert_mini", "accumulate": 2}), json!({"tensor": 2}), 2, 1e-5);
    // Without classes, the objective is masked language modelling.
    check(json!({"model": "bert_mini", "data": words()}), json!({"tensor": 2}), 2, 1e-5);
}

#[test]
fn samples_and_layers_are_divided_on_a_mesh() {
    check(json!({"clip_norm": 0.5}), json!({"tensor": 2}), 4, 1e-5);
    check(json!({"model": "bert_mini", "clip_norm": 0.5}), json!({"tensor": 2}), 4, 1e-5);
    check(json!({"clip_norm": 0.5, "accumulate": 2}), json!({"tensor": 2, "shard": "parameters"}), 4, 1e-5);
}

#[test]
fn a_vision_transformer_is_divided() {
    let scene = |changes: Value| {
        let mut scene = Scene::new(changes);
        scene.data = scene.path("pictures");
        std::fs::create_dir(&scene.data).unwrap();
        // In CIFAR-10's format: a class and 32×32 pixels in three colours, with a distinct pattern per class.
        let record = |number: usize| {
            let pixel = move |place: usize| ((place * (number % 10 + 1)) % 251 + number) as u8;
            [(number % 10) as u8].into_iter().chain((0..3072).map(pixel))
        };
        std::fs::write(scene.data.join("data_batch_1.bin"), (0..80).flat_map(record).collect::<Vec<u8>>()).unwrap();
        scene
    };
    let job = json!({
        "model": "vit_s_16", "data": {"path": "", "split": [0.7, 0.1, 0.2]}, "batch": 20, "epochs": 1,
        "optimizer": {"sgd": {"lr": 0.01}}, "parallel": {"tensor": 2},
    });
    check_scene(scene, job, &[2], [1e-5; 2]);
}

#[test]
fn divided_layers_that_are_recomputed_leave_out_the_same() {
    let run = |changes: Value| {
        let mut scene = Scene::of_texts(json!({"dropout": 0.1, "parallel": {"tensor": 2}}));
        for (key, value) in changes.as_object().unwrap() {
            scene = scene.with(key, value.clone());
        }
        scene.finish(2)
    };
    let (plain, again) = (run(json!({})), run(json!({"recompute": "blocks"})));
    assert_eq!(plain.losses(), again.losses());
    assert_eq!(plain.exported().model_sha256, again.exported().model_sha256);
}

#[test]
fn any_layout_goes_on_from_any_other() {
    let layouts =
        [(1, json!({})), (2, json!({"tensor": 2})), (4, json!({"tensor": 2, "shard": "gradients"})), (2, json!({}))];
    let job = json!({"optimizer": {"adamw": {"lr": 1e-3}}, "batch": 12, "clip_norm": 1.0, "average": {"ema": {}}});
    let whole = Scene::of_texts(job.clone()).finish(1);
    for (began, parallel) in &layouts[..3] {
        let mut scene = Scene::of_texts(job.clone()).with("epochs", json!(100_000)).with("parallel", parallel.clone());
        scene.stop_after(*began, 6);
        scene.lose_after(5);
        let scene = scene.with("epochs", json!(1));
        for (goes_on, parallel) in &layouts {
            let resumed = scene.fork().with("parallel", parallel.clone()).finish(*goes_on);
            assert_eq!(resumed.resumed_from(), 5);
            let difference = apart(&resumed.losses(), &whole.losses()[5..]);
            assert!(difference <= 1e-5, "from {began} ranks to {goes_on} with {parallel}: {difference:e}");
        }
    }
}

#[test]
fn meshes_that_cannot_be_are_refused() {
    let check = |scene: Scene, ranks: u32, expected: &str| {
        let mut scene = scene;
        let outcome = scene.start(ranks, ranks, 5).end();
        let finding = outcome.finding();
        assert_eq!(finding.cause, Cause::Job, "{finding:?}");
        assert!(finding.message.contains(expected), "{finding:?}");
        assert!(outcome.losses().is_empty());
    };
    let tensor = |count: u32| json!({"parallel": {"tensor": count}});
    check(Scene::of_texts(tensor(2)), 3, "3 ranks cannot be divided into groups of `tensor: 2`");
    check(Scene::new(tensor(2)), 2, "`mlp` has no attention heads");
    check(Scene::of_texts(tensor(3)), 3, "the 4 attention heads of `gpt_tiny` cannot be divided by `tensor: 3`");
}
