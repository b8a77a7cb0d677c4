//! Which figures of a sweep are never passed: those by a budget, by a deadline with its time to save, and of a machine that
//! costs nothing.

use domain::event::{RentIntended, RunEnd};
use domain::rental::{BillingRule, ProviderTraits};
use domain::run::{AttemptEnd, Outcome, Usage};
use domain::sweep::{Known, Method};
use domain::{Elapsed, Event, Fence, InstanceId, Money, Offer, Rate, Sweep, Timestamp};

use super::scene::Scene;
use super::{Bound, bound, sweep};
use crate::reconcile::spent_at_most;
use crate::{
    Action, LaunchDoubt, ObservedMachine, ObservedState, Policy, Scope, budget_of, expires, first_answer, lease,
    reconcile, wind_down,
};

const TRAITS: ProviderTraits = ProviderTraits {
    visible_within: Elapsed(0),
    effective_within: Elapsed(0),
    boots_within: Elapsed(60_000_000),
    token_lifetime: None,
    observe_every: Elapsed(1_000_000),
    rents_together: false,
    billing: BillingRule::EXACT,
    places: None,
    abandoned_within: None,
    keeps_events: false,
    concurrency: 1,
};

/// For two trials at a time on a machine of so many dollars a second: seconds and whether they are a limit, money and
/// whether that is one.
fn check(
    limits: [Option<&str>; 2],
    dollars: i64,
    known: &Known,
    time: Option<(u64, bool)>,
    cost: Option<(&str, bool)>,
) {
    let search = Sweep { parallel: 2, ..sweep(Method::Random, Some(4)) };
    let scene = Scene::new(&search, None, 0);
    let mut job = scene.sweep().job.clone();
    let [budget, deadline] = limits;
    job.budget = budget
        .map(|max| domain::Job::parse(&format!("run: x\nbudget: {{max: {max}}}\n"), "").unwrap().job.budget.unwrap());
    job.deadline = deadline.map(|deadline| deadline.parse().unwrap());
    let rate = Rate::from_micros_per_hour(dollars * 3_600_000_000);
    let offer = Offer { rate, ..scene.sweep().plan.offer.clone() };
    let found = bound(&job, &search, &offer, known);
    let Bound { time_is_limit, cost_is_limit, .. } = found;
    assert_eq!(found.time.map(|time| (time.micros() / 1_000_000, time_is_limit)), time, "{limits:?} {found:?}");
    let cost = cost.map(|(cost, is_limit)| (cost.parse::<Money>().unwrap(), is_limit));
    assert_eq!(found.cost.map(|cost| (cost, cost_is_limit)), cost, "{limits:?} {found:?}");
}

#[test]
fn only_limits_are_never_passed() {
    let unknown = Known::default();
    check([None, None], 1, &unknown, None, None);
    // Both trials save for up to 90 s after the deadline, on machines that are paid for.
    check([None, Some("30s")], 1, &unknown, Some((120, true)), Some(("$240", true)));
    check([Some("$10"), Some("30s")], 1, &unknown, Some((120, true)), Some(("$10", true)));
    check([Some("$500"), Some("30s")], 1, &unknown, Some((120, true)), Some(("$240", true)));
    check([Some("$10"), None], 1, &unknown, None, Some(("$10", true)));
    // With a time to save of their own they live on for longer.
    let scene = Scene::new(&sweep(Method::Random, Some(4)), None, 0);
    let mut job = scene.sweep().job.clone();
    (job.deadline, job.stop_grace) = (Some("30s".parse().unwrap()), Some("10m".parse().unwrap()));
    let search = Sweep { parallel: 2, ..sweep(Method::Random, Some(4)) };
    let found = bound(&job, &search, &scene.sweep().plan.offer, &unknown);
    assert_eq!((found.time, found.time_is_limit), (Some(domain::Duration::from_secs(660)), true));
    // A machine that costs nothing costs nothing however long it is.
    check([None, None], 0, &unknown, None, Some(("$0", true)));
    check([None, Some("30s")], 0, &unknown, Some((120, true)), Some(("$0", true)));
    // An estimate that is shorter than the deadline ends nothing.
    let samples = Known { samples: Some([80, 8, 8]), ..Known::default() };
    let estimated = {
        let scene = Scene::new(&sweep(Method::Random, Some(4)), None, 0);
        let search = Sweep { parallel: 2, ..sweep(Method::Random, Some(4)) };
        bound(&scene.sweep().job, &search, &scene.sweep().plan.offer, &samples)
    };
    let (time, cost) = (estimated.time.unwrap().micros() / 1_000_000, estimated.cost.unwrap().to_string());
    assert!(time < 3600, "{estimated:?}");
    check([None, Some("1h")], 1, &samples, Some((time, false)), Some((&cost, false)));
    check([None, Some("1h")], 0, &samples, Some((time, false)), Some(("$0", true)));
}

