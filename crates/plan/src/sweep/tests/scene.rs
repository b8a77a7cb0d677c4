//! A simulated machine with its loop: decisions are carried out, and each action may be the last before a kill.

use std::collections::BTreeMap;

use domain::event::{RentIntended, Submitted, SweepSubmitted};
use domain::rank::{Exported, Ready};
use domain::run::{AttemptEnd, InstanceState, RunState, Sight, Usage};
use domain::sweep::Known;
use domain::{
    Bytes, Cause, Elapsed, Event, Finding, InstanceId, Job, Money, Node, Offer, Rate, Record, Sweep, SweepId,
    Timestamp, Work, random,
};

use crate::sweep::{TrialRow, plan, rows};
use crate::world::{AttemptState, World};
use crate::{Action, ObservedState, Policy};

/// What one trial of a made-up search is worth after some epochs: a function of its values, so that any order of
/// events gives the same.
fn worth(run: &crate::Run, seed: u64) -> (Option<f64>, u32, bool) {
    let Work::Train(train) = &run.job.work else { panic!("no training") };
    let epochs = train.last_epoch();
    let text = serde_json::to_string(&run.trial.as_ref().unwrap().values).unwrap();
    let share = |salt: u64| random::share(random::key(seed, [salt].into_iter().chain(text.bytes().map(u64::from))));
    let value = share(1) * (1.0 - 0.5f64.powi(epochs as i32)) + 0.1 * share(u64::from(epochs) + 2);
    (Some(value), epochs, share(99) < 0.1)
}

fn ready(data: &str) -> Ready {
    Ready {
        step: 0,
        steps: 9,
        steps_per_epoch: 1,
        samples: [8, 1, 1],
        classes: Vec::new(),
        parameters: 1,
        passed_over: Vec::new(),
        sample: None,
        data: Some(data.to_owned()),
    }
}

