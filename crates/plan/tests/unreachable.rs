//! A machine that nobody can reach: when the run continues elsewhere, and what the machine is billed.

use std::collections::BTreeMap;

use domain::event::{RentIntended, Submitted};
use domain::rental::{BillingRule, ProviderTraits};
use domain::run::{AttemptEnd, Sight, Usage};
use domain::{Cause, Elapsed, Event, Fence, InstanceId, Job, Money, Node, Offer, Plan, Rate, Record, RunId, Timestamp};
use plan::{Action, ObservedMachine, ObservedState, Policy, World, reconcile, run_due};

const SECOND: u64 = 1_000_000;

/// A run whose machine was given up: its agent fell silent during an attempt, and its end was asked for.
fn world() -> (World, RunId, InstanceId) {
    let (run, instance) = (RunId::new("a"), InstanceId::new("a-i1"));
    let (kind, price_source) = ("m1".into(), "test".into());
    let offer = Offer { provider: "p".into(), kind, node: Node::default(), rate: Rate::default(), price_source };
    let job = Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job;
    let (share, memory, time, cost, assumptions) = (None, None, None, None, vec![]);
    let plan = Plan {
        offer: offer.clone(),
        share,
        memory,
        time,
        cost,
        reserve: Money::default(),
        assumptions,
        alternatives: Vec::new(),
        anchors: Vec::new(),
    };
    let submitted = Submitted {
        run: run.clone(),
        job,
        plan,
        job_hash: String::new(),
        file: "job.yaml".into(),
        trial: None,
        user: None,
    };
    let intent = RentIntended {
        run: run.clone(),
        instance: instance.clone(),
        token: "t".into(),
        offer,
        reserved: Money::default(),
        others: Vec::new(),
    };
    let fence = Fence(1);
    let events = [
        Event::Submitted(Box::new(submitted)),
        Event::RentIntended(Box::new(intent)),
        Event::Launched { instance: instance.clone(), handle: None, account: None },
        Event::AgentUp { instance: instance.clone(), started: Timestamp(0), incarnation: 0 },
        Event::AttemptIntended {
            run: run.clone(),
            attempt: run.attempt(fence),
            fence,
            instance: instance.clone(),
            others: Vec::new(),
        },
        Event::ReleaseIntended { instance: instance.clone(), lost_race: false },
    ];
    let records = events.into_iter().zip(1..).map(|(event, seq)| Record { seq, at: Timestamp(0), event });
    let records: Vec<Record> = records.collect();
    let mut world = World::replay(&records).unwrap();
    world.find_open();
    (world, run, instance)
}

/// What is seen when the agent has been silent, and its end asked for, for so many seconds.
fn seen(run: &RunId, id: &InstanceId, (silence, ending): (u64, u64), abandoned: Option<u64>) -> ObservedState {
    let traits = ProviderTraits {
        visible_within: Elapsed(0),
        effective_within: Elapsed(0),
        boots_within: Elapsed(0),
        token_lifetime: Some(Elapsed(u64::MAX)),
        observe_every: Elapsed(SECOND),
        rents_together: false,
        billing: BillingRule::EXACT,
        places: None,
        abandoned_within: abandoned.map(|seconds| Elapsed(seconds * SECOND)),
        keeps_events: true,
        concurrency: 1,
    };
    let machine = ObservedMachine {
        silence: Some(Elapsed(silence * SECOND)),
        ending: Some(Elapsed(ending * SECOND)),
        // The agent had been there for 1,000 s when it was heard last.
        rent: Some(Elapsed((1_000 + silence) * SECOND)),
        ..ObservedMachine::default()
    };
    ObservedState {
        machines: BTreeMap::from([(id.clone(), machine)]),
        attended: [run.clone()].into(),
        traits: BTreeMap::from([("p".to_owned(), traits)]).into(),
        ..ObservedState::default()
    }
}

fn words(actions: &[Action]) -> Vec<&'static str> {
    let word = |action: &Action| match action {
        Action::EndAttempt { end: AttemptEnd::Failed { finding, .. }, .. } if finding.cause == Cause::InstanceLost => {
            "fail"
        }
        Action::Terminate { .. } => "terminate",
        Action::RecordRelease { .. } => "released",
        Action::Rent { .. } => "rent",
        _ => "other",
    };
    actions.iter().map(word).collect()
}

