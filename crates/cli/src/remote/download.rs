//! Files of a server's runs, copied to this machine.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use domain::RunId;
use serde_json::Value;

use super::{Server, failure};
use crate::error::{Error, exit};

/// So often in succession a connection may break off before anything has come over it.
const TRIES: u32 = 5;

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(500);

/// Bytes that are written at a time.
const PART: usize = 1 << 18;

/// No manifest is larger.
const SMALL: u64 = 64 << 20;

/// A file of a run on the server's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Its path below the folder of the run, such as `export/model.safetensors`.
    pub name: String,
    /// When it was written, in microseconds since 1970.
    pub modified: i64,
}

impl Server {
    /// The files of a run on the server's machine.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn files(&self, run: &RunId) -> Result<Vec<StoredFile>, Error> {
        let listed = self.get(&format!("/v1/runs/{run}/files"))?;
        let file = |value: &Value| {
            let modified = value["modified"].as_i64().unwrap_or(0);
            value["file"].as_str().map(|name| StoredFile { name: name.to_owned(), modified })
        };
        Ok(listed["files"].as_array().into_iter().flatten().filter_map(file).collect())
    }

    /// What a small file of a run holds.
    ///
    /// # Errors
    /// [`Error::Code`] if the server refuses, or the connection breaks off.
    pub fn contents(&self, run: &RunId, file: &str) -> Result<Vec<u8>, Error> {
        let body = self.open(&address(run, file, 0), &[])?;
        let mut contents = Vec::new();
        let read = body.take(SMALL).read_to_end(&mut contents);
        read.map_err(|error| failure::unreached(self.url(), &error.to_string()))?;
        Ok(contents)
    }

    /// Copies a file of a run to `target`, which has its name only once it is whole; with a `sha256`, only if that is its own.
    /// Returns its size.
    ///
    /// # Errors
    /// [`Error::Code`] if the server refuses, cannot be reached or sends other contents, [`Error::File`] if `target` cannot be
    /// written.
    pub fn download(&self, run: &RunId, file: &str, target: &Path, sha256: Option<&str>) -> Result<u64, Error> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let partial = target.with_file_name(format!(".{name}.partial"));
        let mut written = File::create(&partial).map_err(Error::file("write", &partial))?;
        let (mut bytes, mut failures) = (0u64, 0);
        loop {
            let path = address(run, file, bytes);
            let before = bytes;
            let Err(error) = self.receive(&path, (&mut written, partial.as_path()), &mut bytes) else { break };
            failures = if bytes > before { 1 } else { failures + 1 };
            if error.code() != exit::WORLD || matches!(error, Error::File { .. }) || failures >= TRIES {
                let _ = fs::remove_file(&partial);
                return Err(error);
            }
            std::thread::sleep(AGAIN);
        }
        let opened = File::open(&partial).map_err(Error::file("read", &partial))?;
        let bytes = opened.metadata().map_err(Error::file("read", &partial))?.len();
        let found = node::sha256(opened).map_err(Error::file("read", &partial))?;
        if let Some(sha256) = sha256.filter(|sha256| *sha256 != found) {
            let _ = fs::remove_file(&partial);
            let message =
                format!("`{file}` of run `{run}` was modified on the server since it was saved: its SHA-256 differs");
            let hint =
                format!("restore the file whose SHA-256 is {sha256} there; of checkpoints, pull another `--step`");
            return Err(Error::Code { message, hint: Some(hint), code: exit::WORLD });
        }
        fs::rename(&partial, target).map_err(Error::file("write", target))?;
        Ok(bytes)
    }

    /// Writes all of an answer to a file, and counts the bytes.
    fn receive(&self, path: &str, (file, name): (&mut File, &Path), bytes: &mut u64) -> Result<(), Error> {
        let mut body = self.open(path, &[])?;
        let mut part = vec![0; PART];
        loop {
            let read = match body.read(&mut part) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) => return Err(failure::unreached(self.url(), &error.to_string())),
            };
            file.write_all(&part[..read]).map_err(Error::file("write", name))?;
            *bytes += read as u64;
        }
    }
}

/// The address of a file from an offset on.
fn address(run: &RunId, file: &str, offset: u64) -> String {
    let mut address = format!("/v1/runs/{run}/files?offset={offset}&file=");
    for byte in file.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => address.push(byte as char),
            _ => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_part_of_an_address() {
        let run = RunId::new("r-1");
        assert_eq!(address(&run, "export/model.pt", 7), "/v1/runs/r-1/files?offset=7&file=export/model.pt");
        assert_eq!(address(&run, "a b&c=ü", 0), "/v1/runs/r-1/files?offset=0&file=a%20b%26c%3D%C3%BC");
    }
}
