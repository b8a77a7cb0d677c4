//! What the loader of arbitrary samples needs of Rust: data at an address on this disk, and which samples a batch has.
//! Listing, reading and decoding are Python's, for a callable of Python's decodes.

use std::collections::HashMap;
use std::path::PathBuf;

use data::SampleOrder;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use store::{Access, Limits, Meter};

use crate::loader::{interruptible, share_of, with_hint};

/// The samples of a rank's share of a batch, the position of the first in the epoch, and the cursor after the batch.
type Planned = (Vec<u64>, u64, u64, u64);

/// The folder or file that holds the data at `uri`; what is remote is fetched into `cache` first.
#[pyfunction]
pub fn staged(py: Python<'_>, uri: String, cache: PathBuf, environment: HashMap<String, String>) -> PyResult<PathBuf> {
    let access = Access::gather(|name| environment.get(name).cloned());
    let staged = interruptible(py, move || {
        let staged = store::stage(&uri, &cache, &access, Limits::attended(), &Meter::default());
        staged.map(|staged| staged.path).map_err(|error| with_hint(&error, error.hint()))
    })?;
    staged.map_err(PyRuntimeError::new_err)
}

/// The batch at position `pos` of `epoch`, of `batch` samples out of `samples`: shuffled by `seed`, or in their order
/// without one. A rank without a sample of its own gets the first, for collective calls need an input.
#[pyfunction]
#[pyo3(signature = (samples, seed, epoch, pos, batch, rank, world))]
pub fn planned(
    samples: u64,
    seed: Option<u64>,
    epoch: u64,
    pos: u64,
    batch: usize,
    rank: u32,
    world: u32,
) -> PyResult<Planned> {
    let share = share_of(rank, world, batch)?;
    let all = (batch as u64).min(samples.saturating_sub(pos));
    let ours = share.of(all);
    let ours = if ours.is_empty() { 0..all.min(1) } else { ours };
    let first = pos + ours.start;
    let order = seed.map(|seed| SampleOrder::new(samples, seed));
    let sample = |position| order.as_ref().map_or(position, |order| order.at(epoch, position));
    let chosen = ours.map(|index| sample(pos + index)).collect();
    let after = if pos + all < samples { (epoch, pos + all) } else { (epoch + 1, 0) };
    Ok((chosen, first, after.0, after.1))
}
