//! The set of items to decide on again: those changed since the last decision, and those affected by time alone.

use std::collections::{BTreeMap, BTreeSet};

use domain::subject::EventSubject;
use domain::{Elapsed, Event, InstanceId, RunId, SweepId};
use plan::{ObservedState, RunOrSweep, Scope};

use super::{Controller, WatchedWork};

/// The wall clock was set if it advanced by this much more or less than the monotonic one, in microseconds.
const CLOCK_SET: u64 = 1_000_000;

/// The scope of the next decision, and the timers of runs and sweeps.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    /// Everything.
    all: bool,
    /// Runs that wait for a slot or an offer: one may have become free.
    pub(super) waiting: bool,
    scope: Scope,
    /// Looked at since the next moments were found.
    seen: Scope,
    runs: Timers<RunId>,
    sweeps: Timers<SweepId>,
    /// Machines whose end could not be confirmed in time, so that they occupy no slot.
    lost: BTreeSet<InstanceId>,
}

/// What is known of a scope since it was decided on.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub scope: &'a Scope,
    pub facts: &'a ObservedState,
    /// When the first machine of each run needs an action that is not a decision.
    pub machines: &'a BTreeMap<RunId, Elapsed>,
    /// How long until time alone changes the decisions, if that was found out with them and still holds.
    pub decided: Option<&'a BTreeMap<RunId, Option<Elapsed>>>,
}

/// A queue of items by due time on the monotonic clock.
#[derive(Debug)]
struct Timers<T> {
    at: BTreeMap<T, Elapsed>,
    order: BTreeSet<(Elapsed, T)>,
}

