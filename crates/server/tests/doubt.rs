//! The loop over a provider that loses replies and lists a machine late, as clouds do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use cloud::{LaunchRequest, Provider, ProviderAnswer, ProviderCall, ProviderTraits};
use domain::rental::{BillingRule, MachineHandle, MachineState, ProviderView, Refusal, SeenMachine};
use domain::run::{InstanceState, StopBy, Usage};
use domain::{Elapsed, Event, InstanceId, Job, Money, Node, Offer, Plan, Rate, Timestamp};
use server::control::{Control, Wake};
use server::{Home, Series, State};

/// How long a new machine is missing from the cloud's list.
const LISTED_WITHIN: Duration = Duration::from_secs(2);

/// A cloud in memory.
#[derive(Default)]
struct Cloud {
    /// Replies that are lost before one arrives.
    lost_replies: usize,
    /// Number of end requests refused before one is accepted, and of queries that fail before one succeeds.
    faults: [usize; 2],
    /// Whether a request is refused.
    is_full: bool,
    /// Whether machines end before their rent begins.
    is_stillborn: bool,
    requests: Vec<String>,
    machines: BTreeMap<String, Machine>,
}

struct Machine {
    instance: InstanceId,
    rented: Instant,
    ended: Option<Instant>,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Cloud>>);

impl Provider for Shared {
    fn name(&self) -> &'static str {
        "lagging"
    }

    fn traits(&self) -> ProviderTraits {
        ProviderTraits {
            visible_within: Elapsed(LISTED_WITHIN.as_micros() as u64),
            effective_within: Elapsed(10_000),
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
        let mut cloud = self.0.lock().unwrap();
        match call {
            ProviderCall::Offers => ProviderAnswer::Offers(vec![offer()]),
            ProviderCall::Launch(request) => cloud.launch(request),
            ProviderCall::Observe(_) if cloud.faults[1] > 0 => {
                cloud.faults[1] -= 1;
                ProviderAnswer::Unavailable(format!("no route to host, request {}", cloud.faults[1]))
            }
            ProviderCall::End(_) if cloud.faults[0] > 0 => {
                cloud.faults[0] -= 1;
                ProviderAnswer::Refused(Refusal::Denied { message: format!("request {}", cloud.faults[0]) })
            }
            ProviderCall::Observe(_) => ProviderAnswer::Observed(ProviderView {
                is_complete: true,
                machines: cloud.listed(),
                unseen: Vec::new(),
            }),
            ProviderCall::End(requests) => {
                for machine in cloud.machines.values_mut().filter(|machine| machine.is_listed()) {
                    if requests.iter().any(|request| request.instance == machine.instance) {
                        machine.ended.get_or_insert_with(Instant::now);
                    }
                }
                ProviderAnswer::Ending
            }
            ProviderCall::LastEvents(_) => ProviderAnswer::LastEvents(Vec::new()),
        }
    }
}

impl Cloud {
    fn launch(&mut self, request: &LaunchRequest) -> ProviderAnswer {
        self.requests.push(request.token.clone());
        if self.is_full {
            return ProviderAnswer::Refused(Refusal::Capacity { message: "none is free".into() });
        }
        let instance = request.members[0].clone();
        let machine = Machine { instance: instance.clone(), rented: Instant::now(), ended: None };
        self.machines.entry(request.token.clone()).or_insert(machine);
        if self.lost_replies > 0 {
            self.lost_replies -= 1;
            return ProviderAnswer::Doubt("the connection broke".into());
        }
        ProviderAnswer::Accepted(vec![(instance.clone(), MachineHandle(instance.to_string()))])
    }

    fn listed(&self) -> Vec<SeenMachine> {
        let listed = self.machines.values().filter(|machine| self.is_stillborn || machine.is_listed());
        let seen = |machine: &Machine| {
            let used = |ended: Instant| Usage {
                started: Timestamp(0),
                elapsed: Elapsed(ended.duration_since(machine.rented).as_micros() as u64),
            };
            let state = match machine.ended {
                _ if self.is_stillborn => MachineState::Gone(None),
                None => MachineState::Running,
                Some(ended) => MachineState::Gone(Some(used(ended))),
            };
            let handle = MachineHandle(machine.instance.to_string());
            SeenMachine { handle, instance: machine.instance.clone(), state, notice: None }
        };
        listed.map(seen).collect()
    }
}

impl Machine {
    fn is_listed(&self) -> bool {
        self.rented.elapsed() >= LISTED_WITHIN
    }
}

fn offer() -> Offer {
    let rate = Rate::from_micros_per_hour(3_600_000_000);
    Offer { provider: "lagging".into(), kind: "m1".into(), node: Node::default(), rate, price_source: "test".into() }
}

fn job() -> Job {
    Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job
}

/// Submits a run, and waits for it until `done` returns true; `stopped` stops it once its machine was requested.
fn attend(cloud: &Shared, stopped: bool, done: impl Fn(&plan::World) -> bool) -> plan::World {
    attend_noted(cloud, stopped, done).0
}

