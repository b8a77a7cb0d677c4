//! Ranks that end, are killed or never start, and runs that resume with more or fewer of them.

use domain::finding::Cause;
use domain::rank::Report;
use serde_json::json;

use crate::scene::{Scene, apart};

#[test]
fn as_many_ranks_go_on_with_the_same_bits() {
    // Dropout draws from a generator that each rank has its own of.
    let job = json!({"model": "cnn", "optimizer": {"adamw": {"lr": 2e-3}}});
    let whole = Scene::new(job.clone()).finish(2);
    // Far more steps than are made before the order arrives, however slow the machine is.
    let mut scene = Scene::new(job).with("epochs", json!(100_000));
    let stopped = scene.stop_after(2, 7);
    assert!(matches!(stopped.reports.last(), Some(Report::Stopped { .. })), "{:?}", stopped.reports.last());
    scene.lose_after(5);
    let resumed = scene.with("epochs", json!(2)).finish(2);
    assert_eq!(resumed.resumed_from(), 5);
    assert_eq!(resumed.losses(), whole.losses()[5..]);
    assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256);
}

/// From three ranks on, the bits of a sum depend on the order in which it is made, and that on the buckets of gradients.
#[test]
fn a_kill_among_any_number_of_ranks_changes_no_bit() {
    let shards = ["none", "optimizer", "gradients", "parameters"];
    let several = [2, 4, 8].into_iter().flat_map(|ranks| shards.map(|shard| (ranks, shard)));
    for (ranks, shard) in [(1, "none")].into_iter().chain(several) {
        let job = json!({"model": "cnn", "optimizer": {"adamw": {"lr": 2e-3}}, "parallel": {"shard": shard}});
        let whole = Scene::new(job.clone()).finish(ranks);
        // Far more steps than are made before the signal arrives, however slow the machine is.
        let mut scene = Scene::new(job).with("epochs", json!(100_000));
        let mut running = scene.start(ranks, ranks, 120);
        running.until_step(7);
        running.signal(ranks as usize - 1, "KILL");
        let killed = running.end();
        if ranks > 1 {
            assert_eq!(killed.finding().cause, Cause::RankLost, "{ranks} ranks, {shard}");
        }
        scene.lose_after(5);
        let resumed = scene.with("epochs", json!(2)).finish(ranks);
        assert_eq!(resumed.resumed_from(), 5, "{ranks} ranks, {shard}");
        assert_eq!(resumed.losses(), whole.losses()[5..], "{ranks} ranks, {shard}");
        assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256, "{ranks} ranks, {shard}");
    }
}

#[test]
fn another_number_of_ranks_goes_on_with_the_same_curve() {
    for parallel in
        [json!({}), json!({"shard": "optimizer"}), json!({"shard": "gradients"}), json!({"shard": "parameters"})]
    {
        let job = json!({"optimizer": {"adamw": {"lr": 1e-3}}, "parallel": parallel});
        let whole = Scene::new(job.clone()).finish(2);
        let mut scene = Scene::new(job).with("epochs", json!(100_000));
        scene.stop_after(2, 7);
        scene.lose_after(5);
        let scene = scene.with("epochs", json!(2));
        for ranks in [1, 2, 4] {
            let resumed = scene.fork().finish(ranks);
            assert_eq!(resumed.resumed_from(), 5);
            let difference = apart(&resumed.losses(), &whole.losses()[5..]);
            assert!(difference <= 1e-5, "{ranks} ranks, {parallel}: {difference:e}");
        }
    }
}

/// `num_nodes: {min: 2, max: 4}`: on half of the machines each step is divided into twice as many micro-batches.
#[test]
fn a_run_that_shrinks_from_4_to_2_and_grows_again_keeps_its_curve() {
    for parallel in [json!({}), json!({"shard": "parameters"})] {
        let job = json!({"optimizer": {"adamw": {"lr": 1e-3}}, "parallel": parallel, "batch": 160});
        let whole = Scene::new(job.clone()).finish(4);
        let mut scene = Scene::new(job).with("epochs", json!(100_000));
        scene.stop_after(4, 7);
        scene.lose_after(5);
        let mut scene = scene.with("accumulate", json!(2));
        let shrunk = scene.stop_after(2, 12);
        assert_eq!(shrunk.resumed_from(), 5, "{parallel}");
        scene.lose_after(10);
        let grown = scene.with("accumulate", json!(1)).with("epochs", json!(2)).finish(4);
        assert_eq!(grown.resumed_from(), 10, "{parallel}");
        let on_two = &shrunk.losses()[..5];
        let curve = [apart(on_two, &whole.losses()[5..10]), apart(&grown.losses(), &whole.losses()[10..])];
        let weights = apart(&grown.weights, &whole.weights);
        assert!(curve.iter().all(|far| *far <= 1e-5), "{parallel}: {curve:?}");
        println!("{parallel}: losses {:.1e} on two, {:.1e} on four again, weights {weights:.1e}", curve[0], curve[1]);
    }
}

