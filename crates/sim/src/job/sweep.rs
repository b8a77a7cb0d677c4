//! The sweep that a simulated user asks for, and those of the schedule. Their trials are submitted by the controller.

use domain::event::SweepSubmitted;
use domain::job::Budget;
use domain::sweep::{Between, Goal, Known, Method, Metric, Parameter, Range};
use domain::{Event, Job, Money, RunId, Sweep, SweepId};

use super::{job_of, plan_of};
use crate::rule::Rule;
use crate::scenario::{Scenario, SimulatedSweep};

/// Its name.
pub(crate) const SWEEP: &str = "s1";

pub(crate) fn sweep_id() -> SweepId {
    SweepId::new(SWEEP)
}

/// Whether this is the name of the sweep, or of one of its trials.
pub(crate) fn is_of_sweep(run: &RunId) -> bool {
    run.as_str().starts_with(SWEEP)
}

/// The sweep is asked for.
pub(crate) fn sweep_submitted(scenario: &Scenario, budget: Option<Money>, rule: Option<Rule>, now: u64) -> Event {
    let budget = budget.filter(|_| rule != Some(Rule::TrialsShareABudget));
    submitted(sweep_id(), scenario.sweep, budget, (scenario, now))
}

/// A sweep of the schedule is asked for.
pub(crate) fn due_sweep_submitted(sweep: SweepId, scenario: &Scenario, now: u64) -> Event {
    submitted(sweep, scenario.schedule.sweep, None, (scenario, now))
}

fn submitted(id: SweepId, drawn: SimulatedSweep, budget: Option<Money>, (scenario, now): (&Scenario, u64)) -> Event {
    let seeds = Between { min: 1, max: 1_000, log: false, points: None };
    let sweep = Sweep {
        parameters: vec![Parameter { key: "seed".into(), range: Range::Integers(seeds) }],
        method: Method::Random,
        trials: Some(drawn.trials),
        metric: Some(Metric::Accuracy),
        goal: Goal::Maximize,
        seed: 1,
        parallel: drawn.parallel,
        max_failed: drawn.trials,
    };
    let budget = budget.map(|max| Budget { max, ..Budget::default() });
    // Trials are rented on the same terms.
    let scenario = &Scenario { on_demand: 0, ..scenario.clone() };
    let job = Job { budget, sweep: Some(sweep), ..job_of(scenario) };
    Event::SweepSubmitted(Box::new(SweepSubmitted {
        sweep: id,
        job,
        plan: plan_of(scenario, now),
        known: Known::default(),
        job_hash: "hash".into(),
        file: "job.yaml".into(),
        user: None,
    }))
}
