//! Costs counted under users, projects and days: every way of counting has the sum of the bills.

use std::time::{Duration, Instant};

use domain::event::{RentIntended, RunEnd, Submitted};
use domain::job::Budget;
use domain::run::{BillAdjustment, BillLine, BilledKind, Outcome, StopBy, Usage};
use domain::{Elapsed, Event, InstanceId, Job, Money, Node, Offer, Plan, Rate, RunId, Timestamp};
use plan::money::ledger::{CostGroup, totals, within};
use server::state::{RunFilter, StateReader};
use server::{Home, State};

const DAY: i64 = 86_400_000_000;

fn job(project: Option<&str>) -> Job {
    serde_json::from_value(serde_json::json!({
        "name": "a", "project": project, "envs": {}, "budget": null, "deadline": null,
        "work": {"command": {"workdir": null, "setup": null, "run": "true"}},
        "needs": {"cores": null, "memory": null, "disk": null},
        "recovery": {"restarts": 20, "restarts_on_errors": 0, "exit_codes": []},
    }))
    .unwrap()
}

fn offer(number: u64) -> Offer {
    let provider = if number.is_multiple_of(5) { "gcp" } else { "aws" }.to_owned();
    let rate = Rate::from_micros_per_hour(1_234_567 + 89 * number as i64);
    Offer { provider, kind: "m".into(), node: Node::default(), rate, price_source: String::new() }
}

/// All that happens to a run on two machines, one of which lost a race.
fn life(number: u64) -> (Vec<Event>, Money) {
    let run = RunId::new(format!("run-{number:06}"));
    let project = number.is_multiple_of(3).then_some("vision");
    let user = (!number.is_multiple_of(4)).then(|| format!("user{}", number % 4));
    let offer = offer(number);
    let plan = Plan {
        offer: offer.clone(),
        share: None,
        memory: None,
        time: None,
        cost: None,
        reserve: Money::default(),
        assumptions: Vec::new(),
        alternatives: Vec::new(),
        anchors: Vec::new(),
    };
    let (job, job_hash, file) = (job(project), String::new(), "a.yaml".to_owned());
    let submitted = Submitted { run: run.clone(), job, plan, job_hash, file, trial: None, user };
    let mut events = vec![Event::Submitted(Box::new(submitted))];
    let mut lines = Vec::new();
    for machine in 1..=2 {
        let instance = run.instance(machine);
        let (token, offer) = (instance.to_string(), offer.clone());
        let (race, rate) = (machine == 2, offer.rate);
        // Some are rented over midnight.
        let started = Timestamp(20_000 * DAY + (number as i64 * 3_700_000_000) % (30 * DAY));
        let usage = Usage { started, elapsed: Elapsed(60_000_001 * (1 + number % 900)) };
        let intent = RentIntended {
            run: run.clone(),
            instance: instance.clone(),
            token,
            offer,
            reserved: Money::default(),
            others: Vec::new(),
        };
        events.push(Event::RentIntended(Box::new(intent)));
        events.push(Event::Launched { instance: instance.clone(), handle: None, account: None });
        events.push(Event::ReleaseIntended { instance: instance.clone(), lost_race: race });
        events.push(Event::Released { instance: instance.clone(), usage });
        let amount = rate.cost(usage.elapsed);
        lines.push(BillLine { instance, kind: "m".into(), usage, rate, amount, race });
    }
    let total = lines.iter().map(|line| line.amount).sum();
    events.push(Event::Ended { run: run.clone(), end: RunEnd::Done { outcome: Outcome::Succeeded } });
    events.push(Event::Billed { run, bill: domain::run::Bill { lines, total, adjustment: domain::Money::default() } });
    (events, total)
}

/// A home with so many runs, and what their bills come to.
fn home(folder: &std::path::Path, runs: u64) -> (Home, Money) {
    let home = Home::open(folder).unwrap();
    let mut state = State::open_lean(&home).unwrap();
    let (mut batch, mut billed) = (Vec::new(), Money::default());
    for number in 1..=runs {
        let (events, total) = life(number);
        batch.extend(events);
        billed += total;
        if batch.len() > 5_000 || number == runs {
            state.append(std::mem::take(&mut batch)).unwrap();
        }
    }
    (home, billed)
}

#[test]
fn every_way_of_counting_has_the_sum_of_the_bills() {
    let folder = tempfile::tempdir().unwrap();
    let (home, billed) = home(folder.path(), 400);
    let lines = StateReader::open(&home).unwrap().costs().unwrap();
    let sum = |lines: &[plan::money::ledger::LedgerLine], group| {
        totals(lines, group).iter().map(|total| total.amount).sum::<Money>()
    };
    let groups = [CostGroup::Run, CostGroup::User, CostGroup::Project, CostGroup::Day, CostGroup::Provider];
    for group in groups {
        assert_eq!(sum(&lines, group), billed, "{group:?}");
    }
    assert_eq!(totals(&lines, CostGroup::Run).len(), 400);
    assert_eq!(totals(&lines, CostGroup::User).len(), 4, "three users, and nobody");
    let race: Money = lines.iter().filter(|line| line.race).map(|line| line.amount).sum();
    assert_eq!(totals(&lines, CostGroup::Provider).iter().map(|total| total.race).sum::<Money>(), race);
    // Two halves of the month are the month.
    let halves = [(None, Some(20_014)), (Some(20_015), None)].map(|days| sum(&within(&lines, days), CostGroup::Day));
    assert_eq!(halves[0] + halves[1], billed);
}

