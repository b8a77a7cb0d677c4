//! Sweeps by the hundred: values, halving, and whole searches against a made-up machine, killed at any event.

use std::collections::{BTreeMap, BTreeSet};

use domain::event::{RentIntended, Submitted, SweepSubmitted};
use domain::rank::Exported;
use domain::run::{AttemptEnd, InstanceState, Sight, StopBy, Usage};
use domain::sweep::{Asha, Between, Goal, Known, Method, Metric, Parameter, Range, SweepEnd};
use domain::{
    Bytes, Cause, Elapsed, Event, Finding, Job, Money, Node, Offer, Rate, Record, RunId, Sweep, SweepId, Timestamp,
    Work,
};
use proptest::prelude::*;

use super::*;
use crate::world::{AttemptState, Measured, SweepState, World};
use crate::{Action, Facts, Policy};

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
        metric: Metric::Accuracy,
        goal: Goal::Maximize,
        seed: 7,
        parallel: 1,
        max_failed: 3,
    }
}

fn asha(min_epochs: u32, reduction_factor: u32) -> Method {
    Method::Asha(Asha { min_epochs, max_epochs: None, reduction_factor })
}

#[test]
fn a_grid_has_every_combination_once() {
    let grid = sweep(Method::Grid, None);
    assert_eq!((grid.grid_size(), most(&grid)), (24, 24));
    let said = |number| values(&grid, number).iter().map(domain::sweep::Setting::say).collect::<Vec<_>>().join(" ");
    let all: BTreeSet<String> = (1..=24).map(said).collect();
    assert_eq!(all.len(), 24);
    assert_eq!([said(1), said(2), said(3), said(24)], ["1e-4 8 mlp", "1e-4 8 cnn", "1e-4 9 mlp", "0.1 11 cnn"]);
    assert!(all.contains("0.00316228 10 cnn"), "{all:?}");
}

#[test]
fn draws_depend_on_seed_trial_and_key_alone() {
    let drawn = sweep(Method::Random, Some(100));
    let mut fewer = drawn.clone();
    fewer.parameters.remove(1);
    let other = Sweep { seed: 8, ..drawn.clone() };
    let mut seen = BTreeSet::new();
    for number in 1..=200 {
        let all = values(&drawn, number);
        assert_eq!(all, values(&drawn, number));
        let kept: Vec<_> = all.iter().filter(|setting| setting.key != "batch").cloned().collect();
        assert_eq!(kept, values(&fewer, number), "another key changes nothing");
        assert_ne!(all, values(&other, number));
        seen.insert(all[0].value.to_string());
    }
    assert_eq!(seen.len(), 200);
}

#[test]
fn draws_cover_their_ranges_evenly() {
    let drawn = sweep(Method::Random, None);
    let (mut below, mut counts, mut words) = (0, BTreeMap::new(), 0);
    for number in 1..=4000 {
        let settings = values(&drawn, number);
        below += u32::from(settings[0].value.as_f64().unwrap() < 10f64.powf(-2.5));
        *counts.entry(settings[1].value.as_i64().unwrap()).or_insert(0) += 1;
        words += u32::from(settings[2].value == "mlp");
    }
    assert!((1850..2150).contains(&below), "half of a logarithmic range lies below its geometric mean: {below}");
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [8, 9, 10, 11]);
    assert!(counts.values().all(|count| (900..1100).contains(count)), "{counts:?}");
    assert!((1850..2150).contains(&words), "{words}");
}

proptest! {
    #[test]
    fn draws_stay_in_their_ranges(min in -1000i64..1000, length in 1i64..100_000, seed: u64, number in 1u32..10_000, log: bool) {
        let log = log && min > 0;
        let max = min + length;
        let drawn = Sweep {
            parameters: vec![
                Parameter { key: "a".into(), range: Range::Integers(Between { min, max, log, points: None }) },
                Parameter { key: "b".into(), range: Range::Numbers(Between { min: min as f64 / 7.0, max: max as f64 / 7.0, log, points: None }) },
            ],
            seed,
            ..sweep(Method::Random, None)
        };
        let settings = values(&drawn, number);
        prop_assert!((min..=max).contains(&settings[0].value.as_i64().unwrap()));
        let value = settings[1].value.as_f64().unwrap();
        prop_assert!((min as f64 / 7.0..=max as f64 / 7.0).contains(&value), "{value}");
    }
}

