//! Checks before the first step, the length of the run, and its environment.

use domain::architecture::Architecture;
use domain::finding::{Cause, Finding};
use domain::rank::{Environment, Report, SPEC_SCHEMA, Spec};
use domain::train::{Offload, Recompute, Train};
use tch::Device;

use crate::channel::Channel;
use crate::error::Error;
use crate::model::{ImageShape, InputShape, ModelShape};
use crate::optim::schedule::Length;
use crate::ranks::Ranks;
use crate::state::Trainer;
use crate::step::{StepConfig, micro_batches};
use crate::torch;

mod memory;

pub use memory::with_advice as with_memory_advice;

/// Refuses what this program does not support, before any work starts.
pub fn check_spec(spec: &Spec, version: &str) -> Result<(), Error> {
    if version != domain::torch::VERSION {
        let message = format!("libtorch {version} was loaded, and {} is needed", domain::torch::VERSION);
        return Err(Finding::new(Cause::Library, message).hint("`cargo xtask setup`, or set `GRADUS_LIBTORCH`").into());
    }
    if spec.schema != SPEC_SCHEMA {
        let message = format!("the specification is of version {}, this program reads {SPEC_SCHEMA}", spec.schema);
        return Err(Finding::new(Cause::Internal, message).hint("install `gradus` and `gradus-rank` together").into());
    }
    if spec.rank >= spec.world_size.max(1) {
        let message = format!("rank {} is not one of {}: they are counted from 0", spec.rank, spec.world_size);
        return Err(Finding::new(Cause::Job, message).hint("check `RANK` and `WORLD_SIZE`").into());
    }
    check_mesh(&spec.train, spec.world_size.max(1))?;
    let (batch, ranks) = (spec.train.batch, spec.world_size.max(1));
    if batch < ranks / spec.train.parallel.tensor.max(1) {
        let message = format!("{ranks} ranks cannot share `batch: {batch}`");
        return Err(Finding::new(Cause::Job, message).hint("choose a larger `batch` or fewer ranks").into());
    }
    Ok(())
}

/// Refuses a mesh that does not fit the number of ranks, or that the model cannot be divided by. The job file was
/// checked for its own `processes`; ranks started by hand may differ.
fn check_mesh(train: &Train, ranks: u32) -> Result<(), Error> {
    let tensor = train.parallel.tensor.max(1);
    if !ranks.is_multiple_of(tensor) {
        let message = format!("{ranks} ranks cannot be divided into groups of `tensor: {tensor}`");
        return Err(Finding::new(Cause::Job, message)
            .hint("start a multiple of it, or change `parallel.tensor`")
            .into());
    }
    let name = train.model.name();
    let message = match train.model.architecture().and_then(Architecture::heads) {
        _ if tensor == 1 => return Ok(()),
        None => format!("`{name}` has no attention heads, which `tensor: {tensor}` could divide"),
        Some(heads) if heads % i64::from(tensor) != 0 => {
            format!("the {heads} attention heads of `{name}` cannot be divided by `tensor: {tensor}`")
        }
        Some(_) => return Ok(()),
    };
    Err(Finding::new(Cause::Job, message).hint("change `parallel.tensor`, or leave it out").into())
}

/// Steps of the run; the last batch of an epoch has the remaining samples.
pub fn length(train: &Train, [samples, _, _]: [u64; 3]) -> Result<Length, Error> {
    if samples == 0 || train.batch == 0 {
        return Err(Finding::new(Cause::Job, "there is nothing to train on").hint("check `split` and `batch`").into());
    }
    let steps_per_epoch = samples.div_ceil(u64::from(train.batch));
    Ok(Length::of(steps_per_epoch, train.epochs))
}

/// Height and width that are one pixel after the last stage of a ConvNeXt.
const SMALLEST_CONVNEXT: i64 = 32;

