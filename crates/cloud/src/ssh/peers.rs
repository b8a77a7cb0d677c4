//! Which node another one fetches programs from before the rest is copied from here.
//!
//! Nodes of one pool are taken to reach each other, as ranks of a job on them do. Between pools that is not known, and may cost
//! money. A node is read by few at a time: it may be training.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::inventory::{Host, Inventory, NodeLink};

/// Nodes that read from one at the same time, of those that this process prepares.
pub(crate) const READERS: usize = 2;

/// How many others a node asks before everything comes from here.
const ASKED: usize = 2;

/// For so long a node is not asked again from which nothing could be fetched.
const FAILED: Duration = Duration::from_secs(300);

/// A peer that sends fewer bytes per second is given up, whatever the connection from here carries.
const SLOWEST: u64 = 256_000;

/// And one that sends more is not: what it compresses is not compared with a faster connection.
const FAST_ENOUGH: u64 = 8_000_000;

/// Who reads from which node now, and which nodes could not be read from.
#[derive(Debug, Default)]
pub struct PeerLoad(Mutex<BTreeMap<String, PeerState>>);

#[derive(Debug, Clone, Default)]
struct PeerState {
    readers: usize,
    failed: Option<PeerFailure>,
}

/// Why nothing is fetched from a node for a while.
#[derive(Debug, Clone)]
struct PeerFailure {
    at: Instant,
    /// The node that asked for its files.
    reader: String,
    why: String,
}

/// What is known of a node from which another one may fetch.
#[derive(Debug, Clone, Copy)]
struct PeerFacts<'a> {
    host: &'a Host,
    readers: usize,
    has_failed: bool,
}

/// A node that is prepared, and those that may have what it needs.
#[derive(Debug, Clone, Copy)]
pub struct PeerNodes<'a> {
    /// The node.
    pub node: &'a Host,
    /// All nodes.
    pub inventory: &'a Inventory,
    /// The owner of the home.
    pub owner: &'a str,
    /// Who is read from now.
    pub load: &'a PeerLoad,
    /// Whether nothing is read through a public address: what machines of a cloud send there costs money.
    pub private_only: bool,
}

impl<'a> PeerNodes<'a> {
    /// The next node to fetch from, after those that were asked already.
    pub(super) fn take_slot(&self, asked: &BTreeSet<String>) -> Option<ReaderSlot<'a>> {
        let mut states = self.load.locked();
        let facts = |host: &'a Host| {
            let state = states.get(&host.name);
            let failure = state.and_then(|state| state.failed.as_ref());
            let has_failed = failure.is_some_and(|failure| failure.at.elapsed() < FAILED);
            PeerFacts { host, readers: state.map_or(0, |state| state.readers), has_failed }
        };
        let known: Vec<PeerFacts<'a>> = self.inventory.hosts.iter().map(facts).collect();
        let host = peer_for(self.node, &known, asked)?;
        states.entry(host.name.clone()).or_default().readers += 1;
        Some(ReaderSlot { host, load: self.load })
    }

    /// Why nothing is fetched from a node that serves at this address; `None` where something is.
    pub(super) fn refusal(&self, address: IpAddr) -> Option<String> {
        let is_refused = self.private_only && !is_private(address);
        is_refused.then(|| format!("its address {address} is not one of a private network"))
    }

    /// Nodes that are not asked because they failed for another one a moment ago, each with the reason; no more than would have
    /// been asked.
    pub(super) fn skipped(&self) -> Vec<(String, String)> {
        let states = self.load.locked();
        let reason = |host: &Host| {
            let failure = states.get(&host.name)?.failed.as_ref()?;
            skip_reason(&self.node.name, failure, failure.at.elapsed())
        };
        let able = self.inventory.hosts.iter().filter(|host| may_send(self.node, host));
        able.filter_map(|host| Some((host.name.clone(), reason(host)?))).take(ASKED).collect()
    }
}

impl PeerLoad {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, PeerState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a node could not send its files a moment ago.
    pub(crate) fn has_failed(&self, node: &str) -> bool {
        let states = self.locked();
        let failure = states.get(node).and_then(|state| state.failed.as_ref());
        failure.is_some_and(|failure| failure.at.elapsed() < FAILED)
    }

    /// Notes that programs were installed on a node: it may have failed before because it did not have them.
    pub(crate) fn note_prepared(&self, node: &str) {
        if let Some(state) = self.locked().get_mut(node) {
            state.failed = None;
        }
    }
}

/// One reader of a node, until this is dropped.
#[derive(Debug)]
pub(super) struct ReaderSlot<'a> {
    /// The node that is read.
    pub host: &'a Host,
    load: &'a PeerLoad,
}

