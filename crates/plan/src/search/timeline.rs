//! The timeline of a run on given machines: duration, paid time and cost.

use domain::gpu::Gpu;
use domain::{Bytes, Elapsed, Money, Rate};
use serde::Serialize;

use super::admit::Admission;
use super::assumed;
use super::market::{PricedListing, PurchaseOption, Tariffs};
use super::workload::TrainingSpec;
use crate::estimate::limits::{self, PreprocessingRate, Supply};
use crate::money::carbon::{Emissions, carbon};
use crate::money::cost::elapsed;
use crate::money::{Cost, Stored, Transferred, kept, moved, rent};
use crate::spot::{CheckpointOverhead, OutagePolicy, OutageProfile, SpotAvailability, interval};
use domain::tariff::Service;
use domain::wants::Spot;

/// Durations in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct RunTimeline {
    /// From asking for machines to giving them back.
    pub wall: f64,
    /// Each machine is paid for at the price of its terms.
    pub rented: f64,
    /// Each machine is paid for at the price on demand, while there are no spot machines.
    pub fallen_back: f64,
    /// Expected number of interruptions.
    pub interruptions: f64,
    /// Steps, evaluation and their waits.
    pub work: f64,
    /// Share of the time in which GPUs wait for data.
    pub starved: f64,
    /// Between checkpoints.
    pub interval: f64,
}

/// The part of a run that does not depend on the terms of rent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunProfile {
    /// Steps, evaluation and their waits, in seconds.
    pub work: f64,
    pub starved: f64,
    /// Boot and fetching the data.
    pub before: f64,
    pub costs: CheckpointOverhead,
}

impl RunProfile {
    /// The profile of a run on `nodes` machines of a listing with such GPUs, with a step of `step` seconds and a
    /// start-up time of `start`.
    pub fn of(spec: &TrainingSpec, priced: &PricedListing, gpu: &Gpu, nodes: u32, step: f64, start: f64) -> RunProfile {
        let machines = f64::from(nodes);
        let batch = spec.length.batch as f64;
        // Where the number of cores is not known, data is not assumed to be the limit.
        let limit = spec.data.per_core.zip(priced.listing.cores).map(|(per_core, cores)| {
            let supply = Supply { nodes, cores: f64::from(cores), disk: None, network: None };
            limits::data_limit(PreprocessingRate { per_core, bytes: 0.0 }, supply)
        });
        let step_with_data = limit.map_or(step, |limit| limits::step_with_data(step, batch, limit));
        let arriving = limit.map_or(f64::INFINITY, |limit| limit.samples_per_second);
        let evaluated =
            limits::evaluation(spec.length.evaluated as f64, batch / step).max(spec.length.evaluated as f64 / arriving);
        let gpus = f64::from(priced.listing.gpus.count) * machines;
        let lag = 1.0 + limits::checkpoint_write(spec.checkpoints.state.0 as f64, machines * assumed::WRITE);
        RunProfile {
            work: spec.length.steps as f64 * step_with_data + evaluated,
            starved: 1.0 - step / step_with_data,
            before: priced.arrival.boot + start + spec.data.bytes.0 as f64 / (machines * priced.arrival.fetch),
            costs: CheckpointOverhead {
                stall: 0.2 + limits::checkpoint_stall(spec.checkpoints.state.0 as f64 / gpus, gpu),
                lag,
                restart: assumed::RESTART + lag,
            },
        }
    }

    /// The same where steps take `slowdown` times as long, and a checkpoint is saved after `written` seconds or later.
    pub(super) fn waiting(self, slowdown: f64, written: f64) -> RunProfile {
        let lag = self.costs.lag.max(1.0 + written);
        let costs = CheckpointOverhead { lag, restart: assumed::RESTART + lag, ..self.costs };
        RunProfile { work: self.work * slowdown, costs, ..self }
    }

    /// The timeline under given terms. `availability` is that of all machines together, for spot.
    pub fn timeline(
        &self,
        spec: &TrainingSpec,
        terms: PurchaseOption,
        policy: OutagePolicy,
        availability: SpotAvailability,
    ) -> RunTimeline {
        match terms {
            PurchaseOption::OnDemand | PurchaseOption::Dedicated => {
                let interval = spec.checkpoints.every.unwrap_or(assumed::CHECKPOINT).max(self.costs.lag);
                let saved = (self.work / interval).floor() * self.costs.stall;
                let wall = self.before + self.work + saved;
                RunTimeline { wall, rented: wall, interval, ..self.plain() }
            }
            PurchaseOption::Spot => {
                let interval = spec
                    .checkpoints
                    .every
                    .unwrap_or_else(|| interval(availability.up, &self.costs))
                    .max(self.costs.lag);
                let split = OutageProfile::exponential(availability, policy);
                // The first start is on whichever machines come first.
                let split = split.split(self.work, interval, &self.costs).with_start(self.before);
                RunTimeline {
                    wall: split.wall(),
                    rented: split.spot,
                    fallen_back: split.on_demand,
                    interruptions: split.interruptions,
                    interval,
                    ..self.plain()
                }
            }
        }
    }

    fn plain(&self) -> RunTimeline {
        RunTimeline { work: self.work, starved: self.starved, ..RunTimeline::default() }
    }
}