#[test]
fn a_run_goes_on_elsewhere_once_the_end_of_its_silent_machine_was_not_proved_in_time() {
    let (world, run, id) = world();
    let policy = Policy::default();
    let [silence, replace] = [policy.silence.0, policy.replace.0].map(|micros| micros / SECOND);
    let check = |times, expected: &[&str]| {
        let facts = seen(&run, &id, times, None);
        assert_eq!(words(&reconcile(&world, &facts, &policy)), expected, "{times:?}");
    };
    check((silence, 0), &["terminate"]);
    check((silence, replace - 1), &["terminate"]);
    check((silence, replace), &["fail", "terminate"]);
    // Its agent was heard: what is asked for is on its way.
    check((silence - 1, 10 * replace), &["terminate"]);
    let facts = seen(&run, &id, (silence, replace - 1), None);
    let (id, run) = world.open_runs().next().unwrap();
    assert_eq!(run_due(&world, &facts, &policy, id, run), Some(Elapsed(SECOND)));
}

#[test]
fn a_replacement_is_rented_while_the_lost_machine_is_still_asked_to_end() {
    let (mut world, run, id) = world();
    let policy = Policy::default();
    let facts = seen(&run, &id, (policy.silence.0 / SECOND, policy.replace.0 / SECOND), None);
    let [Action::EndAttempt { attempt, end }, _] = &reconcile(&world, &facts, &policy)[..] else {
        panic!("the attempt was not failed")
    };
    let event = Event::AttemptEnded { attempt: attempt.clone(), end: end.clone() };
    world.apply(&Record { seq: world.last_seq + 1, at: Timestamp(0), event }).unwrap();
    // There is one place for machines, and the lost one does not take it.
    assert_eq!(words(&reconcile(&world, &facts, &policy)), ["terminate", "rent"]);
    let soon = seen(&run, &id, (policy.silence.0 / SECOND, 0), None);
    assert_eq!(words(&reconcile(&world, &soon, &policy)), ["terminate"]);
}

#[test]
fn a_machine_that_only_its_agent_can_prove_gone_is_billed_until_its_lease_was_over() {
    let (world, run, id) = world();
    let policy = Policy::default();
    let release = |times, abandoned| {
        let facts = seen(&run, &id, times, abandoned);
        reconcile(&world, &facts, &policy).into_iter().find_map(|action| match action {
            Action::RecordRelease { usage, .. } => Some(usage),
            _ => None,
        })
    };
    let lease = policy.lease.0 / SECOND;
    let billed = Usage { started: Timestamp(0), elapsed: Elapsed((1_000 + lease) * SECOND) };
    assert_eq!(release((300, 300), Some(300)), Some(billed));
    assert_eq!(release((4_000, 300), Some(300)), Some(billed));
    assert_eq!(release((300, 299), Some(300)), None);
    assert_eq!(release((299, 300), Some(300)), None);
    // A provider that can prove it is waited for.
    assert_eq!(release((100_000, 100_000), None), None);
    let mut proved = seen(&run, &id, (0, 0), None);
    proved.machine_mut(&id).sight = Some(Sight::Gone(Some(billed)));
    assert!(words(&reconcile(&world, &proved, &policy)).contains(&"released"));
}

#[test]
fn a_machine_that_nobody_ever_knew_to_be_rented_costs_nothing_once_it_is_given_up() {
    let (mut world, run, id) = world();
    let instance = world.instances.get_mut(&id).unwrap();
    (instance.is_accepted, instance.started) = (false, None);
    let mut facts = seen(&run, &id, (300, 300), Some(300));
    facts.machine_mut(&id).rent = None;
    let released = reconcile(&world, &facts, &Policy::default()).into_iter().find_map(|action| match action {
        Action::RecordRelease { usage, .. } => Some(usage.elapsed),
        _ => None,
    });
    assert_eq!(released, Some(Elapsed(0)));
}

#[test]
fn an_agent_that_was_never_heard_may_have_started_at_the_end_of_its_boot() {
    let (mut world, run, id) = world();
    world.instances.get_mut(&id).unwrap().started = None;
    let is_released = |seconds| {
        let mut facts = seen(&run, &id, (seconds, seconds), Some(300));
        facts.traits_mut().get_mut("p").unwrap().boots_within = Elapsed(100 * SECOND);
        words(&reconcile(&world, &facts, &Policy::default())).contains(&"released")
    };
    assert_eq!([300, 399, 400].map(is_released), [false, false, true]);
}
