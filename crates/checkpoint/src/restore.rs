//! Finds the checkpoint to resume from: the newest one that verifies completely.
//!
//! Files in the folder are untrusted. A manifest must match its own checksum, belong to this job and list only files of
//! a checkpoint; each file must have the listed size and SHA-256, including those of checkpoints that it builds on. A
//! flaw is reported in a sentence, and the previous checkpoint is tried. An unreadable file is not a damaged one: see
//! `verify.rs`.

use std::path::Path;

use crate::error::Defect;
use crate::manifest::{CheckpointManifest, FileEntry, StateKind};
use crate::parts::TensorSource;
use crate::snapshot::BestWeights;
use crate::tensor::{Tensor, read_from};
use crate::verify::{Rejected, check_file, opened, read_manifest, rejected, steps};
use crate::{Error, chain, manifest};

/// A verified checkpoint, in memory.
#[derive(Debug, Clone)]
pub struct LoadedCheckpoint {
    /// The manifest: step, state, and who wrote it.
    pub manifest: CheckpointManifest,
    /// The tensors of the model, sorted by name.
    pub model: Vec<Tensor>,
    /// The other tensors, sorted by name.
    pub training: Vec<Tensor>,
    /// The best weights at that time.
    pub best: Option<BestWeights>,
    /// Why the best weights that it names cannot be used, in a sentence. They are no part of the state that is resumed, so
    /// the checkpoint is used without them.
    pub lost_best: Option<String>,
}

/// Finds the newest checkpoint of the job that verifies, and reads it.
///
/// `None` when there is none, as in a folder that is new or missing. The second value has one sentence for each
/// checkpoint that did not verify, newest first. Reads only; to be called after [`crate::claim`], so that no earlier
/// attempt adds to the folder meanwhile.
///
/// # Errors
/// [`Error::Unreadable`] when the folder, or a checkpoint newer than all that verify, cannot be read now.
pub fn newest_verified(folder: &Path, job_hash: &str) -> Result<(Option<LoadedCheckpoint>, Vec<String>), Error> {
    newest_usable(folder, job_hash, &|_| Ok(()))
}

/// Like [`newest_verified`], also skipping checkpoints for which `usable` returns an objection, phrased as part of a
/// sentence.
///
/// # Errors
/// As [`newest_verified`].
pub fn newest_usable(
    folder: &Path,
    job_hash: &str,
    usable: &dyn Fn(&LoadedCheckpoint) -> Result<(), String>,
) -> Result<(Option<LoadedCheckpoint>, Vec<String>), Error> {
    let mut passed_over = Vec::new();
    for step in steps(folder)? {
        let loaded = load(folder, step, job_hash).and_then(|loaded| match usable(&loaded) {
            Ok(()) => Ok(loaded),
            Err(why) => Err(Rejected::Damaged(why)),
        });
        match loaded {
            Ok(loaded) => return Ok((Some(loaded), passed_over)),
            Err(Rejected::Damaged(why)) => {
                passed_over.push(format!("the checkpoint of step {step} is not used: {why}"));
            }
            Err(Rejected::Unreadable(error)) => return Err(error),
        }
    }
    Ok((None, passed_over))
}

/// One checkpoint, or the first flaw found.
fn load(folder: &Path, step: u64, job_hash: &str) -> Result<LoadedCheckpoint, Rejected> {
    let mut manifest = read_manifest(folder, step, job_hash)?;
    let (model, training) = match manifest.is_divided() {
        true => {
            let of = |kind| joined(folder, &manifest.files_of(kind));
            (of(StateKind::Model)?, of(StateKind::Training)?)
        }
        false => whole_state(folder, &manifest)?,
    };
    let best = manifest.best.clone();
    let (best, lost_best) = match (best, best_weights(folder, &manifest)) {
        (None, _) => (None, None),
        (Some(best), Ok(model)) => (Some(BestWeights { step: best.step, model }), None),
        (Some(best), Err(Rejected::Damaged(flaw))) => (None, Some(lost_best(best.step, &flaw))),
        (Some(_), Err(unreadable @ Rejected::Unreadable(_))) => return Err(unreadable),
    };
    if lost_best.is_some() {
        manifest.forget_best();
    }
    Ok(LoadedCheckpoint { manifest, model, training, best, lost_best })
}

/// The warning about best weights that do not verify.
pub fn lost_best(step: u64, flaw: &str) -> String {
    format!("the best weights, of step {step}, are lost: {flaw}")
}

fn whole_state(folder: &Path, manifest: &CheckpointManifest) -> Result<(Vec<Tensor>, Vec<Tensor>), Rejected> {
    let missing = || {
        let name = manifest::manifest_name(manifest.step);
        Rejected::Damaged(format!("`{name}`: it does not name the files of a checkpoint"))
    };
    let (mut model, mut training) = (Vec::new(), Vec::new());
    for files in manifest.layers() {
        model = layer(folder, manifest::model(files).ok_or_else(missing)?, &model)?;
        training = layer(folder, manifest::training(files).ok_or_else(missing)?, &training)?;
    }
    Ok((model, training))
}

fn best_weights(folder: &Path, manifest: &CheckpointManifest) -> Result<Vec<Tensor>, Rejected> {
    match manifest.best_files() {
        [] => Ok(Vec::new()),
        [file] if !file.name.contains('/') => verified(folder, file),
        parts => joined(folder, &parts.iter().collect::<Vec<_>>()),
    }
}

/// The tensors of several verified parts, combined and sorted by name.
fn joined(folder: &Path, parts: &[&FileEntry]) -> Result<Vec<Tensor>, Rejected> {
    parts.iter().try_for_each(|entry| check_file(folder, entry, false))?;
    let source = TensorSource::open(folder, parts)?;
    source.names().filter_map(|name| source.whole(name).transpose()).map(|tensor| Ok(tensor?)).collect()
}

/// The tensors of a file, on top of those of the checkpoint before where it holds differences.
fn layer(folder: &Path, entry: &FileEntry, before: &[Tensor]) -> Result<Vec<Tensor>, Rejected> {
    let tensors = verified(folder, entry)?;
    if !manifest::is_links(entry) {
        return Ok(tensors);
    }
    chain::unpack(tensors, before).map_err(|flaw| Rejected::Damaged(format!("`{}`: {flaw}", entry.name)))
}

/// The tensors of a file, after verification against the manifest.
fn verified(folder: &Path, entry: &FileEntry) -> Result<Vec<Tensor>, Rejected> {
    let failed = |defect: Defect| rejected(folder, &entry.name, defect);
    let (tensors, sha256) = read_from(opened(folder, entry)?).map_err(failed)?;
    if sha256 != entry.sha256 {
        return Err(Rejected::Damaged(format!("`{}`: it does not match its checksum", entry.name)));
    }
    Ok(tensors)
}
