//! Checkpoints that ranks write and read in parts: no rank has all of it, and any number of ranks resumes.

use std::fs;
use std::path::PathBuf;

use checkpoint::{CheckpointManifest, StateKind};
use domain::finding::Cause;
use domain::rank::Report;
use serde_json::{Value, json};

use crate::scene::{Scene, apart};

/// The newest manifest.
fn manifest(scene: &Scene) -> CheckpointManifest {
    checkpoint::newest_verified(&scene.path("checkpoints"), "job").unwrap().0.unwrap().manifest
}

/// How many parts the newest checkpoint has, of the weights and of the rest; 1 where one rank has written all.
fn parts(scene: &Scene) -> [usize; 2] {
    let manifest = manifest(scene);
    [StateKind::Model, StateKind::Training].map(|kind| manifest.files_of(kind).len())
}

fn job(shard: &str) -> Value {
    json!({
        "parallel": {"shard": shard}, "optimizer": {"sgd": {"lr": 0.02, "momentum": 0.9}}, "average": {"ema": {"decay": 0.9}},
        "clip_norm": 1.0, "epochs": 1, "batch": 12,
    })
}

/// A run of texts that was stopped after step 5 of 12.
fn stopped(shard: &str, ranks: u32) -> Scene {
    let mut scene = Scene::of_texts(job(shard)).with("epochs", json!(100_000));
    scene.stop_after(ranks, 6);
    scene.lose_after(5);
    scene.with("epochs", json!(1))
}

#[test]
fn checkpoints_of_any_ranks_and_shards_are_resumed_by_any_others() {
    let whole = Scene::of_texts(job("none")).finish(1);
    let cases = [("none", 1), ("optimizer", 2), ("gradients", 3), ("parameters", 2), ("parameters", 4)];
    for (shard, ranks) in cases {
        let saved = stopped(shard, ranks);
        let is_parts = ["gradients", "parameters"].contains(&shard);
        assert_eq!(parts(&saved), [if is_parts { ranks as usize } else { 1 }; 2], "{shard}, {ranks} ranks");
        for (shard, ranks) in [("none", 1), ("optimizer", 2), ("gradients", 2), ("parameters", 2), ("parameters", 3)] {
            let mut scene = saved.fork().with("parallel", json!({"shard": shard}));
            let resumed = scene.finish(ranks);
            assert_eq!(resumed.resumed_from(), 5);
            resumed.exported();
            let losses = apart(&resumed.losses(), &whole.losses()[5..]);
            let weights = apart(&resumed.weights, &whole.weights);
            assert!(losses <= 1e-5 && weights <= 1e-5, "{shard}, {ranks} ranks: {losses:e}, {weights:e}");
        }
    }
}

/// The best weights are of an epoch before the one that another number of ranks resumes.
#[test]
fn best_weights_of_parts_outlive_their_ranks() {
    // A growing rate destroys what the first epochs have trained.
    let job = json!({
        "parallel": {"shard": "parameters"}, "epochs": 3, "optimizer": {"sgd": {"lr": 0.05}},
        "checkpoint": {"every": "1 steps", "keep": 2}, "model": "resnet20", "memory_format": "channels_last",
    });
    let whole = Scene::new(job.clone()).finish(2);
    let mut scene = Scene::new(job).with("epochs", json!(100_000));
    scene.stop_after(2, 13);
    let best = manifest(&scene).best.unwrap();
    assert!(scene.path("checkpoints").join(&best.name).is_dir(), "{best:?}");
    let stopped_model = |scene: &Scene| checkpoint::read_tensors(&scene.path("export/model.safetensors")).unwrap();
    let saved = checkpoint::newest_verified(&scene.path("checkpoints"), "job").unwrap().0.unwrap();
    assert_eq!(stopped_model(&scene), saved.best.unwrap().model, "a stopped run leaves its best weights");
    let scene = scene.with("epochs", json!(3));
    for (ranks, shard) in [(2, "parameters"), (3, "parameters"), (1, "none"), (2, "none")] {
        let resumed = scene.fork().with("parallel", json!({"shard": shard})).finish(ranks);
        // Other numbers of ranks round differently, so that on some processors a later epoch is better; a worse one
        // never replaces the best.
        let (found, best) = (resumed.exported(), whole.exported());
        let is_better = found.validation_accuracy > best.validation_accuracy;
        assert!(found.step == best.step || is_better, "{ranks} ranks, {shard}: {found:?}");
        if (ranks, shard) == (2, "parameters") {
            assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256);
        }
    }
}

#[test]
fn a_damaged_part_is_passed_over_by_all_ranks() {
    let scene = stopped("parameters", 3);
    let newest = manifest(&scene);
    let path = |name: &str| -> PathBuf { scene.path("checkpoints").join(name) };
    // The second rank alone finds the flaw.
    let part = path(&newest.files_of(StateKind::Model)[1].name);
    let mut bytes = fs::read(&part).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&part, bytes).unwrap();
    let mut fork = scene.fork();
    let outcome = fork.finish(3);
    let finding = outcome.finding();
    assert!(finding.message.contains("no checkpoint in") && finding.message.contains("-of-00003"), "{finding:?}");
    assert!(outcome.others.iter().all(Option::is_some));
}

#[test]
fn weights_of_a_file_are_divided_as_they_are_read() {
    let mut trained = Scene::of_texts(job("none"));
    trained.finish(1);
    let weights = trained.path("export/model.safetensors");
    let start = |shard: &str, ranks: u32| Scene::of_texts(job(shard)).with("weights", json!(weights)).finish(ranks);
    let one = start("none", 1);
    let sharded = start("parameters", 2);
    let noted = |outcome: &crate::scene::Outcome| {
        outcome
            .reports
            .iter()
            .any(|report| matches!(report, Report::Note { text } if text.contains("tensors were taken")))
    };
    assert!(noted(&one) && noted(&sharded));
    let (losses, weights) = (apart(&sharded.losses(), &one.losses()), apart(&sharded.weights, &one.weights));
    assert!(losses <= 1e-6 && weights <= 1e-6, "{losses:e}, {weights:e}");
}

/// Whichever rank is killed while saving, the run resumes from a complete state with the same bits.
#[test]
fn a_kill_while_parts_are_written_changes_no_bit() {
    let job = json!({
        "parallel": {"shard": "parameters"}, "optimizer": {"adamw": {"lr": 1e-3}}, "batch": 20, "epochs": 1,
        "checkpoint": {"every": "1 steps", "keep": 2},
    });
    let whole = Scene::of_texts(job.clone()).finish(2);
    let of_all = ["snapshot", "rename.before", "rename.after"].map(|point| [(0, point), (1, point)]);
    let of_first = [(0, "manifest.before"), (0, "manifest.after")];
    for ((rank, point), nth) in of_all.into_iter().flatten().chain(of_first).flat_map(|at| [(at, 1), (at, 4)]) {
        let mut scene = Scene::of_texts(job.clone());
        scene.kill = Some((rank, point, nth));
        let killed = scene.start(2, 2, 60).end();
        let ended = if rank == 0 { killed.others[0].clone() } else { killed.reports.last().cloned() };
        let is_lost = |finding: &domain::finding::Finding| finding.cause == Cause::RankLost;
        assert!(matches!(&ended, Some(Report::Failed(finding)) if is_lost(finding)), "{rank} {point} {nth}: {ended:?}");
        scene.kill = None;
        let resumed = scene.finish(2);
        let from = resumed.resumed_from() as usize;
        assert_eq!(resumed.losses(), whole.losses()[from..], "{rank} {point} {nth}");
        assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256, "{rank} {point} {nth}");
    }
}
