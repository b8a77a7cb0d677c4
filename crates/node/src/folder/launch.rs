//! The launch specification of an agent: `launch.json` in the folder of its instance.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use domain::joining::{AccessSecret, AgentServer};
use domain::{Duration, InstanceId};
use serde::{Deserialize, Serialize};

use super::{Folder, found};
use crate::durable;

/// The version of the files in the folder.
pub const SCHEMA: u32 = 1;

/// The launch specification of an agent, stored in `launch.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// Version of this file.
    pub schema: u32,
    /// Name of the instance.
    pub instance: InstanceId,
    /// The token of its launch request.
    pub token: String,
    /// The home that it was launched from: the tag of all its processes.
    pub owner: String,
    /// Unix socket of the loop.
    pub socket: PathBuf,
    /// The executable `gradus-rank`.
    pub rank_program: PathBuf,
    /// Folder of the libtorch, when one was found.
    pub libtorch: Option<PathBuf>,
    /// Whether the loop is on another machine: files of runs are transferred, and are in `runs/` next to `instances/`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_remote: bool,
    /// Where other machines reach this one, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// How long the agent may wait for the loop's first answer, if shorter than its own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_answer: Option<Duration>,
    /// Where the agent reaches the loop directly; `None` for one that does so at the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<AgentServer>,
}

/// The part of `launch.json` that all versions have in common, read first.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

impl Folder {
    /// Reads the launch specification; `None` if there is none.
    ///
    /// # Errors
    /// If the file cannot be read, is malformed, or was written by a later version.
    pub fn launch_spec(&self) -> io::Result<Option<LaunchSpec>> {
        let Some(text) = found(fs::read_to_string(self.path().join("launch.json")))? else { return Ok(None) };
        let Version { schema } = serde_json::from_str(&text)?;
        if schema > SCHEMA {
            let message = format!("`launch.json` is of version {schema}, and this program reads up to {SCHEMA}");
            return Err(io::Error::other(message));
        }
        Ok(Some(serde_json::from_str(&text)?))
    }

    /// Writes the launch specification atomically.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write_launch_spec(&self, spec: &LaunchSpec) -> io::Result<()> {
        durable::replace(&self.path().join("launch.json"), &serde_json::to_vec_pretty(spec)?)
    }

    /// The file with the token with which the agent joins its server; the agent deletes it when it has.
    pub fn join_token(&self) -> PathBuf {
        self.path().join("join.token")
    }

    /// The file with the secret that the agent has drawn, by which its server recognises it.
    pub fn session_secret(&self) -> PathBuf {
        self.path().join("session.key")
    }

    /// The file that says why the agent could not join its server.
    pub fn join_log(&self) -> PathBuf {
        self.path().join("join.log")
    }
}

/// Reads what [`write_secret`] has written; `None` if there is no such file.
///
/// # Errors
/// If the file cannot be read.
pub fn read_secret(path: &Path) -> io::Result<Option<AccessSecret>> {
    Ok(found(fs::read_to_string(path))?.map(|text| AccessSecret(text.trim().to_owned())))
}

/// Writes a file that only this user can read. It outlasts a loss of power: a server that knows the secret lets no other in.
///
/// # Errors
/// If the file cannot be written.
pub fn write_secret(path: &Path, secret: &AccessSecret) -> io::Result<()> {
    durable::replace(path, format!("{}\n", secret.0).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::temporary;
    use super::*;

    #[test]
    fn a_launch_spec_reads_back() {
        let (_temporary, folder) = temporary();
        assert_eq!(folder.launch_spec().unwrap(), None);
        let spec = LaunchSpec {
            schema: SCHEMA,
            instance: InstanceId::new("digits-1-i1"),
            token: "t".into(),
            owner: "o".into(),
            socket: "/home/loop.sock".into(),
            rank_program: "/usr/bin/gradus-rank".into(),
            libtorch: None,
            is_remote: false,
            address: None,
            first_answer: None,
            server: None,
        };
        folder.write_launch_spec(&spec).unwrap();
        assert_eq!(folder.launch_spec().unwrap(), Some(spec.clone()));
        // An earlier version's file is read; a later version's is refused by its version, whatever its contents.
        folder.write_launch_spec(&LaunchSpec { schema: SCHEMA - 1, ..spec }).unwrap();
        assert_eq!(folder.launch_spec().unwrap().unwrap().schema, SCHEMA - 1);
        fs::write(folder.path().join("launch.json"), r#"{"schema": 2, "name": "digits-1-i1"}"#).unwrap();
        let error = folder.launch_spec().unwrap_err().to_string();
        assert!(error.contains("version 2"), "{error}");
    }

    #[test]
    fn a_secret_is_read_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let (_temporary, folder) = temporary();
        let path = folder.join_token();
        assert_eq!(read_secret(&path).unwrap(), None);
        fs::write(path.with_extension("partial"), "of one that broke off").unwrap();
        for text in ["first", "second"] {
            let secret = AccessSecret(text.to_owned());
            write_secret(&path, &secret).unwrap();
            assert_eq!(read_secret(&path).unwrap(), Some(secret));
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
