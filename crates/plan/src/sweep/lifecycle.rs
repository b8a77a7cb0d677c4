//! Where a sweep stands, as a fold over its events.

use std::collections::BTreeSet;

use domain::event::SweepSubmitted;
use domain::job::Budget;
use domain::run::{Outcome, RunState};
use domain::sweep::Trial;
use domain::{Cause, Event, Money, Record, RunId, SweepId};

use crate::world::{SweepRecord, SweepState, World};

impl World {
    /// Moves the world by one event of a sweep; other events change nothing here.
    pub(crate) fn follow_sweep(&mut self, record: &Record) -> Result<(), String> {
        match &record.event {
            Event::SweepSubmitted(submitted) => self.sweep_submitted(record, submitted),
            Event::SweepStopRequested { sweep: id, by } => {
                let open = self.open_trials(id);
                let sweep = self.sweep_mut(id)?;
                refuse_final(sweep)?;
                sweep.paused.extend(open);
                sweep.state = SweepState::Stopping { by: *by };
                Ok(())
            }
            Event::SweepResumeRequested { sweep: id, budget, deadline, accept_data_change } => {
                let (refused, other) = (self.refused_trials(id), self.trials_of_other_data(id));
                let failed = self.failed_trials(id);
                let sweep = self.sweep_mut(id)?;
                if !crate::resume::sweep_has_stopped(&sweep.state) {
                    return Err(format!("sweep `{id}` is {} and needs no resume", sweep.state.word()));
                }
                if let Some(max) = budget {
                    sweep.job.budget = Some(Budget { max: *max, ..sweep.job.budget.unwrap_or_default() });
                    sweep.alerted = false;
                }
                sweep.job.deadline = deadline.or(sweep.job.deadline);
                sweep.accept_data_change = *accept_data_change;
                // What was refused resumes, with the data back or accepted. What has read other data resumes only where that
                // is accepted, and is compared with nothing otherwise.
                sweep.paused.extend(refused);
                if !accept_data_change {
                    sweep.paused.retain(|trial| !other.contains(trial));
                    sweep.set_aside.extend(other);
                }
                sweep.forgiven = failed;
                sweep.state = SweepState::Running;
                (sweep.ended, sweep.total) = (None, None);
                Ok(())
            }
            Event::SweepBudgetAlert { sweep, .. } => {
                self.sweep_mut(sweep)?.alerted = true;
                Ok(())
            }
            Event::SweepEnded { sweep: id, end, total } => {
                let adjusted = self.adjusted_trials(id);
                let sweep = self.sweep_mut(id)?;
                refuse_final(sweep)?;
                sweep.state = SweepState::Ended { how: end.clone() };
                (sweep.ended, sweep.total) = (Some(record.at), Some(*total + adjusted));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sweep_submitted(&mut self, record: &Record, submitted: &SweepSubmitted) -> Result<(), String> {
        if self.sweeps.contains_key(&submitted.sweep) {
            return Err(format!("sweep `{}` was submitted before", submitted.sweep));
        }
        let search = submitted.job.sweep.clone().ok_or("its job says nothing of a sweep")?;
        let sweep = SweepRecord {
            job: submitted.job.clone(),
            search,
            plan: submitted.plan.clone(),
            known: submitted.known,
            job_hash: submitted.job_hash.clone(),
            file: submitted.file.clone(),
            user: submitted.user.clone(),
            submitted: record.at,
            order: record.seq,
            state: SweepState::Running,
            trials: Vec::new(),
            paused: Default::default(),
            set_aside: Default::default(),
            forgiven: 0,
            alerted: false,
            ended: None,
            total: None,
            accept_data_change: false,
        };
        self.sweeps.insert(submitted.sweep.clone(), sweep);
        Ok(())
    }

    /// Takes in a trial: they come in order, and only while the sweep runs.
    pub(crate) fn tried(&mut self, run: &RunId, trial: &Trial) -> Result<(), String> {
        let sweep = self.sweep_mut(&trial.sweep)?;
        if sweep.state != SweepState::Running {
            return Err(format!("sweep `{}` is {}", trial.sweep, sweep.state.word()));
        }
        if trial.number as usize != sweep.trials.len() + 1 {
            return Err(format!("trial {} of sweep `{}` is out of order", trial.number, trial.sweep));
        }
        sweep.trials.push(run.clone());
        Ok(())
    }

    /// What its trials were adjusted by while it went on.
    fn adjusted_trials(&self, id: &SweepId) -> Money {
        let sweep = self.sweeps.get(id);
        sweep.map(|sweep| self.trials(sweep).map(|(_, run)| run.adjusted()).sum()).unwrap_or_default()
    }

    fn open_trials(&self, id: &SweepId) -> Vec<RunId> {
        let Some(sweep) = self.sweeps.get(id) else { return Vec::new() };
        self.trials(sweep).filter(|(_, run)| !run.state.is_final()).map(|(id, _)| id.clone()).collect()
    }

    fn failed_trials(&self, id: &SweepId) -> u32 {
        let Some(sweep) = self.sweeps.get(id) else { return 0 };
        let failed = |run: &crate::Run| super::standing(run).state == super::Stand::Failed;
        self.trials(sweep).filter(|(_, run)| failed(run)).count() as u32
    }

    /// Trials that have failed because of their data.
    fn refused_trials(&self, id: &SweepId) -> BTreeSet<RunId> {
        let Some(sweep) = self.sweeps.get(id) else { return BTreeSet::new() };
        let is_refused = |run: &crate::Run| match &run.state {
            RunState::Done { outcome: Outcome::Failed { finding } } => finding.cause == Cause::Data,
            _ => false,
        };
        self.trials(sweep).filter(|(_, run)| is_refused(run)).map(|(id, _)| id.clone()).collect()
    }

    /// Trials that have read other data than the first.
    fn trials_of_other_data(&self, id: &SweepId) -> BTreeSet<RunId> {
        let others = self.sweeps.get(id).and_then(|sweep| super::actions::of_other_data(self, sweep));
        others.map(|(_, others)| others.into_iter().cloned().collect()).unwrap_or_default()
    }

    /// A trial that is stopped because the data of its sweep has changed resumes with it.
    pub(crate) fn stopped_with_sweep(&mut self, run: &RunId) {
        let trial = self.runs.get(run).and_then(|run| run.trial.as_ref());
        let Some((id, sweep)) = trial.and_then(|trial| self.sweeps.get_key_value(&trial.sweep)) else { return };
        let is_for_data = sweep.state == SweepState::Running && super::actions::changed_data(self, sweep).is_some();
        let id = id.clone();
        if let Some(sweep) = self.sweeps.get_mut(&id).filter(|_| is_for_data) {
            sweep.paused.insert(run.clone());
        }
    }

    fn sweep_mut(&mut self, id: &SweepId) -> Result<&mut SweepRecord, String> {
        self.sweeps.get_mut(id).ok_or_else(|| format!("sweep `{id}` is unknown"))
    }
}

fn refuse_final(sweep: &SweepRecord) -> Result<(), String> {
    if sweep.state.is_final() { Err(format!("the sweep is {}", sweep.state.word())) } else { Ok(()) }
}
