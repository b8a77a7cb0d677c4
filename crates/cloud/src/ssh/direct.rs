//! How agents of a machine reach the loop: through a tunnel, or directly over TLS where the server has an address for them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use domain::joining::JoinOffer;
use domain::{Elapsed, InstanceId};
use serde::{Deserialize, Serialize};

use super::inventory::Inventory;
use super::placement::Placements;

/// How the agents of a machine reach the loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeReach {
    /// Through a socket that `ssh` forwards: no port is open on either side.
    #[default]
    Tunnel,
    /// Over TLS, at the address that the server has for agents.
    Tls,
}

impl NodeReach {
    /// Whether it is the one of machines of which nothing else was said.
    pub fn is_default(&self) -> bool {
        *self == NodeReach::default()
    }
}

impl fmt::Display for NodeReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeReach::Tunnel => "tunnel",
            NodeReach::Tls => "tls",
        })
    }
}

impl FromStr for NodeReach {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeReach, String> {
        match text {
            "tunnel" => Ok(NodeReach::Tunnel),
            "tls" => Ok(NodeReach::Tls),
            other => Err(format!("`{other}` is neither `tunnel` nor `tls`")),
        }
    }
}

type Offering = dyn Fn(&InstanceId, Elapsed) -> Result<JoinOffer, String> + Send + Sync;
type Joined = dyn Fn(&InstanceId) -> bool + Send + Sync;

/// Makes join tokens of the server that agents reach directly, each for one instance and for a while.
#[derive(Clone)]
pub struct DirectDoor {
    offer: Arc<Offering>,
    joined: Arc<Joined>,
}

impl DirectDoor {
    /// A door whose tokens `offer` makes; `joined` says whether the agent of an instance has used one.
    pub fn new(
        offer: impl Fn(&InstanceId, Elapsed) -> Result<JoinOffer, String> + Send + Sync + 'static,
        joined: impl Fn(&InstanceId) -> bool + Send + Sync + 'static,
    ) -> DirectDoor {
        DirectDoor { offer: Arc::new(offer), joined: Arc::new(joined) }
    }

    /// What the agent of an instance needs in order to join within a time.
    ///
    /// # Errors
    /// Why there is no token.
    pub fn offer(&self, instance: &InstanceId, within: Elapsed) -> Result<JoinOffer, String> {
        (self.offer)(instance, within)
    }

    /// Whether the agent of an instance has joined, also if that was before a restart of the server.
    pub fn has_joined(&self, instance: &InstanceId) -> bool {
        (self.joined)(instance)
    }
}

impl fmt::Debug for DirectDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectDoor")
    }
}

/// Whether an instance of this home was placed on a node whose agents reach the loop over TLS.
pub fn calls_over_tls(home: &Path, instance: &InstanceId) -> bool {
    let Some(host) = Placements::new(home).host_of(instance) else { return false };
    // Nodes that cannot be read cannot be used either.
    let nodes = Inventory::read(home).unwrap_or_default();
    nodes.hosts.iter().any(|node| node.name == host && node.reach == NodeReach::Tls)
}

/// Why no work is started on machines that only a server with an address for agents can use.
pub(super) fn without_door(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!(
        "agents on {} reach the loop over TLS, and this loop has no address for them; start `gradus serve` with \
         `--agents-at https://HOST:PORT`, or add the node again with `--reach tunnel`",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_placed_on_a_node_calls_as_the_node_does() {
        let home = tempfile::tempdir().unwrap();
        let node = |name: &str, reach: &str| {
            let node = r#""node":{"cpu":"","cores":1,"memory":0,"disk_free":0}"#;
            format!(r#"{{"name":"{name}","address":"{name}","rate":0,"reach":"{reach}",{node}}}"#)
        };
        let nodes = format!(r#"{{"hosts":[{},{}]}}"#, node("near", "tunnel"), node("far", "tls"));
        std::fs::write(home.path().join("nodes.json"), nodes).unwrap();
        let [near, far, lost] = ["r-i1", "r-i2", "r-i3"].map(InstanceId::new);
        let placements = Placements::new(home.path());
        placements.place(&near, "near").unwrap();
        placements.place(&far, "far").unwrap();
        let calls = [near, far, lost].map(|instance| calls_over_tls(home.path(), &instance));
        assert_eq!(calls, [false, true, false]);
    }

    #[test]
    fn a_reach_reads_back() {
        for reach in [NodeReach::Tunnel, NodeReach::Tls] {
            assert_eq!(reach.to_string().parse(), Ok(reach));
            assert_eq!(serde_json::to_string(&reach).unwrap(), format!("\"{reach}\""));
        }
        assert!("TLS".parse::<NodeReach>().is_err() && NodeReach::Tunnel.is_default() && !NodeReach::Tls.is_default());
    }
}
