//! The search: every offer, every usual number of machines, every way of dividing the work; exact, and fast because
//! each kind of hardware is estimated once.
//!
//! A [`Task`] says what is to be trained, a [`Market`] what is offered, an [`Admission`] what the job allows.
//! [`Search::answer`] returns the front of cost against time, what to choose from it and why, and how many offers were
//! ruled out for which reason. Estimates come through an [`Estimator`]; they are kept, so a second question about the
//! same task (another budget, other regions, new prices) costs next to nothing.

pub mod admit;
pub mod assumed;
pub mod choose;
pub mod course;
mod entering;
pub mod estimates;
pub mod front;
pub mod lessons;
pub mod market;
pub mod outlook;
pub mod subject;
pub mod task;
#[cfg(test)]
mod tests;
pub mod ways;

use std::collections::BTreeMap;

use domain::{Elapsed, Money};
use serde::Serialize;

pub use crate::estimate::memory::Verdict;
pub use admit::{Admission, Admitted, Gpus, Reason, admit};
pub use choose::{Pick, Role, choose};
pub use course::{Course, Distance, Leaving, Load};
pub use estimates::Estimates;
pub use front::front;
pub use lessons::{Lessons, MOST_OFF, Unlike, Useless};
pub use market::{Good, Market, Shape, Tariffs, Terms};
pub use outlook::{Outlook, outlook};
pub use subject::{Subject, subject};
pub use task::{Formats, Task};
pub use ways::{Estimator, Needed, NoWay, Way};

use crate::money::Cost;
use crate::spot::Weather;

/// Numbers of machines that are looked at when the job names none.
pub const NODES: [u32; 5] = [1, 2, 4, 8, 16];

/// What the job allows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Question {
    pub admission: Admission,
    /// Numbers of machines.
    pub nodes: Vec<u32>,
    pub budget: Option<Money>,
    pub deadline: Option<Elapsed>,
    /// Kilograms of CO₂.
    pub max_carbon: Option<f64>,
    /// The weather that a trace told, instead of what the clouds' bands suggest.
    pub weather: Option<Weather>,
    /// Where the data lies: cloud and region, where it is known.
    pub data_at: Option<(domain::listing::Cloud, Option<String>)>,
    /// What leaving there costs.
    pub data_tariffs: Tariffs,
}

/// One offer, on so many machines, in the way that is the fastest there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Candidate {
    /// Index in [`Market::goods`].
    pub good: usize,
    pub terms: Terms,
    pub nodes: u32,
    pub course: Course,
    pub cost: Cost,
    /// Kilograms of CO₂, where the region's grid is known.
    pub kilograms: Option<f64>,
    /// Whether it surely fits the GPUs' memory, or only may.
    pub verdict: Verdict,
}

impl Candidate {
    /// Whether it surely fits.
    pub fn is_sure(&self) -> bool {
        self.verdict == Verdict::Fits
    }

    /// Time and cost, as they are compared.
    pub fn point(&self) -> (u64, i64) {
        (course::time(&self.course).0, self.cost.total().micros())
    }
}

/// Candidates that a limit ruled out, and the one that came nearest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Missed {
    pub candidates: usize,
    pub nearest: Candidate,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Everything within the limits.
    pub candidates: Vec<Candidate>,
    /// Indices of those on the front, the fastest first.
    pub front: Vec<usize>,
    /// Offers that are ruled out, by reason.
    pub ruled_out: BTreeMap<Reason, usize>,
    /// For offers that a limit rules out on any number of machines: how many candidates, and the nearest.
    pub missed: BTreeMap<Reason, Missed>,
    /// The least memory that any way needs on one GPU, and what the largest GPU that is too small has.
    pub short_of_memory: Option<(f64, f64)>,
    /// Offers in the market.
    pub offers: usize,
    /// Offers on so many machines that were compared.
    pub compared: usize,
}

/// Seconds of a step, and from the start of processes to the first, and whether it fits; or why there is no way.
type Pace = Result<(f64, f64, Verdict), NoWay>;

/// A task on a market, with the estimates made so far.
pub struct Search<'a, E> {
    pub task: &'a Task,
    pub market: &'a Market<'a>,
    estimator: E,
    ways: BTreeMap<(usize, u32), Result<Way, NoWay>>,
}

