//! Where the checkpoints of a run lie: in its folder here, on a server's machine, or in the object store of its job.

use std::fs::{self, File};
use std::path::Path;

use agent::StoredCheckpoints;
use domain::{RunId, Timestamp};

use super::{Listed, NamedFile, parsed, read};
use crate::error::{Error, exit};
use crate::remote::Server;

/// The folder of a server's run that they are in.
const FOLDER: &str = "checkpoints/";

/// Where the checkpoints of a run lie.
#[derive(Debug, Clone, Copy)]
pub(super) enum CheckpointPlace<'a> {
    /// In a folder of this machine.
    Here(&'a Path),
    /// Among the files of a server's run.
    There(&'a Server, &'a RunId),
    /// In the object store of the job.
    Stored(&'a StoredCheckpoints),
}

impl CheckpointPlace<'_> {
    /// The checkpoints by step; what cannot be read is none.
    ///
    /// # Errors
    /// [`Error::File`] for a folder that cannot be read, [`Error::Code`] for a server that does not answer, [`Error::Store`] of
    /// an object store.
    pub(super) fn list(self) -> Result<Vec<Listed>, Error> {
        let (server, run) = match self {
            CheckpointPlace::Here(folder) => return read(folder),
            CheckpointPlace::There(server, run) => (server, run),
            CheckpointPlace::Stored(stored) => return in_store(stored),
        };
        let mut all = Vec::new();
        for file in server.files(run)? {
            let Some(name) = file.name.strip_prefix(FOLDER).filter(|name| is_manifest(name)) else { continue };
            let contents = match server.contents(run, &file.name) {
                // The run has deleted it meanwhile.
                Err(error) if error.code() == exit::USAGE => continue,
                contents => contents?,
            };
            all.extend(parsed(name, &contents, Timestamp(file.modified)));
        }
        all.sort_by_key(|one| one.step);
        Ok(all)
    }

    /// Copies a file to `output`; it has its name once it is whole and its checksum is right.
    ///
    /// # Errors
    /// [`Error::Code`] for other contents, [`Error::File`].
    pub(super) fn copy(self, output: &Path, file: &NamedFile) -> Result<(), Error> {
        let target = output.join(&file.name);
        if target.is_file() && sum(&target)? == file.sha256 {
            return Ok(());
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(Error::file("make the folder", parent))?;
        }
        match self {
            CheckpointPlace::Here(folder) => {
                let source = folder.join(&file.name);
                let copy = |partial: &Path| fs::copy(&source, partial).map(drop).map_err(Error::file("copy", &source));
                copied(&source.display().to_string(), &target, Some(&file.sha256), copy)
            }
            CheckpointPlace::Stored(stored) => from_store(stored, &file.name, &target, Some(&file.sha256)),
            CheckpointPlace::There(server, run) => {
                let name = format!("{FOLDER}{}", file.name);
                server.download(run, &name, &target, Some(file.sha256.as_str())).map(|_| ())
            }
        }
    }

    /// Copies the manifest of this name to `output`.
    ///
    /// # Errors
    /// [`Error::File`], or [`Error::Code`] of a server.
    pub(super) fn copy_manifest(self, output: &Path, name: &str) -> Result<(), Error> {
        let target = output.join(name);
        match self {
            CheckpointPlace::Here(folder) => {
                fs::copy(folder.join(name), &target).map(|_| ()).map_err(Error::file("write", &target))
            }
            CheckpointPlace::There(server, run) => {
                server.download(run, &format!("{FOLDER}{name}"), &target, None).map(|_| ())
            }
            CheckpointPlace::Stored(stored) => from_store(stored, name, &target, None),
        }
    }
}

/// Whether a name is that of a manifest.
fn is_manifest(name: &str) -> bool {
    name.starts_with("manifest-") && name.ends_with(".json") && !name.contains('/')
}

fn sum(path: &Path) -> Result<String, Error> {
    let opened = File::open(path).map_err(Error::file("read", path))?;
    node::sha256(opened).map_err(Error::file("read", path))
}

/// The checkpoints that an object store has, by step.
fn in_store(stored: &StoredCheckpoints) -> Result<Vec<Listed>, Error> {
    let mut all = Vec::new();
    for (name, modified) in stored.files().filter(|(name, _)| is_manifest(name)) {
        let mut contents = Vec::new();
        stored.copy(name, &mut contents)?;
        all.extend(parsed(name, &contents, Timestamp(modified)));
    }
    all.sort_by_key(|one| one.step);
    Ok(all)
}

fn from_store(stored: &StoredCheckpoints, name: &str, target: &Path, sha256: Option<&str>) -> Result<(), Error> {
    copied(name, target, sha256, |partial| {
        let mut file = File::create(partial).map_err(Error::file("write", partial))?;
        Ok(stored.copy(name, &mut file)?)
    })
}

/// Has `copy` write a file, which has its name once its checksum is right.
fn copied(
    source: &str,
    target: &Path,
    sha256: Option<&str>,
    copy: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let partial =
        target.with_file_name(format!(".{}.partial", target.file_name().unwrap_or_default().to_string_lossy()));
    copy(&partial)?;
    if let Some(sha256) = sha256
        && sum(&partial)? != sha256
    {
        let _ = fs::remove_file(&partial);
        let message = format!("`{source}` does not match its checksum");
        let hint = "pull another step: `gradus checkpoints list` shows them".to_owned();
        return Err(Error::Code { message, hint: Some(hint), code: exit::WORLD });
    }
    fs::rename(&partial, target).map_err(Error::file("write", target))
}
