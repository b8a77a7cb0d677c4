//! The bounds of a sweep, by estimate and by its limits, shown before it starts; infeasible ones are refused.

use domain::sweep::{Asha, Known, Method};
use domain::{Job, Plan, Problem, Problems, Rate, Sweep};
use plan::sweep::Bound;
use serde_json::{Value, json};

use crate::error::Error;
use crate::figures::{grouped, short};
use crate::local::draft;

/// Known properties of a sweep before it starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preview {
    /// Known properties of the data.
    pub known: Known,
    /// Upper bound for all trials: their number, and time and money by the slow end of each estimate or by a limit.
    pub bound: Bound,
}

impl Preview {
    /// Computes the preview.
    ///
    /// # Errors
    /// [`Error::Job`] with the problems: a trial with incompatible values, too many at a time, no end.
    pub fn of(job: &Job, sweep: &Sweep, plan: &Plan, known: Known, file: &str) -> Result<Preview, Error> {
        let mut problems: Vec<Problem> = plan::sweep::crowded(job, sweep, plan).into_iter().collect();
        let only_money = sweep.trials.is_none() && !sweep.method.is_counted() && job.deadline.is_none();
        if only_money && plan.offer.rate == Rate::default() {
            let message = "the price of this machine is 0, so the budget never ends the sweep";
            problems.push(Problem::at("budget", message).hint("write `trials: 20` under `sweep`, or set `--price`"));
        }
        if let Some(misfit) = plan::sweep::misfit(job, sweep, &plan.offer, &known) {
            let values = said(&misfit.values);
            problems.extend(misfit.problems.into_iter().map(|problem| {
                let message = format!("trial {} ({values}) cannot run: {}", misfit.number, problem.message);
                Problem { message, ..problem }
            }));
        }
        if !problems.is_empty() {
            return Err(Error::Job(Problems { file: file.to_owned(), problems }));
        }
        Ok(Preview { known, bound: plan::sweep::bound(job, sweep, &plan.offer, &known) })
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let Bound { trials, epochs, runs, time, time_is_limit, cost, cost_is_limit } = self.bound;
        json!({
            "trials": trials,
            "starts": runs,
            "epochs": epochs,
            "seconds": time.map(|time| time.as_secs_f64()),
            "seconds_are_at_most": time_is_limit,
            "cost_micro_usd": cost.map(|cost| cost.micros()),
            "cost_is_at_most": cost_is_limit,
        })
    }
}

/// Values of a trial on one line: `batch 64, optimizer.adamw.lr 0.0031`.
pub fn said(values: &[domain::sweep::Setting]) -> String {
    values.iter().map(|value| format!("{} {}", value.key, value.say())).collect::<Vec<_>>().join(", ")
}

/// The preview for people.
pub fn lines(job: &Job, plan: &Plan, preview: &Preview) -> Vec<String> {
    let Some(sweep) = &job.sweep else { return Vec::new() };
    let bound = &preview.bound;
    let mut lines: Vec<String> = draft::lines(job, plan).into_iter().take(3).collect();
    let keys: Vec<&str> = sweep.parameters.iter().map(|parameter| parameter.key.as_str()).collect();
    lines.push(format!("sweep    {} over {}", method(sweep, job), keys.join(", ")));
    if let Some(metric) = sweep.metric {
        let goal = match sweep.goal {
            domain::sweep::Goal::Maximize => "highest",
            domain::sweep::Goal::Minimize => "lowest",
        };
        let place = match job.work {
            domain::Work::Train(_) => "on the validation split",
            domain::Work::Command(_) => "as the program reports it last",
        };
        lines.push(format!("best     by {} {place}, the {goal}", metric.name()));
    }
    let at_once = if sweep.parallel > 1 { format!(", {} at a time", sweep.parallel) } else { String::new() };
    lines.push(match (bound.trials, bound.epochs) {
        (Some(trials), Some(epochs)) => {
            let starts = bound.runs.filter(|runs| *runs > u64::from(trials));
            let starts = starts.map(|runs| format!(", {} starts", grouped(runs))).unwrap_or_default();
            let trials = grouped(u64::from(trials));
            format!("trials   {trials} at most{at_once}{starts}, {} epochs together", grouped(epochs))
        }
        (Some(trials), None) => format!("trials   {}{at_once}", grouped(u64::from(trials))),
        (None, _) => format!("trials   as many as budget and deadline allow{at_once}"),
    });
    // One run in ten exceeds the slow end of its estimate, and more on a busy machine; only a limit is certain.
    let told = |figure: String, is_limit: bool| match is_limit {
        true => format!("{figure} at most"),
        false => format!("about {figure} at the slow end (P90), not limited"),
    };
    let time = bound.time.map_or("unknown".to_owned(), |time| told(short(time), bound.time_is_limit));
    lines.push(format!("time     {time}"));
    let cost = bound.cost.map_or("unknown".to_owned(), |cost| told(cost.to_string(), bound.cost_is_limit));
    lines.push(format!("cost     {cost}"));
    if let Some(budget) = job.budget {
        lines.push(format!(
            "budget   at most {} for all trials; they save a checkpoint and stop before exceeding it",
            budget.max
        ));
    }
    if let Some(deadline) = job.deadline {
        lines.push(format!("deadline {deadline} for all trials; they save a checkpoint and stop when it is reached"));
    }
    let rests = match (job.budget, job.deadline) {
        (None, None) => {
            "every trial takes the slow end (P90) of its estimate; set `budget` or `deadline` for a hard limit"
        }
        (Some(_), _) | (_, Some(_)) => "every trial takes the slow end (P90) of its estimate",
    };
    lines.push(format!("assumed  {rests}"));
    lines
}

/// Describes the search method.
fn method(sweep: &Sweep, job: &Job) -> String {
    match sweep.method {
        Method::Grid => "grid search".to_owned(),
        Method::Table => format!("a table of {} rows", grouped(sweep.grid_size())),
        Method::Random => format!("random search, seed {},", sweep.seed),
        Method::Asha(Asha { reduction_factor, .. }) => {
            let epochs = match &job.work {
                domain::Work::Train(train) => train.epochs,
                domain::Work::Command(_) => 0,
            };
            let rungs = plan::sweep::rungs(sweep, epochs);
            let rungs: Vec<String> = rungs.iter().map(u32::to_string).collect();
            format!("ASHA (top 1/{reduction_factor} promoted: {} epochs), seed {},", rungs.join(" → "), sweep.seed)
        }
    }
}
