//! A run that waits takes over the machine of one that has ended. Time is an argument.

mod scene;

use domain::event::{MachineTaken, RunEnd, Submitted};
use domain::rental::{BillingRule, MachineHandle};
use domain::run::{AttemptEnd, Outcome, Sight, Usage};
use domain::sweep::Trial;
use domain::{Elapsed, Event, Fence, InstanceId, Job, Money, Rate, RunId, SweepId, Timestamp};
use plan::{Action, Policy, bill, reconcile};
use scene::{SECOND, Scene};

const JOB: &str = "name: job\ntrain: {model: cnn, data: {path: d.csv}, epochs: 3, batch: 64}\n";

/// When the first run has ended, by its agent's meter.
const ENDED: Elapsed = Elapsed(100 * SECOND + 1);

/// A run whose work on a rented machine is done, and its machine; it boots for half a minute. `waits` is changed before
/// it is submitted as a second run, which waits.
fn scene(waits: impl FnOnce(&mut Submitted)) -> (Scene, InstanceId) {
    let mut scene = Scene::of(JOB, 0);
    for traits in scene.facts.traits_mut().values_mut() {
        traits.places = None;
        traits.billing = BillingRule { step: Elapsed(SECOND), least: Elapsed(60 * SECOND) };
    }
    let (run, machine) = (scene.run.clone(), scene.run.instance(1));
    for action in scene.decide() {
        scene.perform(action);
    }
    let (handle, account) = (Some(MachineHandle("m".into())), Some("123456789012".into()));
    scene.append(Event::Launched { instance: machine.clone(), handle, account });
    scene.append(Event::AgentUp { instance: machine.clone(), started: Timestamp(0), incarnation: 7 });
    let attempt = run.attempt(Fence(1));
    let (fence, instance, others) = (Fence(1), machine.clone(), Vec::new());
    scene.append(Event::AttemptIntended { run: run.clone(), attempt: attempt.clone(), fence, instance, others });
    scene.append(Event::AttemptEnded { attempt, end: AttemptEnd::Succeeded });
    scene.append(Event::Ended { run: run.clone(), end: RunEnd::Done { outcome: Outcome::Succeeded } });
    scene.world.runs.get_mut(&run).unwrap().user = ann();
    let known = scene.world.runs[&run].clone();
    let (job_hash, file) = (String::new(), "job.yaml".into());
    let mut second =
        Submitted { run: waiting(), job: known.job, plan: known.plan, job_hash, file, trial: None, user: ann() };
    waits(&mut second);
    scene.append(Event::Submitted(Box::new(second)));
    scene.facts.attended.insert(waiting());
    let seen = scene.facts.machine_mut(&machine);
    (seen.rent, seen.certain_rent) = (Some(Elapsed(ENDED.0 + 30 * SECOND)), Some(ENDED));
    (seen.sight, seen.silence) = (Some(Sight::Alive), Some(Elapsed(0)));
    (scene, machine)
}

fn ann() -> Option<String> {
    Some("ann".into())
}

fn waiting() -> RunId {
    RunId::new("b")
}

fn takes(scene: &Scene, policy: &Policy) -> bool {
    let decided = reconcile(&scene.world, &scene.facts, policy);
    let rents = decided.iter().any(|action| matches!(action, Action::Rent { .. }));
    let releases = decided.iter().any(|action| matches!(action, Action::Release { .. }));
    let takes = decided.iter().any(|action| matches!(action, Action::TakeOver { .. }));
    assert!(takes != releases && !(takes && rents), "{decided:?}");
    takes
}

#[track_caller]
fn check(waits: impl FnOnce(&mut Submitted), change: impl FnOnce(&mut Scene, &InstanceId), expected: bool) {
    let (mut scene, machine) = scene(waits);
    change(&mut scene, &machine);
    assert_eq!(takes(&scene, &Policy::default()), expected);
}

#[test]
fn a_machine_goes_to_a_run_that_waits_for_its_like() {
    check(|_| {}, |_, _| {}, true);
    check(|other| other.plan.offer.rate = Rate::from_micros_per_hour(999_999), |_, _| {}, false);
    check(|other| other.plan.offer.kind = "m2".into(), |_, _| {}, false);
    check(|other| other.user = Some("bob".into()), |_, _| {}, false);
    check(|other| other.user = None, |_, _| {}, false);
    let program = || Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job.work;
    check(|other| other.job.work = program(), |_, _| {}, false);
    let text = JOB.replace("d.csv", "e.csv");
    check(|other| other.job = Job::parse(&text, "job.yaml").unwrap().job, |_, _| {}, false);
    check(|other| other.job.project = Some("vision".into()), |_, _| {}, false);
    check(|_| {}, |scene, _| scene.facts.attended.retain(|run| *run != waiting()), false);
    check(
        |_| {},
        |scene, _| scene.append(Event::StopRequested { run: waiting(), by: domain::run::StopBy::User }),
        false,
    );
}

