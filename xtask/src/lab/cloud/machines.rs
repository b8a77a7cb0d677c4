//! The hosts of a lab as machines that are rented, and the meter of each rent.

use std::collections::{BTreeMap, BTreeSet};

/// The rent of one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct MeteredRent {
    /// AWS's name of the machine.
    pub handle: String,
    /// The name on its tag, that of the first machine of its request.
    pub tag: String,
    /// The host that it is.
    pub host: u8,
    /// Seconds since 1970.
    pub began: f64,
    /// The same; none while it is rented.
    pub ended: Option<f64>,
}

/// What is rented, and what can be.
#[derive(Debug, Default)]
pub struct LabMachines {
    free: BTreeSet<u8>,
    rented: BTreeMap<String, u8>,
    meter: Vec<MeteredRent>,
}

impl LabMachines {
    /// None of these hosts is rented.
    pub fn new(hosts: &[u8]) -> LabMachines {
        LabMachines { free: hosts.iter().copied().collect(), ..LabMachines::default() }
    }

    /// Whether so many can be rented.
    pub fn has(&self, count: usize) -> bool {
        self.free.len() >= count
    }

    /// Rents a host for each handle; those that there is no host for are rented and cannot be reached.
    pub fn rent(&mut self, handles: &[String], tag: &str, now: f64) -> Vec<u8> {
        let mut hosts = Vec::new();
        for handle in handles {
            let Some(host) = self.free.pop_first() else { break };
            self.rented.insert(handle.clone(), host);
            let (handle, tag) = (handle.clone(), tag.to_owned());
            self.meter.push(MeteredRent { handle, tag, host, began: now, ended: None });
            hosts.push(host);
        }
        hosts
    }

    /// Ends a rent, once; its host, which is not free before it was cleaned.
    pub fn end(&mut self, handle: &str, now: f64) -> Option<u8> {
        let host = self.rented.remove(handle)?;
        if let Some(rent) = self.meter.iter_mut().find(|rent| rent.handle == handle) {
            rent.ended = Some(now);
        }
        Some(host)
    }

    /// A host can be rented again.
    pub fn freed(&mut self, host: u8) {
        self.free.insert(host);
    }

    /// The hosts that are rented, by AWS's name.
    pub fn rented(&self) -> &BTreeMap<String, u8> {
        &self.rented
    }

    /// The machine that a host is.
    pub fn handle_of(&self, host: u8) -> Option<&str> {
        self.rented.iter().find(|(_, of)| **of == host).map(|(handle, _)| handle.as_str())
    }

    /// Every rent there ever was, in its order.
    pub fn meter(&self) -> &[MeteredRent] {
        &self.meter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_machine_at_a_time_and_each_rent_ends_once() {
        let mut machines = LabMachines::new(&[4, 2]);
        let handles = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(machines.has(2) && !machines.has(3));
        assert_eq!(machines.rent(&handles(&["i-1", "i-2"]), "r-i1", 5.0), [2, 4]);
        assert!(!machines.has(1) && machines.rent(&handles(&["i-3"]), "r-i3", 6.0).is_empty());
        assert_eq!((machines.handle_of(4), machines.handle_of(9)), (Some("i-2"), None));
        assert_eq!((machines.end("i-1", 9.0), machines.end("i-1", 10.0)), (Some(2), None));
        assert!(!machines.has(1), "it is not clean yet");
        machines.freed(2);
        assert_eq!(machines.rent(&handles(&["i-4"]), "r-i4", 11.0), [2]);
        let meter: Vec<(&str, f64, Option<f64>)> =
            machines.meter().iter().map(|rent| (rent.handle.as_str(), rent.began, rent.ended)).collect();
        assert_eq!(meter, [("i-1", 5.0, Some(9.0)), ("i-2", 5.0, None), ("i-4", 11.0, None)]);
    }
}
