//! What every provider must show, against the real thing or its twin.
//!
//! A test of each provider calls [`check`]. It rents one machine, and asks for everything twice.

use std::thread::sleep;
use std::time::{Duration, Instant};

use domain::InstanceId;
use domain::wire::Entry;

use crate::provider::{Launch, Provider, Sight};

/// Rents one machine under the name `instance`, ends it, and checks every promise of [`Provider`] on the way.
/// `patience` is how long the provider may take to start or end it.
///
/// # Panics
/// When a promise is broken.
pub fn check(provider: &dyn Provider, instance: &InstanceId, patience: Duration) {
    let offers = provider.offers().expect("offers are told");
    let offer = offers.first().expect("there is an offer").clone();
    assert!(offers.iter().all(|offer| offer.provider == provider.name()), "offers carry the provider's name");
    assert!(offers.iter().all(|offer| offer.node.cores > 0 && offer.node.memory.0 > 0), "offers say what is rented");

    assert_eq!(sight(provider, instance), Sight::Unknown, "what was never asked for is unknown");
    provider.release(instance).expect("releasing what was never asked for does no harm");
    assert_eq!(count(provider, instance), 0);
    assert_eq!(last_words(provider, instance), [], "what was never asked for has no last words");

    let launch = Launch { instance: instance.clone(), token: format!("{instance}-token"), offer };
    let before = Instant::now();
    for time in ["first", "second"] {
        provider.launch(&launch).unwrap_or_else(|error| panic!("the {time} launch is taken: {error}"));
        assert_eq!(sight(provider, instance), Sight::Alive, "seen alive after the {time} launch");
    }
    let other = Launch { token: "another token".into(), ..launch.clone() };
    assert!(provider.launch(&other).is_err(), "another token for the same name is refused");
    assert_eq!(count(provider, instance), 1, "two launches rent one machine");

    // Long enough for the meter to have begun.
    sleep(Duration::from_millis(600));
    assert_eq!(sight(provider, instance), Sight::Alive, "alive until released");

    let deadline = Instant::now() + patience;
    let usage = loop {
        provider.release(instance).expect("a release is taken, again and again");
        match sight(provider, instance) {
            Sight::Gone(usage) => break usage.expect("what was alive was metered"),
            Sight::Alive => assert!(Instant::now() < deadline, "gone within {patience:?} of its release"),
            Sight::Unknown => panic!("what was alive does not become unknown"),
        }
        sleep(Duration::from_millis(20));
    };
    let words = last_words(provider, instance);
    assert!(words.is_sorted_by(|one, next| one.seq < next.seq), "last words are told once and in order: {words:?}");
    let rented = before.elapsed().as_secs_f64();
    let metered = usage.elapsed.as_secs_f64();
    assert!(metered > 0.0 && metered <= rented, "{metered} s were metered of at most {rented} s");

    provider.release(instance).expect("releasing what is gone does no harm");
    provider.launch(&launch).expect("a late repetition of the launch is taken");
    sleep(Duration::from_millis(100));
    assert_eq!(sight(provider, instance), Sight::Gone(Some(usage)), "what is gone stays gone, with the same usage");
    assert_eq!(count(provider, instance), 0, "what is gone is not listed");
    assert_eq!(last_words(provider, instance), words, "what is gone says nothing more");
}

fn sight(provider: &dyn Provider, instance: &InstanceId) -> Sight {
    provider.sight(instance).expect("a sight is told")
}

fn last_words(provider: &dyn Provider, instance: &InstanceId) -> Vec<Entry> {
    provider.last_words(instance).expect("last words are told")
}

fn count(provider: &dyn Provider, instance: &InstanceId) -> usize {
    let listed = provider.list().expect("instances are listed");
    listed.iter().filter(|listed| *listed == instance).count()
}