#[test]
fn agents_of_trials_leave_while_the_budget_of_their_sweep_pays_for_saving() {
    let search = Sweep { parallel: 2, ..sweep(Method::Random, Some(4)) };
    let mut scene = Scene::new(&search, Some("$120"), 0);
    while scene.world.live_instances().count() < 2 {
        let _ = scene.moment();
    }
    let (policy, facts, world) = (Policy::default(), scene.facts(), &scene.world);
    let at_a_dollar_a_second = |time: Elapsed| time.0 / 1_000_000;
    for (_, instance) in world.live_instances() {
        let run = &world.runs[&instance.run];
        let left = lease(world, &facts, &policy, run);
        let saving = wind_down(&policy, &run.job, budget_of(world, run), run.rate());
        let dollars = 2 * (at_a_dollar_a_second(left) + at_a_dollar_a_second(saving));
        assert!(left < policy.lease && (60..=120).contains(&dollars), "{left:?} and {saving:?} to save");
        assert_eq!(first_answer(world, &facts, &policy, run, instance), Some(left));
        assert!(expires(world, &policy, run, instance).is_some());
    }
    // After a restart nobody has heard the machines yet.
    let unheard = ObservedState { now: facts.now, ..ObservedState::default() };
    assert!(spent_at_most(world, &unheard, scene.sweep()) >= spent_at_most(world, &facts, scene.sweep()));

    let unlimited = Scene::new(&search, None, 0);
    assert!(unlimited.world.runs.values().all(|run| budget_of(&unlimited.world, run).is_none()));
}

/// A sweep of which one trial has had a machine at $1/s for so many seconds, that may have so many at a time.
fn with_one_trial(budget: &str, parallel: u32, rent: u64) -> (Scene, ObservedState) {
    let mut scene = Scene::new(&Sweep { parallel: 1, ..sweep(Method::Random, Some(4)) }, Some(budget), 0);
    while scene.world.live_instances().all(|(_, instance)| instance.started.is_none()) {
        let _ = scene.moment();
    }
    let record = scene.world.sweeps.values_mut().next().unwrap();
    record.search.parallel = parallel;
    let mut facts = scene.facts();
    let live: Vec<_> = scene.world.live_instances().map(|(id, _)| id.clone()).collect();
    assert_eq!(live.len(), 1);
    facts.machine_mut(&live[0]).rent = Some(Elapsed(rent * 1_000_000));
    (scene, facts)
}

#[test]
fn the_lease_of_a_trial_leaves_to_others_what_they_may_spend_meanwhile() {
    let left = |parallel: u32| {
        let (scene, facts) = with_one_trial("$50", parallel, 1);
        let (_, instance) = scene.world.live_instances().next().unwrap();
        lease(&scene.world, &facts, &Policy::default(), &scene.world.runs[&instance.run]).0
    };
    let (alone, of_four) = (left(1), left(4));
    assert!(alone > 30_000_000 && (of_four * 4).abs_diff(alone) < 100, "{alone} µs alone, {of_four} µs of four");
}

#[test]
fn no_trial_begins_beside_one_that_may_spend_the_rest_unreached() {
    let begins = |silence: u64| {
        let (scene, mut facts) = with_one_trial("$55", 2, 1);
        let id = scene.world.live_instances().next().unwrap().0.clone();
        facts.machine_mut(&id).silence = Some(Elapsed(silence * 1_000_000));
        let actions = crate::reconcile(&scene.world, &facts, &Policy::default());
        actions.iter().any(|action| matches!(action, crate::Action::SubmitTrial(_)))
    };
    assert!(begins(0), "the budget pays for both");
    assert!(!begins(15), "it may go on for the 45 s that are left of its lease");
}

#[test]
fn the_moment_at_which_a_budget_is_spent_is_known_before() {
    let due = |rent: u64| {
        let (scene, facts) = with_one_trial("$100.1", 1, rent);
        crate::sweep_due(&scene.world, &facts, &Policy::default(), scene.sweep()).unwrap().0
    };
    assert!((80_000..80_010).contains(&due(80)), "four fifths are spent after 80.08 s");
    assert_eq!(due(10), crate::reconcile::SWEEP_BUDGET, "it is looked at twice a second all the same");
}

