//! How the time of a run splits between spot machines, machines on demand, and waiting.
//!
//! A renewal process: machines stay for a while, then there is an outage. Of each outage a run waits for its patience and
//! computes on demand for the rest; it holds those machines for a least time, so it pays for them in part of the next
//! uptime too. A run starts at any moment, and so in an outage as often as there is one. Means are enough: what a run
//! takes in all is a sum over outages, and only one that outlasts the run is cut short. [`walk`](super::walk()) simulates
//! the same run, and [`check`](super::check()) compares both with traces.

use serde::Serialize;

use super::{CheckpointOverhead, OutagePolicy, SpotAvailability, UptimeInterval, paid};

/// Expected seconds of a run on each of its machines, without the first start.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct TimeSplit {
    /// Paid at the spot price.
    pub spot: f64,
    /// Paid at the on-demand price.
    pub on_demand: f64,
    /// Without machines, and paid for nothing.
    pub waiting: f64,
    /// Expected number of interruptions.
    pub interruptions: f64,
    /// Probability that the first machines are on demand.
    pub starts_on_demand: f64,
}

impl TimeSplit {
    /// The same with a first start of `seconds`, on whichever machines come first.
    pub fn with_start(self, seconds: f64) -> TimeSplit {
        TimeSplit {
            spot: self.spot + seconds * (1.0 - self.starts_on_demand),
            on_demand: self.on_demand + seconds * self.starts_on_demand,
            ..self
        }
    }

    /// Seconds from start to end.
    pub fn wall(&self) -> f64 {
        self.spot + self.on_demand + self.waiting
    }

    /// What is paid, in seconds of a machine on demand, where a spot machine costs `price` times as much.
    pub fn cost(&self, price: f64) -> f64 {
        self.spot * price + self.on_demand
    }
}

/// What an outage means to a run, in expected seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Outage {
    /// Probability that it outlasts the patience.
    falls_back: f64,
    /// Waited for spot machines.
    waited: f64,
    /// On demand where it outlasts the patience, beyond its end where machines are held.
    on_demand: f64,
    /// Of that, beyond its end.
    held: f64,
}

/// Uptimes and outages as a run under one policy meets them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutageProfile {
    up: f64,
    /// Probability that a run starts in an outage.
    starts_in_outage: f64,
    /// What is left of the outage that a run starts in.
    first: Outage,
    later: Outage,
}

/// Seconds to wait in an outage, and to hold machines on demand.
fn limits(policy: OutagePolicy) -> (f64, f64) {
    match policy {
        // Not infinite: products with 0 must be 0.
        OutagePolicy::Wait => (f64::MAX, 0.0),
        OutagePolicy::FallBack { patience, hold } => (patience, hold),
    }
}

/// The mean of what is held of an exponentially distributed time with mean `mean`, up to `most`.
fn capped(mean: f64, most: f64) -> f64 {
    if mean > 0.0 { -mean * (-most / mean).exp_m1() } else { 0.0 }
}

impl OutageProfile {
    /// Exponentially distributed uptimes and outages: what is left of one is distributed as the whole.
    pub fn exponential(availability: SpotAvailability, policy: OutagePolicy) -> OutageProfile {
        let SpotAvailability { up, down } = availability;
        if down <= 0.0 {
            let none = Outage::default();
            return OutageProfile { up, starts_in_outage: 0.0, first: none, later: none };
        }
        let (patience, hold) = limits(policy);
        let falls_back = (-patience / down).exp();
        let held = capped(up, (hold - capped(down, hold)).max(0.0));
        let outage = Outage { falls_back, waited: down * (1.0 - falls_back), on_demand: down + held, held };
        OutageProfile { up, starts_in_outage: down / (up + down), first: outage, later: outage }
    }

    /// Observed intervals. `None` if there never were machines.
    pub fn observed(seen: &[UptimeInterval], policy: OutagePolicy) -> Option<OutageProfile> {
        let up = SpotAvailability::of(seen)?.up;
        let (patience, hold) = limits(policy);
        let all: f64 = seen.iter().map(|interval| interval.seconds).sum();
        let downs: Vec<f64> = seen.iter().filter(|interval| !interval.is_up).map(|interval| interval.seconds).collect();
        let (count, down) = (downs.len() as f64, downs.iter().sum::<f64>());
        if down <= 0.0 {
            return Some(OutageProfile::exponential(SpotAvailability { up, down: 0.0 }, policy));
        }
        let sum = |of: &dyn Fn(f64) -> f64| downs.iter().map(|seconds| of(*seconds)).sum::<f64>();
        let longer = |seconds: f64| (seconds - patience).max(0.0);
        let (beyond, longer_ones) = (sum(&longer), sum(&|seconds| f64::from(u8::from(seconds > patience))));
        let each = |of: &dyn Fn(f64) -> f64, over: f64| if over > 0.0 { sum(of) / over } else { 0.0 };
        let outage = |falls_back: f64, waited: f64, rest: f64, held: f64| {
            let held = capped(up, held);
            Outage { falls_back, waited, on_demand: rest + held, held }
        };
        // An outage is met in proportion to its length, at any moment of it (length-biased sampling).
        let held_after = |seconds: f64| match longer(seconds) {
            rest if rest < hold => hold * rest - rest * rest / 2.0,
            _ => hold * hold / 2.0,
        };
        let first = outage(
            beyond / down,
            sum(&|seconds| seconds.min(patience).powi(2) / 2.0 + patience * longer(seconds)) / down,
            each(&|seconds| longer(seconds).powi(2) / 2.0, beyond),
            each(&held_after, beyond),
        );
        let later = outage(
            longer_ones / count,
            sum(&|seconds| seconds.min(patience)) / count,
            each(&longer, longer_ones),
            each(&|seconds| if seconds > patience { (hold - longer(seconds)).max(0.0) } else { 0.0 }, longer_ones),
        );
        Some(OutageProfile { up, starts_in_outage: down / all, first, later })
    }

    /// The expected split of a run of `work` seconds with a checkpoint every `interval`.
    pub fn split(&self, work: f64, interval: f64, costs: &CheckpointOverhead) -> TimeSplit {
        if work <= 0.0 {
            return TimeSplit::default();
        }
        let each = interval.min(work).max(1e-9);
        let computing = each / (each + costs.stall);
        if !self.up.is_finite() {
            return TimeSplit { spot: work / computing, ..TimeSplit::default() };
        }
        let kept = work / paid(work, interval, SpotAvailability { up: self.up, down: 0.0 }, costs);
        // A run that ends first takes less of an outage: all its work is left at its start, half of it later on average.
        let first = capped(self.first.on_demand, work);
        let later = capped(self.later.on_demand, work / 2.0 + costs.restart);
        let starts_on_demand = self.starts_in_outage * self.first.falls_back;
        let uptime = (self.up - self.later.falls_back * self.later.held).max(1e-3 * self.up);
        let done_each = computing * self.later.falls_back * (later - costs.restart).max(0.0);
        let spot = (work - starts_on_demand * computing * first) / (kept + done_each / uptime);
        if !spot.is_finite() {
            // It loses more than it computes, and nothing else computes for it.
            return TimeSplit { spot: f64::INFINITY, interruptions: f64::INFINITY, ..TimeSplit::default() };
        }
        let interruptions = spot / uptime;
        TimeSplit {
            spot,
            on_demand: starts_on_demand * first + interruptions * self.later.falls_back * later,
            waiting: self.starts_in_outage * self.first.waited + interruptions * self.later.waited,
            interruptions,
            starts_on_demand,
        }
    }
}

#[cfg(test)]
mod tests;
