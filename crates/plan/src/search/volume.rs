//! The network volume of a candidate's machines: how large and how fast it is, from what the training reads and saves.
//!
//! Samples are read from the volume as fast as steps take them, unless the disks inside the machine or its memory hold them; a
//! checkpoint is written before the next one is due. Where that is more than the base of a volume, which its size pays for, the
//! difference is provisioned. Only AWS provisions speed here ([`domain::volume`]). Where a volume is slower than that, steps wait
//! for it ([`VolumeChoice::slowdown`]).

use domain::boot_disk::boot_disk_gib;
use domain::job::Needs;
use domain::listing::{Cloud, Listing};
use domain::tariff::Service;
use domain::volume::{Volume, hourly, is_nitro, whole_gib};
use domain::{Bytes, Money, Rate};
use serde::Serialize;

use super::admit::Admission;
use super::market::{PricedListing, PurchaseOption, Tariffs};
use super::timeline::{self, RunProfile, RunTimeline};
use super::workload::TrainingSpec;
use crate::spot::SpotAvailability;

/// The largest read or write that counts as one (Amazon EBS user guide, "I/O characteristics and monitoring").
const OPERATION: f64 = 262_144.0;

/// A mebibyte.
const MIB: f64 = 1_048_576.0;

/// More than is needed, because gp3 is designed for 90 % of what is provisioned, in 99 % of the time (Amazon EBS user guide,
/// "Amazon EBS optimization").
const HEADROOM: f64 = 1.1;

/// The share of the time between two checkpoints in which one is written, so that the next one does not wait, and samples are
/// read meanwhile. Assumed.
const WRITING: f64 = 0.5;

/// Steps in which speed is provisioned, so that plans that differ little rent the same.
const IOPS_STEP: u32 = 500;
const THROUGHPUT_STEP: u32 = 25;

/// The memory of a machine, in sizes of the data, from which on its page cache holds the data. Assumed.
const CACHED: u64 = 2;

/// Where samples are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SamplesIn {
    /// The network volume.
    Volume,
    /// Disks inside the machine, which are its cache.
    Inside,
    /// Memory: read once, or copied there.
    Memory,
}

/// What a machine needs of its volume.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VolumeDemand {
    pub samples: SamplesIn,
    /// Bytes of samples per second.
    pub read: f64,
    /// Reads of samples per second.
    pub reads: f64,
    /// Bytes of a checkpoint per second while it is written.
    pub write: f64,
    /// IOPS and MiB/s of the volume for all of it.
    pub iops: u32,
    pub throughput: u32,
}

/// The volume of each machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VolumeChoice {
    #[serde(flatten)]
    pub volume: Volume,
    /// GiB, with those of the system.
    pub gib: u64,
    /// What of it is for the work.
    pub work: Bytes,
    /// Whether the job states its speed.
    pub is_stated: bool,
    pub demand: VolumeDemand,
}

impl VolumeChoice {
    /// The volume of each of `nodes` machines; `None` on a cloud that provisions no speed.
    pub fn of(
        spec: &TrainingSpec,
        priced: &PricedListing,
        nodes: u32,
        timeline: &RunTimeline,
        needs: &Needs,
    ) -> Option<VolumeChoice> {
        if priced.listing.cloud != Cloud::Aws {
            return None;
        }
        let (samples, work) = on_volume(spec, priced.listing, needs);
        let demand = demand(spec, nodes, timeline, samples);
        // What a job states was checked when it was read.
        let stated = needs.speed.volume().ok().flatten();
        let volume = stated.unwrap_or(match samples {
            SamplesIn::Inside => Volume::BASE,
            SamplesIn::Volume | SamplesIn::Memory => fast_enough(priced, demand.iops, demand.throughput),
        });
        Some(VolumeChoice { volume, gib: volume.gib(work), work, is_stated: stated.is_some(), demand })
    }

    /// Whether no volume is as large: such a machine cannot be rented for the work.
    pub fn is_too_large(&self) -> bool {
        self.gib > Volume::MOST_GIB
    }

    /// Whether it is slower than the training needs it.
    pub fn is_short(&self) -> bool {
        self.volume.iops < self.demand.iops || self.volume.throughput < self.demand.throughput
    }

