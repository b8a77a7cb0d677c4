//! Machines that stand by, jobs that go on with fewer and with more again, and steps that are divided when memory ran out.

mod scene;

use domain::rank::{Fetching, Step};
use domain::run::{AttemptEnd, RunState, Sight, StopBy};
use domain::wire::{AgentCommand, AgentEvent, NodeAddress};
use domain::{AttemptId, Cause, Elapsed, Event, Finding, InstanceId, Job, Timestamp, Work};
use plan::{Action, Policy, StepTimes, job_of_attempt, reconcile, run_due, straggler_found};

use scene::{SECOND, Scene};

const TRAIN: &str = "train:\n  model: cnn\n  data: {path: d}\n  epochs: 3\n  batch: 64\n";

fn elastic() -> Scene {
    Scene::of(&format!("num_nodes: {{min: 2, max: 4}}\nresources: {{infra: ssh}}\n{TRAIN}"), 4)
}

fn spare() -> Scene {
    Scene::of("run: 'true'\nnum_nodes: 2\nspares: 1\nresources: {infra: ssh}\n", 4)
}

fn at(scene: &mut Scene, seconds: u64) {
    scene.facts.now = Timestamp((seconds * SECOND) as i64);
}

fn attempt(scene: &Scene) -> AttemptId {
    scene.world.runs[&scene.run].attempts.last().unwrap().clone()
}

/// Its machines are prepared, and it makes steps from this one on.
fn ready(scene: &mut Scene, machines: &[u64]) {
    let attempt = attempt(scene);
    for number in machines {
        let address = NodeAddress { host: format!("10.0.0.{number}"), port: 7 };
        scene.says(*number, &attempt, AgentEvent::Prepared { address });
    }
    scene.append(Event::AttemptReady { attempt, ready: None });
}

/// A machine is gone, and with it the attempt.
fn lose(scene: &mut Scene, number: u64, others: &[u64]) {
    let (attempt, lost) = (attempt(scene), scene.run.instance(number));
    let end = |message: &str, cause| AttemptEnd::Failed { finding: Finding::new(cause, message), exit_code: None };
    scene.append(Event::ReleaseIntended { instance: lost.clone(), lost_race: false });
    let instance = lost.clone();
    scene.append(Event::MemberEnded { attempt: attempt.clone(), instance, end: end("gone", Cause::InstanceLost) });
    scene.gone(&lost);
    for other in others {
        let lost = end("another rank is gone", Cause::RankLost);
        scene.says(*other, &attempt, AgentEvent::Ended { end: lost });
    }
}

fn accumulate(scene: &Scene) -> u32 {
    let run = &scene.world.runs[&scene.run];
    let job: Job = job_of_attempt(&scene.world, run, &scene.world.attempts[&attempt(scene)], scene.facts.now);
    let Work::Train(train) = job.work else { panic!("it trains") };
    train.accumulate
}

/// Steps of two machines, of which the second takes twice as long.
fn uneven(scene: &Scene) -> StepTimes {
    let mut times = StepTimes::default();
    for _ in 0..20 {
        for number in 1..=2 {
            let (epoch, loss, lr, samples, data) = (0, 1.0, 0.1, 8, Fetching::default());
            let step_us = number * 100_000;
            let step = Step { step: 1, epoch, loss, lr, samples, step_us, data_wait_us: 0, checkpoint_us: 0, data };
            times.add(&scene.run.instance(number), &step);
        }
    }
    times
}

#[test]
fn a_slow_machine_is_replaced_only_if_asked_for_and_after_saving() {
    let with = |recovery: &str| {
        let resources = format!("resources: {{infra: ssh{recovery}}}");
        let mut scene = Scene::of(&format!("run: 'true'\nnum_nodes: 2\nspares: 1\n{resources}\n"), 4);
        scene.settle();
        scene.up(&[1, 2, 3]);
        assert_eq!(scene.settle(), ["start on a-i1 a-i2"]);
        ready(&mut scene, &[1, 2]);
        at(&mut scene, 600);
        let event = straggler_found(&scene.world, &attempt(&scene), &uneven(&scene)).unwrap();
        scene.append(event);
        assert_eq!(straggler_found(&scene.world, &attempt(&scene), &uneven(&scene)), None, "it is told once");
        scene
    };
    let mut told = with("");
    assert!(!told.orders(2).iter().any(|order| matches!(order, AgentCommand::Stop { .. })), "{:?}", told.orders(2));
    let taken_back = told.run.instance(2);
    told.append(Event::ReclaimNoticed { instance: taken_back, at: Timestamp(720 * SECOND as i64) });
    let orders = told.orders(1);
    assert!(matches!(orders[..], [AgentCommand::Stop { .. }]), "the others save in time: {orders:?}");

    let mut scene = with(", job_recovery: {replace_stragglers: true}");
    for number in [1, 2] {
        let orders = scene.orders(number);
        assert!(matches!(orders[..], [AgentCommand::Stop { is_node_lost: false, within: Some(_), .. }]), "{orders:?}");
    }
    assert_eq!(scene.settle(), Vec::<String>::new(), "it is not released before its ranks have saved");
    let attempt = attempt(&scene);
    for number in [1, 2] {
        scene.says(number, &attempt, AgentEvent::Ended { end: AttemptEnd::Stopped { step: Some(40) } });
    }
    let done = scene.settle();
    for expected in ["release a-i2", "start on a-i1 a-i3"] {
        assert!(done.iter().any(|said| said == expected), "{done:?}");
    }
    assert!(scene.world.runs[&scene.run].failures.is_empty(), "it is no failure");
}

