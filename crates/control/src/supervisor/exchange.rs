//! What the agent's state machine is passed, and what it asks for.

use domain::run::AttemptEnd;
use domain::wire::{AgentEvent, Entry, Heartbeat, HeartbeatReply, NodeAddress, Start};
use domain::{AttemptId, Elapsed};

use super::backlog::SpoolRange;
use super::reason::{Departure, StopReason};

/// An input of the supervisor.
#[derive(Debug, Clone, PartialEq)]
pub enum SupervisorInput {
    /// The call in flight was answered; `None` if it failed.
    Answered(Option<Box<HeartbeatReply>>),
    /// The attempt that runs has these to report.
    Happened {
        /// The attempt; inputs about another one are ignored.
        attempt: AttemptId,
        /// What, oldest first.
        events: Vec<AgentEvent>,
    },
    /// The attempt has ended without leftovers; or it could not start.
    Ended {
        /// Which.
        attempt: AttemptId,
        /// How it ended.
        end: AttemptEnd,
    },
    /// A signal asked the agent to end.
    Signalled,
    /// The provider has announced that it reclaims the machine after this time.
    ReclaimNotice(Elapsed),
    /// What the spool has of the range that was asked for last, up to entry `through`, oldest first.
    ReadBack {
        /// What is not among `entries` up to here is not there any more.
        through: u64,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// Time has passed.
    Timer,
}

/// An output of the supervisor; outputs are carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum SupervisorOutput {
    /// Record an entry. One whose loss would cost work ([`is_decision`](super::is_decision)) is synced before later outputs.
    Write(Entry),
    /// Recorded entries before this one may be dropped, and every decision.
    Forget {
        /// The oldest that is pending, or the next one.
        before: u64,
    },
    /// Read recorded measurements, and answer with [`SupervisorInput::ReadBack`]; one range at a time.
    ReadBack(SpoolRange),
    /// Call the loop; one call is under way at a time.
    Call(Heartbeat),
    /// Begin an attempt.
    Begin(Box<Start>),
    /// Start the ranks of the attempt on several machines that runs, unless they were started.
    Go {
        /// Its machines by node rank.
        nodes: Vec<NodeAddress>,
    },
    /// Ask the attempt that runs to end.
    End {
        /// Why, and so how fast.
        why: StopReason,
        /// Timeout of the call; `None` for the agent's own limit.
        within: Option<Elapsed>,
    },
    /// It is over; the agent ends.
    Leave(Departure),
}
