//! The provider `local`: rents this machine by starting an agent on it, in a new session.
//!
//! Every promise of a cloud is kept by simple means. The token is stored in the instance's folder; the resource tag is
//! an environment variable that all descendants of the agent inherit; a free lock and no process with the tag prove
//! that an instance is gone; the meter is a file that the agent writes and this provider only reads.
//!
//! The agent is to its instance what the first process is to a container: when it is gone, all remaining processes of
//! the instance are ended by the next call that notices it.

mod calls;
mod machine;
mod probe;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::joining::JoinOffer;
use domain::rental::LaunchRequest;
use domain::{InstanceId, Rate};
use rustix::process::Signal;

use crate::provider::{Error, Sight};
use node::{Folder, LaunchSpec, Lock, SCHEMA, containers, processes, session};

pub use node::session::own as own_session;
pub use probe::{Probe, probe, spooled};

/// The provider's name.
pub const NAME: &str = "local";

/// Time for an agent to end before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Time for an agent to sign its lock before a launch is in doubt.
const SIGNING: Duration = Duration::from_secs(2);

/// Settings of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSettings {
    /// The folder of all state, absolute; instances live in `instances/` below it.
    pub home: PathBuf,
    /// The `gradus` executable.
    pub program: PathBuf,
    /// The owner of the instances: a text unique to this home.
    pub owner: String,
    /// The price of this machine.
    pub rate: Rate,
    /// The source of the price.
    pub price_source: String,
    /// The loop's Unix socket, which agents call.
    pub socket: PathBuf,
    /// The executable that our own trainer runs in.
    pub rank_program: PathBuf,
    /// Folder of libtorch, when one was found.
    pub libtorch: Option<PathBuf>,
    /// Whether the loop is on another machine.
    pub is_remote: bool,
    /// Where other machines reach this one, as far as is known.
    pub address: Option<String>,
    /// How agents that are started here join a server that they reach directly; `None` if they use the socket.
    pub join: Option<JoinOffer>,
}

/// This machine.
#[derive(Debug)]
pub struct Local {
    settings: LocalSettings,
    /// When all processes were last scanned for unknown machines.
    looked: Mutex<Option<Instant>>,
    /// When each release was first requested. Also prevents two calls from trying the same lock at once.
    releases: Mutex<BTreeMap<InstanceId, Instant>>,
}

impl Local {
    /// This machine, as `settings` describe it.
    pub fn new(settings: LocalSettings) -> Local {
        Local { settings, looked: Mutex::default(), releases: Mutex::default() }
    }

    /// The folder of an instance, which need not exist.
    pub fn folder(&self, instance: &InstanceId) -> PathBuf {
        folder(&self.settings.home, instance)
    }

