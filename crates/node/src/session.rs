//! Starts a process in a new session, so that Ctrl-C in the terminal does not reach it.
//!
//! The only place in this crate that needs `unsafe`: the code between fork and exec.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal, setsid};

/// Makes the process the leader of a new session.
pub fn own(command: &mut Command) {
    // SAFETY: the closure runs in the forked child and makes one system call; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| setsid().map(|_| ()).map_err(io::Error::from));
    }
}

/// Makes the process the leader of a new session, and kills it with SIGKILL when the thread that starts it ends. So the
/// calling thread must live as long as the process should.
pub fn own_and_bound(command: &mut Command) {
    let parent = getpid();
    // SAFETY: the closure runs in the forked child and makes three system calls; it allocates nothing and takes no
    // lock, and the captured number is plain data.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the line above; then no signal would come.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(3)) }
        });
    }
}
