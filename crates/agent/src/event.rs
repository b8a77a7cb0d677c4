//! Everything that can wake the agent, in one place.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use domain::rank::{Report, SignOfLife};
use domain::wire::HeartbeatReply;
use domain::{AttemptId, Finding};

use crate::travel::Brought;

/// What woke the agent.
#[derive(Debug)]
pub enum Wakeup {
    /// Something about an attempt, which may be over by now.
    Attempt(AttemptId, AttemptEvent),
    /// The loop's answer to a call, or why there is none.
    Answered(Result<HeartbeatReply, String>),
    /// A signal asked the agent to end.
    Signalled,
    /// The provider takes the machine back after so long.
    ReclaimNotice(Duration),
    /// Something is due.
    Timer,
}

/// What the work needs: a program's folder, or data.
#[derive(Debug)]
pub struct StagedInput {
    /// Where it is.
    pub path: PathBuf,
    /// Who serves its pieces, where it looks only as if it were here.
    pub served: Option<Serving>,
    /// Copies on this machine of what the job names on the loop's.
    pub brought: Brought,
}

/// Who serves data that lies elsewhere, and the folder that keeps the way to its socket open.
pub type Serving = (store::Served, File);

/// A file or folder that is here.
impl From<PathBuf> for StagedInput {
    fn from(path: PathBuf) -> StagedInput {
        StagedInput { path, served: None, brought: Brought::new() }
    }
}

/// What happened to an attempt.
#[derive(Debug)]
pub enum AttemptEvent {
    /// What the work needs is on this machine, or why it is not.
    Staged(Result<StagedInput, Finding>),
    /// The rank of this number has opened its socket; of a user's program the connection of this number.
    Connected(u32, UnixStream),
    /// The rank reported.
    Reported(u32, Box<Report>),
    /// A process of a user's program is alive.
    Lives(u32, SignOfLife),
    /// The rank has sent a line that is no report.
    Garbled(u32, String),
    /// No more reports of this rank will come.
    Silent(u32),
    /// The process with this number has ended.
    Exited(u32),
    /// What its threads stand at is written down, or cannot be.
    StacksRecorded,
    /// What it has written is on the loop's machine, or why not all of it is.
    Uploaded(Result<(), String>),
}
