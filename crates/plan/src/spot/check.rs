//! Backtest of the forecast: fit on the first half of a trace, replay on the second.

use domain::random::Draws;
use serde::Serialize;

use super::bootstrap::{OutcomeBands, bands};
use super::now::band_from;
use super::{CheckpointOverhead, Ended, OutagePolicy, SpotAvailability, Trace, UptimeInterval, interval, paid, walk};

/// The run to replay on a trace.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Replay {
    /// Number of machines that the run needs at once.
    pub nodes: u32,
    /// Seconds of work.
    pub work: f64,
    pub costs: CheckpointOverhead,
    pub policy: OutagePolicy,
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
    /// The backtest in which each start knows the trace until then.
    pub from_now: Option<FromNow>,
}

/// Forecasts from starts throughout the second half, each from the trace until then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FromNow {
    pub starts: usize,
    /// Fraction of the starts whose wall time is within the band forecast there.
    pub covered: f64,
    /// The high end of a band over its low one, at the median of the starts.
    pub ratio: f64,
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

/// Passes over the second half after which a run counts as endless.
const ROUNDS: usize = 50;

/// Forecasts from the first half of a trace, and replays runs that start throughout the second half, which wraps
/// around.
///
/// # Errors
/// Why this trace is unsuitable.
pub fn check(trace: &Trace, question: &Replay) -> Result<SpotReplay, String> {
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
    let (first, second) = (
        trace.uptime_intervals(question.nodes, 0.0, middle),
        trace.uptime_intervals(question.nodes, middle, trace.end),
    );
    let Some(availability) = SpotAvailability::of(&first) else {
        return Err("in the first half there never were machines enough".to_owned());
    };
    let Replay { work, costs, policy, seed, .. } = *question;
    let interval = interval(availability.up, &costs);
    let Some(foreseen) = bands(&first, work, interval, &costs, policy, seed) else {
        return Err("with uptime_intervals as short as those of the first half the run would not end".to_owned());
    };
    let foreseen_paid = match policy {
        OutagePolicy::Wait => paid(work, interval, availability, &costs),
        OutagePolicy::FallBack { .. } => foreseen.mean.paid(),
    };
    let length = trace.end - middle;
    let apart = APART.max(length / MOST_REPLAYS);
    let starts = (0..).map(|index| f64::from(index) * apart).take_while(|start| *start < length);
    let replays: Vec<Option<Ended>> =
        starts.map(|start| walk(round(&second, start), work, interval, &costs, policy)).collect();
    let ended: Vec<Ended> = replays.iter().flatten().copied().collect();
    if ended.is_empty() {
        return Err("no run ends in the second half".to_owned());
    }
    let paid = ended.iter().map(Ended::paid).sum::<f64>() / ended.len() as f64;
    let mut walls: Vec<f64> = ended.iter().map(|ended| ended.wall).collect();
    walls.sort_by(f64::total_cmp);
    let at = |share: f64| walls[(share * (walls.len() - 1) as f64).round() as usize];
    let inside = walls.iter().filter(|wall| (foreseen.wall.low..=foreseen.wall.high).contains(wall)).count();
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
        from_now: from_now(trace, question, &second, interval),
    })
}

/// Forecasts from [`STARTS`] moments of the second half, each with the trace until then. A start without a forecast, or
/// whose run does not end, counts as not covered. `None` if there is no forecast at any start.
fn from_now(trace: &Trace, question: &Replay, second: &[UptimeInterval], interval: f64) -> Option<FromNow> {
    let Replay { nodes, work, costs, policy, seed } = *question;
    let middle = trace.end / 2.0;
    let mut draws = Draws::new(seed);
    let mut ratios = Vec::new();
    let mut inside = 0;
    for index in 0..STARTS {
        let start = (trace.end - middle) * (index as f64 + 0.5) / STARTS as f64;
        let seen = trace.uptime_intervals(nodes, 0.0, middle + start);
        let Some(band) = band_from(&seen, work, interval, &costs, policy, &mut draws) else { continue };
        ratios.push(band.high / band.low);
        let is_inside = |ended: Ended| (band.low..=band.high).contains(&ended.wall);
        inside += usize::from(walk(round(second, start), work, interval, &costs, policy).is_some_and(is_inside));
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = *ratios.get(ratios.len() / 2)?;
    Some(FromNow { starts: STARTS, covered: inside as f64 / STARTS as f64, ratio })
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
