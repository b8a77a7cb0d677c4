//! Nodes that could not send their files to another one that was prepared, until the log of a run there has it.
//!
//! A copy may be long over when a run starts on the machine: a new loop prepares all nodes before it looks at them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::rental::FailedPeer;

/// What is to be reported of each prepared machine, by the name of its node, or of the instance where it was rented.
#[derive(Debug, Default)]
pub(crate) struct PeerFailures(Mutex<BTreeMap<String, Vec<FailedPeer>>>);

impl PeerFailures {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Vec<FailedPeer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files were copied to a node, for which these were asked in vain.
    pub fn copied(&self, node: &str, failed: Vec<FailedPeer>) {
        if !failed.is_empty() {
            self.locked().insert(node.to_owned(), failed);
        }
    }

    /// What the log of a run on a node is to say.
    pub fn take(&self, node: &str) -> Vec<FailedPeer> {
        self.locked().remove(node).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use domain::Bytes;

    use super::*;

    #[test]
    fn what_failed_is_reported_of_its_node_and_once() {
        let failures = PeerFailures::default();
        let failed = vec![FailedPeer { peer: "west".into(), why: "it is off".into(), sent: Bytes(5) }];
        failures.copied("east", failed.clone());
        failures.copied("east", Vec::new());
        assert!(failures.take("north").is_empty());
        assert_eq!(failures.take("east"), failed, "a later copy for which nobody was asked does not change it");
        assert!(failures.take("east").is_empty(), "another run there has not waited for it");
    }
}