    /// Which processes are those of an instance: another home of this machine may have one of the same name.
    fn tags<'a>(&'a self, instance: &'a InstanceId) -> [(&'a str, &'a str); 2] {
        [(processes::OWNER, &self.settings.owner), (processes::INSTANCE, instance.as_str())]
    }

    fn releases(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Instant>> {
        self.releases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_launch(&self, instance: &InstanceId, request: &LaunchRequest) -> io::Result<()> {
        let folder = Folder::new(self.folder(instance));
        fs::create_dir_all(folder.path())?;
        let spec = LaunchSpec {
            schema: SCHEMA,
            instance: instance.clone(),
            token: request.token.clone(),
            owner: self.settings.owner.clone(),
            socket: self.settings.socket.clone(),
            rank_program: self.settings.rank_program.clone(),
            libtorch: self.settings.libtorch.clone(),
            is_remote: self.settings.is_remote,
            address: self.settings.address.clone(),
            first_answer: request.first_answer,
            server: self.settings.join.as_ref().map(|join| join.server.clone()),
        };
        let _one_at_a_time = self.releases();
        let asked_before = folder.launch_spec()?;
        if let Some(before) = &asked_before
            && before.token != spec.token
        {
            return Err(io::Error::other(format!("it was asked for with token `{}` before", before.token)));
        }
        let Some(lock) = folder.lock()? else { return started(&folder) };
        // An instance that has run is never started again, or a lost answer could rent twice.
        if folder.usage()?.is_some() {
            return Ok(());
        }
        if asked_before.as_ref() != Some(&spec) {
            folder.write_launch_spec(&spec)?;
        }
        if let Some(join) = &self.settings.join {
            // No agent runs, so none is in the middle of joining with an earlier one.
            node::write_secret(&folder.join_token(), &join.token)?;
        }
        self.start_agent(&folder, &spec, lock)
    }

    /// Passes the lock to the agent as its standard input: the lock is never free between here and the agent's end, so
    /// a starting instance cannot be mistaken for one that is gone.
    fn start_agent(&self, folder: &Folder, spec: &LaunchSpec, lock: Lock) -> io::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(folder.log())?;
        let mut command = Command::new(&self.settings.program);
        command.arg("agent").arg("--folder").arg(folder.path());
        command.current_dir(folder.path());
        command.env(processes::OWNER, &spec.owner).env(processes::INSTANCE, spec.instance.as_str());
        command.stdin(Stdio::from(lock.into_file())).stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log));
        session::own(&mut command);
        let mut agent = command.spawn()?;
        // Waited for, so that it does not become a zombie.
        std::thread::spawn(move || agent.wait());
        Ok(())
    }

    fn try_sight(&self, instance: &InstanceId) -> io::Result<Sight> {
        let folder = Folder::new(self.folder(instance));
        if folder.launch_spec()?.is_none() {
            return Ok(Sight::Unknown);
        }
        let _one_at_a_time = self.releases();
        // In this order: while the lock is held a process may start another, afterwards only tagged ones can. Remaining
        // processes of a dead agent are ended here: there is no release to wait for, and nothing else will end them.
        if folder.is_held()? || processes::signal(&self.tags(instance), Signal::KILL)? > 0 {
            return Ok(Sight::Alive);
        }
        // Nothing can start another container now.
        if containers::end_all(folder.path())? {
            return Ok(Sight::Alive);
        }
        Ok(Sight::Gone(folder.usage()?))
    }

    fn try_release(&self, instance: &InstanceId) -> io::Result<()> {
        let folder = Folder::new(self.folder(instance));
        let mut releases = self.releases();
        if folder.is_held()? {
            let since = releases.entry(instance.clone()).or_insert_with(Instant::now).elapsed();
            // Remote callers are a new process each time, so the time is stored in the folder.
            let since = if self.settings.is_remote { since.max(asked_since(&folder)?) } else { since };
            if since < GRACE {
                // Before it has signed the lock it has started nothing, and the next call finds it.
                let agent = folder.holder()?;
                agent.map(|pid| processes::signal_one(pid, &self.tags(instance), Signal::TERM));
                return Ok(());
            }
        }
        processes::signal(&self.tags(instance), Signal::KILL)?;
        containers::end_all(folder.path())?;
        Ok(())
    }

    fn error(&self, doing: String) -> impl FnOnce(io::Error) -> Error {
        move |source| Error { provider: NAME, doing, source }
    }
}

/// Whether an agent has the lock of an instance, which is taken.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] where no agent has signed it yet: a process that only looks at the instance has it for a
/// moment, and one that is about to start an agent may end before it does.
fn started(folder: &Folder) -> io::Result<()> {
    let begun = Instant::now();
    // An agent that has just been started signs within milliseconds, or later on a busy machine.
    while folder.holder()?.is_none() && begun.elapsed() < SIGNING {
        std::thread::sleep(SIGNING / 100);
    }
    match folder.holder()? {
        Some(_) => Ok(()),
        None => Err(io::Error::new(io::ErrorKind::WouldBlock, "another process has its lock, and no agent yet")),
    }
}

/// Time since the end of an instance was first requested; records now if this is the first request.
fn asked_since(folder: &Folder) -> io::Result<Duration> {
    let path = folder.path().join("ending");
    match fs::metadata(&path) {
        Ok(file) => Ok(file.modified()?.elapsed().unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::File::create(path).map(|_| Duration::ZERO),
        Err(error) => Err(error),
    }
}

/// The folder of an instance below a home.
fn folder(home: &Path, instance: &InstanceId) -> PathBuf {
    home.join("instances").join(instance.as_str())
}

/// The nearest folder above `path` that exists.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_an_agent_only_once_that_has_signed_the_lock() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path().to_owned());
        let mut lock = folder.lock().unwrap().unwrap();
        assert!(folder.lock().unwrap().is_none(), "another process is about to start one, or looks");
        assert_eq!(started(&folder).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        lock.sign().unwrap();
        started(&folder).unwrap();
    }
}
