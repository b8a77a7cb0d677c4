//! Which figures of a sweep are never passed: those by a budget, by a deadline with its time to save, and of a machine that
//! costs nothing.

use domain::sweep::{Known, Method};
use domain::{Elapsed, Money, Offer, Rate, Sweep};

use super::scene::Scene;
use super::{Bound, bound, sweep};
use crate::reconcile::spent_at_most;
use crate::{ObservedState, Policy, budget_of, expires, first_answer, lease, wind_down};

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