    /// How many times as long steps take, at least: what they read, and the checkpoints that are written meanwhile, pass through the
    /// volume no faster than its throughput and its IOPS (Amazon EBS user guide, "I/O characteristics and monitoring": a volume that
    /// is at its limit queues what is more). 1 where the volume is fast enough.
    pub fn slowdown(&self) -> f64 {
        let (demand, volume) = (&self.demand, &self.volume);
        let most = f64::from(volume.throughput) * MIB;
        // The demand has the speed of a checkpoint while it is written, in a share of the time. No checkpoint begins before the one
        // before is written, so they are further apart where the volume is slower than that.
        let written = (demand.write * WRITING).min(most);
        let throughput = (demand.read + written) / most;
        let iops = (demand.reads + written / OPERATION) / f64::from(volume.iops);
        throughput.max(iops).max(1.0)
    }

    /// The profile of a run on `nodes` machines with it: where it is too slow, steps take longer, and checkpoints are further apart.
    pub(super) fn slowed(&self, spec: &TrainingSpec, nodes: u32, profile: RunProfile) -> RunProfile {
        if !self.is_short() {
            return profile;
        }
        let checkpoint = spec.checkpoints.state.0 as f64 / f64::from(nodes.max(1));
        profile.waiting(self.slowdown(), self.seconds_to_write(checkpoint))
    }

    /// Seconds that a checkpoint of so many bytes takes on it.
    pub fn seconds_to_write(&self, bytes: f64) -> f64 {
        bytes / (f64::from(self.volume.throughput) * MIB)
    }

    /// What all of it costs by the hour: size and speed, as it is counted while it is rented.
    pub fn rate(&self, tariffs: &Tariffs) -> Rate {
        hourly(self.volume.month(self.gib, |service| tariffs.price(service)))
    }

    /// Services that are paid for.
    pub fn services(&self) -> impl Iterator<Item = Service> {
        let parts = self.volume.parts(self.gib).into_iter().filter(|(_, count)| *count > 0);
        parts.map(|(service, _)| service)
    }
}

/// What the disk that gradus rents with each machine costs by the hour: the volume, or on clouds that provision no speed a disk as
/// large as the job states, or else as the data that the machine's own disks do not hold. `None` where no disk is rented.
pub(super) fn disk_rate(
    spec: &TrainingSpec,
    priced: &PricedListing,
    needs: &Needs,
    volume: Option<&VolumeChoice>,
) -> Option<Rate> {
    if let Some(volume) = volume {
        return Some(volume.rate(&priced.tariffs));
    }
    let work = disk_work(spec, priced.listing, needs)?;
    let gib = boot_disk_gib(&priced.listing.cloud, work)?;
    let price = priced.tariffs.price(Service::SsdDisk).unwrap_or_default();
    Some(hourly(Money::from_micros(i64::try_from(gib).unwrap_or(i64::MAX).saturating_mul(price.micros()))))
}

/// How much of the disk that gradus rents with a machine is for its work, at least: what the job states, or else the data that the
/// machine's own disks do not hold, on a volume of AWS with the checkpoints that are kept. `None` where no disk is rented.
pub fn disk_work(spec: &TrainingSpec, listing: &Listing, needs: &Needs) -> Option<Bytes> {
    match &listing.cloud {
        Cloud::Aws => Some(on_volume(spec, listing, needs).1),
        Cloud::Gcp | Cloud::Azure | Cloud::Alibaba | Cloud::Tencent => {
            let is_inside = listing.disk.is_some_and(|disk| disk >= spec.data.bytes);
            Some(needs.disk.unwrap_or(if is_inside { Bytes(0) } else { spec.data.bytes }))
        }
        Cloud::Lambda | Cloud::Own | Cloud::Other(_) => None,
    }
}

/// The run of a profile with the disks that are rented with its machines: its timeline, in which steps wait for a volume that is too
/// slow, their volumes, and the price of each.
pub(super) fn on_disks(
    spec: &TrainingSpec,
    priced: &PricedListing,
    (terms, nodes): (PurchaseOption, u32),
    profile: &RunProfile,
    admission: &Admission,
    availability: SpotAvailability,
) -> (RunTimeline, Option<VolumeChoice>, Option<Rate>) {
    let policy = timeline::policy(admission, priced, None);
    let planned = profile.timeline(spec, terms, policy, availability);
    let volume = VolumeChoice::of(spec, priced, nodes, &planned, &admission.needs);
    let disk = disk_rate(spec, priced, &admission.needs, volume.as_ref());
    // Whether it may fall back depends on the price of the disk, which follows from the pace that is wanted.
    let with_disk = timeline::policy(admission, priced, disk);
    let slowed = volume.map_or(*profile, |volume| volume.slowed(spec, nodes, *profile));
    if with_disk == policy && slowed == *profile {
        return (planned, volume, disk);
    }
    (slowed.timeline(spec, terms, with_disk, availability), volume, disk)
}

