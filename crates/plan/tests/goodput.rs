//! Where the time of a run went: times, events and what steps took are arguments.

use std::collections::BTreeMap;

use domain::event::{RentIntended, RunEnd, Submitted};
use domain::random::Draws;
use domain::rank::{Fetching, Ready, Step};
use domain::run::{AttemptEnd, Outcome, StopBy};
use domain::{
    AttemptId, Cause, Elapsed, Event, Fence, Finding, InstanceId, Job, Money, Node, Offer, Plan, Record, RunId,
    Timestamp,
};
use plan::{Goodput, StepTotals, goodput, kept_steps};

const SECOND: u64 = 1_000_000;

fn offer() -> Offer {
    let rate = "1/h".parse().unwrap();
    Offer { provider: "sim".into(), kind: "m1".into(), node: Node::default(), rate, price_source: "test".into() }
}

fn submitted() -> Event {
    let (share, memory, time, cost, assumptions) = (None, None, None, None, vec![]);
    let plan = Plan {
        offer: offer(),
        share,
        memory,
        time,
        cost,
        reserve: Money::default(),
        assumptions,
        alternatives: Vec::new(),
        anchors: Vec::new(),
    };
    let job = Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job;
    let (job_hash, file) = (String::new(), "job.yaml".into());
    Event::Submitted(Box::new(Submitted { run: run(), job, plan, job_hash, file, trial: None, user: None }))
}

fn run() -> RunId {
    RunId::new("a")
}

fn rent(number: u64) -> Event {
    let (instance, token, offer, reserved) = (run().instance(number), "t".into(), offer(), Money::default());
    Event::RentIntended(Box::new(RentIntended { run: run(), instance, token, offer, reserved, others: Vec::new() }))
}

fn launched(number: u64) -> Event {
    Event::Launched { instance: run().instance(number), handle: None, account: None }
}

fn attempt(number: u64) -> AttemptId {
    AttemptId::new(format!("a-a{number}"))
}

fn intended(number: u64, instance: InstanceId) -> Event {
    let (attempt, fence) = (attempt(number), Fence(number));
    Event::AttemptIntended { run: run(), attempt, fence, instance, others: vec![] }
}

fn ready(number: u64, step: u64) -> Event {
    let (steps, steps_per_epoch, samples, classes) = (100, 10, [1, 1, 1], vec![]);
    let ready = Ready {
        step,
        steps,
        steps_per_epoch,
        samples,
        classes,
        parameters: 1,
        passed_over: vec![],
        sample: None,
        data: None,
    };
    Event::AttemptReady { attempt: attempt(number), ready: Some(ready) }
}

fn ended(number: u64, end: AttemptEnd) -> Event {
    Event::AttemptEnded { attempt: attempt(number), end }
}

fn failed() -> AttemptEnd {
    AttemptEnd::Failed { finding: Finding::new(Cause::Killed, "killed"), exit_code: None }
}

fn over(end: RunEnd) -> Event {
    Event::Ended { run: run(), end }
}

/// Events with the second at which each happens.
fn history(events: Vec<(u64, Event)>) -> Vec<Record> {
    let records = events.into_iter().zip(1..);
    records.map(|((at, event), seq)| Record { seq, at: Timestamp((at * SECOND) as i64), event }).collect()
}

fn seconds(step: u64, data_wait: u64, checkpoint: u64) -> StepTotals {
    let [step_us, data_wait_us, checkpoint_us] = [step, data_wait, checkpoint].map(|seconds| seconds * SECOND);
    StepTotals { step_us, data_wait_us, checkpoint_us, began: None, ended: None }
}

fn parts(goodput: Goodput) -> BTreeMap<&'static str, u64> {
    goodput.parts().into_iter().filter(|(_, part)| part.0 > 0).map(|(name, part)| (name, part.0 / SECOND)).collect()
}

/// Waits 10 s for a machine, starts for 5 s, makes steps for 40 s, of which the last 8 s are lost, and 2 s of which were
/// not noticed yet; recovers for 7 s, of which it waits 3 s for another machine; trains 30 s to the end.
fn interrupted() -> Vec<(u64, Event)> {
    vec![
        (0, submitted()),
        (4, rent(1)),
        (10, launched(1)),
        (12, intended(1, run().instance(1))),
        (15, ready(1, 0)),
        (57, ended(1, failed())),
        (58, rent(2)),
        (61, launched(2)),
        (61, intended(2, run().instance(2))),
        (64, ready(2, 20)),
        (94, ended(2, AttemptEnd::Succeeded)),
        (95, over(RunEnd::Done { outcome: Outcome::Succeeded })),
    ]
}

#[test]
fn each_second_has_one_reason() {
    let records = history(interrupted());
    assert_eq!(kept_steps(&records), BTreeMap::from([(attempt(1), 20)]));
    let steps = BTreeMap::from([(attempt(1), seconds(40, 3, 2)), (attempt(2), seconds(28, 1, 4))]);
    let lost = BTreeMap::from([(attempt(1), seconds(8, 1, 0))]);
    let found = goodput(&records, &steps, &lost, Timestamp(0));
    let expected = [
        ("waiting for a machine", 10 + 3),
        ("start-up", 5),
        ("lost work", 8),
        ("waiting for data", 2 + 1),
        ("checkpoints", 2 + 4),
        ("recovery", 2 + 1 + 3),
        ("productive", (32 - 2 - 2) + (28 - 1 - 4) + 2 + 1),
    ];
    assert_eq!(parts(found), BTreeMap::from(expected));
    assert_eq!(found.wall(), Elapsed(95 * SECOND));
    let words = found.to_string();
    assert!(words.starts_with("56.8 % productive, 13.7 % waiting for a machine, 8.4 % lost work, "), "{words}");
}

