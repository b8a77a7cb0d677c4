//! What every provider must show, against the real thing or its twin.
//!
//! A test of each provider calls [`check`]. It rents one machine, and asks for everything twice.

use std::thread::sleep;
use std::time::{Duration, Instant};

use domain::InstanceId;
use domain::run::Usage;
use domain::wire::Entry;

use crate::provider::{Launch, Provider, Sight};

/// Between two looks while something is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// Rents one machine under the name `instance`, ends it, and checks every promise of [`Provider`] on the way.
/// `patience` is how long the provider may take to start or end it, and `is_metered` says whether its rent is more than
/// nothing yet.
///
/// # Panics
/// When a promise is broken.
pub fn check(provider: &dyn Provider, instance: &InstanceId, patience: Duration, is_metered: &dyn Fn() -> bool) {
    machines_are_offered(provider);
    let launch = nothing_is_known_before_a_launch(provider, instance);
    let before = Instant::now();
    a_token_rents_once(provider, &launch);
    let deadline = Instant::now() + patience;
    while !is_metered() {
        assert!(Instant::now() < deadline, "metered within {patience:?} of its launch");
        sleep(LOOK);
    }
    assert_eq!(sight(provider, instance), Sight::Alive, "alive until released");
    let usage = a_release_ends_it(provider, instance, patience);
    let (rented, metered) = (before.elapsed().as_secs_f64(), usage.elapsed.as_secs_f64());
    assert!(metered > 0.0 && metered <= rented, "{metered} s were metered of at most {rented} s");
    what_is_gone_stays_gone(provider, &launch, usage);
}

fn machines_are_offered(provider: &dyn Provider) {
    let offers = provider.offers().expect("offers are listed");
    assert!(!offers.is_empty(), "there is an offer");
    assert!(offers.iter().all(|offer| offer.provider == provider.name()), "offers carry the provider's name");
    assert!(offers.iter().all(|offer| offer.node.cores > 0 && offer.node.memory.0 > 0), "offers describe the machine");
}

/// Returns the launch that the other promises are checked with.
fn nothing_is_known_before_a_launch(provider: &dyn Provider, instance: &InstanceId) -> Launch {
    assert_eq!(sight(provider, instance), Sight::Unknown, "what was never asked for is unknown");
    provider.release(instance).expect("releasing what was never asked for does no harm");
    assert_eq!(count(provider, instance), 0);
    assert_eq!(last_words(provider, instance), [], "what was never asked for left no events");
    let offer = provider.offers().expect("offers are listed").remove(0);
    Launch { instance: instance.clone(), token: format!("{instance}-token"), offer }
}

fn a_token_rents_once(provider: &dyn Provider, launch: &Launch) {
    let instance = &launch.instance;
    for time in ["first", "second"] {
        provider.launch(launch).unwrap_or_else(|error| panic!("the {time} launch is taken: {error}"));
        assert_eq!(sight(provider, instance), Sight::Alive, "seen alive after the {time} launch");
    }
    let other = Launch { token: "another token".into(), ..launch.clone() };
    assert!(provider.launch(&other).is_err(), "another token for the same name is refused");
    assert_eq!(count(provider, instance), 1, "two launches rent one machine");
}

fn a_release_ends_it(provider: &dyn Provider, instance: &InstanceId, patience: Duration) -> Usage {
    let deadline = Instant::now() + patience;
    loop {
        provider.release(instance).expect("a release is taken, again and again");
        match sight(provider, instance) {
            Sight::Gone(usage) => return usage.expect("what was alive was metered"),
            Sight::Alive => assert!(Instant::now() < deadline, "gone within {patience:?} of its release"),
            Sight::Unknown => panic!("what was alive does not become unknown"),
        }
        sleep(LOOK);
    }
}

fn what_is_gone_stays_gone(provider: &dyn Provider, launch: &Launch, usage: Usage) {
    let instance = &launch.instance;
    let events = last_words(provider, instance);
    assert!(events.is_sorted_by(|one, next| one.seq < next.seq), "each event once and in order: {events:?}");
    provider.release(instance).expect("releasing what is gone does no harm");
    // A launch that wrongly starts something has done so when it returns.
    provider.launch(launch).expect("a late repetition of the launch is taken");
    assert_eq!(sight(provider, instance), Sight::Gone(Some(usage)), "what is gone stays gone, with the same usage");
    assert_eq!(count(provider, instance), 0, "what is gone is not listed");
    assert_eq!(last_words(provider, instance), events, "what is gone reports nothing more");
}

fn sight(provider: &dyn Provider, instance: &InstanceId) -> Sight {
    provider.sight(instance).expect("a sight is answered")
}

fn last_words(provider: &dyn Provider, instance: &InstanceId) -> Vec<Entry> {
    provider.last_words(instance).expect("unacknowledged events are read")
}

fn count(provider: &dyn Provider, instance: &InstanceId) -> usize {
    let listed = provider.list().expect("instances are listed");
    listed.iter().filter(|listed| *listed == instance).count()
}
