//! What a machine has before it is sent a request: the programs ([`bootstrap`]), and a way for its agents to reach the loop.

use super::bootstrap::{self, Site};
use super::connection::SshError;
use super::inventory::Host;
use super::peers::PeerNodes;
use super::{Machine, NodeReach, Ssh, Tunnel, locked};

impl Ssh {
    /// Copies missing files, and ensures that the machine's agents can reach the loop.
    pub(super) fn prepare(&self, host: &Host) -> Result<(), SshError> {
        let machine = self.machine(host);
        let mut machine = locked(&machine);
        if machine.site.is_none() {
            machine.site = Some(self.copy_programs(host)?);
        }
        self.connect(&mut machine, host)
    }

    /// Copies missing files to a machine, from other nodes of its pool where they have them.
    pub(super) fn copy_programs(&self, host: &Host) -> Result<Site, SshError> {
        let (inventory, owner) = (self.nodes.now(), self.settings.owner.as_str());
        let peers = PeerNodes { node: host, inventory: &inventory, owner, load: &self.peers };
        let (site, copied) = bootstrap::install(&self.connection(host), &self.settings.program, owner, Some(&peers))?;
        self.failures.copied(&host.name, copied.map_or_else(Vec::new, |copied| copied.failed_peers()));
        self.peers.note_prepared(&host.name);
        Ok(site)
    }

    pub(super) fn connect(&self, machine: &mut Machine, host: &Host) -> Result<(), SshError> {
        let Some(site) = machine.site.as_ref().filter(|_| host.reach == NodeReach::Tunnel) else { return Ok(()) };
        if !machine.tunnel.as_mut().is_some_and(Tunnel::is_open) {
            machine.tunnel = None;
            machine.tunnel = Some(Tunnel::open(&self.connection(host), &site.socket(), &self.settings.socket)?);
        }
        Ok(())
    }
}
