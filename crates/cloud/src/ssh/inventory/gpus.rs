//! Whether nodes have the GPUs that a job asks for: those that the driver listed when they were looked at last, by the
//! catalog's names for them.

use domain::accelerators::{AcceleratorKind, Accelerators};
use domain::gpu::Gpu;
use domain::torch;
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

    /// The GPUs that our own trainer computes on, on each of the nodes that an offer of this kind means, and how many each has
    /// at least. `None` unless all have the same kind, the catalog knows it, and a PyTorch for CUDA that the trainer uses is
    /// installed.
    pub fn trainer_gpus<'c>(&self, kind: &str, catalog: &'c Catalog) -> Option<(&'c Gpu, u32)> {
        let (_, rate) = self.cheapest(kind)?;
        let mut all: Option<(&Gpu, u32)> = None;
        for host in self.wanted(kind, rate) {
            let (gpu, count) = host.trainer_gpus(catalog)?;
            all = match all {
                None => Some((gpu, count)),
                Some((other, least)) if other.name == gpu.name => Some((gpu, count.min(least))),
                Some(_) => return None,
            };
        }
        all
    }
}

impl Host {
    /// The GPUs that its driver listed when it was looked at last.
    pub fn gpus(&self) -> &[GpuDevice] {
        self.facts.as_ref().map_or(&[], |facts| &facts.gpu.devices)
    }

    fn trainer_gpus<'c>(&self, catalog: &'c Catalog) -> Option<(&'c Gpu, u32)> {
        let build = self.facts.as_ref()?.software.libtorch.as_ref()?;
        if build.cuda.is_none() || build.version != torch::VERSION {
            return None;
        }
        let devices = self.gpus();
        let first = known(devices.first()?, catalog)?;
        let is_alike = |device: &GpuDevice| known(device, catalog).is_some_and(|gpu| gpu.name == first.name);
        devices.iter().all(is_alike).then_some((first, u32::try_from(devices.len()).unwrap_or(u32::MAX)))
    }
}

/// What the catalog knows of a GPU by the name that its driver gives it.
fn known<'c>(device: &GpuDevice, catalog: &'c Catalog) -> Option<&'c Gpu> {
    catalog.gpu(&device.name, Some(device.memory).filter(|memory| memory.0 > 0))
}

/// Whether as many of these GPUs as are wanted, or at least one, are what is wanted. Fractional GPUs are not on nodes.
fn has(devices: &[GpuDevice], wanted: &Accelerators, catalog: &Catalog) -> bool {
    let number = devices.iter().filter(|device| is_wanted(device, &wanted.kind, catalog)).count();
    wanted.part.is_none() && number >= usize::try_from(wanted.count.unwrap_or(1)).unwrap_or(usize::MAX)
}

fn is_wanted(device: &GpuDevice, wanted: &AcceleratorKind, catalog: &Catalog) -> bool {
    let known = known(device, catalog);
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
    use node::facts::{GpuFacts, NodeFacts, SoftwareFacts, TorchBuild};

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

    /// The same with a libtorch of this version and CUDA.
    fn with_torch(mut host: Host, version: &str, cuda: Option<&str>) -> Host {
        let build = TorchBuild { version: version.to_owned(), cuda: cuda.map(str::to_owned), ..TorchBuild::default() };
        let facts = host.facts.as_mut().unwrap();
        facts.software = SoftwareFacts { libtorch: Some(build), ..SoftwareFacts::default() };
        host
    }

    #[test]
    fn a_trainer_computes_on_gpus_of_one_kind_for_which_there_is_a_pytorch() {
        let catalog = Catalog::embedded().unwrap();
        let (a100, l4) = (("NVIDIA A100-SXM4-80GB", 81_920), ("NVIDIA L4", 23_034));
        let check = |hosts: Vec<Host>, expected: Option<(&str, u32)>| {
            let inventory = Inventory { hosts };
            let found = inventory.trainer_gpus(ANY, &catalog).map(|(gpu, count)| (gpu.name.as_str(), count));
            assert_eq!(found, expected, "{:?}", inventory.hosts);
        };
        let cuda = |host: Host| with_torch(host, torch::VERSION, Some("13.0"));
        let name = catalog.gpu(a100.0, None).unwrap().name.as_str();
        check(vec![cuda(host("a", &[a100; 8]))], Some((name, 8)));
        check(vec![cuda(host("a", &[a100; 8])), cuda(host("b", &[a100; 2]))], Some((name, 2)));
        check(vec![cuda(host("a", &[a100])), cuda(host("b", &[l4]))], None);
        check(vec![cuda(host("a", &[a100, l4]))], None);
        check(vec![cuda(host("a", &[a100])), cuda(host("b", &[]))], None);
        check(vec![cuda(host("a", &[("Other X100", 1000)]))], None);
        check(vec![host("a", &[a100])], None);
        check(vec![with_torch(host("a", &[a100]), torch::VERSION, None)], None);
        check(vec![with_torch(host("a", &[a100]), "2.10.0", Some("13.0"))], None);
        check(Vec::new(), None);
    }
}