/// Refuses images that the network cannot take.
pub fn check_image_size(train: &Train, shape: ModelShape) -> Result<(), Error> {
    let InputShape::Image(ImageShape { height, width, .. }) = shape.input else { return Ok(()) };
    let architecture = train.model.architecture();
    if matches!(architecture, Some(Architecture::Convnext { .. })) && height.min(width) < SMALLEST_CONVNEXT {
        let message = format!("`{}` halves images five times, and {height}×{width} is too small", train.model.name());
        return Err(Finding::new(Cause::Job, message).hint("set `data.size` to at least 32, such as 224").into());
    }
    let Some(Architecture::Vit { patch, .. }) = architecture else { return Ok(()) };
    if height % patch == 0 && width % patch == 0 {
        return Ok(());
    }
    let message = format!(
        "`{}` divides images into patches of {patch}×{patch}, and {height}×{width} is not a multiple",
        train.model.name()
    );
    Err(Finding::new(Cause::Job, message).hint("set `data.size` to a multiple of it, such as 224").into())
}

/// Refuses batches that a batch normalisation cannot use: the variance of a single value is not a number.
///
/// Where the last stage of a residual network has shrunk images to one pixel, that happens to a lone sample.
pub fn check_batches(train: &Train, shape: ModelShape, [samples, _, _]: [u64; 3], ranks: u32) -> Result<(), Error> {
    let Some(shrinks_by) = train.model.architecture().and_then(Architecture::shrinks_by) else { return Ok(()) };
    let InputShape::Image(ImageShape { height, width, .. }) = shape.input else { return Ok(()) };
    let one_pixel = height.max(width) <= i64::from(shrinks_by);
    let batch = u64::from(train.batch);
    let sizes = [batch.min(samples), samples % batch].into_iter().filter(|size| *size > 0);
    let of_ranks = sizes.flat_map(|size| micro_batches(size as i64, i64::from(ranks)));
    let smallest = of_ranks.flat_map(|size| micro_batches(size, i64::from(train.accumulate))).min();
    if one_pixel && smallest == Some(1) {
        let message =
            format!("with `batch: {batch}`, {samples} samples leave a batch of one, which cannot be normalised");
        return Err(Finding::new(Cause::Job, message).hint("choose another `batch`, or a smaller `accumulate`").into());
    }
    Ok(())
}

/// Refuses batches for whose synchronized statistics each rank needs a sample.
pub fn check_shares(train: &Train, [samples, _, _]: [u64; 3], ranks: u32) -> Result<(), Error> {
    if !train.parallel.sync_batch_norm {
        return Ok(());
    }
    let (batch, ranks) = (u64::from(train.batch.max(1)), u64::from(ranks.max(1)));
    // Ranks communicate in every forward pass, so each must make as many micro-batches of its share as the others.
    let passes = |share: u64| share.min(u64::from(train.accumulate.max(1)));
    let is_even = |size: &u64| size / ranks > 0 && passes(size / ranks) == passes(size.div_ceil(ranks));
    let sizes = [batch.min(samples), samples % batch];
    let Some(size) = sizes.into_iter().find(|size| *size > 0 && !is_even(size)) else { return Ok(()) };
    let message = format!("{ranks} ranks cannot share a batch of {size} evenly: `batch: {batch}` of {samples} samples");
    Err(Finding::new(Cause::Job, message)
        .hint("choose another `batch` or `accumulate`, or leave `sync_batch_norm` out")
        .into())
}

/// What is said of memory that ran out: how to compute fewer samples at a time.
pub fn name_smaller_part(train: &Train, ranks: &Ranks, error: Error) -> Error {
    match &error {
        Error::Torch(inner) if inner.is_out_of_memory() => {
            let hint = smaller_part(train, ranks.shares(), None);
            Finding::new(Cause::OutOfMemory, format!("memory ran out: {inner}")).hint(hint).into()
        }
        Error::Torch(_) | Error::Data(_) | Error::Checkpoint(_) | Error::Finding(_) => error,
    }
}

