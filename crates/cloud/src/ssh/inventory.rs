//! The nodes of a home: `nodes.json`.

mod gpus;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use domain::{Bytes, Node, Offer, Rate};
use node::facts::NodeFacts;
use serde::{Deserialize, Serialize};

use super::direct::NodeReach;

/// The kind of the offer of any node.
pub(super) const ANY: &str = Offer::ANY;

/// The nodes of a home.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// In the order in which they are tried.
    pub hosts: Vec<Host>,
}

/// One node: a machine that can be reached by SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name in gradus.
    pub name: String,
    /// What `ssh` is given: a host of the user's configuration, or `user@address`.
    pub address: String,
    /// The configuration file of `ssh`, if not the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// The pool that it belongs to, by which jobs ask for any of its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// How its agents reach the loop.
    #[serde(default, skip_serializing_if = "NodeReach::is_default")]
    pub reach: NodeReach,
    /// Its price.
    pub rate: Rate,
    /// Its hardware, as detected when it was added.
    pub node: Node,
    /// No new work is started on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_drained: bool,
    /// Whether programs were copied to it. Nothing starts on one to which they were not, or not whole. Earlier versions have
    /// only such nodes, and do not say so.
    #[serde(default = "prepared", skip_serializing_if = "Clone::clone")]
    pub is_prepared: bool,
    /// What it said of itself when it was looked at last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Box<NodeFacts>>,
    /// What its connection carried then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<NodeLink>,
}

/// What the connection between this machine and a node carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLink {
    /// Bytes per second to the node.
    pub to: Bytes,
    /// Bytes per second from it.
    pub from: Bytes,
    /// How long a command that does nothing takes, in microseconds.
    pub round_trip_us: u64,
}

impl Inventory {
    /// Reads the nodes of a home; empty if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read, or is malformed.
    pub fn read(home: &Path) -> io::Result<Inventory> {
        match fs::read(home.join("nodes.json")) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Inventory::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes the nodes of a home atomically.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, home: &Path) -> io::Result<()> {
        node::durable::replace(&home.join("nodes.json"), &serde_json::to_vec_pretty(self)?)
    }

    /// Adds a node, or replaces the one of its name.
    pub fn put(&mut self, host: Host) {
        match self.hosts.iter_mut().find(|other| other.name == host.name) {
            Some(known) => *known = host,
            None => self.hosts.push(host),
        }
    }

    /// The nodes that an offer means, in the order in which they are tried: the one of its name, or of all or a pool those that
    /// cost the same.
    pub(super) fn wanted(&self, kind: &str, rate: Rate) -> impl Iterator<Item = &Host> {
        self.usable(kind).filter(move |host| host.name == kind || host.rate == rate)
    }

    /// The nodes of a kind on which work may start: the one of its name, those of a pool, or all.
    fn usable(&self, kind: &str) -> impl Iterator<Item = &Host> {
        let pool = Offer::pool_of(kind);
        let is_of_pool = move |host: &Host| pool.is_some() && host.pool.as_deref() == pool;
        let is_meant = move |host: &Host| kind == ANY || host.name == kind || is_of_pool(host);
        self.hosts.iter().filter(move |host| host.is_usable() && is_meant(host))
    }

    /// What the name of a node or a pool in a job stands for: the kind of its offer.
    pub fn kind_of(&self, name: &str) -> String {
        match self.pools().contains(name) {
            true => Offer::kind_of_pool(name),
            false => name.to_owned(),
        }
    }

    /// The pools, by name.
    pub fn pools(&self) -> BTreeSet<&str> {
        self.hosts.iter().filter_map(|host| host.pool.as_deref()).collect()
    }

    /// The number of machines of an offer of this kind that can be used at once.
    pub fn count(&self, kind: &str) -> usize {
        let rate = self.cheapest(kind).map_or(Rate::default(), |(_, rate)| rate);
        self.wanted(kind, rate).count()
    }

    /// The usable nodes of a kind, by their price, the lowest first.
    pub fn by_price(&self, kind: &str) -> BTreeMap<Rate, Vec<&Host>> {
        let mut found: BTreeMap<Rate, Vec<&Host>> = BTreeMap::new();
        self.usable(kind).for_each(|host| found.entry(host.rate).or_default().push(host));
        found
    }

    /// What the slowest connection to one of those nodes carries, in bytes per second; `None` where one was never measured.
    pub fn slowest_link(&self, kind: &str) -> Option<Bytes> {
        let (_, rate) = self.cheapest(kind)?;
        let links: Option<Vec<Bytes>> = self.wanted(kind, rate).map(|host| Some(host.link?.to)).collect();
        links?.into_iter().min()
    }

