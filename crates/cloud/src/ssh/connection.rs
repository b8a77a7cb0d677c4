//! Commands on another machine, by the system's `ssh` with the user's own configuration, keys and jump hosts.
//!
//! Commands share one connection, and where that breaks, `ssh` gives no reason. So a command begins only once it is asked to
//! ([`exchange`]): one that has not begun is tried once more over a connection of its own, and one that has is never run again
//! ([`verdict`]).

mod exchange;
mod verdict;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::inventory::Host;
use verdict::TryVerdict;
pub(super) use verdict::last_line;

/// Within this time a shell there is ready for a command. A machine that is slow has it twice.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Options of a connection that is not shared.
const OWN: [&str; 4] = ["-o", "LogLevel=INFO", "-o", "ControlPath=none"];

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
    /// The connection broke while a command ran there, which may have done its work or not.
    #[error("on `{host}`: cannot {doing}: the SSH connection broke")]
    Broken {
        /// The name of the node.
        host: String,
        /// The operation.
        doing: String,
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
    /// The program `ssh`.
    program: PathBuf,
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
            program: PathBuf::from("ssh"),
            // `%C` is a hash of address, port and user; a socket's name must be short.
            control: std::env::temp_dir().join(format!("gradus-{short}-%C")),
        }
    }

    /// The name of the node.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// `ssh` with the configuration of this machine.
    fn configured(&self) -> Command {
        let mut ssh = Command::new(&self.program);
        if let Some(config) = &self.config {
            ssh.arg("-F").arg(config);
        }
        ssh
    }

    /// `ssh` with common options; further options and the command are to be added.
    fn ssh(&self) -> Command {
        let mut ssh = self.configured();
        // Passwords cannot be entered, and a machine that is gone must be noticed.
        for option in ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"] {
            ssh.arg("-o").arg(option);
        }
        ssh
    }

    /// A command on the machine over the shared connection, not started yet. It begins at once, and is not tried again.
    pub fn command(&self, remote: &str) -> Command {
        self.command_over(remote, true)
    }

    /// The same, over the shared connection or one of its own.
    fn command_over(&self, remote: &str, is_shared: bool) -> Command {
        let mut ssh = self.ssh();
        ssh.arg("-T");
        match is_shared {
            true => {
                // What is no error, such as a banner, must not be taken for the reason of a failure.
                ssh.args(["-o", "LogLevel=ERROR", "-o", "ControlMaster=auto", "-o", "ControlPersist=60"]);
                ssh.arg("-o").arg(format!("ControlPath={}", self.control.display()));
            }
            false => {
                ssh.args(OWN);
            }
        }
        ssh.arg(&self.address).arg("--").arg(remote);
        ssh
    }

    /// A separate connection that forwards `remote`, a Unix socket there, to `local`, one here, until its standard
    /// input ends.
    pub fn forward(&self, remote: &str, local: &std::path::Path) -> Command {
        let mut ssh = self.ssh();
        ssh.arg("-T").args(OWN).args(["-o", "ExitOnForwardFailure=yes"]);
        ssh.arg("-R").arg(format!("{remote}:{}", local.display()));
        ssh.arg(&self.address).arg("--").arg("echo open; cat > /dev/null");
        ssh
    }

    /// An interactive shell or command on the machine.
    pub fn interactive(&self, remote: &[String]) -> Command {
        let mut ssh = self.configured();
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
        let remote = exchange::waiting(remote);
        // A command that has begun has taken it.
        let mut write = Some(write);
        let mut input = |pipe: &mut dyn Write| write.take().map_or(Ok(()), |write| write(pipe));
        let mut attempt = |is_shared: bool| {
            let ssh = self.command_over(&remote, is_shared);
            let tried = exchange::attempt(ssh, READY_WITHIN, &mut input).map_err(here)?;
            Ok::<_, SshError>((verdict::judge(&tried.facts, is_shared), tried))
        };
        let (mut verdict, mut tried) = attempt(true)?;
        if verdict == TryVerdict::Again {
            (verdict, tried) = attempt(false)?;
        }
        let (host, doing) = (self.host.clone(), doing.to_owned());
        match verdict {
            // Input that a successful command did not read is ignored.
            TryVerdict::Done => Ok(tried.output),
            TryVerdict::Unreached(Some(why)) => Err(SshError::Connect { host, why }),
            TryVerdict::Unreached(None) | TryVerdict::Again => {
                Err(SshError::Connect { host, why: self.without_reason() })
            }
            TryVerdict::Broken => Err(SshError::Broken { host, doing }),
            TryVerdict::Failed(why) => {
                let why = match tried.written {
                    Err(error) if error.kind() != io::ErrorKind::BrokenPipe => format!("{why} ({error})"),
                    _ => why,
                };
                Err(SshError::Failed { host, doing, why })
            }
        }
    }

    /// What is reported of an `ssh` that has failed without a message, with what to type to see more.
    pub(super) fn without_reason(&self) -> String {
        let config = self.config.as_ref().map_or(String::new(), |config| format!("-F {} ", config.display()));
        format!("`ssh` gave no reason; `ssh -v {config}{} true` shows where it stops", self.address)
    }
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

    /// A machine behind a stand-in for `ssh`: a script, in which `$over` is `shared` or `own`, and `$last` what the shell there
    /// runs.
    struct ScriptedMachine {
        folder: tempfile::TempDir,
        connection: Connection,
    }

    impl ScriptedMachine {
        fn new(script: &str) -> ScriptedMachine {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            let begin = "over=own; for word do case $word in ControlMaster=auto) over=shared;; esac; last=$word; done";
            let calls = format!("echo $over >> {}", quoted(&path("calls").to_string_lossy()));
            std::fs::write(path("draft"), format!("#!/bin/sh\n{begin}\n{calls}\n{script}\n")).unwrap();
            // Written by another process: while a child that another test starts has the file open, nobody can execute it.
            let mut install = Command::new("install");
            install.args(["-m", "755"]).args([path("draft"), path("ssh")]);
            assert!(install.status().unwrap().success());
            let host = Host {
                name: "west".into(),
                address: "me@west".into(),
                config: None,
                pool: None,
                reach: crate::ssh::NodeReach::Tunnel,
                rate: domain::Rate::default(),
                node: domain::Node::default(),
                is_drained: false,
                is_prepared: true,
                facts: None,
                link: None,
            };
            let connection = Connection { program: path("ssh"), ..Connection::new(&host, "me") };
            ScriptedMachine { folder, connection }
        }

        fn read(&self, name: &str) -> String {
            std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
        }

        /// Runs a command that leaves a trace; what came of it, over which connections it was tried, and how often it has run.
        fn check(&self, remote: &str, input: &[u8]) -> (Result<String, String>, String, usize) {
            let trace = quoted(&self.folder.path().join("trace").to_string_lossy());
            let result = self.connection.run("count", &format!("echo ran >> {trace}; {remote}"), input);
            let result = result.map(|output| String::from_utf8(output).unwrap()).map_err(|error| error.to_string());
            (result, self.read("calls").replace('\n', " "), self.read("trace").lines().count())
        }
    }

    const BROKEN: &str = "on `west`: cannot count: the SSH connection broke";

    #[test]
    fn a_command_that_a_dying_shared_connection_has_not_begun_runs_over_its_own() {
        let machine = ScriptedMachine::new("[ $over = own ] || exit 255; exec sh -c \"$last\"");
        let (result, calls, ran) = machine.check("cat", b"the whole input");
        assert_eq!((result, &*calls, ran), (Ok("the whole input".to_owned()), "shared own ", 1));
        // What another program there prints is not the sign that the command may begin.
        let machine = ScriptedMachine::new("[ $over = own ] || { echo welcome; exit 255; }; exec sh -c \"$last\"");
        let (result, calls, ran) = machine.check("cat", b"");
        assert_eq!((result, &*calls, ran), (Ok(String::new()), "shared own ", 1));
    }

    #[test]
    fn a_command_that_has_begun_when_its_connection_breaks_is_not_run_again() {
        let machine = ScriptedMachine::new("sh -c \"$last\"; exit 255");
        assert_eq!(machine.check("cat", b"input"), (Err(BROKEN.to_owned()), "shared ".to_owned(), 1));
    }

    #[test]
    fn a_command_that_a_signal_has_ended_is_not_taken_for_a_connection() {
        let machine = ScriptedMachine::new("exec sh -c \"$last\"");
        let (result, calls, ran) = machine.check("kill -KILL $$", b"");
        let why = result.unwrap_err();
        assert!(why.starts_with("on `west`: cannot count: it was killed by signal 9"), "{why}");
        assert_eq!((&*calls, ran), ("shared ", 1));
        let (result, ..) = ScriptedMachine::new("exec sh -c \"$last\"").check("exit 255", b"");
        assert_eq!(result.unwrap_err(), "on `west`: cannot count: it ended with exit code 254");
    }

    #[test]
    fn a_machine_that_cannot_be_reached_is_reported_with_a_reason() {
        let (result, calls, ran) = ScriptedMachine::new("exit 255").check("cat", b"");
        let why = result.unwrap_err();
        assert!(why.starts_with("cannot connect to `west` by SSH: ") && why.contains("`ssh -v me@west true`"), "{why}");
        assert_eq!((&*calls, ran), ("shared own ", 0));
        // A reason of the machine is one for every connection.
        let machine = ScriptedMachine::new("echo 'me@west: Permission denied (publickey).' >&2; exit 255");
        let (result, calls, _) = machine.check("cat", b"");
        let expected = "cannot connect to `west` by SSH: me@west: Permission denied (publickey).";
        assert_eq!((result.unwrap_err().as_str(), &*calls), (expected, "shared "));
    }

    #[test]
    fn what_a_shell_prints_before_a_command_is_not_its_output() {
        let machine = ScriptedMachine::new("echo welcome; printf prompt; exec sh -c \"$last\"");
        let large = "line\n".repeat(100_000);
        let (result, calls, ran) = machine.check("cat", large.as_bytes());
        assert!(result.is_ok_and(|output| output == large) && calls == "shared " && ran == 1);
    }
}