#[test]
fn trials_that_resume_with_their_sweep_are_no_more_than_may_be_open() {
    let (mut scene, facts) = with_one_trial("$100", 1, 1);
    let trial = scene.sweep().trials[0].clone();
    let mut paused = scene.world.runs[&trial].clone();
    paused.state = domain::run::RunState::Stopped { by: domain::run::StopBy::Budget };
    let other = domain::RunId::new("s-t2");
    scene.world.runs.insert(other.clone(), paused);
    let record = scene.world.sweeps.values_mut().next().unwrap();
    record.trials.push(other.clone());
    record.paused.insert(other);
    let resumes = |scene: &Scene| {
        let actions =
            crate::sweep::actions(&scene.world, &facts, &Policy::default(), &domain::SweepId::new("s"), scene.sweep());
        actions.iter().any(|action| matches!(action, crate::Action::Resume { .. }))
    };
    assert!(!resumes(&scene), "one is open");
    scene.world.sweeps.values_mut().next().unwrap().search.parallel = 2;
    assert!(resumes(&scene));
}

/// A sweep whose two trials have a machine each, which have not called yet.
fn with_two_trials(budget: Option<&str>) -> (Scene, Vec<InstanceId>) {
    let mut scene = Scene::new(&Sweep { parallel: 2, ..sweep(Method::Random, Some(4)) }, budget, 0);
    let _ = scene.moment();
    let live: Vec<InstanceId> = scene.world.live_instances().map(|(id, _)| id.clone()).collect();
    assert_eq!(live.len(), 2);
    (scene, live)
}

/// Also seed 110887 of the simulation.
#[test]
fn no_attempt_of_a_trial_starts_before_the_cost_of_the_others_is_known() {
    let starts = |now: i64, rent: Option<u64>| {
        let (mut scene, live) = with_two_trials(Some("$1000"));
        for instance in live.clone() {
            let _ = scene.append(Event::AgentUp { instance, started: Timestamp(0), incarnation: 0 });
        }
        scene.world.sweeps.values_mut().next().unwrap().job.budget.as_mut().unwrap().max = "$50".parse().unwrap();
        let mut facts = ObservedState { now: Timestamp(now * 1_000_000), ..scene.facts() };
        facts.machine_mut(&live[1]).rent = Some(Elapsed(1_000_000));
        // The loop has just begun, and the agent of the other one has not called since.
        let other = facts.machine_mut(&live[0]);
        other.rent = rent.map(|seconds| Elapsed(seconds * 1_000_000));
        (other.silence, other.is_unheard) = (Some(Elapsed(0)), rent.is_none());
        let actions = reconcile(&scene.world, &facts, &Policy::default());
        actions.iter().filter(|action| matches!(action, Action::Start { .. })).count()
    };
    assert_eq!(starts(120, None), 0, "it may have cost the whole budget by now");
    assert_eq!(starts(45, None), 0, "it may have left no more than it takes to end both");
    assert_eq!([starts(30, None), starts(45, Some(20)), starts(120, Some(20))], [2, 2, 2]);
}

/// Whether a sweep is stopped whose first trial trains, or does not, and was asked for another machine 100 s ago.
fn stops_beside_a_doubt(trains: bool, budget: &str) -> bool {
    let (mut scene, live) = with_two_trials(Some("$1000"));
    let run = scene.sweep().trials[0].clone();
    let (offer, instance) = (scene.sweep().plan.offer.clone(), live[0].clone());
    let _ = scene.append(Event::AgentUp { instance: instance.clone(), started: Timestamp(0), incarnation: 0 });
    if trains {
        let (run, attempt, others) = (run.clone(), run.attempt(Fence(1)), Vec::new());
        let _ = scene.append(Event::AttemptIntended { run, attempt, fence: Fence(1), instance, others });
    }
    let doubted = run.instance(2);
    let (token, reserved, others) = ("t".to_owned(), Money::default(), Vec::new());
    let intent = RentIntended { run, instance: doubted.clone(), token, offer, reserved, others };
    let _ = scene.append(Event::RentIntended(Box::new(intent)));
    scene.world.sweeps.values_mut().next().unwrap().job.budget.as_mut().unwrap().max = budget.parse().unwrap();
    let mut facts = ObservedState { now: Timestamp(100_000_000), ..scene.facts() };
    let unknown = ObservedMachine {
        in_doubt: Some(LaunchDoubt { requests: 1, since: Elapsed(0), is_token_void: false }),
        ..ObservedMachine::default()
    };
    *facts.machine_mut(&doubted) = unknown;
    facts.machine_mut(&live[0]).rent = Some(Elapsed(40_000_000));
    let actions = reconcile(&scene.world, &facts, &Policy::default());
    actions.iter().any(|action| matches!(action, Action::StopSweep { .. }))
}