#[test]
fn rungs_are_powers_and_end_at_the_last_epoch() {
    let check = |method, epochs, expected: &[u32]| assert_eq!(rungs(&sweep(method, None), epochs), expected);
    check(asha(1, 3), 9, &[1, 3, 9]);
    check(asha(1, 3), 10, &[1, 3, 9, 10]);
    check(asha(2, 4), 100, &[2, 8, 32, 100]);
    check(asha(5, 2), 5, &[5]);
    check(Method::Random, 7, &[7]);
    check(Method::Asha(Asha { min_epochs: 1, max_epochs: Some(4), reduction_factor: 2 }), 9, &[1, 2, 4]);
}

fn rested(target: u32, values: &[(u32, f64)]) -> Standing {
    let measured = |(epochs, value): &(u32, f64)| Measured { epochs: *epochs, value: Some(*value), is_enough: false };
    let results = values.iter().map(measured).collect();
    Standing { target, results, state: Stand::Rested }
}

#[test]
fn the_best_third_goes_on_from_the_highest_rung_first() {
    let halving = sweep(asha(1, 3), Some(9));
    let at_one = |values: &[f64]| -> Vec<Standing> { values.iter().map(|value| rested(1, &[(1, *value)])).collect() };
    let check = |trials: &[Standing], expected| assert_eq!(next(&halving, 9, trials, 0), expected, "{trials:?}");
    check(&[], Move::Begin(1));
    check(&at_one(&[0.5, 0.6]), Move::Begin(3));
    check(&at_one(&[0.5, 0.6, 0.4]), Move::GoOn(2, 3));
    let mut trials = at_one(&[0.5, 0.6, 0.4]);
    trials[1] = rested(3, &[(1, 0.6), (3, 0.7)]);
    check(&trials, Move::Begin(4));
    // Of six the best two may go on; one of them has.
    trials.extend(at_one(&[0.65, 0.7, 0.1]));
    check(&trials, Move::GoOn(5, 3));
    trials[4] = rested(3, &[(1, 0.7), (3, 0.9)]);
    // Now two have, as many as may, though another one is better than the first of them was.
    check(&trials, Move::Begin(7));
    trials.extend(at_one(&[0.2, 0.3, 0.1]));
    check(&trials, Move::GoOn(4, 3));
    trials[3] = rested(3, &[(1, 0.65), (3, 0.8)]);
    check(&trials, Move::GoOn(5, 9));
    trials[4] = rested(9, &[(1, 0.7), (3, 0.9), (9, 0.95)]);
    check(&trials, Move::Over);
    // What is not a number never goes on, and less can be better.
    let mut unknown = at_one(&[0.5, 0.6, 0.4]);
    unknown[1].results[0].value = None;
    check(&unknown, Move::Begin(4));
    let least = Sweep { goal: Goal::Minimize, ..halving.clone() };
    assert_eq!(next(&least, 9, &at_one(&[0.5, 0.6, 0.4]), 0), Move::GoOn(3, 3));
}

#[test]
fn a_trial_that_is_good_enough_keeps_its_place_and_does_not_go_on() {
    let halving = sweep(asha(1, 2), Some(4));
    let check = |trials: &[Standing], expected| assert_eq!(next(&halving, 4, trials, 0), expected, "{trials:?}");
    let mut trials: Vec<Standing> = [0.5, 0.9].iter().map(|value| rested(1, &[(1, *value)])).collect();
    check(&trials, Move::GoOn(2, 2));
    trials[1].results[0].is_enough = true;
    check(&trials, Move::Begin(3));
    trials.extend([0.6, 0.4].iter().map(|value| rested(1, &[(1, *value)])));
    // Two of four may go on, and one of the two is good enough.
    check(&trials, Move::GoOn(3, 2));
    trials[2] = rested(2, &[(1, 0.6), (2, 0.95)]);
    trials[2].results[1].is_enough = true;
    check(&trials, Move::Over);
}