impl<T> Default for Timers<T> {
    fn default() -> Timers<T> {
        Timers { at: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<T: Ord + Clone> Timers<T> {
    fn set(&mut self, of: &T, at: Option<Elapsed>) {
        if self.at.get(of).copied() == at {
            return;
        }
        if let Some(before) = self.at.remove(of) {
            self.order.remove(&(before, of.clone()));
        }
        if let Some(at) = at {
            self.at.insert(of.clone(), at);
            self.order.insert((at, of.clone()));
        }
    }

    fn first(&self) -> Option<Elapsed> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes an item that is due.
    fn due(&mut self, now: Elapsed) -> Option<T> {
        let (at, _) = self.order.first()?;
        if *at > now {
            return None;
        }
        let (_, of) = self.order.pop_first()?;
        self.at.remove(&of);
        Some(of)
    }
}

impl Dirty {
    /// When something is due.
    pub(super) fn first_due(&self) -> Option<Elapsed> {
        [self.runs.first(), self.sweeps.first()].into_iter().flatten().min()
    }
}

impl Controller {
    /// Everything is to be looked at.
    pub(super) fn touch_all(&mut self) {
        self.dirty.all = true;
        self.is_changed = true;
    }

    /// A run is to be looked at, and the sweep that it is a trial of.
    pub(super) fn touch_run(&mut self, id: &RunId) {
        self.dirty.scope.add_run(&self.world, id);
        self.is_changed = true;
    }

    /// The run of a machine is to be looked at.
    pub(super) fn touch_instance(&mut self, id: &InstanceId) {
        if let Some(run) = self.world.instances.get(id).map(|instance| instance.run.clone()) {
            self.touch_run(&run);
        }
    }

    /// Marks the subject of an applied event, and runs that wait for a slot that it has freed.
    pub(super) fn touch(&mut self, event: &Event) {
        if let EventSubject::Sweep(sweep) = event.subject() {
            self.dirty.scope.sweeps.insert(sweep.clone());
        }
        if let Some(run) = self.world.run_of(event).cloned() {
            self.touch_run(&run);
        }
        if let Event::Released { instance, .. } | Event::RentFailed { instance, .. } = event {
            self.dirty.waiting = true;
            self.note_rented(instance);
            self.forget(instance);
        }
        // One that waits may take over the machine of a run that has ended.
        self.dirty.waiting |= self.policy.hands_over && matches!(event, Event::Ended { .. });
        self.is_changed = true;
    }

    /// Marks work that another process has appended to.
    pub(super) fn touch_work(&mut self, work: RunOrSweep) {
        match work {
            RunOrSweep::Run(run) => self.touch_run(&run),
            RunOrSweep::Sweep(sweep) => self.touch_sweep(sweep),
        }
    }

    /// A sweep is to be looked at, and its trials.
    pub(super) fn touch_sweep(&mut self, sweep: SweepId) {
        let trials = self.world.sweeps.get(&sweep).map(|sweep| sweep.trials.clone()).unwrap_or_default();
        self.dirty.scope.runs.extend(trials.into_iter().filter(|trial| self.world.is_open(trial)));
        self.dirty.scope.sweeps.insert(sweep);
        self.is_changed = true;
    }

    /// Marks work whose number of waiting processes became zero or nonzero.
    pub(super) fn touch_watched(&mut self, watched: &WatchedWork) {
        if watched.all != self.watched.all {
            return self.touch_all();
        }
        let runs: Vec<RunId> = watched.runs.symmetric_difference(&self.watched.runs).cloned().collect();
        let sweeps: Vec<SweepId> = watched.sweeps.symmetric_difference(&self.watched.sweeps).cloned().collect();
        runs.iter().for_each(|run| self.touch_run(run));
        sweeps.into_iter().for_each(|sweep| self.touch_work(RunOrSweep::Sweep(sweep)));
    }

    /// What time alone may have changed by now. Where the wall clock was set, all that rests on it.
    pub(super) fn touch_due(&mut self, is_set: bool) {
        if is_set {
            self.touch_all();
        }
        let now = self.now.monotonic;
        while let Some(run) = self.dirty.runs.due(now) {
            self.touch_run(&run);
        }
        while let Some(sweep) = self.dirty.sweeps.due(now) {
            self.touch_sweep(sweep);
        }
    }

    /// Takes the scope of the next decision, where these machines are lost.
    pub(super) fn take_scope(&mut self, lost: &[InstanceId]) -> Scope {
        let dirty = &mut self.dirty;
        let mut scope = std::mem::take(&mut dirty.scope);
        if std::mem::take(&mut dirty.all) {
            scope = Scope::all(&self.world);
            dirty.waiting = false;
        }
        // Others wait for the slots that they occupied.
        let dirty = &mut self.dirty;
        if !lost.iter().eq(&dirty.lost) {
            dirty.lost = lost.iter().cloned().collect();
            dirty.waiting = true;
        }
        if std::mem::take(&mut dirty.waiting) {
            scope.add_waiting(&self.world);
        }
        dirty.seen.runs.extend(scope.runs.iter().cloned());
        dirty.seen.sweeps.extend(scope.sweeps.iter().cloned());
        self.leave_out_waiting(&mut scope);
        scope
    }

    /// Sets the timers of the items that were decided on; `known` is what is known of a scope.
    pub(super) fn set_timers(&mut self, known: Option<Known<'_>>) {
        let seen = std::mem::take(&mut self.dirty.seen);
        if seen.is_empty() {
            return;
        }
        let look;
        let observed;
        let known = match known {
            Some(known) if *known.scope == seen => known,
            _ => {
                look = self.look_at(&seen, self.look_at_releasing());
                look.unnoted.iter().for_each(|id| self.note_rented(id));
                observed = self.facts_of(&seen, look.machines);
                Known { scope: &seen, facts: &observed, machines: &look.due, decided: None }
            }
        };
        let now = self.now.monotonic;
        let at = |wait: Elapsed| Elapsed(now.0.saturating_add(wait.0));
        for id in &seen.runs {
            let run = self.world.runs.get(id).filter(|_| self.world.is_open(id));
            let due = run.and_then(|run| {
                let decision = match known.decided {
                    Some(decided) => decided.get(id).copied().flatten(),
                    None => plan::run_due(&self.world, known.facts, &self.policy, id, run),
                };
                decision.map(at).into_iter().chain(known.machines.get(id).copied()).min()
            });
            let due = self.after_wait(RunOrSweep::Run(id.clone()), due);
            self.dirty.runs.set(id, due);
        }
        for id in &seen.sweeps {
            let sweep = self.world.sweeps.get(id);
            let due = sweep.and_then(|sweep| plan::sweep_due(&self.world, known.facts, &self.policy, sweep)).map(at);
            let due = self.after_wait(RunOrSweep::Sweep(id.clone()), due);
            self.dirty.sweeps.set(id, due);
        }
    }

    /// When an item due at this time is decided on again. If it is due now, it was just decided on: not again before a
    /// short pause, or before the end of a back-off after a mistake.
    fn after_wait(&self, subject: RunOrSweep, due: Option<Elapsed>) -> Option<Elapsed> {
        let moment = Elapsed(self.now.monotonic.0 + 1);
        match self.waits_until(&subject) {
            Some(until) => Some(due.unwrap_or(until).max(until)),
            None => due.map(|due| due.max(moment)),
        }
    }

    /// Whether the wall clock was set between two steps.
    pub(super) fn is_clock_set(before: super::Now, now: super::Now) -> bool {
        let passed = now.monotonic.0.saturating_sub(before.monotonic.0);
        let shown = now.wall.0.saturating_sub(before.wall.0);
        shown.saturating_sub_unsigned(passed).unsigned_abs() >= CLOCK_SET
    }
}
