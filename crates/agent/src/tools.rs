//! What the agent provides to each attempt.

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

use domain::{AttemptId, InstanceId};
use node::facts::ProgramUser;
use node::processes;

use crate::Patience;
use crate::event::Wakeup;
use crate::travel::RemoteLoop;

/// The variable that tags every process of an attempt.
pub(crate) const ATTEMPT: &str = "GRADUS_ATTEMPT";

/// The environment that the agent provides to each attempt.
pub struct Tools {
    /// The executable of our own trainer.
    pub rank_program: PathBuf,
    /// Folder of libtorch.
    pub libtorch: Option<PathBuf>,
    /// The owner of the instance.
    pub owner: String,
    /// Name of the instance.
    pub instance: InstanceId,
    /// Folder of the instance, for sockets.
    pub folder: PathBuf,
    /// The folder of all runs and caches of this owner.
    pub root: PathBuf,
    /// The loop, if it is on another machine.
    pub remote: Option<RemoteLoop>,
    /// Where other machines reach this one, as far as is known.
    pub address: Option<String>,
    /// The home folder of the user that programs run as.
    pub user_home: Option<PathBuf>,
    /// That user, where it is another one than the agent's.
    pub program_user: Option<ProgramUser>,
    /// Credentials and endpoints of object stores.
    pub access: store::Access,
    /// How long to wait for what.
    pub patience: Patience,
    /// The lease at the start, for messages.
    pub lease: Duration,
    /// Where its events go.
    pub events: Sender<Wakeup>,
}

impl Tools {
    /// Tags a process of an attempt, so that it is found in any session. To be called last: a variable of the job must
    /// not override the tag.
    pub(crate) fn tag(&self, command: &mut std::process::Command, attempt: &AttemptId) {
        command.env(processes::OWNER, &self.owner);
        command.env(processes::INSTANCE, self.instance.as_str());
        command.env(ATTEMPT, attempt.as_str());
    }

    /// Which processes are those of an attempt.
    pub(crate) fn tags<'a>(&'a self, attempt: &'a AttemptId) -> [(&'a str, &'a str); 2] {
        tags(&self.owner, attempt)
    }
}

/// Which processes are those of an attempt: its name alone may be that of another owner's.
pub(crate) fn tags<'a>(owner: &'a str, attempt: &'a AttemptId) -> [(&'a str, &'a str); 2] {
    [(processes::OWNER, owner), (ATTEMPT, attempt.as_str())]
}
