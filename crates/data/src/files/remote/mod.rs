//! Remote data, read chunk by chunk during training through a server that has the credentials.
//!
//! Staging ([`lay_out`]) creates a folder that looks like the data: small files are complete, large ones are sparse
//! placeholders of the right length, and `.gradus/elsewhere.json` lists them with the socket that serves their bytes.
//! Listing files then works as for local data; only reads go to the [`Client`]. A request includes the next use of its
//! bytes, which follows from the order of the epochs, so that the cache keeps the right chunks. Read on in `wire` (the
//! messages) and in `client`.

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

/// The remote files, and the server of their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteListing {
    /// Version of this file.
    pub schema: u32,
    /// The Unix socket of the server.
    pub socket: PathBuf,
    /// The files that are placeholders here; a request names one by its index in this list.
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

/// Creates the placeholders in `folder` and the listing, which is written last.
///
/// # Errors
/// If the folder cannot be written, or a name would lead out of it.
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

/// The listing for a file or folder, and the folder that contains it; `None` if all is local.
fn listing_of(path: &Path) -> io::Result<Option<(PathBuf, RemoteListing)>> {
    for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        let file = match plain_file::open(&folder.join(OWN).join(NAME)) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            // An inaccessible parent folder has no listing of ours.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error),
        };
        // Some parent folders are world-writable, such as those of temporary files.
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