#[test]
fn what_is_good_enough_is_seen_in_the_log() {
    let mut scene = Scene::new(&Sweep { max_failed: 100, ..sweep(asha(1, 2), Some(12)) }, None, 1);
    let Event::SweepSubmitted(submitted) = &mut scene.log[0].event else { panic!("no sweep") };
    let Work::Train(train) = &mut submitted.job.work else { panic!("no training") };
    train.stop = Some(domain::train::Stop { accuracy: "30%".parse().ok(), epochs: None });
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
fn failures_are_borne_up_to_a_number() {
    let random = sweep(Method::Random, Some(8));
    let failed = Standing { target: 9, results: Vec::new(), state: Stand::Failed };
    let trials = vec![failed; 4];
    assert_eq!(next(&random, 9, &trials[..3], 0), Move::Begin(4));
    assert_eq!(next(&random, 9, &trials, 0), Move::TooManyFailed);
    assert_eq!(next(&random, 9, &trials, 4), Move::Begin(5), "what was forgiven does not count");
}

/// What one trial of a made-up search is worth after some epochs: a function of its values, so that any order of
/// events gives the same.
fn worth(run: &crate::Run, seed: u64) -> (Option<f64>, u32, bool) {
    let Work::Train(train) = &run.job.work else { panic!("no training") };
    let epochs = train.last_epoch();
    let text = serde_json::to_string(&run.trial.as_ref().unwrap().values).unwrap();
    let mix = |salt: u64| {
        let start = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt;
        text.bytes()
            .fold(start, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29))
    };
    let share = |salt| (mix(salt) >> 11) as f64 / (1u64 << 53) as f64;
    let value = share(1) * (1.0 - 0.5f64.powi(epochs as i32)) + 0.1 * share(u64::from(epochs) + 2);
    (Some(value), epochs, share(99) < 0.1)
}

