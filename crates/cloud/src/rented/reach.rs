//! How the loop reaches a machine that runs: as a node, by SSH.
//!
//! A thread per machine copies missing files, starts the agent there with the request that rented the machine, and
//! keeps a tunnel for the agent's calls: that of a node, which is checked every [`TRUSTED`], and restored where something there
//! has deleted or replaced it. The thread is started by a view of the machine, ends where it fails, and is started again by the
//! next view.
//!
//! A machine that was rented to be reached over TLS has no tunnel. Its agent gets a join token for its own instance with its
//! start, on standard input; once it has joined, nothing of its own needs SSH any more. It is entered again only to serve
//! programs to another machine of its run ([`gang`]).

mod gang;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use domain::rental::{FailedPeer, MachineHandle, Refusal};
use domain::wants::RENTED_CLOUDS;
use domain::{Elapsed, InstanceId, Node};

use super::key;
use super::rentals::{Rental, Rentals, replace};
use crate::provider::{ProviderAnswer, ProviderCall};
use crate::ssh::{
    Connection, DirectDoor, Executables, Host, NodeReach, PeerNodes, Site, SshError, SshMachine, TRUSTED, ask_joining,
    bootstrap,
};
use gang::{GangNetwork, Gangs};

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
    /// How agents of machines that are rented from now on reach the loop.
    pub reach: NodeReach,
    /// For agents that do so over TLS; `None` where the loop has no address for them.
    pub door: Option<DirectDoor>,
}

/// For so long a join token is good. The machine runs by the time it is made; a server that is restarted meanwhile must still
/// take it, because an agent that runs gets no other one.
const JOINS_WITHIN: Elapsed = Elapsed(1_200_000_000);

/// The machines that are reached.
#[derive(Debug)]
pub struct Reach {
    settings: ReachSettings,
    rentals: Rentals,
    machines: Mutex<BTreeMap<InstanceId, Arc<Reached>>>,
    /// Which of them have programs for others.
    gangs: Gangs,
}

/// How far one machine is.
#[derive(Debug, Default)]
struct Reached {
    machine: Mutex<SshMachine>,
    has_agent: AtomicBool,
    /// Its agent reaches the loop without a tunnel.
    is_direct: AtomicBool,
    /// Whether a thread connects to it, or keeps its tunnel.
    is_attended: AtomicBool,
}

/// A machine that is to be reached, as a view has it.
#[derive(Debug, Clone)]
struct RunningMachine {
    instance: InstanceId,
    rental: Rental,
    handle: MachineHandle,
    address: String,
}

impl Reach {
    /// Creates it without connections.
    pub fn new(settings: ReachSettings, rentals: Rentals) -> Reach {
        Reach { settings, rentals, machines: Mutex::default(), gangs: Gangs::default() }
    }

    /// How the agent of a machine that is rented now will reach the loop.
    ///
    /// # Errors
    /// The refusal where it cannot: nothing is to be rented then.
    pub fn wanted(&self) -> Result<NodeReach, ProviderAnswer> {
        self.require(self.settings.reach)
    }

    /// Refuses a rental that was written down before, unless this loop can be reached as it says. What may have rented is seen
    /// through.
    ///
    /// # Errors
    /// The refusal.
    pub fn require_for(&self, rental: &Rental) -> Result<(), ProviderAnswer> {
        if rental.may_have_rented() {
            return Ok(());
        }
        self.require(rental.reach).map(drop)
    }

    fn require(&self, reach: NodeReach) -> Result<NodeReach, ProviderAnswer> {
        match self.door_for(reach) {
            Ok(_) => Ok(reach),
            // Only the user can change that: the run ends, rather than wait for a machine.
            Err(message) => Err(ProviderAnswer::Refused(Refusal::Denied { message })),
        }
    }

