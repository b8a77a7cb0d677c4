//! A run on several machines: all or none, prepared first and started together; lost machines are replaced, others
//! stay.

mod scene;

use domain::run::{AttemptEnd, RunState};
use domain::wire::{AgentCommand, AgentEvent, NodeAddress, NodeRank};
use domain::{AttemptId, Cause, Event, Finding, Timestamp};
use plan::{Action, Policy, run_due};

use scene::{SECOND, Scene};

fn address(number: u64) -> NodeAddress {
    NodeAddress { host: format!("10.0.0.{number}"), port: 7 }
}

fn failed(cause: Cause, message: &str) -> AttemptEnd {
    AttemptEnd::Failed { finding: Finding::new(cause, message), exit_code: None }
}

/// Three machines with an attempt on which all are prepared.
fn started() -> (Scene, AttemptId) {
    let mut scene = Scene::new(4);
    assert_eq!(scene.settle(), ["rent a-i1", "rent a-i2", "rent a-i3"]);
    scene.up(&[3, 1]);
    assert_eq!(scene.settle(), Vec::<String>::new(), "one is missing");
    scene.up(&[2]);
    assert_eq!(scene.settle(), ["start on a-i1 a-i2 a-i3"]);
    let attempt = scene.world.runs[&scene.run].attempts[0].clone();
    for number in 1..=3 {
        scene.says(number, &attempt, AgentEvent::Prepared { address: address(number) });
    }
    (scene, attempt)
}

#[test]
fn nothing_is_rented_before_there_are_places_for_all() {
    let mut scene = Scene::new(2);
    assert_eq!(scene.settle(), Vec::<String>::new());
}

#[test]
fn machines_are_prepared_first_and_start_together() {
    let mut scene = Scene::new(3);
    scene.settle();
    scene.up(&[1, 2, 3]);
    scene.settle();
    let attempt = scene.world.runs[&scene.run].attempts[0].clone();
    let place = |order: &AgentCommand| match order {
        AgentCommand::Prepare(start) => start.member,
        _ => None,
    };
    assert_eq!(scene.orders(2).iter().map(place).collect::<Vec<_>>(), [Some(NodeRank { rank: 1, nodes: 3 })]);
    scene.says(1, &attempt, AgentEvent::Prepared { address: address(1) });
    scene.says(2, &attempt, AgentEvent::Prepared { address: address(2) });
    scene.says(2, &attempt, AgentEvent::Prepared { address: address(9) });
    assert_eq!(scene.orders(2), [], "it waits for the third");
    scene.says(3, &attempt, AgentEvent::Prepared { address: address(3) });
    let nodes = vec![address(1), address(2), address(3)];
    assert_eq!(scene.orders(2), [AgentCommand::Go { attempt: attempt.clone(), nodes }]);
    // Only node rank 0 says that it runs.
    scene.says(2, &attempt, AgentEvent::Started);
    assert!(matches!(scene.world.runs[&scene.run].state, RunState::Staging { .. }));
    scene.says(1, &attempt, AgentEvent::Started);
    assert!(matches!(scene.world.runs[&scene.run].state, RunState::Running { .. }));
    for number in 1..=3 {
        assert!(scene.decide().is_empty());
        scene.says(number, &attempt, AgentEvent::Ended { end: AttemptEnd::Succeeded });
    }
    let [Action::EndAttempt { end: AttemptEnd::Succeeded, .. }] = &scene.decide()[..] else { panic!("not at its end") };
}

#[test]
fn the_ranks_of_the_others_end_and_only_what_is_lost_is_rented_again() {
    let (mut scene, attempt) = started();
    scene.append(Event::ReleaseIntended { instance: scene.run.instance(2), lost_race: false });
    let stops =
        |scene: &Scene, number| matches!(scene.orders(number)[..], [AgentCommand::Stop { is_node_lost: true, .. }]);
    assert!(stops(&scene, 1) && stops(&scene, 3), "the second is given up");
    scene.says(1, &attempt, AgentEvent::Ended { end: failed(Cause::RankLost, "rank 1 is gone") });
    scene.says(3, &attempt, AgentEvent::Ended { end: failed(Cause::ExitCode, "code 1") });
    assert_eq!(scene.orders(1), [], "it has ended");
    // A late word of the second changes nothing for those that wait; then its provider proves that it is gone.
    let (lost, gone) = (scene.run.instance(2), domain::run::Sight::Gone(None));
    scene.facts.machine_mut(&lost).sight = Some(gone);
    let decided = scene.decide();
    let [Action::EndMember { instance, end, .. }, Action::RecordRelease { .. }] = &decided[..] else {
        panic!("its part is not ended: {decided:?}")
    };
    let (instance, end) = (instance.clone(), end.clone());
    scene.append(Event::MemberEnded { attempt: attempt.clone(), instance, end });
    scene.gone(&lost);
    scene.facts.machines.clear();
    assert_eq!(scene.settle(), ["failed: node 1: instance `a-i2` is gone", "rent a-i4"]);
    scene.up(&[4]);
    assert_eq!(scene.settle(), ["start on a-i1 a-i3 a-i4"], "two machines stay, and the first has node rank 0");
}

