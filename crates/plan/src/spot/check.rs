//! Backtest of the forecast: fit on the first half of a trace, replay on the second.

use domain::random::Draws;
use serde::Serialize;

use super::bootstrap::{OutcomeBands, SimulatedRun, bands};
use super::now::{band_from, expected_from};
use super::price::{MOVES, SpotPriceSeries};
use super::split::{OutageProfile, TimeSplit};
use super::walk::metered;
use super::{CheckpointOverhead, Ended, OutagePolicy, SpotAvailability, Trace, UptimeInterval, interval, paid};

/// The run to replay on a trace.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Replay {
    /// Number of machines that the run needs at once.
    pub nodes: u32,
    /// Seconds of work.
    pub work: f64,
    pub costs: CheckpointOverhead,
    pub policy: OutagePolicy,
    /// The mean spot price as a share of the on-demand price.
    pub price: f64,
    pub seed: u64,
}

/// Foreseen and replayed. Times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpotReplay {
    /// Of the first half.
    pub availability: SpotAvailability,
    /// Of the second.
    pub then: Option<SpotAvailability>,
    pub interval: f64,
    /// Paid for, on average, as foreseen.
    pub foreseen_paid: f64,
    pub foreseen: OutcomeBands,
    /// Runs replayed, one for each start; and those that ended.
    pub replays: usize,
    pub ended: usize,
    /// Paid for, on average over the replays.
    pub paid: f64,
    pub wall: Bandless,
    /// Foreseen over replayed, less 1.
    pub paid_error: f64,
    /// Fraction of the replays whose wall time is within the forecast band.
    pub covered: f64,
    pub cost: CostReplay,
    /// The backtest in which each start knows the trace until then.
    pub from_now: Option<FromNow>,
}

/// Costs of one machine, in seconds of a machine on demand, where spot prices move.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CostReplay {
    /// Expected from the first half, and the mean over the replays.
    pub foreseen: f64,
    pub paid: f64,
    /// Foreseen over replayed, less 1.
    pub error: f64,
    /// The same where the intervals of the second half are known: what the model of the split is off by.
    pub split_error: Option<f64>,
    /// Fraction of the replays whose cost is within the forecast band.
    pub covered: f64,
    /// Means over the replays.
    pub split: TimeSplit,
}

/// Forecasts from starts throughout the second half, each from the trace until then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FromNow {
    pub starts: usize,
    /// Fraction of the starts whose wall time is within the band forecast there.
    pub covered: f64,
    /// The high end of a band over its low one, at the median of the starts.
    pub ratio: f64,
    /// Expected cost of the starts whose runs end, over what they cost, less 1.
    pub cost_error: Option<f64>,
}

/// Number of starts.
pub const STARTS: usize = 60;

/// Percentiles of the replays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bandless {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

/// Seconds between two starts of replayed runs, more where these would be too many runs.
const APART: f64 = 600.0;

/// Maximum number of replays: a month and a half of starts.
const MOST_REPLAYS: f64 = 6000.0;

/// What distinguishes the draws of prices, and of expected costs, from those of intervals.
const PRICES: u64 = 0x5052_4943;
const COSTS: u64 = 0x434F_5354;

/// Passes over the second half after which a run counts as endless.
const ROUNDS: usize = 50;