    /// The door by which agents reach this loop over TLS; `None` for those that do so through a tunnel.
    fn door_for(&self, reach: NodeReach) -> Result<Option<&DirectDoor>, String> {
        match (reach, &self.settings.door) {
            (NodeReach::Tunnel, _) => Ok(None),
            (NodeReach::Tls, Some(door)) => Ok(Some(door)),
            (NodeReach::Tls, None) => Err(format!(
                "agents on machines of `{cloud}` reach the loop over TLS, and this loop has no address for them; start \
                 `gradus serve` with `--agents-at https://HOST:PORT`, or rent without `\"reach\": \"tls\"` in `{cloud}.json`",
                cloud = self.rentals.cloud()
            )),
        }
    }

    /// Ensures that a machine has an agent that can reach the loop; returns at once.
    pub fn attend(self: &Arc<Self>, rental: &Rental, handle: &MachineHandle, address: &str) {
        let Some(instance) = rental.request.members.first() else { return };
        // Its agent calls, also where the machine cannot be entered any more.
        if self.has_joined(instance) {
            return;
        }
        let reached = {
            let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
            machines.entry(instance.clone()).or_default().clone()
        };
        // Another thread is connecting, or keeps the tunnel.
        if reached.needs_nothing() || reached.is_attended.swap(true, Ordering::SeqCst) {
            return;
        }
        let (instance, rental) = (instance.clone(), rental.clone());
        let running = RunningMachine { instance, rental, handle: handle.clone(), address: address.to_owned() };
        let (reach, reached) = (Arc::downgrade(self), Arc::downgrade(&reached));
        std::thread::spawn(move || keep(&reach, &reached, &running));
    }

    /// The machine as a node, with the configuration by which `ssh` finds it.
    fn host(&self, running: &RunningMachine) -> Result<Host, String> {
        let RunningMachine { instance, rental, handle, address } = running;
        let folder = self.rentals.folder(instance);
        let (named, users) = ((handle.0.as_str(), address.as_str()), self.settings.ssh_config.as_deref());
        let config = key::configure(&folder, &self.rentals.shared(), named, users);
        let config = config.map_err(|error| format!("cannot write `{}`: {error}", folder.display()))?;
        Ok(host(rental, handle, config))
    }

    /// Copies what the machine lacks, ensures that its agent reaches the loop, and starts the agent if that was not done.
    fn go(
        &self,
        reached: &Reached,
        (instance, rental): (&InstanceId, &Rental),
        host: &Host,
        trusted: Duration,
    ) -> Result<(), String> {
        let ReachSettings { owner, socket, .. } = &self.settings;
        let door = self.door_for(rental.reach)?;
        reached.is_direct.store(door.is_some(), Ordering::SeqCst);
        let (connection, local) = (Connection::new(host, owner), door.is_none().then_some(socket.as_path()));
        let mut machine = reached.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = || self.copy_programs((instance, rental), host, &connection);
        machine.connect(&connection, (local, trusted), copy).map_err(|error| error.to_string())?;
        let Some(site) = machine.site.as_ref().filter(|_| !reached.has_agent.load(Ordering::SeqCst)) else {
            return Ok(());
        };
        let call = ProviderCall::Launch(Box::new(rental.request.clone()));
        let join = door.map(|door| door.offer(instance, JOINS_WITHIN)).transpose()?;
        let server = join.as_ref().map(|join| join.server.url.clone());
        match ask_joining(&connection, site, owner, rental.request.offer.rate, (&call, join)) {
            ProviderAnswer::Accepted(_) => reached.has_agent.store(true, Ordering::SeqCst),
            ProviderAnswer::Refused(refusal) => return Err(refusal.message()),
            ProviderAnswer::Unavailable(why) | ProviderAnswer::Doubt(why) => return Err(why),
            _ => return Err("`gradus node` answered another question".to_owned()),
        }
        if let Some(server) = server {
            let place = format!("{}/instances/{instance}/join.log", site.root);
            self.note(instance, &format!("its agent was started to join `{server}`; `{place}` there says why not"));
        }
        Ok(())
    }