    /// The names of the machines that [`Inventory::count`] counts, by their GPUs, such as `8 × NVIDIA A10`. Those whose GPUs are
    /// not known are left out.
    pub fn by_gpus(&self, kind: &str) -> BTreeMap<String, Vec<&str>> {
        let rate = self.cheapest(kind).map_or(Rate::default(), |(_, rate)| rate);
        let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for host in self.wanted(kind, rate) {
            if let Some(gpus) = host.facts.as_deref().and_then(gpus_in_words) {
                found.entry(gpus).or_default().push(&host.name);
            }
        }
        found
    }

    /// The offer of [`ANY`] node or of a pool: the hardware common to the cheapest of them, at their price. `None` without nodes.
    pub(super) fn cheapest(&self, kind: &str) -> Option<(Node, Rate)> {
        let rate = self.usable(kind).map(|host| host.rate).min()?;
        let node = self.wanted(kind, rate).map(|host| host.node.clone()).reduce(|one, other| least(&one, &other))?;
        Some((node, rate))
    }
}

fn prepared() -> bool {
    true
}

impl Host {
    /// Whether new work may start on it.
    pub fn is_usable(&self) -> bool {
        self.is_prepared && !self.is_drained
    }

    /// Whether the other one is the same machine, reached in the same way.
    fn is_reached_as(&self, other: &Host) -> bool {
        let way = |host: &Host| (host.name.clone(), host.address.clone(), host.config.clone(), host.reach);
        way(self) == way(other)
    }
}

/// The nodes of a home as they are now. `nodes.json` is read again when it has changed: a server that runs for long knows
/// nodes that are added, drained and removed meanwhile.
#[derive(Debug)]
pub(super) struct KnownNodes {
    /// The home, where its file is followed.
    home: Option<PathBuf>,
    read: Mutex<ReadNodes>,
}

#[derive(Debug, Default)]
struct ReadNodes {
    inventory: Arc<Inventory>,
    stamp: Option<Stamp>,
    /// Nodes that were removed: what was placed on one is still asked there.
    removed: Vec<Host>,
    /// Names of nodes that were removed, or are reached in another way, since somebody asked for them.
    changed: BTreeSet<String>,
}

/// What changes with a file: its inode, its time in seconds and nanoseconds, and its length.
type Stamp = (u64, i64, i64, u64);

impl KnownNodes {
    /// These nodes, and where a home is given, those of its file once that has changed.
    pub fn new(inventory: Inventory, home: Option<PathBuf>) -> KnownNodes {
        let read = ReadNodes { inventory: Arc::new(inventory), ..ReadNodes::default() };
        KnownNodes { home, read: Mutex::new(read) }
    }

    /// Those that can be used now; as they were, where the file cannot be read.
    pub fn now(&self) -> Arc<Inventory> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(home) = &self.home else { return read.inventory.clone() };
        let stamp = stamp(home);
        if stamp != read.stamp
            && let Ok(inventory) = Inventory::read(home)
        {
            let is_removed = |host: &&Host| !inventory.hosts.iter().any(|other| other.name == host.name);
            let removed: Vec<Host> = read.inventory.hosts.iter().filter(is_removed).cloned().collect();
            read.removed.extend(removed);
            let is_changed = |host: &&Host| !inventory.hosts.iter().any(|other| other.is_reached_as(host));
            let changed: Vec<String> =
                read.inventory.hosts.iter().filter(is_changed).map(|host| host.name.clone()).collect();
            read.changed.extend(changed);
            read.inventory = Arc::new(inventory);
            read.stamp = stamp;
        }
        read.inventory.clone()
    }

    /// Whether nodes are followed as they are added and removed: only the loop of a home does that.
    pub fn is_followed(&self) -> bool {
        self.home.is_some()
    }

    /// The names of nodes that were removed, or are reached in another way, since this was asked last.
    pub fn take_changed(&self) -> BTreeSet<String> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut read.changed)
    }

    /// The node of this name, also one that was removed since.
    pub fn host(&self, name: &str) -> Option<Host> {
        let inventory = self.now();
        if let Some(host) = inventory.hosts.iter().find(|host| host.name == name) {
            return Some(host.clone());
        }
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.removed.iter().rev().find(|host| host.name == name).cloned()
    }
}

