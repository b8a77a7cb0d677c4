//! For how long a rank may be silent, by the pace of its steps.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Patience;

/// Silence of so many of the slowest usual steps is a hang, unless so many median ones are longer.
const SLOWEST: u32 = 10;
const MEDIANS: u32 = 20;

/// Before the first step, a step is taken for such a part of what the set-up may take.
pub const UNKNOWN: u32 = 60;

/// An evaluation may take so many times what as many training steps take.
const EVALUATION: f64 = 3.0;

/// A save may take so many times as long as the longest one until then.
pub const SAVES: u32 = 3;

/// For how long a rank may be silent, at least.
#[derive(Debug, Clone, Copy)]
pub struct SilenceLimits {
    /// Before its first step.
    pub set_up: Duration,
    /// Between two steps.
    pub step: Duration,
    /// While a checkpoint or a model is written.
    pub checkpoint: Duration,
}

impl SilenceLimits {
    /// Those of an agent.
    pub fn of(patience: &Patience) -> SilenceLimits {
        SilenceLimits { set_up: patience.ready, step: patience.step, checkpoint: patience.checkpoint }
    }
}

/// What recent steps took.
#[derive(Debug)]
pub struct StepPace {
    /// The middle one.
    pub median: Duration,
    /// The 99th percentile; of fewer than 100 steps, the longest.
    pub p99: Duration,
}

impl StepPace {
    /// Of no step, all are taken to be as long as `unknown`.
    pub fn of(recent: &VecDeque<Duration>, unknown: Duration) -> StepPace {
        let mut sorted: Vec<Duration> = recent.iter().copied().collect();
        sorted.sort_unstable();
        let at = |place: usize| sorted.get(place).copied().unwrap_or(unknown);
        StepPace { median: at(sorted.len() / 2), p99: at((sorted.len() * 99).div_ceil(100).saturating_sub(1)) }
    }
}

/// For how long no step may be reported, where at `least` so long is always fine.
pub fn step_limit(pace: &StepPace, least: Duration) -> Duration {
    least.max(pace.p99.saturating_mul(SLOWEST)).max(pace.median.saturating_mul(MEDIANS))
}

/// The same if an evaluation of as many samples as so many `steps` comes before it.
pub fn evaluation_limit(pace: &StepPace, steps: f64, step: Duration) -> Duration {
    let takes = Duration::try_from_secs_f64(pace.median.as_secs_f64() * steps * EVALUATION);
    step.saturating_add(takes.unwrap_or(Duration::MAX / 4))
}
