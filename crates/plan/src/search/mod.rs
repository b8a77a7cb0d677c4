//! The search: every offer, every usual number of machines, every parallel configuration; exhaustive, and fast because
//! each kind of hardware is estimated once.
//!
//! A [`TrainingSpec`] describes the training, a [`MarketIndex`] the offers, an [`Admission`] the job's constraints.
//! [`Search::answer`] returns the Pareto front of cost and time, recommendations with reasons, and how many offers were
//! rejected for which reason. Estimates come from an [`Estimator`]; they are cached, so that a second search for the
//! same training (another budget, other regions, new prices) is nearly free.

pub mod admit;
pub mod advice;
pub mod assumed;
pub mod calibration;
pub mod estimates;
pub mod forecast;
pub mod front;
pub mod market;
pub mod parallel;
#[cfg(test)]
mod tests;
pub mod timeline;
pub mod volume;
pub mod workload;

use std::collections::BTreeMap;

use domain::tariff::Service;
use domain::{Elapsed, Money, Rate};
use serde::Serialize;

use self::parallel::ahead;

pub use crate::estimate::memory::MemoryFit;
pub use admit::{Admission, Admitted, GpuRequirement, Reason, admit};
pub use advice::choose::{Pick, Recommendation, choose};
pub use advice::missing::{MarketGap, market_gap};
pub use advice::remedy::{Change, least_price, remedy};
pub use advice::simplest::simplest;
pub use advice::why::{OfferOutcome, outcomes};
pub use calibration::{CalibrationData, MOST_OFF, Outlier, RejectedRow};
pub use estimates::Estimates;
pub use forecast::{Forecast, forecast};
pub use front::front;
pub use market::{Availability, HardwareConfig, MarketIndex, PricedListing, PurchaseOption, Tariffs};
pub use parallel::ahead::{HardwareCount, ParallelConfigs};
pub use parallel::simplest::LAYOUT_MARGIN;
pub use parallel::words::{layout_words, program_words};
pub use parallel::{Estimator, Infeasible, ParallelConfig, RequiredMemory};
pub use timeline::{DataLocality, Egress, RunProfile, RunTimeline, UnknownTariff, unknown_tariffs};
pub use volume::{SamplesIn, VolumeChoice, VolumeDemand, disk_work};
pub use workload::{
    JobFacts, LayoutRequest, ParallelChoice, ProgramProfile, ResolvedNetwork, ResolvedWorkload, TrainingSpec, resolve,
};

use crate::money::Cost;
use crate::spot::SpotAvailability;

/// Numbers of machines that are looked at when the job names none.
pub const NODES: [u32; 5] = [1, 2, 4, 8, 16];

/// The job's constraints.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Constraints {
    pub admission: Admission,
    /// Numbers of machines.
    pub nodes: Vec<u32>,
    pub budget: Option<Money>,
    pub deadline: Option<Elapsed>,
    /// Kilograms of CO₂.
    pub max_carbon: Option<f64>,
    /// Spot availability from a trace, instead of the clouds' interruption bands.
    pub availability: Option<SpotAvailability>,
    /// Location of the data: cloud and region, if known.
    pub data_at: Option<(domain::listing::Cloud, Option<String>)>,
    /// What leaving there costs.
    pub data_tariffs: Tariffs,
}

/// One offer, on so many machines, with the layout that is the fastest there, or a simpler one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Candidate {
    /// Index in [`MarketIndex::listings`].
    pub listing: usize,
    pub terms: PurchaseOption,
    /// Whether a source confirms that there are such machines; never denied.
    pub availability: Availability,
    pub nodes: u32,
    pub timeline: RunTimeline,
    /// The volume of each machine; `None` on a cloud that provisions no speed.
    pub volume: Option<VolumeChoice>,
    /// The price of the disk that is rented with each machine; `None` where none is.
    pub disk: Option<Rate>,
    pub cost: Cost,
    /// Kilograms of CO₂, where the region's grid is known.
    pub kilograms: Option<f64>,
    /// Whether it surely fits the GPUs' memory, or only may.
    pub verdict: MemoryFit,
    /// Its layout, as an index of [`ParallelConfig::simpler`]; `None` for the fastest, with which offers are compared.
    pub simpler: Option<usize>,
}

