//! Plans for the machines that a provider already has, such as this one: [`crate::search`] over a market of one
//! machine.
//!
//! [`plans`] returns one [`Plan`] for each offer that fits, or every reason why none does. Nothing is measured here:
//! measurements are passed in as [`JobFacts`], the rest is estimated by the time and memory models of
//! [`crate::estimate`] with the figures of CPUs, and the plan lists its assumptions. [`machine`] estimates, [`fit`]
//! compares with the machine's resources. On nodes whose GPUs are known, [`gpus`] estimates with their figures.

mod fit;
mod gpus;
mod machine;
mod profile;
mod same_classes;
mod same_step;
#[cfg(test)]
mod tests;

use domain::plan::{CostSpread, Spread};
use domain::problem::Problem;
use domain::{Bytes, Duration, Elapsed, Job, Money, Offer, Plan, Rate, Work};

use crate::search::workload::trained;
pub use crate::search::{JobFacts, ProgramProfile};
pub use gpus::NodeGpus;
use machine::OnMachine;
pub use same_classes::class_difference;
pub use same_step::has_same_step;

/// The provider of the machine that gradus runs on, whose price is what `--price` says.
pub(crate) const HERE: &str = "local";

/// Why no offer can run the job: every reason, each with a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoFeasibleOffer {
    /// At least one.
    pub reasons: Vec<Problem>,
}

/// Plans a job on each offer that can run it: the cheapest first, then the fastest, then the first offered.
///
/// # Errors
/// Every reason why no offer can.
pub fn plans(job: &Job, offers: &[Offer], facts: &JobFacts) -> Result<Vec<Plan>, NoFeasibleOffer> {
    plans_on_gpus(job, offers, facts, None)
}

/// The same for offers of machines with such GPUs, where our own trainer computes on them.
///
/// # Errors
/// As [`plans`].
pub fn plans_on_gpus(
    job: &Job,
    offers: &[Offer],
    facts: &JobFacts,
    gpus: Option<&NodeGpus>,
) -> Result<Vec<Plan>, NoFeasibleOffer> {
    let resolved = match &job.work {
        Work::Train(train) => Some((train, trained::trained(job, train, facts))),
        Work::Command(_) => None,
    };
    let resolved = match resolved {
        Some((train, Ok(resolved))) => Some((train, resolved)),
        Some((_, Err(problem))) => return Err(NoFeasibleOffer { reasons: vec![problem] }),
        None => None,
    };
    let mut reasons: Vec<Problem> = Vec::new();
    let mut plans = Vec::new();
    for offer in offers {
        let estimate = match &resolved {
            Some((train, resolved)) => {
                let work = (*train, job.nodes());
                let on_gpus = gpus.and_then(|gpus| gpus::on_gpus(work, resolved, offer, (gpus, facts)));
                on_gpus.unwrap_or_else(|| OnMachine::of(work, resolved, offer, facts))
            }
            None => {
                facts.program.map_or_else(OnMachine::of_program, |profile| profile::on_machine(&profile, job, offer))
            }
        };
        let found = fit::reasons(job, offer, &estimate);
        if found.is_empty() {
            plans.push(plan(job, offer, estimate));
        }
        let new: Vec<Problem> = found.into_iter().filter(|reason| !reasons.contains(reason)).collect();
        reasons.extend(new);
    }
    if !plans.is_empty() {
        // A stable sort: equal ones keep the order of the offers. Unknown times come last.
        plans.sort_by_key(|plan| {
            let (cost, time) = (plan.cost.map(|cost| cost.middle), plan.time.map(|time| time.middle));
            (cost.is_none(), cost, time.is_none(), time, plan.offer.rate)
        });
        return Ok(plans);
    }
    if reasons.is_empty() {
        let none = Problem::at("", "no machine is offered");
        reasons.push(none.hint("leave `resources` out, so that this machine is enough"));
    }
    Err(NoFeasibleOffer { reasons })
}

fn plan(job: &Job, offer: &Offer, estimate: OnMachine) -> Plan {
    let OnMachine { share, memory, time, mut assumptions, .. } = estimate;
    let rate = offer.rate.times(job.machines());
    let cost = cost(rate, time);
    let reserve = match (job.budget, cost, job.deadline) {
        (Some(budget), _, _) => budget.max,
        (None, Some(cost), _) => cost.high,
        (None, None, Some(deadline)) => price(rate, deadline),
        (None, None, None) => {
            assumptions
                .push("nothing is set aside, because neither a budget nor a deadline bounds the cost".to_owned());
            Money::default()
        }
    };
    if let (Some(deadline), Some(time)) = (job.deadline, time)
        && deadline < time.low
    {
        assumptions.push(format!(
            "the deadline of {deadline} is shorter than the fastest run in ten ({}): the run will likely be stopped before its end",
            time.low
        ));
    }
    if let (Some(budget), Some(cost)) = (job.budget, cost)
        && budget.max < cost.low
    {
        assumptions.push(format!(
            "the budget of {} is less than the cheapest run in ten ({}): the run will likely be stopped before its end",
            budget.max, cost.low
        ));
    }
    Plan {
        offer: offer.clone(),
        share,
        memory: memory.map(|memory| Bytes(memory.first)),
        time,
        cost,
        reserve,
        assumptions,
        alternatives: Vec::new(),
        anchors: Vec::new(),
    }
}

/// The cost of the time; zero on a free machine, however long it is.
fn cost(rate: Rate, time: Option<Spread>) -> Option<CostSpread> {
    match time {
        Some(time) => Some(CostSpread {
            low: price(rate, time.low),
            middle: price(rate, time.middle),
            high: price(rate, time.high),
        }),
        None if rate == Rate::default() => {
            Some(CostSpread { low: Money::default(), middle: Money::default(), high: Money::default() })
        }
        None => None,
    }
}

fn price(rate: Rate, time: Duration) -> Money {
    rate.cost(Elapsed(time.micros()))
}
