//! Whether nodes have the GPUs that a job asks for: those that the driver listed when they were looked at last, by the
//! catalog's names for them.

use domain::accelerators::{AcceleratorKind, Accelerators};
use node::facts::GpuDevice;

use super::{Host, Inventory};
use crate::catalog::Catalog;

impl Inventory {
    /// The nodes that an offer of this kind means and that have none of the GPUs in `wanted`, each of which would do.
    pub fn without_gpus(&self, kind: &str, wanted: &[Accelerators], catalog: &Catalog) -> Vec<&Host> {
        let Some((_, rate)) = self.cheapest(kind) else { return Vec::new() };
        let has_any = |host: &&Host| wanted.iter().any(|one| has(host.gpus(), one, catalog));
        self.wanted(kind, rate).filter(|host| !has_any(host)).collect()
    }
}

impl Host {
    /// The GPUs that its driver listed when it was looked at last.
    pub fn gpus(&self) -> &[GpuDevice] {
        self.facts.as_ref().map_or(&[], |facts| &facts.gpu.devices)
    }
}

/// Whether as many of these GPUs as are wanted, or at least one, are what is wanted. Fractional GPUs are not on nodes.
fn has(devices: &[GpuDevice], wanted: &Accelerators, catalog: &Catalog) -> bool {
    let number = devices.iter().filter(|device| is_wanted(device, &wanted.kind, catalog)).count();
    wanted.part.is_none() && number >= usize::try_from(wanted.count.unwrap_or(1)).unwrap_or(usize::MAX)
}

fn is_wanted(device: &GpuDevice, wanted: &AcceleratorKind, catalog: &Catalog) -> bool {
    let memory = Some(device.memory).filter(|memory| memory.0 > 0);
    let known = catalog.gpu(&device.name, memory);
    match wanted {
        AcceleratorKind::Named(name) => match known {
            Some(gpu) => catalog.names_of(name, None).contains(&gpu.name.as_str()),
            None => device.name.eq_ignore_ascii_case(name),
        },
        // The driver lists less than what a GPU is sold with.
        AcceleratorKind::Memory { memory, or_more } => {
            let own = known.map_or(device.memory, |gpu| gpu.memory);
            own == *memory || *or_more && own > *memory
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{Bytes, Node, Rate};
    use node::facts::{GpuFacts, NodeFacts};

    use super::super::{ANY, NodeReach};
    use super::*;

    fn host(name: &str, gpus: &[(&str, u64)]) -> Host {
        let device = |(name, mebibytes): &(&str, u64)| GpuDevice {
            name: (*name).to_owned(),
            memory: Bytes(mebibytes << 20),
            ..GpuDevice::default()
        };
        let gpu = GpuFacts { devices: gpus.iter().map(device).collect(), ..GpuFacts::default() };
        Host {
            name: name.into(),
            address: name.into(),
            config: None,
            pool: None,
            reach: NodeReach::Tunnel,
            rate: Rate::default(),
            node: Node::default(),
            is_drained: false,
            is_prepared: true,
            facts: Some(Box::new(NodeFacts { gpu, ..NodeFacts::default() })),
            link: None,
        }
    }

    #[test]
    fn a_node_has_the_gpus_that_its_driver_lists() {
        let catalog = Catalog::embedded().unwrap();
        let a100 = ("NVIDIA A100-SXM4-80GB", 81_920);
        let inventory = Inventory {
            hosts: vec![
                host("big", &[a100; 8]),
                host("one", &[a100]),
                host("small", &[("NVIDIA L4", 23_034)]),
                host("none", &[]),
                host("own", &[("Other X100", 1000)]),
            ],
        };
        let check = |wanted: &str, expected: &[&str]| {
            let wanted: Vec<Accelerators> = wanted.split(", ").map(|one| one.parse().unwrap()).collect();
            let fits = |host: &&Host| inventory.without_gpus(&host.name, &wanted, &catalog).is_empty();
            let fitting: Vec<&str> = inventory.hosts.iter().filter(fits).map(|host| host.name.as_str()).collect();
            assert_eq!(fitting, expected, "{wanted:?}");
        };
        check("A100", &["big", "one"]);
        check("A100-80GB:8", &["big"]);
        check("A100-80GB:2", &["big"]);
        check("A100-40GB", &[]);
        check("L4:1", &["small"]);
        check("A100:8, L4", &["big", "small"]);
        check("24GB", &["small"]);
        check("24GB+", &["big", "one", "small"]);
        check("80GB+:2", &["big"]);
        check("Other X100", &["own"]);
        check("A100-80GB:1g.10gb", &[]);
        // Any node is each of them.
        let lacking = inventory.without_gpus(ANY, &["L4".parse().unwrap()], &catalog);
        let lacking: Vec<&str> = lacking.into_iter().map(|host| host.name.as_str()).collect();
        assert_eq!(lacking, ["big", "one", "none", "own"]);
        assert!(Inventory::default().without_gpus(ANY, &[], &catalog).is_empty());
    }
}