/// A row of the table: number, values, state, epochs and result.
pub type Shown = (u32, String, &'static str, Option<u32>, Option<f64>);

/// A made-up machine with its loop: what is decided is done, and each thing may be the last before a kill.
pub struct Scene {
    pub log: Vec<Record>,
    pub world: World,
    now: i64,
    seed: u64,
    /// Kills the loop at this event, and at each so many after it; none kills nothing.
    pub kills: Option<u64>,
    /// Moments that an instance has lived.
    lived: BTreeMap<InstanceId, u64>,
    pub most_live: usize,
    /// A hash of the data that trials read from now on, as they report it; none is reported without.
    pub data: Option<&'static str>,
}

/// The loop was killed.
#[derive(Debug)]
pub struct Killed;

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
    pub fn new(sweep: &Sweep, budget: Option<&str>, seed: u64) -> Scene {
        let job = base(sweep, budget);
        let node =
            Node { cpu: "sim".into(), cores: 8, memory: Bytes(1 << 40), disk_free: Bytes(1 << 40), volume: None };
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
            user: None,
        };
        let mut scene = Scene {
            log: Vec::new(),
            world: World::default(),
            now: 0,
            seed,
            kills: None,
            lived: BTreeMap::new(),
            most_live: 0,
            data: None,
        };
        let _ = scene.append(Event::SweepSubmitted(Box::new(submitted)));
        scene
    }

    pub fn sweep(&self) -> &crate::SweepRecord {
        &self.world.sweeps[&SweepId::new("s")]
    }

    pub fn append(&mut self, event: Event) -> Result<(), Killed> {
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

    pub fn facts(&self) -> ObservedState {
        let mut facts = ObservedState { now: Timestamp(self.now), ..ObservedState::default() };
        facts.attended_sweeps = self.world.sweeps.keys().cloned().collect();
        facts.attended = self.world.runs.keys().cloned().collect();
        for (id, instance) in self.world.live_instances() {
            let usage = self.usage(id);
            facts.machine_mut(id).rent = Some(usage.elapsed);
            let sight = match instance.state {
                InstanceState::Releasing => Sight::Gone(Some(usage)),
                _ => Sight::Alive,
            };
            facts.machine_mut(id).sight = Some(sight);
        }
        facts
    }

    fn usage(&self, id: &InstanceId) -> Usage {
        let moments = self.lived.get(id).copied().unwrap_or(0);
        Usage { started: Timestamp(0), elapsed: Elapsed(moments * MOMENT) }
    }

    fn perform(&mut self, action: Action) -> Result<(), Killed> {
        match action {
            Action::SubmitTrial(new) => {
                let crate::SubmitTrial { run, job, plan, file, trial } = *new;
                let submitted =
                    Submitted { run, job, plan, job_hash: String::new(), file, trial: Some(trial), user: None };
                self.append(Event::Submitted(Box::new(submitted)))
            }
            Action::Resume { run, epochs } => self.append(Event::ResumeRequested {
                run,
                budget: None,
                deadline: None,
                epochs,
                accept_data_change: false,
                set: Vec::new(),
            }),
            Action::StopSweep { sweep, by } => self.append(Event::SweepStopRequested { sweep, by }),
            Action::AlertSweep { sweep, spent } => self.append(Event::SweepBudgetAlert { sweep, spent }),
            Action::EndSweep { sweep, end, total } => self.append(Event::SweepEnded { sweep, end, total }),
            Action::Rent { run, instance, others, offer, reserve } => {
                let token = format!("token of {instance}");
                let intent = RentIntended { run, instance: instance.clone(), token, offer, reserved: reserve, others };
                self.append(Event::RentIntended(Box::new(intent)))?;
                self.perform(Action::Launch { instance })
            }
            Action::Launch { instance } | Action::RecordLaunch { instance } => {
                self.append(Event::Launched { instance, handle: None, account: None })
            }
            Action::Start { run, attempt, fence, instances } => {
                let (instance, others) = (instances[0].clone(), instances[1..].to_vec());
                self.append(Event::AttemptIntended { run, attempt, fence, instance, others })
            }
            Action::End { run, end } => self.append(Event::Ended { run, end }),
            Action::Stop { run, by } => self.append(Event::StopRequested { run, by }),
            Action::Alert { run, spent } => self.append(Event::BudgetAlert { run, spent }),
            Action::Release { instance } => self.append(Event::ReleaseIntended { instance, lost_race: false }),
            Action::GiveUpRace { instance } => self.append(Event::ReleaseIntended { instance, lost_race: true }),
            Action::Terminate { .. } => Ok(()),
            Action::RecordRelease { instance, usage } => self.append(Event::Released { instance, usage }),
            Action::Bill { run, bill } => self.append(Event::Billed { run, bill }),
            Action::EndAttempt { attempt, end } => self.append(Event::AttemptEnded { attempt, end }),
            Action::Resize { .. } | Action::HalveMicroBatch { .. } => panic!("trials have one machine"),
            Action::TakeOver { .. } => panic!("no agent says what it has metered"),
            Action::EndMember { attempt, instance, end } => self.append(Event::MemberEnded { attempt, instance, end }),
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
    pub fn moment(&mut self) -> Result<(), Killed> {
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
            self.append(Event::AgentUp { instance, started: Timestamp(self.now), incarnation: 0 })?;
        }
        self.settle()?;
        let active: Vec<_> = self.world.attempts.iter().map(|(id, attempt)| (id.clone(), attempt.clone())).collect();
        for (id, attempt) in active {
            let run = &self.world.runs[&attempt.run];
            let (value, epochs, fails) = worth(run, self.seed);
            if let (AttemptState::Intended, Some(data)) = (&attempt.state, self.data) {
                self.append(Event::AttemptReady { attempt: id.clone(), ready: Some(ready(data)) })?;
            }
            let run = &self.world.runs[&attempt.run];
            let is_stopping = matches!(run.state, RunState::Stopping { .. });
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
    pub fn run(&mut self) {
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
    pub fn table(&self) -> Vec<Shown> {
        let rows = rows(&self.world, self.sweep(), &BTreeMap::new());
        let row = |row: TrialRow| {
            let values = serde_json::to_string(&row.values).unwrap();
            (row.number, values, row.word, row.epochs, row.value)
        };
        rows.into_iter().map(row).collect()
    }

    pub fn billed(&self) -> Money {
        self.world.runs.values().map(|run| run.bill.as_ref().map(|bill| bill.total).unwrap_or_default()).sum()
    }
}

pub fn model(value: Option<f64>) -> Exported {
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