impl ReaderSlot<'_> {
    /// Notes that it could not send everything to this node, and why.
    pub fn note_failed(&self, reader: &str, why: &str) {
        let failure = PeerFailure { at: Instant::now(), reader: reader.to_owned(), why: why.to_owned() };
        self.load.locked().entry(self.host.name.clone()).or_default().failed = Some(failure);
    }
}

impl Drop for ReaderSlot<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.load.locked().get_mut(&self.host.name) {
            state.readers = state.readers.saturating_sub(1);
        }
    }
}

/// The node that another one asks next: of its own pool or, like itself, of none, the one with the fewest readers. `None` where
/// the rest is copied from here.
fn peer_for<'a>(node: &Host, known: &[PeerFacts<'a>], asked: &BTreeSet<String>) -> Option<&'a Host> {
    if asked.len() >= ASKED {
        return None;
    }
    let is_free = |peer: &PeerFacts| !peer.has_failed && peer.readers < READERS;
    let able = known.iter().filter(|peer| is_free(peer) && may_send(node, peer.host));
    able.filter(|peer| !asked.contains(&peer.host.name)).min_by_key(|peer| peer.readers).map(|peer| peer.host)
}

/// Whether a node may have files for another one, and can reach it.
fn may_send(node: &Host, peer: &Host) -> bool {
    // One machine may have two names.
    let is_itself = peer.name == node.name || peer.address == node.address && peer.config == node.config;
    peer.is_usable() && peer.pool == node.pool && !is_itself
}

/// Whether an address is one of a private network, or shared address space (RFC 6598), which networks of clouds have too.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            address.is_private() || first == 100 && second & 0xc0 == 64
        }
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

/// Why a node does not ask another one that failed so long ago; `None` where it may be asked, or where it failed for this very
/// node, which has reported that.
fn skip_reason(node: &str, failure: &PeerFailure, ago: Duration) -> Option<String> {
    let PeerFailure { reader, why, .. } = failure;
    let is_skipped = ago < FAILED && reader != node;
    is_skipped.then(|| format!("it was not asked, because {} s ago it failed for `{reader}`: {why}", ago.as_secs()))
}

/// The bytes per second below which a peer is given up: half of what the connection from here carries, as far as that was
/// measured.
pub(super) fn slowest_peer(link: Option<NodeLink>) -> u64 {
    link.map_or(SLOWEST, |link| (link.to.0 / 2).clamp(SLOWEST, FAST_ENOUGH))
}

#[cfg(test)]
mod tests {
    use domain::{Bytes, Node, Rate};

    use super::*;
    use crate::ssh::NodeReach;

    fn host(name: &str, pool: Option<&str>) -> Host {
        Host {
            name: name.into(),
            address: format!("me@{name}"),
            config: None,
            pool: pool.map(str::to_owned),
            reach: NodeReach::Tunnel,
            rate: Rate::default(),
            node: Node::default(),
            is_drained: false,
            is_prepared: true,
            facts: None,
            link: None,
        }
    }