/// Two clients of a server of whom no name is known may be two people.
#[test]
fn clients_without_a_name_share_no_machine_but_within_a_sweep() {
    let nameless = |scene: &mut Scene| {
        let run = scene.run.clone();
        [run, waiting()].iter().for_each(|run| scene.world.runs.get_mut(run).unwrap().user = None);
    };
    check(|_| {}, |scene, _| nameless(scene), false);
    let trials = |scene: &mut Scene, sweeps: [&str; 2]| {
        nameless(scene);
        let runs = [scene.run.clone(), waiting()];
        for (number, (run, sweep)) in (1..).zip(runs.iter().zip(sweeps)) {
            let trial = Trial { sweep: SweepId::new(sweep), number, values: Vec::new() };
            scene.world.runs.get_mut(run).unwrap().trial = Some(trial);
        }
    };
    check(|_| {}, |scene, _| trials(scene, ["s", "s"]), true);
    check(|_| {}, |scene, _| trials(scene, ["s", "t"]), false);
}

/// `resources: {take_over: false}`, in either of the two jobs.
#[test]
fn a_job_may_keep_its_machines_to_itself() {
    check(|other| other.job.wants.own_machines = true, |_, _| {}, false);
    let own = |scene: &mut Scene| scene.world.runs.get_mut(&scene.run).unwrap().job.wants.own_machines = true;
    check(|_| {}, |scene, _| own(scene), false);
}

#[test]
fn a_machine_that_may_not_be_well_is_given_back() {
    check(|_| {}, |scene, machine| scene.facts.machine_mut(machine).certain_rent = None, false);
    check(|_| {}, |scene, machine| scene.facts.machine_mut(machine).sight = Some(Sight::Unknown), false);
    let noticed = |machine: &InstanceId| Event::ReclaimNoticed { instance: machine.clone(), at: Timestamp(1) };
    check(|_| {}, |scene, machine| scene.append(noticed(machine)), false);
    // Of an account that is not asked any more, no view has one.
    check(|_| {}, |scene, machine| scene.facts.machine_mut(machine).sight = None, false);
    let (scene, _) = scene(|_| {});
    assert!(!takes(&scene, &Policy { hands_over: false, ..Policy::default() }));
}

/// The kind of the machine, and of that for which the other run waits, whose job is changed.
#[track_caller]
fn check_kinds((has, waits): (&str, &str), change: impl FnOnce(&mut Job), expected: bool) {
    let waiting = |other: &mut Submitted| {
        other.plan.offer.kind = waits.into();
        change(&mut other.job);
    };
    let had = |scene: &mut Scene, machine: &InstanceId| {
        scene.world.instances.get_mut(machine).unwrap().offer.kind = has.into();
    };
    check(waiting, had, expected);
}

#[test]
fn a_spot_machine_is_taken_for_no_other_and_costs_no_more_than_a_run_allows() {
    let (spot, fixed) = ("r/m/spot", "r/m");
    check_kinds((spot, fixed), |_| {}, false);
    check_kinds((fixed, spot), |_| {}, false);
    check_kinds((spot, spot), |_| {}, true);
    // The first run has bid whatever its provider takes for sensible.
    let most = |job: &mut Job| job.wants.max_price = Some(Rate::from_micros_per_hour(2_000_000));
    check_kinds((spot, spot), most, false);
    check_kinds((fixed, fixed), most, true);
    let text = format!("{JOB}budget: {{max: $10}}\n");
    let budget = || Job::parse(&text, "job.yaml").unwrap().job.budget;
    check_kinds((spot, spot), |job| job.budget = budget(), false);
    check_kinds((fixed, fixed), |job| job.budget = budget(), true);
}

/// `gradus machines up` and `start` have programs, and a kind that names the machine where it is to be started.
#[test]
fn a_machine_that_is_a_users_own_or_of_a_gang_is_not_taken() {
    let program = || Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job.work;
    let own = |scene: &mut Scene, machine: &InstanceId| {
        scene.world.instances.get_mut(machine).unwrap().offer.kind = "r/m@i-0abc".into();
        scene.world.runs.get_mut(&scene.run).unwrap().job.work = program();
    };
    let waits = |other: &mut Submitted| {
        other.plan.offer.kind = "r/m@i-0abc".into();
        other.job.work = program();
    };
    check(waits, own, false);
    let two = |job: &mut Job| (job.wants.nodes, job.wants.on_demand) = (vec![2], 1);
    check(|_| {}, |scene, _| two(&mut scene.world.runs.get_mut(&scene.run).unwrap().job), false);
    check(|other| two(&mut other.job), |_, _| {}, false);
}

/// Half an hour of a lease that was granted for the run before, at a dollar an hour, and the boot.
#[test]
fn a_budget_pays_for_what_nobody_could_end() {
    let budget = |text: &str| {
        let job = Job::parse(&format!("{JOB}budget: {{max: {text}}}\n"), "job.yaml").unwrap().job;
        move |other: &mut Submitted| other.job.budget = job.budget
    };
    check(budget("$0.60"), |_, _| {}, true);
    check(budget("$0.50"), |_, _| {}, false);
}