/// Forecasts from the first half of a trace, and replays runs that start throughout the second half, which wraps
/// around.
///
/// # Errors
/// Why this trace is unsuitable.
pub fn check(trace: &Trace, question: &Replay) -> Result<SpotReplay, String> {
    let (first, second, availability) = halves(trace, question)?;
    let middle = trace.end / 2.0;
    let Replay { work, costs, policy, seed, price, .. } = *question;
    let interval = interval(availability.up, &costs);
    let prices = Priced::drawn(trace, question);
    let seen_price = prices.series.spent(0.0, middle) / middle;
    let run =
        SimulatedRun { price: (seen_price, MOVES), ..SimulatedRun::certain(work, interval, costs, policy, price) };
    let Some(foreseen) = bands(&first, &run, seed) else {
        return Err("with uptime_intervals as short as those of the first half the run would not end".to_owned());
    };
    let foreseen_paid = match policy {
        OutagePolicy::Wait => paid(work, interval, availability, &costs),
        OutagePolicy::FallBack { .. } => foreseen.mean.paid(),
    };
    let length = trace.end - middle;
    let apart = APART.max(length / MOST_REPLAYS);
    let starts = (0..).map(|index| f64::from(index) * apart).take_while(|start| *start < length);
    let replays: Vec<Option<(Ended, f64)>> =
        starts.map(|start| prices.replay(&second, start, question, interval)).collect();
    let ended: Vec<(Ended, f64)> = replays.iter().flatten().copied().collect();
    if ended.is_empty() {
        return Err("no run ends in the second half".to_owned());
    }
    let paid = ended.iter().map(|(ended, _)| ended.paid()).sum::<f64>() / ended.len() as f64;
    let mut walls: Vec<f64> = ended.iter().map(|(ended, _)| ended.wall).collect();
    walls.sort_by(f64::total_cmp);
    let at = |share: f64| walls[(share * (walls.len() - 1) as f64).round() as usize];
    let inside = walls.iter().filter(|wall| (foreseen.wall.low..=foreseen.wall.high).contains(wall)).count();
    let foreseen_cost = match policy {
        OutagePolicy::Wait => foreseen_paid * seen_price,
        OutagePolicy::FallBack { .. } => foreseen.mean.spot * seen_price + foreseen.mean.on_demand,
    };
    let known = OutageProfile::observed(&second, policy).map(|profile| profile.split(work, interval, &costs));
    let then_price = prices.series.spent(middle, length) / length;
    let known = known.map(|split| split.with_start(costs.restart).cost(then_price));
    Ok(SpotReplay {
        availability,
        then: SpotAvailability::of(&second),
        interval,
        foreseen_paid,
        foreseen,
        replays: replays.len(),
        ended: ended.len(),
        paid,
        wall: Bandless { low: at(0.1), middle: at(0.5), high: at(0.9) },
        paid_error: foreseen_paid / paid - 1.0,
        covered: inside as f64 / replays.len() as f64,
        cost: CostReplay::of(&ended, replays.len(), (foreseen_cost, &foreseen), known),
        from_now: from_now(trace, question, (second.as_slice(), &prices), interval),
    })
}

/// The intervals of both halves of a trace, and the availability in the first.
///
/// # Errors
/// As [`check`].
fn halves(
    trace: &Trace,
    question: &Replay,
) -> Result<(Vec<UptimeInterval>, Vec<UptimeInterval>, SpotAvailability), String> {
    if !question.work.is_finite() || question.work <= 0.0 {
        return Err("a run without work needs no machines".to_owned());
    }
    let middle = trace.end / 2.0;
    if !middle.is_finite() {
        return Err("it has no end".to_owned());
    }
    if middle < question.work {
        let (seen, work) = (middle / 3600.0, question.work / 3600.0);
        return Err(format!("its first half, {seen:.1} h, says too little about a run of {work:.1} h of work"));
    }
    let first = trace.uptime_intervals(question.nodes, 0.0, middle);
    let second = trace.uptime_intervals(question.nodes, middle, trace.end);
    match SpotAvailability::of(&first) {
        Some(availability) => Ok((first, second, availability)),
        None => Err("in the first half there never were machines enough".to_owned()),
    }
}

impl CostReplay {
    /// Compares the runs that ended, of so many, with their forecast, and with the cost that is expected where the intervals
    /// are known.
    fn of(
        ended: &[(Ended, f64)],
        replays: usize,
        (foreseen, bands): (f64, &OutcomeBands),
        known: Option<f64>,
    ) -> CostReplay {
        let mean = |of: fn(&(Ended, f64)) -> f64| ended.iter().map(of).sum::<f64>() / ended.len() as f64;
        let paid = mean(|(_, cost)| *cost);
        let inside = ended.iter().filter(|(_, cost)| (bands.cost.low..=bands.cost.high).contains(cost)).count();
        CostReplay {
            foreseen,
            paid,
            error: foreseen / paid - 1.0,
            split_error: known.map(|known| known / paid - 1.0),
            covered: inside as f64 / replays as f64,
            split: TimeSplit {
                spot: mean(|(ended, _)| ended.spot),
                on_demand: mean(|(ended, _)| ended.on_demand),
                waiting: mean(|(ended, _)| ended.wall - ended.paid()),
                interruptions: mean(|(ended, _)| f64::from(ended.interruptions)),
                starts_on_demand: mean(|(ended, _)| f64::from(u8::from(ended.spot == 0.0))),
            },
        }
    }
}

