//! Everything that can wake the agent, in one place.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use domain::rank::Report;
use domain::wire::Orders;
use domain::{AttemptId, Finding};

/// What woke the agent.
#[derive(Debug)]
pub enum Event {
    /// Something about an attempt, which may be over by now.
    Attempt(AttemptId, Happening),
    /// The loop's answer to a call, or why there is none.
    Answered(Result<Orders, String>),
    /// A signal asked the agent to end.
    Signalled,
    /// Something is due.
    Timer,
}

/// What happened to an attempt.
#[derive(Debug)]
pub enum Happening {
    /// What the work needs is on this machine, or why it is not: a program's folder, or data, whose path is told.
    Staged(Result<PathBuf, Finding>),
    /// The rank of this number has opened its socket.
    Connected(u32, UnixStream),
    /// The rank reported.
    Reported(u32, Box<Report>),
    /// The rank has sent a line that is no report.
    Garbled(u32, String),
    /// No more reports of this rank will come.
    Silent(u32),
    /// The process with this number has ended.
    Exited(u32),
}