#[test]
fn trials_that_train_are_stopped_while_a_machine_in_doubt_may_have_spent_the_rest() {
    assert!(stops_beside_a_doubt(true, "$150"));
    assert!(!stops_beside_a_doubt(false, "$150"), "it is waited for until that is known");
    assert!(!stops_beside_a_doubt(true, "$300"), "that pays for it");
}

#[test]
fn trials_that_share_a_budget_are_looked_at_together() {
    let seen = |budget| {
        let (scene, _) = with_two_trials(budget);
        let mut scope = Scope::default();
        scope.add_run(&scene.world, &scene.sweep().trials[0]);
        (scope.runs.len(), scope.sweeps.len())
    };
    assert_eq!(seen(Some("$1000")), (2, 1), "what the agent of one reports decides what the other may spend");
    assert_eq!(seen(None), (1, 1));
}

#[test]
fn trials_that_share_a_budget_are_rented_for_one_at_a_time() {
    let rented = |budget| {
        let (mut scene, live) = with_two_trials(budget);
        for instance in live {
            let usage = Usage { started: Timestamp(0), elapsed: Elapsed(1_000_000) };
            let _ = scene.append(Event::ReleaseIntended { instance: instance.clone(), lost_race: false });
            let _ = scene.append(Event::Released { instance, usage });
        }
        let actions = reconcile(&scene.world, &scene.facts(), &Policy::default());
        actions.iter().filter(|action| matches!(action, Action::Rent { .. })).count()
    };
    assert_eq!(rented(None), 2);
    assert_eq!(rented(Some("$1000")), 1, "the next look counts it, and is at once");
}

#[test]
fn a_machine_that_has_just_begun_keeps_back_the_least_that_is_billed_for_it() {
    let begins = |budget, least: u64| {
        let (scene, mut facts) = with_one_trial(budget, 2, 1);
        let billing = BillingRule { least: Elapsed(least * 1_000_000), ..BillingRule::EXACT };
        let traits = ProviderTraits { billing, ..TRAITS };
        facts.traits_mut().insert("sim".to_owned(), traits);
        let actions = reconcile(&scene.world, &facts, &Policy::default());
        actions.iter().any(|action| matches!(action, Action::SubmitTrial(_)))
    };
    assert!(begins("$100", 0));
    assert!(!begins("$100", 60), "each of them is billed for a minute");
    assert!(begins("$140", 60));
}

/// A sweep whose only trial is over after its machine has cost so much, whose provider bills whole minutes and has not ended
/// it yet.
fn with_an_ended_trial(budget: &str, rent: u64) -> (Scene, ObservedState) {
    let (mut scene, mut facts) = with_one_trial("$100000", 1, 0);
    let (id, instance) = scene.world.live_instances().next().unwrap();
    let (id, run, attempt) = (id.clone(), instance.run.clone(), instance.run.attempt(Fence(1)));
    let model = super::scene::model(Some(0.5));
    let _ = scene.append(Event::AttemptEnded { attempt, end: AttemptEnd::Trained { model: model.clone() } });
    let _ = scene.append(Event::Ended { run, end: RunEnd::Done { outcome: Outcome::Trained { model } } });
    let _ = scene.append(Event::ReleaseIntended { instance: id.clone(), lost_race: false });
    scene.world.sweeps.values_mut().next().unwrap().job.budget.as_mut().unwrap().max = budget.parse().unwrap();
    let billing = BillingRule { step: Elapsed(60_000_000), ..BillingRule::EXACT };
    facts.traits_mut().insert("sim".to_owned(), ProviderTraits { billing, ..TRAITS });
    facts.machine_mut(&id).rent = Some(Elapsed(rent));
    (scene, facts)
}

/// Seed 67998 of the simulation.
#[test]
fn a_trial_that_is_over_keeps_back_the_step_that_its_provider_has_begun() {
    let begins = |budget: u64, rent: u64| {
        let (scene, facts) = with_an_ended_trial(&format!("${budget}"), rent * 1_000_000);
        let actions = reconcile(&scene.world, &facts, &Policy::default());
        actions.iter().any(|action| matches!(action, Action::SubmitTrial(_)))
    };
    let least = (60..1_000).find(|budget| begins(*budget, 60)).unwrap();
    assert!(begins(least, 59), "the same minute is billed");
    assert!(!begins(least, 61), "another minute is billed");
    assert!(begins(least + 100, 61));
    let due = |rent: u64| {
        let (scene, facts) = with_an_ended_trial("$100000", rent);
        crate::sweep_due(&scene.world, &facts, &Policy::default(), scene.sweep()).unwrap().0
    };
    assert_eq!([due(59_900_000), due(60_000_001)], [100_001, crate::reconcile::SWEEP_BUDGET]);
}
