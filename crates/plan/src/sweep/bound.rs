//! Bounds of a sweep before anything is spent: maximum trials and epochs, time and cost by estimate or by limit.

use domain::sweep::{Known, Method};
use domain::{Duration, Elapsed, Job, Money, Offer, Rate, Sweep, Work};

use super::draws::values;
use super::halving::rungs;
use super::trial::{job, most, plan};

/// Number of trials whose plans are added up individually; more are extrapolated from their average.
const ADDED_UP: u32 = 1000;

/// Time that an agent gives trials to save after the deadline, where their job has no `stop_grace`.
const SAVING: Duration = Duration::from_secs(60);

/// Time to see that the deadline has come, to stop the processes of trials and to release their machines.
const ENDING: Duration = Duration::from_secs(30);

/// Bounds of a sweep. Counts are hard limits; time and money are hard unless they are only estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Trials; `None` if only money or time limits them.
    pub trials: Option<u32>,
    /// Epochs of all trials together; `None` if unlimited.
    pub epochs: Option<u64>,
    /// Runs, counting each trial once more for each time that it is resumed.
    pub runs: Option<u64>,
    /// Time, by the slow end of each trial's estimate, with as many at once as the sweep says, and by the deadline with
    /// what trials then have to save.
    pub time: Option<Duration>,
    /// Whether that is the deadline with its time to save, which ends it, and no estimate.
    pub time_is_limit: bool,
    /// Money: that time's rent, and the budget.
    pub cost: Option<Money>,
    /// Whether that is a hard limit: a budget, the rent until all have saved after the deadline, or a free machine.
    /// nothing.
    pub cost_is_limit: bool,
}

/// Adds up the maximum of all trials.
pub fn bound(base: &Job, sweep: &Sweep, offer: &Offer, known: &Known) -> Bound {
    let is_counted = sweep.trials.is_some() || sweep.method.is_counted();
    let job_epochs = match &base.work {
        Work::Train(train) => Some(train.epochs),
        Work::Command(_) => None,
    };
    let trials = is_counted.then(|| most(sweep));
    let (mut epochs, mut runs, mut time) = (None, None, None);
    if let Some(trials) = trials {
        let each = job_epochs.unwrap_or(0);
        let shares = shares(sweep, &rungs(sweep, each), trials);
        runs = Some(shares.iter().map(|(_, count)| count).sum());
        let all = added_up(base, sweep, offer, known, trials);
        epochs = job_epochs.map(|_| match sweep.method {
            Method::Asha(_) => shares.iter().map(|(epochs, count)| u64::from(*epochs) * count).sum(),
            Method::Grid | Method::Random | Method::Table => all.epochs,
        });
        time = all.seconds.map(|seconds| {
            // A trial that goes on starts and ends once more, and trains for its share of all epochs.
            let whole: u64 = shares.last().map_or(0, |_| u64::from(trials) * u64::from(last(sweep, each)));
            let share = match sweep.method {
                Method::Asha(_) => epochs.unwrap_or(0) as f64 / whole.max(1) as f64,
                Method::Grid | Method::Random | Method::Table => 1.0,
            };
            let around = all.around * runs.unwrap_or(0) as f64;
            let paid = (seconds - all.around * f64::from(trials)).max(0.0) * share + around;
            (paid, paid / f64::from(sweep.parallel.max(1)))
        });
    }
    let duration = |seconds: f64| Duration::from_micros((seconds * 1e6).ceil() as u64);
    let rate = offer.rate.times(base.machines());
    let is_free = rate == Rate::default();
    let rent = match is_free {
        true => Some(Money::default()),
        false => time.map(|(paid, _)| rate.cost(Elapsed(duration(paid).micros()))),
    };
    let lives_on = base.stop_grace.unwrap_or(SAVING).micros().saturating_add(ENDING.micros());
    let ends = base.deadline.map(|deadline| Duration::from_micros(deadline.micros().saturating_add(lives_on)));
    let by_deadline = ends.map(|deadline| {
        let rent = rate.cost(Elapsed(deadline.micros())).micros();
        Money::from_micros(rent.saturating_mul(i64::from(sweep.parallel.max(1))))
    });
    let most_cost = [base.budget.map(|budget| budget.max), by_deadline].into_iter().flatten().min();
    let cost = [rent, most_cost].into_iter().flatten().min();
    let times = [time.map(|(_, wall)| duration(wall)), ends];
    let time = times.into_iter().flatten().min_by_key(|time| time.micros());
    let time_is_limit = time.is_some() && time == ends;
    let cost_is_limit = cost.is_some() && (cost == most_cost || is_free);
    Bound { trials, epochs, runs, time, time_is_limit, cost, cost_is_limit }
}

/// For each rung, the epochs from the one below to it, and how many trials train them at most.
fn shares(sweep: &Sweep, rungs: &[u32], trials: u32) -> Vec<(u32, u64)> {
    let factor = match sweep.method {
        Method::Asha(asha) => u64::from(asha.reduction_factor.max(2)),
        Method::Grid | Method::Random | Method::Table => 1,
    };
    let (mut below, mut count) = (0, u64::from(trials));
    let mut shares = Vec::new();
    for rung in rungs {
        shares.push((rung - below, count));
        (below, count) = (*rung, count / factor);
    }
    shares
}

fn last(sweep: &Sweep, epochs: u32) -> u32 {
    rungs(sweep, epochs).last().copied().unwrap_or(epochs)
}

/// Trials trained to their last epoch, added up.
struct Sum {
    epochs: u64,
    /// By the slow end of each estimate; none where one is not known.
    seconds: Option<f64>,
    /// Of each trial's seconds, those to start and to end.
    around: f64,
}

fn added_up(base: &Job, sweep: &Sweep, offer: &Offer, known: &Known, trials: u32) -> Sum {
    let counted = match &base.work {
        Work::Train(_) => trials.min(ADDED_UP),
        // Variables are not estimated by.
        Work::Command(_) => trials.min(1),
    };
    let (mut epochs, mut seconds) = (0, Some(0.0));
    for number in 1..=counted {
        let Ok(mut job) = job(base, sweep, &values(sweep, number), offer) else { continue };
        if let Work::Train(train) = &mut job.work {
            train.stop = None;
            epochs += u64::from(train.epochs);
        }
        let high = plan(&job, offer, known).ok().and_then(|plan| plan.time).map(|time| time.high.as_secs_f64());
        seconds = seconds.zip(high).map(|(sum, high)| sum + high);
    }
    let scale = f64::from(trials) / f64::from(counted.max(1));
    Sum {
        epochs: (epochs as f64 * scale).round() as u64,
        seconds: seconds.map(|seconds| seconds * scale),
        around: crate::estimate::processor::START_AND_END,
    }
}