/// What a run does during spot outages: it falls back if it may, and if the job admits the on-demand price with that of the disk.
pub fn policy(admission: &Admission, priced: &PricedListing, disk: Option<Rate>) -> OutagePolicy {
    let on_demand = priced.rate(PurchaseOption::OnDemand).map(|rate| rate.plus(disk.unwrap_or_default()));
    let admitted = on_demand.filter(|rate| admission.max_price.is_none_or(|most| *rate <= most));
    match (admission.spot, admitted) {
        (Spot::Auto, Some(_)) => OutagePolicy::FallBack { patience: assumed::PATIENCE, hold: assumed::HOLD },
        (Spot::Auto | Spot::Only | Spot::Never, _) => OutagePolicy::Wait,
    }
}

/// Whether the data is in the same region as a machine, in another region of its cloud, or elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DataLocality {
    #[default]
    None,
    Region,
    Cloud,
}

/// Egress: the data from its location, at the price of that cloud, and the trained weights from the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Egress {
    pub distance: DataLocality,
    /// Of the cloud in which the data lies.
    pub tariffs: Tariffs,
}

/// The cost of a timeline on so many machines, of which `anchors` are on demand whatever the terms of the others: they are
/// paid for from start to end, also while spot machines are waited for. `disk` is the price of the disk that each machine is rented
/// with; without one, a disk that holds the data is counted by the GiB where the machine's own do not.
pub fn cost(
    spec: &TrainingSpec,
    priced: &PricedListing,
    terms: PurchaseOption,
    (nodes, anchors): (u32, u32),
    timeline: &RunTimeline,
    leaving: &Egress,
    disk: Option<Rate>,
) -> Cost {
    let at = |terms: PurchaseOption, machines: u32, seconds: f64| {
        priced.rate(terms).map_or(Money::default(), |rate| rent(rate, machines, elapsed(seconds)))
    };
    let (on_demand, others) = (PurchaseOption::OnDemand, nodes - anchors);
    let wall = elapsed(timeline.wall);
    let bytes = |bytes: Bytes, copies: u64| Bytes(bytes.0.saturating_mul(copies));
    let keep = |held: Bytes, price: Option<Money>| {
        price.map_or(Money::default(), |price| kept(Stored { bytes: held, price }, wall))
    };
    let leave = |left: Bytes, price: Option<Money>| {
        price.map_or(Money::default(), |price| moved(Transferred { bytes: left, price }))
    };
    let storage = || {
        let price = disk_service(spec, priced).and_then(|service| priced.tariffs.price(service));
        keep(bytes(spec.data.bytes, u64::from(nodes)), price)
    };
    let data = match leaving.distance {
        DataLocality::None => Money::default(),
        DataLocality::Region => leave(spec.data.bytes, leaving.tariffs.cross_region),
        DataLocality::Cloud => leave(spec.data.bytes, leaving.tariffs.egress),
    };
    Cost {
        compute: at(terms, others, timeline.rented)
            + at(on_demand, others, timeline.fallen_back)
            + at(on_demand, anchors, timeline.wall),
        storage: disk.map_or_else(storage, |disk| rent(disk, nodes, wall)),
        checkpoints: keep(bytes(spec.checkpoints.state, u64::from(spec.checkpoints.keep)), priced.tariffs.objects),
        egress: data + leave(spec.checkpoints.weights, priced.tariffs.egress),
    }
}

/// The disk service that is billed where gradus rents no disk; `None` if the machine's included disk is large enough.
fn disk_service(spec: &TrainingSpec, priced: &PricedListing) -> Option<Service> {
    let has_room = priced.listing.disk.is_some_and(|disk| disk >= spec.data.bytes);
    match (has_room, spec.data.disk) {
        (true, _) => None,
        (false, Service::PlainDisk) => Some(Service::PlainDisk),
        (false, _) => Some(Service::SsdDisk),
    }
}

/// A service that a run pays for at an unknown price: whether it is charged by the cloud that stores the data, which
/// service it is, and, where there is one, another cloud's price as an upper bound.
pub type UnknownTariff = (bool, Service, Option<Money>);

/// Every service that a run on a listing pays for at an unknown price, `rented` for the disks among them.
pub fn unknown_tariffs(
    spec: &TrainingSpec,
    priced: &PricedListing,
    leaving: &Egress,
    rented: &[Service],
) -> Vec<UnknownTariff> {
    let there = [
        (rented.is_empty() && spec.data.bytes.0 > 0).then(|| disk_service(spec, priced)).flatten(),
        (spec.checkpoints.state.0 > 0).then_some(Service::Objects),
        (spec.checkpoints.weights.0 > 0).then_some(Service::Egress),
    ];
    let there =
        there.into_iter().flatten().chain(rented.iter().copied()).map(|service| (false, service, priced.tariffs));
    let data = match leaving.distance {
        DataLocality::None => None,
        DataLocality::Region => Some((true, Service::CrossRegion, leaving.tariffs)),
        DataLocality::Cloud => Some((true, Service::Egress, leaving.tariffs)),
    };
    let paid = there.chain(data);
    let unknown = paid.filter(|(_, service, tariffs)| tariffs.is_bounded(*service));
    unknown.map(|(of_data, service, tariffs)| (of_data, service, tariffs.price(service))).collect()
}

/// The emissions of a timeline; `None` if the region's grid is unknown.
pub fn emitted(priced: &PricedListing, nodes: u32, watts: f64, timeline: &RunTimeline) -> Option<Emissions> {
    let grams = priced.region?.carbon.as_ref()?.grams_per_kwh;
    Some(carbon(nodes * priced.listing.gpus.count, watts, timeline.rented + timeline.fallen_back, grams))
}

/// The time of a timeline, as it is compared.
pub fn time(timeline: &RunTimeline) -> Elapsed {
    elapsed(timeline.wall)
}
