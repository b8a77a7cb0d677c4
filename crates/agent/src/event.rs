//! Every event that can wake the agent, in one enum.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

use domain::rank::{Report, SignOfLife};
use domain::wire::HeartbeatReply;
use domain::{AttemptId, Finding};
use node::SpoolPart;

use crate::attempt::program::{Container, SetupKey};
use crate::attempt::workdir::Placed;
use crate::origin::OriginWatch;
use crate::travel::{Brought, UploadFailure};

/// What woke the agent.
#[derive(Debug)]
pub enum Wakeup {
    /// Something about an attempt, which may be over by now.
    Attempt(AttemptId, AttemptEvent),
    /// The loop's answer to a call, or why there is none.
    Answered(Result<HeartbeatReply, String>),
    /// Measurements that were read back from the spool.
    ReadBack(SpoolPart),
    /// A signal asked the agent to end.
    Signalled,
    /// The provider takes the machine back after so long.
    ReclaimNotice(Duration),
    /// What the machine's GPUs do, or something that a person should know of it.
    OfMachine(Report),
    /// Something is due.
    Timer,
}

/// The inputs of the work: a program's folder, or data.
#[derive(Debug)]
pub struct StagedInput {
    /// Its path.
    pub path: PathBuf,
    /// The server of its chunks, if it is a placeholder for remote data.
    pub served: Option<Serving>,
    /// Copies on this machine of the job's inputs on the loop's.
    pub brought: Brought,
    /// What `file_mounts` has put on this machine, for as long as this lives.
    pub placed: Option<Placed>,
    /// The container that the program runs in.
    pub container: Option<Container>,
    /// What its set-up starts from, where an equal one need not be repeated.
    pub setup: Option<SetupKey>,
    /// What a person should know of it.
    pub note: Option<String>,
}

/// The server of remote data.
#[derive(Debug)]
pub struct Serving {
    /// What it serves.
    pub served: store::Served,
    /// The folder handle that keeps the path of its socket valid.
    pub _handle: File,
    /// Whether its origin answers.
    pub origin: OriginWatch,
}

/// A file or folder that is here.
impl From<PathBuf> for StagedInput {
    fn from(path: PathBuf) -> StagedInput {
        StagedInput {
            path,
            served: None,
            brought: Brought::default(),
            placed: None,
            container: None,
            setup: None,
            note: None,
        }
    }
}

/// An event of an attempt.
#[derive(Debug)]
pub enum AttemptEvent {
    /// The inputs of the work are on this machine, or why not.
    Staged(Result<Box<StagedInput>, Box<Finding>>),
    /// The rank of this number has opened its socket; of a user's program the connection of this number.
    Connected(u32, UnixStream),
    /// The rank reported.
    Reported(u32, Box<Report>),
    /// Something that was seen of a user's program, which has not said it itself.
    Observed(Box<Report>),
    /// A user's program has ended, and all that can be seen of it was sent.
    ObservedAll,
    /// A heartbeat of a process of a user's program.
    Lives(u32, SignOfLife),
    /// The rank has sent a line that is no report.
    Garbled(u32, String),
    /// What a process has sent up to here is handled once this is dropped; until then it is not read on.
    Reached(Sender<()>),
    /// No more reports of this rank will come.
    Silent(u32),
    /// The process with this number has ended.
    Exited(u32),
    /// What its threads stand at is written down, or cannot be.
    StacksRecorded,
    /// All outputs are on the loop's machine, or why not.
    Uploaded(Result<(), Box<UploadFailure>>),
    /// More of them than ever before is there.
    UploadMoved,
    /// So many bytes of them are left to send.
    UploadLeft(u64),
    /// The loop's machine has no space for them, for this reason; they are sent again until there is.
    UploadWaits(String),
}
