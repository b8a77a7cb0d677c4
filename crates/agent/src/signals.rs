//! SIGTERM and SIGINT, turned into events.
//!
//! The only place in this crate that needs `unsafe`: a signal handler. It writes one byte to a socket that a thread
//! reads, which is async-signal-safe.
#![allow(unsafe_code)]

use std::io::{self, Read};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::Sender;

use crate::event::Wakeup;

static WRITER: AtomicI32 = AtomicI32::new(-1);

/// From now on SIGTERM and SIGINT send [`Wakeup::Signalled`] instead of ending the process.
pub fn watch(events: Sender<Wakeup>) -> io::Result<()> {
    let (mut reader, writer) = UnixStream::pair()?;
    writer.set_nonblocking(true)?;
    // Never closed: the handler may run until the process ends.
    WRITER.store(writer.as_raw_fd(), Ordering::Release);
    let _ = writer.into_raw_fd();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: `handle` makes one system call that is allowed in a handler, on a descriptor that stays open.
        if unsafe { libc::signal(signal, handle as *const () as libc::sighandler_t) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    std::thread::spawn(move || while reader.read_exact(&mut [0]).is_ok() && events.send(Wakeup::Signalled).is_ok() {});
    Ok(())
}

extern "C" fn handle(_: libc::c_int) {
    let byte = 0u8;
    // SAFETY: `errno` is put back as the interrupted code expects it, and `write` reads one byte that lives on this
    // stack. A full socket drops the byte, and then there are enough of them.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(WRITER.load(Ordering::Acquire), (&raw const byte).cast(), 1);
        *errno = before;
    }
}
