//! Programs and libraries on a node, kept there under the hash of their contents: `blobs/SHA256` in its `.gradus`.
//!
//! A blob travels in chunks, each compressed on its own. A chunk that has come whole stays in `blobs/SHA256.parts/`, so that a
//! copy whose connection breaks off continues behind it, from whatever process. Once all chunks are there they become a file
//! of their own, which gets its name only if its hash is right ([`store`]). Files of programs and libraries are links to blobs.
//! Nothing is written in place, so two copies at the same time do not harm each other.
//!
//! The sender runs `gradus node-files` on the node twice, each time with an [`InstallRequest`] as a line on standard input: to
//! look what is there, and to send what is not, as [frames](write_frame). In between, the node may read from another one that
//! holds it ([`share`]).

mod digest;
mod share;
mod store;

use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use digest::{RunningHash, sha256};
pub use share::{BlobPeer, FetchSecret, ServeOffer, ServeRequest, serve};
use store::BlobFolder;

/// The version of [`InstallRequest`].
pub const INSTALL_SCHEMA: u32 = 1;

/// Bytes of a blob in each chunk but the last: a few seconds of a slow connection.
pub const CHUNK: u64 = 4 << 20;

/// Level of zstd: its default, which keeps up with networks of 1 Gbit/s.
const LEVEL: i32 = 3;

/// The most bytes of a compressed chunk: what cannot be compressed becomes a little larger.
const FRAME: u32 = (CHUNK + (CHUNK >> 4)) as u32;

/// What a sender asks of a node: one line of JSON, followed by frames if it [sends](InstallStep::Receive).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallRequest {
    /// [`INSTALL_SCHEMA`] of the sender.
    pub schema: u32,
    /// The folder `.gradus` there, absolute.
    pub root: PathBuf,
    /// Whether frames follow.
    pub step: InstallStep,
    /// The blobs that are to be there, each once.
    pub blobs: Vec<InstallBlob>,
    /// The folders that are made from them.
    pub targets: Vec<InstallTarget>,
}

/// What a node does about a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstallStep {
    /// It only says how many chunks it holds.
    Look,
    /// It reads the frames that follow, those of each blob from its chunk `from`, and installs the targets.
    Receive,
    /// It reads the blobs from another node, each from its chunk `from`.
    Fetch(BlobPeer),
}

/// A blob, and how much of it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallBlob {
    /// SHA-256 of its contents, in hexadecimal digits.
    pub sha256: String,
    /// Its chunks.
    pub chunks: u32,
    /// The first chunk that is sent.
    #[serde(default)]
    pub from: u32,
}

/// A folder with files that are blobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallTarget {
    /// Its path below the root.
    pub folder: String,
    /// Whether it appears with all files at once, in the place of one that was there, or file by file in this order.
    pub is_whole: bool,
    /// Path of each file below the folder, and the hash of its contents.
    pub files: Vec<(String, String)>,
}

/// What a node answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallAnswer {
    /// For each blob of the request: how many of its chunks are there, from the first.
    pub held: Vec<u32>,
    /// Why the targets are not installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The number of chunks of so many bytes.
pub fn chunks(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(CHUNK)).unwrap_or(u32::MAX)
}

/// Answers a request on the node.
pub fn answer(mut input: impl BufRead) -> InstallAnswer {
    let failed = |why: String| InstallAnswer { held: Vec::new(), failed: Some(why) };
    let mut line = String::new();
    if let Err(error) = input.read_line(&mut line) {
        return failed(format!("the request cannot be read: {error}"));
    }
    let request: InstallRequest = match serde_json::from_str(&line) {
        Ok(request) => request,
        Err(error) => return failed(format!("stdin is no request of gradus: {error}")),
    };
    if request.schema > INSTALL_SCHEMA {
        return failed(format!("the request is of version {}, and this gradus reads {INSTALL_SCHEMA}", request.schema));
    }
    let folder = match BlobFolder::open(&request.root) {
        Ok(folder) => folder,
        Err(why) => return failed(why),
    };
    let done = match &request.step {
        InstallStep::Look => {
            folder.sweep(&request);
            Ok(())
        }
        InstallStep::Receive => received(&folder, &request, &mut input),
        InstallStep::Fetch(peer) => share::fetch(&folder, &request.blobs, peer),
    };
    InstallAnswer { held: request.blobs.iter().map(|blob| folder.held(blob)).collect(), failed: done.err() }
}

fn received(folder: &BlobFolder, request: &InstallRequest, input: &mut impl Read) -> Result<(), String> {
    for blob in &request.blobs {
        folder.receive(blob, input)?;
    }
    request.targets.iter().try_for_each(|target| folder.install(target))
}

/// Compresses a chunk and writes it with its length before it, 32 bits; returns how many bytes that were.
///
/// # Errors
/// Those of the writer, and of zstd.
pub fn write_frame(raw: &[u8], to: &mut (impl Write + ?Sized)) -> io::Result<u64> {
    let frame = zstd::bulk::compress(raw, LEVEL)?;
    let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&frame)?;
    Ok(4 + u64::from(length))
}

/// Reads a chunk as [`write_frame`] wrote it, still compressed.
fn read_frame(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a chunk of {length} bytes is too long")));
    }
    let mut frame = vec![0; length as usize];
    from.read_exact(&mut frame)?;
    Ok(frame)
}

#[cfg(test)]
mod tests;
