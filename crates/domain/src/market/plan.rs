//! A plan: machine, duration and cost of a run, before anything is spent.

use serde::{Deserialize, Serialize};

use crate::money::{Money, Rate};
use crate::offer::Offer;
use crate::units::{Bytes, Duration};

/// Machine, division of the work, duration and cost of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The offer to rent.
    pub offer: Offer,
    /// How the work is divided; `None` for the user's own program.
    pub share: Option<Share>,
    /// Peak memory of one rank; `None` if unknown.
    pub memory: Option<Bytes>,
    /// Time from rent to release; `None` if unknown.
    pub time: Option<Spread>,
    /// Cost of the run; `None` if unknown.
    pub cost: Option<CostSpread>,
    /// Amount reserved from the budget before renting: the budget itself, or the high end of the cost.
    pub reserve: Money,
    /// The assumptions of the figures, a sentence each.
    pub assumptions: Vec<String>,
    /// Other machines of the same provider that do as well, in the order in which they are asked for where the first one
    /// cannot be had. The job may be run on any of them as it is planned here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Offer>,
    /// The same machines on demand, where those are spot machines and the job asks for some beside them: of `offer`, then of
    /// each alternative.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anchors: Vec<Offer>,
}

impl Plan {
    /// What so many machines cost together, of which some are on demand if the others are spot machines.
    pub fn rate_of(&self, machines: u32, on_demand: u32) -> Rate {
        let anchor = self.anchors.iter().map(|offer| offer.rate).max();
        let anchors = if anchor.is_some() { on_demand.min(machines) } else { 0 };
        let (spot, anchor) = (self.offer.rate.times(machines - anchors), anchor.unwrap_or_default().times(anchors));
        Rate::from_micros_per_hour(spot.micros_per_hour().saturating_add(anchor.micros_per_hour()))
    }
}

/// How one optimizer step is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Samples per optimizer step.
    pub batch: u32,
    /// Ranks on each machine.
    pub ranks: u32,
    /// Micro-batches a rank and step.
    pub accumulate: u32,
    /// Samples a micro-batch.
    pub micro_batch: u32,
    /// Threads of libtorch per rank.
    pub threads: u32,
    /// Optimizer steps in total, where the number of samples is known.
    pub steps: Option<u64>,
}

impl Share {
    /// The same step by one rank with the threads of all.
    pub fn alone(self) -> Share {
        let Share { batch, ranks, accumulate, threads, .. } = self;
        let micro_batch = batch.div_ceil(accumulate.max(1));
        Share { ranks: 1, micro_batch, threads: threads.saturating_mul(ranks), ..self }
    }
}

impl Share {
    /// The same step by so many ranks, which share the threads of all.
    pub fn among(self, ranks: u32) -> Share {
        if ranks == self.ranks {
            return self;
        }
        let ranks = ranks.max(1);
        let Share { batch, accumulate, threads, .. } = self.alone();
        let micro_batch = batch.div_ceil(ranks.saturating_mul(accumulate.max(1)));
        Share { ranks, micro_batch, threads: (threads / ranks).max(1), ..self }
    }
}

/// A time with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// One run in ten is faster.
    pub low: Duration,
    /// The middle.
    pub middle: Duration,
    /// One run in ten is slower.
    pub high: Duration,
}

/// A cost with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostSpread {
    /// 10th percentile.
    pub low: Money,
    /// The middle.
    pub middle: Money,
    /// 90th percentile.
    pub high: Money,
}
