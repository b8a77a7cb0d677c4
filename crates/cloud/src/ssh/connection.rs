//! Commands on another machine, by the system's `ssh` with the user's own configuration, keys and jump hosts.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::inventory::Host;

/// Exit code of `ssh` for a failed connection.
const NO_CONNECTION: i32 = 255;

/// Why something could not be done on another machine.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// It could not be reached.
    #[error("cannot connect to `{host}` by SSH: {why}")]
    Connect {
        /// The name of the node.
        host: String,
        /// The message of `ssh`.
        why: String,
    },
    /// A command there failed.
    #[error("on `{host}`: cannot {doing}: {why}")]
    Failed {
        /// The name of the node.
        host: String,
        /// The operation.
        doing: String,
        /// The message of the command.
        why: String,
    },
    /// `ssh` or a file here could not be used.
    #[error("cannot {doing}: {source}")]
    Here {
        /// The operation.
        doing: String,
        /// Why not.
        source: io::Error,
    },
}

/// How to reach one machine. Commands share one connection, which `ssh` keeps for a minute.
#[derive(Debug, Clone)]
pub struct Connection {
    host: String,
    address: String,
    config: Option<PathBuf>,
    /// Where the shared connection is found.
    control: PathBuf,
}

impl Connection {
    /// The connection to a node, shared by the processes of one owner.
    pub fn new(host: &Host, owner: &str) -> Connection {
        let short: String = owner.chars().rev().take(8).collect();
        Connection {
            host: host.name.clone(),
            address: host.address.clone(),
            config: host.config.clone(),
            // `%C` is a hash of address, port and user; a socket's name must be short.
            control: std::env::temp_dir().join(format!("gradus-{short}-%C")),
        }
    }

    /// The name of the node.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// `ssh` with common options; further options and the command are to be added.
    fn ssh(&self) -> Command {
        let mut ssh = Command::new("ssh");
        if let Some(config) = &self.config {
            ssh.arg("-F").arg(config);
        }
        // Passwords cannot be entered, and a machine that is gone must be noticed.
        for option in ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"] {
            ssh.arg("-o").arg(option);
        }
        ssh
    }

    /// A command on the machine, not started yet.
    pub fn command(&self, remote: &str) -> Command {
        let mut ssh = self.ssh();
        ssh.arg("-T").args(["-o", "ControlMaster=auto", "-o", "ControlPersist=60"]);
        ssh.arg("-o").arg(format!("ControlPath={}", self.control.display()));
        ssh.arg(&self.address).arg("--").arg(remote);
        ssh
    }

    /// A separate connection that forwards `remote`, a Unix socket there, to `local`, one here, until its standard
    /// input ends.
    pub fn forward(&self, remote: &str, local: &std::path::Path) -> Command {
        let mut ssh = self.ssh();
        ssh.arg("-T").args(["-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes"]);
        ssh.arg("-R").arg(format!("{remote}:{}", local.display()));
        ssh.arg(&self.address).arg("--").arg("echo open; cat > /dev/null");
        ssh
    }

    /// An interactive shell or command on the machine.
    pub fn interactive(&self, remote: &[String]) -> Command {
        let mut ssh = Command::new("ssh");
        if let Some(config) = &self.config {
            ssh.arg("-F").arg(config);
        }
        ssh.arg(&self.address).args(remote);
        ssh
    }

    /// Runs a command with this standard input; returns its output.
    ///
    /// # Errors
    /// [`SshError`].
    pub fn run(&self, doing: &str, remote: &str, input: &[u8]) -> Result<Vec<u8>, SshError> {
        self.feed(doing, remote, |pipe| pipe.write_all(input))
    }

    /// Runs a command whose standard input `write` writes; returns its output.
    ///
    /// # Errors
    /// [`SshError`].
    pub fn feed(
        &self,
        doing: &str,
        remote: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Vec<u8>, SshError> {
        let here = |source| SshError::Here { doing: format!("run `ssh {}`", self.address), source };
        let mut command = self.command(remote);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(here)?;
        let (output, complaint) = drain(&mut child);
        let written = child.stdin.take().map_or(Ok(()), |mut pipe| write(&mut pipe));
        let status = child.wait().map_err(here)?;
        let (output, complaint) = (joined(output), joined(complaint));
        if status.success() {
            // Input that a successful command did not read is ignored.
            return Ok(output);
        }
        let why = last_line(&complaint).unwrap_or_else(|| format!("it ended with {status}"));
        if status.code() == Some(NO_CONNECTION) {
            return Err(SshError::Connect { host: self.host.clone(), why });
        }
        let why = match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => format!("{why} ({error})"),
            _ => why,
        };
        Err(SshError::Failed { host: self.host.clone(), doing: doing.to_owned(), why })
    }
}

type Drain = Option<std::thread::JoinHandle<Vec<u8>>>;

/// Reads both outputs while the input is still being written.
fn drain(child: &mut Child) -> (Drain, Drain) {
    fn read(pipe: Option<impl Read + Send + 'static>) -> Drain {
        let mut pipe = pipe?;
        Some(std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        }))
    }
    (read(child.stdout.take()), read(child.stderr.take()))
}

fn joined(drain: Drain) -> Vec<u8> {
    drain.and_then(|thread| thread.join().ok()).unwrap_or_default()
}

fn last_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// Quotes an argument for a shell.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for word in ["plain", "with space", "it's", "$HOME `id` \"x\"", ""] {
            let output = Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(word))).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn the_last_line_that_says_something_is_the_reason() {
        assert_eq!(
            last_line(b"Warning: added\nPermission denied (publickey).\r\n\n").unwrap(),
            "Permission denied (publickey)."
        );
        assert_eq!(last_line(b" \n"), None);
    }
}
