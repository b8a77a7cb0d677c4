//! Sweeps by the hundred: values, halving, and complete searches on a simulated machine, killed at any event.

mod halving;
mod limits;
mod programs;
mod scene;
mod values;

use std::collections::BTreeMap;

use domain::run::{AttemptEnd, BillAdjustment, BilledKind, RunState, StopBy};
use domain::sweep::{Asha, Between, Goal, Known, Method, Metric, Parameter, Range, SweepEnd};
use domain::{Event, Money, Offer, Plan, RunId, Sweep, SweepId, Timestamp, Work};

use self::scene::{Scene, model};
use super::{Bound, bound, crowded, job, misfit, most, values};
use crate::Action;
use crate::world::{SweepState, World};

fn sweep(method: Method, trials: Option<u32>) -> Sweep {
    let numbers = |min, max, log| Range::Numbers(Between { min, max, log, points: Some(3) });
    let parameter = |key: &str, range| Parameter { key: key.into(), range };
    Sweep {
        parameters: vec![
            parameter("optimizer.adamw.lr", numbers(1e-4, 1e-1, true)),
            parameter("batch", Range::Integers(Between { min: 8, max: 11, log: false, points: None })),
            parameter("model", Range::Choices(vec!["mlp".into(), "cnn".into()])),
        ],
        method,
        trials,
        metric: Some(Metric::Accuracy),
        goal: Goal::Maximize,
        seed: 7,
        parallel: 1,
        max_failed: 3,
    }
}

fn asha(min_epochs: u32, reduction_factor: u32) -> Method {
    Method::Asha(Asha { min_epochs, max_epochs: None, reduction_factor })
}

fn methods() -> [Sweep; 3] {
    [sweep(Method::Grid, None), sweep(Method::Random, Some(13)), sweep(asha(1, 3), Some(17))]
}

#[test]
fn killed_at_any_event_a_sweep_has_the_same_trials() {
    let (mut killed, mut trials) = (0, 0);
    for (number, sweep) in methods().into_iter().enumerate() {
        // A grid has 24 trials, of which more than three may fail.
        let sweep = Sweep { max_failed: 100, ..sweep };
        for seed in 0..20 {
            let mut undisturbed = Scene::new(&sweep, None, seed);
            undisturbed.run();
            assert!(matches!(undisturbed.sweep().state, SweepState::Ended { how: SweepEnd::Done { .. } }));
            assert_eq!(undisturbed.most_live, 1);
            trials += undisturbed.table().len();
            for every in [1, 2, 3, 5, 7, 11, 23, 101] {
                let mut scene = Scene::new(&sweep, None, seed);
                scene.kills = Some(every);
                scene.run();
                killed += scene.log.len() / every as usize;
                assert_eq!(scene.table(), undisturbed.table(), "method {number}, seed {seed}, killed at each {every}");
                assert_eq!(World::replay(&scene.log).unwrap(), scene.world);
                assert_eq!(scene.sweep().total, Some(scene.billed()), "the bill is the sum");
            }
        }
    }
    assert!(killed > 10_000 && trials > 900, "{killed} kills, {trials} trials");
}

#[test]
fn no_rung_sends_on_more_than_its_share() {
    for seed in 0..200 {
        let factor = 2 + (seed % 3) as u32;
        let parallel = 1 + (seed / 3 % 4) as u32;
        let halving =
            Sweep { seed, parallel, max_failed: 100, ..sweep(asha(1, factor), Some(10 + (seed % 30) as u32)) };
        let mut scene = Scene::new(&halving, None, seed);
        scene.run();
        assert!(scene.most_live <= parallel as usize, "seed {seed}: {} machines at once", scene.most_live);
        assert!(scene.world.runs.len() as u32 == most(&halving), "seed {seed}");
        // Each time that a trial went on it was among the best share of its rung, by what was known then.
        let mut world = World::default();
        let mut gone_on: BTreeMap<u32, Vec<RunId>> = BTreeMap::new();
        for record in &scene.log {
            if let Event::ResumeRequested { run, epochs: Some(_), .. } = &record.event {
                let last = *world.runs[run].results.last().unwrap();
                let at_rung =
                    |run: &crate::Run| run.results.iter().find(|result| result.epochs == last.epochs).copied();
                let mut values: Vec<f64> = world.runs.values().filter_map(|run| at_rung(run)?.value).collect();
                values.sort_by(|one, other| other.total_cmp(one));
                let share = values.len() / factor as usize;
                assert!(values[..share].contains(&last.value.unwrap()), "seed {seed}: {run} was not among the best");
                let sent = gone_on.entry(last.epochs).or_default();
                assert!(!sent.contains(run) && sent.len() < share, "seed {seed}: {run}");
                sent.push(run.clone());
            }
            world.apply(record).unwrap();
        }
        let promised = bound(&scene.sweep().job, &halving, &scene.sweep().plan.offer, &Known::default());
        let epochs: u32 = scene.world.runs.values().filter_map(|run| run.results.last()).map(|last| last.epochs).sum();
        assert!(u64::from(epochs) <= promised.epochs.unwrap(), "seed {seed}: {epochs} of {promised:?}");
        let starts: usize = scene.world.runs.values().map(|run| run.attempts.len()).sum();
        assert!(starts as u64 <= promised.runs.unwrap(), "seed {seed}: {starts} of {promised:?}");
    }
}

