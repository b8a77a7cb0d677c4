//! Time of collectives among GPUs: rings over the slowest part of the way (Thakur et al. 2005; Patarasuk and Yuan 2009).
//!
//! Bandwidth is not one number for a GPU: a mesh without switch gives a ring of five a quarter of what it gives one of
//! eight, PCI Express is shared, and between nodes each GPU has its part of the network card.

use domain::gpu::{Gpu, Link};
use serde::Serialize;

use super::fitted::rates::Shared;
use super::setup::Device;

/// Share of the stated rate, one direction, that rings of 2 to 8 GPUs reach in the mesh of a DGX-1, measured with NCCL
/// on eight V100 (vTrain, `nccl` tables, MIT licence).
const MESH: [f64; 7] = [0.153, 0.30, 0.573, 0.247, 0.307, 0.587, 0.907];
/// Bytes a second of one lane group ×16 of PCI Express 3, one direction; doubles with each generation.
const PCIE_3: f64 = 15.75e9;
/// Start of a collective of NCCL besides its steps, seconds. Rounded: with the fitted time of a step, rings of 2 to 8 A100
/// start after about what NCCL took in vTrain's tables, 46 to 79 µs.
const START: f64 = 25e-6;
/// Bytes of gradients that PyTorch's `DistributedDataParallel` exchanges at once (`bucket_cap_mb`, 25 MiB).
pub const BUCKET: f64 = 25.0 * 1024.0 * 1024.0;
/// Network of a node of which nothing is known, bits a second: what clouds give common GPU machines; assumed.
pub const UNKNOWN_NETWORK: f64 = 25e9;

/// A group of ranks that exchange: `near` of them in each of `nodes` nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ring {
    pub near: f64,
    pub nodes: f64,
    /// Bytes a second through the slowest part of the way, for each rank.
    pub bandwidth: f64,
    /// Seconds before the first byte arrives, once around.
    pub latency: f64,
}

impl Ring {
    /// A ring of `size` ranks that are `stride` apart, where ranks are counted node by node.
    pub fn of(device: &Device, size: u32, stride: u32, shared: &Shared) -> Ring {
        let in_node = device.gpus_per_node.max(1);
        let near = (in_node / stride.max(1)).clamp(1, size.max(1));
        let nodes = size.max(1).div_ceil(near);
        let inside = inside(device, near, shared);
        let bandwidth = if nodes > 1 {
            let network = device.network.unwrap_or(UNKNOWN_NETWORK) / 8.0 * shared.network;
            // The other ranks of the node drive rings of their own through the same card.
            let outside = network * f64::from(near) / f64::from(in_node);
            if near > 1 { outside.min(inside) } else { outside }
        } else {
            inside
        };
        let latency = START
            + 2e-6 * (f64::from(near) - 1.0) * shared.hop
            + if nodes > 1 { 2e-6 * shared.far_hop * f64::from(nodes).log2().ceil() } else { 0.0 };
        Ring { near: f64::from(near), nodes: f64::from(nodes), bandwidth, latency }
    }

    fn size(&self) -> f64 {
        self.near * self.nodes
    }

    /// Seconds until the sum of `bytes` from each rank is on all of them.
    pub fn all_reduce(&self, bytes: f64) -> f64 {
        match self.size() {
            size if size <= 1.0 => 0.0,
            size => 2.0 * (size - 1.0) / size * bytes / self.bandwidth + self.latency,
        }
    }

    /// Seconds of an all-gather of `bytes`, which are sharded over all ranks; a reduce-scatter takes as long.
    pub fn gather(&self, bytes: f64) -> f64 {
        self.all_reduce(bytes) / 2.0
    }
}

/// What ranks exchange in a step, in pieces of which each starts anew.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CollectiveTime {
    /// Seconds that bytes are on their way.
    pub moving: f64,
    /// Seconds in which pieces start.
    pub starting: f64,
    pub pieces: f64,
}

impl CollectiveTime {
    /// The sum of `bytes` from each rank, in pieces.
    pub fn sum(ring: &Ring, bytes: f64, pieces: f64) -> CollectiveTime {
        let moving = Ring { latency: 0.0, ..*ring }.all_reduce(bytes);
        CollectiveTime { moving, starting: pieces * ring.all_reduce(0.0), pieces }
    }

