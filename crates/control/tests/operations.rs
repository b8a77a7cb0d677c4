//! Problems in operation are logged once, and retried after growing waits. Time is an argument.

use std::collections::VecDeque;

use domain::event::{RentIntended, RunEnd, Submitted};
use domain::rental::{
    MachineHandle, MachineState, ProviderAnswer, ProviderCall, ProviderTraits, ProviderView, Refusal, SeenMachine,
};
use domain::run::StopBy;
use domain::{Elapsed, Event, InstanceId, Job, Money, Node, Offer, Plan, Rate, Record, RunId, Timestamp};
use plan::{Policy, World};

use control::{Controller, ControllerInput, ControllerOutput, Now, OperationNote, ReplyId, WatchedWork};

const SECOND: u64 = 1_000_000;

const TRAITS: ProviderTraits = ProviderTraits {
    visible_within: Elapsed(60 * SECOND),
    effective_within: Elapsed(0),
    boots_within: Elapsed(600 * SECOND),
    token_lifetime: Some(Elapsed(u64::MAX)),
    observe_every: Elapsed(SECOND),
    billing_step: Elapsed(0),
    places: None,
    abandoned_within: None,
    keeps_events: true,
    concurrency: 1,
};

/// A controller with a provider that answers each call at once, and the time.
struct Lab<A> {
    controller: Controller,
    now: u64,
    wake: u64,
    steps: u32,
    /// Answers a call, given the number of calls before it.
    answer: A,
    calls: Vec<(u64, &'static str)>,
    notes: Vec<OperationNote>,
    refused: usize,
}

fn offer() -> Offer {
    let rate = Rate::from_micros_per_hour(0);
    Offer { provider: "sim".into(), kind: "m1".into(), node: Node::default(), rate, price_source: "test".into() }
}

fn run() -> RunId {
    RunId::new("a")
}

fn submitted() -> Event {
    let job = Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job;
    let (share, memory, time, cost, assumptions) = (None, None, None, None, vec![]);
    let plan = Plan {
        offer: offer(),
        share,
        memory,
        time,
        cost,
        reserve: Money::default(),
        assumptions,
        alternatives: Vec::new(),
    };
    let (job_hash, file) = (String::new(), "job.yaml".into());
    Event::Submitted(Box::new(Submitted { run: run(), job, plan, job_hash, file, trial: None, user: None }))
}

fn intended(instance: &InstanceId) -> Event {
    let (token, reserved) = ("t".into(), Money::default());
    let instance = instance.clone();
    Event::RentIntended(Box::new(RentIntended { run: run(), instance, token, offer: offer(), reserved }))
}

/// A run whose one machine is up.
fn up() -> Vec<Event> {
    let instance = run().instance(1);
    vec![
        submitted(),
        intended(&instance),
        Event::Launched { instance: instance.clone(), handle: None },
        Event::AgentUp { instance, started: Timestamp(0) },
    ]
}

/// The same after the user has stopped it, so that the machine is to be ended.
fn stopped() -> Vec<Event> {
    let mut events = up();
    events.push(Event::Ended { run: run(), end: RunEnd::Stopped { by: StopBy::User } });
    events
}

fn name_of(call: &ProviderCall) -> &'static str {
    match call {
        ProviderCall::Offers => "offers",
        ProviderCall::Launch(_) => "launch",
        ProviderCall::Observe(_) => "observe",
        ProviderCall::End(_) => "end",
        ProviderCall::LastEvents(_) => "last events",
    }
}

fn seen(state: MachineState) -> ProviderAnswer {
    let instance = run().instance(1);
    let machine = SeenMachine { handle: MachineHandle("m".into()), instance, state, notice: None };
    ProviderAnswer::Observed(ProviderView { is_complete: true, machines: vec![machine] })
}

impl<A: FnMut(&ProviderCall, usize) -> ProviderAnswer> Lab<A> {
    fn new(events: Vec<Event>, answer: A) -> Lab<A> {
        let records: Vec<Record> =
            events.into_iter().zip(1..).map(|(event, seq)| Record { seq, at: Timestamp(0), event }).collect();
        let now = Now { monotonic: Elapsed(0), wall: Timestamp(0) };
        let providers = [("sim".to_owned(), TRAITS)];
        let controller = Controller::new(World::replay(&records).unwrap(), "owner", providers, Policy::default(), now);
        let (calls, notes) = (Vec::new(), Vec::new());
        let mut lab = Lab { controller, now: 0, wake: 0, steps: 0, answer, calls, notes, refused: 0 };
        lab.step(ControllerInput::Watched(WatchedWork { all: true, ..WatchedWork::default() }));
        lab
    }