#[test]
fn the_total_of_a_sweep_that_has_ended_follows_adjustments_to_its_trials_bills() {
    let mut scene = Scene::new(&sweep(Method::Random, Some(3)), None, 1);
    scene.run();
    let before = scene.sweep().total.unwrap();
    let trial = scene.sweep().trials[1].clone();
    let adjust = |scene: &mut Scene, known: i64, amount: i64| {
        let adjustment = BillAdjustment {
            instance: scene.world.runs[&trial].instances[0].clone(),
            kind: BilledKind::Machine,
            at: Timestamp(0),
            amount: Money::from_micros(amount),
        };
        let (run, source, before) = (trial.clone(), "bill.csv".to_owned(), Money::from_micros(known));
        let event = Event::BillAdjusted { run, source, before, adjustments: vec![adjustment] };
        assert!(scene.append(event).is_ok());
    };
    adjust(&mut scene, 0, 250_000);
    adjust(&mut scene, 250_000, -50_000);
    assert_eq!(scene.sweep().total, Some(before + Money::from_micros(200_000)));
}

#[test]
fn the_budget_is_never_exceeded_and_more_of_it_goes_on() {
    let (mut stopped, mut done) = (0, 0);
    for seed in 0..200 {
        let parallel = 1 + (seed % 4) as u32;
        let method = if seed % 2 == 0 { asha(1, 2) } else { Method::Random };
        let search = Sweep { seed, parallel, max_failed: 100, ..sweep(method, Some(12)) };
        // Twelve trials of a dollar a second take from 12 to some 60 dollars.
        let budget = format!("${}", 10 + seed % 90);
        let mut scene = Scene::new(&search, Some(&budget), seed);
        // What is kept back to save is worth so many restarts of the loop, but not one at each event.
        scene.kills = (seed % 5 > 0).then_some(6 + seed % 5);
        scene.run();
        let max: Money = budget.parse().unwrap();
        assert!(scene.billed() <= max, "seed {seed}: {} of {max}", scene.billed());
        assert_eq!(scene.sweep().total, Some(scene.billed()));
        match &scene.sweep().state {
            SweepState::Ended { how: SweepEnd::Stopped { by: StopBy::Budget, .. } } => stopped += 1,
            _ => {
                done += 1;
                continue;
            }
        }
        let more = Event::SweepResumeRequested {
            sweep: SweepId::new("s"),
            budget: Some("$500".parse().unwrap()),
            deadline: None,
            accept_data_change: false,
        };
        let _ = scene.append(more);
        scene.run();
        assert!(matches!(scene.sweep().state, SweepState::Ended { how: SweepEnd::Done { .. } }), "seed {seed}");
        assert_eq!(scene.world.runs.len(), 12);
        assert!(scene.world.runs.values().all(|run| run.state.is_final() && run.bill.is_some()));
    }
    assert!(stopped > 20 && done > 20, "{stopped} stopped, {done} done");
}