/// What to write so that each of `shares` computes fewer samples at a time: as many as are known to `fit`, or else half.
fn smaller_part(train: &Train, shares: u32, fit: Option<u32>) -> String {
    let (share, now) = (train.batch.div_ceil(shares.max(1)), train.accumulate.max(1));
    let half = now.saturating_mul(2).min(share);
    let next = fit.map_or(half, |fit| half.max(share.div_ceil(fit.max(1)).next_power_of_two().min(share)));
    if now < share && fit != Some(0) {
        let [before, after] = [share.div_ceil(now), share.div_ceil(next)];
        return format!(
            "write `accumulate: {next}`, which computes {after} samples at a time instead of {before}; or lower `batch`"
        );
    }
    let more = match (train.recompute, train.offload) {
        (Recompute::None, _) => "write `recompute: blocks`, which computes activations again in the backward pass; or ",
        (_, Offload::None) => "write `offload: optimizer`, which keeps the optimizer's state in the host's memory; or ",
        (_, Offload::Optimizer) => "",
    };
    format!("not even one sample at a time fits: {more}use a device with more memory, or a smaller model")
}

/// The number of threads changes the order of sums, and with it the last bits: a resumed run keeps its own.
pub fn keep_threads(spec: &Spec, trainer: &Trainer, channel: &Channel) {
    let threads = trainer.progress.threads;
    if threads != spec.threads {
        torch::set_threads(threads);
        let text = format!("this run was begun with {threads} threads and keeps them, for the same result");
        channel.send(Report::Note { text });
    }
}

/// The environment of this rank.
pub fn environment(spec: &Spec, config: &StepConfig, version: &str) -> Environment {
    environment_of(spec.threads, config, version)
}

/// The environment with a given number of threads.
pub fn environment_of(threads: u32, config: &StepConfig, version: &str) -> Environment {
    let (device, device_name) = match config.device {
        Device::Cuda(index) => {
            (format!("cuda:{index}"), torch::cuda_name(index).unwrap_or_else(|| "CUDA device".into()))
        }
        Device::Cpu | Device::Mps | Device::Vulkan => ("cpu".into(), processor()),
    };
    Environment {
        device,
        device_name,
        torch: version.into(),
        threads,
        precision: config.format.name().into(),
        gradus: env!("CARGO_PKG_VERSION").into(),
    }
}

/// The processor's name according to Linux.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.trim().into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_part_that_fits_is_named() {
        let check = |batch: u32, fit: u32, expected: &str| {
            let train = json!({"model": "resnet50", "data": {"path": ""}, "epochs": 1, "batch": batch});
            let hint = smaller_part(&serde_json::from_value(train).unwrap(), 1, Some(fit));
            assert!(hint.contains(expected), "{hint}");
        };
        check(2048, 137, "write `accumulate: 16`, which computes 128 samples at a time instead of 2048;");
        check(2048, 2000, "write `accumulate: 2`,");
        check(64, 1, "write `accumulate: 64`, which computes 1 samples at a time");
        check(10, 3, "write `accumulate: 4`, which computes 3 samples at a time");
        // Two passes lie: what failed must become smaller all the same.
        check(64, 100, "write `accumulate: 2`,");
        check(64, 0, "not even one sample at a time fits: write `recompute: blocks`");
    }

    #[test]
    fn the_next_smaller_part_is_named() {
        let check = |keys: Value, shares: u32, expected: &str| {
            let mut train = json!({"model": "resnet50", "data": {"path": ""}, "epochs": 1, "batch": 64});
            keys.as_object().unwrap().iter().for_each(|(key, value)| train[key] = value.clone());
            let hint = smaller_part(&serde_json::from_value(train).unwrap(), shares, None);
            assert!(hint.contains(expected), "{hint}");
        };
        check(json!({}), 1, "write `accumulate: 2`, which computes 32 samples at a time instead of 64;");
        check(json!({"accumulate": 4}), 2, "write `accumulate: 8`, which computes 4 samples at a time instead of 8;");
        check(json!({"accumulate": 40}), 1, "write `accumulate: 64`, which computes 1 samples at a time instead of 2;");
        check(json!({"accumulate": 64}), 1, "not even one sample at a time fits: write `recompute: blocks`");
        check(json!({"accumulate": 64, "recompute": "blocks"}), 1, "write `offload: optimizer`");
        check(json!({"accumulate": 8, "recompute": "blocks", "offload": "optimizer"}), 8, "fits: use a device");
    }
}