    /// Copies missing files to a machine, from others of its run where they have them.
    fn copy_programs(
        &self,
        (instance, rental): (&InstanceId, &Rental),
        host: &Host,
        connection: &Connection,
    ) -> Result<Site, SshError> {
        let ReachSettings { owner, program, .. } = &self.settings;
        let Some(network) = GangNetwork::of(instance, rental) else {
            return bootstrap::prepare(connection, program, owner);
        };
        let (member, others) = (self.gangs.join(instance, network, host), OnceCell::new());
        let peers = || {
            let (inventory, load) = (others.get_or_init(|| member.wait()), self.gangs.load());
            Some(PeerNodes { node: &member.host, inventory, owner, load, private_only: true })
        };
        let (site, copied) = bootstrap::install(connection, program, owner, peers)?;
        member.prepared(copied.map_or_else(Vec::new, |copied| copied.failed_peers()));
        Ok(site)
    }

    /// Machines that could not send their files to this one when it was prepared; each once.
    pub fn take_failed_peers(&self, instance: &InstanceId) -> Vec<FailedPeer> {
        self.gangs.take_failed(instance)
    }

    /// Writes down why a machine was not reached, for who wonders.
    fn note(&self, instance: &InstanceId, why: &str) {
        // A failed write is not fatal.
        let _ = replace(&self.rentals.folder(instance), "reach.log", format!("{why}\n").as_bytes());
    }

    /// Whether the agent of a machine has joined this server: only one that was started to do so over TLS can have.
    fn has_joined(&self, instance: &InstanceId) -> bool {
        self.settings.door.as_ref().is_some_and(|door| door.has_joined(instance))
    }

    /// Whether a machine was reached, and has an agent. One that is being connected to was not yet.
    pub fn has_agent(&self, instance: &InstanceId) -> bool {
        if self.has_joined(instance) {
            return true;
        }
        let machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines.get(instance).is_some_and(|reached| reached.has_agent.load(Ordering::SeqCst))
    }

    /// Disconnects from a machine that is gone.
    pub fn forget(&self, instance: &InstanceId) {
        self.gangs.forget(instance);
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines.remove(instance);
    }
}

impl Reached {
    /// Whether it has an agent that calls without a tunnel, so that there is nothing to keep.
    fn needs_nothing(&self) -> bool {
        self.has_agent.load(Ordering::SeqCst) && self.is_direct.load(Ordering::SeqCst)
    }
}

/// Connects to a machine, and keeps its tunnel until that fails, the machine is gone or its loop has ended: neither is held
/// while this waits.
fn keep(reach: &Weak<Reach>, reached: &Weak<Reached>, running: &RunningMachine) {
    let (instance, mut known) = (&running.instance, None);
    loop {
        let (Some(reach), Some(reached)) = (reach.upgrade(), reached.upgrade()) else { return };
        let connected = match known.take() {
            Some(host) => Ok(host),
            None => reach.host(running),
        };
        let kept = connected.and_then(|host: Host| {
            reach.go(&reached, (instance, &running.rental), &host, TRUSTED)?;
            Ok(host)
        });
        match kept {
            Ok(host) if !reached.needs_nothing() => known = Some(host),
            ended => {
                if let Err(why) = ended {
                    reach.note(instance, &why);
                }
                reached.is_attended.store(false, Ordering::SeqCst);
                return;
            }
        }
        drop((reach, reached));
        std::thread::sleep(TRUSTED);
    }
}

/// Whether the agent of a machine that this home has rented from a cloud reaches the loop over TLS.
pub fn calls_over_tls(home: &Path, cloud: &str, instance: &InstanceId) -> bool {
    let Some(cloud) = RENTED_CLOUDS.into_iter().find(|name| *name == cloud) else { return false };
    let rental = Rentals::new(home, cloud).read(instance).ok().flatten();
    rental.is_some_and(|rental| rental.reach == NodeReach::Tls && rental.may_have_rented())
}

