//! A controller with a provider that answers at once. Time is an argument.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::VecDeque;

use domain::event::{RentIntended, RunEnd, Submitted};
use domain::rental::{
    BillingRule, LaunchDetails, MachineHandle, MachineState, ProviderAnswer, ProviderCall, ProviderTraits,
    ProviderView, SeenMachine,
};
use domain::run::StopBy;
use domain::wire::HeartbeatReply;
use domain::{Elapsed, Event, InstanceId, Job, Money, Node, Offer, Plan, Rate, Record, RunId, Timestamp};
use plan::{Policy, World};

use control::{Controller, ControllerInput, ControllerOutput, Now, OperationNote, WatchedWork};

pub const SECOND: u64 = 1_000_000;

pub const TRAITS: ProviderTraits = ProviderTraits {
    visible_within: Elapsed(60 * SECOND),
    effective_within: Elapsed(0),
    boots_within: Elapsed(600 * SECOND),
    token_lifetime: Some(Elapsed(u64::MAX)),
    observe_every: Elapsed(SECOND),
    rents_together: false,
    billing: BillingRule::EXACT,
    places: None,
    abandoned_within: None,
    keeps_events: true,
    concurrency: 1,
};

/// A controller with a provider that answers each call at once, and the time.
pub struct Lab<A> {
    pub controller: Controller,
    pub now: u64,
    pub wake: u64,
    pub steps: u32,
    /// Answers a call, of which it is told how many there were.
    pub answer: A,
    /// Goes with the answer to the first launch.
    pub details: LaunchDetails,
    /// Events that were appended, in order.
    pub appended: Vec<Event>,
    pub calls: Vec<(u64, &'static str)>,
    pub notes: Vec<OperationNote>,
    pub refused: usize,
    /// What agents were told last.
    pub replies: Vec<HeartbeatReply>,
}

pub fn offer() -> Offer {
    let rate = Rate::from_micros_per_hour(0);
    Offer { provider: "sim".into(), kind: "m1".into(), node: Node::default(), rate, price_source: "test".into() }
}

pub fn run() -> RunId {
    RunId::new("a")
}

pub fn submitted() -> Event {
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
        anchors: Vec::new(),
    };
    let (job_hash, file) = (String::new(), "job.yaml".into());
    Event::Submitted(Box::new(Submitted { run: run(), job, plan, job_hash, file, trial: None, user: None }))
}

pub fn intended(instance: &InstanceId) -> Event {
    let (token, reserved) = ("t".into(), Money::default());
    let instance = instance.clone();
    Event::RentIntended(Box::new(RentIntended {
        run: run(),
        instance,
        token,
        offer: offer(),
        reserved,
        others: Vec::new(),
    }))
}

/// A run whose one machine is up.
pub fn up() -> Vec<Event> {
    let instance = run().instance(1);
    vec![
        submitted(),
        intended(&instance),
        Event::Launched { instance: instance.clone(), handle: None, account: None },
        Event::AgentUp { instance, started: Timestamp(0), incarnation: 0 },
    ]
}

/// The same after the user has stopped it, so that the machine is to be ended.
pub fn stopped() -> Vec<Event> {
    let mut events = up();
    events.push(Event::Ended { run: run(), end: RunEnd::Stopped { by: StopBy::User } });
    events
}

pub fn name_of(call: &ProviderCall) -> &'static str {
    match call {
        ProviderCall::Offers => "offers",
        ProviderCall::Launch(_) => "launch",
        ProviderCall::Observe(_) => "observe",
        ProviderCall::End(_) => "end",
        ProviderCall::LastEvents(_) => "last events",
    }
}

pub fn seen(state: MachineState) -> ProviderAnswer {
    let instance = run().instance(1);
    let machine = SeenMachine { handle: MachineHandle("m".into()), instance, state, notice: None };
    ProviderAnswer::Observed(ProviderView { is_complete: true, machines: vec![machine], unseen: Vec::new() })
}

impl<A: FnMut(&ProviderCall, usize) -> ProviderAnswer> Lab<A> {
    pub fn new(events: Vec<Event>, answer: A) -> Lab<A> {
        Lab::with_launch_details(events, answer, LaunchDetails::default())
    }

    pub fn with_launch_details(events: Vec<Event>, answer: A, details: LaunchDetails) -> Lab<A> {
        let records: Vec<Record> =
            events.into_iter().zip(1..).map(|(event, seq)| Record { seq, at: Timestamp(0), event }).collect();
        let now = Now { monotonic: Elapsed(0), wall: Timestamp(0) };
        let providers = [("sim".to_owned(), TRAITS)];
        let controller = Controller::new(World::replay(&records).unwrap(), "owner", providers, Policy::default(), now);
        let mut lab = Lab {
            controller,
            now: 0,
            wake: 0,
            steps: 0,
            answer,
            details,
            appended: Vec::new(),
            calls: Vec::new(),
            notes: Vec::new(),
            refused: 0,
            replies: Vec::new(),
        };
        lab.step(ControllerInput::Watched(WatchedWork { all: true, ..WatchedWork::default() }));
        lab
    }

    /// One input, and what follows from it at once.
    pub fn step(&mut self, input: ControllerInput) {
        let now = Now { monotonic: Elapsed(self.now), wall: Timestamp(self.now as i64) };
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.steps += 1;
            for output in self.controller.step(input, now).unwrap() {
                match output {
                    ControllerOutput::Append(records) => {
                        inputs.push_back(ControllerInput::Durable { seq: records.last().unwrap().seq });
                        self.appended.extend(records.into_iter().map(|record| record.event));
                    }
                    ControllerOutput::Call { id, call, .. } => {
                        self.calls.push((self.now, name_of(&call)));
                        let answer = (self.answer)(&call, self.calls.len());
                        let is_launch = matches!(call, ProviderCall::Launch(_));
                        let details = if is_launch { std::mem::take(&mut self.details) } else { Default::default() };
                        inputs.push_back(ControllerInput::Answered { call: id, answer, details });
                    }
                    ControllerOutput::Note(note) => self.notes.push(note),
                    ControllerOutput::WakeAt(at) => self.wake = at.0,
                    ControllerOutput::Taken { result, .. } => self.refused += usize::from(result.is_err()),
                    ControllerOutput::Reply(reply) => self.replies.push(reply.reply),
                    ControllerOutput::Keep { .. } => {}
                }
            }
        }
    }

    /// Lets time pass, with an audit each minute.
    pub fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            let audit = (self.now / (60 * SECOND) + 1) * 60 * SECOND;
            self.now = self.wake.max(self.now).min(audit).min(end);
            self.step(if self.now == audit { ControllerInput::Audit } else { ControllerInput::Timer });
            assert!(self.steps < 5_000, "it spins: {} steps within {} s", self.steps, self.now / SECOND);
        }
    }

    /// Waits between the calls of a name, in seconds.
    pub fn waits(&self, name: &str) -> Vec<u64> {
        let at: Vec<u64> = self.calls.iter().filter(|(_, call)| *call == name).map(|(at, _)| *at).collect();
        at.windows(2).map(|pair| (pair[1] - pair[0]) / SECOND).collect()
    }

    /// Notes about a subject.
    pub fn noted(&self, subject: &str) -> Vec<&str> {
        self.notes.iter().filter(|note| note.subject == subject).map(|note| note.text.as_str()).collect()
    }
}
