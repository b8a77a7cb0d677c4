//! The course of a run on given machines: how long it takes, what is paid for, what it costs.

use domain::gpu::Gpu;
use domain::{Bytes, Elapsed, Money};
use serde::Serialize;

use super::assumed;
use super::market::{Good, Tariffs, Terms};
use super::task::Task;
use crate::estimate::limits::{self, Preparation, Supply};
use crate::money::carbon::{Carbon, carbon};
use crate::money::cost::elapsed;
use crate::money::{Cost, Kept, Moved, kept, moved, rent};
use crate::spot::{Costs, Policy, Weather, interval, paid};
use domain::tariff::Service;
use domain::wants::Spot;

/// How long things take, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Course {
    /// From asking for machines to giving them back.
    pub wall: f64,
    /// Each machine is paid for at the price of its terms.
    pub rented: f64,
    /// Each machine is paid for at the price on demand, while there are no spot machines.
    pub fallen_back: f64,
    /// How often machines are taken away, on average.
    pub interruptions: f64,
    /// Steps, evaluation and what they wait for.
    pub work: f64,
    /// Share of the time in which GPUs wait for data.
    pub starved: f64,
    /// Between checkpoints.
    pub interval: f64,
}

/// What of a run does not depend on the terms of rent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Steps, evaluation and what they wait for, in seconds.
    pub work: f64,
    pub starved: f64,
    /// Boot and fetching the data.
    pub before: f64,
    pub costs: Costs,
}

impl Load {
    /// What a run is on `nodes` machines of a good with such GPUs, where a step takes `step` seconds and processes need
    /// `start` until the first.
    pub fn of(task: &Task, good: &Good, gpu: &Gpu, nodes: u32, step: f64, start: f64) -> Load {
        let machines = f64::from(nodes);
        let batch = task.batch as f64;
        // Where the number of cores is not known, data is not assumed to be the limit.
        let limit = task.per_core.zip(good.listing.cores).map(|(per_core, cores)| {
            let supply = Supply { nodes, cores: f64::from(cores), disk: None, network: None };
            limits::data_limit(Preparation { per_core, bytes: 0.0 }, supply)
        });
        let fed = limit.map_or(step, |limit| limits::fed(step, batch, limit));
        let arriving = limit.map_or(f64::INFINITY, |limit| limit.samples_per_second);
        let evaluated = limits::evaluation(task.evaluated as f64, batch / step).max(task.evaluated as f64 / arriving);
        let fetched = good.listing.network.map_or(assumed::FETCH, |bits| (bits / 8.0).min(assumed::FETCH));
        let gpus = f64::from(good.listing.gpus.count) * machines;
        let lag = 1.0 + limits::checkpoint_write(task.state.0 as f64, machines * assumed::WRITE);
        Load {
            work: task.steps as f64 * fed + evaluated,
            starved: 1.0 - step / fed,
            before: assumed::BOOT + start + task.data.0 as f64 / (machines * fetched),
            costs: Costs {
                stall: 0.2 + limits::checkpoint_stall(task.state.0 as f64 / gpus, gpu),
                lag,
                restart: assumed::RESTART + lag,
            },
        }
    }

    /// The course under given terms. `weather` is that of all machines together, for spot.
    pub fn course(&self, task: &Task, terms: Terms, policy: Policy, weather: Weather) -> Course {
        match terms {
            Terms::OnDemand | Terms::Dedicated => {
                let interval = task.checkpoint.unwrap_or(assumed::CHECKPOINT).max(self.costs.lag);
                let saved = (self.work / interval).floor() * self.costs.stall;
                let wall = self.before + self.work + saved;
                Course { wall, rented: wall, interval, ..self.plain() }
            }
            Terms::Spot => {
                let interval = task.checkpoint.unwrap_or_else(|| interval(weather.up, &self.costs)).max(self.costs.lag);
                let alone = paid(self.work, interval, weather, &self.costs);
                match policy {
                    Policy::Wait => Course {
                        rented: self.before + alone,
                        wall: self.before + alone / weather.availability(),
                        interruptions: alone / weather.up,
                        interval,
                        ..self.plain()
                    },
                    Policy::FallBack { patience, .. } => self.falling_back(interval, alone, patience, weather),
                }
            }
        }
    }

