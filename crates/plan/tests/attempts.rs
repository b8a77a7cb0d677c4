//! What one attempt tells of the next: commands that have worked, and data that was accepted.

use domain::event::{RentIntended, Submitted};
use domain::rank::Ready;
use domain::run::AttemptEnd;
use domain::wire::{AgentEvent, Entry};
use domain::{Cause, Event, Fence, Finding, InstanceId, Job, Money, Node, Offer, Plan, Rate, Record, RunId, Timestamp};
use plan::{Action, ObservedState, Policy, World, reconcile};

/// The names of the run and of its machine.
fn names() -> (RunId, InstanceId) {
    (RunId::new("a"), InstanceId::new("a-i1"))
}

/// A run whose machine is up.
fn begun(job: &str) -> Vec<Event> {
    let (run, instance) = names();
    let rate = Rate::default();
    let offer =
        Offer { provider: "sim".into(), kind: "m1".into(), node: Node::default(), rate, price_source: "test".into() };
    let plan = Plan {
        offer: offer.clone(),
        share: None,
        memory: None,
        time: None,
        cost: None,
        reserve: Money::default(),
        assumptions: vec![],
        alternatives: Vec::new(),
        anchors: Vec::new(),
    };
    let job = Job::parse(job, "job.yaml").unwrap().job;
    let (job_hash, file, token, reserved) = (String::new(), "job.yaml".into(), "t".into(), Money::default());
    let submitted = Submitted { run: run.clone(), job, plan, job_hash, file, trial: None, user: None };
    let others = Vec::new();
    let rent = RentIntended { run: run.clone(), instance: instance.clone(), token, offer, reserved, others };
    vec![
        Event::Submitted(Box::new(submitted)),
        Event::RentIntended(Box::new(rent)),
        Event::Launched { instance: instance.clone(), handle: None, account: None },
        Event::AgentUp { instance: instance.clone(), started: Timestamp(0), incarnation: 0 },
    ]
}

fn begins(fence: u64) -> Event {
    let ((run, instance), fence) = (names(), Fence(fence));
    Event::AttemptIntended { attempt: run.attempt(fence), run, fence, instance, others: Vec::new() }
}

fn fails(fence: u64, cause: Cause) -> Event {
    let end = AttemptEnd::Failed { finding: Finding::new(cause, "it failed"), exit_code: None };
    Event::AttemptEnded { attempt: names().0.attempt(Fence(fence)), end }
}

fn ready(fence: u64, ready: Option<Ready>) -> Event {
    Event::AttemptReady { attempt: names().0.attempt(Fence(fence)), ready }
}

fn replayed(events: Vec<Event>) -> World {
    let records = events.into_iter().zip(1..).map(|(event, seq)| Record { seq, at: Timestamp(0), event });
    World::replay(&records.collect::<Vec<_>>()).unwrap()
}

/// Whether the run ends after its second attempt has failed in `setup`.
fn gives_up(job: &str, first_was_ready: bool) -> bool {
    let mut events = begun(job);
    events.push(begins(1));
    events.extend(first_was_ready.then(|| ready(1, None)));
    events.extend([fails(1, Cause::InstanceLost), begins(2), fails(2, Cause::Setup)]);
    let world = replayed(events);
    let mut facts = ObservedState { now: Timestamp(0), ..ObservedState::default() };
    facts.attended.insert(names().0);
    let actions = reconcile(&world, &facts, &Policy::default());
    actions.iter().any(|action| matches!(action, Action::End { .. }))
}

#[test]
fn commands_that_have_worked_in_a_run_are_tried_again() {
    let job = "setup: pip install x\nrun: 'true'\n";
    assert!(gives_up(job, false), "they must be mended");
    assert!(!gives_up(job, true));
    assert!(gives_up(&format!("{job}resources: {{job_recovery: none}}\n"), true));
}

#[test]
fn changed_data_is_accepted_until_a_checkpoint_is_of_it() {
    let of = |step, data: &str| Ready {
        step,
        steps: 9,
        steps_per_epoch: 1,
        samples: [8, 1, 1],
        classes: Vec::new(),
        parameters: 1,
        passed_over: Vec::new(),
        sample: None,
        data: Some(data.to_owned()),
    };
    let (run, _) = names();
    let mut events = begun("train: {model: mlp, data: {path: d.csv}, epochs: 1, batch: 8}\n");
    events.extend([begins(1), ready(1, Some(of(0, "one"))), fails(1, Cause::Data)]);
    let mut world = replayed(events);
    let accept = |world: &mut World| world.runs.get_mut(&run).unwrap().accept_data_change = true;
    accept(&mut world);
    let mut then = |event: Event| {
        let record = Record { seq: world.last_seq + 1, at: Timestamp(0), event };
        world.apply(&record).unwrap();
        world.runs[&run].accept_data_change
    };
    let lost = |fence| fails(fence, Cause::InstanceLost);
    assert!([begins(2), ready(2, Some(of(4, "two"))), lost(2)].map(&mut then)[2]);
    assert!([begins(3), ready(3, Some(of(4, "two"))), lost(3)].map(&mut then)[2], "no checkpoint since");
    assert!(![begins(4), ready(4, Some(of(6, "two")))].map(&mut then)[1]);
}

#[test]
fn an_attempt_is_ended_by_the_agent_of_its_own_machine_only() {
    let mut events = begun("name: job\nrun: 'true'\n");
    events.push(begins(1));
    let world = replayed(events);
    let (run, own) = names();
    let end = AgentEvent::Ended { end: AttemptEnd::Succeeded };
    let entry = Entry { seq: 1, attempt: run.attempt(Fence(1)), event: end };
    assert_eq!(plan::hear(&world, &InstanceId::new("b-i1"), &entry), None);
    let ended = plan::hear(&world, &own, &entry);
    assert!(matches!(ended, Some(Event::AttemptEnded { .. })), "{ended:?}");
}
