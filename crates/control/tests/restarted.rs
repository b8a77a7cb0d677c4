//! Another process has appended first, and the loop starts over: what it has heard of machines stays. Time is an argument.

mod lab;

use std::collections::VecDeque;

use domain::rental::{ProviderAnswer, ProviderTraits};
use domain::wire::{Heartbeat, SCHEMA};
use domain::{Elapsed, Event, Record, Timestamp};
use plan::{Policy, World};

use control::{Controller, ControllerInput, ControllerOutput, Now, ReplyId};
use lab::{SECOND, TRAITS, run, up};

/// A loop whose provider cannot be asked, with the records that are durable.
struct Unreachable {
    controller: Controller,
    now: u64,
    wake: u64,
    log: Vec<Record>,
}

impl Unreachable {
    fn new() -> Unreachable {
        let log: Vec<Record> =
            up().into_iter().zip(1..).map(|(event, seq)| Record { seq, at: Timestamp(0), event }).collect();
        let (abandoned_within, none) = (Some(Elapsed(300 * SECOND)), Elapsed(0));
        let traits = ProviderTraits { abandoned_within, boots_within: none, keeps_events: false, ..TRAITS };
        let now = Now { monotonic: none, wall: Timestamp(0) };
        let world = World::replay(&log).unwrap();
        let controller = Controller::new(world, "owner", [("sim".to_owned(), traits)], Policy::default(), now);
        Unreachable { controller, now: 0, wake: 0, log }
    }

    /// One input, and what follows from it at once. A release is not made durable; returns what it bills.
    fn step(&mut self, input: ControllerInput) -> Option<Elapsed> {
        let now = Now { monotonic: Elapsed(self.now), wall: Timestamp(self.now as i64) };
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for output in self.controller.step(input, now).unwrap() {
                match output {
                    ControllerOutput::Append(records) => {
                        let billed = records.iter().find_map(|record| match &record.event {
                            Event::Released { usage, .. } => Some(usage.elapsed),
                            _ => None,
                        });
                        if billed.is_some() {
                            return billed;
                        }
                        inputs.push_back(ControllerInput::Durable { seq: records.last().unwrap().seq });
                        self.log.extend(records);
                    }
                    ControllerOutput::Call { id, .. } => {
                        let answer = ProviderAnswer::Unavailable("no route".into());
                        inputs.push_back(ControllerInput::Answered { call: id, answer, details: Default::default() });
                    }
                    ControllerOutput::WakeAt(at) => self.wake = at.0,
                    ControllerOutput::Note(_) | ControllerOutput::Reply(_) => {}
                    ControllerOutput::Taken { .. } | ControllerOutput::Keep { .. } => {}
                }
            }
        }
        None
    }

    /// Lets time pass until a release, at most until `end`.
    fn pass(&mut self, end: u64) -> Option<Elapsed> {
        while self.now < end {
            self.now = self.wake.max(self.now + 1).min(end);
            let billed = self.step(ControllerInput::Timer);
            if billed.is_some() {
                return billed;
            }
        }
        None
    }
}

#[test]
fn a_release_that_was_not_written_is_decided_again_with_the_same_bill() {
    let mut unreachable = Unreachable::new();
    assert_eq!(unreachable.pass(30 * SECOND), None);
    let heartbeat = Heartbeat {
        schema: SCHEMA,
        instance: run().instance(1),
        started: Timestamp(0),
        elapsed: Elapsed(30 * SECOND),
        entries: Vec::new(),
        reclaim: None,
        incarnation: 0,
        attempt: None,
    };
    unreachable.step(ControllerInput::Heartbeat { from: ReplyId(1), heartbeat: Box::new(heartbeat) });
    // It is billed until it was heard last, and for its lease.
    let billed = Some(Elapsed(90 * SECOND));
    assert_eq!(unreachable.pass(1_000 * SECOND), billed);
    for _ in 0..2 {
        unreachable.controller.restart(World::replay(&unreachable.log).unwrap());
        assert_eq!(unreachable.step(ControllerInput::Timer), billed, "it was not heard later than before");
    }
}
