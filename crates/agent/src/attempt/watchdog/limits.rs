//! For how long a rank may be silent: what its job states, else what follows from the pace of its steps.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use domain::hang::{HangLimit, HangLimits};
use serde::Serialize;

use crate::Patience;

/// Silence of so many of the slowest usual steps is a hang, unless so many median ones are longer.
const SLOWEST: u32 = 10;
const MEDIANS: u32 = 20;

/// Before the first step, a step is taken for such a part of what the set-up may usually take.
const UNKNOWN: u32 = 60;

/// An evaluation may take so many times what as many training steps take.
const EVALUATION: f64 = 3.0;

/// A save may take so many times as long as the longest one until then.
const SAVES: u32 = 3;

/// For how long a rank may be silent.
#[derive(Debug, Clone, Copy)]
pub struct SilenceLimits {
    /// What its job states. The others are for what it does not state.
    stated: HangLimits,
    /// Before its first step.
    set_up: Duration,
    /// What of that is for data that is preloaded.
    preloading: Duration,
    /// Between two steps, at least.
    step: Duration,
    /// While a checkpoint or a model is written, at least.
    checkpoint: Duration,
}

impl SilenceLimits {
    /// Those of an agent for a job, which takes so long to preload its data.
    pub fn of(patience: &Patience, stated: HangLimits, preloading: Duration) -> SilenceLimits {
        let set_up = patience.ready.saturating_add(preloading);
        SilenceLimits { stated, set_up, preloading, step: patience.step, checkpoint: patience.checkpoint }
    }

    /// What recent steps took.
    pub fn pace(&self, recent: &VecDeque<Duration>) -> StepPace {
        StepPace::of(recent, self.set_up / UNKNOWN)
    }

    /// Before the first step.
    pub fn before_first_step(&self) -> Duration {
        self.stated.setup.map_or(self.set_up, time_of)
    }

    /// Between two steps at this pace.
    pub fn between_steps(&self, pace: &StepPace) -> Duration {
        self.stated.step.map_or_else(|| step_limit(pace, self.step), time_of)
    }

    /// While a checkpoint or a model is written, where the longest save until then took so long.
    pub fn while_saving(&self, longest: Duration) -> Duration {
        self.stated.save.map_or_else(|| self.checkpoint.max(longest.saturating_mul(SAVES)), time_of)
    }

    /// All of them, where steps have this pace, if any is known, and the longest save took so long.
    pub fn in_force(&self, pace: Option<&StepPace>, longest: Duration) -> Vec<HangLimitInForce> {
        let setup = match self.preloading.is_zero() {
            true => "default",
            false => "default, and the time to preload data",
        };
        let step = pace.map_or_else(
            || (self.step, "default, or longer by the pace of steps".to_owned()),
            |pace| (step_limit(pace, self.step), reason(pace, self.step)),
        );
        let save = match longest.saturating_mul(SAVES) {
            limit if limit > self.checkpoint => (limit, format!("{SAVES} times the longest save, {}", shown(longest))),
            _ => (self.checkpoint, "default".to_owned()),
        };
        vec![
            HangLimitInForce::of("setup", self.stated.setup, (self.set_up, setup.to_owned())),
            HangLimitInForce::of("step", self.stated.step, step),
            HangLimitInForce::of("save", self.stated.save, save),
        ]
    }
}

/// A limit on silence that is in force, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HangLimitInForce {
    /// Its key below `hang_after`.
    pub limit: &'static str,
    /// After how long it is reached; `None` for never.
    pub after: Option<domain::Duration>,
    /// Why it is as long.
    pub why: String,
}

impl HangLimitInForce {
    fn of(limit: &'static str, stated: Option<HangLimit>, (usual, why): (Duration, String)) -> HangLimitInForce {
        let (after, why) = match stated {
            Some(HangLimit::After(after)) => (Some(after), "stated in the job".to_owned()),
            Some(HangLimit::Off) => (None, "switched off in the job".to_owned()),
            None => (Some(domain::Duration::from_micros(usual.as_secs().saturating_mul(1_000_000))), why),
        };
        HangLimitInForce { limit, after, why }
    }

    /// That of the calls of a program, where its job states one.
    pub fn of_program(stated: HangLimits) -> Option<HangLimitInForce> {
        let usual = (Duration::ZERO, String::new());
        stated.step.map(|step| HangLimitInForce::of("step", Some(step), usual))
    }
}

/// `step 10m (stated in the job)`.
impl fmt::Display for HangLimitInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = self.after.map_or("off".to_owned(), |after| after.to_string());
        write!(f, "{} {after} ({})", self.limit, self.why)
    }
}

/// The time of a limit that a job states; one that is off is never reached.
pub fn time_of(limit: HangLimit) -> Duration {
    limit.after().map_or(Duration::MAX, |after| Duration::from_micros(after.micros()))
}

/// A length of time to the millisecond.
fn shown(time: Duration) -> domain::Duration {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 1000);
    domain::Duration::from_micros(millis.saturating_mul(1000))
}

/// What recent steps took.
#[derive(Debug)]
pub struct StepPace {
    /// The middle one.
    median: Duration,
    /// The 99th percentile; of fewer than 100 steps, the longest.
    p99: Duration,
}

impl StepPace {
    /// Of no step, all are taken to be as long as `unknown`.
    fn of(recent: &VecDeque<Duration>, unknown: Duration) -> StepPace {
        let mut sorted: Vec<Duration> = recent.iter().copied().collect();
        sorted.sort_unstable();
        let at = |place: usize| sorted.get(place).copied().unwrap_or(unknown);
        StepPace { median: at(sorted.len() / 2), p99: at((sorted.len() * 99).div_ceil(100).saturating_sub(1)) }
    }
}

/// For how long no step may be reported, where at `least` so long is always fine.
fn step_limit(pace: &StepPace, least: Duration) -> Duration {
    least.max(pace.p99.saturating_mul(SLOWEST)).max(pace.median.saturating_mul(MEDIANS))
}

/// The same if an evaluation of as many samples as so many `steps` comes before it.
pub fn evaluation_limit(pace: &StepPace, steps: f64, step: Duration) -> Duration {
    let takes = Duration::try_from_secs_f64(pace.median.as_secs_f64() * steps * EVALUATION);
    step.saturating_add(takes.unwrap_or(Duration::MAX / 4))
}

/// Why the limit of a step is as long as it is.
fn reason(pace: &StepPace, least: Duration) -> String {
    match step_limit(pace, least) {
        limit if limit == least => format!("default; recent steps took {} at most", shown(pace.p99)),
        limit if limit == pace.p99.saturating_mul(SLOWEST) => {
            format!("{SLOWEST} times the 99th percentile of recent steps, {}", shown(pace.p99))
        }
        _ => format!("{MEDIANS} times the median of recent steps, {}", shown(pace.median)),
    }
}
