//! What is billed follows the rule of the provider, and is admitted before a machine is rented.

mod scene;

use domain::rental::BillingRule;
use domain::run::{Sight, Usage};
use domain::{Elapsed, Event, Timestamp};
use plan::{Action, ObservedState, Policy};
use scene::{SECOND, Scene};

const BY_THE_MINUTE: BillingRule = BillingRule { step: Elapsed(60 * SECOND), least: Elapsed(60 * SECOND) };

fn set(facts: &mut ObservedState, billing: BillingRule) {
    facts.traits_mut().values_mut().for_each(|traits| traits.billing = billing);
}

#[test]
fn a_machine_that_is_gone_is_billed_in_whole_steps() {
    let mut scene = Scene::of("name: job\nrun: 'true'\n", 1);
    assert_eq!(scene.settle(), ["rent a-i1"]);
    let instance = scene.run.instance(1);
    scene.append(Event::Launched { instance: instance.clone(), handle: None, account: None });
    let billed = |scene: &mut Scene, billing, rent| {
        set(&mut scene.facts, billing);
        let usage = Usage { started: Timestamp(0), elapsed: Elapsed(rent) };
        scene.facts.machine_mut(&instance).sight = Some(Sight::Gone(Some(usage)));
        scene.decide().into_iter().find_map(|action| match action {
            Action::RecordRelease { usage, .. } => Some(usage.elapsed.0),
            _ => None,
        })
    };
    assert_eq!(billed(&mut scene, BillingRule::EXACT, 61 * SECOND + 1), Some(61 * SECOND + 1));
    assert_eq!(billed(&mut scene, BY_THE_MINUTE, 61 * SECOND), Some(120 * SECOND));
    assert_eq!(billed(&mut scene, BY_THE_MINUTE, SECOND), Some(60 * SECOND));
    // Its rent never began.
    scene.facts.machine_mut(&instance).sight = Some(Sight::Gone(None));
    let costs = |action: &Action| matches!(action, Action::RecordRelease { usage, .. } if usage.elapsed.0 == 0);
    assert!(scene.decide().iter().any(costs));
}

/// A machine costs a micro-dollar in 3.6 ms.
#[test]
fn a_machine_is_rented_only_where_the_budget_pays_for_the_least_that_is_billed() {
    let rents = |budget: &str, billing| {
        let mut scene = Scene::of(&format!("name: job\nrun: 'true'\nbudget: {{max: {budget}}}\n"), 1);
        set(&mut scene.facts, billing);
        plan::reconcile(&scene.world, &scene.facts, &Policy::default())
            .iter()
            .any(|action| matches!(action, Action::Rent { .. }))
    };
    let second = BillingRule { step: Elapsed(SECOND), least: Elapsed(60 * SECOND) };
    // A minute costs 16,667 micro-dollars.
    assert!(rents("$0.01", BillingRule::EXACT));
    assert!(!rents("$0.01", second) && !rents("$0.01", BY_THE_MINUTE));
    assert!(rents("$0.02", second));
}

/// A run at a dollar an hour whose machine is about to be reclaimed, so that another is wanted beside it.
fn replacing(budget: &str) -> Scene {
    let mut scene = Scene::of(&format!("name: job\nrun: 'true'\nbudget: {{max: {budget}}}\n"), 2);
    assert_eq!(scene.settle(), ["rent a-i1"]);
    scene.up(&[1]);
    let instance = scene.run.instance(1);
    scene.append(Event::ReclaimNoticed { instance: instance.clone(), at: Timestamp(0) });
    scene.append(Event::ReleaseIntended { instance, lost_race: false });
    scene
}

/// What is decided of renting: whether a machine is rented, and whether the run is stopped.
fn rents_or_stops(scene: &Scene) -> (bool, bool) {
    let decided = scene.decide();
    let rents = decided.iter().any(|action| matches!(action, Action::Rent { .. }));
    (rents, decided.iter().any(|action| matches!(action, Action::Stop { .. })))
}

#[test]
fn after_a_crash_no_machine_is_rented_before_it_is_known_what_was_spent() {
    let mut scene = replacing("$1");
    let instance = scene.run.instance(1);
    let minutes = |minutes: u64| minutes * 60 * SECOND;
    // Its agent has not called, and by the wall clock it may have cost up to 98 cents.
    scene.facts.now = Timestamp(minutes(59) as i64);
    scene.facts.machine_mut(&instance).silence = Some(Elapsed(SECOND));
    assert_eq!(rents_or_stops(&scene), (false, false));
    scene.facts.machine_mut(&instance).rent = Some(Elapsed(minutes(10)));
    assert_eq!(rents_or_stops(&scene), (true, false), "it has cost less: the wall clock was wrong");
    // Where the budget pays for it anyway, nothing is waited for.
    scene.facts.machine_mut(&instance).rent = None;
    scene.facts.now = Timestamp(minutes(30) as i64);
    assert_eq!(rents_or_stops(&scene), (true, false));
}

/// Its agent may train on until its lease is over, and does not know of others.
#[test]
fn a_machine_out_of_reach_keeps_the_money_of_its_lease() {
    let lease = Policy::default().lease;
    let decided = |silence: u64, cents: u64| {
        let mut scene = replacing(&format!("$0.{cents:02}"));
        let instance = scene.run.instance(1);
        let machine = scene.facts.machine_mut(&instance);
        (machine.silence, machine.rent) = (Some(Elapsed(silence)), Some(Elapsed(600 * SECOND)));
        rents_or_stops(&scene)
    };
    for cents in 18..40 {
        let (heard, over) = (decided(SECOND, cents), decided(lease.0, cents));
        assert_eq!(heard, over, "{cents} cents");
        let silent = decided(20 * SECOND, cents);
        assert!(silent == heard || (heard.0 && silent == (false, false)) || heard.1, "{cents} cents: {silent:?}");
    }
    let waits = |cents: &u64| decided(SECOND, *cents).0 && decided(20 * SECOND, *cents) == (false, false);
    assert_eq!((18..40).filter(waits).count(), 1, "40 s at a dollar an hour are one cent");
    // One that this loop has never heard may have the lease of a server.
    let mut scene = replacing("$0.50");
    let instance = scene.run.instance(1);
    scene.facts.now = Timestamp(600 * SECOND as i64);
    scene.facts.machine_mut(&instance).silence = Some(Elapsed(SECOND));
    assert_eq!(rents_or_stops(&scene), (true, false));
    scene.facts.machine_mut(&instance).is_unheard = true;
    assert_eq!(rents_or_stops(&scene), (false, false));
}