    /// Handles one input, and everything that follows from it at once.
    fn step(&mut self, input: ControllerInput) {
        let now = Now { monotonic: Elapsed(self.now), wall: Timestamp(self.now as i64) };
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.steps += 1;
            for output in self.controller.step(input, now).unwrap() {
                match output {
                    ControllerOutput::Append(records) => {
                        inputs.push_back(ControllerInput::Durable { seq: records.last().unwrap().seq });
                    }
                    ControllerOutput::Call { id, call, .. } => {
                        self.calls.push((self.now, name_of(&call)));
                        let answer = (self.answer)(&call, self.calls.len());
                        inputs.push_back(ControllerInput::Answered { call: id, answer });
                    }
                    ControllerOutput::Note(note) => self.notes.push(note),
                    ControllerOutput::WakeAt(at) => self.wake = at.0,
                    ControllerOutput::Taken { result, .. } => self.refused += usize::from(result.is_err()),
                    ControllerOutput::Reply(_) | ControllerOutput::Keep { .. } => {}
                }
            }
        }
    }

    /// Lets time pass, with an audit each minute.
    fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            let audit = (self.now / (60 * SECOND) + 1) * 60 * SECOND;
            self.now = self.wake.max(self.now).min(audit).min(end);
            self.step(if self.now == audit { ControllerInput::Audit } else { ControllerInput::Timer });
            assert!(self.steps < 5_000, "it spins: {} steps within {} s", self.steps, self.now / SECOND);
        }
    }

    /// Waits between the calls of a name, in seconds.
    fn waits(&self, name: &str) -> Vec<u64> {
        let at: Vec<u64> = self.calls.iter().filter(|(_, call)| *call == name).map(|(at, _)| *at).collect();
        at.windows(2).map(|pair| (pair[1] - pair[0]) / SECOND).collect()
    }

    /// Notes about a subject.
    fn noted(&self, subject: &str) -> Vec<&str> {
        self.notes.iter().filter(|note| note.subject == subject).map(|note| note.text.as_str()).collect()
    }
}

#[test]
fn a_provider_that_cannot_be_asked_is_noted_once_and_asked_again_after_growing_waits() {
    let mut lab = Lab::new(stopped(), |call, number| match call {
        ProviderCall::Observe(_) if number < 40 => {
            ProviderAnswer::Unavailable(format!("request {number} timed out after {number}.3 s"))
        }
        ProviderCall::Observe(_) => seen(MachineState::Running),
        _ => ProviderAnswer::Ending,
    });
    lab.pass(130 * SECOND);
    assert_eq!(lab.waits("observe")[..5], [2, 4, 8, 16, 32], "{:?}", lab.calls);
    assert_eq!(
        lab.noted("provider sim"),
        ["cannot be asked what it sees: request 2 timed out after 2.3 s; asked again"]
    );
}

#[test]
fn a_refused_end_is_noted_once_and_asked_for_again_after_growing_waits() {
    let mut lab = Lab::new(stopped(), |call, number| match call {
        ProviderCall::End(_) => {
            ProviderAnswer::Refused(Refusal::Denied { message: format!("request-{number} has no such right") })
        }
        _ => seen(MachineState::Running),
    });
    lab.pass(300 * SECOND);
    assert_eq!(lab.waits("end")[..7], [2, 4, 8, 16, 32, 60, 60]);
    let noted = lab.noted("a-i1");
    assert_eq!(noted.len(), 1, "{noted:?}");
    assert!(noted[0].starts_with("its provider refuses to end it: not allowed: request-"), "{noted:?}");
}

#[test]
fn last_events_that_cannot_be_read_are_noted_and_the_run_is_billed_without_them() {
    let usage = domain::run::Usage { started: Timestamp(0), elapsed: Elapsed(SECOND) };
    let mut lab = Lab::new(stopped(), |call, _| match call {
        ProviderCall::LastEvents(_) => ProviderAnswer::Unavailable("the disk is gone".into()),
        ProviderCall::End(_) => ProviderAnswer::Ending,
        _ => seen(MachineState::Gone(Some(usage))),
    });
    lab.pass(120 * SECOND);
    assert_eq!(lab.waits("last events"), [1, 2, 4, 8, 8, 8, 8]);
    assert_eq!(
        lab.noted("a-i1"),
        ["what its agent wrote down last could not be read; work that was not reported is done again"]
    );
    assert!(lab.controller.world().runs.is_empty(), "it is billed, and has left memory");
}

/// The only machine of the run was called by the name that its second one will have, so the intent to rent that cannot
/// follow: a stand-in for any decision that is wrong.
fn wrong() -> Vec<Event> {
    let instance = run().instance(2);
    let usage = domain::run::Usage { started: Timestamp(0), elapsed: Elapsed(0) };
    vec![submitted(), intended(&instance), Event::Released { instance, usage }]
}

#[test]
fn an_illegal_decision_is_noted_once_with_its_facts_and_does_not_spin() {
    let view = || ProviderAnswer::Observed(ProviderView { is_complete: true, machines: Vec::new() });
    let mut lab = Lab::new(wrong(), |_, _| view());
    lab.pass(3_600 * SECOND);
    let noted = lab.noted("a");
    assert_eq!((noted.len(), lab.notes.len()), (1, 1), "{:?}", lab.notes);
    assert!(lab.notes[0].is_mistake);
    for fact in ["instance `a-i2` was intended before", "RentIntended", "Recovering", "attended"] {
        assert!(noted[0].contains(fact), "`{fact}` is missing: {}", noted[0]);
    }
    assert!(!lab.calls.iter().any(|(_, name)| *name == "launch"), "nothing is rented");
    assert!((60..400).contains(&lab.steps), "about once a minute: {}", lab.steps);
    // Requests of the user are still carried out at once.
    lab.step(ControllerInput::Request {
        from: ReplyId(1),
        event: Box::new(Event::StopRequested { run: run(), by: StopBy::User }),
    });
    assert_eq!(lab.refused, 0);
    assert!(lab.controller.world().runs.is_empty(), "it is stopped and billed");
}