#[test]
fn a_run_that_goes_on_has_no_final_cost() {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::open(folder.path()).unwrap();
    let mut state = State::open_lean(&home).unwrap();
    let (mut events, _) = life(1);
    let billed = events.pop().unwrap();
    events.pop();
    let run = RunId::new("run-000001");
    events.push(Event::StopRequested { run: run.clone(), by: StopBy::User });
    events.push(Event::Ended { run: run.clone(), end: RunEnd::Stopped { by: StopBy::User } });
    events.push(billed);
    state.append(events).unwrap();
    let reader = StateReader::open(&home).unwrap();
    assert_eq!(reader.costs().unwrap().len(), 2);
    let (budget, deadline, epochs) = (None, None, None);
    let resume = Event::ResumeRequested { run, budget, deadline, epochs, accept_data_change: false, set: Vec::new() };
    state.append(vec![resume]).unwrap();
    assert_eq!(reader.costs().unwrap(), []);
}

#[test]
fn a_run_is_adjusted_to_its_provider_s_bill() {
    let folder = tempfile::tempdir().unwrap();
    let (home, billed) = home(folder.path(), 2);
    let run = RunId::new("run-000002");
    let adjust = |instance: &str, before: i64, amounts: &[(BilledKind, i64)]| {
        let adjustment = |(kind, micros): &(BilledKind, i64)| BillAdjustment {
            instance: InstanceId::new(instance),
            kind: *kind,
            at: Timestamp(20_000 * DAY),
            amount: Money::from_micros(*micros),
        };
        let adjustments = amounts.iter().map(adjustment).collect();
        Event::BillAdjusted {
            run: run.clone(),
            source: "a.csv".into(),
            before: Money::from_micros(before),
            adjustments,
        }
    };
    let first = adjust("run-000002-i1", 0, &[(BilledKind::Machine, -5), (BilledKind::Traffic, 700)]);
    let mut state = State::open_lean(&home).unwrap();
    state.append(vec![first.clone()]).unwrap();
    // The same again was computed from other costs than there are now.
    assert!(state.append(vec![first]).is_err());
    assert!(state.append(vec![adjust("run-000001-i1", 695, &[(BilledKind::Machine, 1)])]).is_err());
    state.append(vec![adjust("run-000002-i2", 695, &[(BilledKind::Disk, 5)])]).unwrap();
    let check = || {
        let reader = StateReader::open(&home).unwrap();
        let lines = reader.costs().unwrap();
        let found = totals(&lines, CostGroup::Provider);
        let sum: Money = found.iter().map(|total| total.amount).sum();
        assert_eq!(sum.micros(), billed.micros() + 700);
        assert_eq!(found.iter().map(|total| total.adjusted.micros()).sum::<i64>(), 700);
        let kinds: Vec<BilledKind> = lines.iter().filter_map(|line| line.adjusts).collect();
        assert_eq!(kinds, [BilledKind::Machine, BilledKind::Traffic, BilledKind::Disk]);
        let (listed, _) = reader.list(&RunFilter { limit: 1, ..RunFilter::default() }).unwrap();
        let bill = lines.iter().filter(|line| line.run == run).map(|line| line.amount).sum::<Money>();
        assert_eq!(listed[0].billed_micro_usd, Some(bill.micros()));
    };
    check();
    // Rows that are made again from the log are the same.
    rusqlite::Connection::open(home.state()).unwrap().execute("DELETE FROM row_head", []).unwrap();
    State::open(&home).unwrap();
    check();
    let state = State::open(&home).unwrap();
    let world = state.world();
    let spent = plan::spent(world, &world.runs[&run], &std::collections::BTreeMap::new());
    let total = world.runs[&run].bill.as_ref().unwrap().total;
    assert_eq!(spent, total + Money::from_micros(700));
    // Resumed with a budget of what its machines cost, it has spent 700 more.
    let mut resumed = world.runs[&run].clone();
    resumed.job.budget = Some(Budget { max: total, ..Budget::default() });
    assert_eq!(plan::bill(world, &resumed).unwrap().adjustment.micros(), 700);
}

/// Not part of the tests, which share the machine with others: how long a month with so many runs takes.
#[test]
#[ignore = "a measurement: cargo test --release -p gradus-server --test costs -- --ignored --nocapture"]
fn a_month_of_ten_thousand_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (home, billed) = home(folder.path(), 10_000);
    let reader = StateReader::open(&home).unwrap();
    for group in [CostGroup::Day, CostGroup::User, CostGroup::Run] {
        let count = || {
            let begun = Instant::now();
            let lines = reader.costs().unwrap();
            let found = totals(&lines, group);
            let took = begun.elapsed();
            assert_eq!(found.iter().map(|total| total.amount).sum::<Money>(), billed);
            (took, lines.len(), found.len())
        };
        let (took, lines, names) = (0..3).map(|_| count()).min().unwrap();
        println!("{group:?}: {lines} lines, {names} names, {took:?}");
        assert!(took < Duration::from_millis(100), "{group:?}: {took:?}");
    }
}
