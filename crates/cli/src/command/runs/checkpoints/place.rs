//! Where the checkpoints of a run lie: in its folder here, or on a server's machine.

use std::fs::{self, File};
use std::path::Path;

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
}

impl CheckpointPlace<'_> {
    /// The checkpoints by step; what cannot be read is none.
    ///
    /// # Errors
    /// [`Error::File`] for a folder that cannot be read, [`Error::Code`] for a server that does not answer.
    pub(super) fn list(self) -> Result<Vec<Listed>, Error> {
        let (server, run) = match self {
            CheckpointPlace::Here(folder) => return read(folder),
            CheckpointPlace::There(server, run) => (server, run),
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
            CheckpointPlace::Here(folder) => copied(&folder.join(&file.name), &target, &file.sha256),
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

fn copied(source: &Path, target: &Path, sha256: &str) -> Result<(), Error> {
    let partial =
        target.with_file_name(format!(".{}.partial", target.file_name().unwrap_or_default().to_string_lossy()));
    fs::copy(source, &partial).map_err(Error::file("copy", source))?;
    if sum(&partial)? != sha256 {
        let _ = fs::remove_file(&partial);
        let message = format!("`{}` does not match its checksum", source.display());
        let hint = "pull another step: `gradus checkpoints list` shows them".to_owned();
        return Err(Error::Code { message, hint: Some(hint), code: exit::WORLD });
    }
    fs::rename(&partial, target).map_err(Error::file("write", target))
}
