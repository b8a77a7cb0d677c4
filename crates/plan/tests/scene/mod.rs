//! A run on several machines, and what is seen of the world. Time is an argument.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;

use domain::event::{RentIntended, Submitted};
use domain::rental::{BillingRule, ProviderTraits};
use domain::run::{AttemptEnd, Usage};
use domain::wire::{AgentCommand, AgentEvent, Entry, Start};
use domain::{AttemptId, Elapsed, Event, InstanceId, Job, Money, Node, Offer, Plan, Rate, Record, RunId, Timestamp};
use plan::{Action, ObservedState, Policy, World, reconcile};

pub const SECOND: u64 = 1_000_000;

/// A run, and what is seen of the world.
pub struct Scene {
    pub world: World,
    pub facts: ObservedState,
    pub run: RunId,
}

impl Scene {
    /// `places` machines are there in all.
    pub fn new(places: usize) -> Scene {
        Scene::of("name: job\nrun: 'true'\nnum_nodes: 3\nresources: {infra: ssh}\n", places)
    }

    /// The same for any job.
    pub fn of(text: &str, places: usize) -> Scene {
        let run = RunId::new("a");
        let (kind, price_source) = (Offer::ANY.into(), "test".into());
        let rate = Rate::from_micros_per_hour(1_000_000);
        let offer = Offer { provider: "p".into(), kind, node: Node::default(), rate, price_source };
        let job = Job::parse(text, "job.yaml").unwrap().job;
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
        let file = "job.yaml".into();
        let submitted =
            Submitted { run: run.clone(), job, plan, job_hash: String::new(), file, trial: None, user: None };
        let traits = ProviderTraits {
            visible_within: Elapsed(0),
            effective_within: Elapsed(0),
            boots_within: Elapsed(60 * SECOND),
            token_lifetime: Some(Elapsed(u64::MAX)),
            observe_every: Elapsed(SECOND),
            rents_together: false,
            billing: BillingRule::EXACT,
            places: Some(places),
            abandoned_within: None,
            keeps_events: true,
            concurrency: 1,
        };
        let facts = ObservedState {
            attended: [run.clone()].into(),
            traits: BTreeMap::from([("p".to_owned(), traits)]).into(),
            ..ObservedState::default()
        };
        let mut scene = Scene { world: World::default(), facts, run };
        scene.append(Event::Submitted(Box::new(submitted)));
        scene
    }

    pub fn append(&mut self, event: Event) {
        let record = Record { seq: self.world.last_seq + 1, at: self.facts.now, event };
        self.world.apply(&record).unwrap();
    }

    pub fn decide(&self) -> Vec<Action> {
        reconcile(&self.world, &self.facts, &Policy::default())
    }

    /// Does what is decided until nothing follows; each action in a word.
    pub fn settle(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        loop {
            let actions: Vec<Action> =
                self.decide().into_iter().filter(|action| !matches!(action, Action::Launch { .. })).collect();
            if actions.is_empty() {
                return done;
            }
            for action in actions {
                done.push(self.perform(action));
            }
        }
    }

    pub fn perform(&mut self, action: Action) -> String {
        match action {
            Action::Rent { run, instance, others, offer, reserve } => {
                let names: Vec<&str> = std::iter::once(&instance).chain(&others).map(InstanceId::as_str).collect();
                let said = format!("rent {}", names.join(" with "));
                let token = instance.to_string();
                let intent = RentIntended { run, instance, token, offer, reserved: reserve, others };
                self.append(Event::RentIntended(Box::new(intent)));
                said
            }
            Action::Start { run, attempt, fence, mut instances } => {
                let names: Vec<&str> = instances.iter().map(InstanceId::as_str).collect();
                let said = format!("start on {}", names.join(" "));
                let instance = instances.remove(0);
                self.append(Event::AttemptIntended { run, attempt, fence, instance, others: instances });
                said
            }
            Action::EndAttempt { attempt, end } => {
                let said = match &end {
                    AttemptEnd::Failed { finding, .. } => format!("failed: {}", finding.message),
                    end => format!("{end:?}"),
                };
                self.append(Event::AttemptEnded { attempt, end });
                said
            }
            Action::Release { instance } => {
                let said = format!("release {instance}");
                self.append(Event::ReleaseIntended { instance: instance.clone(), lost_race: false });
                self.gone(&instance);
                said
            }
            Action::Resize { attempt } => {
                self.append(Event::AttemptResizing { attempt: attempt.clone() });
                format!("resize {attempt}")
            }
            Action::HalveMicroBatch { run, accumulate } => {
                self.append(Event::MicroBatchHalved { run, accumulate });
                format!("{accumulate} micro-batches")
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn gone(&mut self, instance: &InstanceId) {
        let usage = Usage { started: Timestamp(0), elapsed: Elapsed(SECOND) };
        self.append(Event::Released { instance: instance.clone(), usage });
    }

    pub fn up(&mut self, numbers: &[u64]) {
        for number in numbers {
            let instance = self.run.instance(*number);
            self.append(Event::AgentUp { instance, started: Timestamp(0), incarnation: 0 });
        }
    }

    pub fn orders(&self, number: u64) -> Vec<AgentCommand> {
        plan::orders(&self.world, &Policy::default(), &self.run.instance(number), |run, known, attempt| Start {
            run: run.clone(),
            attempt: attempt.clone(),
            fence: self.world.attempts[attempt].fence,
            job: known.job.clone(),
            job_hash: String::new(),
            threads: 1,
            accept_data_change: false,
            member: None,
            folder: String::new(),
        })
    }

    pub fn says(&mut self, number: u64, attempt: &AttemptId, event: AgentEvent) {
        let entry = Entry { seq: 1, attempt: attempt.clone(), event };
        if let Some(event) = plan::hear(&self.world, &self.run.instance(number), &entry) {
            self.append(event);
        }
    }
}
