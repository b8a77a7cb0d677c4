//! What goes into the loop of a schedule and what comes out of it; it may crash between any two outputs.

use std::collections::BTreeSet;

use control::{ControllerInput, ControllerOutput, WatchedWork};
use domain::RunId;
use domain::event::Event;
use domain::run::Keeper;

use super::{ReplyTo, SimEvent, Simulation};
use crate::job::sweep::sweep_id;
use crate::loop_process::clocks;
use crate::rule::Rule;

impl Simulation {
    pub(crate) fn start_loop(&mut self) {
        if self.process.controller.is_some() {
            return;
        }
        let now = clocks(self.now, self.skew, self.rule);
        if let Err(why) = self.process.start(&self.scenario, self.rule, now) {
            return self.violate(format!("the log cannot be replayed: {why}"));
        }
        let runs = self.runs.iter().cloned().collect();
        let sweeps = BTreeSet::from([sweep_id()]);
        let keeper = if self.scenario.is_served { Keeper::Server } else { Keeper::Foreground };
        self.deliver(ControllerInput::Watched(WatchedWork {
            runs,
            sweeps,
            keeper,
            all: self.scenario.schedule.every > 0,
        }));
    }

    /// Passes an input to the loop and carries out its outputs; it may crash between any two of them.
    pub(crate) fn deliver(&mut self, input: ControllerInput) {
        self.note_answer(self.process.life, &input);
        let now = clocks(self.now, self.skew, self.rule);
        let recalled = self.process.recall(&input).map(|part| ControllerInput::Recalled(Box::new(part)));
        let Some(controller) = &mut self.process.controller else { return };
        let mut outputs = Vec::new();
        let steps: Result<(), _> = recalled.into_iter().chain([input]).try_for_each(|input| {
            outputs.extend(controller.step(input, now)?);
            Ok(())
        });
        let outputs = match steps.map(|()| outputs) {
            Ok(outputs) => outputs,
            Err::<_, control::Mistake>(mistake) => return self.violate(mistake.to_string()),
        };
        let life = self.process.life;
        let mut durable_at_once = None;
        for output in outputs {
            if self.is_stormy && self.draws.below(1000) < self.scenario.crash {
                return self.crash();
            }
            if let (ControllerOutput::Append(records), Some(Rule::DurableBeforeTold)) = (&output, self.rule) {
                durable_at_once = records.last().map(|record| record.seq);
            }
            self.emit(output, life);
        }
        if let Some(seq) = durable_at_once {
            self.deliver(ControllerInput::Durable { seq });
        }
    }

    fn emit(&mut self, output: ControllerOutput, life: u64) {
        match output {
            ControllerOutput::Append(records) => {
                records.iter().for_each(|record| {
                    self.check_release(&record.event);
                    self.check_tried_again(&record.event);
                    self.note_append(&record.event);
                });
                if let Some(seq) = records.last().map(|record| record.seq) {
                    self.trace_records(&records);
                    self.process.unsynced.extend(records);
                    let sync = 100 + self.draws.below(30_000);
                    self.at(self.now + sync, SimEvent::Synced { life, seq });
                    if self.chance(self.scenario.user / 4) {
                        self.stop_beside();
                    }
                }
            }
            ControllerOutput::Call { id, call, .. } => self.call(life, id, call),
            ControllerOutput::Reply(reply) => self.reply(reply.to, reply.reply),
            ControllerOutput::Taken { to, result } => {
                match self.replies.remove(&to) {
                    Some(ReplyTo::User(run)) => {
                        // Refused because it is there already: an earlier request has arrived.
                        let known =
                            result.is_ok() || self.process.disk.iter().any(|record| is_submission(&record.event, &run));
                        if known {
                            self.acknowledged.insert(run);
                        }
                    }
                    Some(ReplyTo::Keeper(of)) => self.keeper_is_answered(of.filter(|_| result.is_ok())),
                    Some(ReplyTo::Agent { .. }) | None => {}
                }
            }
            ControllerOutput::Keep { .. } => {}
            ControllerOutput::Note(note) if note.is_mistake => self.violate(format!("{}: {}", note.subject, note.text)),
            ControllerOutput::Note(_) => {}
            ControllerOutput::WakeAt(at) => {
                self.process.wake = at.0;
                let monotonic = clocks(self.now, self.skew, self.rule).monotonic.0;
                let time = self.now.saturating_add(at.0.saturating_sub(monotonic));
                self.at(time, SimEvent::LoopWakes { life });
            }
        }
    }
}

/// Whether an event submits this run.
pub(crate) fn is_submission(event: &Event, run: &RunId) -> bool {
    match event {
        Event::Submitted(submitted) => submitted.run == *run,
        Event::SweepSubmitted(submitted) => submitted.sweep.as_str() == run.as_str(),
        Event::ScheduleAdded(added) => added.schedule.as_str() == run.as_str(),
        _ => false,
    }
}
