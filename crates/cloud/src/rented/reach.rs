//! How the loop reaches a machine that runs: as a node, by SSH.
//!
//! A thread per machine copies missing files, starts the agent there with the request that rented the machine, and
//! keeps a tunnel open for the agent's calls. It is started by a view of the machine, does nothing if all is well, and
//! is started again by the next view if not.
//!
//! A machine that was rented to be reached over TLS has no tunnel. Its agent gets a join token for its own instance with its
//! start, on standard input; once it has joined, nothing needs SSH any more, and the machine is not entered again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use domain::rental::{MachineHandle, Refusal};
use domain::wants::RENTED_CLOUDS;
use domain::{Elapsed, InstanceId, Node};

use super::key;
use super::rentals::{Rental, Rentals, replace};
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
        let (reach, rental, handle, address) = (self.clone(), rental.clone(), handle.clone(), address.to_owned());
        let instance = instance.clone();
        std::thread::spawn(move || {
            let Ok(mut reached) = machine.try_lock() else { return };
            if let Err(why) = reach.go(&mut reached, (&instance, &rental), &handle, &address) {
                reach.note(&instance, &why);
            }
        });
    }

    fn go(
        &self,
        reached: &mut Reached,
        (instance, rental): (&InstanceId, &Rental),
        handle: &MachineHandle,
        address: &str,
    ) -> Result<(), String> {
        let ReachSettings { owner, socket, program, ssh_config, .. } = &self.settings;
        let (folder, request) = (self.rentals.folder(instance), &rental.request);
        let door = self.door_for(rental.reach)?;
        reached.is_direct = door.is_some();
        let named = (handle.0.as_str(), address);
        let config = key::configure(&folder, &self.rentals.shared(), named, ssh_config.as_deref());
        let config = config.map_err(|error| format!("cannot write `{}`: {error}", folder.display()))?;
        let connection = Connection::new(&host(rental, handle, config), owner);
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
            let server = join.as_ref().map(|join| join.server.url.clone());
            match ask_joining(&connection, site, owner, request.offer.rate, (&call, join)) {
                ProviderAnswer::Accepted(_) => reached.has_agent = true,
                ProviderAnswer::Refused(refusal) => return Err(refusal.message()),
                ProviderAnswer::Unavailable(why) | ProviderAnswer::Doubt(why) => return Err(why),
                _ => return Err("`gradus node` answered another question".to_owned()),
            }
            if let Some(server) = server {
                let place = format!("{}/instances/{instance}/join.log", site.root);
                self.note(instance, &format!("its agent was started to join `{server}`; `{place}` there says why not"));
            }
        }
        Ok(())
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
        machines.get(instance).is_some_and(|machine| machine.try_lock().is_ok_and(|reached| reached.has_agent))
    }

    /// Disconnects from a machine that is gone.
    pub fn forget(&self, instance: &InstanceId) {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines.remove(instance);
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
    use std::sync::atomic::{AtomicU32, Ordering};

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
            let (instance, handle) = (InstanceId::new("r-i1"), MachineHandle("i-1".into()));
            let mut reached = Reached::default();
            let why = reach.go(&mut reached, (&instance, &rental(of)), &handle, "192.0.2.7").unwrap_err();
            (why, reached.is_direct)
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
}
