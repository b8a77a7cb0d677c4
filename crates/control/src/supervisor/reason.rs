//! Why an attempt is ended, and why an agent leaves.

use domain::Elapsed;

/// Why an attempt is ended before it ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The loop ordered it to save and stop.
    Stop,
    /// The ranks on another machine of the attempt have failed.
    NodeLost,
    /// The loop has not answered for longer than its lease.
    LeaseOver,
    /// The provider takes the machine back.
    Reclaim,
    /// The loop ordered the agent to leave.
    Leave,
    /// A signal asked the agent to end.
    Signalled,
    /// A later attempt is to start.
    Replaced,
    /// There was no report for this long.
    Hang(Elapsed),
}

/// That the provider takes the machine back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reclaim {
    /// When.
    pub at: Elapsed,
    /// Whether the loop knows.
    pub is_told: bool,
}

/// Why an agent left; determines its `exit_code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The loop ordered it.
    Ordered,
    /// A signal requested it.
    Signalled,
    /// The loop did not answer for longer than the lease.
    LeaseOver,
    /// Another agent supervises this instance.
    Attended,
    /// An agent has lived in this folder before; an instance is rented once.
    Spent,
}

impl Departure {
    /// The code that the process exits with.
    pub fn exit_code(self) -> u8 {
        match self {
            Departure::Ordered | Departure::Signalled => 0,
            Departure::LeaseOver => 64,
            Departure::Attended => 65,
            Departure::Spent => 66,
        }
    }
}
