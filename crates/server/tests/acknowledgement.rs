//! Decisions and measurements are acknowledged independently: a run ends even if its measurements cannot be stored.

use std::sync::{Arc, mpsc};

use cloud::{Provider, ProviderAnswer, ProviderCall, ProviderTraits};
use control::EntryQueue;
use domain::event::{RentIntended, RunEnd};
use domain::rank::{Report, Step};
use domain::rental::{BillingRule, MachineHandle, MachineState, ProviderView, SeenMachine};
use domain::run::{AttemptEnd, Bill, Outcome, RunState, Usage};
use domain::wire::{AgentCommand, AgentEvent, Entry, Heartbeat, HeartbeatReply, SCHEMA};
use domain::{AttemptId, Elapsed, Event, Fence, InstanceId, Job, Money, Node, Offer, Plan, Rate, RunId, Timestamp};
use server::control::{Control, Wake};
use server::{Home, Series, State};

/// Machines that exist as soon as they are requested; the test acts as their agents.
struct Twin;

impl Provider for Twin {
    fn name(&self) -> &'static str {
        "twin"
    }

    fn traits(&self) -> ProviderTraits {
        ProviderTraits {
            visible_within: Elapsed(0),
            effective_within: Elapsed(0),
            boots_within: Elapsed(600_000_000),
            token_lifetime: Some(Elapsed(u64::MAX)),
            observe_every: Elapsed(20_000),
            rents_together: false,
            billing: BillingRule::EXACT,
            places: None,
            abandoned_within: None,
            keeps_events: false,
            concurrency: 1,
        }
    }

    fn call(&self, call: &ProviderCall) -> ProviderAnswer {
        let handle = |instance: &InstanceId| MachineHandle(instance.to_string());
        let seen = |instance: &InstanceId| SeenMachine {
            handle: handle(instance),
            instance: instance.clone(),
            state: MachineState::Running,
            notice: None,
        };
        match call {
            ProviderCall::Offers => ProviderAnswer::Offers(Vec::new()),
            ProviderCall::Launch(request) => {
                ProviderAnswer::Accepted(request.members.iter().map(|one| (one.clone(), handle(one))).collect())
            }
            ProviderCall::Observe(asked) => {
                let machines = asked.iter().map(seen).collect();
                ProviderAnswer::Observed(ProviderView { is_complete: true, machines, unseen: Vec::new() })
            }
            ProviderCall::End(_) => ProviderAnswer::Ending,
            ProviderCall::LastEvents(_) => ProviderAnswer::LastEvents(Vec::new()),
        }
    }
}

fn job() -> Job {
    serde_json::from_value(serde_json::json!({
        "name": "echo", "work": {"command": {"workdir": null, "setup": null, "run": "true"}}, "envs": {},
        "needs": {"cores": null, "memory": null, "disk": null}, "budget": null, "deadline": null,
        "recovery": {"restarts": 20, "restarts_on_errors": 0, "exit_codes": []},
    }))
    .unwrap()
}

fn plan() -> Plan {
    let node = Node { cores: 1, ..Node::default() };
    let (provider, kind, rate) = ("twin".into(), "any".into(), Rate::from_micros_per_hour(0));
    let offer = Offer { provider, kind, node, rate, price_source: String::new() };
    let reserve = domain::Money::default();
    Plan {
        offer,
        share: None,
        memory: None,
        time: None,
        cost: None,
        reserve,
        assumptions: Vec::new(),
        alternatives: Vec::new(),
        anchors: Vec::new(),
    }
}

fn step(number: u64) -> AgentEvent {
    let report = Report::Step(Step {
        step: number,
        epoch: 0,
        loss: 1.0,
        lr: 0.1,
        samples: 8,
        step_us: 1,
        data_wait_us: 0,
        checkpoint_us: 0,
        data: domain::rank::Fetching::default(),
    });
    AgentEvent::Reported { rank: 0, report }
}

/// The reports of an agent.
trait Queue {
    fn push(&mut self, attempt: &AttemptId, event: AgentEvent);
    fn send(&mut self) -> Vec<Entry>;
    fn answered(&mut self, answer: &HeartbeatReply);
}

impl Queue for EntryQueue {
    fn push(&mut self, attempt: &AttemptId, event: AgentEvent) {
        EntryQueue::push(self, attempt, event);
    }

    fn send(&mut self) -> Vec<Entry> {
        EntryQueue::send(self, 2000)
    }

    fn answered(&mut self, answer: &HeartbeatReply) {
        self.acknowledge(answer.acknowledged, answer.measured.unwrap_or(answer.acknowledged));
    }
}

/// As the first version had it: one stream, of which the oldest 2,000 are sent.
#[derive(Default)]
struct First(Vec<Entry>, u64);

impl Queue for First {
    fn push(&mut self, attempt: &AttemptId, event: AgentEvent) {
        self.1 += 1;
        self.0.push(Entry { seq: self.1, attempt: attempt.clone(), event });
    }

    fn send(&mut self) -> Vec<Entry> {
        self.0.iter().take(2000).cloned().collect()
    }

    fn answered(&mut self, answer: &HeartbeatReply) {
        self.0.retain(|entry| entry.seq > answer.acknowledged);
    }
}

/// One call of the agent of an instance; returns the reply.
fn call(wake: &mpsc::Sender<Wake>, instance: &InstanceId, entries: Vec<Entry>) -> HeartbeatReply {
    let (reply, answer) = tokio::sync::oneshot::channel();
    let (instance, started, elapsed) = (instance.clone(), Timestamp(1), Elapsed(1));
    let (reclaim, incarnation, attempt) = (None, 0, None);
    let heartbeat = Heartbeat { schema: SCHEMA, instance, started, elapsed, entries, reclaim, incarnation, attempt };
    wake.send(Wake::Heartbeat(Box::new(heartbeat), reply)).unwrap();
    answer.blocking_recv().unwrap()
}

