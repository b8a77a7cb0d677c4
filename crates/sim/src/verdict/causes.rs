//! What ends an attempt decides whether another one follows: the table in `docs/control.md`, told here once more.

use std::collections::BTreeMap;

use domain::event::Event;
use domain::rental::MachineHandle;
use domain::run::{AttemptEnd, Outcome, RunState};
use domain::{AttemptId, Cause, Finding, RunId};
use plan::{AttemptState, Run, World};

use crate::rule::Rule;
use crate::simulation::Simulation;

/// What ranks of their own end by.
const CAUSES: [Cause; 13] = [
    Cause::ExitCode,
    Cause::OutOfMemory,
    Cause::NotFinite,
    Cause::Data,
    Cause::Job,
    Cause::DiskFull,
    Cause::ReadOnly,
    Cause::Library,
    Cause::Internal,
    Cause::Setup,
    Cause::Hang,
    Cause::Killed,
    Cause::Unreadable,
];

/// How often an attempt is tried again after an end by this cause, in succession without progress. `None` where nobody
/// counts.
fn tries(cause: Cause, was_ready: bool) -> Option<u32> {
    match cause {
        Cause::Killed | Cause::RankLost | Cause::InstanceLost | Cause::Fenced => Some(20),
        Cause::Unreadable => Some(8),
        Cause::Hang => Some(5),
        Cause::NoCapacity => None,
        // The commands have worked before.
        Cause::Setup if was_ready => Some(8),
        Cause::ExitCode | Cause::OutOfMemory | Cause::NotFinite | Cause::Data | Cause::Job => Some(0),
        Cause::DiskFull | Cause::ReadOnly | Cause::Library | Cause::Setup | Cause::Internal => Some(0),
    }
}

/// In the message of what was drawn here.
const DRAWN: &str = "as drawn";

impl Simulation {
    /// The ranks on a machine fail by themselves, now and then; returns whether they do.
    pub(crate) fn rank_fails(&mut self, handle: &MachineHandle, attempt: &AttemptId) -> bool {
        if !self.chance(self.scenario.rank_fault) {
            return false;
        }
        let cause = CAUSES[self.draws.below(CAUSES.len() as u64) as usize];
        let is_frozen = self.cloud.machines.get(handle).is_none_or(|machine| machine.is_frozen);
        if !is_frozen {
            self.causes.insert(attempt.clone(), cause);
        }
        let told = if self.rule == Some(Rule::CausesDecide) { Cause::Killed } else { cause };
        let exit_code = (told == Cause::ExitCode).then_some(1);
        let finding = Finding::new(told, format!("rank 0 has failed {DRAWN}"));
        self.ended(handle, attempt, AttemptEnd::Failed { finding, exit_code });
        true
    }

    /// An attempt follows another one only where the cause of its end allows that.
    pub(crate) fn check_tried_again(&mut self, event: &Event) {
        let Event::AttemptIntended { run, attempt, .. } = event else { return };
        let Some(world) = self.process.controller.as_ref().map(control::Controller::world) else { return };
        let Some(known) = world.runs.get(run).filter(|_| self.scenario.rank_fault > 0) else { return };
        let before = known.attempts.iter().take_while(|id| *id != attempt).count();
        let Some((cause, count)) = self.failures(world, known, before) else { return };
        if let Some(most) = tries(cause, known.was_ready).filter(|most| count > *most) {
            self.violate(format!("{run} is tried again after {count} ends by {cause:?}, and {most} may be"));
        }
    }

    /// By what the newest of so many attempts has failed, and how often that has happened since the run came forward.
    fn failures(&self, world: &World, run: &Run, before: usize) -> Option<(Cause, u32)> {
        let mut counts: BTreeMap<Cause, u32> = BTreeMap::new();
        let mut newest = None;
        let mut step_before = 0;
        for (index, id) in run.attempts.iter().take(before).enumerate() {
            if let Some(step) = self.ready_at(id) {
                if step > step_before {
                    counts.clear();
                }
                step_before = step;
            }
            newest = None;
            let Some(AttemptState::Ended { end, .. }) = world.attempts.get(id).map(|attempt| &attempt.state) else {
                continue;
            };
            let AttemptEnd::Failed { finding, .. } = end else { continue };
            if index < run.settled {
                continue;
            }
            let drawn = self.causes.get(id).filter(|_| finding.message.contains(DRAWN)).copied();
            let cause = drawn.unwrap_or(finding.cause);
            let count = counts.entry(cause).or_default();
            *count += 1;
            newest = Some((cause, *count));
        }
        newest
    }

    /// The step that an attempt has resumed from, by the log.
    fn ready_at(&self, id: &AttemptId) -> Option<u64> {
        let records = self.process.disk.iter().chain(&self.process.unsynced);
        records.rev().find_map(|record| match &record.event {
            Event::AttemptReady { attempt, ready: Some(ready) } if attempt == id => Some(ready.step),
            _ => None,
        })
    }

    /// A run fails only by what is not tried again, or not any more.
    pub(super) fn wrong_end(&self, world: &World, id: &RunId, run: &Run) -> Option<String> {
        let RunState::Done { outcome: Outcome::Failed { finding } } = &run.state else { return None };
        if self.scenario.rank_fault == 0 || self.is_restored {
            return None;
        }
        let (cause, count) = self.failures(world, run, run.attempts.len())?;
        let most = tries(cause, run.was_ready)?;
        // It may have been given up by something else than an attempt, such as a quota.
        (finding.cause == cause && count <= most)
            .then(|| format!("{id} was given up after {count} ends by {cause:?}, and more than {most} are needed"))
    }
}
