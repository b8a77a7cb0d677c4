//! The tunnel: a connection that carries the calls of a machine's agents to the loop's socket here.
//!
//! It ends with this process, because the command at its other end reads from it. Another loop opens another; agents call
//! again until one of them answers.
//!
//! Each tunnel has a socket of its own there. The name at which agents call is a link to it, which is switched atomically: so
//! another tunnel can take the name, but cannot break this one, and its loop takes the name back.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use super::connection::{Connection, SshError, last_line, quoted};

/// Ensures that the name at which agents call leads to a tunnel's own socket, and prints [`HELD`]; anything else if that socket
/// is gone. The arguments are the folder, the name, and what the socket's name ends with. Sockets and links that no tunnel has
/// asked for in an hour are deleted.
const LINK: &str = r#"cd "$1" 2>/dev/null && [ -S "$2.$3" ] || { echo lost; exit 0; }
touch -c "$2.$3"
[ "$(readlink "$2")" = "$2.$3" ] || {
  ln -sfn "$2.$3" "$2.link-$3" && mv -f "$2.link-$3" "$2" || exit 1
  find . -maxdepth 1 -name "$2.*" -mmin +60 -exec rm -f {} +
}
echo held
"#;

/// What [`LINK`] prints where agents reach the tunnel.
const HELD: &str = "held";

/// What failed where there is no tunnel.
const OPENING: &str = "open a tunnel to the loop";

/// A tunnel, open until this is dropped.
#[derive(Debug)]
pub(crate) struct Tunnel {
    child: Child,
    /// Its end is the tunnel's.
    _input: Option<ChildStdin>,
    /// The name at which agents there call.
    remote: String,
    /// What the name of its own socket ends with.
    id: String,
    /// When its other end was checked last.
    checked: Instant,
}

impl Tunnel {
    /// Opens a tunnel from the Unix socket `remote` there to `local` here, replacing a stale one.
    ///
    /// # Errors
    /// [`SshError`].
    pub fn open(connection: &Connection, remote: &str, local: &Path) -> Result<Tunnel, SshError> {
        let here = |source| SshError::Here { doing: "run `ssh`".to_owned(), source };
        let failed = |why: String| {
            let host = connection.host().to_owned();
            Err(SshError::Failed { host, doing: OPENING.to_owned(), why })
        };
        let id = format!("{:08x}", RandomState::new().hash_one(std::process::id()) & 0xffff_ffff);
        let mut command = connection.forward(&format!("{remote}.{id}"), local);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(here)?;
        let input = child.stdin.take();
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(here)?;
        }
        if line.trim() == "open" {
            let (remote, checked) = (remote.to_owned(), Instant::now());
            let mut tunnel = Tunnel { child, _input: input, remote, id, checked };
            return match tunnel.leads_here(connection, Duration::ZERO)? {
                true => Ok(tunnel),
                false => failed("its socket was removed at once".to_owned()),
            };
        }
        drop(input);
        let complaint = child.wait_with_output().map_err(here)?.stderr;
        let complaint = String::from_utf8_lossy(&complaint);
        failed(last_line(&complaint).map_or_else(|| connection.without_reason(), str::to_owned))
    }

    /// Whether its connection still stands.
    fn is_open(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// One whose connection stands, and whose other end was checked just now.
    #[cfg(test)]
    pub fn standing() -> Tunnel {
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let (remote, id) = ("/nonexistent/loop.sock".to_owned(), "a".to_owned());
        Tunnel { child, _input: None, remote, id, checked: Instant::now() }
    }

    /// Whether agents there reach this process through it; a name that was taken from it is taken back. What was found is
    /// trusted for a while.
    ///
    /// # Errors
    /// [`SshError`] where the machine could not be asked.
    pub fn leads_here(&mut self, connection: &Connection, trusted: Duration) -> Result<bool, SshError> {
        if !self.is_open() {
            return Ok(false);
        }
        if self.checked.elapsed() < trusted {
            return Ok(true);
        }
        let (folder, name) = self.remote.rsplit_once('/').unwrap_or((".", self.remote.as_str()));
        let arguments = [folder, name, self.id.as_str()].map(quoted).join(" ");
        let said = connection.run("check the tunnel to the loop", &format!("sh -s -- {arguments}"), LINK.as_bytes())?;
        self.checked = Instant::now();
        Ok(is_held(&said))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _: io::Result<()> = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_held(said: &[u8]) -> bool {
    String::from_utf8_lossy(said).lines().any(|line| line.trim() == HELD)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    use super::*;

    /// Whether the name leads to the socket of this tunnel once that was checked in a folder.
    fn links(folder: &Path, id: &str) -> bool {
        let mut shell = Command::new("sh");
        shell.args(["-s", "--"]).arg(folder).args(["loop.sock", id]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(LINK.as_bytes()).unwrap();
        is_held(&shell.wait_with_output().unwrap().stdout)
    }

    #[test]
    fn a_name_that_another_tunnel_has_taken_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let target = || fs::read_link(path("loop.sock")).unwrap().to_string_lossy().into_owned();
        let _ours = UnixListener::bind(path("loop.sock.a")).unwrap();
        assert!(links(folder.path(), "a") && target() == "loop.sock.a");
        assert!(UnixStream::connect(path("loop.sock")).is_ok(), "agents call at the name");
        assert!(links(folder.path(), "a") && target() == "loop.sock.a", "nothing has changed");
        // A tunnel of another process.
        let theirs = UnixListener::bind(path("loop.sock.b")).unwrap();
        assert!(links(folder.path(), "b") && target() == "loop.sock.b");
        assert!(links(folder.path(), "a") && target() == "loop.sock.a");
        assert!(path("loop.sock.b").exists(), "it was not broken by ours");
        drop(theirs);
        // One of an earlier version, whose socket has the name itself.
        fs::remove_file(path("loop.sock")).unwrap();
        drop(UnixListener::bind(path("loop.sock")).unwrap());
        assert!(links(folder.path(), "a") && target() == "loop.sock.a");
        fs::remove_file(path("loop.sock")).unwrap();
        assert!(links(folder.path(), "a") && target() == "loop.sock.a", "one that has deleted it");
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["loop.sock", "loop.sock.a", "loop.sock.b"]);
    }

    #[test]
    fn a_tunnel_whose_socket_is_gone_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!links(folder.path(), "a"), "it was never there");
        let socket = UnixListener::bind(folder.path().join("loop.sock.a")).unwrap();
        assert!(links(folder.path(), "a"));
        // `gradus nodes rm` deletes the folder, and `gradus nodes add` makes it again.
        drop(socket);
        fs::remove_file(folder.path().join("loop.sock.a")).unwrap();
        assert!(!links(folder.path(), "a"));
        assert!(!links(&folder.path().join("gone"), "a"));
    }

    #[test]
    fn what_tunnels_have_left_that_ended_long_ago_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let old = std::time::SystemTime::now() - Duration::from_secs(2 * 3600);
        for name in ["loop.sock.old", "loop.sock.new", "loop.lock"] {
            fs::write(path(name), "").unwrap();
        }
        for name in ["loop.sock.old", "loop.lock"] {
            fs::File::options().write(true).open(path(name)).unwrap().set_modified(old).unwrap();
        }
        let _ours = UnixListener::bind(path("loop.sock.a")).unwrap();
        assert!(links(folder.path(), "a"));
        let exists = ["loop.sock.old", "loop.sock.new", "loop.lock", "loop.sock.a"].map(|name| path(name).exists());
        assert_eq!(exists, [false, true, true, true]);
    }
}
