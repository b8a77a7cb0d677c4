//! Parts of gradients and parameters at each rank: the same is learnt as where each rank has all.

use serde_json::{Value, json};

use crate::same::check_scene;
use crate::scene::{Scene, apart};

/// Compares a job whose gradients or parameters are sharded among two ranks with the same one without shards.
fn check(scene: impl Fn(Value) -> Scene, job: Value, bound: f64) {
    let plain = scene(job.clone()).finish(2);
    for shard in ["gradients", "parameters"] {
        let mut parallel = job.get("parallel").cloned().unwrap_or_else(|| json!({}));
        parallel["shard"] = json!(shard);
        let sharded = scene(job.clone()).with("parallel", parallel).finish(2);
        let losses = apart(&sharded.losses(), &plain.losses());
        sharded.exported();
        let weights = apart(&sharded.weights, &plain.weights);
        assert!(losses <= bound && weights <= bound, "{shard}, {job}: losses {losses:e}, weights {weights:e}");
    }
}

#[test]
fn blocks_are_gathered_where_they_work() {
    for shard in ["gradients", "parameters"] {
        let job = json!({"parallel": {"shard": shard}, "accumulate": 2, "clip_norm": 1.0});
        check_scene(Scene::of_texts, job, &[2, 4], [1e-6; 2]);
    }
}

#[test]
fn what_is_recomputed_finds_its_parameters() {
    let job = json!({"recompute": "blocks", "dropout": 0.1, "optimizer": {"adamw": {"lr": 1e-3}}});
    check(Scene::of_texts, job, 1e-6);
}

#[test]
fn means_of_the_weights_and_frozen_layers_are_sharded_too() {
    let job = json!({
        "model": "resnet20", "batch": 400, "epochs": 2, "average": {"swa": {"from": 0, "batches": 2}},
        "parameters": {"freeze": ["conv1", "layer1.0"], "decay": "matrices"}, "recompute": {"every": 2},
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}}, "memory_format": "channels_last",
    });
    check(Scene::new, job, 2e-6);
    let job = json!({"average": {"ema": {"decay": 0.9}}, "parameters": {"layer_rate": 0.5}});
    check(Scene::of_texts, job, 1e-6);
}

#[test]
fn scaled_losses_agree_on_what_is_not_finite() {
    let job = json!({"precision": "fp16", "clip_norm": 0.5, "parameters": {"freeze": ["transformer.wpe"]}});
    // Rounded to 16 bits, a last bit of the weights is more than that.
    check(Scene::of_texts, job, 1e-5);
}

#[test]
fn parts_of_gradients_may_be_sent_as_half_as_many_bytes() {
    check(Scene::of_texts, json!({"parallel": {"exchange": "bf16"}}), 1e-2);
}

#[test]
fn as_many_ranks_go_on_with_the_same_bits_from_shards() {
    let job = json!({
        "parallel": {"shard": "parameters"}, "optimizer": {"adamw": {"lr": 1e-3}}, "dropout": 0.1,
        "average": {"ema": {"decay": 0.9}}, "batch": 9, "epochs": 1,
    });
    let whole = Scene::of_texts(job.clone()).finish(2);
    let mut scene = Scene::of_texts(job).with("epochs", json!(100_000));
    scene.stop_after(2, 7);
    scene.lose_after(5);
    let resumed = scene.with("epochs", json!(1)).finish(2);
    assert_eq!(resumed.resumed_from(), 5);
    assert_eq!(resumed.losses(), whole.losses()[5..]);
    assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256);
}

/// With `gradients` each rank has all parameters in 32 bits, and autocast casts them where they are used.
#[test]
fn parameters_gathered_in_16_bits_are_those_that_autocast_casts() {
    let check = |scene: fn(Value) -> Scene, job: Value| {
        let [kept, gathered] = ["gradients", "parameters"]
            .map(|shard| scene(job.clone()).with("parallel", json!({"shard": shard})).finish(2));
        assert_eq!(kept.losses(), gathered.losses(), "{job}");
        assert_eq!(kept.evaluated(), gathered.evaluated(), "{job}");
        assert_eq!(kept.exported().model_sha256, gathered.exported().model_sha256, "{job}");
    };
    let adamw = json!({"adamw": {"lr": 1e-3}});
    check(
        Scene::of_texts,
        json!({
            "precision": "bf16", "recompute": {"every": 2}, "dropout": 0.1, "optimizer": adamw, "accumulate": 2,
            "clip_norm": 0.5, "average": {"ema": {"decay": 0.9}},
        }),
    );
    let freeze = json!({"freeze": ["bert.embeddings.", "bert.encoder.layer.0."]});
    check(Scene::of_texts, json!({"model": "bert_mini", "precision": "fp16", "parameters": freeze, "dropout": 0.0}));
    check(
        Scene::new,
        json!({
            "model": "resnet20", "precision": "bf16", "batch": 400, "epochs": 1, "memory_format": "channels_last",
            "average": {"swa": {"from": 0, "batches": 2}}, "parameters": {"freeze": ["conv1", "layer1.0"]},
        }),
    );
}
