//! The provider's name of a machine is written down even where its agent was heard before the provider has answered.

mod lab;

use domain::Event;
use domain::rental::{MachineHandle, MachineState, ProviderAnswer, ProviderCall};

use lab::{Lab, SECOND, run, seen, up};

fn handle<A>(lab: &Lab<A>) -> Option<&str> {
    lab.controller.world().instances[&run().instance(1)].handle.as_ref().map(|handle| handle.0.as_str())
}

#[test]
fn a_machine_whose_agent_was_faster_than_its_provider_has_its_handle() {
    let is_named = |event: &Event| !matches!(event, Event::Launched { .. });
    let events: Vec<Event> = up().into_iter().filter(is_named).collect();
    let mut lab = Lab::new(events, |call, _| match call {
        ProviderCall::Observe(_) => seen(MachineState::Running),
        _ => ProviderAnswer::Ending,
    });
    lab.pass(10 * SECOND);
    assert_eq!(handle(&lab), Some("m"));
}

#[test]
fn the_first_handle_of_a_machine_stays() {
    let mut events = up();
    events[2] = Event::Launched { instance: run().instance(1), handle: Some(MachineHandle("first".into())) };
    let mut lab = Lab::new(events, |call, _| match call {
        ProviderCall::Observe(_) => seen(MachineState::Running),
        _ => ProviderAnswer::Ending,
    });
    lab.pass(10 * SECOND);
    assert_eq!(handle(&lab), Some("first"));
}