#[test]
fn a_spare_takes_the_place_of_a_lost_machine_at_once() {
    let mut scene = spare();
    assert_eq!(scene.settle(), ["rent a-i1", "rent a-i2", "rent a-i3"]);
    scene.up(&[3, 2]);
    assert_eq!(scene.settle(), ["start on a-i2 a-i3"], "two are enough; the oldest has node rank 0");
    ready(&mut scene, &[2, 3]);
    scene.up(&[1]);
    assert_eq!(scene.settle(), Vec::<String>::new(), "it stands by");
    assert_eq!(scene.orders(1), [], "and is told nothing");
    at(&mut scene, 600);
    lose(&mut scene, 3, &[2]);
    assert_eq!(scene.settle(), ["failed: node 1: gone", "start on a-i1 a-i2", "rent a-i4"]);
    assert!(
        !matches!(scene.world.runs[&scene.run].state, RunState::Renting { .. }),
        "renting a spare is not its state"
    );
}

#[test]
fn a_spare_that_cannot_be_had_is_asked_for_once_a_minute_and_delays_nothing() {
    let mut scene = spare();
    scene.settle();
    scene.up(&[1, 2]);
    scene.settle();
    ready(&mut scene, &[1, 2]);
    let finding = Finding::new(Cause::NoCapacity, "none");
    scene.append(Event::RentFailed { instance: scene.run.instance(3), finding });
    let run = &scene.world.runs[&scene.run];
    assert_eq!((run.waits, run.restarts), (0, 0));
    assert_eq!(scene.decide(), []);
    let due = run_due(&scene.world, &scene.facts, &Policy::default(), &scene.run, run);
    assert_eq!(due.map(|due| due.0), Some(60 * SECOND));
    at(&mut scene, 60);
    assert_eq!(scene.settle(), ["rent a-i4"]);
}

/// One of the others boots and never comes up. Whoever gives machines back sooner than others are waited for begins anew
/// for ever, at a cost.
#[test]
fn machines_that_a_job_could_begin_with_are_not_given_back_before_it_does() {
    let mut scene = elastic();
    scene.facts.traits_mut().values_mut().for_each(|traits| traits.boots_within = Elapsed(40 * SECOND));
    let policy = Policy { incomplete: Elapsed(60 * SECOND), shrink: Elapsed(60 * SECOND), ..Policy::default() };
    scene.settle();
    scene.up(&[1, 2]);
    for number in [3, 4] {
        scene.append(Event::Launched { instance: scene.run.instance(number), handle: None, account: None });
    }
    for (seconds, begins) in [(90, false), (100, true)] {
        at(&mut scene, seconds);
        let decided = reconcile(&scene.world, &scene.facts, &policy);
        assert!(!decided.iter().any(|action| matches!(action, Action::Release { .. })), "{seconds} s: {decided:?}");
        assert_eq!(matches!(decided[..], [Action::Start { .. }]), begins, "{seconds} s: {decided:?}");
    }
}

