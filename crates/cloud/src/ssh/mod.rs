//! The provider `ssh`: existing machines that can be reached by SSH.
//!
//! On each machine the provider [`Local`](crate::Local) does the work: a call is sent as JSON to `gradus node`, which
//! answers it there ([`remote`]). Missing files are copied first ([`prepare`]), and while a [`machine`] is in use a
//! [`tunnel`] forwards its agent's calls to the loop's socket, so that neither side opens a port.
//!
//! A machine runs one instance at a time. The placement of an instance is stored before the request is sent
//! ([`placement`]), so that a crash cannot send the same request to two machines.

pub mod bootstrap;
mod connection;
mod direct;
mod fallback;
mod inventory;
mod machine;
mod peers;
mod placement;
mod prepare;
mod remote;
mod tunnel;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::joining::JoinOffer;
use domain::rental::{MachineHandle, ProviderView, Refusal};
use domain::{Elapsed, InstanceId, Node, Offer};

use crate::provider::{BillingRule, FailedPeer, LaunchRequest, Provider, ProviderAnswer, ProviderCall, ProviderTraits};

pub use bootstrap::{CopiedFiles, Executables, PeerCopy, Site, folder_of};
pub use connection::{Connection, SshError};
pub use direct::{DirectDoor, NodeReach, calls_over_tls};
pub(crate) use fallback::PeerFailures;
use inventory::KnownNodes;
pub use inventory::{Host, Inventory, NodeLink};
pub(crate) use machine::{SshMachine, TRUSTED};
pub(crate) use peers::READERS;
pub use peers::{PeerLoad, PeerNodes};
use placement::Placements;
pub(crate) use remote::ask_joining;

/// The provider's name.
pub const NAME: &str = "ssh";

/// The first request to a new machine copies prerequisites; a reachable machine starts an agent within seconds.
const TRAITS: ProviderTraits = ProviderTraits {
    visible_within: Elapsed(0),
    effective_within: Elapsed(90_000_000),
    boots_within: Elapsed(120_000_000),
    token_lifetime: Some(Elapsed(u64::MAX)),
    observe_every: Elapsed(1_000_000),
    rents_together: false,
    billing: BillingRule::EXACT,
    places: None,
    abandoned_within: Some(Elapsed(300_000_000)),
    keeps_events: true,
    concurrency: 16,
};

/// Settings of the provider.
#[derive(Debug, Clone)]
pub struct SshSettings {
    /// The folder of all state here, absolute.
    pub home: PathBuf,
    /// The owner of the instances: a text unique to this home.
    pub owner: String,
    /// The loop's Unix socket.
    pub socket: PathBuf,
    /// Files to copy to machines.
    pub program: Executables,
    /// The machines.
    pub inventory: Inventory,
    /// For machines whose agents reach the loop over TLS; `None` where it has no address for them.
    pub door: Option<DirectDoor>,
}

/// The machines of an inventory.
#[derive(Debug)]
pub struct Ssh {
    settings: SshSettings,
    placements: Placements,
    nodes: KnownNodes,
    machines: Mutex<BTreeMap<NameAndAddress, Arc<Mutex<SshMachine>>>>,
    /// When each machine could not be reached last.
    failed: Mutex<BTreeMap<String, Instant>>,
    /// Which of them others fetch programs from.
    peers: PeerLoad,
    /// Which of them could not send theirs.
    failures: PeerFailures,
}

/// Of a machine: its name may be given to another one.
type NameAndAddress = (String, String);

/// For so long a machine that could not be reached is tried last.
const UNREACHABLE: Duration = Duration::from_secs(300);

impl Ssh {
    /// The machines of `settings`, and no others, for a command that asks them: no agent reaches this process.
    pub fn new(settings: SshSettings) -> Ssh {
        let nodes = KnownNodes::new(settings.inventory.clone(), None);
        Ssh::of(settings, nodes)
    }

    /// The machines of `settings`, and those of the home as they are added, drained and removed, for the loop that their agents
    /// call.
    pub fn following(settings: SshSettings) -> Ssh {
        let nodes = KnownNodes::new(settings.inventory.clone(), Some(settings.home.clone()));
        Ssh::of(settings, nodes)
    }

    fn of(settings: SshSettings, nodes: KnownNodes) -> Ssh {
        let placements = Placements::new(&settings.home);
        let (machines, failed, peers, failures) = Default::default();
        Ssh { placements, settings, nodes, machines, failed, peers, failures }
    }

    /// One offer per node, and one for `any` and for each pool, at the price of the cheapest.
    fn offers(&self) -> Vec<Offer> {
        let inventory = self.nodes.now();
        let hosts: Vec<&Host> = inventory.hosts.iter().filter(|host| host.is_usable()).collect();
        let offer = |kind: &str, node: Node, rate| Offer {
            provider: NAME.into(),
            kind: kind.into(),
            node,
            rate,
            price_source: "gradus nodes add --price".into(),
        };
        let mut offers: Vec<Offer> = hosts.iter().map(|host| offer(&host.name, host.node.clone(), host.rate)).collect();
        let pools = inventory.pools().into_iter().map(Offer::kind_of_pool);
        let group = |kind: String| {
            let (node, rate) = inventory.cheapest(&kind)?;
            Some(offer(&kind, node, rate))
        };
        let mut all: Vec<Offer> = std::iter::once(inventory::ANY.to_owned()).chain(pools).filter_map(group).collect();
        all.append(&mut offers);
        all
    }

