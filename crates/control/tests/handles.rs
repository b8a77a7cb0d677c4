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
    events[2] =
        Event::Launched { instance: run().instance(1), handle: Some(MachineHandle("first".into())), account: None };
    let mut lab = Lab::new(events, |call, _| match call {
        ProviderCall::Observe(_) => seen(MachineState::Running),
        _ => ProviderAnswer::Ending,
    });
    lab.pass(10 * SECOND);
    assert_eq!(handle(&lab), Some("first"));
}

/// Logs of versions that did not write the account down are read, and what is written has it.
#[test]
fn the_account_of_a_machine_is_in_its_event() {
    let text = r#"{"event":"launched","instance":"r-i1","handle":"i-1"}"#;
    let old: Event = serde_json::from_str(text).unwrap();
    assert!(matches!(&old, Event::Launched { account: None, .. }), "{old:?}");
    assert_eq!(serde_json::to_string(&old).unwrap(), text);
    let instance = run().instance(1);
    let mut events = up();
    events[2] = Event::Launched { instance: instance.clone(), handle: None, account: Some("123456789012".into()) };
    let lab = Lab::new(events, |_, _| ProviderAnswer::Ending);
    assert_eq!(lab.controller.world().instances[&instance].account.as_deref(), Some("123456789012"));
}
