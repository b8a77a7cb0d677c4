//! The run that a trial is: the sweep's job with the trial's values, and the plan of that.

use domain::sweep::{Known, MOST_TRIALS, Method, Setting};
use domain::train::Stop;
use domain::{Job, Offer, Plan, Problem, Sweep, Work};

use super::draws::values;
use super::halving::rungs;
use crate::local::{HERE, JobFacts, plans};

/// A trial with incompatible values.
#[derive(Debug, Clone, PartialEq)]
pub struct Misfit {
    /// Its number.
    pub number: u32,
    /// Its values.
    pub values: Vec<Setting>,
    /// The problems, at least one.
    pub problems: Vec<Problem>,
}

/// Returns the maximum number of trials: `trials`, or [`MOST_TRIALS`] if unset; in a grid, at most its number of
/// combinations, in a table that of its rows. Budget and deadline may end the sweep earlier.
pub fn most(sweep: &Sweep) -> u32 {
    let limit = sweep.trials.unwrap_or(MOST_TRIALS).min(MOST_TRIALS);
    match sweep.method {
        Method::Grid | Method::Table => u32::try_from(sweep.grid_size()).unwrap_or(u32::MAX).min(limit),
        Method::Random | Method::Asha(_) => limit,
    }
}

/// The job of a trial with these values. On this machine, all trials at the same time share its cores; others are rented
/// for one trial each.
///
/// # Errors
/// A sentence about values that make no work, which those of a job file that was read always do.
pub fn job(base: &Job, sweep: &Sweep, values: &[Setting], offer: &Offer) -> Result<Job, String> {
    let mut job = Job { sweep: None, budget: None, deadline: None, ..base.clone() };
    for setting in values {
        job.envs.extend(setting.variable().map(|name| (name.to_owned(), setting.say())));
    }
    let Work::Train(train) = &mut job.work else { return Ok(job) };
    *train = train.with(values)?;
    if sweep.parallel > 1 && offer.provider == HERE && train.threads.is_none() {
        train.threads = Some((offer.node.cores / sweep.parallel / train.processes.max(1)).max(1));
    }
    if let Method::Asha(_) = sweep.method {
        let rungs = rungs(sweep, train.epochs);
        train.epochs = rungs.last().copied().unwrap_or(train.epochs);
        let accuracy = train.stop.and_then(|stop| stop.accuracy);
        // Trials are compared after as many epochs.
        let patience = train.stop.and_then(|stop| stop.patience).filter(|_| rungs.is_empty());
        train.stop = Some(Stop { accuracy, epochs: rungs.first().copied(), patience });
    }
    Ok(job)
}

/// The plan of a trial on the machine that its sweep rents.
///
/// # Errors
/// Every reason why it cannot run there.
pub fn plan(job: &Job, offer: &Offer, known: &Known) -> Result<Plan, Vec<Problem>> {
    let (samples, input_shape, classes) = (known.samples, known.image, known.classes);
    let facts = JobFacts { samples, input_shape, classes, ..JobFacts::default() };
    let plans = plans(job, std::slice::from_ref(offer), &facts).map_err(|infeasible| infeasible.reasons)?;
    plans.into_iter().next().ok_or_else(|| vec![Problem::at("", "nothing is offered")])
}

/// The first trial that could not run, of those that are looked at before a sweep starts.
pub fn misfit(base: &Job, sweep: &Sweep, offer: &Offer, known: &Known) -> Option<Misfit> {
    // Programs differ by variables only, so one fits as the others do.
    let looked_at = match &base.work {
        Work::Train(_) => most(sweep),
        Work::Command(_) => most(sweep).min(1),
    };
    (1..=looked_at).find_map(|number| {
        let values = values(sweep, number);
        let problems = match job(base, sweep, &values, offer) {
            Err(why) => vec![Problem::at("", why)],
            Ok(job) => match job.problems() {
                problems if problems.is_empty() => plan(&job, offer, known).err().unwrap_or_default(),
                problems => problems,
            },
        };
        (!problems.is_empty()).then_some(Misfit { number, values, problems })
    })
}

/// Why this many concurrent trials do not fit this machine, if they do not; `plan` is that of the first one. Other
/// machines are for one trial each.
pub fn crowded(base: &Job, sweep: &Sweep, plan: &Plan) -> Option<Problem> {
    let (node, at_once) = (&plan.offer.node, u64::from(sweep.parallel));
    let Work::Train(train) = &base.work else { return None };
    if plan.offer.provider != HERE {
        return None;
    }
    let ranks = at_once * u64::from(train.processes.max(1));
    if at_once > 1 && ranks > u64::from(node.cores) {
        let message = format!(
            "{at_once} trials at a time have {ranks} ranks, and `{}` has {} cores",
            plan.offer.kind, node.cores
        );
        let most = node.cores / train.processes.max(1);
        return Some(Problem::at("sweep.parallel", message).hint(format!("write at most {}", most.max(1))));
    }
    let memory = plan.memory.map(|memory| memory.0.saturating_mul(at_once)).unwrap_or(0);
    if at_once > 1 && memory > node.memory.0 {
        let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
        let mut message = format!(
            "{at_once} trials at a time take about {} of memory, and `{}` has {}",
            gigabytes(memory),
            plan.offer.kind,
            gigabytes(node.memory.0)
        );
        let mut hint = "try fewer at a time".to_owned();
        if let Some(most) = train.data.preload {
            let each = gigabytes(most.0);
            message
                .push_str(&format!("; each trial preloads the images for itself, up to {each} (`train.data.preload`)"));
            hint.push_str(", or leave `preload` out: trials share what the system keeps of the files in memory");
        }
        return Some(Problem::at("sweep.parallel", message).hint(hint));
    }
    None
}
