//! The state that a run resumes from: a checkpoint in the memory of the first rank, or files of which each rank reads
//! its part.

use std::path::Path;
use std::sync::Arc;

use checkpoint::{BestWeights, CheckpointManifest, LoadedCheckpoint, Placement, StateKind, TensorSource};
use tch::Tensor;

use super::pretrained::Pretrained;
use super::tensors::{copy_values, find, state_mismatch, to_tensor};
use crate::error::Error;
use crate::model::Named;

/// The saved state that a run starts from.
pub enum Resumed {
    /// A checkpoint in memory, on the first rank only.
    Whole(Box<LoadedCheckpoint>),
    /// A checkpoint that every rank reads.
    Files(Box<CheckpointFiles>),
}

impl Resumed {
    /// The manifest of the checkpoint.
    pub fn manifest(&self) -> &CheckpointManifest {
        match self {
            Resumed::Whole(loaded) => &loaded.manifest,
            Resumed::Files(files) => &files.manifest,
        }
    }

    /// Why the best weights that it names cannot be used.
    pub fn lost_best(&self) -> Option<&String> {
        match self {
            Resumed::Whole(loaded) => loaded.lost_best.as_ref(),
            Resumed::Files(files) => files.lost_best.as_ref(),
        }
    }
}

/// A checkpoint that was verified, of which tensors are read as they are needed.
pub struct CheckpointFiles {
    pub(super) manifest: CheckpointManifest,
    pub(super) lost_best: Option<String>,
    pub(super) model: TensorSource,
    pub(super) training: TensorSource,
    best: Option<(u64, TensorSource)>,
}

impl CheckpointFiles {
    /// Opens the files of a manifest, none of which are deltas.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn open(
        folder: &Path,
        manifest: CheckpointManifest,
        lost_best: Option<String>,
    ) -> Result<CheckpointFiles, Error> {
        let open = |kind| TensorSource::open(folder, &manifest.files_of(kind));
        let (model, training) = (open(StateKind::Model)?, open(StateKind::Training)?);
        let best = match &manifest.best {
            Some(best) => {
                let files: Vec<_> = manifest.best_files().iter().collect();
                Some((best.step, TensorSource::open(folder, &files)?))
            }
            None => None,
        };
        Ok(CheckpointFiles { manifest, lost_best, model, training, best })
    }

    /// This rank's best weights: its part of each tensor that has a `place`, and on the first rank `whole` ones.
    pub(super) fn best(
        &self,
        places: impl Iterator<Item = (String, Placement, u64)>,
        whole: impl Iterator<Item = String>,
    ) -> Result<Option<Arc<BestWeights>>, Error> {
        let Some((step, source)) = &self.best else { return Ok(None) };
        let missing = |name: &str| state_mismatch(&format!("the best weights lack `{name}`"));
        let mut model = Vec::new();
        for (name, place, length) in places {
            model.push(source.stretch(&name, &place, length)?.ok_or_else(|| missing(&name))?);
        }
        for name in whole {
            model.push(source.whole(&name)?.ok_or_else(|| missing(&name))?);
        }
        Ok(Some(Arc::new(BestWeights { step: *step, model })))
    }
}

/// Reads tensors from files: a part of those that have a `place`, all of others. An `optional` one may be missing, and
/// is unchanged then.
pub(super) fn fill_from_files<'a>(
    tensors: impl IntoIterator<Item = &'a Named>,
    source: &TensorSource,
    place: impl Fn(&str) -> Option<Placement>,
    optional: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    for named in tensors {
        let saved = match place(&named.name) {
            Some(place) => source.stretch(&named.name, &place, named.tensor.numel() as u64)?,
            None => source.whole(&named.name)?,
        };
        match saved {
            Some(saved) => copy_values(named, &saved)?,
            None if optional(&named.name) => {}
            None => return Err(state_mismatch(&format!("`{}` is missing", named.name))),
        }
    }
    Ok(())
}

/// Full weights that only the first rank has, to be scattered to the ranks.
pub(super) enum WholeWeights {
    /// Of a checkpoint.
    Loaded(Vec<checkpoint::Tensor>),
    /// Of a file of pretrained weights, which may lack some.
    Pretrained(Pretrained),
}

impl WholeWeights {
    /// The names of those that are known; `None` for all.
    pub(super) fn names(&self) -> Option<Vec<&str>> {
        match self {
            WholeWeights::Loaded(_) => None,
            WholeWeights::Pretrained(pretrained) => Some(pretrained.taken().collect()),
        }
    }

    /// One of them.
    pub(super) fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        match self {
            WholeWeights::Loaded(saved) => to_tensor(find(saved, name)?),
            WholeWeights::Pretrained(pretrained) => pretrained.tensor(name),
        }
    }
}
