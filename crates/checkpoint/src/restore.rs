//! What is resumed: the newest checkpoint of which every byte is as it was written.
//!
//! Nothing found in the folder is trusted. A manifest must match its own checksum, be of this job and name only files
//! of a checkpoint; each file must have the size and the SHA-256 that it names, also those of checkpoints that it builds
//! on. Any flaw is said in a sentence, and the one before is tried.
//!
//! Unreadable is not damaged: an I/O error, a missing permission or a stale mount says nothing about the checkpoint, so
//! it ends the attempt, and the next one tries again. Otherwise work would be done again from an older state, or from
//! the beginning.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::error::Defect;
use crate::manifest::{CheckpointManifest, FileEntry, manifest_name, manifest_step};
use crate::snapshot::BestWeights;
use crate::tensor::{Tensor, read_from};
use crate::{Error, chain, manifest};

/// Far above any manifest; a larger file is none.
const LARGEST_MANIFEST: u64 = 64 << 20;

/// A verified checkpoint, in memory.
#[derive(Debug, Clone)]
pub struct LoadedCheckpoint {
    /// What was promised: step, state, who wrote it.
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

/// Why a checkpoint was not loaded.
enum Rejected {
    /// It verifiably is not what was written; half a sentence that names the file.
    Damaged(String),
    /// It cannot be read now.
    Unreadable(Error),
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

/// The same of those that are of use: a checkpoint for which `usable` has half a sentence against it is passed over as
/// one that does not verify.
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

/// The steps that have a manifest, newest first.
fn steps(folder: &Path) -> Result<Vec<u64>, Error> {
    let unreadable = |source| Error::Unreadable { path: folder.to_owned(), source };
    let mut steps = Vec::new();
    match fs::read_dir(folder) {
        Ok(entries) => {
            for entry in entries {
                steps.extend(entry.map_err(unreadable)?.file_name().to_str().and_then(manifest_step));
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable(error)),
    }
    steps.sort_unstable_by_key(|step| std::cmp::Reverse(*step));
    Ok(steps)
}

/// One checkpoint, or the first flaw found.
fn load(folder: &Path, step: u64, job_hash: &str) -> Result<LoadedCheckpoint, Rejected> {
    let name = manifest_name(step);
    let named = |flaw: String| Rejected::Damaged(format!("`{name}`: {flaw}"));
    let failed = |defect: Defect| rejected(folder, &name, defect);
    let mut bytes = Vec::new();
    let file = open_regular(&folder.join(&name)).map_err(failed)?;
    file.take(LARGEST_MANIFEST).read_to_end(&mut bytes).map_err(|error| failed(error.into()))?;
    let mut manifest = CheckpointManifest::read(&bytes).map_err(|flaw| named(flaw.to_string()))?;
    if manifest.step != step {
        return Err(named(format!("it is the manifest of step {}", manifest.step)));
    }
    if manifest.job_hash != job_hash {
        return Err(named("it belongs to another job".into()));
    }

    let missing = || named("it does not name the files of a checkpoint".into());
    let (mut model, mut training) = (Vec::new(), Vec::new());
    for files in manifest.layers() {
        model = layer(folder, manifest::model(files).ok_or_else(missing)?, &model)?;
        training = layer(folder, manifest::training(files).ok_or_else(missing)?, &training)?;
    }
    let (best, lost_best) = match (&manifest.best, manifest.best_file()) {
        (Some(best), Some(file)) => match verified(folder, file) {
            Ok(model) => (Some(BestWeights { step: best.step, model }), None),
            Err(Rejected::Damaged(flaw)) => {
                (None, Some(format!("the best weights, of step {}, are lost: {flaw}", best.step)))
            }
            Err(unreadable @ Rejected::Unreadable(_)) => return Err(unreadable),
        },
        (_, _) => (None, None),
    };
    if lost_best.is_some() {
        manifest.forget_best();
    }
    Ok(LoadedCheckpoint { manifest, model, training, best, lost_best })
}

fn rejected(folder: &Path, name: &str, defect: Defect) -> Rejected {
    match defect {
        Defect::Damaged(why) => Rejected::Damaged(format!("`{name}`: {why}")),
        Defect::Unreadable(source) => Rejected::Unreadable(Error::Unreadable { path: folder.join(name), source }),
    }
}

/// The tensors of a file, on top of those of the checkpoint before where it holds differences.
fn layer(folder: &Path, entry: &FileEntry, before: &[Tensor]) -> Result<Vec<Tensor>, Rejected> {
    let tensors = verified(folder, entry)?;
    if !manifest::is_links(entry) {
        return Ok(tensors);
    }
    chain::unpack(tensors, before).map_err(|flaw| Rejected::Damaged(format!("`{}`: {flaw}", entry.name)))
}

/// The tensors of a file that is exactly what the manifest says.
fn verified(folder: &Path, entry: &FileEntry) -> Result<Vec<Tensor>, Rejected> {
    let named = |flaw: String| Rejected::Damaged(format!("`{}`: {flaw}", entry.name));
    let failed = |defect: Defect| rejected(folder, &entry.name, defect);
    let file = open_regular(&folder.join(&entry.name)).map_err(failed)?;
    let bytes = file.metadata().map_err(|error| failed(error.into()))?.len();
    if bytes != entry.bytes {
        return Err(named(format!("it has {bytes} bytes instead of {}", entry.bytes)));
    }
    let (tensors, sha256) = read_from(file).map_err(failed)?;
    if sha256 != entry.sha256 {
        return Err(named("it does not match its checksum".into()));
    }
    Ok(tensors)
}

/// Opens a file that is neither a link nor something that reading could hang on.
fn open_regular(path: &Path) -> Result<File, Defect> {
    use rustix::io::Errno;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Err("it is missing".into()),
        Err(Errno::LOOP) => return Err("it is a link, not a file".into()),
        Err(error @ (Errno::NOTDIR | Errno::NXIO | Errno::NAMETOOLONG | Errno::INVAL)) => {
            return Err(format!("it cannot be opened: {error}").into());
        }
        Err(error) => return Err(Defect::Unreadable(error.into())),
    };
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err("it is no file".into()),
    }
}