impl Candidate {
    /// Whether another candidate is the same offer on as many machines, whatever its layout.
    pub fn is_same_offer(&self, other: &Candidate) -> bool {
        (self.listing, self.terms, self.nodes) == (other.listing, other.terms, other.nodes)
    }

    /// Whether it surely fits.
    pub fn is_sure(&self) -> bool {
        self.verdict == MemoryFit::Fits
    }

    /// What is paid for the disk that is rented with each machine.
    pub fn disk_services(&self) -> Vec<Service> {
        match self.volume {
            Some(volume) => volume.services().collect(),
            None => self.disk.map(|_| Service::SsdDisk).into_iter().collect(),
        }
    }

    /// Time and cost, as they are compared.
    pub fn point(&self) -> (u64, i64) {
        (timeline::time(&self.timeline).0, self.cost.total().micros())
    }
}

/// Candidates that a limit ruled out, and the one that came nearest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NearMiss {
    pub candidates: usize,
    pub nearest: Candidate,
}

/// The result.
#[derive(Debug, Clone, Default)]
pub struct SearchResult {
    /// All candidates that meet the constraints.
    pub candidates: Vec<Candidate>,
    /// Indices of the Pareto front, fastest first: of confirmed machines; of all, if none are confirmed.
    pub front: Vec<usize>,
    /// Indices of candidates that would be on the front if they were confirmed, fastest first.
    pub unconfirmed: Vec<usize>,
    /// Offers that are ruled out, by reason.
    pub ruled_out: BTreeMap<Reason, usize>,
    /// For offers that a limit rules out on any number of machines: how many candidates, and the nearest.
    pub missed: BTreeMap<Reason, NearMiss>,
    /// The least memory per GPU of any configuration, and that of the largest GPU that is too small.
    pub short_of_memory: Option<(f64, f64)>,
    /// Offers in the market.
    pub offers: usize,
    /// Offers on so many machines that were compared.
    pub compared: usize,
}

/// Seconds of a step, and from the start of processes to the first, and whether it fits; or why there is no configuration.
type StepOrReason = Result<(f64, f64, MemoryFit), Infeasible>;

/// A training and a market, with cached estimates.
pub struct Search<'a, E> {
    pub spec: &'a TrainingSpec,
    pub market: &'a MarketIndex<'a>,
    estimator: E,
    configs: ParallelConfigs,
}

