//! The state that a program resumes from: its newest checkpoint that verifies.
//!
//! A damaged checkpoint is skipped, with a warning. A checkpoint of another program is an error: resuming from an older
//! one, or from nothing, would discard work silently.

use std::fs;
use std::path::Path;

use checkpoint::{CheckpointManifest, Tensor};
use serde_json::Value;

use crate::Error;

/// The form of a program's state in a manifest, and its version.
pub(crate) const FORMAT: &str = "gradus program";
pub(crate) const VERSION: u64 = 1;

/// A program's state, verified.
#[derive(Debug)]
pub struct ResumedState {
    /// The step of the state.
    pub step: u64,
    /// All tensors: those of the model, and then the others, each by name.
    pub model: Vec<Tensor>,
    /// The tensors that belong to no model.
    pub others: Vec<Tensor>,
    /// How the state is assembled from them.
    pub tree: Value,
    /// The random number generators of this rank; `None` if they were not saved.
    pub generators: Option<Value>,
    /// Number of ranks that it was saved with.
    pub world: u32,
    /// Checkpoints that did not verify, and why, newest first.
    pub passed_over: Vec<String>,
}

/// The job hash in the manifests of a program of this name.
pub(crate) fn job_hash(program: &str) -> String {
    format!("program {program}")
}

/// Finds the newest checkpoint of `program` in `folder`, for the rank `rank`.
pub(crate) fn newest(folder: &Path, program: &str, rank: u32) -> Result<Option<ResumedState>, Error> {
    check_writer(folder, program)?;
    let usable = |loaded: &checkpoint::LoadedCheckpoint| {
        let state = &loaded.manifest.state;
        if state["format"] != FORMAT || state["version"].as_u64() > Some(VERSION) || state["tree"].is_null() {
            return Err(format!("its state is of a version that this one does not read: {}", state["version"]));
        }
        Ok(())
    };
    let (found, passed_over) = checkpoint::newest_usable(folder, &job_hash(program), &usable)?;
    let Some(found) = found else {
        return match passed_over.is_empty() {
            true => Ok(None),
            false => Err(Error::NoneVerifies { folder: folder.to_owned(), reasons: passed_over }),
        };
    };
    let mut state = found.manifest.state;
    let generators = state["generators"].get_mut(rank.to_string()).map(Value::take);
    let world = state["world"].as_u64().and_then(|world| u32::try_from(world).ok()).unwrap_or(1);
    let (tree, step) = (state["tree"].take(), found.manifest.step);
    Ok(Some(ResumedState { step, model: found.model, others: found.training, tree, generators, world, passed_over }))
}

/// Refuses to save `step` where later ones are that were not loaded: the first commit would set them aside.
pub(crate) fn check_loaded(folder: &Path, step: u64) -> Result<(), Error> {
    match checkpoint::steps(folder)?.into_iter().max() {
        Some(newest) if newest > step => Err(Error::NotLoaded { folder: folder.to_owned(), newest, step }),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a folder whose newest readable manifest is of another program.
pub(crate) fn check_writer(folder: &Path, program: &str) -> Result<(), Error> {
    for step in checkpoint::steps(folder)? {
        let path = folder.join(format!("manifest-{step:08}.json"));
        // Verified later.
        let read = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<CheckpointManifest>(&bytes).ok());
        let Some(manifest) = read else { continue };
        if manifest.job_hash == job_hash(program) {
            return Ok(());
        }
        let named = |name: &str| if name.is_empty() { "a program without a name".into() } else { format!("`{name}`") };
        let writer = match manifest.job_hash.strip_prefix("program ") {
            Some(other) => named(other),
            None => "the built-in trainer".to_owned(),
        };
        return Err(Error::OtherProgram { folder: folder.to_owned(), step, writer, reader: named(program) });
    }
    Ok(())
}
