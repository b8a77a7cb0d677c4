//! A small state whose values are functions of its step, and one `check` of what a folder restores.

mod chains;
mod crash;
mod damage;
mod fencing;
mod format;
mod keep;
mod parts;
mod writing;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use domain::id::{Fence, RunId};
use serde_json::json;

use crate::commit::Committer;
use crate::{BestWeights, Dtype, Error, LoadedCheckpoint, Snapshot, Tensor, WriterIdentity};

const JOB: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Numbers that look random and follow from a seed (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

fn identity(fence: u64) -> WriterIdentity {
    let run = RunId::new("digits-1");
    WriterIdentity { attempt: run.attempt(Fence(fence)), run, fence: Fence(fence), job_hash: JOB.into() }
}

fn tensors(seed: u64) -> Vec<Tensor> {
    let mut random = Random(seed + 1);
    let mut tensor = |name: &str, dtype: Dtype, shape: &[u64]| {
        let length = shape.iter().product::<u64>() * dtype.bytes();
        Tensor { name: name.into(), dtype, shape: shape.into(), bytes: random.bytes(length as usize) }
    };
    vec![
        tensor("conv.weight", Dtype::F32, &[4, 3, 3]),
        tensor("empty", Dtype::BF16, &[0, 7]),
        tensor("fc.bias", Dtype::BF16, &[3]),
        tensor("generator", Dtype::U8, &[13]),
        tensor("norm.num_batches_tracked", Dtype::I64, &[]),
        tensor("norm.running_var", Dtype::F64, &[2]),
    ]
}

/// The state after `step`: a new best at every 20th, so that some checkpoints share one.
fn snapshot(step: u64) -> Snapshot {
    let best = step / 20 * 20;
    Snapshot {
        step,
        began: Instant::now(),
        model: tensors(step),
        training: tensors(step + 1_000_000),
        state: json!({ "epoch": step / 7, "position": step % 7, "best": 1.0 / step as f64 }),
        best: (best > 0).then(|| Arc::new(BestWeights { step: best, model: tensors(best) })),
        part: None,
    }
}

/// As [`crate::newest_verified`], of a folder that can be read.
fn newest_verified(folder: &Path, job_hash: &str) -> (Option<LoadedCheckpoint>, Vec<String>) {
    crate::newest_verified(folder, job_hash).unwrap()
}

fn committer(folder: &Path, fence: u64, keep: u32) -> Committer {
    let (resumed, _) = newest_verified(folder, JOB);
    Committer::new(folder, identity(fence), keep, resumed.as_ref().map(|loaded| &loaded.manifest))
}

/// Claims the folder and commits these steps as one attempt.
fn commit(folder: &Path, fence: u64, keep: u32, steps: &[u64]) -> Result<(), Error> {
    crate::claim(folder, Fence(fence))?;
    let mut committer = committer(folder, fence, keep);
    committer.tidy()?;
    steps.iter().try_for_each(|step| committer.commit(&snapshot(*step)).map(drop))
}

/// Checks that the state of `step` is restored bit for bit; returns the reasons of skipped checkpoints.
fn check(folder: &Path, step: Option<u64>) -> Vec<String> {
    let (loaded, passed_over) = newest_verified(folder, JOB);
    let found = loaded.as_ref().map(|loaded| loaded.manifest.step);
    assert_eq!(found, step, "passed over: {passed_over:?}");
    if let Some(loaded) = loaded {
        assert_is(&loaded, &snapshot(loaded.manifest.step));
    }
    passed_over
}

fn assert_is(loaded: &LoadedCheckpoint, snapshot: &Snapshot) {
    assert_eq!(loaded.model, snapshot.model);
    assert_eq!(loaded.training, snapshot.training);
    assert_eq!(loaded.manifest.state, snapshot.state);
    assert_eq!(loaded.best.as_ref(), snapshot.best.as_deref());
}

/// The names in a folder and its sub-folders, sorted.
fn listing(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            names.extend(listing(&entry.path()).iter().map(|inner| format!("{name}/{inner}")));
        }
        names.push(name);
    }
    names.sort();
    names
}
