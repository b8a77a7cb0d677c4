//! What is billed follows the rule of the provider, and is admitted before a machine is rented.

mod scene;

use domain::rental::BillingRule;
use domain::run::{Sight, Usage};
use domain::{Elapsed, Event, Timestamp};
use plan::{Action, ObservedState, Policy};
use scene::{SECOND, Scene};

const BY_THE_MINUTE: BillingRule = BillingRule { step: Elapsed(60 * SECOND), least: Elapsed(60 * SECOND) };

fn set(facts: &mut ObservedState, billing: BillingRule) {
    facts.traits.values_mut().for_each(|traits| traits.billing = billing);
}

#[test]
fn a_machine_that_is_gone_is_billed_in_whole_steps() {
    let mut scene = Scene::of("name: job\nrun: 'true'\n", 1);
    assert_eq!(scene.settle(), ["rent a-i1"]);
    let instance = scene.run.instance(1);
    scene.append(Event::Launched { instance: instance.clone(), handle: None });
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