/// It exports the model for all, which may take longer than the 10 s that ranks have to end once others have failed.
#[test]
fn node_rank_0_is_not_ended_because_the_others_have_trained() {
    let (mut scene, attempt) = started();
    let continues = |scene: &Scene| matches!(scene.orders(1)[..], [AgentCommand::Go { .. }]);
    for number in [2, 3] {
        scene.says(number, &attempt, AgentEvent::Ended { end: AttemptEnd::Succeeded });
        assert!(continues(&scene), "{:?}", scene.orders(1));
    }
    scene.append(Event::ReleaseIntended { instance: scene.run.instance(3), lost_race: false });
    assert!(continues(&scene), "the machine of one that has succeeded is not needed: {:?}", scene.orders(1));
    // Only what fails by itself is named.
    scene.says(1, &attempt, AgentEvent::Ended { end: failed(Cause::DiskFull, "no space for the model") });
    let named = scene.decide().into_iter().find_map(|action| match action {
        Action::EndAttempt { end: AttemptEnd::Failed { finding, .. }, .. } => Some(finding.message),
        _ => None,
    });
    assert_eq!(named.as_deref(), Some("node 0: no space for the model"));
}

#[test]
fn machines_that_wait_too_long_for_the_others_are_given_back() {
    let mut scene = Scene::new(3);
    scene.settle();
    scene.up(&[1, 2]);
    let policy = Policy::default();
    let run = &scene.world.runs[&scene.run];
    let wait = run_due(&scene.world, &scene.facts, &policy, &scene.run, run);
    assert_eq!(wait, Some(policy.incomplete));
    scene.facts.now = Timestamp(policy.incomplete.0 as i64 - 1);
    assert_eq!(scene.settle(), Vec::<String>::new());
    scene.facts.now = Timestamp(policy.incomplete.0 as i64);
    let released: Vec<String> = scene.decide().into_iter().map(|action| format!("{action:?}")).collect();
    assert_eq!(released.iter().filter(|action| action.starts_with("Release")).count(), 3, "{released:?}");
}

/// The second machine has two minutes left: all save, the second is released once its ranks have ended, and another is
/// rented without waiting for its end.
#[test]
fn a_machine_that_is_taken_back_is_replaced_once_all_have_saved() {
    let (mut scene, attempt) = started();
    let lost = scene.run.instance(2);
    scene.append(Event::ReclaimNoticed { instance: lost.clone(), at: Timestamp(120 * SECOND as i64) });
    let saves =
        |scene: &Scene, number| matches!(scene.orders(number)[..], [AgentCommand::Stop { is_node_lost: false, .. }]);
    assert!(saves(&scene, 1) && saves(&scene, 2) && saves(&scene, 3));
    assert_eq!(scene.settle(), Vec::<String>::new(), "none is released before its ranks have ended");
    let reclaimed = || failed(Cause::InstanceLost, "the provider takes the machine back");
    scene.says(2, &attempt, AgentEvent::Ended { end: reclaimed() });
    for number in [1, 3] {
        scene.says(number, &attempt, AgentEvent::Ended { end: AttemptEnd::Stopped { step: Some(7) } });
    }
    let decided = scene.decide();
    let [Action::Release { instance }, Action::EndAttempt { attempt, end }] = &decided[..] else {
        panic!("{decided:?}")
    };
    assert!(matches!(end, AttemptEnd::Failed { finding, .. }
        if finding.message == "node 1: the provider takes the machine back"));
    let (instance, attempt, end) = (instance.clone(), attempt.clone(), end.clone());
    assert_eq!(instance, lost);
    scene.append(Event::ReleaseIntended { instance, lost_race: false });
    scene.append(Event::AttemptEnded { attempt, end });
    // It is still on its way out.
    let decided = scene.decide();
    let [Action::Terminate { .. }, Action::Rent { instance, .. }] = &decided[..] else { panic!("{decided:?}") };
    assert_eq!(*instance, scene.run.instance(4));
}

/// A machine that is taken back knows its own time.
#[test]
fn the_others_save_no_longer_than_usual_where_one_is_taken_back() {
    let (mut scene, _) = started();
    let run = scene.run.clone();
    scene.world.runs.get_mut(&run).unwrap().job.stop_grace = Some("10m".parse().unwrap());
    scene.append(Event::ReclaimNoticed { instance: run.instance(2), at: Timestamp(120 * SECOND as i64) });
    let within = |number| match &scene.orders(number)[..] {
        [AgentCommand::Stop { is_node_lost: false, within, .. }] => *within,
        orders => panic!("{orders:?}"),
    };
    assert_eq!(
        [1, 2, 3].map(within),
        [Some(domain::Duration::from_secs(60)), None, Some(domain::Duration::from_secs(60))]
    );
}

#[test]
fn nothing_is_started_on_a_machine_that_is_taken_back() {
    let mut scene = Scene::new(4);
    scene.settle();
    scene.up(&[1, 3]);
    scene.append(Event::ReclaimNoticed { instance: scene.run.instance(1), at: Timestamp(1) });
    assert_eq!(scene.settle(), ["release a-i1", "rent a-i4"]);
    scene.up(&[2, 4]);
    assert_eq!(scene.settle(), ["start on a-i2 a-i3 a-i4"]);
}