    fn launch(&self, request: &LaunchRequest) -> ProviderAnswer {
        let [instance] = &request.members[..] else {
            let message = "a request for several machines over SSH is not supported yet".to_owned();
            return ProviderAnswer::Refused(Refusal::Invalid { message, disk: None });
        };
        if let Some(name) = self.placements.host_of(instance) {
            return match self.nodes.host(&name) {
                Some(host) => self.launch_on(&host, instance, request),
                None => refused(format!("`{instance}` was placed on `{name}`, which is no longer a node")),
            };
        }
        let mut reasons = Vec::new();
        let inventory = self.nodes.now();
        let mut hosts: Vec<&Host> = inventory.wanted(&request.offer.kind, request.offer.rate).collect();
        let barred: Vec<&str> = hosts.iter().filter(|host| !self.has_way(host)).map(|host| &*host.name).collect();
        hosts.retain(|host| self.has_way(host));
        if hosts.is_empty() && !barred.is_empty() {
            // Only its user can change that: the run ends, rather than wait for a machine.
            return ProviderAnswer::Refused(Refusal::Denied { message: direct::without_door(&barred) });
        }
        hosts.sort_by_key(|host| self.was_unreachable(host));
        for host in hosts {
            match self.launch_on(host, instance, request) {
                ProviderAnswer::Refused(Refusal::Capacity { message }) => {
                    reasons.push(format!("{}: {message}", host.name));
                }
                answer => return answer,
            }
        }
        if reasons.is_empty() {
            return refused(format!("no node or pool is named `{}`; see `gradus nodes list`", request.offer.kind));
        }
        ProviderAnswer::Refused(Refusal::Capacity { message: reasons.join("; ") })
    }

    /// Prepares a machine and sends the request. A machine that is unreachable or in use has no capacity.
    fn launch_on(&self, host: &Host, instance: &InstanceId, request: &LaunchRequest) -> ProviderAnswer {
        let full = |message: String| ProviderAnswer::Refused(Refusal::Capacity { message });
        if let Err(error) = self.prepare(host) {
            self.note_unreachable(host);
            // An earlier request may have reached it.
            let was_asked = self.placements.host_of(instance).is_some();
            return if was_asked { ProviderAnswer::Doubt(error.to_string()) } else { full(error.to_string()) };
        }
        if let Err(error) = self.placements.place(instance, &host.name) {
            return full(format!("cannot write where `{instance}` is placed: {error}"));
        }
        let join = match (&self.settings.door, host.reach) {
            (_, NodeReach::Tunnel) => None,
            // The loop that has placed it had an address, and will have it again.
            (None, NodeReach::Tls) => return ProviderAnswer::Doubt(direct::without_door(&[&host.name])),
            (Some(door), NodeReach::Tls) => match door.offer(instance, TRAITS.boots_within) {
                Ok(join) => Some(join),
                Err(why) => return ProviderAnswer::Doubt(format!("cannot make a join token for `{instance}`: {why}")),
            },
        };
        let answer = self.ask_joining(host, &ProviderCall::Launch(Box::new(request.clone())), join);
        match answer {
            ProviderAnswer::Accepted(members) => {
                let named = |(id, handle): (InstanceId, MachineHandle)| (id, handle_on(host, &handle));
                ProviderAnswer::Accepted(members.into_iter().map(named).collect())
            }
            ProviderAnswer::Unavailable(why) => ProviderAnswer::Doubt(why),
            ProviderAnswer::Refused(refusal) => {
                self.placements.forget(instance);
                ProviderAnswer::Refused(refusal)
            }
            other => other,
        }
    }

    /// Whether agents there could reach this loop.
    fn has_way(&self, host: &Host) -> bool {
        host.reach == NodeReach::Tunnel || self.settings.door.is_some()
    }

