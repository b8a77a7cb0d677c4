//! The machines of a run by node rank, and how a command gets to each.

use std::path::PathBuf;
use std::process::Command;

use cloud::ssh::Inventory;
use domain::file::written::quoted;
use domain::run::InstanceState;
use domain::{AttemptId, InstanceId, RunId};
use plan::{Instance, World};
use server::Home;

use crate::command::find::{find, open_named};
use crate::error::Error;
use crate::local::machine;

/// A machine on which a run is.
pub struct RunMachine {
    /// Its node rank.
    pub rank: usize,
    /// The run's newest attempt.
    pub attempt: AttemptId,
    pub run: RunId,
    /// The run's folder there, as a word of a shell.
    pub folder: String,
    pub route: Route,
}

/// How a command gets to a machine.
#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    /// It is this one.
    Here,
    /// Over SSH.
    Ssh { config: Option<PathBuf>, address: String },
}

impl Route {
    /// The folder of a home on the machine, as a word of a shell.
    fn home(&self, home: &Home) -> String {
        match self {
            Route::Here => quoted(&home.root().to_string_lossy()),
            Route::Ssh { .. } => format!("~/.gradus/homes/{}", quoted(&cloud::ssh::folder_of(home.owner()))),
        }
    }

    /// `ssh` with these options, and the address; nothing for this machine.
    pub fn ssh(&self, options: &[&str]) -> Option<Command> {
        let Route::Ssh { config, address } = self else { return None };
        let mut ssh = Command::new("ssh");
        if let Some(config) = config {
            ssh.arg("-F").arg(config);
        }
        ssh.args(options).arg(address);
        Some(ssh)
    }
}

/// The machines of a run's newest attempt that are up, by node rank; one of them, if a rank is asked for.
///
/// # Errors
/// [`Error::Usage`] for a run that has none, not this one, or one that cannot be reached.
pub fn machines(home: &Home, name: &str, asked: Option<usize>) -> Result<Vec<RunMachine>, Error> {
    let state = open_named(home, name)?;
    let (world, run) = (state.world(), find(state.world(), name)?);
    let known = world.runs.get(&run).and_then(|run| run.attempts.last());
    let attempt = known.and_then(|id| Some((id, world.attempts.get(id)?)));
    let inventory = machine::inventory(home)?;
    let (mut found, mut ranks) = (Vec::new(), Vec::new());
    for (rank, id) in attempt.iter().flat_map(|(_, attempt)| attempt.instances()).enumerate() {
        let Some(instance) = world.instances.get(id).filter(|instance| instance.state == InstanceState::Up) else {
            continue;
        };
        let Some((attempt, _)) = attempt else { continue };
        ranks.push(rank.to_string());
        // What cannot be reached is of no concern where another is asked for.
        if asked.is_some_and(|asked| asked != rank) {
            continue;
        }
        let route = route(home, &inventory, id, instance)?;
        let folder = format!("{}/runs/{run}", route.home(home));
        found.push(RunMachine { rank, attempt: attempt.clone(), run: run.clone(), folder, route });
    }
    match (found.is_empty(), asked.filter(|_| !ranks.is_empty())) {
        (false, _) => Ok(found),
        (true, None) => Err(none(world, &run)),
        (true, Some(asked)) => Err(Error::Usage {
            message: format!("run `{run}` has no machine of node rank {asked}"),
            hint: format!("there are {}", ranks.join(", ")),
        }),
    }
}

/// The machine of one node rank.
///
/// # Errors
/// As [`machines`].
pub fn machine(home: &Home, name: &str, rank: usize) -> Result<RunMachine, Error> {
    let found = machines(home, name, Some(rank))?.pop();
    found.ok_or_else(|| Error::Usage {
        message: format!("run `{name}` has no machine of node rank {rank}"),
        hint: "`gradus status` lists the runs".to_owned(),
    })
}

fn none(world: &World, run: &RunId) -> Error {
    let word = world.runs.get(run).map_or("unknown", |run| run.state.word());
    Error::Usage {
        message: format!("run `{run}` is {word} and has no machine that is up"),
        hint: "`gradus status` lists the runs, `gradus machines list` what is rented".to_owned(),
    }
}

fn route(home: &Home, inventory: &Inventory, id: &InstanceId, instance: &Instance) -> Result<Route, Error> {
    let handle = instance.handle.as_ref().map_or("", |handle| handle.0.as_str());
    match instance.offer.provider.as_str() {
        cloud::local::NAME => Ok(Route::Here),
        _ if handle.is_empty() => Err(Error::Usage {
            message: format!("machine `{id}` has no address yet: its provider has not reported it"),
            hint: "try again in a few seconds".to_owned(),
        }),
        cloud::ssh::NAME => {
            let host = super::find(inventory, handle.split('/').next().unwrap_or_default())?;
            Ok(Route::Ssh { config: host.config.clone(), address: host.address.clone() })
        }
        _ => {
            let name = instance.machine_name(id);
            let config = home.root().join("instances").join(name.as_str()).join("ssh_config");
            match config.is_file() {
                true => Ok(Route::Ssh { config: Some(config), address: handle.to_owned() }),
                false => Err(Error::Usage {
                    message: format!("`{id}` cannot be entered from here yet"),
                    hint: format!("`{}` says why", config.with_file_name("reach.log").display()),
                }),
            }
        }
    }
}
