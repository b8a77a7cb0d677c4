//! Files of a server's runs, copied to this machine.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use domain::RunId;

use super::{Server, failure};
use crate::error::{Error, exit};

/// So often in succession a connection may break off before anything has come over it.
const TRIES: u32 = 5;

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(500);

/// Bytes that are written at a time.
const PART: usize = 1 << 18;

impl Server {
    /// The names of a run's files on the server's machine, such as `export/model.safetensors`.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn files(&self, run: &RunId) -> Result<Vec<String>, Error> {
        let listed = self.get(&format!("/v1/runs/{run}/files"))?;
        let files = listed["files"].as_array().into_iter().flatten();
        Ok(files.filter_map(|file| file["file"].as_str().map(str::to_owned)).collect())
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
            let path = format!("/v1/runs/{run}/files?file={file}&offset={bytes}");
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
                format!("`{file}` of run `{run}` was modified on the server after training: its SHA-256 differs");
            let hint = format!("restore the file whose SHA-256 is {sha256} there, or train again");
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