impl<'a, E: Estimator> Search<'a, E> {
    /// A search without estimates yet.
    pub fn new(spec: &'a TrainingSpec, market: &'a MarketIndex<'a>, estimator: E) -> Search<'a, E> {
        Search { spec, market, estimator, configs: BTreeMap::new() }
    }

    /// The fastest configuration on this many machines of a kind of hardware, estimated on first use.
    pub fn config(&mut self, hardware: usize, nodes: u32) -> &Result<ParallelConfig, Infeasible> {
        let one = ahead::estimated_as(self.market, hardware, nodes);
        let (spec, market, estimator) = (self.spec, self.market, &mut self.estimator);
        self.configs.entry(one).or_insert_with(|| ahead::estimate(spec, market, one, estimator))
    }

    /// The configuration of a candidate; `None` for one that the search did not create.
    pub fn config_of(&mut self, candidate: &Candidate) -> Option<&ParallelConfig> {
        let hardware = self.market.listings[candidate.listing].hardware;
        let config = self.config(hardware, candidate.nodes).as_ref().ok()?;
        candidate.simpler.map_or(Some(config), |place| config.simpler.get(place))
    }

    /// The number of configurations estimated.
    pub fn estimated(&self) -> usize {
        self.configs.len()
    }

    /// Everything that the constraints admit, compared.
    pub fn answer(&mut self, constraints: &Constraints) -> SearchResult {
        let admitted = admit(self.market, &constraints.admission);
        let mut answer =
            SearchResult { ruled_out: admitted.ruled_out, offers: admitted.all, ..SearchResult::default() };
        let market = self.market;
        answer.candidates.reserve(admitted.offers.len() * constraints.nodes.len());
        // The step on each kind of hardware, for each number of machines.
        let mut known: Vec<Option<Vec<StepOrReason>>> = vec![None; market.hardware.len()];
        for (index, terms) in admitted.offers {
            let hardware = market.listings[index].hardware;
            let steps = known[hardware].get_or_insert_with(|| self.steps(hardware, &constraints.nodes));
            let (mut found, mut reason) = (false, None);
            for (nodes, step) in constraints.nodes.iter().zip(steps) {
                if market.listings[index].has_fewer_than(*nodes) {
                    reason = reason.max(Some(Reason::Machines));
                    continue;
                }
                let step = match step {
                    Ok(step) => *step,
                    Err(no) => {
                        let usable = market.hardware[hardware].device.gpu.usable.0;
                        reason = reason.max(Some(answer.why_infeasible(no, usable)));
                        continue;
                    }
                };
                let candidate = self.candidate(constraints, (index, terms), *nodes, step);
                answer.compared += 1;
                match constraints.misses(&market.listings[index], &candidate) {
                    None => {
                        found = true;
                        answer.candidates.push(candidate);
                    }
                    Some(missed) => {
                        reason = reason.max(Some(missed));
                        answer.miss(missed, candidate);
                    }
                }
            }
            if let (false, Some(reason)) = (found, reason) {
                *answer.ruled_out.entry(reason).or_default() += 1;
            }
        }
        answer.rank();
        answer
    }

    /// A step on each number of machines of a kind of hardware.
    fn steps(&mut self, hardware: usize, nodes: &[u32]) -> Vec<StepOrReason> {
        let step = |nodes: &u32| match self.config(hardware, *nodes) {
            Ok(config) => Ok((config.step, config.start, config.verdict)),
            Err(no) => Err(*no),
        };
        nodes.iter().map(step).collect()
    }

    /// The run on so many machines of an offer, in time, cost and emissions.
    fn candidate(
        &self,
        constraints: &Constraints,
        (listing, terms): (usize, PurchaseOption),
        nodes: u32,
        (step, start, verdict): (f64, f64, MemoryFit),
    ) -> Candidate {
        let priced = &self.market.listings[listing];
        let gpu = &self.market.hardware[priced.hardware].device.gpu;
        let availability = match terms {
            PurchaseOption::Spot => constraints.availability_of(priced, nodes),
            PurchaseOption::OnDemand | PurchaseOption::Dedicated => SpotAvailability::STEADY,
        };
        let profile = RunProfile::of(self.spec, priced, gpu, nodes, step, start);
        let (timeline, volume, disk) =
            volume::on_disks(self.spec, priced, (terms, nodes), &profile, &constraints.admission, availability);
        Candidate {
            listing,
            terms,
            availability: priced.availability(terms),
            nodes,
            timeline,
            volume,
            disk,
            cost: timeline::cost(
                self.spec,
                priced,
                terms,
                (nodes, constraints.admission.anchors(terms, nodes)),
                &timeline,
                &constraints.leaving(priced),
                disk,
            ),
            kilograms: timeline::emitted(priced, nodes, gpu.power, &timeline).map(|carbon| carbon.kilograms),
            verdict,
            simpler: None,
        }
    }
}

impl Constraints {
    /// The limit that a candidate exceeds, the first of them.
    pub fn misses(&self, priced: &PricedListing, candidate: &Candidate) -> Option<Reason> {
        if candidate.volume.is_some_and(|volume| volume.is_too_large()) {
            return Some(Reason::Disk);
        }
        if self.admission.is_too_expensive(priced, candidate.terms, candidate.disk) {
            return Some(Reason::MaxPrice);
        }
        let (time, cost) = candidate.point();
        if self.budget.is_some_and(|most| cost > most.micros()) {
            return Some(Reason::Budget);
        }
        if self.deadline.is_some_and(|most| time > most.0) {
            return Some(Reason::Deadline);
        }
        // Unknown emissions may be too much.
        let emits = |most: f64| candidate.kilograms.is_none_or(|kilograms| kilograms > most);
        self.max_carbon.is_some_and(emits).then_some(Reason::Carbon)
    }

