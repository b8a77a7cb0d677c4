//! A history of settled runs, appended to the event log.

use std::collections::BTreeMap;

use domain::event::{RentIntended, RunEnd, Submitted};
use domain::finding::{Cause, Finding};
use domain::hang::HangLimits;
use domain::job::{Needs, Recovery};
use domain::run::{AttemptEnd, Bill, BillLine, Outcome, Usage};
use domain::{Elapsed, Event, Fence, Job, Money, Node, Offer, Plan, Rate, RunId, Timestamp, Work};
use server::{Home, State};

use crate::Failure;

/// Events in one transaction.
const BATCH: usize = 5_000;

/// Writes a number of settled runs with about the given number of events each; returns the number of events.
pub fn write(home: &Home, runs: u64, events: u64) -> Result<u64, Failure> {
    let mut state = State::open_lean(home)?;
    let (mut batch, mut written) = (Vec::new(), 0);
    for number in 1..=runs {
        batch.extend(life(&RunId::new(format!("history-{number:07}")), events));
        if batch.len() >= BATCH || number == runs {
            written += batch.len() as u64;
            state.append(std::mem::take(&mut batch))?;
        }
    }
    Ok(written)
}

/// All that happens to a run that fails until it succeeds: eight events, and three for each attempt.
pub fn life(run: &RunId, events: u64) -> Vec<Event> {
    let instance = run.instance(1);
    let usage = Usage { started: Timestamp(1_700_000_000_000_000), elapsed: Elapsed(90_000_000) };
    let offer = offer();
    let amount = offer.rate.cost(usage.elapsed);
    let line =
        BillLine { instance: instance.clone(), kind: offer.kind.clone(), usage, rate: offer.rate, amount, race: false };
    let intent = RentIntended {
        run: run.clone(),
        instance: instance.clone(),
        token: "0123456789abcdef".into(),
        offer,
        reserved: Money::default(),
        others: Vec::new(),
    };
    let mut life = vec![
        submitted(run),
        Event::RentIntended(Box::new(intent)),
        Event::Launched { instance: instance.clone(), handle: None, account: None },
        Event::AgentUp { instance: instance.clone(), started: usage.started, incarnation: 0 },
    ];
    let attempts = (events.saturating_sub(8) / 3).max(1);
    for fence in 1..=attempts {
        let attempt = run.attempt(Fence(fence));
        let end = match fence == attempts {
            true => AttemptEnd::Succeeded,
            false => {
                AttemptEnd::Failed { finding: Finding::new(Cause::InstanceLost, "the rank ended"), exit_code: None }
            }
        };
        let (run, instance, fence) = (run.clone(), instance.clone(), Fence(fence));
        life.push(Event::AttemptIntended { run, attempt: attempt.clone(), fence, instance, others: Vec::new() });
        life.push(Event::AttemptReady { attempt: attempt.clone(), ready: None });
        life.push(Event::AttemptEnded { attempt, end });
    }
    life.push(Event::Ended { run: run.clone(), end: RunEnd::Done { outcome: Outcome::Succeeded } });
    life.push(Event::ReleaseIntended { instance: instance.clone(), lost_race: false });
    life.push(Event::Released { instance, usage });
    life.push(Event::Billed {
        run: run.clone(),
        bill: Bill { lines: vec![line], total: amount, adjustment: Money::default() },
    });
    life
}

/// The submission of a run of a small program.
pub fn submitted(run: &RunId) -> Event {
    let (job, plan) = job();
    let job_hash = server::submit::job_hash(&job, &plan);
    let file = "/home/user/project/job.yaml".to_owned();
    Event::Submitted(Box::new(Submitted { run: run.clone(), job, plan, job_hash, file, trial: None, user: None }))
}

/// A small job and its plan.
pub fn job() -> (Job, Plan) {
    let work = domain::job::Command { run: "python train.py --epochs 90".into(), ..Default::default() };
    let job = Job {
        name: "load".into(),
        project: None,
        work: Work::Command(work),
        envs: BTreeMap::new(),
        secrets: BTreeMap::new(),
        needs: Needs::default(),
        budget: None,
        deadline: None,
        idle_timeout: None,
        stop_grace: None,
        hang_after: HangLimits::default(),
        checkpoint_store: None,
        recovery: Recovery::default(),
        wants: Default::default(),
        workload: None,
        data: Default::default(),
        sweep: None,
        schedule: None,
    };
    let (share, memory, time, cost) = (None, None, None, None);
    let plan = Plan {
        offer: offer(),
        share,
        memory,
        time,
        cost,
        reserve: Money::default(),
        assumptions: vec![],
        alternatives: Vec::new(),
        anchors: Vec::new(),
    };
    (job, plan)
}

fn offer() -> Offer {
    let rate = Rate::from_micros_per_hour(3_600_000);
    Offer { provider: "yes".into(), kind: "m1".into(), node: Node::default(), rate, price_source: "bench".into() }
}
