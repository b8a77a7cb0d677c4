//! How many runs work at the same time: as many as a provider has machines, or as many as ask for rented ones.

use std::collections::BTreeMap;

use domain::event::{RentIntended, Submitted};
use domain::rental::{BillingRule, ProviderTraits};
use domain::{Elapsed, Event, InstanceId, Job, Money, Node, Offer, Plan, Rate, Record, RunId, Timestamp};
use plan::{Action, ObservedState, Policy, World, reconcile};

fn offer(provider: &str, kind: &str) -> Offer {
    let (provider, kind, price_source) = (provider.into(), kind.into(), "test".into());
    Offer { provider, kind, node: Node::default(), rate: Rate::default(), price_source }
}

fn submitted(run: &RunId, offer: Offer) -> Event {
    let job = Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job;
    let (share, memory, time, cost, assumptions) = (None, None, None, None, vec![]);
    let plan = Plan {
        offer,
        share,
        memory,
        time,
        cost,
        reserve: Money::default(),
        assumptions,
        alternatives: Vec::new(),
        anchors: Vec::new(),
    };
    let (job_hash, file) = (String::new(), "job.yaml".into());
    Event::Submitted(Box::new(Submitted { run: run.clone(), job, plan, job_hash, file, trial: None, user: None }))
}

/// Which of the runs that ask for these offers get a machine, when the first of them have one already.
fn rented(offers: &[(&str, &str)], before: usize, places: usize) -> Vec<usize> {
    let run = |index: usize| RunId::new(format!("r{index}"));
    let mut events = Vec::new();
    for (index, (provider, kind)) in offers.iter().enumerate() {
        events.push(submitted(&run(index), offer(provider, kind)));
    }
    for (index, (provider, kind)) in offers.iter().enumerate().take(before) {
        let instance = InstanceId::new(format!("r{index}-i1"));
        let (token, reserved, offer) = ("t".into(), Money::default(), offer(provider, kind));
        events.push(Event::RentIntended(Box::new(RentIntended {
            run: run(index),
            instance,
            token,
            offer,
            reserved,
            others: Vec::new(),
        })));
    }
    let record = |(event, seq)| Record { seq, at: Timestamp(0), event };
    let mut world = World::replay(&events.into_iter().zip(1..).map(record).collect::<Vec<_>>()).unwrap();
    world.find_open();
    let traits = |places| ProviderTraits {
        visible_within: Elapsed(0),
        effective_within: Elapsed(0),
        boots_within: Elapsed(0),
        token_lifetime: Some(Elapsed(u64::MAX)),
        observe_every: Elapsed(0),
        rents_together: false,
        billing: BillingRule::EXACT,
        abandoned_within: None,
        keeps_events: true,
        concurrency: 1,
        places,
    };
    let facts = ObservedState {
        attended: (0..offers.len()).map(run).collect(),
        traits: BTreeMap::from([
            ("ssh".to_owned(), traits(Some(places))),
            ("local".to_owned(), traits(None)),
            ("aws".to_owned(), traits(None)),
        ])
        .into(),
        ..ObservedState::default()
    };
    let actions = reconcile(&world, &facts, &Policy::default());
    let renting = |index: &usize| {
        actions.iter().any(|action| matches!(action, Action::Rent { run: found, .. } if *found == run(*index)))
    };
    (0..offers.len()).filter(renting).collect()
}

#[test]
fn each_machine_of_a_provider_that_has_its_own_runs_one_instance() {
    let any = ("ssh", "any");
    let check = |offers: &[(&str, &str)], before, places, expected: &[usize]| {
        assert_eq!(rented(offers, before, places), expected, "{offers:?}, {before} of them before, {places} places");
    };
    check(&[any, any, any], 0, 2, &[0, 1]);
    check(&[any, any, any], 1, 2, &[1]);
    check(&[any, any], 0, 0, &[]);
    // A node that was named is one machine, and another one is not waited for.
    check(&[("ssh", "a"), ("ssh", "a"), ("ssh", "b")], 0, 4, &[0, 2]);
    check(&[("ssh", "a"), any, ("ssh", "b")], 1, 2, &[1]);
    // What is rented on demand waits for no other run.
    check(&[("aws", "m"), ("aws", "m"), ("aws", "n"), ("local", "here"), any], 1, 1, &[1, 2, 3, 4]);
    // This machine has a place of its own.
    check(&[("local", "here"), any, ("local", "here")], 0, 1, &[0, 1]);
    check(&[any, ("local", "here")], 1, 1, &[1]);
}