#[test]
fn a_sweep_that_is_stopped_and_goes_on_has_the_same_trials() {
    for (number, sweep) in methods().into_iter().enumerate() {
        let sweep = Sweep { max_failed: 100, ..sweep };
        let mut undisturbed = Scene::new(&sweep, None, 3);
        undisturbed.run();
        for after in [1, 2, 3, 5, 8, 13, 21, 34] {
            let mut scene = Scene::new(&sweep, None, 3);
            for _ in 0..after {
                let _ = scene.moment();
            }
            if scene.sweep().state.is_final() {
                continue;
            }
            let _ = scene.append(Event::SweepStopRequested { sweep: SweepId::new("s"), by: StopBy::User });
            scene.run();
            assert!(matches!(scene.sweep().state, SweepState::Ended { how: SweepEnd::Stopped { .. } }));
            let again = Event::SweepResumeRequested {
                sweep: SweepId::new("s"),
                budget: None,
                deadline: None,
                accept_data_change: false,
            };
            let _ = scene.append(again);
            scene.run();
            assert_eq!(scene.table(), undisturbed.table(), "method {number}, stopped after {after} moments");
        }
    }
}

#[test]
fn a_deadline_ends_a_search_without_a_number() {
    let endless = Sweep { max_failed: 10_000, ..sweep(Method::Random, None) };
    let mut scene = Scene::new(&endless, None, 1);
    let mut job = scene.sweep().job.clone();
    job.deadline = Some("30s".parse().unwrap());
    let Event::SweepSubmitted(submitted) = &mut scene.log[0].event else { panic!("no sweep") };
    submitted.job = job;
    scene.world = World::replay(&scene.log).unwrap();
    scene.run();
    let SweepState::Ended { how: SweepEnd::Stopped { by, best } } = &scene.sweep().state else { panic!("not stopped") };
    assert_eq!(*by, StopBy::Deadline);
    assert!(best.is_some() && scene.world.runs.len() > 3);
}

#[test]
fn what_is_good_enough_is_seen_in_the_log() {
    let mut scene = Scene::new(&Sweep { max_failed: 100, ..sweep(asha(1, 2), Some(12)) }, None, 1);
    let Event::SweepSubmitted(submitted) = &mut scene.log[0].event else { panic!("no sweep") };
    let Work::Train(train) = &mut submitted.job.work else { panic!("no training") };
    train.stop = Some(domain::train::Stop { accuracy: "30%".parse().ok(), epochs: None, patience: None });
    scene.world = World::replay(&scene.log).unwrap();
    scene.run();
    assert!(matches!(scene.sweep().state, SweepState::Ended { how: SweepEnd::Done { .. } }));
    let enough = |run: &&crate::Run| run.results.iter().any(|result| result.is_enough);
    assert!(scene.world.runs.values().filter(enough).count() > 1);
    for run in scene.world.runs.values() {
        let first = run.results.iter().position(|result| result.is_enough);
        assert!(first.is_none_or(|first| first + 1 == run.results.len()), "{:?} went on", run.results);
    }
}

#[test]
fn too_many_failures_end_a_sweep_with_the_first_as_the_reason() {
    let careful = Sweep { max_failed: 0, ..sweep(Method::Grid, None) };
    let mut scene = Scene::new(&careful, None, 5);
    scene.run();
    let SweepState::Ended { how: SweepEnd::Failed { finding, .. } } = &scene.sweep().state else {
        panic!("{:?}", scene.sweep().state)
    };
    assert!(
        finding.message.contains("1 trials have failed; at most 0 may; the first: the loss"),
        "{}",
        finding.message
    );
    assert_eq!(scene.table().iter().filter(|row| row.2 == "failed").count(), 1);
}

#[test]
fn what_does_not_fit_is_found_before_it_starts() {
    let mut scene = Scene::new(&sweep(Method::Grid, None), None, 0);
    let known = Known { samples: Some([10, 5, 5]), ..Known::default() };
    let offer = scene.sweep().plan.offer.clone();
    let found = misfit(&scene.sweep().job, &scene.sweep().search, &offer, &known).unwrap();
    assert_eq!((found.number, found.values[1].value.as_i64()), (7, Some(11)), "a batch of 11 of 10 samples");
    assert!(found.problems[0].message.contains("more than the 10 training samples"), "{found:?}");
    assert_eq!(misfit(&scene.sweep().job, &scene.sweep().search, &offer, &Known::default()), None);
    let crowd = Sweep { parallel: 9, ..sweep(Method::Grid, None) };
    let rented = &scene.sweep().plan;
    assert_eq!(crowded(&scene.sweep().job, &crowd, rented), None, "each trial has a machine of its own");
    let here = Plan { offer: Offer { provider: "local".into(), ..offer.clone() }, ..rented.clone() };
    let problem = crowded(&scene.sweep().job, &crowd, &here).unwrap();
    assert_eq!(problem.message, "9 trials at a time have 9 ranks, and `m1` has 8 cores");
    let shared = Sweep { parallel: 4, ..sweep(Method::Grid, None) };
    let threads = |offer: &Offer| match job(&scene.sweep().job, &shared, &values(&shared, 1), offer).unwrap().work {
        Work::Train(train) => train.threads,
        Work::Command(_) => None,
    };
    assert_eq!(threads(&here.offer), Some(2), "trials share the cores");
    assert_eq!(threads(&offer), None);
    scene.run();
}

