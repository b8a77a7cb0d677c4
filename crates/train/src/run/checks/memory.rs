//! What is said of memory that ran out on a device: how many samples fit at a time, found by trying.
//!
//! Memory grows with the samples of a micro-batch in a straight line: weights, gradients and optimizer state, and the
//! activations of each sample. Two small passes give the line, and a pass of the size that should fit shows whether it
//! does: what the allocator loses between its blocks is on no line.

use domain::finding::{Cause, Finding};

use crate::error::Error;
use crate::ranks::Ranks;
use crate::run::Context;
use crate::state::Trainer;
use crate::step::{BatchTensors, peak_of_passes};
use crate::torch;

/// Share of the device that may be taken: the rest is lost between the blocks of the allocator, and to libraries.
const USABLE: f64 = 0.94;

/// Samples of the two passes.
const TRIED: [u32; 2] = [1, 4];

/// The error of a step, with the micro-batch that fits where memory ran out on the device of a rank that works alone.
pub fn with_advice(
    error: torch::Error,
    trainer: &Trainer,
    context: &Context,
    ranks: &Ranks,
    batch: &BatchTensors,
) -> Error {
    let can_try = context.config.device.is_cuda() && ranks.size() == 1;
    if !error.is_out_of_memory() || !can_try {
        return error.into();
    }
    match samples_that_fit(trainer, context, ranks, batch) {
        Ok(Some(samples)) => {
            let hint = super::smaller_part(&context.spec.train, 1, Some(samples));
            Finding::new(Cause::OutOfMemory, format!("memory ran out: {error}")).hint(hint).into()
        }
        // Where not even that can be tried, the first error is what counts.
        Ok(None) | Err(_) => error.into(),
    }
}

/// Samples whose passes fit on the device at a time; none where the batch is too small to tell.
fn samples_that_fit(
    trainer: &Trainer,
    context: &Context,
    ranks: &Ranks,
    batch: &BatchTensors,
) -> torch::Result<Option<u32>> {
    let capacity = torch::device_memory()?.capacity;
    let count = u32::try_from(batch.count()?).unwrap_or(u32::MAX);
    let peak = |samples: u32| {
        let (network, optimizer, samples) = (&trainer.network, &trainer.optimizer, i64::from(samples));
        let passes = peak_of_passes(network, optimizer, &context.config, batch, samples, ranks);
        match passes {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    };
    if count < TRIED[1] {
        return Ok(None);
    }
    let Some(one) = peak(TRIED[0])? else { return Ok(Some(0)) };
    let Some(more) = peak(TRIED[1])? else { return Ok(Some(1)) };
    // As the hint divides a batch: in equal parts, by a power of two.
    let mut accumulate = count.div_ceil(fitting([one, more], capacity).max(1)).next_power_of_two().max(2);
    loop {
        let samples = count.div_ceil(accumulate);
        if samples <= TRIED[1] || peak(samples)?.is_some() {
            return Ok(Some(samples));
        }
        accumulate *= 2;
    }
}

/// Samples at which the line through the peaks of [`TRIED`] reaches the usable part of `capacity` bytes.
fn fitting([one, more]: [u64; 2], capacity: u64) -> u32 {
    let each = more.saturating_sub(one) as f64 / f64::from(TRIED[1] - TRIED[0]);
    let left = USABLE * capacity as f64 - one as f64;
    match left < 0.0 {
        true => u32::from(one <= capacity),
        false => 1u32.saturating_add((left / each.max(1.0)) as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_that_fit_are_on_the_line_through_two_passes() {
        // 10 GB and 0.5 GB for each sample: 64 of them take 42 GB.
        let peaks = [10_500_000_000, 12_000_000_000];
        assert_eq!(fitting(peaks, 45_000_000_000), 64);
        assert_eq!(fitting(peaks, 12_000_000_000), 2);
        assert_eq!(fitting(peaks, 11_000_000_000), 1, "it just ran");
        assert_eq!(fitting(peaks, 10_000_000_000), 0);
        assert_eq!(fitting([5, 5], 1 << 40), u32::MAX, "samples that need nothing");
    }
}