/// `None` where there is no file.
fn stamp(home: &Path) -> Option<Stamp> {
    let file = fs::metadata(home.join("nodes.json")).ok()?;
    Some((file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
}

/// The GPUs of a machine in a few words; none where its driver did not say.
fn gpus_in_words(facts: &NodeFacts) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for device in &facts.gpu.devices {
        *counts.entry(device.name.as_str()).or_default() += 1;
    }
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{count} × {name}")).collect();
    match words.is_empty() {
        true => facts.gpu.error.is_none().then(|| "no GPU".to_owned()),
        false => Some(words.join(" and ")),
    }
}

/// The hardware common to both machines.
fn least(one: &Node, other: &Node) -> Node {
    Node {
        cpu: if one.cpu == other.cpu { one.cpu.clone() } else { String::new() },
        cores: one.cores.min(other.cores),
        memory: Bytes(one.memory.0.min(other.memory.0)),
        disk_free: Bytes(one.disk_free.0.min(other.disk_free.0)),
        volume: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, is_drained: bool) -> Host {
        let node = Node { cores: 2, ..Node::default() };
        Host {
            name: name.into(),
            address: format!("me@{name}"),
            config: None,
            pool: None,
            reach: NodeReach::Tunnel,
            rate: Rate::default(),
            node,
            is_drained,
            is_prepared: true,
            facts: None,
            link: None,
        }
    }

    #[test]
    fn nodes_are_read_back_and_chosen_by_name() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Inventory::read(home.path()).unwrap(), Inventory::default());
        let inventory = Inventory { hosts: vec![host("a", false), host("b", true), host("c", false)] };
        inventory.write(home.path()).unwrap();
        assert_eq!(Inventory::read(home.path()).unwrap(), inventory);
        let free = Rate::default();
        let names = |kind: &str| inventory.wanted(kind, free).map(|host| host.name.clone()).collect::<Vec<_>>();
        assert_eq!((names(ANY), names("c"), names("b")), (vec!["a".into(), "c".into()], vec!["c".into()], vec![]));
        // Any node means any of the cheapest, so that the bill shows the price paid.
        let mut priced = inventory.clone();
        priced.hosts[0].rate = "2/h".parse().unwrap();
        priced.hosts[2].rate = "1/h".parse().unwrap();
        let (node, rate) = priced.cheapest(ANY).unwrap();
        assert_eq!((node.cores, rate), (2, "1/h".parse().unwrap()));
        assert_eq!(priced.wanted(ANY, rate).map(|host| &*host.name).collect::<Vec<_>>(), ["c"]);
        assert_eq!(Inventory { hosts: vec![host("b", true)] }.cheapest(ANY), None);
        fs::write(home.path().join("nodes.json"), "{").unwrap();
        assert!(Inventory::read(home.path()).is_err());
    }

    #[test]
    fn machines_are_told_apart_by_their_gpus() {
        let with = |name: &str, gpus: &[&str]| {
            let device = |gpu: &&str| node::facts::GpuDevice { name: (*gpu).to_owned(), ..Default::default() };
            let mut facts = NodeFacts::default();
            facts.gpu.devices = gpus.iter().map(device).collect();
            Host { facts: Some(Box::new(facts)), ..host(name, false) }
        };
        let mut silent = with("e", &[]);
        silent.facts.as_mut().unwrap().gpu.error = Some("it cannot be run".to_owned());
        let hosts =
            vec![with("a", &["A10", "A10"]), with("b", &[]), with("c", &["A10", "T4"]), host("d", false), silent];
        let inventory = Inventory { hosts };
        let found = inventory.by_gpus(ANY).into_iter().map(|(gpus, names)| format!("{gpus}: {names:?}"));
        let expected = [r#"1 × A10 and 1 × T4: ["c"]"#, r#"2 × A10: ["a"]"#, r#"no GPU: ["b"]"#];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn nodes_are_known_as_soon_as_they_are_added() {
        let home = tempfile::tempdir().unwrap();
        let names = |nodes: &KnownNodes| nodes.now().hosts.iter().map(|host| host.name.clone()).collect::<Vec<_>>();
        let nodes = KnownNodes::new(Inventory::default(), Some(home.path().to_owned()));
        let fixed = KnownNodes::new(Inventory { hosts: vec![host("z", false)] }, None);
        assert!(names(&nodes).is_empty() && nodes.host("first").is_none());
        let mut inventory = Inventory { hosts: vec![host("first", false)] };
        inventory.put(host("first", false));
        inventory.write(home.path()).unwrap();
        assert_eq!(names(&nodes), ["first"]);
        Inventory { hosts: vec![host("another", true)] }.write(home.path()).unwrap();
        assert_eq!(names(&nodes), ["another"]);
        assert!(nodes.host("another").is_some_and(|host| host.is_drained));
        assert!(nodes.host("first").is_some(), "what runs there is still asked");
        fs::write(home.path().join("nodes.json"), "{").unwrap();
        assert_eq!(names(&nodes), ["another"], "as they were before the file was damaged");
        assert_eq!(names(&fixed), ["z"]);
    }

    #[test]
    fn what_is_known_of_a_node_is_dropped_once_it_is_removed_or_reached_in_another_way() {
        let home = tempfile::tempdir().unwrap();
        let inventory = Inventory { hosts: vec![host("a", false), host("b", false)] };
        let nodes = KnownNodes::new(inventory, Some(home.path().into()));
        let changed = |hosts: Vec<Host>| {
            Inventory { hosts }.write(home.path()).unwrap();
            nodes.now();
            nodes.take_changed().into_iter().collect::<Vec<String>>()
        };
        assert_eq!(changed(vec![host("a", true), host("b", false), host("c", false)]), [""; 0], "drained, and added");
        let moved = Host { address: "me@other".into(), ..host("b", false) };
        assert_eq!(changed(vec![host("a", false), moved.clone()]), ["b", "c"]);
        let configured = Host { config: Some("/other".into()), ..host("a", false) };
        assert_eq!(changed(vec![configured.clone(), moved.clone()]), ["a"]);
        assert_eq!(changed(vec![configured, Host { reach: NodeReach::Tls, ..moved }]), ["b"]);
        assert!(nodes.take_changed().is_empty() && nodes.is_followed());
    }

    /// `gradus nodes add` that was interrupted leaves a node, so that `gradus nodes rm` can delete what was copied to it.
    #[test]
    fn a_node_without_its_programs_is_not_rented() {
        let half = Host { is_prepared: false, pool: Some("lab".into()), ..host("b", false) };
        let inventory = Inventory { hosts: vec![half, Host { rate: "1/h".parse().unwrap(), ..host("a", false) }] };
        let counts = [ANY, "a", "b", "pool"].map(|kind| match kind {
            "pool" => inventory.count(&Offer::kind_of_pool("lab")),
            kind => inventory.count(kind),
        });
        assert_eq!(counts, [1, 1, 0, 0]);
        assert_eq!(inventory.cheapest(ANY).map(|(_, rate)| rate), Some("1/h".parse().unwrap()));
    }

    /// A pool means its own nodes and no other, the cheapest of them, as `any` does of all.
    #[test]
    fn a_pool_is_any_of_its_nodes() {
        let mut inventory = Inventory { hosts: ["a", "b", "c", "d", "e"].map(|name| host(name, name == "d")).into() };
        for (index, rate) in [(0, "1/h"), (1, "2/h"), (2, "2/h"), (3, "1/h")] {
            inventory.hosts[index].rate = rate.parse().unwrap();
        }
        for index in [1, 2, 3] {
            inventory.hosts[index].pool = Some("lab".into());
        }
        inventory.hosts[4].pool = Some("far".into());
        let kind = Offer::kind_of_pool("lab");
        let (_, rate) = inventory.cheapest(&kind).unwrap();
        let names: Vec<&str> = inventory.wanted(&kind, rate).map(|host| &*host.name).collect();
        assert_eq!((rate, names), ("2/h".parse().unwrap(), vec!["b", "c"]), "`d` is drained");
        assert_eq!(["lab", "far", "other"].map(|pool| inventory.count(&Offer::kind_of_pool(pool))), [2, 1, 0]);
        assert_eq!(inventory.count("lab"), 0, "a node of that name is another thing");
        assert_eq!(inventory.pools(), BTreeSet::from(["far", "lab"]));
        // Data is copied as fast as the slowest of them takes it.
        let link = |to: u64| Some(NodeLink { to: Bytes(to), from: Bytes(1), round_trip_us: 1 });
        inventory.hosts[1].link = link(20);
        assert_eq!(inventory.slowest_link(&kind), None, "`c` was never measured");
        inventory.hosts[2].link = link(10);
        assert_eq!((inventory.slowest_link(&kind), inventory.slowest_link("b")), (Some(Bytes(10)), Some(Bytes(20))));
        // A file without pools reads as before.
        let old =
            r#"{"hosts":[{"name":"a","address":"a","rate":0,"node":{"cpu":"","cores":1,"memory":0,"disk_free":0}}]}"#;
        assert!(
            serde_json::from_str::<Inventory>(old)
                .is_ok_and(|read| read.hosts[0].pool.is_none() && read.hosts[0].is_usable())
        );
    }
}