#[test]
fn trials_on_data_that_has_changed_are_compared_only_if_it_is_accepted() {
    let again = |accept_data_change| Event::SweepResumeRequested {
        sweep: SweepId::new("s"),
        budget: None,
        deadline: None,
        accept_data_change,
    };
    let search = Sweep { max_failed: 100, ..sweep(Method::Random, Some(8)) };
    let mut undisturbed = Scene::new(&search, None, 4);
    undisturbed.data = Some("one");
    undisturbed.run();
    assert!(matches!(undisturbed.sweep().state, SweepState::Ended { how: SweepEnd::Done { .. } }));
    for (accepts, parallel) in [(true, 1), (false, 1), (true, 2), (false, 2)] {
        let search = Sweep { parallel, ..search.clone() };
        let mut scene = Scene::new(&search, None, 4);
        scene.data = Some("one");
        while scene.world.runs.len() < 4 {
            let _ = scene.moment();
        }
        scene.data = Some("two");
        scene.run();
        let SweepState::Ended { how: SweepEnd::Failed { finding, best } } = &scene.sweep().state else {
            panic!("{:?}", scene.sweep().state)
        };
        assert!(finding.message.contains("has read other data than `s-t1`") && best.is_some(), "{finding:?}");
        assert!(finding.hint.as_ref().is_some_and(|hint| hint.contains("--accept-data-change")), "{finding:?}");
        assert!(scene.world.runs.len() < 8 && scene.world.runs.values().all(|run| run.bill.is_some()));
        if !accepts {
            scene.data = Some("one");
        }
        let _ = scene.append(again(accepts));
        scene.run();
        assert!(matches!(scene.sweep().state, SweepState::Ended { how: SweepEnd::Done { .. } }), "{accepts}");
        assert_eq!(scene.world.runs.len(), 8);
        let sweep = scene.sweep();
        assert_eq!(sweep.set_aside.is_empty(), accepts, "{:?}", sweep.set_aside);
        for (id, run) in &scene.world.runs {
            let is_compared = !sweep.set_aside.contains(id);
            assert!(!is_compared || matches!(run.state, RunState::Done { .. }), "{id} is {:?}", run.state);
        }
        if accepts && parallel == 1 {
            assert_eq!(scene.table(), undisturbed.table());
        }
    }
}

#[test]
fn a_trial_whose_work_is_done_when_its_sweep_stops_is_not_asked_to_stop() {
    let mut scene = Scene::new(&Sweep { parallel: 1, ..sweep(Method::Random, Some(4)) }, None, 0);
    while scene.world.attempts.is_empty() {
        scene.moment().unwrap();
    }
    let (attempt, run) =
        scene.world.attempts.iter().map(|(id, attempt)| (id.clone(), attempt.run.clone())).next().unwrap();
    scene.append(Event::SweepStopRequested { sweep: SweepId::new("s"), by: StopBy::User }).unwrap();
    scene.append(Event::AttemptEnded { attempt, end: AttemptEnd::Trained { model: model(Some(0.5)) } }).unwrap();
    // Both are due at once, as after a crash between the two records.
    let decided = crate::reconcile(&scene.world, &scene.facts(), &crate::Policy::default());
    assert!(decided.iter().any(|it| matches!(it, Action::End { run: ended, .. } if *ended == run)), "{decided:?}");
    assert!(!decided.iter().any(|it| matches!(it, Action::Stop { .. })), "{decided:?}");
    scene.run();
    assert!(matches!(scene.world.runs[&run].state, RunState::Done { .. }));
}