    /// `bytes` that are spread over all ranks, gathered on each of them, or sums on their way back.
    pub fn spread(ring: &Ring, bytes: f64, pieces: f64) -> CollectiveTime {
        let sum = CollectiveTime::sum(ring, bytes, pieces);
        CollectiveTime { moving: sum.moving / 2.0, starting: sum.starting / 2.0, ..sum }
    }

    /// The same so many times.
    pub fn times(self, times: f64) -> CollectiveTime {
        CollectiveTime { moving: self.moving * times, starting: self.starting * times, pieces: self.pieces * times }
    }

    /// Returns the whole time in seconds, as if nothing hid it.
    pub fn seconds(&self) -> f64 {
        self.moving + self.starting
    }

    /// Seconds that it adds to a step when `hidden` seconds of computing run beside it: what is left of it, but at least
    /// the last piece (of gathers the first), which finds nothing to hide behind; rounded where both are as long (by a
    /// tenth of it, assumed); and of `slowed`, by which it would slow what hides it, the part that is hidden.
    pub fn waited(&self, hidden: f64, slowed: f64) -> f64 {
        let all = self.seconds();
        if all <= 0.0 {
            return 0.0;
        }
        let last = all / self.pieces.max(1.0);
        let left = all - last - hidden;
        let softness = 0.1 * (all - last);
        let exposed = last + 0.5 * (left + (left * left + softness * softness).sqrt());
        exposed + slowed.min(all) * (1.0 - exposed / all).max(0.0)
    }
}

/// What each GPU exchanges with those that train the same weights, in one step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ExchangeNeeds {
    /// Bytes that each sends: of gradients, and of weights that are gathered.
    pub bytes: f64,
    /// Seconds of computing that they can hide behind.
    pub beside: f64,
    /// Bytes a second that a ring of them gives each.
    pub bandwidth: f64,
}

impl ExchangeNeeds {
    /// Of collectives on a ring, each with the seconds of computing that can hide it.
    pub fn of(collectives: [(&CollectiveTime, f64); 2], ring: &Ring) -> ExchangeNeeds {
        let moving = collectives.iter().filter(|(collective, _)| collective.moving > 0.0);
        let (seconds, beside) =
            moving.fold((0.0, 0.0), |(moved, beside), (one, hidden)| (moved + one.moving, beside + hidden));
        ExchangeNeeds { bytes: seconds * ring.bandwidth, beside, bandwidth: ring.bandwidth }
    }

    /// Bytes a second of all-reduce that each GPU needs, for the exchange to hide behind computing; none without one, or
    /// with nothing to hide behind.
    pub fn needed(&self) -> Option<f64> {
        (self.bytes > 0.0 && self.beside > 0.0).then(|| self.bytes / self.beside)
    }
}

/// Bytes a second of a GPU's sixteen lanes, one direction.
pub fn lanes(gpu: &Gpu) -> f64 {
    PCIE_3 * f64::from(1u32 << u32::from(gpu.pcie.clamp(3, 6) - 3))
}

/// Bytes a second of a ring of `count` GPUs in one node.
fn inside(device: &Device, count: u32, shared: &Shared) -> f64 {
    // Few machines with consumer GPUs since Turing have the bridges that were sold apart, and the driver uses no other way.
    let reads_peers = device.gpu.traits.peer_access;
    let reach = if reads_peers { 1.0 } else { shared.host };
    let through_host =
        reach * lanes(&device.gpu) * shared.pcie / (1.0 + shared.sharing * f64::from(count.saturating_sub(2)));
    let size = f64::from(count.max(2));
    match device.gpu.link {
        Link::Pcie => through_host,
        Link::Bridge(rate) if count == 2 && reads_peers => (rate / 2.0 * shared.bridge).max(through_host),
        Link::Bridge(_) => through_host,
        Link::Mesh(rate) => {
            let share = MESH[(count.clamp(2, 8) - 2) as usize];
            rate / 2.0 * share * shared.mesh
        }
        // Few GPUs reach less of the switch: 193 GB/s of two A100 beside 227 of eight in vTrain's tables.
        Link::Switch(rate) => rate / 2.0 * shared.switch * size / (size + 0.4),
    }
}
