//! Agents call less often the more of them there are, so that one loop serves a thousand.

mod lab;

use domain::rental::{MachineState, ProviderAnswer, ProviderCall};
use domain::wire::{Heartbeat, SCHEMA};
use domain::{Duration, Elapsed, Event, Timestamp};

use control::{ControllerInput, ReplyId};
use lab::{Lab, intended, run, seen, submitted};

/// What the agent of the first of so many machines is told to wait.
fn told(machines: u64) -> Duration {
    let mut events = vec![submitted()];
    for number in 1..=machines {
        let instance = run().instance(number);
        events.push(intended(&instance));
        events.push(Event::Launched { instance, handle: None });
    }
    let mut lab = Lab::new(events, |call, _| match call {
        ProviderCall::Observe(_) => seen(MachineState::Running),
        _ => ProviderAnswer::Ending,
    });
    let heartbeat = Heartbeat {
        schema: SCHEMA,
        instance: run().instance(1),
        started: Timestamp(0),
        elapsed: Elapsed(0),
        entries: Vec::new(),
        reclaim: None,
        incarnation: 1,
    };
    lab.step(ControllerInput::Heartbeat { from: ReplyId(1), heartbeat: Box::new(heartbeat) });
    lab.replies.last().expect("it is answered").next
}

#[test]
fn one_agent_calls_often_and_a_thousand_do_not_overrun_the_loop() {
    assert_eq!(told(1), Duration::from_micros(200_000));
    assert_eq!(told(1_000), Duration::from_micros(5_000_000));
}