    /// Outages last exponentially long: of each, what is longer than the patience is worked through on demand. Work
    /// per second is the same on machines on demand, but for what is lost to interruptions.
    fn falling_back(&self, interval: f64, alone: f64, patience: f64, weather: Weather) -> Course {
        let longer = weather.down * (-patience / weather.down).exp();
        let waited = weather.down - longer;
        let yields = self.work / alone;
        let rented = self.work / (yields + longer / weather.up);
        let interruptions = rented / weather.up;
        let fallen_back = interruptions * longer;
        Course {
            rented: self.before + rented,
            fallen_back,
            wall: self.before + rented + fallen_back + interruptions * waited,
            interruptions,
            interval,
            ..self.plain()
        }
    }

    fn plain(&self) -> Course {
        Course { work: self.work, starved: self.starved, ..Course::default() }
    }
}

/// What a run does when there are no spot machines: it falls back where it may, and where there is a price on demand.
pub fn policy(spot: Spot, good: &Good) -> Policy {
    match (spot, good.rate(Terms::OnDemand)) {
        (Spot::Auto, Some(_)) => Policy::FallBack { patience: assumed::PATIENCE, hold: assumed::HOLD },
        (Spot::Auto | Spot::Only | Spot::Never, _) => Policy::Wait,
    }
}

/// Whether the data lies in the same region as a machine, in another region of its cloud, or elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    #[default]
    None,
    Region,
    Cloud,
}

/// What leaves where: the data from where it lies, at the price of that cloud, and the trained weights from the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaving {
    pub distance: Distance,
    /// Of the cloud in which the data lies.
    pub tariffs: Tariffs,
}

/// What a course costs.
pub fn cost(task: &Task, good: &Good, terms: Terms, nodes: u32, course: &Course, leaving: &Leaving) -> Cost {
    let at = |terms: Terms, seconds: f64| {
        good.rate(terms).map_or(Money::default(), |rate| rent(rate, nodes, elapsed(seconds)))
    };
    let wall = elapsed(course.wall);
    let bytes = |bytes: Bytes, copies: u64| Bytes(bytes.0.saturating_mul(copies));
    let keep = |held: Bytes, price: Option<Money>| {
        price.map_or(Money::default(), |price| kept(Kept { bytes: held, price }, wall))
    };
    let leave =
        |left: Bytes, price: Option<Money>| price.map_or(Money::default(), |price| moved(Moved { bytes: left, price }));
    // A machine's own disk costs nothing more.
    let has_room = good.listing.disk.is_some_and(|disk| disk >= task.data);
    let disk = match (has_room, task.disk) {
        (true, _) => None,
        (false, Service::PlainDisk) => good.tariffs.plain,
        (false, _) => good.tariffs.ssd,
    };
    let data = match leaving.distance {
        Distance::None => Money::default(),
        Distance::Region => leave(task.data, leaving.tariffs.cross_region),
        Distance::Cloud => leave(task.data, leaving.tariffs.egress),
    };
    Cost {
        compute: at(terms, course.rented) + at(Terms::OnDemand, course.fallen_back),
        storage: keep(bytes(task.data, u64::from(nodes)), disk),
        checkpoints: keep(bytes(task.state, u64::from(task.keep)), good.tariffs.objects),
        egress: data + leave(task.weights, good.tariffs.egress),
    }
}

/// What a course emits; none where the region's grid is not known.
pub fn emitted(good: &Good, nodes: u32, watts: f64, course: &Course) -> Option<Carbon> {
    let grams = good.region?.carbon.as_ref()?.grams_per_kwh;
    Some(carbon(nodes * good.listing.gpus.count, watts, course.rented + course.fallen_back, grams))
}

/// The time of a course, as it is compared.
pub fn time(course: &Course) -> Elapsed {
    elapsed(course.wall)
}
