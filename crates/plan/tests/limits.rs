//! When a budget or deadline has been reached: time and rent are arguments.

use std::collections::BTreeMap;

use domain::event::{RentIntended, Submitted};
use domain::job::Budget;
use domain::run::{StopBy, Usage};
use domain::wire::AgentCommand;
use domain::{
    Duration, Elapsed, Event, Fence, InstanceId, Job, Money, Node, Offer, Plan, Rate, Record, RunId, Timestamp,
};
use plan::{Action, ObservedState, Policy, World, heartbeat, lease, price_cap, reached, reconcile};

const SECOND: u64 = 1_000_000;

/// A run on one machine at 36 dollars an hour, a cent a second, with a budget or a deadline.
fn world(budget: Option<&str>, deadline: Option<&str>) -> (World, RunId, InstanceId) {
    let (run, instance) = (RunId::new("a"), InstanceId::new("a-i1"));
    let rate: Rate = "36/h".parse().unwrap();
    let offer =
        Offer { provider: "sim".into(), kind: "m1".into(), node: Node::default(), rate, price_source: "test".into() };
    let job = Job {
        budget: budget.map(|max| Budget { max: max.parse().unwrap(), ..Budget::default() }),
        deadline: deadline.map(|deadline| deadline.parse().unwrap()),
        ..Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job
    };
    let reserved = Money::default();
    let (share, memory, time, cost, assumptions) = (None, None, None, None, vec![]);
    let plan = Plan {
        offer: offer.clone(),
        share,
        memory,
        time,
        cost,
        reserve: reserved,
        assumptions,
        alternatives: Vec::new(),
        anchors: Vec::new(),
    };
    let (job_hash, file, token) = (String::new(), "job.yaml".into(), "t".into());
    let events = [
        Event::Submitted(Box::new(Submitted { run: run.clone(), job, plan, job_hash, file, trial: None, user: None })),
        Event::RentIntended(Box::new(RentIntended {
            run: run.clone(),
            instance: instance.clone(),
            token,
            offer,
            reserved,
            others: Vec::new(),
        })),
        Event::Launched { instance: instance.clone(), handle: None, account: None },
        Event::AgentUp { instance: instance.clone(), started: Timestamp(0), incarnation: 0 },
    ];
    let records = events.into_iter().zip(1..).map(|(event, seq)| Record { seq, at: Timestamp(0), event });
    let records: Vec<Record> = records.collect();
    (World::replay(&records).unwrap(), run, instance)
}

/// What is seen of it after this rent, in microseconds.
fn seen(instance: InstanceId, rent: u64) -> ObservedState {
    let mut facts = ObservedState { now: Timestamp(rent as i64), ..ObservedState::default() };
    facts.machine_mut(&instance).rent = Some(Elapsed(rent));
    facts
}

/// The limit that is reached after this rent, in microseconds.
fn after(budget: Option<&str>, deadline: Option<&str>, rent: u64) -> Option<StopBy> {
    let (world, run, instance) = world(budget, deadline);
    reached(&world, &seen(instance, rent), &Policy::default(), &world.runs[&run])
}

#[test]
fn a_budget_is_reached_while_it_still_pays_for_saving() {
    // A budget of 7 s keeps back the least there is, and the time until the agent calls; one of 7,000 s a whole minute.
    let policy = Policy::default();
    for (budget, bought, saving) in [("$0.07", 7 * SECOND, 5 * SECOND), ("$70", 7_000 * SECOND, policy.saving.0)] {
        let check = |rent, by| assert_eq!(after(Some(budget), None, rent), by, "{budget} after {rent} µs");
        let stops = bought - saving - 2 * policy.heartbeat.0;
        check(0, None);
        check(stops - 100_000, None);
        check(stops, Some(StopBy::Budget));
        check(100 * bought, Some(StopBy::Budget));
    }
}

#[test]
fn a_deadline_is_reached_to_the_microsecond_and_no_limit_never() {
    assert_eq!(after(None, Some("2s"), 2 * SECOND - 1), None);
    assert_eq!(after(None, Some("2s"), 2 * SECOND), Some(StopBy::Deadline));
    assert_eq!(after(None, None, 1_000_000 * SECOND), None);
}