#[test]
fn what_is_stopped_takes_no_time_and_a_program_is_productive_as_far_as_is_known() {
    let program = |number| Event::AttemptReady { attempt: attempt(number), ready: None };
    let records = history(vec![
        (0, submitted()),
        (0, rent(1)),
        (0, launched(1)),
        (0, intended(1, run().instance(1))),
        (2, program(1)),
        (12, ended(1, AttemptEnd::Stopped { step: None })),
        (13, over(RunEnd::Stopped { by: StopBy::User })),
        (
            1_000,
            Event::ResumeRequested {
                run: run(),
                budget: None,
                deadline: None,
                epochs: None,
                accept_data_change: false,
                set: Vec::new(),
            },
        ),
        (1_001, rent(2)),
        (1_004, launched(2)),
        (1_004, intended(2, run().instance(2))),
        (1_005, program(2)),
    ]);
    let found = goodput(&records, &BTreeMap::new(), &BTreeMap::new(), Timestamp(1_010 * SECOND as i64));
    let expected = [("start-up", 2 + 1), ("productive", 10 + 1 + 5), ("waiting for a machine", 4)];
    assert_eq!(parts(found), BTreeMap::from(expected));
}

/// Of 20 s after its start, the files of a program wait for 12 s for space on the loop's disk.
#[test]
fn what_waits_to_be_sent_at_the_end_is_not_productive() {
    let check = |end: Option<AttemptEnd>| {
        let mut events = vec![
            (0, submitted()),
            (0, rent(1)),
            (0, launched(1)),
            (0, intended(1, run().instance(1))),
            (2, Event::AttemptReady { attempt: attempt(1), ready: None }),
        ];
        events.extend(end.map(|end| (22, ended(1, end))));
        let sent = StepTotals { ended: Some(Timestamp(10 * SECOND as i64)), ..StepTotals::default() };
        let steps = BTreeMap::from([(attempt(1), sent)]);
        let found = goodput(&history(events), &steps, &BTreeMap::new(), Timestamp(22 * SECOND as i64));
        assert_eq!(parts(found), BTreeMap::from([("start-up", 2), ("productive", 8), ("checkpoints", 12)]));
    };
    check(None);
    check(Some(AttemptEnd::Succeeded));
    check(Some(failed()));
}

/// Of 8 s, a program that was stopped imports for 2 s, makes steps for 5 s with 1 s of saving, and saves for 1 s at its end.
#[test]
fn what_a_program_does_before_its_first_step_is_start_up() {
    let records = history(vec![
        (0, submitted()),
        (0, rent(1)),
        (0, launched(1)),
        (0, intended(1, run().instance(1))),
        (1, Event::AttemptReady { attempt: attempt(1), ready: None }),
        (9, ended(1, AttemptEnd::Stopped { step: Some(50) })),
        (9, over(RunEnd::Stopped { by: StopBy::User })),
    ]);
    let mut totals = seconds(5, 0, 1);
    let parts_of =
        |totals| parts(goodput(&records, &BTreeMap::from([(attempt(1), totals)]), &BTreeMap::new(), Timestamp(0)));
    // Of steps that an earlier version kept it is not known when they began.
    assert_eq!(parts_of(totals), BTreeMap::from([("start-up", 1), ("productive", 4), ("checkpoints", 1 + 3)]));
    let step = Step {
        step: 1,
        epoch: 0,
        loss: 1.0,
        lr: 0.1,
        samples: 1,
        step_us: SECOND,
        data_wait_us: 0,
        checkpoint_us: 0,
        data: Fetching::default(),
    };
    totals.begin(&step, Timestamp(4 * SECOND as i64));
    totals.begin(&step, Timestamp(5 * SECOND as i64));
    assert_eq!(totals.began, Some(Timestamp(3 * SECOND as i64)));
    assert_eq!(parts_of(totals), BTreeMap::from([("start-up", 1 + 2), ("productive", 4), ("checkpoints", 1 + 1)]));
}

/// An attempt that resumed from an older checkpoint than the one before it takes that one's steps back too.
#[test]
fn steps_are_lost_to_the_oldest_checkpoint_that_a_later_attempt_resumed_from() {
    let events = [ready(1, 0), ready(2, 40), ready(3, 30), ready(4, 50)];
    let records = history(events.into_iter().map(|event| (0, event)).collect());
    let kept = BTreeMap::from([(attempt(1), 30), (attempt(2), 30), (attempt(3), 50)]);
    assert_eq!(kept_steps(&records), kept);
}

/// Whatever is measured, and however clocks are set, parts sum to the time between events.
#[test]
fn parts_sum_to_the_whole() {
    for seed in 0..2_000 {
        let mut draws = Draws::new(seed);
        let mut at = 0;
        let events = interrupted().into_iter().map(|(_, event)| {
            at += draws.below(50);
            (at, event)
        });
        let mut records = history(events.collect());
        records.truncate(1 + draws.below(records.len() as u64) as usize);
        let mut sums = |number| (attempt(number), seconds(draws.below(60), draws.below(60), draws.below(60)));
        let (steps, lost) = (BTreeMap::from([sums(1), sums(2)]), BTreeMap::from([sums(1)]));
        let (first, last) = (records[0].at, records[records.len() - 1].at);
        let found = goodput(&records, &steps, &lost, last);
        assert_eq!(found.wall(), last.since(first), "seed {seed}: {found:?}");
    }
}