/// The cheapest volume that is so fast; the fastest gp3 where io2 is not known to be offered there, or not known to reach its
/// speed on such a machine.
fn fast_enough(priced: &PricedListing, iops: u32, throughput: u32) -> Volume {
    let has_price = |service| priced.tariffs.price(service).is_some();
    let has_io2 = has_price(Service::Io2Disk) && has_price(Service::Io2Iops);
    match has_io2 && is_nitro(&priced.listing.instance_type) {
        true => Volume::at_least(iops, throughput),
        false => Volume::gp3(iops, throughput),
    }
}

/// Where samples are read from on a machine of AWS, and how much its volume has for the work.
fn on_volume(spec: &TrainingSpec, listing: &Listing, needs: &Needs) -> (SamplesIn, Bytes) {
    let kept = Bytes(spec.checkpoints.state.0.saturating_mul(u64::from(spec.checkpoints.keep) + 3));
    let samples = samples_in(spec, listing, work(needs, kept));
    let held = match samples {
        SamplesIn::Inside => kept,
        SamplesIn::Volume | SamplesIn::Memory => Bytes(kept.0.saturating_add(spec.data.bytes.0)),
    };
    (samples, work(needs, held))
}

/// Bytes for the work: what the job states, else at least what is kept there.
fn work(needs: &Needs, held: Bytes) -> Bytes {
    needs.disk.unwrap_or(held).max(Volume::LEAST_WORK)
}

/// Where samples are read from on a machine whose volume has so much for the work beside them. The disks inside it are its cache
/// where they hold the data, and more than all of the volume.
fn samples_in(spec: &TrainingSpec, listing: &Listing, work: Bytes) -> SamplesIn {
    let (data, volume) = (spec.data.bytes.0, whole_gib(work).saturating_mul(1 << 30));
    let is_inside = listing.disk.is_some_and(|disk| disk.0 >= data && disk.0 > volume);
    let is_cached = listing.memory.is_some_and(|memory| memory.0 / CACHED >= data);
    match (is_inside, is_cached || spec.data.sample <= 0.0) {
        (true, _) => SamplesIn::Inside,
        (false, true) => SamplesIn::Memory,
        (false, false) => SamplesIn::Volume,
    }
}

fn demand(spec: &TrainingSpec, nodes: u32, timeline: &RunTimeline, samples: SamplesIn) -> VolumeDemand {
    let machines = f64::from(nodes.max(1));
    let all = spec.length.steps as f64 * spec.length.batch as f64 + spec.length.evaluated as f64;
    let rate = if timeline.work > 0.0 { all / timeline.work / machines } else { 0.0 };
    let sample = match samples {
        SamplesIn::Volume => spec.data.sample,
        SamplesIn::Inside | SamplesIn::Memory => 0.0,
    };
    // Samples in random order are read one by one; what is read in its order comes in operations as large as there are.
    let is_random = spec.data.disk == Service::SsdDisk;
    let each = if is_random { (sample / OPERATION).ceil() } else { sample / OPERATION };
    let (read, reads) = (rate * sample, rate * each);
    let within = timeline.interval * WRITING;
    let write = if within > 0.0 { spec.checkpoints.state.0 as f64 / machines / within } else { 0.0 };
    let iops = (reads + write / OPERATION) * HEADROOM;
    let throughput = (read + write) / MIB * HEADROOM;
    VolumeDemand {
        samples,
        read,
        reads,
        write,
        iops: in_steps(iops, IOPS_STEP),
        throughput: in_steps(throughput, THROUGHPUT_STEP),
    }
}

/// A number rounded up to whole steps; a cast from a floating-point number saturates.
fn in_steps(number: f64, step: u32) -> u32 {
    ((number / f64::from(step)).ceil() as u32).saturating_mul(step)
}