#[test]
fn an_agent_goes_on_alone_no_longer_than_budget_and_deadline_allow() {
    let policy = Policy { lease: Elapsed(1_800 * SECOND), ..Policy::default() };
    let lease = |budget, deadline, rent| {
        let (world, run, instance) = world(budget, deadline);
        plan::lease(&world, &seen(instance, rent), &policy, &world.runs[&run]).0
    };
    assert_eq!(lease(None, None, 5 * SECOND), policy.lease.0);
    // 7,000 s, of which a minute and two calls are kept back.
    let stops = 7_000 * SECOND - policy.saving.0 - 2 * policy.heartbeat.0;
    assert_eq!(lease(Some("$70"), None, 5 * SECOND), policy.lease.0);
    for left in [600 * SECOND, SECOND, policy.heartbeat.0] {
        assert_eq!(lease(Some("$70"), None, stops - left), left);
    }
    // Until its next call, whatever is left: the loop has not said stop yet, or the agent saves.
    for beyond in [0, SECOND, 7_000 * SECOND] {
        assert_eq!(lease(Some("$70"), None, stops + beyond), policy.heartbeat.0);
    }
    assert_eq!(lease(None, Some("10m"), 300 * SECOND), 300 * SECOND);
    assert_eq!(lease(Some("$70"), Some("10m"), 599 * SECOND), SECOND);
}

#[test]
fn a_machine_that_has_not_called_yet_counts_in_the_lease_by_the_wall_clock() {
    let (world, run, instance) = world(Some("$10.00"), None);
    let policy = Policy { lease: Elapsed(u64::MAX), ..Policy::default() };
    let heard = seen(instance, 400 * SECOND);
    let unheard = ObservedState { machines: BTreeMap::new(), ..heard.clone() };
    let granted = |facts: &ObservedState| lease(&world, facts, &policy, &world.runs[&run]);
    assert!(granted(&heard).0 < 600 * SECOND, "10 dollars pay for 1,000 s");
    assert_eq!(granted(&unheard), granted(&heard));
}

/// The same with another machine, which was given back before anybody knew whether it was rented.
fn with_doubt(budget: &str) -> (World, RunId, InstanceId) {
    let (mut world, run, instance) = world(Some(budget), None);
    let (doubted, token, reserved) = (run.instance(2), "u".into(), Money::default());
    let offer = world.instances[&instance].offer.clone();
    let (of, others) = (run.clone(), Vec::new());
    let intent = RentIntended { run: of, instance: doubted.clone(), token, offer, reserved, others };
    let intent = Event::RentIntended(Box::new(intent));
    let given_back = Event::ReleaseIntended { instance: doubted, lost_race: true };
    for (event, seq) in [intent, given_back].into_iter().zip(5..) {
        world.apply(&Record { seq, at: Timestamp(0), event }).unwrap();
    }
    world.find_open();
    (world, run, instance)
}

/// It may cost as much as if it was rented when it was asked for: no attempt starts that it leaves no money for.
#[test]
fn nothing_starts_while_a_machine_in_doubt_may_have_spent_the_budget() {
    let starts = |world: &World, run: &RunId, instance: &InstanceId| {
        let facts = ObservedState { attended: [run.clone()].into(), ..seen(instance.clone(), 400 * SECOND) };
        let actions = reconcile(world, &facts, &Policy::default());
        assert!(!actions.iter().any(|action| matches!(action, Action::Stop { .. })), "{actions:?}");
        actions.iter().any(|action| matches!(action, Action::Start { .. }))
    };
    // 400 s of two machines cost 8 dollars, and the minute and two calls that are kept back to stop both another 1.21.
    for (budget, expected) in [("$9.20", false), ("$9.22", true)] {
        let (mut world, run, instance) = with_doubt(budget);
        assert_eq!(starts(&world, &run, &instance), expected, "{budget}");
        let usage = Usage { started: Timestamp(0), elapsed: Elapsed(0) };
        let event = Event::Released { instance: run.instance(2), usage };
        world.apply(&Record { seq: 7, at: Timestamp(0), event }).unwrap();
        assert!(starts(&world, &run, &instance), "its provider proves that it was never there");
    }
}

#[test]
fn a_run_that_trains_is_stopped_before_a_machine_in_doubt_may_have_spent_the_rest() {
    let (mut world, run, instance) = with_doubt("$20");
    let policy = Policy { lease: Elapsed(u64::MAX), ..Policy::default() };
    let at =
        |world: &World, seconds| reached(world, &seen(instance.clone(), seconds * SECOND), &policy, &world.runs[&run]);
    assert_eq!(at(&world, 900), None, "it waits");
    let (attempt, fence, others) = (run.attempt(Fence(1)), Fence(1), Vec::new());
    let event = Event::AttemptIntended { run: run.clone(), attempt, fence, instance: instance.clone(), others };
    world.apply(&Record { seq: 7, at: Timestamp(0), event }).unwrap();
    // Both cost 2 cents a second, and a minute and two calls are kept back.
    assert_eq!([900, 939, 940].map(|seconds| at(&world, seconds)), [None, None, Some(StopBy::Budget)]);
    let alone = lease(&world, &seen(instance.clone(), 900 * SECOND), &policy, &world.runs[&run]);
    assert_eq!(alone.0, 40 * SECOND - 2 * policy.heartbeat.0);
}

