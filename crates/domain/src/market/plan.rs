//! A plan: what will be done, how long it takes and what it costs, before anything is spent.

use serde::{Deserialize, Serialize};

use crate::money::Money;
use crate::offer::Offer;
use crate::units::{Bytes, Duration};

/// What will be done, and what it will take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is rented.
    pub offer: Offer,
    /// How the work is divided; none for the user's own program.
    pub share: Option<Share>,
    /// Memory of one rank at its peak; none where nothing is known.
    pub memory: Option<Bytes>,
    /// Time from rent to release; none where nothing is known.
    pub time: Option<Spread>,
    /// Cost of the run; none where nothing is known.
    pub cost: Option<CostSpread>,
    /// What is set aside from the budget before renting: the budget itself, or the high end of the cost.
    pub reserve: Money,
    /// What the figures rest on, a sentence each.
    pub assumptions: Vec<String>,
    /// Other machines of the same provider that do as well, in the order in which they are asked for where the first one
    /// cannot be had. The job may be run on any of them as it is planned here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Offer>,
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
    /// One run in ten is cheaper.
    pub low: Money,
    /// The middle.
    pub middle: Money,
    /// One run in ten is dearer.
    pub high: Money,
}
