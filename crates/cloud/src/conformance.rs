//! The contract of every provider, checked against the real service or a simulation.
//!
//! A test of each provider calls [`check`]. It rents one machine, and makes every request twice. Where the provider may
//! take time, the test says how time passes ([`ProviderWorld`]): a simulated clock is advanced, and for real machines
//! the test blocks until something happens. This module reads no clock.

use domain::rental::{EndRequest, MachineState, SeenMachine};
use domain::run::Usage;
use domain::volume::DiskTier;
use domain::wire::Entry;
use domain::{Elapsed, InstanceId};

use crate::provider::{LaunchRequest, Provider, ProviderAnswer, ProviderCall, offers};

/// An awaited condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// The machine is listed.
    Listing,
    /// Its rented time is more than zero.
    Meter,
    /// It is gone.
    End,
}

/// The environment of a provider, in which time passes.
pub trait ProviderWorld {
    /// Returns true once there may be something new since the last look, and false when the provider has had all the time
    /// that it may take.
    fn pass(&self, awaited: Awaited) -> bool;

    /// Whether the machine's rented time is more than zero yet.
    fn is_metered(&self) -> bool;

    /// How long the machine can have been rented at most.
    fn longest_rent(&self) -> Elapsed;
}

/// Rents one machine under the name `instance`, ends it, and checks every promise of [`Provider`].
///
/// # Panics
/// When a promise is broken.
pub fn check(provider: &dyn Provider, instance: &InstanceId, world: &dyn ProviderWorld) {
    machines_are_offered(provider);
    let request = nothing_is_known_before_a_launch(provider, instance);
    a_token_rents_once(provider, &request, world);
    wait(world, Awaited::Meter, || world.is_metered().then_some(()));
    assert_eq!(seen(provider, instance).map(|machine| machine.state), Some(MachineState::Running), "it runs");
    let usage = an_end_request_ends_it(provider, instance, world);
    let (metered, longest) = (usage.elapsed, world.longest_rent());
    assert!(metered.0 > 0 && metered <= longest, "{metered:?} were metered of at most {longest:?}");
    what_is_gone_stays_gone(provider, &request, usage);
}

fn machines_are_offered(provider: &dyn Provider) {
    let offers = offers(provider).expect("offers are listed");
    assert!(!offers.is_empty(), "there is an offer");
    assert!(offers.iter().all(|offer| offer.provider == provider.name()), "offers carry the provider's name");
    assert!(offers.iter().all(|offer| offer.node.cores > 0 && offer.node.memory.0 > 0), "offers describe the machine");
}

/// Returns the request used for the other checks.
fn nothing_is_known_before_a_launch(provider: &dyn Provider, instance: &InstanceId) -> LaunchRequest {
    assert_eq!(seen(provider, instance), None, "what was never asked for is not seen");
    end(provider, instance);
    assert_eq!(last_events(provider, instance), [], "what was never asked for left no events");
    let mut offer = offers(provider).expect("offers are listed").remove(0);
    // Who provisions no speed rents the disk that it has.
    offer.node.volume = Some(DiskTier::High.volume());
    let token = format!("{instance}-token");
    LaunchRequest {
        members: vec![instance.clone()],
        token,
        offer,
        price_cap: None,
        expires: None,
        first_answer: None,
        has_peers: false,
    }
}

fn a_token_rents_once(provider: &dyn Provider, request: &LaunchRequest, world: &dyn ProviderWorld) {
    let instance = &request.members[0];
    let mut handles = Vec::new();
    for time in ["first", "second"] {
        match launch(provider, request) {
            ProviderAnswer::Accepted(members) => handles.extend(members),
            other => panic!("the {time} launch is taken, and not {other:?}"),
        }
    }
    assert_eq!(handles[0], handles[1], "two launches rent one machine");
    let machine = wait(world, Awaited::Listing, || seen(provider, instance));
    assert_eq!(machine.handle, handles[0].1, "it is listed by the name that the launch has returned");
    let other = LaunchRequest { token: "another token".into(), ..request.clone() };
    assert!(
        !matches!(launch(provider, &other), ProviderAnswer::Accepted(_)),
        "another token for the same name is refused"
    );
}

fn an_end_request_ends_it(provider: &dyn Provider, instance: &InstanceId, world: &dyn ProviderWorld) -> Usage {
    wait(world, Awaited::End, || {
        end(provider, instance);
        match seen(provider, instance).expect("what was seen does not vanish").state {
            MachineState::Gone(usage) => Some(usage.expect("what ran was metered")),
            MachineState::Pending | MachineState::Running | MachineState::Ending => None,
        }
    })
}

fn what_is_gone_stays_gone(provider: &dyn Provider, request: &LaunchRequest, usage: Usage) {
    let instance = &request.members[0];
    let events = last_events(provider, instance);
    assert!(events.is_sorted_by(|one, next| one.seq < next.seq), "each event once and in order: {events:?}");
    end(provider, instance);
    // A launch that wrongly starts something has done so when it returns.
    assert!(
        matches!(launch(provider, request), ProviderAnswer::Accepted(_)),
        "a late repetition of the launch is taken"
    );
    let state = seen(provider, instance).expect("what was asked about is told").state;
    assert_eq!(state, MachineState::Gone(Some(usage)), "what is gone stays gone, with the same usage");
    let others = view(provider, Vec::new());
    assert!(others.iter().all(|machine| machine.instance != *instance), "what is gone is not listed unasked");
    assert_eq!(last_events(provider, instance), events, "what is gone reports nothing more");
}

fn launch(provider: &dyn Provider, request: &LaunchRequest) -> ProviderAnswer {
    provider.call(&ProviderCall::Launch(Box::new(request.clone())))
}

fn end(provider: &dyn Provider, instance: &InstanceId) {
    let request = EndRequest { instance: instance.clone(), handle: None };
    let answer = provider.call(&ProviderCall::End(vec![request]));
    assert_eq!(answer, ProviderAnswer::Ending, "a request to end is taken, again and again");
}

fn view(provider: &dyn Provider, asked: Vec<InstanceId>) -> Vec<SeenMachine> {
    match provider.call(&ProviderCall::Observe(asked)) {
        ProviderAnswer::Observed(view) => view.machines,
        other => panic!("a look is answered, and not with {other:?}"),
    }
}

fn seen(provider: &dyn Provider, instance: &InstanceId) -> Option<SeenMachine> {
    view(provider, vec![instance.clone()]).into_iter().find(|machine| machine.instance == *instance)
}

fn last_events(provider: &dyn Provider, instance: &InstanceId) -> Vec<Entry> {
    match provider.call(&ProviderCall::LastEvents(instance.clone())) {
        ProviderAnswer::LastEvents(entries) => entries,
        other => panic!("last events are read, and not {other:?}"),
    }
}

/// Polls until there is an answer, at least once, and once more after the promised time.
fn wait<T>(world: &dyn ProviderWorld, awaited: Awaited, ask: impl Fn() -> Option<T>) -> T {
    let mut is_last = false;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(!is_last, "{awaited:?} did not come in the time that the provider states");
        is_last = !world.pass(awaited);
    }
}
