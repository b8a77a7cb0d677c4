//! The socket between the agent and one rank.
//!
//! A path of a socket has at most 108 bytes, and homes may have longer paths. Then the path goes through the agent's
//! own handle of the folder, `/proc/<pid>/fd/<n>/…`, which is short and valid while the agent lives.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use domain::AttemptId;
use domain::rank::RankCommand;
use rustix::net::Shutdown;

use crate::event::{AttemptEvent, Wakeup};

/// Longest path supported by every system, with a margin for the suffix.
const LONGEST: usize = 100;

/// A rank reads its orders at once; one that does not will be killed anyway.
const WRITE: Duration = Duration::from_millis(100);

/// A short enough path of a socket, and the folder that has to stay open for it.
pub fn short(file: &Path) -> io::Result<(PathBuf, File)> {
    let handle = File::open(file.parent().unwrap_or(Path::new(".")))?;
    if file.as_os_str().len() <= LONGEST {
        return Ok((file.to_owned(), handle));
    }
    let short = Path::new("/proc").join(std::process::id().to_string()).join("fd");
    let short = short.join(handle.as_raw_fd().to_string()).join(file.file_name().unwrap_or_default());
    Ok((short, handle))
}

/// One rank's socket.
pub struct RankSocket {
    listener: UnixListener,
    path: PathBuf,
    file: PathBuf,
    /// Keeps the short path valid.
    _folder: File,
    stream: Option<UnixStream>,
    /// Commands sent before the rank connected.
    waiting: Vec<RankCommand>,
    is_silent: bool,
}

impl RankSocket {
    /// Listens in `folder` for this rank of `attempt`; its reports go to `events`.
    pub fn listen(folder: &Path, attempt: &AttemptId, rank: u32, events: Sender<Wakeup>) -> io::Result<RankSocket> {
        let name = format!("{attempt}-{rank}.sock");
        let file = folder.join(&name);
        let (path, handle) = short(&file)?;
        let listener = store::listen(&path)?;
        let accepting = listener.try_clone()?;
        let attempt = attempt.clone();
        std::thread::spawn(move || {
            let send = |event| events.send(Wakeup::Attempt(attempt.clone(), event)).is_ok();
            let _ = read(&accepting, rank, send);
            send(AttemptEvent::Silent(rank));
        });
        Ok(RankSocket { listener, path, file, _folder: handle, stream: None, waiting: Vec::new(), is_silent: false })
    }

    /// The path that the rank connects to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The rank has connected.
    pub fn connected(&mut self, stream: UnixStream) {
        let _ = stream.set_write_timeout(Some(WRITE));
        self.stream = Some(stream);
        for order in std::mem::take(&mut self.waiting) {
            self.order(order);
        }
    }

    /// Sends an order, or keeps it until the rank connects.
    pub fn order(&mut self, order: RankCommand) {
        match &mut self.stream {
            Some(stream) => {
                // A rank that cannot be reached is killed at its deadline.
                let _ = serde_json::to_string(&order).map(|line| writeln!(stream, "{line}"));
            }
            None => self.waiting.push(order),
        }
    }

    /// Stops accepting connections. An earlier connection that was not noticed yet is still read to its end.
    pub fn stop_listening(&self) {
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
    }

    /// Marks the connection as read to its end.
    pub fn silent(&mut self) {
        self.is_silent = true;
    }

    /// Whether the connection was read to its end.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }
}

impl Drop for RankSocket {
    fn drop(&mut self) {
        self.stop_listening();
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        let _ = fs::remove_file(&self.file);
    }
}

fn read(listener: &UnixListener, rank: u32, send: impl Fn(AttemptEvent) -> bool) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    send(AttemptEvent::Connected(rank, stream.try_clone()?));
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let event = match serde_json::from_str(&line) {
            Ok(report) => AttemptEvent::Reported(rank, Box::new(report)),
            Err(_) => AttemptEvent::Garbled(rank, line),
        };
        if !send(event) {
            break;
        }
    }
    Ok(())
}