/// BERT with AdamW, an average of its weights and loss scaling, whose scale must be resumed as well.
#[test]
fn shards_of_all_that_is_kept_go_on_with_the_same_bits() {
    for shard in ["optimizer", "gradients", "parameters"] {
        let job = json!({
            "model": "bert_mini", "optimizer": {"adamw": {"lr": 5e-4}}, "precision": "fp16", "dropout": 0.1,
            "average": {"swa": {"from": 0}}, "parallel": {"shard": shard}, "clip_norm": 1.0,
            "checkpoint": {"every": "2 steps", "keep": 100},
        });
        let whole = Scene::of_texts(job.clone()).finish(2);
        let mut scene = Scene::of_texts(job).with("epochs", json!(100_000));
        scene.stop_after(2, 3);
        scene.lose_after(2);
        let resumed = scene.with("epochs", json!(1)).finish(2);
        assert_eq!(resumed.resumed_from(), 2, "{shard}");
        assert_eq!(resumed.losses(), whole.losses()[2..], "{shard}");
        assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256, "{shard}");
    }
}

#[test]
fn bert_and_the_mean_of_its_weights_go_on_with_the_same_curve_on_1_2_and_4_ranks() {
    for shard in ["none", "parameters"] {
        let job = json!({
            "model": "bert_mini", "optimizer": {"adamw": {"lr": 5e-4}}, "average": {"swa": {"from": 0}},
            "parallel": {"shard": shard}, "batch": 12,
        });
        let whole = Scene::of_texts(job.clone()).finish(2);
        let mut scene = Scene::of_texts(job).with("epochs", json!(100_000));
        scene.stop_after(2, 6);
        scene.lose_after(5);
        let scene = scene.with("epochs", json!(1));
        for ranks in [1, 2, 4] {
            let mut scene = scene.fork();
            if ranks == 1 {
                scene = scene.with("parallel", json!({}));
            }
            let resumed = scene.finish(ranks);
            assert_eq!(resumed.resumed_from(), 5);
            resumed.exported();
            let losses = apart(&resumed.losses(), &whole.losses()[5..]);
            let weights = apart(&resumed.weights, &whole.weights);
            assert!(losses <= 1e-5 && weights <= 1e-5, "{ranks} ranks, {shard}: {losses:e}, {weights:e}");
        }
    }
}

#[test]
fn a_killed_rank_is_named_and_the_run_goes_on_from_its_checkpoint() {
    let whole = Scene::new(json!({})).finish(2);
    // Far more steps than are made before the signal arrives, however slow the machine is.
    let mut scene = Scene::new(json!({"epochs": 100_000, "checkpoint": {"every": "5 steps", "keep": 1000}}));
    let mut ranks = scene.start(2, 2, 120);
    ranks.until_step(7);
    ranks.signal(1, "KILL");
    let killed = ranks.end();
    let finding = killed.finding();
    assert_eq!(finding.cause, Cause::RankLost, "{finding:?}");
    assert!(finding.message.contains("rank 1 ended or stands still"), "{finding:?}");
    scene.lose_after(5);
    let resumed = scene.with("epochs", json!(2)).finish(2);
    assert_eq!(resumed.resumed_from(), 5);
    assert_eq!(resumed.exported().model_sha256, whole.exported().model_sha256);
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let outcome = Scene::new(json!({})).start(3, 2, 20).end();
    let finding = outcome.finding();
    assert_eq!(finding.cause, Cause::RankLost, "{finding:?}");
    assert!(finding.message.contains("rank 2 did not arrive within 20 s"), "{finding:?}");
}

#[test]
fn ranks_that_cannot_be_are_refused() {
    let outcome = Scene::new(json!({"batch": 1})).start(2, 1, 2).end();
    assert_eq!(outcome.finding().cause, Cause::Job, "{:?}", outcome.finding());
}
