//! Illegal decisions: the event that they need cannot follow the history. That is a bug in gradus.
//!
//! Each is logged once, with its facts. The run or sweep concerned is decided on again after a back-off that doubles,
//! so the bug causes neither a busy loop nor a full log; other runs continue. Any event that a user or another process
//! appends about it ends the back-off.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::{Elapsed, Event};
use plan::{Illegal, ObservedState, RunOrSweep, Scope};

use super::{Controller, OperationNote};

/// The wait after the first mistake, in microseconds.
const WAIT: u64 = 1_000_000;

/// Doublings of it at most: a minute.
const DOUBLINGS: u32 = 6;

/// Runs and sweeps that wait because of a mistake.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    waits: BTreeMap<RunOrSweep, Wait>,
    /// Those of the decisions that are being carried out.
    new: Vec<RunOrSweep>,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    mistakes: u32,
    until: Elapsed,
}

impl Controller {
    /// Appends an event that the rules say can follow. Where it cannot, the rules are wrong, and that is noted.
    pub(super) fn must(&mut self, event: Event) {
        self.is_appended(event);
    }

    /// Appends an event; returns whether it was appended: nothing that depends on it may be done otherwise.
    pub(super) fn is_appended(&mut self, event: Event) -> bool {
        let Err(refused) = self.try_append(event) else { return true };
        let (event, illegal) = *refused;
        let subjects = self.subjects(&event);
        self.note_illegal(&event, &illegal, &subjects);
        self.mistakes.new.extend(subjects);
        false
    }

    /// The subjects of a decision: a run, and the sweep that it is a trial of.
    fn subjects(&self, event: &Event) -> Vec<RunOrSweep> {
        let run = self.world.run_of(event).filter(|run| self.world.runs.contains_key(*run));
        let mut subjects: Vec<RunOrSweep> = run.map(|run| RunOrSweep::Run(run.clone())).into_iter().collect();
        subjects.extend(self.world.work_of(event).filter(|work| !subjects.contains(work)));
        subjects
    }

    fn note_illegal(&mut self, event: &Event, illegal: &Illegal, subjects: &[RunOrSweep]) {
        let event = format!("{event:?}");
        let mut scope = Scope::default();
        for subject in subjects {
            match subject {
                RunOrSweep::Run(run) => scope.runs.insert(run.clone()),
                RunOrSweep::Sweep(sweep) => scope.sweeps.insert(sweep.clone()),
            };
        }
        let states = scope.runs.iter().filter_map(|run| Some(format!("{:?}", self.world.runs.get(run)?.state)));
        let states: Vec<String> = states.collect();
        // Traits of providers are the same for all and long.
        let facts = ObservedState { traits: Arc::default(), ..self.facts(&scope) };
        let text = format!(
            "decided on what cannot be: {}; event: {event:.400}; state: {:.300}; facts: {:.1500}",
            illegal.why,
            states.join(", "),
            format!("{facts:?}"),
        );
        let subject = match subjects.first() {
            Some(RunOrSweep::Run(run)) => run.to_string(),
            Some(RunOrSweep::Sweep(sweep)) => sweep.to_string(),
            None => "controller".to_owned(),
        };
        let name = event.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let key = format!("{name}: {}", illegal.why);
        self.note_once(OperationNote { subject, text, is_mistake: true }, key);
    }

    /// Decisions did not converge: nothing in the scope is decided on again before a back-off.
    pub(super) fn note_endless(&mut self, passes: usize, scope: &Scope) {
        let text = format!("{passes} decisions in succession led to no end, the last ones about {scope:.600?}");
        let note = OperationNote { subject: "controller".into(), text, is_mistake: true };
        self.note_once(note, "endless".into());
        let runs = scope.runs.iter().cloned().map(RunOrSweep::Run);
        self.mistakes.new.extend(runs.chain(scope.sweeps.iter().cloned().map(RunOrSweep::Sweep)));
        self.end_decisions();
    }

    /// Mistakes from now on are those of decisions.
    pub(super) fn begin_decisions(&mut self) {
        self.mistakes.new.clear();
    }

    /// Starts the back-off of illegal decisions, and resets it for items decided on again without a mistake.
    pub(super) fn end_decisions(&mut self) {
        let now = self.now.monotonic;
        for subject in std::mem::take(&mut self.mistakes.new) {
            let wait = self.mistakes.waits.entry(subject).or_insert(Wait { mistakes: 0, until: now });
            if wait.until <= now {
                wait.mistakes += 1;
                wait.until = Elapsed(now.0.saturating_add(WAIT << (wait.mistakes - 1).min(DOUBLINGS)));
            }
        }
        self.mistakes.waits.retain(|_, wait| wait.until > now);
    }

    /// Something has happened to a run or sweep: what could not be may be now.
    pub(super) fn retry(&mut self, work: &RunOrSweep) {
        let world = &self.world;
        self.mistakes.waits.retain(|waiting, _| match waiting {
            RunOrSweep::Run(run) => waiting != work && world.work_of_run(run).as_ref() != Some(work),
            RunOrSweep::Sweep(_) => waiting != work,
        });
    }

    /// Until when a run or sweep waits because of a mistake.
    pub(super) fn waits_until(&self, subject: &RunOrSweep) -> Option<Elapsed> {
        self.mistakes.waits.get(subject).map(|wait| wait.until).filter(|until| *until > self.now.monotonic)
    }

    /// Takes out of a scope what waits because of a mistake.
    pub(super) fn leave_out_waiting(&self, scope: &mut Scope) {
        if self.mistakes.waits.is_empty() {
            return;
        }
        scope.runs.retain(|run| self.waits_until(&RunOrSweep::Run(run.clone())).is_none());
        scope.sweeps.retain(|sweep| self.waits_until(&RunOrSweep::Sweep(sweep.clone())).is_none());
    }
}
