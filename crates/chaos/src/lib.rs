//! Kill points for the chaos test.
//!
//! A process calls [`point`] at the points that matter for recovery. In production that is one atomic load. If a chaos
//! harness was set with [`aim`], the process sends it the point's name over a Unix socket and waits for its reply, so
//! the harness can kill any process of the run at exactly that instant.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The environment variable that names the harness' socket; a `main` reads it and calls [`aim`].
pub const VARIABLE: &str = "GRADUS_CHAOS_SOCKET";

/// Every point there is, in the order a run passes them.
pub const POINTS: [&str; 19] = [
    "launch.before",
    "launch.after",
    "observe.before",
    "observe.after",
    "stage",
    "step",
    "snapshot",
    "rename.before",
    "rename.after",
    "manifest.before",
    "manifest.after",
    "event.before",
    "event.after",
    "export",
    "end.before",
    "end.after",
    "last_events.before",
    "last_events.after",
    "bill",
];

static HARNESS: OnceLock<(PathBuf, &'static str)> = OnceLock::new();

/// Sets the harness' socket and the role of this process (`rank`, `agent` or `loop`), once, at the start of `main`.
pub fn aim(socket: &Path, process: &'static str) {
    let _ = HARNESS.set((socket.to_owned(), process));
}

/// Reports that this process has reached `name`, and waits for the harness' reply if there is a harness.
pub fn point(name: &str) {
    if let Some((socket, process)) = HARNESS.get() {
        report(socket, process, name);
    }
}

/// A harness that is gone must not stop a run, so failures here are ignored.
fn report(socket: &Path, process: &str, name: &str) {
    let Ok(mut stream) = UnixStream::connect(socket) else { return };
    if writeln!(stream, "{process} {} {name}", std::process::id()).is_ok() {
        let _ = stream.read(&mut [0; 1]);
    }
}
