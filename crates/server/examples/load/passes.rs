//! The time of a decision with many open runs: the controller alone, without disk and sockets.

use control::{Controller, ControllerInput, ControllerOutput, Now, ReplyId, WatchedWork};
use domain::wire::{Heartbeat, SCHEMA};
use domain::{Elapsed, RunId, Timestamp};
use plan::{Policy, World};

use crate::server_process::{answer, traits};
use crate::{Failure, history, said, times};

struct Loop {
    controller: Controller,
    now: u64,
}

impl Loop {
    /// Handles an input, and everything that follows from it.
    fn step(&mut self, input: ControllerInput) -> Result<(), Failure> {
        self.now += 1;
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let now = Now { monotonic: Elapsed(self.now), wall: Timestamp(self.now as i64) };
            for output in self.controller.step(input, now)? {
                match output {
                    ControllerOutput::Append(records) => {
                        let seq = records.last().map_or(0, |record| record.seq);
                        inputs.push(ControllerInput::Durable { seq });
                    }
                    ControllerOutput::Call { id, call, .. } => {
                        let (answer, details) = (answer(&call), Default::default());
                        inputs.push(ControllerInput::Answered { call: id, answer, details });
                    }
                    ControllerOutput::Note(note) => return Err(format!("{}: {}", note.subject, note.text).into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Measures an audit, and a step that changes one run, with the given number of open runs.
pub fn measure(open: usize) -> Result<(), Failure> {
    let providers = [("yes".to_owned(), traits())];
    let now = Now { monotonic: Elapsed(0), wall: Timestamp(0) };
    let policy = Policy { slots: usize::MAX, ..Policy::default() };
    let controller = Controller::new(World::default(), "owner", providers, policy, now);
    let mut control = Loop { controller, now: 0 };
    control.step(ControllerInput::Watched(WatchedWork { all: true, ..WatchedWork::default() }))?;
    let run = |number: usize| RunId::new(format!("run-{number}"));
    for number in 0..open {
        let event = Box::new(history::submitted(&run(number)));
        control.step(ControllerInput::Request { from: ReplyId(0), event })?;
        control.step(heartbeat(&run(number), control.now))?;
    }
    let all = times(200, || control.step(ControllerInput::Audit))?;
    println!("look at {open} runs {}", said(&all));
    let mut number = 0;
    let one = times(2_000, || {
        number += 1;
        control.step(heartbeat(&run(number % open), control.now))
    })?;
    println!("a heartbeat      {}", said(&one));
    let one = times(2_000, || {
        number += 1;
        let event = Box::new(history::submitted(&run(open + number)));
        control.step(ControllerInput::Request { from: ReplyId(0), event })
    })?;
    println!("a submission     {}", said(&one));
    Ok(())
}

fn heartbeat(run: &RunId, elapsed: u64) -> ControllerInput {
    let (instance, elapsed) = (run.instance(1), Elapsed(elapsed));
    let heartbeat = Heartbeat {
        schema: SCHEMA,
        instance,
        started: Timestamp(1),
        elapsed,
        entries: Vec::new(),
        reclaim: None,
        incarnation: 0,
        attempt: None,
    };
    ControllerInput::Heartbeat { from: ReplyId(0), heartbeat: Box::new(heartbeat) }
}