    /// Whether it could not be reached a moment ago: it is tried after the others, for that takes a while.
    fn was_unreachable(&self, host: &Host) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get(&host.name).is_some_and(|at| at.elapsed() < UNREACHABLE)
    }

    fn note_unreachable(&self, host: &Host) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.insert(host.name.clone(), Instant::now());
    }

    fn connection(&self, host: &Host) -> Connection {
        Connection::new(host, &self.settings.owner)
    }

    /// Queries the machine itself. It may have been prepared by an earlier process.
    fn ask(&self, host: &Host, call: &ProviderCall) -> ProviderAnswer {
        self.ask_joining(host, call, None)
    }

    fn ask_joining(&self, host: &Host, call: &ProviderCall, join: Option<JoinOffer>) -> ProviderAnswer {
        let connection = self.connection(host);
        let site = {
            let machine = self.machine(host);
            let mut machine = locked(&machine);
            if machine.site.is_none() {
                match self.copy_programs(host) {
                    Ok(site) => machine.site = Some(site),
                    Err(error) => return ProviderAnswer::Unavailable(error.to_string()),
                }
            }
            machine.site.clone()
        };
        let Some(site) = site else { return ProviderAnswer::Unavailable("it is not prepared".to_owned()) };
        let answer = ask_joining(&connection, &site, &self.settings.owner, host.rate, (call, join));
        if matches!(answer, ProviderAnswer::Unavailable(_)) {
            self.note_unreachable(host);
            // It may have been reinstalled: the next call checks its files.
            locked(&self.machine(host)).site = None;
        }
        answer
    }

    /// Queries the machines of these instances; all machines if none is named.
    fn observe(&self, asked: &[InstanceId]) -> ProviderAnswer {
        let mut wanted: BTreeMap<String, Vec<InstanceId>> = BTreeMap::new();
        let mut view = ProviderView { is_complete: true, machines: Vec::new(), unseen: Vec::new() };
        for instance in asked {
            // An instance that was never placed is on no machine.
            if let Some(host) = self.placements.host_of(instance) {
                wanted.entry(host).or_default().push(instance.clone());
            }
        }
        if asked.is_empty() {
            let inventory = self.nodes.now();
            let hosts = inventory.hosts.iter().filter(|host| host.is_prepared);
            wanted.extend(hosts.map(|host| (host.name.clone(), Vec::new())));
        }
        let asked = wanted.iter().filter_map(|(name, instances)| Some((self.nodes.host(name)?, instances)));
        let hosts: Vec<(Host, &Vec<InstanceId>)> = asked.collect();
        let answers: Vec<(&Host, ProviderAnswer)> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (host, instances) in &hosts {
                let call = ProviderCall::Observe((*instances).clone());
                threads.push((host, scope.spawn(move || self.look(host, &call))));
            }
            let lost = |_| ProviderAnswer::Unavailable("it could not be asked".to_owned());
            threads.into_iter().map(|(host, thread)| (host, thread.join().unwrap_or_else(lost))).collect()
        });
        view.is_complete = answers.len() == wanted.len();
        let mut reasons = Vec::new();
        for (host, answer) in answers {
            match answer {
                ProviderAnswer::Observed(seen) => {
                    view.is_complete &= seen.is_complete;
                    view.machines.extend(seen.machines.into_iter().map(|mut machine| {
                        machine.handle = handle_on(host, &machine.handle);
                        machine
                    }));
                }
                ProviderAnswer::Unavailable(why) => reasons.push(why),
                _ => view.is_complete = false,
            }
        }
        if !reasons.is_empty() && view.machines.is_empty() {
            return ProviderAnswer::Unavailable(reasons.join("; "));
        }
        view.is_complete &= reasons.is_empty();
        ProviderAnswer::Observed(view)
    }

    /// Sends the request to the machine of each instance; the worst answer is returned.
    fn end(&self, requests: &[domain::rental::EndRequest]) -> ProviderAnswer {
        for request in requests {
            let host = self.placements.host_of(&request.instance);
            let host = host.or_else(|| Some(request.handle.as_ref()?.0.split_once('/')?.0.to_owned()));
            let Some(host) = host.and_then(|name| self.nodes.host(&name)) else { continue };
            let call = ProviderCall::End(vec![request.clone()]);
            match self.ask(&host, &call) {
                ProviderAnswer::Ending => {}
                other => return other,
            }
        }
        ProviderAnswer::Ending
    }
}

fn locked(machine: &Mutex<SshMachine>) -> MutexGuard<'_, SshMachine> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of an instance on a node: the node's name, then the handle that the node itself uses.
fn handle_on(host: &Host, handle: &MachineHandle) -> MachineHandle {
    MachineHandle(format!("{}/{}", host.name, handle.0))
}

fn refused(message: String) -> ProviderAnswer {
    ProviderAnswer::Refused(Refusal::Invalid { message, disk: None })
}

impl Provider for Ssh {
    fn name(&self) -> &'static str {
        NAME
    }

    fn traits(&self) -> ProviderTraits {
        let places = self.nodes.now().hosts.iter().filter(|host| host.is_usable()).count();
        ProviderTraits { places: Some(places), ..TRAITS }
    }

    fn call(&self, call: &ProviderCall) -> ProviderAnswer {
        match call {
            ProviderCall::Offers => ProviderAnswer::Offers(self.offers()),
            ProviderCall::Launch(request) => self.launch(request),
            ProviderCall::Observe(asked) => self.observe(asked),
            ProviderCall::End(requests) => self.end(requests),
            ProviderCall::LastEvents(instance) => {
                let host = self.placements.host_of(instance).and_then(|name| self.nodes.host(&name));
                match host {
                    Some(host) => self.ask(&host, call),
                    // Never placed: there are no events.
                    None => ProviderAnswer::LastEvents(Vec::new()),
                }
            }
        }
    }

    fn take_failed_peers(&self, instance: &InstanceId) -> Vec<FailedPeer> {
        self.placements.host_of(instance).map_or_else(Vec::new, |name| self.failures.take(&name))
    }
}