#[test]
fn a_job_goes_on_with_fewer_machines_after_a_grace_and_with_all_when_they_are_back() {
    let mut scene = elastic();
    assert_eq!(scene.settle().len(), 4);
    scene.up(&[1, 2, 3, 4]);
    assert_eq!(scene.settle(), ["start on a-i1 a-i2 a-i3 a-i4"]);
    ready(&mut scene, &[1, 2, 3, 4]);
    assert_eq!(accumulate(&scene), 1);
    at(&mut scene, 1_000);
    // Two are lost, and there is no other.
    scene.facts.traits_mut().get_mut("p").unwrap().places = Some(2);
    lose(&mut scene, 2, &[]);
    let (attempt, lost) = (attempt(&scene), scene.run.instance(4));
    let gone = AttemptEnd::Failed { finding: Finding::new(Cause::InstanceLost, "gone"), exit_code: None };
    scene.append(Event::ReleaseIntended { instance: lost.clone(), lost_race: false });
    scene.append(Event::MemberEnded { attempt: attempt.clone(), instance: lost.clone(), end: gone });
    scene.gone(&lost);
    for number in [1, 3] {
        let end = AttemptEnd::Failed { finding: Finding::new(Cause::RankLost, "lost"), exit_code: None };
        scene.says(number, &attempt, AgentEvent::Ended { end });
    }
    assert_eq!(scene.settle(), ["failed: node 1: gone"]);
    let run = &scene.world.runs[&scene.run];
    let due = run_due(&scene.world, &scene.facts, &Policy::default(), &scene.run, run);
    assert_eq!(due.map(|due| due.0), Some(60 * SECOND), "that much is waited for others");
    at(&mut scene, 1_059);
    assert_eq!(scene.settle(), Vec::<String>::new());
    at(&mut scene, 1_060);
    assert_eq!(scene.settle(), ["start on a-i1 a-i3"]);
    assert_eq!(accumulate(&scene), 2, "the same batch in twice as many parts");
    ready(&mut scene, &[1, 3]);
    // The others are back.
    scene.facts.traits_mut().get_mut("p").unwrap().places = Some(4);
    assert_eq!(scene.settle(), ["rent a-i5", "rent a-i6"]);
    assert!(matches!(scene.world.runs[&scene.run].state, RunState::Running { .. }), "it goes on meanwhile");
    scene.up(&[5]);
    at(&mut scene, 1_200);
    assert_eq!(scene.settle(), Vec::<String>::new(), "it is interrupted once, for both");
    scene.up(&[6]);
    assert_eq!(scene.settle(), ["resize a-a2"]);
    for number in [1, 3] {
        let told = scene.orders(number);
        assert!(matches!(told[..], [AgentCommand::Stop { is_node_lost: false, within: Some(_), .. }]), "{told:?}");
        let end = AttemptEnd::Stopped { step: (number == 1).then_some(40) };
        scene.says(number, &AttemptId::new("a-a2"), AgentEvent::Ended { end });
    }
    assert_eq!(scene.settle(), ["Stopped { step: Some(40) }", "start on a-i1 a-i3 a-i5 a-i6"]);
    assert_eq!((accumulate(&scene), scene.world.runs[&scene.run].restarts), (1, 1), "it was no failure");
}

#[test]
fn a_single_machine_that_is_left_goes_on_where_the_job_can_do_with_one() {
    let text = "run: 'true'\nnum_nodes: {min: 1, max: 2}\nresources: {infra: ssh}\n";
    let mut scene = Scene::of(text, 2);
    scene.settle();
    scene.up(&[1]);
    at(&mut scene, 59);
    assert_eq!(scene.settle(), Vec::<String>::new());
    at(&mut scene, 60);
    assert_eq!(scene.settle(), ["start on a-i1"], "the other one is in doubt");
    assert!(matches!(scene.orders(1)[..], [AgentCommand::Start(_)]));
    let attempt = attempt(&scene);
    scene.append(Event::AttemptReady { attempt: attempt.clone(), ready: None });
    scene.up(&[2]);
    at(&mut scene, 120);
    assert_eq!(scene.settle(), ["resize a-a1"]);
    assert!(matches!(scene.orders(1)[..], [AgentCommand::Stop { .. }]));
    scene.says(1, &attempt, AgentEvent::Ended { end: AttemptEnd::Stopped { step: None } });
    assert_eq!(scene.settle(), ["start on a-i1 a-i2"]);
}

#[test]
fn a_job_that_needs_all_machines_waits_and_one_that_is_stopped_is_not_resized() {
    let mut fixed = Scene::new(3);
    fixed.settle();
    fixed.up(&[1, 2]);
    at(&mut fixed, 300);
    assert_eq!(fixed.settle(), Vec::<String>::new());
    let mut scene = elastic();
    scene.settle();
    scene.up(&[1, 2]);
    at(&mut scene, 120);
    assert_eq!(scene.settle(), ["start on a-i1 a-i2"]);
    ready(&mut scene, &[1, 2]);
    scene.up(&[3, 4]);
    let run = scene.run.clone();
    scene.append(Event::StopRequested { run, by: StopBy::User });
    at(&mut scene, 1_000);
    assert_eq!(scene.settle(), ["release a-i3", "release a-i4"], "those that compute save first");
}

