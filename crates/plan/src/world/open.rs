//! The index of unfinished work, so that decisions do not scan the full history.

use std::collections::{BTreeMap, BTreeSet};

use domain::run::InstanceState;
use domain::subject::EventSubject;
use domain::{Elapsed, Event, InstanceId, RunId};

use super::{Instance, Run, RunOrSweep, World};

/// Indexes over a world.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Index {
    /// Runs that are not at their end, or not billed.
    open: BTreeSet<RunId>,
    /// Instances that are not released.
    live: BTreeSet<InstanceId>,
    /// Those of them that are being released.
    releasing: BTreeSet<InstanceId>,
    /// Machines that were taken over, by their names: which instance has each now.
    holders: BTreeMap<InstanceId, InstanceId>,
    /// Work that has ended since the last [`World::evict_settled`].
    pub(super) ended: BTreeSet<RunOrSweep>,
}

impl Index {
    pub(super) fn forget_run(&mut self, id: &RunId) {
        self.open.remove(id);
    }

    pub(super) fn forget_instance(&mut self, id: &InstanceId) {
        self.live.remove(id);
        self.releasing.remove(id);
        self.holders.retain(|_, holder| holder != id);
    }

    pub(super) fn holder(&self, machine: &InstanceId) -> Option<&InstanceId> {
        self.holders.get(machine)
    }

    pub(super) fn append(&mut self, mut other: Index) {
        self.open.append(&mut other.open);
        self.live.append(&mut other.live);
        self.releasing.append(&mut other.releasing);
        self.holders.append(&mut other.holders);
        self.ended.append(&mut other.ended);
    }
}

impl World {
    /// Every run with unfinished work: it has not ended, or is not billed.
    pub fn open_runs(&self) -> impl Iterator<Item = (&RunId, &Run)> {
        self.index.open.iter().filter_map(|id| self.runs.get_key_value(id))
    }

    /// Every instance that is not released. They all belong to open runs, because only released ones can be billed.
    pub fn live_instances(&self) -> impl Iterator<Item = (&InstanceId, &Instance)> {
        self.index.live.iter().filter_map(|id| self.instances.get_key_value(id))
    }

    /// How many instances are not released.
    pub fn live_count(&self) -> usize {
        self.index.live.len()
    }

    /// Every instance that is being released.
    pub fn releasing_instances(&self) -> impl Iterator<Item = (&InstanceId, &Instance)> {
        self.index.releasing.iter().filter_map(|id| self.instances.get_key_value(id))
    }

    /// Whether a run has unfinished work.
    pub fn is_open(&self, id: &RunId) -> bool {
        self.index.open.contains(id)
    }

    /// Rebuilds the indexes, for a world that was deserialized.
    pub fn find_open(&mut self) {
        let open = self.runs.iter().filter(|(_, run)| is_open(run)).map(|(id, _)| id.clone());
        let live = self.instances.iter().filter(|(_, instance)| is_live(instance)).map(|(id, _)| id.clone());
        let releasing = self.instances.iter().filter(|(_, instance)| is_releasing(instance)).map(|(id, _)| id.clone());
        // Of two, the newer has it: the loop ended before it wrote down that the older one had lost it.
        let mut holders: BTreeMap<InstanceId, InstanceId> = BTreeMap::new();
        for (id, instance) in self.instances.iter().filter(|(_, instance)| is_live(instance)) {
            let Some(machine) = &instance.machine else { continue };
            let before = |id: &InstanceId| self.instances.get(id).map_or(Elapsed(0), |known| known.before);
            if holders.get(machine).is_none_or(|other| before(other) < instance.before) {
                holders.insert(machine.clone(), id.clone());
            }
        }
        let ended = self.works().into_iter().filter(|work| self.is_settled(work));
        self.index = Index {
            open: open.collect(),
            live: live.collect(),
            releasing: releasing.collect(),
            holders,
            ended: ended.collect(),
        };
    }

    /// Keeps the indexes in step with an event that was applied.
    pub(super) fn note_open(&mut self, event: &Event) {
        for id in event.instances() {
            match self.instances.get(id).is_some_and(is_live) {
                true => self.index.live.insert(id.clone()),
                false => self.index.live.remove(id),
            };
            match self.instances.get(id).is_some_and(is_releasing) {
                true => self.index.releasing.insert(id.clone()),
                false => self.index.releasing.remove(id),
            };
            let Some((instance, machine)) =
                self.instances.get(id).and_then(|instance| Some((instance, instance.machine.as_ref()?)))
            else {
                continue;
            };
            if matches!(event, Event::MachineTaken(_)) {
                self.index.holders.insert(machine.clone(), id.clone());
            } else if !is_live(instance) && self.index.holders.get(machine) == Some(id) {
                self.index.holders.remove(machine);
            }
        }
        if let Some(id) = self.run_of(event).cloned() {
            match self.runs.get(&id).is_some_and(is_open) {
                true => self.index.open.insert(id),
                false => self.index.open.remove(&id),
            };
        }
        if matches!(event, Event::Billed { .. } | Event::SweepEnded { .. }) {
            self.index.ended.extend(self.work_of(event));
        } else if !self.index.ended.is_empty()
            && let Some(work) = self.work_of(event).filter(|work| !self.is_settled(work))
        {
            self.index.ended.remove(&work);
        }
    }

    /// The run of an event, if it is a known one.
    pub fn run_of<'a>(&'a self, event: &'a Event) -> Option<&'a RunId> {
        match event.subject() {
            EventSubject::Run(run) => Some(run),
            EventSubject::Instance(instance) => self.instances.get(instance).map(|instance| &instance.run),
            EventSubject::Attempt(attempt) => self.attempts.get(attempt).map(|attempt| &attempt.run),
            EventSubject::Sweep(_) | EventSubject::Schedule(_) | EventSubject::Pipeline(_) => None,
        }
    }
}

fn is_live(instance: &Instance) -> bool {
    !matches!(instance.state, InstanceState::Released { .. })
}

fn is_releasing(instance: &Instance) -> bool {
    instance.state == InstanceState::Releasing
}

pub(super) fn is_open(run: &Run) -> bool {
    !run.state.is_final() || run.bill.is_none()
}