    /// How long spot machines of a listing stay together, in a run on so many machines. Those of them that are on demand
    /// are not taken back.
    pub fn availability_of(&self, priced: &PricedListing, nodes: u32) -> SpotAvailability {
        let spot = nodes - self.admission.anchors(PurchaseOption::Spot, nodes);
        self.availability.unwrap_or_else(|| SpotAvailability::prior(priced.listing.interrupted, spot))
    }

    /// What leaves where when the job runs on a listing.
    pub fn leaving(&self, priced: &PricedListing) -> Egress {
        let distance = match &self.data_at {
            None => DataLocality::None,
            Some((cloud, _)) if *cloud != priced.listing.cloud => DataLocality::Cloud,
            Some((_, Some(region))) if *region != priced.listing.region => DataLocality::Region,
            Some(_) => DataLocality::None,
        };
        Egress { distance, tariffs: self.data_tariffs }
    }
}

impl SearchResult {
    /// Ranks confirmed machines before unconfirmed ones.
    fn rank(&mut self) {
        let best = self.candidates.iter().map(|candidate| candidate.availability).min();
        let Some(best) = best else { return };
        let (known, all) = (self.front_of(|candidate| candidate.availability == best), self.front_of(|_| true));
        self.unconfirmed = all.into_iter().filter(|index| self.candidates[*index].availability > best).collect();
        self.front = known;
    }

    /// Indices of the Pareto front of the selected candidates, fastest first.
    pub fn front_of(&self, is_taken: impl Fn(&Candidate) -> bool) -> Vec<usize> {
        let taken: Vec<usize> = (0..self.candidates.len()).filter(|index| is_taken(&self.candidates[*index])).collect();
        let points: Vec<(u64, i64)> = taken.iter().map(|index| self.candidates[*index].point()).collect();
        front(&points).into_iter().map(|place| taken[place]).collect()
    }

    /// Whether a candidate is as sure to be there as the best are.
    pub fn is_ranked_first(&self, candidate: &Candidate) -> bool {
        self.front.first().is_some_and(|index| self.candidates[*index].availability == candidate.availability)
    }

    /// Why there is no configuration, as the reason of an offer.
    fn why_infeasible(&mut self, no: &Infeasible, usable: u64) -> Reason {
        match no {
            Infeasible::Format => Reason::Format,
            Infeasible::Batch => Reason::Batch,
            Infeasible::Layout => Reason::Layout,
            Infeasible::Memory { least } => {
                let largest = self.short_of_memory.map_or(0.0, |(_, has)| has);
                if usable as f64 > largest || self.short_of_memory.is_none_or(|(needs, _)| *least < needs) {
                    let needs = self.short_of_memory.map_or(*least, |(needs, _)| needs.min(*least));
                    self.short_of_memory = Some((needs, largest.max(usable as f64)));
                }
                Reason::GpuMemory
            }
        }
    }

    fn miss(&mut self, reason: Reason, candidate: Candidate) {
        let measure = |candidate: &Candidate| match reason {
            Reason::Budget => candidate.cost.total().micros() as f64,
            Reason::Carbon => candidate.kilograms.unwrap_or(f64::INFINITY),
            Reason::Disk => candidate.volume.map_or(f64::INFINITY, |volume| volume.gib as f64),
            _ => candidate.timeline.wall,
        };
        let missed = self.missed.entry(reason).or_insert(NearMiss { candidates: 0, nearest: candidate });
        missed.candidates += 1;
        let rank = |candidate: &Candidate| (candidate.availability, measure(candidate));
        if rank(&candidate) < rank(&missed.nearest) {
            missed.nearest = candidate;
        }
    }
}