/// What is decided, as events; the machine is gone in the end.
fn taken(scene: &Scene, machine: &InstanceId) -> (MachineTaken, Event) {
    let decided = scene.decide();
    let [Action::TakeOver { run, instance, from, usage, reserve }] = &decided[..] else { panic!("{decided:?}") };
    let known = scene.world.instances[machine].clone();
    assert_eq!((from, usage.elapsed), (machine, ENDED));
    let taken = MachineTaken {
        run: run.clone(),
        instance: instance.clone(),
        machine: machine.clone(),
        token: known.token,
        offer: known.offer,
        reserved: *reserve,
        handle: known.handle,
        account: known.account,
        intended: known.intended,
        started: Timestamp(0),
        incarnation: 7,
        before: usage.elapsed,
    };
    (taken, Event::Released { instance: machine.clone(), usage: *usage })
}

#[test]
fn two_runs_pay_what_the_provider_bills_for_one_machine() {
    let (mut scene, machine) = scene(|_| {});
    let (taken, released) = taken(&scene, &machine);
    let own = taken.instance.clone();
    scene.append(Event::MachineTaken(Box::new(taken)));
    scene.append(released);
    assert_eq!(scene.world.holder(&machine), Some(&own));
    assert_eq!(scene.world.instances[&own].account.as_deref(), Some("123456789012"));
    scene.append(Event::Ended { run: waiting(), end: RunEnd::Done { outcome: Outcome::Succeeded } });
    scene.append(Event::ReleaseIntended { instance: own.clone(), lost_race: false });
    // By the provider the machine was there for 250.3 s, of which it bills 251.
    let whole = Usage { started: Timestamp(0), elapsed: Elapsed(250_300_000) };
    scene.facts.machine_mut(&own).sight = Some(Sight::Gone(Some(scene.world.instances[&own].part_of(whole))));
    let decided = scene.decide();
    let [Action::Bill { .. }, Action::RecordRelease { usage, .. }] = &decided[..] else { panic!("{decided:?}") };
    assert_eq!((usage.started, usage.elapsed), (Timestamp(ENDED.0 as i64), Elapsed(251 * SECOND - ENDED.0)));
    scene.append(Event::Released { instance: own, usage: *usage });
    let total = |run: &RunId| bill(&scene.world, &scene.world.runs[run]).unwrap().total;
    let rate = Rate::from_micros_per_hour(1_000_000);
    assert_eq!(total(&scene.run) + total(&waiting()), rate.cost(Elapsed(251 * SECOND)));
    assert_eq!(total(&scene.run), rate.cost(ENDED));
    assert_eq!(scene.world.holder(&machine), None);
}

/// What the agent has not reported when its run ends arrives later.
#[test]
fn a_late_report_belongs_to_the_run_that_it_was_made_for() {
    let (mut scene, machine) = scene(|_| {});
    let (taken, released) = taken(&scene, &machine);
    let own = taken.instance.clone();
    scene.append(Event::MachineTaken(Box::new(taken)));
    scene.append(released);
    let (run, first, second) = (waiting(), scene.run.attempt(Fence(1)), waiting().attempt(Fence(1)));
    let (attempt, instance, others) = (second.clone(), own.clone(), Vec::new());
    scene.append(Event::AttemptIntended { run: run.clone(), attempt, fence: Fence(1), instance, others });
    let run_of = |machine: &InstanceId, attempt| plan::run_of_report(&scene.world, machine, attempt);
    assert_eq!((run_of(&machine, &first), run_of(&machine, &second)), (Some(scene.run.clone()), Some(run)));
    // No agent reports for an attempt that was never on its machine.
    let other = InstanceId::new("other-i1");
    assert_eq!((run_of(&other, &first), run_of(&other, &second)), (None, None));
    // The first run is not in memory any more.
    let nothing = plan::World::default();
    assert_eq!(plan::run_of_report(&nothing, &machine, &first), Some(scene.run.clone()));
    assert_eq!(plan::run_of_report(&nothing, &machine, &second), None);
}

/// A minute is billed once, and by whoever has the machine last.
#[test]
fn the_least_that_is_billed_is_billed_once() {
    let (mut scene, machine) = scene(|_| {});
    scene.facts.machine_mut(&machine).certain_rent = Some(Elapsed(20 * SECOND));
    let decided = scene.decide();
    let [Action::TakeOver { usage, .. }] = &decided[..] else { panic!("{decided:?}") };
    assert_eq!(usage.elapsed, Elapsed(20 * SECOND));
}

/// The loop ended between the two events.
#[test]
fn what_was_written_down_by_half_is_completed() {
    let (mut scene, machine) = scene(|_| {});
    let (taken, released) = taken(&scene, &machine);
    scene.append(Event::MachineTaken(Box::new(taken)));
    let mut replayed = scene.world.clone();
    replayed.find_open();
    assert_eq!(replayed, scene.world);
    let Event::Released { usage, .. } = released else { unreachable!() };
    let decided = scene.decide();
    assert!(decided.contains(&Action::RecordRelease { instance: machine, usage }), "{decided:?}");
    assert!(
        !decided.iter().any(|action| matches!(action, Action::Release { .. } | Action::Rent { .. })),
        "{decided:?}"
    );
    assert_eq!(scene.world.runs[&waiting()].bill.as_ref().map(|bill| bill.total), None::<Money>);
}