/// What a run without enough memory comes to: the actions in order, and its micro-batches.
fn out_of_memory(recovery: &str, batch: u32) -> (Vec<String>, u32) {
    let text = TRAIN.replace("batch: 64", &format!("batch: {batch}"));
    let mut scene = Scene::of(&format!("{text}resources: {{infra: ssh, job_recovery: {recovery}}}\n"), 1);
    let mut done = Vec::new();
    for number in 1..9 {
        let actions = reconcile(&scene.world, &scene.facts, &Policy::default());
        if let [Action::End { .. }] = actions[..] {
            done.push("end".into());
            break;
        }
        done.extend(scene.settle());
        if number == 1 {
            scene.up(&[1]);
            done.extend(scene.settle());
        }
        let memory = Finding::new(Cause::OutOfMemory, "memory ran out");
        let end = AttemptEnd::Failed { finding: memory, exit_code: None };
        scene.append(Event::AttemptEnded { attempt: attempt(&scene), end });
    }
    let Work::Train(train) = &scene.world.runs[&scene.run].job.work else { panic!("it trains") };
    (done, train.accumulate)
}

#[test]
fn steps_are_divided_when_memory_ran_out_where_the_job_allows_it() {
    let (done, accumulate) = out_of_memory("{}", 64);
    assert_eq!((&done[..], accumulate), (&["rent a-i1".to_owned(), "start on a-i1".into(), "end".into()][..], 1));
    let (done, accumulate) = out_of_memory("{halve_micro_batch: true}", 4);
    let expected =
        ["rent a-i1", "start on a-i1", "2 micro-batches", "start on a-i1", "4 micro-batches", "start on a-i1", "end"];
    assert_eq!((done, accumulate), (expected.map(str::to_owned).to_vec(), 4), "one sample each, and no fewer");
}

#[test]
fn a_machine_that_ends_beside_an_attempt_is_replaced_after_that_was_written_down() {
    let mut scene = spare();
    scene.settle();
    scene.up(&[1, 2, 3]);
    scene.settle();
    ready(&mut scene, &[1, 2]);
    at(&mut scene, 100);
    let spare: InstanceId = scene.run.instance(3);
    scene.facts.machine_mut(&spare).sight = Some(Sight::Gone(None));
    let decided = scene.decide();
    assert!(matches!(&decided[..], [Action::RecordRelease { .. }]), "{decided:?}");
    scene.append(Event::ReleaseIntended { instance: spare.clone(), lost_race: false });
    scene.gone(&spare);
    scene.facts.machines.clear();
    assert_eq!(scene.settle(), ["rent a-i4"]);
}

#[test]
fn an_attempt_that_loses_its_machine_is_not_asked_to_grow() {
    let mut scene = elastic();
    scene.settle();
    scene.up(&[1, 2, 3]);
    at(&mut scene, 1_000);
    scene.settle();
    let members = [1, 2, 3];
    ready(&mut scene, &members);
    scene.up(&[4]);
    at(&mut scene, 2_000);
    let lost = scene.run.instance(1);
    scene.append(Event::ReleaseIntended { instance: lost.clone(), lost_race: false });
    scene.facts.machine_mut(&lost).sight = Some(Sight::Gone(None));
    let resizes = scene.decide().into_iter().filter(|action| matches!(action, Action::Resize { .. })).count();
    assert_eq!(resizes, 0, "its end is written down first");
}

#[test]
fn a_spare_is_released_as_soon_as_its_run_is_to_stop() {
    let mut scene = spare();
    scene.settle();
    scene.up(&[3, 2]);
    scene.settle();
    ready(&mut scene, &[2, 3]);
    scene.up(&[1]);
    scene.append(Event::StopRequested { run: scene.run.clone(), by: StopBy::User });
    assert_eq!(scene.settle(), ["release a-i1"], "the others save first");
}

/// Of three machines that are up one after the other, at least two always are: losing one begins no new wait.
#[test]
fn machines_that_come_and_go_do_not_put_off_a_start_with_fewer() {
    let mut scene = elastic();
    scene.settle();
    scene.up(&[1, 2]);
    let policy = Policy::default();
    let starts = |scene: &Scene| scene.decide().iter().any(|action| matches!(action, Action::Start { .. }));
    at(&mut scene, 50);
    assert_eq!(scene.settle(), Vec::<String>::new());
    scene.facts.traits_mut().values_mut().for_each(|traits| traits.boots_within = Elapsed(0));
    // Two others came, and the first two are lost.
    for (number, lost) in [(3, 1), (4, 2)] {
        scene.append(Event::Launched { instance: scene.run.instance(number), handle: None, account: None });
        let instance = scene.run.instance(number);
        scene.world.instances.get_mut(&instance).unwrap().intended = scene.facts.now;
        scene.append(Event::AgentUp { instance, started: scene.facts.now, incarnation: 0 });
        scene.append(Event::ReleaseIntended { instance: scene.run.instance(lost), lost_race: false });
        scene.gone(&scene.run.instance(lost));
    }
    assert!(!starts(&scene));
    at(&mut scene, policy.shrink.0 / SECOND);
    assert!(starts(&scene), "{:?}", scene.decide());
}
