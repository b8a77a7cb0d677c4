//! How the loop reaches a machine that runs: as a node, by SSH.
//!
//! A thread per machine copies missing files, starts the agent there with the request that rented the machine, and
//! keeps a tunnel open for the agent's calls. It is started by a view of the machine, does nothing if all is well, and
//! is started again by the next view if not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use domain::rental::{LaunchRequest, MachineHandle};
use domain::{InstanceId, Node};

use super::key;
use super::rentals::{Rentals, replace};
use crate::provider::{ProviderAnswer, ProviderCall};
use crate::ssh::{Connection, Executables, Host, Site, Tunnel, ask, bootstrap};

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
}

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
        if reached.has_agent && reached.tunnel.as_mut().is_some_and(Tunnel::is_open) {
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
        let ReachSettings { owner, socket, program, ssh_config } = &self.settings;
        let folder = self.rentals.folder(instance);
        let named = (handle.0.as_str(), address);
        let config = key::configure(&folder, &self.rentals.shared(), named, ssh_config.as_deref());
        let config = config.map_err(|error| format!("cannot write `{}`: {error}", folder.display()))?;
        let host = Host {
            pool: None,
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
        if !reached.tunnel.as_mut().is_some_and(Tunnel::is_open) {
            reached.tunnel = None;
            let tunnel = Tunnel::open(&connection, &site.socket(), socket).map_err(|error| error.to_string())?;
            reached.tunnel = Some(tunnel);
        }
        if !reached.has_agent {
            let call = ProviderCall::Launch(Box::new(request.clone()));
            match ask(&connection, site, owner, request.offer.rate, &call) {
                ProviderAnswer::Accepted(_) => reached.has_agent = true,
                ProviderAnswer::Refused(refusal) => return Err(refusal.message()),
                ProviderAnswer::Unavailable(why) | ProviderAnswer::Doubt(why) => return Err(why),
                _ => return Err("`gradus node` answered another question".to_owned()),
            }
        }
        Ok(())
    }

    /// Writes down why a machine was not reached, for who wonders.
    fn note(&self, request: &LaunchRequest, why: &str) {
        let Some(instance) = request.members.first() else { return };
        // A failed write is not fatal.
        let _ = replace(&self.rentals.folder(instance), "reach.log", format!("{why}\n").as_bytes());
    }

    /// Disconnects from a machine that is gone.
    pub fn forget(&self, instance: &InstanceId) {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines.remove(instance);
    }
}
