//! The supervisor of one machine: the process between the control loop and the ranks.
//!
//! [`attend`] is one loop over one closed enum of events. It starts what the loop orders, watches it, queues reports
//! until the loop has acknowledged them, meters the rent, and ends everything when the loop has not answered for longer
//! than its lease. It does not decide what a run does next.
//!
//! Read next: `attend` (the loop), `attempt` (one attempt from its order to its end), `attempt::verdict` (what ended
//! it).

mod attempt;
mod attend;
mod clock;
mod devices;
mod event;
mod loop_client;
mod loop_request;
mod meter;
mod origin;
mod reclaim;
mod signals;
mod stacks;
mod tools;
mod travel;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use attempt::library::check as libraries;
pub use attempt::program::{ProfileWatch, ProfiledSteps, end_profile, profile};
pub use attempt::workdir::{WorkdirSize, measure as measure_workdir};
pub use attempt::{HangLimitInForce, hang_limits};
pub use control::Departure;
pub use loop_request::direct::DirectLoop;
pub use reclaim::MetadataService;
pub use travel::StoredCheckpoints;

/// Settings of an agent besides its folder's `launch.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// The folder of its instance, absolute.
    pub folder: PathBuf,
    /// The home folder of the user that programs run as; it is what `~` stands for in `file_mounts`.
    pub user_home: Option<PathBuf>,
    /// Credentials and endpoints of object stores, for remote data.
    pub access: store::Access,
    /// The metadata service that announces reclaims; `None` for that of the machine's own cloud.
    pub metadata: Option<MetadataService>,
}

/// How long an agent waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the loop's first answer; afterwards the lease that the loop grants counts.
    pub first_answer: Duration,
    /// For the answer to one call.
    pub call: Duration,
    /// For our own trainer to save its state and end.
    pub save: Duration,
    /// For the user's program to save its state and end, after SIGTERM or the order to stop.
    pub program: Duration,
    /// For ranks that have lost those of another machine to end.
    pub node_lost: Duration,
    /// For either, if the agent itself got a signal to end.
    pub hurry: Duration,
    /// For more of an attempt's outputs to reach a loop on another machine, after its end.
    pub upload: Duration,
    /// For remaining processes of a program to end after SIGTERM.
    pub leftovers: Duration,
    /// Between two looks at what the machine's GPUs do.
    pub devices: Duration,
    /// For the first step, from the start of a rank; `preload` adds to it ([`data::preloading`]).
    pub ready: Duration,
    /// For the next step, at least; ten times the 99th percentile of recent steps, or twenty times their median, when that is
    /// longer. A node is given up after 45 s of silence, and after a shorter cut TCP may need as long again to send what was
    /// lost: whoever recovers from it does not hang.
    pub step: Duration,
    /// For a checkpoint or a model to be written, at least; three times the longest save when that is longer.
    pub checkpoint: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            first_answer: Duration::from_secs(60),
            call: Duration::from_secs(15),
            save: Duration::from_secs(60),
            program: Duration::from_secs(60),
            node_lost: Duration::from_secs(10),
            hurry: Duration::from_secs(1),
            upload: Duration::from_secs(600),
            leftovers: Duration::from_secs(1),
            devices: Duration::from_secs(5),
            ready: Duration::from_secs(1800),
            step: Duration::from_secs(120),
            checkpoint: Duration::from_secs(600),
        }
    }
}

/// Why an agent could not do its work.
#[derive(Debug, thiserror::Error)]
#[error("the agent in `{}` cannot {doing}", folder.display())]
pub struct Error {
    /// The folder of its instance.
    pub folder: PathBuf,
    /// The operation.
    pub doing: &'static str,
    /// Why not.
    #[source]
    pub source: std::io::Error,
}

/// Why none of a run's checkpoints can be resumed from, a sentence each, newest first; empty where there are none, one is
/// whole, or they cannot be read now.
pub fn unusable_checkpoints(folder: &Path, job_hash: &str) -> Vec<String> {
    match checkpoint::newest_verified(folder, job_hash) {
        Ok((None, passed_over)) => passed_over,
        Ok((Some(_), _)) | Err(_) => Vec::new(),
    }
}

/// Supervises one instance until it is told to leave or its lease is over. Called once, by the main thread: ranks end
/// when the thread that started them does.
///
/// # Errors
/// If the folder's contents are malformed, or it cannot be written.
pub fn attend(settings: AgentSettings) -> Result<Departure, Error> {
    attend_with(settings, Patience::default())
}

/// Like [`attend`], with other timeouts.
///
/// # Errors
/// As [`attend`].
pub fn attend_with(settings: AgentSettings, patience: Patience) -> Result<Departure, Error> {
    attend::run(settings, patience)
}
