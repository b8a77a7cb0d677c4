//! Remote data and is read piece by piece while training, through somebody who has the credentials.
//!
//! Whoever brings data here ([`lay_out`]) makes a folder that looks like the data: small files are there, large ones are
//! holes of the right length, and `.gradus/elsewhere.json` names them with the socket at which their bytes are served.
//! Everything that lists files then works as it does for data that is here; only reading asks the [`Client`]. What is
//! asked for says when it is needed again, which follows from the order of the epochs, so that whoever keeps pieces keeps
//! the right ones. Read on in `wire` (what is said) and in `client`.

mod client;
#[cfg(test)]
mod tests;
mod wire;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::plain_file;
pub(crate) use client::Client;
pub use wire::{AccessTime, ByteRange, RangeRequest, read_answer, read_request, write_answer, write_request};

/// The folder of a data set that is ours.
const OWN: &str = ".gradus";
const NAME: &str = "elsewhere.json";
/// The version of [`RemoteListing`].
pub const SCHEMA: u32 = 1;
/// Far above any listing; a larger file is none.
const LARGEST: u64 = 1 << 30;

/// What is remote, and who serves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteListing {
    /// Version of this file.
    pub schema: u32,
    /// The Unix socket at which bytes are asked for.
    pub socket: PathBuf,
    /// The files that are holes here; a request names one by its place in this list.
    pub files: Vec<RemoteFile>,
}

/// A file of which only the length is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteFile {
    /// Its path below the folder, with `/`.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
}

/// Makes the holes in `folder` and says where their bytes are. Nothing is read from the folder before it is complete.
///
/// # Errors
/// When the folder cannot be written, or a name would lead out of it.
pub fn lay_out(folder: &Path, listing: &RemoteListing) -> io::Result<()> {
    for hole in &listing.files {
        crate::chunk::check_name(&hole.name).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let path = folder.join(&hole.name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        File::create(&path)?.set_len(hole.bytes)?;
    }
    fs::create_dir_all(folder.join(OWN))?;
    let text = serde_json::to_vec(listing).map_err(io::Error::other)?;
    let (path, unfinished) = (folder.join(OWN).join(NAME), folder.join(OWN).join("unfinished"));
    File::create(&unfinished)?.write_all(&text)?;
    fs::rename(&unfinished, &path)
}

/// The listing that a file or folder belongs to, and the folder that it is for; none where all is here.
fn listing_of(path: &Path) -> io::Result<Option<(PathBuf, RemoteListing)>> {
    for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        let file = match plain_file::open(&folder.join(OWN).join(NAME)) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            // A folder above that is not ours to look into says nothing.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error),
        };
        // Anybody may write to some folders above, such as those of temporary files.
        if fs::metadata(path).is_ok_and(|data| file.metadata().is_ok_and(|listing| listing.uid() != data.uid())) {
            continue;
        }
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text)?;
        let listing: RemoteListing = serde_json::from_slice(&text).map_err(io::Error::other)?;
        if listing.schema != SCHEMA {
            let why = format!("`{OWN}/{NAME}` is of version {}, this program reads {SCHEMA}", listing.schema);
            return Err(io::Error::other(why));
        }
        return Ok(Some((folder.to_owned(), listing)));
    }
    Ok(None)
}
