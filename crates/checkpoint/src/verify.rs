//! Verifies a checkpoint: its manifest, and each file separately, so that several processes can share the work.
//!
//! An unreadable file is not a damaged one: an I/O error, a missing permission or a stale mount does not show that the
//! checkpoint is bad, so it ends the attempt, and the next one tries again. Otherwise work would be repeated from an
//! older state, or from the start.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::Error;
use crate::error::Defect;
use crate::manifest::{CheckpointManifest, FileEntry, manifest_name, manifest_step};
use crate::ranges::{open_regular, scan};

/// Far above any manifest; a larger file is none.
const LARGEST_MANIFEST: u64 = 64 << 20;

/// Why a checkpoint is not used.
#[derive(Debug)]
pub enum Rejected {
    /// It is verifiably damaged; the text is part of a sentence that names the file.
    Damaged(String),
    /// It cannot be read now.
    Unreadable(Error),
}

/// The steps that have a manifest in a folder, newest first.
///
/// # Errors
/// [`Error::Unreadable`] when the folder cannot be read now.
pub fn steps(folder: &Path) -> Result<Vec<u64>, Error> {
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

/// The manifest of a step, of this job.
///
/// # Errors
/// Why it is not used.
pub fn read_manifest(folder: &Path, step: u64, job_hash: &str) -> Result<CheckpointManifest, Rejected> {
    let name = manifest_name(step);
    let named = |flaw: String| Rejected::Damaged(format!("`{name}`: {flaw}"));
    let failed = |defect: Defect| rejected(folder, &name, defect);
    let mut bytes = Vec::new();
    let file = open_regular(&folder.join(&name)).map_err(failed)?;
    file.take(LARGEST_MANIFEST).read_to_end(&mut bytes).map_err(|error| failed(error.into()))?;
    let manifest = CheckpointManifest::read(&bytes).map_err(|flaw| named(flaw.to_string()))?;
    if manifest.step != step {
        return Err(named(format!("it is the manifest of step {}", manifest.step)));
    }
    if manifest.job_hash != job_hash {
        return Err(named("it belongs to another job".into()));
    }
    Ok(manifest)
}

/// Verifies a file of tensors against the manifest without holding it in memory; with `finite`, no value may be
/// infinite or NaN.
///
/// # Errors
/// Why it is rejected.
pub fn check_file(folder: &Path, entry: &FileEntry, finite: bool) -> Result<(), Rejected> {
    let damaged = |flaw: String| Rejected::Damaged(format!("`{}`: {flaw}", entry.name));
    let failed = |defect: Defect| rejected(folder, &entry.name, defect);
    let (sha256, not_finite) = scan(&opened(folder, entry)?).map_err(failed)?;
    if sha256 != entry.sha256 {
        return Err(damaged("it does not match its checksum".into()));
    }
    match not_finite.filter(|_| finite) {
        Some(name) => Err(damaged(format!("`{name}` has values that are not finite"))),
        None => Ok(()),
    }
}

/// Opens a file, checking its length against the manifest.
pub(crate) fn opened(folder: &Path, entry: &FileEntry) -> Result<File, Rejected> {
    let failed = |defect: Defect| rejected(folder, &entry.name, defect);
    let file = open_regular(&folder.join(&entry.name)).map_err(failed)?;
    let bytes = file.metadata().map_err(|error| failed(error.into()))?.len();
    if bytes != entry.bytes {
        return Err(Rejected::Damaged(format!("`{}`: it has {bytes} bytes instead of {}", entry.name, entry.bytes)));
    }
    Ok(file)
}

pub(crate) fn rejected(folder: &Path, name: &str, defect: Defect) -> Rejected {
    match defect {
        Defect::Damaged(why) => Rejected::Damaged(format!("`{name}`: {why}")),
        Defect::Unreadable(source) => Rejected::Unreadable(Error::Unreadable { path: folder.join(name), source }),
    }
}

impl From<Error> for Rejected {
    fn from(error: Error) -> Rejected {
        match error {
            Error::Damaged { path, why } => Rejected::Damaged(format!("`{}`: {why}", crate::disk::file_name(&path))),
            other => Rejected::Unreadable(other),
        }
    }
}
