//! The socket between the agent and one rank.
//!
//! A path of a socket has at most 108 bytes, and homes may have longer paths. Then the path goes through the agent's
//! own handle of the folder, `/proc/<pid>/fd/<n>/…`, which is short and valid while the agent lives.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use domain::AttemptId;
use domain::rank::RankCommand;
use rustix::net::Shutdown;

use crate::event::{AttemptEvent, Wakeup};

/// Longest path supported by every system, with a margin for the suffix.
const LONGEST: usize = 100;

/// Bytes of a line that a process sends, at most: the agent that reads it outlives a program that never ends one.
const LINE_MAX: usize = 16 << 20;

/// Lines that a process may be ahead of what is handled of them: one that sends faster waits.
const AHEAD: usize = 1_000;

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
    let event = |line: String| match serde_json::from_str(&line) {
        Ok(report) => AttemptEvent::Reported(rank, Box::new(report)),
        Err(_) => AttemptEvent::Garbled(rank, line),
    };
    pass_on(stream, event, send);
    Ok(())
}

/// Passes on what a process sends, line by line, until it disconnects.
pub fn pass_on(stream: impl Read, event: impl Fn(String) -> AttemptEvent, send: impl Fn(AttemptEvent) -> bool) {
    for (number, line) in (1_usize..).zip(BoundedLines::new(BufReader::new(stream), LINE_MAX)) {
        if !send(event(line)) {
            return;
        }
        if number.is_multiple_of(AHEAD) {
            let (handled, waits) = channel();
            if !send(AttemptEvent::Reached(handled)) {
                return;
            }
            // Ends once the other end is dropped.
            let _ = waits.recv();
        }
    }
}

/// The lines of a connection, until it ends or breaks off. Of a longer line than allowed only the beginning is kept, which is
/// no report.
struct BoundedLines<R> {
    reader: R,
    most: usize,
}

impl<R: BufRead> BoundedLines<R> {
    /// Lines of at most so many bytes.
    fn new(reader: R, most: usize) -> BoundedLines<R> {
        BoundedLines { reader, most }
    }

    fn read(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let most = u64::try_from(self.most).unwrap_or(u64::MAX);
        let bytes = self.reader.by_ref().take(most.saturating_add(1)).read_until(b'\n', &mut line)?;
        if bytes == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() > self.most {
            line.truncate(self.most);
            self.reader.skip_until(b'\n')?;
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }
}

impl<R: BufRead> Iterator for BoundedLines<R> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.read().ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_reports_faster_than_is_handled_waits() {
        let (events, inbox) = channel();
        let sent = std::thread::spawn(move || {
            let text = "x\n".repeat(2 * AHEAD + 1);
            pass_on(text.as_bytes(), |line| AttemptEvent::Garbled(0, line), |event| events.send(event).is_ok());
        });
        let (mut lines, mut waits) = (0, 0);
        while let Ok(event) = inbox.recv() {
            match event {
                AttemptEvent::Garbled(..) => lines += 1,
                AttemptEvent::Reached(handled) => {
                    waits += 1;
                    assert!(inbox.recv_timeout(WRITE).is_err(), "it goes on before that is handled");
                    drop(handled);
                }
                other => panic!("{other:?}"),
            }
        }
        sent.join().unwrap();
        assert_eq!((lines, waits), (2 * AHEAD + 1, 2));
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_a_long_one() {
        let check = |text: &[u8], expected: &[&str]| {
            let lines: Vec<String> = BoundedLines::new(BufReader::new(text), 4).collect();
            assert_eq!(lines, expected);
        };
        check(b"", &[]);
        check(b"one\n\ntwo", &["one", "", "two"]);
        check(b"four\nmore", &["four", "more"]);
        check(b"a long one\nb\n", &["a lo", "b"]);
        check(b"a long one", &["a lo"]);
        check(b"\xff\n", &["\u{fffd}"]);
        // More is read than is kept.
        let endless = BufReader::new(io::repeat(b'x').take(100 << 20));
        assert_eq!(BoundedLines::new(endless, 1 << 10).map(|line| line.len()).collect::<Vec<_>>(), [1 << 10]);
    }
}