/// A row of the table: number, values, state, epochs and result.
type Shown = (u32, String, &'static str, Option<u32>, Option<f64>);

/// A made-up machine with its loop: what is decided is done, and each thing may be the last before a kill.
struct Scene {
    log: Vec<Record>,
    world: World,
    now: i64,
    seed: u64,
    /// Kills the loop at this event, and at each so many after it; none kills nothing.
    kills: Option<u64>,
    /// Moments that an instance has lived.
    lived: BTreeMap<domain::InstanceId, u64>,
    most_live: usize,
}

struct Killed;

const RATE: i64 = 3_600_000_000;
/// Length of a moment, in microseconds.
const MOMENT: u64 = 500_000;

fn base(sweep: &Sweep, budget: Option<&str>) -> Job {
    let limit = budget.map(|budget| format!("budget: {{max: {budget}}}\n")).unwrap_or_default();
    let text = format!("train:\n  model: mlp\n  data: {{path: d.csv}}\n  epochs: 9\n  batch: 8\n{limit}");
    let job = Job::parse(&text, "job.yaml").unwrap().job;
    Job { sweep: Some(sweep.clone()), ..job }
}

impl Scene {
    fn new(sweep: &Sweep, budget: Option<&str>, seed: u64) -> Scene {
        let job = base(sweep, budget);
        let node = Node { cpu: "sim".into(), cores: 8, memory: Bytes(1 << 40), disk_free: Bytes(1 << 40) };
        let rate = Rate::from_micros_per_hour(RATE);
        let offer = Offer { provider: "sim".into(), kind: "m1".into(), node, rate, price_source: "test".into() };
        let plan = plan(&job, &offer, &Known::default()).unwrap();
        let submitted = SweepSubmitted {
            sweep: SweepId::new("s"),
            job,
            plan,
            known: Known::default(),
            job_hash: String::new(),
            file: "job.yaml".into(),
        };
        let mut scene = Scene {
            log: Vec::new(),
            world: World::default(),
            now: 0,
            seed,
            kills: None,
            lived: BTreeMap::new(),
            most_live: 0,
        };
        let _ = scene.append(Event::SweepSubmitted(Box::new(submitted)));
        scene
    }

    fn sweep(&self) -> &crate::Sweep {
        &self.world.sweeps[&SweepId::new("s")]
    }

    fn append(&mut self, event: Event) -> Result<(), Killed> {
        let record = Record { seq: self.world.last_seq + 1, at: Timestamp(self.now), event };
        self.world.apply(&record).unwrap_or_else(|illegal| panic!("{illegal}: {record:?}"));
        // As it is written, so that what is read again is what was written.
        let text = serde_json::to_string(&record).unwrap();
        self.log.push(serde_json::from_str(&text).unwrap());
        match self.kills {
            Some(every) if self.world.last_seq.is_multiple_of(every) => Err(Killed),
            _ => Ok(()),
        }
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts { now: Timestamp(self.now), ..Facts::default() };
        facts.attended_sweeps = self.world.sweeps.keys().cloned().collect();
        facts.attended = self.world.runs.keys().cloned().collect();
        for (id, instance) in self.world.live_instances() {
            let usage = self.usage(id);
            facts.meters.insert(id.clone(), usage.elapsed);
            let sight = match instance.state {
                InstanceState::Releasing => Sight::Gone(Some(usage)),
                _ => Sight::Alive,
            };
            facts.sights.insert(id.clone(), sight);
        }
        facts
    }

    fn usage(&self, id: &domain::InstanceId) -> Usage {
        let moments = self.lived.get(id).copied().unwrap_or(0);
        Usage { started: Timestamp(0), elapsed: Elapsed(moments * MOMENT) }
    }

    fn perform(&mut self, action: Action) -> Result<(), Killed> {
        match action {
            Action::Try(new) => {
                let crate::Try { run, job, plan, file, trial } = *new;
                let submitted = Submitted { run, job, plan, job_hash: String::new(), file, trial: Some(trial) };
                self.append(Event::Submitted(Box::new(submitted)))
            }
            Action::GoOn { run, epochs } => {
                self.append(Event::ResumeRequested { run, budget: None, deadline: None, epochs })
            }
            Action::StopSweep { sweep, by } => self.append(Event::SweepStopRequested { sweep, by }),
            Action::AlertSweep { sweep, spent } => self.append(Event::SweepBudgetAlert { sweep, spent }),
            Action::EndSweep { sweep, end, total } => self.append(Event::SweepEnded { sweep, end, total }),
            Action::Rent { run, instance, offer, reserve } => {
                let token = format!("token of {instance}");
                let intent = RentIntended { run, instance: instance.clone(), token, offer, reserved: reserve };
                self.append(Event::RentIntended(Box::new(intent)))?;
                self.perform(Action::Launch { instance })
            }
            Action::Launch { instance } => self.append(Event::Launched { instance }),
            Action::Start { run, attempt, fence, instance } => {
                self.append(Event::AttemptIntended { run, attempt, fence, instance })
            }
            Action::End { run, end } => self.append(Event::Ended { run, end }),
            Action::Stop { run, by } => self.append(Event::StopRequested { run, by }),
            Action::Alert { run, spent } => self.append(Event::BudgetAlert { run, spent }),
            Action::Release { instance } => self.append(Event::ReleaseIntended { instance }),
            Action::Terminate { .. } => Ok(()),
            Action::Settle { instance, usage } => self.append(Event::Released { instance, usage }),
            Action::Bill { run, bill } => self.append(Event::Billed { run, bill }),
            Action::Lose { attempt, finding } => {
                self.append(Event::AttemptEnded { attempt, end: AttemptEnd::Failed { finding, exit_code: None } })
            }
        }
    }

    fn settle(&mut self) -> Result<(), Killed> {
        loop {
            let seq = self.world.last_seq;
            for action in crate::reconcile(&self.world, &self.facts(), &Policy::default()) {
                self.perform(action)?;
            }
            let live = self.world.live_instances().count();
            self.most_live = self.most_live.max(live);
            if self.world.last_seq == seq {
                return Ok(());
            }
        }
    }

    /// Machines live on, whoever listens, and trials come to their ends.
    fn moment(&mut self) -> Result<(), Killed> {
        self.now += MOMENT as i64;
        let up = |state: &InstanceState| matches!(state, InstanceState::Up);
        let live: Vec<_> =
            self.world.live_instances().filter(|(_, instance)| up(&instance.state)).map(|(id, _)| id.clone()).collect();
        for id in live {
            *self.lived.entry(id).or_default() += 1;
        }
        let is_new = |state: &InstanceState| matches!(state, InstanceState::Launching);
        let new = self.world.live_instances().filter(|(_, instance)| is_new(&instance.state));
        let new: Vec<_> = new.map(|(id, _)| id.clone()).collect();
        for instance in new {
            self.append(Event::AgentUp { instance, started: Timestamp(self.now) })?;
        }
        self.settle()?;
        let active: Vec<_> = self.world.attempts.iter().map(|(id, attempt)| (id.clone(), attempt.clone())).collect();
        for (id, attempt) in active {
            let run = &self.world.runs[&attempt.run];
            let (value, epochs, fails) = worth(run, self.seed);
            let is_stopping = matches!(run.state, domain::run::RunState::Stopping { .. });
            let done = self.lived.get(&attempt.instance).copied().unwrap_or(0) >= u64::from(epochs);
            let end = match attempt.state {
                AttemptState::Ended { .. } => continue,
                _ if is_stopping => AttemptEnd::Stopped { step: Some(1) },
                _ if !done => continue,
                _ if fails => {
                    let finding = Finding::new(Cause::NotFinite, "the loss is not a number");
                    AttemptEnd::Failed { finding, exit_code: None }
                }
                _ => AttemptEnd::Trained { model: model(value) },
            };
            self.append(Event::AttemptEnded { attempt: id, end })?;
            self.settle()?;
        }
        Ok(())
    }

    /// Goes on to the end of the sweep; a killed loop begins again from what is on disk.
    fn run(&mut self) {
        for _ in 0..20_000 {
            if self.sweep().state.is_final() {
                return;
            }
            if self.moment().is_err() {
                self.world = World::replay(&self.log).unwrap();
            }
        }
        panic!("it does not end: {:?}", self.sweep().state);
    }

    /// The trials as a user sees them, without what they cost.
    fn table(&self) -> Vec<Shown> {
        let rows = rows(&self.world, self.sweep(), &BTreeMap::new());
        let row = |row: Row| {
            let values = serde_json::to_string(&row.values).unwrap();
            (row.number, values, row.word, row.epochs, row.value)
        };
        rows.into_iter().map(row).collect()
    }

    fn billed(&self) -> Money {
        self.world.runs.values().map(|run| run.bill.as_ref().map(|bill| bill.total).unwrap_or_default()).sum()
    }
}

fn model(value: Option<f64>) -> Exported {
    Exported {
        model: "m".into(),
        model_sha256: String::new(),
        bytes: 1,
        step: 1,
        validation_accuracy: value.unwrap_or(f64::NAN),
        test_accuracy: 0.5,
        steps: 1,
        peak_memory: 0,
        rank_memory: Vec::new(),
        processor_us: 0,
        figures: Box::default(),
        validation_loss: None,
        validation_figures: Box::default(),
        confusion: Vec::new(),
    }
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
            let again = Event::SweepResumeRequested { sweep: SweepId::new("s"), budget: None, deadline: None };
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
    let problem = crowded(&scene.sweep().job, &crowd, &scene.sweep().plan).unwrap();
    assert_eq!(problem.message, "9 trials at a time have 9 ranks, and `m1` has 8 cores");
    let shared = Sweep { parallel: 4, ..sweep(Method::Grid, None) };
    let one = job(&scene.sweep().job, &shared, &values(&shared, 1), 8).unwrap();
    assert!(matches!(one.work, Work::Train(train) if train.threads == Some(2)), "trials share the cores");
    scene.run();
}
