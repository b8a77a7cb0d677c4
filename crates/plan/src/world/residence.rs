//! Eviction of ended work from memory, and its restoration on demand.
//!
//! A run on its own, or a sweep with all of its trials, is evicted as a unit: no event of one affects another.

use std::collections::BTreeSet;

use domain::subject::EventSubject;
use domain::{Event, Record, RunId, SweepId};

use super::open::is_open;
use super::{Illegal, World};

/// A run, or a sweep with its trials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunOrSweep {
    /// A run. As a unit of eviction, it is not a trial.
    Run(RunId),
    /// A sweep.
    Sweep(SweepId),
}

impl World {
    /// An empty world at this event: to be filled with [`World::merge`].
    pub fn at(last_seq: u64) -> World {
        World { last_seq, ..World::default() }
    }

    /// The unit of a run: its sweep, or itself. `None` for an unknown one.
    pub fn work_of_run(&self, id: &RunId) -> Option<RunOrSweep> {
        let run = self.runs.get(id)?;
        Some(match &run.trial {
            Some(trial) => RunOrSweep::Sweep(trial.sweep.clone()),
            None => RunOrSweep::Run(id.clone()),
        })
    }

    /// The unit of an event. `None` if it is unknown; a submission is known by itself.
    pub fn work_of(&self, event: &Event) -> Option<RunOrSweep> {
        match (event, event.subject()) {
            (_, EventSubject::Sweep(sweep)) => Some(RunOrSweep::Sweep(sweep.clone())),
            (Event::Submitted(submitted), _) => Some(match &submitted.trial {
                Some(trial) => RunOrSweep::Sweep(trial.sweep.clone()),
                None => RunOrSweep::Run(submitted.run.clone()),
            }),
            _ => self.work_of_run(self.run_of(event)?),
        }
    }

    /// Whether a run or sweep is known here.
    pub fn holds(&self, work: &RunOrSweep) -> bool {
        match work {
            RunOrSweep::Run(run) => self.runs.contains_key(run),
            RunOrSweep::Sweep(sweep) => self.sweeps.contains_key(sweep),
        }
    }

    /// Whether a run or sweep has no unfinished work unless a user resumes it.
    pub fn is_settled(&self, work: &RunOrSweep) -> bool {
        match work {
            RunOrSweep::Run(run) => self.runs.get(run).is_some_and(|run| !is_open(run)),
            RunOrSweep::Sweep(id) => self
                .sweeps
                .get(id)
                .is_some_and(|sweep| sweep.state.is_final() && self.trials(sweep).all(|(_, trial)| !is_open(trial))),
        }
    }

    /// Evicts settled work except `kept`; returns it.
    pub fn evict_settled(&mut self, kept: &BTreeSet<RunOrSweep>) -> Vec<RunOrSweep> {
        let (mut stays, mut goes) = (BTreeSet::new(), Vec::new());
        for work in std::mem::take(&mut self.index.ended) {
            if kept.contains(&work) {
                stays.insert(work);
            } else if self.is_settled(&work) {
                goes.push(work);
            }
        }
        self.index.ended = stays;
        for work in &goes {
            self.take(work);
        }
        goes
    }

    /// Removes a run or sweep with everything that belongs to it, and returns it as a separate world.
    pub fn take(&mut self, work: &RunOrSweep) -> World {
        let mut part = World::at(self.last_seq);
        let runs: Vec<RunId> = match work {
            RunOrSweep::Run(run) => vec![run.clone()],
            RunOrSweep::Sweep(id) => {
                let sweep = self.sweeps.remove_entry(id);
                let trials = sweep.as_ref().map(|(_, sweep)| sweep.trials.clone()).unwrap_or_default();
                part.sweeps.extend(sweep);
                trials
            }
        };
        for id in runs {
            let Some((id, run)) = self.runs.remove_entry(&id) else { continue };
            part.instances.extend(run.instances.iter().filter_map(|id| self.instances.remove_entry(id)));
            part.attempts.extend(run.attempts.iter().filter_map(|id| self.attempts.remove_entry(id)));
            part.runs.insert(id, run);
        }
        for id in part.runs.keys() {
            self.index.forget_run(id);
        }
        for id in part.instances.keys() {
            self.index.forget_instance(id);
        }
        part.find_open();
        part
    }

    /// Merges a separate world back.
    pub fn merge(&mut self, mut part: World) {
        part.find_open();
        for work in part.works() {
            if self.holds(&work) {
                self.take(&work);
            }
        }
        self.runs.append(&mut part.runs);
        self.instances.append(&mut part.instances);
        self.attempts.append(&mut part.attempts);
        self.sweeps.append(&mut part.sweeps);
        self.index.append(part.index);
    }

    /// Applies events of another process, with their subjects that had left memory, in their state after these events.
    ///
    /// # Errors
    /// [`Illegal`] if one cannot follow.
    pub fn catch_up(&mut self, records: &[Record], recalled: World) -> Result<(), Illegal> {
        for record in records {
            match recalled.work_of(&record.event).is_some_and(|work| recalled.holds(&work)) {
                true => {
                    self.expect(record.seq)?;
                    self.last_seq = record.seq;
                }
                false => self.apply(record)?,
            }
        }
        self.merge(recalled);
        Ok(())
    }

    /// Every run that is no trial, and every sweep.
    pub(super) fn works(&self) -> Vec<RunOrSweep> {
        let alone = self.runs.iter().filter(|(_, run)| run.trial.is_none());
        let alone = alone.map(|(id, _)| RunOrSweep::Run(id.clone()));
        alone.chain(self.sweeps.keys().cloned().map(RunOrSweep::Sweep)).collect()
    }
}