/// Drawn prices, and the second half in which runs are replayed.
struct Priced {
    series: SpotPriceSeries,
    middle: f64,
    length: f64,
}

impl Priced {
    fn drawn(trace: &Trace, question: &Replay) -> Priced {
        let series = SpotPriceSeries::drawn(question.price, trace.end, &mut Draws::new(question.seed ^ PRICES));
        Priced { series, middle: trace.end / 2.0, length: trace.end / 2.0 }
    }

    /// A run that starts `start` seconds into the second half, and its cost; both halves wrap around together.
    fn replay(&self, second: &[UptimeInterval], start: f64, question: &Replay, interval: f64) -> Option<(Ended, f64)> {
        let Replay { work, costs, policy, .. } = *question;
        let mut cost = 0.0;
        let ended = metered(round(second, start), work, interval, &costs, policy, |from, seconds| {
            let (mut from, mut left) = ((start + from) % self.length, seconds);
            while left > 0.0 {
                let part = left.min((self.length - from).max(1.0));
                cost += self.series.spent(self.middle + from, part);
                (from, left) = (0.0, left - part);
            }
        })?;
        Some((ended, cost + ended.on_demand))
    }
}

/// Forecasts from [`STARTS`] moments of the second half, each with the trace until then. A start without a forecast, or
/// whose run does not end, counts as not covered. `None` if there is no forecast at any start.
fn from_now(
    trace: &Trace,
    question: &Replay,
    (second, prices): (&[UptimeInterval], &Priced),
    interval: f64,
) -> Option<FromNow> {
    let Replay { nodes, work, costs, policy, seed, .. } = *question;
    let middle = trace.end / 2.0;
    let (mut draws, mut of_cost) = (Draws::new(seed), Draws::new(seed ^ COSTS));
    let mut ratios = Vec::new();
    let mut inside = 0;
    let (mut expected, mut paid) = (0.0, 0.0);
    for index in 0..STARTS {
        let start = (trace.end - middle) * (index as f64 + 0.5) / STARTS as f64;
        let seen = trace.uptime_intervals(nodes, 0.0, middle + start);
        let replay = prices.replay(second, start, question, interval);
        let split = expected_from(&seen, work, interval, &costs, policy, &mut of_cost);
        if let (Some([spot, on_demand]), Some((_, cost))) = (split, replay) {
            // Nothing is known of later prices: the price of the moment is expected to stay.
            expected += spot * prices.series.at(middle + start) + on_demand;
            paid += cost;
        }
        let Some(band) = band_from(&seen, work, interval, &costs, policy, &mut draws) else { continue };
        ratios.push(band.high / band.low);
        inside += usize::from(replay.is_some_and(|(ended, _)| (band.low..=band.high).contains(&ended.wall)));
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = *ratios.get(ratios.len() / 2)?;
    let cost_error = (paid > 0.0).then(|| expected / paid - 1.0);
    Some(FromNow { starts: STARTS, covered: inside as f64 / STARTS as f64, ratio, cost_error })
}

/// The periods from `start` on, round and round.
fn round(uptime_intervals: &[UptimeInterval], start: f64) -> impl Iterator<Item = UptimeInterval> + '_ {
    let mut passed = 0.0;
    let mut index = 0;
    while index + 1 < uptime_intervals.len() && passed + uptime_intervals[index].seconds <= start {
        passed += uptime_intervals[index].seconds;
        index += 1;
    }
    let rest = UptimeInterval {
        seconds: (passed + uptime_intervals[index].seconds - start).max(0.0),
        ..uptime_intervals[index]
    };
    let later = uptime_intervals.iter().cycle().skip(index + 1).take(uptime_intervals.len() * ROUNDS).copied();
    std::iter::once(rest).chain(later)
}

#[cfg(test)]
mod tests;
