//! The state of everything, as a fold over the event log.
//!
//! [`World::apply`] is the only way a state changes. It refuses an event that cannot follow, so that a damaged or
//! tampered log is noticed. Replaying the complete log gives the same world.

use std::collections::BTreeMap;

use domain::event::{RunEnd, Submitted};
use domain::run::{Bill, Keeper, Outcome, RunState, StopBy};
use domain::{Event, InstanceId, Record, RunId, Timestamp, Work};

use super::{Instance, Measured, Run, RunAttempt, World};

/// An event that cannot follow the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Illegal {
    /// Where in the log.
    pub seq: u64,
    /// Why not.
    pub why: String,
}

impl std::fmt::Display for Illegal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "event {} cannot follow: {}", self.seq, self.why)
    }
}

impl std::error::Error for Illegal {}

impl World {
    /// The world after a complete log.
    ///
    /// # Errors
    /// [`Illegal`] at the first event that cannot follow.
    pub fn replay<'a>(records: impl IntoIterator<Item = &'a Record>) -> Result<World, Illegal> {
        let mut world = World::default();
        for record in records {
            world.apply(record)?;
        }
        Ok(world)
    }

    /// Moves the world by one event.
    ///
    /// # Errors
    /// [`Illegal`] when it cannot follow; the world is then unchanged.
    pub fn apply(&mut self, record: &Record) -> Result<(), Illegal> {
        self.expect(record.seq)?;
        self.follow(record).map_err(|why| Illegal { seq: record.seq, why })?;
        self.note_open(&record.event);
        self.note_able(record);
        self.last_seq = record.seq;
        Ok(())
    }

    /// Only the next event can follow.
    pub(super) fn expect(&self, seq: u64) -> Result<(), Illegal> {
        let next = self.last_seq + 1;
        if seq == next { Ok(()) } else { Err(Illegal { seq, why: format!("it should have number {next}") }) }
    }

    fn follow(&mut self, record: &Record) -> Result<(), String> {
        match &record.event {
            Event::Submitted(submitted) => self.submitted(record, submitted),
            Event::StopRequested { run, by } => self.stop_requested(run, *by),
            Event::ResumeRequested { run, budget, deadline, epochs, accept_data_change, set } => {
                self.resume_requested(run, *budget, *deadline, *epochs, set)?;
                self.run_mut(run)?.accept_data_change = *accept_data_change;
                Ok(())
            }
            Event::RentIntended(intent) => self.rent_intended(record, intent),
            Event::MachineTaken(taken) => self.machine_taken(taken),
            Event::Launched { instance, handle, account } => self.launched(instance, handle.as_ref(), account),
            Event::PeerCopyFailed { instance, .. } => self.instance_mut(instance).map(|_| ()),
            Event::RentFailed { instance, finding } => self.rent_failed(record.at, instance, finding),
            Event::AgentUp { instance, started, incarnation } => self.agent_up(instance, *started, *incarnation),
            Event::ReclaimNoticed { instance, at } => self.reclaim_noticed(instance, *at),
            Event::AttemptIntended { run, attempt, fence, instance, others } => {
                let new = RunAttempt::new(run, *fence, (instance, others), record.at);
                self.attempt_intended(attempt, new)
            }
            Event::MemberPrepared { attempt, instance, address } => self.member_prepared(attempt, instance, address),
            Event::MemberEnded { attempt, instance, end } => self.member_ended(record.seq, attempt, instance, end),
            Event::AttemptReady { attempt, ready } => self.attempt_ready(attempt, ready.as_ref()),
            Event::AttemptEnded { attempt, end } => self.attempt_ended(record.at, attempt, end),
            Event::AttemptResizing { attempt } => self.attempt_resizing(attempt),
            Event::StragglerFound { .. } => self.straggler(record),
            Event::MicroBatchHalved { run, accumulate } => self.micro_batch_halved(run, *accumulate),
            Event::KeeperChanged { run, keeper } => self.run_mut(run).map(|run| run.keeper = *keeper),
            Event::BudgetAlert { run, .. } => {
                self.run_mut(run)?.alerted = true;
                Ok(())
            }
            Event::Ended { run, end } => self.run_ended(record.at, run, end),
            Event::DoubleEnded { instance, handle, usage } => {
                self.instance_mut(instance)?.doubles.insert(handle.clone(), *usage);
                Ok(())
            }
            Event::ReleaseIntended { instance, lost_race } => self.release_intended(instance, *lost_race),
            Event::Released { instance, usage } => self.released(instance, *usage),
            Event::Billed { run, bill } => self.billed(run, bill),
            Event::BillAdjusted { run, before, adjustments, .. } => self.bill_adjusted(run, *before, adjustments),
            Event::TrialMeasured { run, value } => self.trial_measured(run, *value),
            Event::SweepSubmitted(_) | Event::SweepStopRequested { .. } | Event::SweepResumeRequested { .. } => {
                self.follow_sweep(record)
            }
            Event::SweepBudgetAlert { .. } | Event::SweepEnded { .. } => self.follow_sweep(record),
            Event::PipelineSubmitted(_) | Event::PipelineAdvanced { .. } => self.follow_pipeline(record),
            Event::PipelineStopRequested { .. } | Event::PipelineResumeRequested { .. } => self.follow_pipeline(record),
            Event::PipelineEnded { .. } => self.follow_pipeline(record),
            Event::ScheduleAdded(_) | Event::ScheduleChanged { .. } => self.follow_schedule(record),
            Event::ScheduleFired { .. } | Event::ScheduleSkipped { .. } => self.follow_schedule(record),
        }
    }

    fn stop_requested(&mut self, id: &RunId, by: StopBy) -> Result<(), String> {
        let run = self.run_mut(id)?;
        refuse_final(run)?;
        run.state = RunState::Stopping { by };
        self.stopped_with_sweep(id);
        Ok(())
    }

    fn billed(&mut self, id: &RunId, bill: &Bill) -> Result<(), String> {
        let run = self.run_mut(id)?;
        if !run.state.is_final() {
            return Err(format!("the run is {}", run.state.word()));
        }
        run.bill = Some(bill.clone());
        Ok(())
    }

    /// Takes in the metric of a trial that is a program, whose epochs are not known.
    fn trial_measured(&mut self, id: &RunId, value: Option<f64>) -> Result<(), String> {
        let value = value.filter(|value| value.is_finite());
        self.run_mut(id)?.results.push(Measured { epochs: 0, value, is_enough: false });
        Ok(())
    }

    fn run_ended(&mut self, at: Timestamp, run: &RunId, end: &RunEnd) -> Result<(), String> {
        let metric = self.runs.get(run).and_then(|run| self.sweep_of(run)).and_then(|sweep| sweep.search.metric);
        let run = self.run_mut(run)?;
        refuse_final(run)?;
        if let (Some(metric), RunEnd::Done { outcome: Outcome::Trained { model } }) = (metric, end)
            && let Work::Train(train) = &run.job.work
        {
            let enough = train.stop.and_then(|stop| stop.accuracy);
            run.results.push(Measured {
                epochs: train.last_epoch(),
                value: metric.measured(model),
                is_enough: enough.is_some_and(|enough| model.validation_accuracy >= enough.get()),
            });
        }
        run.ended = Some(at);
        run.bill = None;
        run.state = match end {
            RunEnd::Done { outcome } => RunState::Done { outcome: outcome.clone() },
            RunEnd::Stopped { by } => RunState::Stopped { by: *by },
        };
        Ok(())
    }

    fn submitted(&mut self, record: &Record, submitted: &Submitted) -> Result<(), String> {
        if self.runs.contains_key(&submitted.run) {
            return Err(format!("run `{}` was submitted before", submitted.run));
        }
        if let Some(trial) = &submitted.trial {
            self.tried(&submitted.run, trial)?;
        }
        let run = Run {
            job: submitted.job.clone(),
            plan: submitted.plan.clone(),
            job_hash: submitted.job_hash.clone(),
            file: submitted.file.clone(),
            submitted: record.at,
            order: record.seq,
            state: RunState::Queued,
            ready: None,
            instances: Vec::new(),
            attempts: Vec::new(),
            restarts: 0,
            failures: BTreeMap::new(),
            error_restarts: 0,
            waits: 0,
            alerted: false,
            ended: None,
            bill: None,
            adjustments: Vec::new(),
            trial: submitted.trial.clone(),
            user: submitted.user.clone(),
            results: Vec::new(),
            settled: 0,
            accept_data_change: false,
            keeper: Keeper::default(),
            able_since: None,
            was_ready: false,
        };
        self.runs.insert(submitted.run.clone(), run);
        Ok(())
    }

    pub(crate) fn run_mut(&mut self, id: &RunId) -> Result<&mut Run, String> {
        self.runs.get_mut(id).ok_or_else(|| format!("run `{id}` is unknown"))
    }

    pub(super) fn instance_mut(&mut self, id: &InstanceId) -> Result<&mut Instance, String> {
        self.instances.get_mut(id).ok_or_else(|| format!("instance `{id}` is unknown"))
    }

    pub(super) fn run_of_instance(&mut self, id: &InstanceId) -> Result<&mut Run, String> {
        let run = self.instance_mut(id)?.run.clone();
        self.run_mut(&run)
    }
}

pub(super) fn refuse_final(run: &Run) -> Result<(), String> {
    if run.state.is_final() { Err(format!("the run is {}", run.state.word())) } else { Ok(()) }
}

/// What was asked to stop stays so, whatever was decided before that was known.
pub(super) fn is_stopping(run: &Run) -> bool {
    matches!(run.state, RunState::Stopping { .. })
}