impl<'a, E: Estimator> Search<'a, E> {
    pub fn new(task: &'a Task, market: &'a Market<'a>, estimator: E) -> Search<'a, E> {
        Search { task, market, estimator, ways: BTreeMap::new() }
    }

    /// The fastest way on so many machines of a shape, estimated when it is first asked for.
    pub fn way(&mut self, shape: usize, nodes: u32) -> &Result<Way, NoWay> {
        // One machine has no network to others, so shapes that differ in it alone are one.
        let shape = if nodes == 1 { self.market.shapes[shape].alone } else { shape };
        let (task, market, estimator) = (self.task, self.market, &mut self.estimator);
        self.ways.entry((shape, nodes)).or_insert_with(|| {
            let device = crate::estimate::Device { nodes, ..market.shapes[shape].device.clone() };
            ways::fastest(task, &device, estimator)
        })
    }

    /// How many ways on hardware were estimated so far.
    pub fn estimated(&self) -> usize {
        self.ways.len()
    }

    /// Everything that the question admits, compared.
    pub fn answer(&mut self, question: &Question) -> Answer {
        let admitted = admit(self.market, &question.admission);
        let mut answer = Answer { ruled_out: admitted.ruled_out, offers: admitted.all, ..Answer::default() };
        let market = self.market;
        answer.candidates.reserve(admitted.offers.len() * question.nodes.len());
        // What a step takes on each shape, as many as there are numbers of machines.
        let mut known: Vec<Option<Vec<Pace>>> = vec![None; market.shapes.len()];
        for (index, terms) in admitted.offers {
            let good = &market.goods[index];
            let leaving = question.leaving(good);
            let (mut found, mut reason) = (false, None);
            let ways = known[good.shape].get_or_insert_with(|| {
                let step = |nodes: &u32| match self.way(good.shape, *nodes) {
                    Ok(way) => Ok((way.step, way.start, way.verdict)),
                    Err(no) => Err(*no),
                };
                question.nodes.iter().map(step).collect()
            });
            for (nodes, way) in question.nodes.iter().zip(ways) {
                let gpu = &market.shapes[good.shape].device.gpu;
                let (step, start, verdict) = match way {
                    Ok(way) => *way,
                    Err(no) => {
                        reason = reason.max(Some(answer.no_way(no, gpu.usable.0)));
                        continue;
                    }
                };
                let weather = match terms {
                    Terms::Spot => question.weather_of(good, *nodes),
                    Terms::OnDemand | Terms::Dedicated => Weather::STEADY,
                };
                let load = Load::of(self.task, good, gpu, *nodes, step, start);
                let course = load.course(self.task, terms, course::policy(question.admission.spot, good), weather);
                let candidate = Candidate {
                    good: index,
                    terms,
                    nodes: *nodes,
                    course,
                    cost: course::cost(self.task, good, terms, *nodes, &course, &leaving),
                    kilograms: course::emitted(good, *nodes, gpu.power, &course).map(|carbon| carbon.kilograms),
                    verdict,
                };
                answer.compared += 1;
                match question.misses(&candidate) {
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
        let points: Vec<(u64, i64)> = answer.candidates.iter().map(Candidate::point).collect();
        answer.front = front(&points);
        answer
    }
}

impl Question {
    /// The limit that a candidate exceeds, the first of them.
    pub fn misses(&self, candidate: &Candidate) -> Option<Reason> {
        let (time, cost) = candidate.point();
        if self.budget.is_some_and(|most| cost > most.micros()) {
            return Some(Reason::Budget);
        }
        if self.deadline.is_some_and(|most| time > most.0) {
            return Some(Reason::Deadline);
        }
        // Emissions that are not known may be too much.
        let emits = |most: f64| candidate.kilograms.is_none_or(|kilograms| kilograms > most);
        self.max_carbon.is_some_and(emits).then_some(Reason::Carbon)
    }

    /// How long spot machines of a good stay, so many together.
    pub fn weather_of(&self, good: &Good, nodes: u32) -> Weather {
        self.weather.unwrap_or_else(|| Weather::prior(good.listing.interrupted, nodes))
    }

    /// What leaves where when the job runs on a good.
    pub fn leaving(&self, good: &Good) -> Leaving {
        let distance = match &self.data_at {
            None => Distance::None,
            Some((cloud, _)) if *cloud != good.listing.cloud => Distance::Cloud,
            Some((_, Some(region))) if *region != good.listing.region => Distance::Region,
            Some(_) => Distance::None,
        };
        Leaving { distance, tariffs: self.data_tariffs }
    }
}

impl Answer {
    /// Why a way is missing, as the reason of an offer.
    fn no_way(&mut self, no: &NoWay, usable: u64) -> Reason {
        match no {
            NoWay::Format => Reason::Format,
            NoWay::Batch => Reason::Batch,
            NoWay::Memory { least } => {
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
            _ => candidate.course.wall,
        };
        let missed = self.missed.entry(reason).or_insert(Missed { candidates: 0, nearest: candidate });
        missed.candidates += 1;
        if measure(&candidate) < measure(&missed.nearest) {
            missed.nearest = candidate;
        }
    }
}