/// The same, with the operations log.
fn attend_noted(cloud: &Shared, stopped: bool, done: impl Fn(&plan::World) -> bool) -> (plan::World, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::open(folder.path()).unwrap();
    let mut state = State::open(&home).unwrap();
    let (share, memory, time, cost) = (None, None, None, None);
    let plan = Plan {
        offer: offer(),
        share,
        memory,
        time,
        cost,
        reserve: Money::default(),
        assumptions: vec![],
        alternatives: Vec::new(),
        anchors: Vec::new(),
    };
    let run = server::submit::submit(&mut state, job(), plan, "job.yaml").unwrap();
    let _watch = home.watch(&home.run(&run)).unwrap();
    let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(cloud.clone())];
    let (sender, inbox) = mpsc::channel::<Wake>();
    let mut control = Control::new(state, Series::open(&home).unwrap(), &home, &providers);
    control.policy.doubt = Elapsed(20_000);
    if stopped {
        control.run(&sender, &inbox, |_| !cloud.0.lock().unwrap().requests.is_empty()).unwrap();
        control.state.append(vec![Event::StopRequested { run, by: StopBy::User }]).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    control.run(&sender, &inbox, |world| done(world) || Instant::now() > deadline).unwrap();
    assert!(done(control.state.world()), "not done within a minute: {:?}", control.state.world());
    // Settled work has left the loop's memory.
    let world = State::open(&home).unwrap().world().clone();
    let operations = Series::open(&home).unwrap().operations().unwrap();
    (world, operations.into_iter().map(|(_, note)| format!("{}: {}", note.subject, note.text)).collect())
}

fn shared(cloud: Cloud) -> Shared {
    Shared(Arc::new(Mutex::new(cloud)))
}

#[test]
fn a_launch_whose_replies_are_lost_rents_one_machine() {
    let cloud = shared(Cloud { lost_replies: 3, ..Cloud::default() });
    let launching = |world: &plan::World| {
        world.instances.values().any(|instance| matches!(instance.state, InstanceState::Launching))
    };
    let world = attend(&cloud, false, launching);
    let cloud = cloud.0.lock().unwrap();
    assert_eq!(world.instances.len(), 1, "one instance was intended");
    assert_eq!(
        (cloud.requests.len(), cloud.machines.len()),
        (4, 1),
        "asked four times with one token, for one machine"
    );
}

#[test]
fn a_machine_that_is_not_listed_yet_is_ended_and_billed() {
    let cloud = shared(Cloud { lost_replies: usize::MAX, ..Cloud::default() });
    let world = attend(&cloud, true, |world| world.runs.values().all(|run| run.bill.is_some()));
    let cloud = cloud.0.lock().unwrap();
    let machine = cloud.machines.values().next().expect("a machine was rented");
    let rented = machine.ended.expect("it was ended").duration_since(machine.rented);
    let bill = world.runs.values().next().and_then(|run| run.bill.clone()).expect("the run has a bill");
    assert_eq!(bill.total, offer().rate.cost(Elapsed(rented.as_micros() as u64)), "billed as the provider meters it");
    assert!(bill.total > Money::default());
}

#[test]
fn what_was_never_rented_costs_nothing() {
    let cloud = shared(Cloud { is_full: true, ..Cloud::default() });
    let world = attend(&cloud, true, |world| world.runs.values().all(|run| run.bill.is_some()));
    let bill = world.runs.values().next().and_then(|run| run.bill.clone()).expect("the run has a bill");
    assert_eq!((bill.total, cloud.0.lock().unwrap().machines.len()), (Money::default(), 0));
}

#[test]
fn a_machine_that_never_began_costs_nothing() {
    let cloud = shared(Cloud { is_stillborn: true, ..Cloud::default() });
    let world = attend(&cloud, true, |world| world.runs.values().all(|run| run.bill.is_some()));
    let bill = world.runs.values().next().and_then(|run| run.bill.clone()).expect("the run has a bill");
    assert_eq!(bill.total, Money::default(), "the provider's proof counts, not the time that it was waited for");
}

#[test]
fn what_a_provider_fails_at_is_in_the_operations_log_once() {
    let cloud = shared(Cloud { faults: [2, 3], ..Cloud::default() });
    let billed = |world: &plan::World| world.runs.values().all(|run| run.bill.is_some());
    let (world, noted) = attend_noted(&cloud, true, billed);
    let instance = world.instances.keys().next().expect("a machine was rented");
    let expected = [
        format!("{instance}: its provider refuses to end it: not allowed: request 1; asked again"),
        "provider lagging: cannot be asked what it sees: no route to host, request 2; asked again".to_owned(),
    ];
    // Calls are made at the same time, so the two may be noted in either order.
    let mut noted: Vec<String> = noted.into_iter().filter(|note| !note.contains("it is not known")).collect();
    noted.sort();
    assert_eq!(noted, expected);
    assert_eq!(cloud.0.lock().unwrap().faults, [0, 0]);
}
