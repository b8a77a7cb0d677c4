//! Several machines by one request, from a provider that rents all of them or none.

mod scene;

use domain::rank::{Checkpointed, Report};
use domain::rental::BillingRule;
use domain::run::{RunState, Sight};
use domain::{Cause, Elapsed, Event, Finding};
use plan::{Action, LaunchDoubt};
use scene::{SECOND, Scene};

/// A run on such machines, with what its job says of them.
fn scene(nodes: &str) -> Scene {
    let mut scene = Scene::of(&format!("name: job\nrun: 'true'\n{nodes}resources: {{infra: ssh}}\n"), 9);
    for traits in scene.facts.traits_mut().values_mut() {
        (traits.rents_together, traits.billing) = (true, BillingRule::EXACT);
    }
    scene
}

#[test]
fn what_a_run_cannot_start_without_is_rented_by_one_request() {
    let check = |nodes: &str, expected: &[&str]| assert_eq!(scene(nodes).settle(), expected, "{nodes}");
    check("num_nodes: 3\n", &["rent a-i1 with a-i2 with a-i3"]);
    check("num_nodes: {min: 2, max: 4}\n", &["rent a-i1 with a-i2"]);
    check("num_nodes: 2\nspares: 1\n", &["rent a-i1 with a-i2"]);
    check("", &["rent a-i1"]);
    let mut apart = scene("num_nodes: 2\n");
    apart.facts.traits_mut().values_mut().for_each(|traits| traits.rents_together = false);
    assert_eq!(apart.settle(), ["rent a-i1", "rent a-i2"]);
}

#[test]
fn what_a_run_could_do_without_is_asked_for_once_the_rest_was_granted() {
    for (nodes, more) in [
        ("num_nodes: {min: 2, max: 4}\n", &["rent a-i3", "rent a-i4"][..]),
        ("num_nodes: 2\nspares: 1\n", &["rent a-i3"]),
    ] {
        let mut scene = scene(nodes);
        scene.settle();
        assert_eq!(scene.settle(), [""; 0], "{nodes}");
        for number in [1, 2] {
            scene.append(Event::Launched { instance: scene.run.instance(number), handle: None, account: None });
        }
        assert_eq!(scene.settle(), more, "{nodes}");
    }
}

/// Two machines are granted, and the budget does not pay for two more: the run begins with what it has.
#[test]
fn a_budget_that_pays_for_what_a_run_needs_is_not_exhausted_by_what_it_could_do_without() {
    let mut scene = scene("num_nodes: {min: 2, max: 4}\nbudget: {max: $1}\n");
    scene.settle();
    for number in [1, 2] {
        scene.append(Event::Launched { instance: scene.run.instance(number), handle: None, account: None });
    }
    let decided = |scene: &Scene, most: &str| {
        let mut world = scene.world.clone();
        let run = world.runs.get_mut(&scene.run).unwrap();
        run.plan.offer.rate = domain::Rate::from_micros_per_hour(3_600_000_000);
        run.job.budget.as_mut().unwrap().max = most.parse().unwrap();
        for instance in world.instances.values_mut() {
            instance.offer.rate = domain::Rate::from_micros_per_hour(3_600_000_000);
        }
        plan::reconcile(&world, &scene.facts, &plan::Policy::default())
    };
    let rents = |actions: &[Action]| actions.iter().filter(|action| matches!(action, Action::Rent { .. })).count();
    assert_eq!(rents(&decided(&scene, "$100000")), 2);
    let is_stopped = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Stop { .. }));
    // Between a budget that pays for all four and one that does not even pay for two.
    let between = (1..200).map(|tens| decided(&scene, &format!("${}", tens * 10)));
    assert!(between.into_iter().any(|actions| rents(&actions) == 0 && !is_stopped(&actions)));
}

#[test]
fn only_what_is_lost_is_rented_again() {
    let mut scene = scene("num_nodes: 3\n");
    scene.settle();
    scene.up(&[1, 2, 3]);
    scene.append(Event::ReleaseIntended { instance: scene.run.instance(2), lost_race: false });
    scene.gone(&scene.run.instance(2));
    assert_eq!(scene.settle(), ["rent a-i4"]);
}

#[test]
fn a_request_in_doubt_is_made_again_once_for_all() {
    let mut scene = scene("num_nodes: 3\n");
    scene.settle();
    let doubt = LaunchDoubt { requests: 1, since: Elapsed(60 * SECOND), is_token_void: false };
    for number in 1..=3 {
        scene.facts.machine_mut(&scene.run.instance(number)).in_doubt = Some(doubt);
    }
    let again = |scene: &Scene| scene.decide();
    assert_eq!(again(&scene), [Action::Launch { instance: scene.run.instance(1) }]);
    // One of them is listed: all are rented, and none is asked for again.
    scene.facts.machine_mut(&scene.run.instance(2)).sight = Some(Sight::Alive);
    assert_eq!(again(&scene)[1], Action::RecordLaunch { instance: scene.run.instance(2) });
    scene.append(Event::Launched { instance: scene.run.instance(2), handle: None, account: None });
    let [first, third] = [1, 3].map(|number| Action::RecordLaunch { instance: scene.run.instance(number) });
    assert_eq!(again(&scene), [first, third]);
}

#[test]
fn a_refusal_of_all_counts_once() {
    let mut scene = scene("num_nodes: 3\n");
    scene.settle();
    for number in 1..=3 {
        let finding = Finding::new(Cause::NoCapacity, "none free");
        scene.append(Event::RentFailed { instance: scene.run.instance(number), finding });
    }
    let run = &scene.world.runs[&scene.run];
    assert!(matches!(run.state, RunState::Recovering { .. }));
    assert_eq!(run.waits, 1);
}

#[test]
fn a_run_tells_how_often_it_saves_and_why() {
    let saved = Report::Checkpointed(Checkpointed { step: 5, bytes: 1, stall_us: 100_000, commit_us: 2_000_000 });
    let said = |checkpoint: &str, newest: &[Report]| {
        let train = format!("train: {{model: mlp, data: {{path: /data}}, epochs: 1, batch: 8{checkpoint}}}\n");
        let scene = Scene::of(&format!("name: job\nresources: {{infra: ssh}}\n{train}"), 1);
        plan::saving_of(&scene.world, &scene.world.runs[&scene.run], newest)
    };
    let newest = [saved];
    let why = "a save stalls training for 100.0 ms, and one failure in 24 h is usual for a machine of your own";
    assert_eq!(said("", &newest).unwrap(), format!("every 2m11s: {why}"));
    let why = "a save stalls training for 100.0 ms, and the job expects a failure every 2h";
    assert_eq!(said(", checkpoint: {mtbf: 2h}", &newest).unwrap(), format!("every 38s: {why}"));
    assert_eq!(said(", checkpoint: {every: 5 steps}", &newest), None);
    assert_eq!(said("", &[]), None);
}
