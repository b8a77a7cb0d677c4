//! The job that simulated runs train, and what its ranks report.

pub(crate) mod schedule;
pub(crate) mod sweep;

use std::sync::OnceLock;

use domain::event::Submitted;
use domain::job::{Budget, Recovery};
use domain::rank::{Checkpointed, Exported, Ready, Report, TaskMetrics};
use domain::{Cause, Event, Job, Money, Node, Offer, Plan, Rate, RunId};

use crate::scenario::{Scenario, SimulatedWork};

/// Name of the simulated provider.
pub(crate) const PROVIDER: &str = "sim";

const TEXT: &str = "train:\n  model: cnn\n  data: {path: digits.csv.gz}\n  epochs: 30\n  batch: 64\n";

/// The least price of a machine. No round figure, so that rounding shows.
pub(crate) fn rate() -> Rate {
    Rate::from_micros_per_hour(1_234_567)
}

fn job() -> &'static Job {
    static JOB: OnceLock<Job> = OnceLock::new();
    JOB.get_or_init(|| match Job::parse(TEXT, "job.yaml") {
        Ok(parsed) => {
            let by_cause = [Cause::Hang, Cause::Unreadable].map(|cause| (cause, 1_000)).into();
            let recovery = Recovery { restarts: 1_000, by_cause, ..parsed.job.recovery.clone() };
            Job { recovery, ..parsed.job }
        }
        Err(problems) => panic!("the job of the simulation cannot be read: {problems:?}"),
    })
}

/// What is rented for the job.
fn plan_of(scenario: &Scenario, now: u64) -> Plan {
    let offer = Offer {
        provider: PROVIDER.into(),
        kind: "m1".into(),
        node: Node { cores: 2, ..Node::default() },
        rate: scenario.market.price("m1", now),
        price_source: "test".into(),
    };
    let (share, memory, time, cost) = (None, None, None, None);
    let of = |kind: String| Offer { rate: scenario.market.price(&kind, now), kind, ..offer.clone() };
    let kinds = 2 + scenario.alternatives;
    let alternatives = (2..kinds).map(|number| of(format!("m{number}"))).collect();
    // One for each of them, in the same order.
    let anchors = (1..if scenario.on_demand > 0 { kinds } else { 1 }).map(|number| of(format!("a{number}"))).collect();
    Plan {
        offer: offer.clone(),
        share,
        memory,
        time,
        cost,
        reserve: Money::default(),
        assumptions: Vec::new(),
        alternatives,
        anchors,
    }
}

/// The job, with as many machines as it needs.
fn job_of(scenario: &Scenario) -> Job {
    let mut job = job().clone();
    if scenario.rank_fault > 0 {
        // As often as the documented table says.
        job.recovery = Recovery::default();
    }
    if scenario.nodes > 1 {
        job.wants.nodes = vec![scenario.nodes];
        job.wants.min_nodes = (scenario.least < scenario.nodes).then_some(scenario.least);
    }
    job.wants.spares = scenario.spares;
    job.wants.on_demand = scenario.on_demand;
    job
}

/// A run is asked for.
pub(crate) fn submitted(run: &RunId, scenario: &Scenario, budget: Option<Money>, now: u64) -> Event {
    let budget = budget.map(|max| Budget { max, ..Budget::default() });
    let (job, plan) = (Job { budget, ..job_of(scenario) }, plan_of(scenario, now));
    Event::Submitted(Box::new(Submitted {
        run: run.clone(),
        job,
        plan,
        job_hash: "hash".into(),
        file: "job.yaml".into(),
        trial: None,
        user: Some("user".into()),
    }))
}

pub(crate) fn ready(step: u64, work: &SimulatedWork) -> Report {
    Report::Ready(Ready {
        step,
        steps: work.steps,
        steps_per_epoch: work.save_every,
        samples: [1, 1, 1],
        classes: Vec::new(),
        parameters: 1,
        passed_over: Vec::new(),
        sample: None,
        data: None,
    })
}

pub(crate) fn checkpointed(step: u64) -> Report {
    Report::Checkpointed(Checkpointed { step, bytes: 1, stall_us: 1, commit_us: 1 })
}

pub(crate) fn model(step: u64) -> Exported {
    Exported {
        model: "model.safetensors".into(),
        model_sha256: String::new(),
        bytes: 1,
        step,
        validation_accuracy: 1.0,
        test_accuracy: 1.0,
        steps: step,
        peak_memory: 0,
        rank_memory: Vec::new(),
        processor_us: 0,
        figures: Box::<TaskMetrics>::default(),
        validation_loss: None,
        validation_figures: Box::<TaskMetrics>::default(),
        confusion: Vec::new(),
    }
}
