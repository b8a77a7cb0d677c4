//! How the loop reaches a machine that runs: as a node, by SSH.
//!
//! A thread per machine copies missing files, starts the agent there with the request that rented the machine, and
//! keeps a tunnel open for the agent's calls. It is started by a view of the machine, does nothing if all is well, and
//! is started again by the next view if not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use domain::rental::{LaunchRequest, MachineHandle};
use domain::{Elapsed, InstanceId, Node};

use super::key;
use super::rentals::{Rentals, replace};
use crate::provider::{ProviderAnswer, ProviderCall};
use crate::ssh::{Connection, DirectDoor, Executables, Host, NodeReach, Site, Tunnel, ask_joining, bootstrap};

/// Settings for reaching machines.
#[derive(Debug, Clone)]
pub struct ReachSettings {
    /// The owner of the machines.
    pub owner: String,
    /// The loop's Unix socket.
    pub socket: PathBuf,
    /// Executables to copy to machines.
    pub program: Executables,
    /// The user's own configuration of `ssh` for these machines, such as a jump host.
    pub ssh_config: Option<PathBuf>,
    /// For agents that reach the loop over TLS; `None` where they do so through a tunnel.
    pub door: Option<DirectDoor>,
}

/// For so long a join token is good: the machine runs by the time it is made.
const JOINS_WITHIN: Elapsed = Elapsed(120_000_000);

/// The machines that are reached.
#[derive(Debug)]
pub struct Reach {
    settings: ReachSettings,
    rentals: Rentals,
    machines: Mutex<BTreeMap<InstanceId, Arc<Mutex<Reached>>>>,
}

/// How far one machine is.
#[derive(Debug, Default)]
struct Reached {
    site: Option<Site>,
    has_agent: bool,
    /// Its agent reaches the loop without a tunnel.
    is_direct: bool,
    tunnel: Option<Tunnel>,
}

impl Reach {
    /// Creates it without connections.
    pub fn new(settings: ReachSettings, rentals: Rentals) -> Reach {
        Reach { settings, rentals, machines: Mutex::default() }
    }

    /// Ensures that a machine has an agent that can reach the loop; returns at once.
    pub fn attend(self: &Arc<Self>, request: &LaunchRequest, handle: &MachineHandle, address: &str) {
        let Some(instance) = request.members.first() else { return };
        let machine = {
            let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
            machines.entry(instance.clone()).or_default().clone()
        };
        // Another thread is connecting.
        let Ok(mut reached) = machine.try_lock() else { return };
        let has_way = reached.is_direct || reached.tunnel.as_mut().is_some_and(Tunnel::is_open);
        if reached.has_agent && has_way {
            return;
        }
        drop(reached);
        let (reach, request, handle, address) = (self.clone(), request.clone(), handle.clone(), address.to_owned());
        std::thread::spawn(move || {
            let Ok(mut reached) = machine.try_lock() else { return };
            if let Err(why) = reach.go(&mut reached, &request, &handle, &address) {
                reach.note(&request, &why);
            }
        });
    }

    fn go(
        &self,
        reached: &mut Reached,
        request: &LaunchRequest,
        handle: &MachineHandle,
        address: &str,
    ) -> Result<(), String> {
        let instance = request.members.first().ok_or("a request without a machine")?;
        let ReachSettings { owner, socket, program, ssh_config, .. } = &self.settings;
        let folder = self.rentals.folder(instance);
        let named = (handle.0.as_str(), address);
        let door = self.door_of(&folder);
        reached.is_direct = door.is_some();
        let config = key::configure(&folder, &self.rentals.shared(), named, ssh_config.as_deref());
        let config = config.map_err(|error| format!("cannot write `{}`: {error}", folder.display()))?;
        let host = Host {
            pool: None,
            reach: NodeReach::Tunnel,
            name: handle.0.clone(),
            address: handle.0.clone(),
            config: Some(config),
            rate: request.offer.rate,
            node: Node::default(),
            is_drained: false,
            is_prepared: true,
            facts: None,
            link: None,
        };
        let connection = Connection::new(&host, owner);
        if reached.site.is_none() {
            let site = bootstrap::prepare(&connection, program, owner).map_err(|error| error.to_string())?;
            reached.site = Some(site);
        }
        let Some(site) = &reached.site else { return Ok(()) };
        if door.is_none() && !reached.tunnel.as_mut().is_some_and(Tunnel::is_open) {
            reached.tunnel = None;
            let tunnel = Tunnel::open(&connection, &site.socket(), socket).map_err(|error| error.to_string())?;
            reached.tunnel = Some(tunnel);
        }
        if !reached.has_agent {
            let call = ProviderCall::Launch(Box::new(request.clone()));
            let join = door.map(|door| door.offer(instance, JOINS_WITHIN)).transpose()?;
            match ask_joining(&connection, site, owner, request.offer.rate, (&call, join)) {
                ProviderAnswer::Accepted(_) => reached.has_agent = true,
                ProviderAnswer::Refused(refusal) => return Err(refusal.message()),
                ProviderAnswer::Unavailable(why) | ProviderAnswer::Doubt(why) => return Err(why),
                _ => return Err("`gradus node` answered another question".to_owned()),
            }
        }
        Ok(())
    }

    /// The door of a machine: as it was when it was reached first, also where the server was started otherwise since.
    fn door_of(&self, folder: &Path) -> Option<&DirectDoor> {
        let door = self.settings.door.as_ref();
        if let Ok(reach) = std::fs::read_to_string(folder.join("reach")) {
            return door.filter(|_| reach.trim() == NodeReach::Tls.to_string());
        }
        // A version that knew tunnels only has reached it before.
        let door = door.filter(|_| !folder.join("ssh_config").exists());
        let reach = if door.is_some() { NodeReach::Tls } else { NodeReach::Tunnel };
        // Where this cannot be written, neither can what follows.
        let _ = replace(folder, "reach", format!("{reach}\n").as_bytes());
        door
    }

    /// Writes down why a machine was not reached, for who wonders.
    fn note(&self, request: &LaunchRequest, why: &str) {
        let Some(instance) = request.members.first() else { return };
        // A failed write is not fatal.
        let _ = replace(&self.rentals.folder(instance), "reach.log", format!("{why}\n").as_bytes());
    }

    /// Whether a machine was reached, and has an agent. One that is being connected to was not yet.
    pub fn has_agent(&self, instance: &InstanceId) -> bool {
        let machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines.get(instance).is_some_and(|machine| machine.try_lock().is_ok_and(|reached| reached.has_agent))
    }

    /// Disconnects from a machine that is gone.
    pub fn forget(&self, instance: &InstanceId) {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines.remove(instance);
    }
}