    fn nodes<'a>(node: &'a Host, inventory: &'a Inventory, load: &'a PeerLoad) -> PeerNodes<'a> {
        PeerNodes { node, inventory, owner: "me", load, private_only: false }
    }

    /// The name of the node that `new`, of the pool `lab`, asks among these, each with its readers and whether it has failed.
    fn asked_of(known: &[(Host, usize, bool)], asked: &[&str]) -> Option<String> {
        let facts: Vec<PeerFacts> = known
            .iter()
            .map(|(host, readers, has_failed)| PeerFacts { host, readers: *readers, has_failed: *has_failed })
            .collect();
        let asked = asked.iter().map(|name| (*name).to_owned()).collect();
        peer_for(&host("new", Some("lab")), &facts, &asked).map(|host| host.name.clone())
    }

    #[test]
    fn a_node_asks_one_of_its_pool_that_has_few_readers() {
        let lab = |name: &str| host(name, Some("lab"));
        let check = |known: &[(Host, usize, bool)], expected: Option<&str>| {
            assert_eq!(asked_of(known, &[]).as_deref(), expected, "{known:?}");
        };
        check(&[], None);
        check(&[(lab("new"), 0, false)], None);
        check(&[(Host { address: "me@new".into(), ..lab("alias") }, 0, false)], None);
        check(&[(lab("a"), 0, false), (lab("b"), 0, false)], Some("a"));
        check(&[(lab("a"), 1, false), (lab("b"), 0, false)], Some("b"));
        check(&[(lab("a"), READERS, false)], None);
        check(&[(lab("a"), 0, true), (lab("b"), 1, false)], Some("b"));
        check(&[(host("a", Some("other")), 0, false), (host("b", None), 0, false)], None);
        check(&[(Host { is_prepared: false, ..lab("a") }, 0, false)], None);
        check(&[(Host { is_drained: true, ..lab("a") }, 0, false)], None);
    }

    #[test]
    fn after_two_others_everything_comes_from_here() {
        let known: Vec<_> = ["a", "b", "c"].map(|name| (host(name, Some("lab")), 0, false)).into();
        assert_eq!(asked_of(&known, &["a"]).as_deref(), Some("b"));
        assert_eq!(asked_of(&known, &["a", "b"]), None);
    }

    #[test]
    fn a_reader_counts_until_it_has_ended_and_a_failure_for_a_while() {
        let inventory = Inventory { hosts: vec![host("a", None), host("new", None)] };
        let load = PeerLoad::default();
        let peers = nodes(&inventory.hosts[1], &inventory, &load);
        let next = || peers.take_slot(&BTreeSet::new());
        let (first, second) = (next(), next());
        assert!(first.is_some() && second.is_some() && next().is_none(), "two at a time");
        drop(first);
        assert_eq!(next().map(|slot| slot.host.name.clone()).as_deref(), Some("a"));
        assert!(peers.skipped().is_empty());
        second.unwrap().note_failed("other", "it is off");
        assert!(next().is_none());
        let skipped = peers.skipped();
        let [(peer, why)] = &skipped[..] else { panic!("{skipped:?}") };
        assert!(peer == "a" && why.ends_with("it failed for `other`: it is off"), "{skipped:?}");
        assert!(load.has_failed("a") && !load.has_failed("new"));
        load.note_prepared("a");
        assert!(next().is_some());
        assert!(peers.skipped().is_empty());
    }

    #[test]
    fn a_node_that_is_not_asked_because_it_failed_for_another_one_is_named() {
        let failure = PeerFailure { at: Instant::now(), reader: "east".into(), why: "it is off".into() };
        let check = |node: &str, seconds: u64, expected: Option<&str>| {
            let reason = skip_reason(node, &failure, Duration::from_secs(seconds));
            assert_eq!(reason.as_deref(), expected, "{node} after {seconds} s");
        };
        check("north", 40, Some("it was not asked, because 40 s ago it failed for `east`: it is off"));
        check("north", 300, None);
        check("east", 40, None);
    }

    #[test]
    fn no_more_nodes_are_named_than_would_have_been_asked_and_none_of_another_pool() {
        let mut hosts: Vec<Host> = ["a", "b", "c"].map(|name| host(name, Some("lab"))).into();
        hosts.extend([host("far", None), host("new", Some("lab"))]);
        let inventory = Inventory { hosts };
        let load = PeerLoad::default();
        for host in &inventory.hosts {
            ReaderSlot { host, load: &load }.note_failed("other", "it is off");
        }
        let names = |node: &Host| {
            nodes(node, &inventory, &load).skipped().into_iter().map(|(peer, _)| peer).collect::<Vec<_>>()
        };
        assert_eq!(names(&inventory.hosts[4]), ["a", "b"]);
        assert_eq!(names(&inventory.hosts[3]), [""; 0]);
    }

    #[test]
    fn machines_of_a_cloud_are_read_at_private_addresses_only() {
        let (inventory, load) = (Inventory { hosts: vec![host("new", None)] }, PeerLoad::default());
        let in_pool = nodes(&inventory.hosts[0], &inventory, &load);
        let in_cloud = PeerNodes { private_only: true, ..in_pool };
        let check = |address: &str, expected: bool| {
            let refused = in_cloud.refusal(address.parse().unwrap()).is_some();
            assert_eq!(refused, expected, "{address}");
            assert_eq!(in_pool.refusal(address.parse().unwrap()), None, "a pool is taken to be in one network");
        };
        for address in ["10.0.0.7", "172.31.255.1", "192.168.1.2", "100.64.0.9", "fd00::7", "::ffff:10.0.0.7"] {
            check(address, false);
        }
        for address in ["192.0.2.7", "172.32.0.1", "100.128.0.1", "127.0.0.1", "2001:db8::7", "::ffff:192.0.2.7"] {
            check(address, true);
        }
    }

    #[test]
    fn a_peer_may_be_half_as_fast_as_the_connection_from_here() {
        let check = |to: u64, expected: u64| {
            let link = NodeLink { to: Bytes(to), from: Bytes(to), round_trip_us: 1 };
            assert_eq!(slowest_peer(Some(link)), expected);
        };
        check(0, SLOWEST);
        check(2_000_000, 1_000_000);
        check(1_000_000_000, FAST_ENOUGH);
        assert_eq!(slowest_peer(None), SLOWEST);
    }
}
