//! Trials that are programs: each is judged by what it has reported last.

use domain::event::{RentIntended, RunEnd, Submitted, SweepSubmitted};
use domain::rank::{Metrics, NotFinite, Report};
use domain::run::{AttemptEnd, Outcome};
use domain::sweep::{Known, Metric, Trial};
use domain::wire::{AgentEvent, Entry};
use domain::{Cause, Event, Fence, Finding, Job, Money, Node, Offer, Plan, Rate, Record, RunId, SweepId, Timestamp};

use crate::sweep::{best, rows};
use crate::world::World;
use crate::{Action, ObservedState, Policy, hear, reconcile};

const JOB: &str =
    "run: 'true'\nenvs: {LR: 0}\nsweep: {method: grid, metric: loss, parallel: 3, parameters: {envs.LR: [a, b, c]}}\n";

fn sweep_id() -> SweepId {
    SweepId::new("s")
}

fn offer() -> Offer {
    let (node, rate) = (Node::default(), Rate::default());
    Offer { provider: "sim".into(), kind: "m1".into(), node, rate, price_source: "test".into() }
}

fn plan() -> Plan {
    Plan {
        offer: offer(),
        share: None,
        memory: None,
        time: None,
        cost: None,
        reserve: Money::default(),
        assumptions: vec![],
        alternatives: Vec::new(),
        anchors: Vec::new(),
    }
}

fn append(world: &mut World, event: Event) {
    let record = Record { seq: world.last_seq + 1, at: Timestamp(0), event };
    // As it is written and read again.
    let record: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
    world.apply(&record).unwrap_or_else(|illegal| panic!("{illegal}: {record:?}"));
}

/// A sweep with three trials whose programs run.
fn sweep_with_three_trials() -> World {
    let mut world = World::default();
    let job = Job::parse(JOB, "job.yaml").unwrap_or_else(|problems| panic!("{problems}")).job;
    let (sweep, known, plan, job_hash, file) = (sweep_id(), Known::default(), plan(), String::new(), "job.yaml");
    let submitted = SweepSubmitted {
        sweep: sweep.clone(),
        job: job.clone(),
        plan: plan.clone(),
        known,
        job_hash: job_hash.clone(),
        file: file.into(),
        user: None,
    };
    append(&mut world, Event::SweepSubmitted(Box::new(submitted)));
    for number in 1..=3 {
        let (run, trial) = (sweep.trial(number), Trial { sweep: sweep.clone(), number, values: Vec::new() });
        let (instance, attempt) = (run.instance(1), run.attempt(Fence(1)));
        let (job, plan) = (Job { sweep: None, ..job.clone() }, plan.clone());
        let (job_hash, file, trial) = (job_hash.clone(), file.into(), Some(trial));
        let submitted = Submitted { run: run.clone(), job, plan, job_hash, file, trial, user: None };
        let (offer, reserved, others) = (offer(), Money::default(), Vec::new());
        let rent =
            RentIntended { run: run.clone(), instance: instance.clone(), token: "t".into(), offer, reserved, others };
        for event in [
            Event::Submitted(Box::new(submitted)),
            Event::RentIntended(Box::new(rent)),
            Event::Launched { instance: instance.clone(), handle: None, account: None },
            Event::AgentUp { instance: instance.clone(), started: Timestamp(0), incarnation: 0 },
            Event::AttemptIntended { run, attempt: attempt.clone(), fence: Fence(1), instance, others: Vec::new() },
            Event::AttemptReady { attempt, ready: None },
        ] {
            append(&mut world, event);
        }
    }
    world
}

/// The program of a trial ends with code 0 and this result; how its run ends.
fn end(world: &mut World, number: u32, result: Metrics) -> RunEnd {
    let run: RunId = sweep_id().trial(number);
    let result = AgentEvent::Reported { rank: 0, report: Report::Result(result) };
    for (seq, event) in (1..).zip([result.clone(), result, AgentEvent::Ended { end: AttemptEnd::Succeeded }]) {
        let entry = Entry { seq, attempt: run.attempt(Fence(1)), event };
        if let Some(event) = hear(world, &run.instance(1), &entry) {
            append(world, event);
        }
    }
    let mut facts = ObservedState { now: Timestamp(0), ..ObservedState::default() };
    facts.attended.insert(run.clone());
    let ends = reconcile(world, &facts, &Policy::default()).into_iter().find_map(|action| match action {
        Action::End { run: ended, end } if ended == run => Some(end),
        _ => None,
    });
    let end = ends.expect("its program has ended");
    append(world, Event::Ended { run, end: end.clone() });
    end
}

#[test]
fn a_trial_that_ends_with_a_loss_that_is_not_finite_has_failed_and_is_last() {
    let mut world = sweep_with_three_trials();
    let finite = |loss: f64| Metrics { step: 9, values: [("loss".to_owned(), loss)].into(), ..Metrics::default() };
    // Its validation was better than any other while its loss was finite.
    let values = [("val_loss".to_owned(), 0.01)].into();
    let lost = Metrics { step: 9, values, loss: Some(NotFinite::Nan), ..Metrics::default() };
    let succeeded = RunEnd::Done { outcome: Outcome::Succeeded };
    assert_eq!(end(&mut world, 1, finite(0.5)), succeeded);
    let failed = end(&mut world, 2, lost);
    let RunEnd::Done { outcome: Outcome::Failed { finding: Finding { cause, .. } } } = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(cause, Cause::NotFinite);
    assert_eq!(end(&mut world, 3, finite(0.25)), succeeded);
    let sweep = &world.sweeps[&sweep_id()];
    let table = rows(&world, sweep, &Default::default());
    let shown: Vec<_> = table.iter().map(|row| (row.number, row.word, row.shown(Metric::Loss))).collect();
    let row = |number: u32, word: &'static str, shown: &str| (number, word, shown.to_owned());
    assert_eq!(shown, [row(3, "succeeded", "0.2500"), row(1, "succeeded", "0.5000"), row(2, "failed", "not finite")]);
    assert_eq!(best(&world, sweep).map(|best| (best.number, best.value)), Some((3, 0.25)));
}
