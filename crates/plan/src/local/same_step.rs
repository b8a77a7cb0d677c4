//! Whether a measured step predicts the step of another job.

use std::mem::discriminant;

use domain::Train;
use domain::train::{Checkpoint, Optimizer, Schedule, Split};
use domain::workload::OptimizerKind;

/// Whether a step of both takes equally long on one machine: it computes the same over samples of the same size,
/// divided among the same ranks and threads. Number of steps, learning rate and checkpoints are irrelevant. Every other
/// key matters, including those of later versions.
pub fn has_same_step(one: &Train, other: &Train) -> bool {
    let optimizer = |train: &Train| (OptimizerKind::from(&train.optimizer), discriminant(&train.optimizer));
    optimizer(one) == optimizer(other) && step_of(one) == step_of(other)
}

/// The training without settings that do not affect the time of a step. Its optimizer is compared by kind.
fn step_of(train: &Train) -> Train {
    let mut step = train.clone();
    (step.epochs, step.seed, step.label_smoothing) = (1, 0, 0.0);
    (step.schedule, step.stop, step.checkpoint) = (Schedule::default(), None, Checkpoint::default());
    (step.optimizer, step.clip_norm) = (Optimizer::default(), train.clip_norm.map(|_| 1.0));
    step.data.split = Split::default();
    step
}

#[cfg(test)]
mod tests {
    use domain::{Job, Work};

    use super::*;

    fn train(yaml: &str) -> Train {
        let job = Job::parse(yaml, "job.yaml").unwrap_or_else(|problems| panic!("{problems}")).job;
        let Work::Train(train) = job.work else { panic!("it trains: {yaml}") };
        train
    }

    /// Whether a step is the same where `from` is changed `to`.
    fn check(yaml: &str, from: &str, to: &str, is_same: bool) {
        assert!(yaml.contains(from), "{from}");
        let changed = train(&yaml.replace(from, to));
        assert_eq!(has_same_step(&train(yaml), &changed), is_same, "`{from}` as `{to}`");
    }

    const IMAGES: &str = "train: {model: resnet18, data: {path: images, size: 32}, epochs: 3, batch: 128, processes: 2, optimizer: {sgd: {lr: 0.1}}}\n";
    const TEXTS: &str = "train: {model: gpt2, data: {path: t.txt, text: {length: 64, vocabulary: 2000}}, epochs: 1, batch: 4, processes: 2, dropout: 0, optimizer: {adamw: {lr: 1e-4}}, parallel: {shard: optimizer}}\n";

    #[test]
    fn a_step_of_other_work_is_another_step() {
        check(IMAGES, "size: 32", "size: 224", false);
        check(IMAGES, "processes: 2", "processes: 1", false);
        check(IMAGES, "batch: 128", "batch: 64", false);
        check(IMAGES, "resnet18", "resnet50", false);
        check(IMAGES, "sgd: {lr: 0.1}", "sgd: {lr: 0.1, momentum: 0}", false);
        check(IMAGES, "epochs: 3", "epochs: 3, average: {ema: {}}", false);
        check(IMAGES, "epochs: 3", "epochs: 3, recompute: blocks", false);
        check(TEXTS, "length: 64", "length: 512", false);
        check(TEXTS, "vocabulary: 2000", "vocabulary: 8000", false);
        check(TEXTS, "shard: optimizer", "shard: none", false);
        check(TEXTS, "shard: optimizer", "tensor: 2", false);
    }

    #[test]
    fn a_step_of_the_same_work_is_the_same_however_long_it_trains() {
        check(IMAGES, "epochs: 3", "epochs: 90, seed: 7", true);
        check(IMAGES, "lr: 0.1", "lr: 0.4", true);
        check(IMAGES, "epochs: 3", "epochs: 3, stop: {accuracy: 0.9}", true);
        check(IMAGES, "epochs: 3", "epochs: 3, checkpoint: {every: 10m}", true);
        check(IMAGES, "epochs: 3", "epochs: 3, schedule: {warmup: 1 epochs}", true);
        check(TEXTS, "lr: 1e-4", "lr: 3e-4", true);
    }
}