/// A rented machine as a node, which `ssh` finds by its handle in this configuration.
fn host(rental: &Rental, handle: &MachineHandle, config: PathBuf) -> Host {
    Host {
        pool: None,
        reach: rental.reach,
        name: handle.0.clone(),
        address: handle.0.clone(),
        config: Some(config),
        rate: rental.request.offer.rate,
        node: Node::default(),
        is_drained: false,
        is_prepared: true,
        facts: None,
        link: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use domain::Offer;
    use domain::rental::LaunchRequest;

    use super::*;

    /// The machines of a home whose own are found at no address.
    fn reach_of(home: &Path, door: Option<DirectDoor>) -> Arc<Reach> {
        let unreachable = home.join("unreachable");
        std::fs::write(&unreachable, "Host *\n  ProxyCommand false\n").unwrap();
        let program = Executables { gradus: "/bin/true".into(), rank: "/bin/true".into(), libtorch: None };
        let (socket, ssh_config) = (home.join("loop.sock"), Some(unreachable));
        let settings = ReachSettings { owner: "me".into(), socket, program, ssh_config, reach: NodeReach::Tls, door };
        Arc::new(Reach::new(settings, Rentals::new(home, "aws")))
    }

    fn rental(reach: NodeReach) -> Rental {
        let (node, rate) = (Node::default(), "1/h".parse().unwrap());
        let kind = "us-east-1/c7i.large".into();
        let offer = Offer { provider: "aws".into(), kind, node, rate, price_source: String::new() };
        let request = LaunchRequest {
            members: vec![InstanceId::new("r-i1")],
            token: "token".into(),
            offer,
            price_cap: None,
            expires: None,
            first_answer: None,
            has_peers: false,
        };
        Rental { reach, ..Rental::new(request, "us-east-1".into(), Vec::new()) }
    }

    fn running(reach: NodeReach) -> RunningMachine {
        let (instance, handle) = (InstanceId::new("r-i1"), MachineHandle("i-1".into()));
        RunningMachine { instance, rental: rental(reach), handle, address: "192.0.2.7".into() }
    }

    fn door(has_joined: bool) -> Option<DirectDoor> {
        Some(DirectDoor::new(|_, _| Err("no token is made here".to_owned()), move |_| has_joined))
    }

    #[test]
    fn what_would_call_over_tls_is_rented_only_by_a_loop_with_an_address() {
        let home = tempfile::tempdir().unwrap();
        let (deaf, listening) = (reach_of(home.path(), None), reach_of(home.path(), door(false)));
        assert_eq!(listening.wanted(), Ok(NodeReach::Tls));
        let said = match deaf.wanted() {
            Err(ProviderAnswer::Refused(Refusal::Denied { message })) => message,
            other => panic!("{other:?}"),
        };
        assert!(said.contains("`--agents-at https://HOST:PORT`") && said.contains("`aws.json`"), "{said}");
        let check = |reach: &Reach, rental: &Rental, expected: bool| {
            assert_eq!(reach.require_for(rental).is_ok(), expected, "{rental:?}");
        };
        check(&listening, &rental(NodeReach::Tls), true);
        check(&deaf, &rental(NodeReach::Tls), false);
        // What was rented for a tunnel has one, whatever is set since.
        check(&deaf, &rental(NodeReach::Tunnel), true);
        // A refusal would say that nothing was rented.
        check(&deaf, &Rental { unanswered: 1, ..rental(NodeReach::Tls) }, true);
        check(&deaf, &Rental { handle: Some("i-1".into()), ..rental(NodeReach::Tls) }, true);
    }

    #[test]
    fn a_rental_of_a_version_that_knew_tunnels_only_keeps_its_tunnel() {
        let text = serde_json::to_string(&rental(NodeReach::Tunnel)).unwrap();
        assert!(!text.contains("reach"), "as that version writes it: {text}");
        assert_eq!(serde_json::from_str::<Rental>(&text).unwrap().reach, NodeReach::Tunnel);
        let direct = rental(NodeReach::Tls);
        let text = serde_json::to_string(&direct).unwrap();
        assert_eq!(serde_json::from_str::<Rental>(&text).unwrap(), direct);
    }

    #[test]
    fn a_machine_that_may_have_been_rented_calls_as_its_rental_says() {
        let home = tempfile::tempdir().unwrap();
        let instance = InstanceId::new("r-i1");
        let rentals = Rentals::new(home.path(), "aws");
        let check = |rental: &Rental, expected: [bool; 2]| {
            rentals.write(&instance, rental).unwrap();
            let calls = ["aws", "gcp"].map(|cloud| calls_over_tls(home.path(), cloud, &instance));
            assert_eq!(calls, expected, "{rental:?}");
        };
        check(&rental(NodeReach::Tls), [false, false]);
        check(&Rental { unanswered: 1, ..rental(NodeReach::Tls) }, [true, false]);
        check(&Rental { handle: Some("i-1".into()), ..rental(NodeReach::Tls) }, [true, false]);
        check(&Rental { handle: Some("i-1".into()), ..rental(NodeReach::Tunnel) }, [false, false]);
        assert!(!calls_over_tls(home.path(), "local", &instance));
    }

    #[test]
    fn a_machine_whose_agent_has_joined_is_not_entered_again() {
        let home = tempfile::tempdir().unwrap();
        let (instance, handle) = (InstanceId::new("r-i1"), MachineHandle("i-1".into()));
        // A server that was just started has only what the one before has written down.
        let joined = reach_of(home.path(), door(true));
        joined.attend(&rental(NodeReach::Tls), &handle, "192.0.2.7");
        assert!(joined.machines.lock().unwrap().is_empty(), "nobody connects to it");
        assert!(joined.has_agent(&instance) && !reach_of(home.path(), door(false)).has_agent(&instance));
    }

    #[test]
    fn a_join_token_is_made_only_for_a_machine_that_was_entered() {
        let home = tempfile::tempdir().unwrap();
        let made = Arc::new(AtomicU32::new(0));
        let counted = made.clone();
        let count = move |_: &InstanceId| counted.fetch_add(1, Ordering::SeqCst);
        let go = |reach: &Reach, of: NodeReach| {
            let (running, reached) = (running(of), Reached::default());
            let host = reach.host(&running).unwrap();
            let why = reach.go(&reached, (&running.instance, &running.rental), &host, TRUSTED).unwrap_err();
            (why, reached.is_direct.load(Ordering::SeqCst))
        };
        let counting =
            DirectDoor::new(move |instance, _| Err(format!("token {} is not made", count(instance))), |_| false);
        let listening = reach_of(home.path(), Some(counting));
        let (why, is_direct) = go(&listening, NodeReach::Tls);
        assert!(why.contains("cannot connect to `i-1`") && is_direct, "{why}");
        assert_eq!(made.load(Ordering::SeqCst), 0);
        let (_, is_direct) = go(&listening, NodeReach::Tunnel);
        assert!(!is_direct, "it was rented for a tunnel");
        // A server without an address starts nothing there that could not call it.
        let deaf = reach_of(home.path(), None);
        let (why, is_direct) = go(&deaf, NodeReach::Tls);
        assert!(why.contains("--agents-at") && !is_direct, "{why}");
    }

    /// Agents there may call at a socket that nobody reads while the connection itself stands.
    #[test]
    fn a_tunnel_that_stands_is_checked_all_the_same() {
        let home = tempfile::tempdir().unwrap();
        let (reach, running) = (reach_of(home.path(), None), running(NodeReach::Tunnel));
        let (machine, host) = (Mutex::new(SshMachine::standing()), reach.host(&running).unwrap());
        let reached = Reached { machine, has_agent: AtomicBool::new(true), ..Reached::default() };
        let go = |trusted: Duration| reach.go(&reached, (&running.instance, &running.rental), &host, trusted);
        assert_eq!(go(Duration::from_secs(3600)), Ok(()), "it was checked a moment ago");
        let why = go(Duration::ZERO).unwrap_err();
        assert!(why.contains("cannot connect to `i-1`"), "{why}");
        assert!(!reached.needs_nothing(), "a thread keeps it");
    }
}
