//! What goes into the controller and what comes out of it.

use std::collections::BTreeSet;

use domain::rental::{LaunchDetails, ProviderAnswer, ProviderCall};
use domain::run::Keeper;
use domain::wire::{Entry, Heartbeat, HeartbeatReply};
use domain::{Elapsed, Event, InstanceId, Record, RunId, SweepId, Timestamp};
use plan::{Illegal, World};

use super::note::OperationNote;

/// The time of a step, on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// A monotonic clock, for waits and order.
    pub monotonic: Elapsed,
    /// The wall clock: for deadlines, and what people read.
    pub wall: Timestamp,
}

/// Number of a call to a provider. Numbers of different runs of a controller are unrelated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Who waits for a reply; chosen by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyId(pub u64);

/// An input of the controller.
#[derive(Debug, Clone, PartialEq)]
pub enum ControllerInput {
    /// An agent called, and waits.
    Heartbeat {
        /// Who waits.
        from: ReplyId,
        /// The heartbeat.
        heartbeat: Box<Heartbeat>,
    },
    /// A user's request: an event that a user may cause.
    Request {
        /// Who waits.
        from: ReplyId,
        /// The event.
        event: Box<Event>,
    },
    /// The answer to a call. Each call is answered at most once.
    Answered {
        /// Which.
        call: CallId,
        /// The answer.
        answer: ProviderAnswer,
        /// Of a launch that was accepted, what else its provider knows.
        details: LaunchDetails,
    },
    /// All events up to this one are on disk.
    Durable {
        /// Its number.
        seq: u64,
    },
    /// Another process has appended these. They are on disk.
    Appended {
        /// The events, in order.
        records: Vec<Record>,
        /// Runs and sweeps among them that had left memory, in their state after these events.
        recalled: Box<World>,
    },
    /// The subject of the next input had left memory: a run or sweep as it is on disk.
    Recalled(Box<World>),
    /// The work that processes wait for has changed.
    Watched(WatchedWork),
    /// Time has passed.
    Timer,
    /// Check everything, although nothing is due. Work found then is a mistake, and reported as one.
    Audit,
}

/// Work that some process waits for. Other work is neither rented for nor started, only cleaned up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchedWork {
    /// Runs.
    pub runs: BTreeSet<RunId>,
    /// Sweeps, and with them all of their trials.
    pub sweeps: BTreeSet<SweepId>,
    /// Whether everything is waited for, as by a server.
    pub all: bool,
    /// Who waits.
    pub keeper: Keeper,
}

/// An output of the controller; outputs are carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum ControllerOutput {
    /// Append these events, and say when they are durable.
    Append(Vec<Record>),
    /// Ask a provider.
    Call {
        /// To be named with the answer.
        id: CallId,
        /// Which provider.
        provider: String,
        /// What.
        call: ProviderCall,
    },
    /// Reply to an agent.
    Reply(Box<ReplyToAgent>),
    /// Reply to a user: the number of the event, which is durable, or why it cannot be.
    Taken {
        /// Who waits.
        to: ReplyId,
        /// The result.
        result: Result<u64, Illegal>,
    },
    /// Store the measurements among these entries of a machine that is gone.
    Keep {
        /// Of which run.
        run: RunId,
        /// Of which machine.
        instance: InstanceId,
        /// What its agent had written down.
        entries: Vec<Entry>,
    },
    /// Write this into the operations log.
    Note(OperationNote),
    /// Call again at this time at the latest, with [`ControllerInput::Timer`]. Replaces the earlier time.
    WakeAt(Elapsed),
}

/// A reply to an agent. Its commands hold jobs as the log has them: sealed, and without the folder of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyToAgent {
    /// Who waits.
    pub to: ReplyId,
    /// The run whose measurements the heartbeat carried; `None` for an unknown agent.
    pub run: Option<RunId>,
    /// The reply.
    pub reply: HeartbeatReply,
}
