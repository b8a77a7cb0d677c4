//! What a machine has before it is sent a request: the programs ([`bootstrap`]), and a way for its agents to reach the loop.
//! The loop checks that way while a machine is in use, for another process may have deleted or replaced what is there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::rental::{MachineState, SeenMachine};

use super::bootstrap::{self, Site};
use super::connection::SshError;
use super::inventory::Host;
use super::peers::PeerNodes;
use super::{NodeReach, Ssh, SshMachine, TRUSTED, locked};
use crate::provider::{ProviderAnswer, ProviderCall};

impl Ssh {
    /// The state of a machine; its lock also prevents two requests from preparing it concurrently. Nothing that is known of a
    /// machine outlives its node, or the way to it.
    pub(super) fn machine(&self, host: &Host) -> Arc<Mutex<SshMachine>> {
        let changed = self.nodes.take_changed();
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines.retain(|(name, _), _| !changed.contains(name));
        machines.entry((host.name.clone(), host.address.clone())).or_default().clone()
    }

    /// Copies missing files, and ensures that the machine's agents can reach the loop.
    pub(super) fn prepare(&self, host: &Host) -> Result<(), SshError> {
        let machine = self.machine(host);
        self.connect(&mut locked(&machine), host, Duration::ZERO)
    }

    /// Copies missing files to a machine, from other nodes of its pool where they have them.
    pub(super) fn copy_programs(&self, host: &Host) -> Result<Site, SshError> {
        let (inventory, owner) = (self.nodes.now(), self.settings.owner.as_str());
        let load = &self.peers;
        let peers = PeerNodes { node: host, inventory: &inventory, owner, load, private_only: false };
        let installed = bootstrap::install(&self.connection(host), &self.settings.program, owner, || Some(peers));
        let (site, copied) = installed?;
        self.failures.copied(&host.name, copied.map_or_else(Vec::new, |copied| copied.failed_peers()));
        self.peers.note_prepared(&host.name);
        Ok(site)
    }

    /// Looks at one machine. The loop opens its tunnel again if that has broken, or was taken by another process.
    pub(super) fn look(&self, host: &Host, call: &ProviderCall) -> ProviderAnswer {
        let answer = self.ask(host, call);
        if keeps_tunnel(self.nodes.is_followed(), &answer) {
            // Tried again with the next look.
            let _ = self.connect(&mut locked(&self.machine(host)), host, TRUSTED);
        }
        answer
    }

    /// Ensures that the machine's agents can reach the loop. A tunnel that was checked a moment ago is trusted for so long.
    fn connect(&self, machine: &mut SshMachine, host: &Host, trusted: Duration) -> Result<(), SshError> {
        let local = (host.reach == NodeReach::Tunnel).then_some(self.settings.socket.as_path());
        machine.connect(&self.connection(host), (local, trusted), || self.copy_programs(host))
    }
}

/// Whether a machine that gave this answer is to have a tunnel to this process: it is in use, and this is the loop that its
/// agents call. A command that only lists nodes answers no agent.
fn keeps_tunnel(is_loop: bool, answer: &ProviderAnswer) -> bool {
    let is_running = |machine: &SeenMachine| !matches!(machine.state, MachineState::Gone(_));
    is_loop && matches!(answer, ProviderAnswer::Observed(view) if view.machines.iter().any(is_running))
}

#[cfg(test)]
mod tests {
    use domain::InstanceId;
    use domain::rental::{MachineHandle, ProviderView};

    use super::*;

    #[test]
    fn only_the_loop_opens_a_tunnel_and_only_to_a_machine_in_use() {
        let check = |is_loop: bool, states: &[MachineState], expected: bool| {
            let machine = |state: &MachineState| SeenMachine {
                handle: MachineHandle("1".into()),
                instance: InstanceId::new("r-i1"),
                state: *state,
                notice: None,
            };
            let machines = states.iter().map(machine).collect();
            let view = ProviderView { is_complete: true, machines, unseen: Vec::new() };
            assert_eq!(keeps_tunnel(is_loop, &ProviderAnswer::Observed(view)), expected, "{is_loop} {states:?}");
        };
        let (running, gone) = (MachineState::Running, MachineState::Gone(None));
        check(true, &[gone, running], true);
        check(true, &[MachineState::Ending], true);
        check(true, &[gone], false);
        check(true, &[], false);
        check(false, &[running], false);
        assert!(!keeps_tunnel(true, &ProviderAnswer::Unavailable("it is off".to_owned())));
    }
}