/// Acts as the agent of a run's one instance, from its start to 5,000 steps and its end, and returns the state of the
/// run after 20 more calls, with the stored steps.
fn ended(queue: &mut (dyn Queue + Send), can_keep: bool) -> (RunState, usize) {
    let temporary = tempfile::tempdir().unwrap();
    let home = Home::open(temporary.path()).unwrap();
    let mut state = State::open(&home).unwrap();
    let run = server::submit::submit(&mut state, job(), plan(), "echo.yaml").unwrap();
    let _watching = home.watch(&home.run(&run)).unwrap();
    let series = Series::open(&home).unwrap();
    if !can_keep {
        rusqlite::Connection::open(home.series()).unwrap().execute("DROP TABLE points", []).unwrap();
    }
    let (wake, inbox) = mpsc::channel();
    let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(Twin)];
    std::thread::scope(|scope| {
        let run = &run;
        let sender = wake.clone();
        scope.spawn(move || speak(&wake, run, queue));
        Control::new(state, series, &home, &providers).run(&sender, &inbox, |_| false).unwrap();
    });
    let world = State::open(&home).unwrap();
    let steps = if can_keep { Series::open(&home).unwrap().points(&run, 0).unwrap().len() } else { 0 };
    (world.world().runs[&run].state.clone(), steps)
}

fn speak(wake: &mpsc::Sender<Wake>, run: &RunId, queue: &mut dyn Queue) {
    let instance = run.instance(1);
    let call = |queue: &mut dyn Queue| {
        let answer = call(wake, &instance, queue.send());
        queue.answered(&answer);
        answer.orders
    };
    let attempt: AttemptId = loop {
        let order = call(queue).into_iter().find_map(|order| match order {
            AgentCommand::Start(start) => Some(start.attempt),
            AgentCommand::Prepare(_) | AgentCommand::Go { .. } => None,
            AgentCommand::Stop { .. } | AgentCommand::Leave => None,
        });
        if let Some(attempt) = order {
            break attempt;
        }
    };
    queue.push(&attempt, AgentEvent::Started);
    for number in 1..=5000 {
        queue.push(&attempt, step(number));
    }
    queue.push(&attempt, AgentEvent::Ended { end: AttemptEnd::Succeeded });
    for _ in 0..20 {
        call(queue);
    }
    wake.send(Wake::Interrupt).unwrap();
}

/// As [`ended`], with an agent of this version.
fn ended_now(can_keep: bool) -> (RunState, usize) {
    ended(&mut EntryQueue::default(), can_keep)
}

#[test]
fn a_run_ends_and_keeps_what_it_measured() {
    let succeeded = RunState::Done { outcome: Outcome::Succeeded };
    assert_eq!(ended_now(true), (succeeded.clone(), 5000));
    assert_eq!(ended(&mut First::default(), true), (succeeded, 5000));
}

#[test]
fn a_run_ends_though_no_measurement_can_be_kept() {
    let succeeded = RunState::Done { outcome: Outcome::Succeeded };
    assert_eq!(ended_now(false).0, succeeded);
    assert_eq!(ended(&mut First::default(), false).0, succeeded, "an agent of the first version");
}

#[test]
fn an_agent_that_calls_after_its_run_was_settled_is_told_to_leave() {
    let temporary = tempfile::tempdir().unwrap();
    let home = Home::open(temporary.path()).unwrap();
    let mut state = State::open_lean(&home).unwrap();
    let run = server::submit::submit(&mut state, job(), plan(), "echo.yaml").unwrap();
    let (instance, attempt) = (run.instance(1), run.attempt(Fence(1)));
    let usage = Usage { started: Timestamp(1), elapsed: Elapsed(2) };
    let (offer, reserved) = (plan().offer, domain::Money::default());
    let intent = RentIntended {
        run: run.clone(),
        instance: instance.clone(),
        token: "t".into(),
        offer,
        reserved,
        others: Vec::new(),
    };
    let life = [
        Event::RentIntended(Box::new(intent)),
        Event::AgentUp { instance: instance.clone(), started: usage.started, incarnation: 0 },
        Event::AttemptIntended {
            run: run.clone(),
            attempt: attempt.clone(),
            fence: Fence(1),
            instance: instance.clone(),
            others: Vec::new(),
        },
        Event::AttemptEnded { attempt, end: AttemptEnd::Succeeded },
        Event::Ended { run: run.clone(), end: RunEnd::Done { outcome: Outcome::Succeeded } },
        Event::Released { instance: instance.clone(), usage },
        Event::Billed {
            run: run.clone(),
            bill: Bill { lines: Vec::new(), total: reserved, adjustment: Money::default() },
        },
    ];
    state.append(life.to_vec()).unwrap();
    assert!(state.world().runs.is_empty(), "it has left memory");
    let (wake, inbox) = mpsc::channel();
    let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(Twin)];
    let series = Series::open(&home).unwrap();
    let told = std::thread::scope(|scope| {
        let sender = wake.clone();
        let agent = scope.spawn(move || {
            let told = [call(&wake, &instance, Vec::new()), call(&wake, &instance, Vec::new())];
            wake.send(Wake::Interrupt).unwrap();
            told
        });
        Control::new(state, series, &home, &providers).run(&sender, &inbox, |_| false).unwrap();
        agent.join().unwrap()
    });
    for reply in told {
        assert_eq!(reply.orders, [AgentCommand::Leave]);
    }
}