/// The moment at which a run is stopped leaves money for what its agent is granted to save in, and for two calls: its
/// bill is at most its budget, whatever of it the agent uses.
#[test]
fn what_is_reserved_for_saving_is_what_the_agent_is_granted() {
    let policy = Policy::default();
    for (budget, seconds) in [("$0.20", 20), ("$2", 200), ("$3", 300), ("$70", 7_000)] {
        let bought = seconds * SECOND;
        let stops = stopped_at(budget, bought);
        let granted = granted(budget).micros();
        let used = stops + granted + 2 * policy.heartbeat.0;
        // A micro-dollar buys 100 µs.
        assert!(used.abs_diff(bought) <= 100, "{budget}: stopped after {stops} µs, {granted} µs granted");
    }
}

/// The same with a `stop_grace`: it is kept back whole where the budget buys ten times as much.
#[test]
fn a_longer_grace_is_kept_back_from_the_budget() {
    for (grace, budget, seconds, saving) in
        [("10m", "$70", 7_000, 600), ("30m", "$70", 7_000, 700), ("20s", "$70", 7_000, 20), ("10m", "$0.20", 20, 5)]
    {
        let bought = seconds * SECOND;
        let (mut world, run, instance) = world(Some(budget), None);
        let job = &mut world.runs.get_mut(&run).unwrap().job;
        job.stop_grace = Some(grace.parse().unwrap());
        let policy = Policy::default();
        let stops = bought - saving * SECOND - 2 * policy.heartbeat.0;
        let found = |rent| reached(&world, &seen(instance.clone(), rent), &policy, &world.runs[&run]);
        assert_eq!((found(stops - 100_000), found(stops)), (None, Some(StopBy::Budget)), "{grace} of {budget}");
        let granted =
            plan::wind_down(&policy, &world.runs[&run].job, world.runs[&run].job.budget, "36/h".parse().unwrap());
        assert_eq!(granted.0, saving * SECOND);
    }
    let (mut world, run, _) = world(None, None);
    world.runs.get_mut(&run).unwrap().job.stop_grace = Some("30m".parse().unwrap());
    let job = &world.runs[&run].job;
    assert_eq!(plan::wind_down(&Policy::default(), job, None, Rate::default()).0, 1_800 * SECOND);
}

/// The least rent, in microseconds, after which a budget stops its run.
fn stopped_at(budget: &str, bought: u64) -> u64 {
    let (mut before, mut after_it) = (0, bought);
    while after_it - before > 1 {
        let middle = before.midpoint(after_it);
        match after(Some(budget), None, middle) {
            None => before = middle,
            Some(_) => after_it = middle,
        }
    }
    after_it
}

/// How long the agent of a run that is stopping may save.
fn granted(budget: &str) -> Duration {
    let (mut world, run, instance) = world(Some(budget), None);
    let (attempt, fence) = (run.attempt(Fence(1)), Fence(1));
    let started =
        Event::AttemptIntended { run: run.clone(), attempt, fence, instance: instance.clone(), others: Vec::new() };
    let stop = Event::StopRequested { run, by: StopBy::Budget };
    for (event, seq) in [started, stop].into_iter().zip(5..) {
        world.apply(&Record { seq, at: Timestamp(0), event }).unwrap();
    }
    let orders = plan::orders(&world, &Policy::default(), &instance, |_, _, _| unreachable!("it is stopped"));
    match &orders[..] {
        [AgentCommand::Stop { within: Some(within), .. }] => *within,
        orders => panic!("{orders:?}"),
    }
}

#[test]
fn heartbeats_of_many_agents_take_little_of_a_small_budget() {
    let policy = Policy { heartbeat_interval: Elapsed(5 * SECOND), ..Policy::default() };
    let interval = |budget| {
        let (world, run, _) = world(budget, None);
        heartbeat(&policy, &world.runs[&run]).0
    };
    assert_eq!([None, Some("$70"), Some("$5")].map(interval), [5 * SECOND; 3]);
    assert_eq!([Some("$0.70"), Some("$0.07")].map(interval), [700_000, policy.heartbeat.0]);
}

#[test]
fn a_budget_pays_no_more_than_the_price_at_which_rent_is_counted() {
    let check = |budget: Option<&str>, allowed: Option<&str>, expected: Option<&str>| {
        let (mut world, id, instance) = world(budget, None);
        let offer = world.instances[&instance].offer.clone();
        if let Some(run) = world.runs.get_mut(&id) {
            run.job.wants.max_price = allowed.map(|rate| rate.parse().unwrap());
        }
        let found = price_cap(&world, &world.runs[&id], &offer);
        assert_eq!(found, expected.map(|rate| rate.parse().unwrap()), "{budget:?} {allowed:?}");
    };
    check(Some("$10"), None, Some("36/h"));
    check(Some("$10"), Some("40/h"), Some("36/h"));
    check(None, Some("40/h"), Some("40/h"));
    check(None, None, None);
}
