//! The tunnel: a connection that carries the calls of a machine's agents to the loop's socket here.
//!
//! It ends with this process, because the command at its other end reads from it. Another loop opens another; agents call
//! again until one of them answers.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};

use super::connection::{Connection, SshError, quoted};

/// A tunnel, open until this is dropped.
#[derive(Debug)]
pub(crate) struct Tunnel {
    child: Child,
    /// Its end is the tunnel's.
    _input: Option<ChildStdin>,
}

impl Tunnel {
    /// Opens a tunnel from the Unix socket `remote` there to `local` here, replacing a stale one.
    ///
    /// # Errors
    /// [`SshError`].
    pub fn open(connection: &Connection, remote: &str, local: &Path) -> Result<Tunnel, SshError> {
        connection.run("remove an old socket", &format!("rm -f {}", quoted(remote)), &[])?;
        let here = |source| SshError::Here { doing: "run `ssh`".to_owned(), source };
        let mut command = connection.forward(remote, local);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(here)?;
        let input = child.stdin.take();
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(here)?;
        }
        if line.trim() == "open" {
            return Ok(Tunnel { child, _input: input });
        }
        drop(input);
        let why = child.wait_with_output().map_err(here)?.stderr;
        let why = String::from_utf8_lossy(&why).lines().last().unwrap_or("it said nothing").trim().to_owned();
        let host = connection.host().to_owned();
        Err(SshError::Failed { host, doing: "open a tunnel to the loop".to_owned(), why })
    }

    /// Whether it still stands.
    pub fn is_open(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _: io::Result<()> = self.child.kill();
        let _ = self.child.wait();
    }
}
