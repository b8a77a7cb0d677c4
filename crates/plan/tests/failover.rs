//! A run that may be given several kinds of machine: which are asked for, together or in turn, and what becomes of those that
//! are not needed.

use std::collections::BTreeMap;

use domain::event::{RentIntended, RunEnd, Submitted};
use domain::rental::{BillingRule, ProviderTraits};
use domain::run::{RunState, StopBy, Usage};
use domain::{
    Cause, Elapsed, Event, Finding, InstanceId, Job, Money, Node, Offer, Plan, Rate, Record, RunId, Timestamp,
};
use plan::{Action, ObservedState, Policy, Scope, World, bill, reconcile, reconcile_scope, run_due};

const SECOND: u64 = 1_000_000;

/// A run, and what is seen of the world.
struct Scene {
    world: World,
    facts: ObservedState,
    policy: Policy,
    run: RunId,
}

fn offer(kind: &str) -> Offer {
    let (provider, price_source) = ("p".into(), "test".into());
    Offer {
        provider,
        kind: kind.into(),
        node: Node::default(),
        rate: Rate::from_micros_per_hour(3_600_000),
        price_source,
    }
}

impl Scene {
    /// A run on so many machines, which may be of any of these kinds; with a budget, or none.
    fn new(nodes: u32, kinds: &[&str], budget: Option<&str>) -> Scene {
        let run = RunId::new("a");
        let budget = budget.map(|budget| format!("budget: {{max: {budget}}}\n")).unwrap_or_default();
        let text = format!("name: job\nrun: 'true'\nnum_nodes: {nodes}\nresources: {{infra: aws}}\n{budget}");
        let job = Job::parse(&text, "job.yaml").unwrap().job;
        let plan = Plan {
            offer: offer(kinds[0]),
            share: None,
            memory: None,
            time: None,
            cost: None,
            reserve: Money::default(),
            assumptions: Vec::new(),
            alternatives: kinds[1..].iter().map(|kind| offer(kind)).collect(),
            anchors: Vec::new(),
        };
        let (job_hash, file) = (String::new(), "job.yaml".into());
        let submitted = Submitted { run: run.clone(), job, plan, job_hash, file, trial: None, user: None };
        let traits = ProviderTraits {
            visible_within: Elapsed(0),
            effective_within: Elapsed(0),
            boots_within: Elapsed(60 * SECOND),
            token_lifetime: Some(Elapsed(u64::MAX)),
            observe_every: Elapsed(SECOND),
            rents_together: false,
            billing: BillingRule::EXACT,
            places: None,
            abandoned_within: None,
            keeps_events: false,
            concurrency: 8,
        };
        let traits = BTreeMap::from([("p".to_owned(), traits)]).into();
        let facts = ObservedState { attended: [run.clone()].into(), traits, ..ObservedState::default() };
        let mut scene = Scene { world: World::default(), facts, policy: Policy::default(), run };
        scene.append(Event::Submitted(Box::new(submitted)));
        scene
    }

    fn append(&mut self, event: Event) {
        let record = Record { seq: self.world.last_seq + 1, at: self.facts.now, event };
        self.world.apply(&record).unwrap();
    }

    fn run(&self) -> &plan::Run {
        &self.world.runs[&self.run]
    }

    /// Decides and does until nothing follows; what was done, in words.
    fn settle(&mut self) -> String {
        let mut done = Vec::new();
        loop {
            let actions = reconcile(&self.world, &self.facts, &self.policy);
            let new = |action: &Action| !matches!(action, Action::Launch { .. } | Action::Terminate { .. });
            let actions: Vec<Action> = actions.into_iter().filter(new).collect();
            if actions.is_empty() {
                return done.join(", ");
            }
            done.extend(actions.into_iter().map(|action| self.perform(action)));
        }
    }

    #[track_caller]
    fn check(&mut self, expected: &str) {
        assert_eq!(self.settle(), expected);
        assert!(
            run_due(&self.world, &self.facts, &Policy::default(), &self.run, self.run()).is_none_or(|due| due.0 > 0)
        );
    }

    fn perform(&mut self, action: Action) -> String {
        match action {
            Action::Rent { run, instance, others, offer, reserve } => {
                let said = format!("rent {}", offer.kind);
                let token = instance.to_string();
                for member in std::iter::once(&instance).chain(&others) {
                    self.facts.machine_mut(member).silence = Some(Elapsed(0));
                }
                let intent = RentIntended { run, instance, token, offer, reserved: reserve, others };
                self.append(Event::RentIntended(Box::new(intent)));
                said
            }
            Action::GiveUpRace { instance } => {
                let said = format!("give up {}", self.world.instances[&instance].offer.kind);
                self.append(Event::ReleaseIntended { instance, lost_race: true });
                said
            }
            Action::Release { instance } => {
                let said = format!("release {}", self.world.instances[&instance].offer.kind);
                self.append(Event::ReleaseIntended { instance, lost_race: false });
                said
            }
            Action::Start { run, attempt, fence, mut instances } => {
                let kinds: Vec<&str> = instances.iter().map(|id| &*self.world.instances[id].offer.kind).collect();
                let said = format!("start on {}", kinds.join(" "));
                let instance = instances.remove(0);
                self.append(Event::AttemptIntended { run, attempt, fence, instance, others: instances });
                said
            }
            Action::Stop { run, by } => {
                self.append(Event::StopRequested { run, by });
                format!("stop by {by:?}")
            }
            Action::End { run, end } => {
                self.append(Event::Ended { run, end });
                "end".to_owned()
            }
            Action::Bill { run, bill } => {
                let said = format!("bill {}", bill.total);
                self.append(Event::Billed { run, bill });
                said
            }
            other => panic!("{other:?}"),
        }
    }

    /// The newest machine of a kind.
    fn instance(&self, kind: &str) -> InstanceId {
        let mut newest = self.run().instances.iter().rev();
        newest.find(|id| self.world.instances[*id].offer.kind == kind).unwrap().clone()
    }

    /// The provider has none of a kind; it is not asked for again for a minute.
    fn refuse(&mut self, kind: &str) {
        let (instance, finding) = (self.instance(kind), Finding::new(Cause::NoCapacity, "none"));
        self.append(Event::RentFailed { instance, finding });
        self.facts.shortages.insert(("p".into(), kind.into()), Elapsed(60 * SECOND));
    }

    fn accept(&mut self, kind: &str) {
        self.append(Event::Launched { instance: self.instance(kind), handle: None, account: None });
    }

    fn up(&mut self, kind: &str) {
        self.append(Event::AgentUp { instance: self.instance(kind), started: Timestamp(0), incarnation: 0 });
    }

    fn gone(&mut self, kind: &str, seconds: u64) {
        let usage = Usage { started: Timestamp(0), elapsed: Elapsed(seconds * SECOND) };
        self.append(Event::Released { instance: self.instance(kind), usage });
    }

    fn due(&self) -> Option<u64> {
        let due = run_due(&self.world, &self.facts, &Policy::default(), &self.run, self.run())?;
        Some(due.0 / SECOND)
    }
}

#[test]
fn the_first_choice_is_asked_for_alone() {
    let mut scene = Scene::new(1, &["a", "b", "c"], None);
    scene.check("rent a");
    scene.accept("a");
    scene.check("");
    scene.up("a");
    scene.check("start on a");
}

#[test]
fn others_race_at_once_when_it_is_refused_and_what_loses_is_billed_as_race() {
    let mut scene = Scene::new(1, &["a", "b", "c", "d", "e", "f"], None);
    scene.check("rent a");
    scene.refuse("a");
    scene.check("rent b, rent c, rent d, rent e");
    scene.refuse("c");
    scene.check("rent f");
    assert!(matches!(scene.run().state, RunState::Renting { .. }));
    // Two are had at once: the one that the plan names first is kept.
    scene.accept("e");
    scene.accept("b");
    scene.check("give up e, give up d, give up f");
    // One that was not had yet is refused after it was given up: that is no failure of the run.
    let finding = Finding::new(Cause::NoCapacity, "none");
    scene.append(Event::RentFailed { instance: scene.instance("d"), finding });
    let kept = scene.instance("b");
    assert_eq!(scene.run().state, RunState::Renting { instance: kept });
    scene.up("b");
    scene.check("start on b");
    scene.gone("e", 60);
    scene.gone("f", 0);
    assert_eq!((scene.run().restarts, scene.run().waits), (0, 0));
    scene.append(Event::ReleaseIntended { instance: scene.instance("b"), lost_race: false });
    scene.gone("b", 600);
    let bill = bill(&scene.world, scene.run()).unwrap();
    let race: Vec<String> = bill.lines.iter().filter(|line| line.race).map(|line| line.amount.to_string()).collect();
    assert_eq!((bill.total.to_string(), race.join(" ")), ("$0.66".to_owned(), "$0.00 $0.06 $0.00".to_owned()));
}

#[test]
fn a_winner_that_dies_counts_as_a_restart() {
    let mut scene = Scene::new(1, &["a", "b", "c"], None);
    scene.check("rent a");
    scene.refuse("a");
    scene.check("rent b, rent c");
    scene.accept("b");
    scene.check("give up c");
    scene.gone("c", 0);
    scene.gone("b", 1);
    assert_eq!(scene.run().restarts, 1);
}

#[test]
fn what_was_refused_is_left_alone_for_a_while() {
    let mut scene = Scene::new(1, &["a", "b"], None);
    scene.check("rent a");
    scene.refuse("a");
    scene.check("rent b");
    scene.refuse("b");
    scene.facts.shortages.insert(("p".into(), "a".into()), Elapsed(20 * SECOND));
    scene.check("");
    assert_eq!(scene.due(), Some(20), "it waits for the first that may be asked for again");
    // Also one that was stopped and resumed meanwhile.
    let (budget, deadline, epochs, run) = (None, None, None, scene.run.clone());
    scene.append(Event::StopRequested { run: run.clone(), by: StopBy::User });
    scene.append(Event::Ended { run: run.clone(), end: RunEnd::Stopped { by: StopBy::User } });
    scene.append(Event::ResumeRequested { run, budget, deadline, epochs, accept_data_change: false, set: Vec::new() });
    scene.check("");
    assert_eq!(scene.due(), Some(20));
    scene.facts.shortages.remove(&("p".into(), "a".into()));
    scene.check("rent a");
    // Another run learns from it.
    let mut other = Scene::new(1, &["b", "a"], None);
    other.facts.shortages.insert(("p".into(), "b".into()), Elapsed(SECOND));
    other.check("rent a");
}

/// Seed 34649 of the simulation.
#[test]
fn a_run_that_has_its_machines_starts_whatever_is_refused_to_others() {
    let refused = |scene: &mut Scene| {
        for kind in ["a", "b"] {
            scene.facts.shortages.insert(("p".into(), kind.into()), Elapsed(60 * SECOND));
        }
    };
    let mut scene = Scene::new(2, &["a", "b"], None);
    scene.check("rent a, rent a");
    for number in [1, 2] {
        let instance = scene.run.instance(number);
        scene.append(Event::Launched { instance: instance.clone(), handle: None, account: None });
        scene.append(Event::AgentUp { instance, started: Timestamp(0), incarnation: 0 });
    }
    refused(&mut scene);
    scene.check("start on a a");
    // One that has none waits.
    let mut scene = Scene::new(2, &["a", "b"], None);
    refused(&mut scene);
    scene.check("");
    assert_eq!(scene.due(), Some(60));
}

/// Seeds 61659 and 84098 of the simulation: what other runs are rented tells that a kind may be had.
#[test]
fn a_run_that_was_not_granted_a_machine_yet_asks_for_what_others_were_granted() {
    let waiting = |scene: &Scene| {
        let mut scope = Scope::default();
        scope.add_waiting(&scene.world);
        reconcile_scope(&scene.world, &scene.facts, &scene.policy, &scope)
    };
    let mut scene = Scene::new(1, &["a", "b", "c"], None);
    scene.check("rent a");
    scene.refuse("a");
    scene.check("rent b, rent c");
    scene.facts.shortages.clear();
    let actions = waiting(&scene);
    let is_of_a = |action: &Action| matches!(action, Action::Rent { offer, .. } if offer.kind == "a");
    assert!(actions.iter().any(is_of_a), "{actions:?}");
    scene.accept("b");
    assert_eq!(scene.settle(), "give up c");
    assert!(waiting(&scene).is_empty(), "it has one");
}

/// One that will be taken back is replaced while it is still there.
#[test]
fn a_run_whose_machine_will_be_reclaimed_waits_for_a_slot() {
    let mut scene = Scene::new(1, &["a"], None);
    scene.check("rent a");
    let is_waiting = |scene: &Scene| {
        let mut scope = Scope::default();
        scope.add_waiting(&scene.world);
        scope.runs.contains(&scene.run)
    };
    scene.up("a");
    assert!(!is_waiting(&scene));
    scene.append(Event::ReclaimNoticed { instance: scene.instance("a"), at: Timestamp(0) });
    assert!(is_waiting(&scene));
}

#[test]
fn a_request_without_an_answer_is_not_waited_for_alone() {
    let mut scene = Scene::new(1, &["a", "b", "c", "d", "e", "f"], None);
    scene.check("rent a");
    assert_eq!(scene.due(), Some(20));
    scene.facts.machine_mut(&scene.instance("a")).silence = Some(Elapsed(20 * SECOND));
    scene.check("rent b, rent c, rent d");
    scene.accept("c");
    scene.check("give up a, give up b, give up d");
}

#[test]
fn a_machine_that_will_be_reclaimed_wins_no_race() {
    let mut scene = Scene::new(1, &["a", "b", "c"], None);
    scene.check("rent a");
    scene.facts.machine_mut(&scene.instance("a")).silence = Some(Elapsed(20 * SECOND));
    scene.check("rent b, rent c");
    scene.accept("a");
    let (instance, started) = (scene.instance("a"), scene.facts.now);
    scene.append(Event::AgentUp { instance: instance.clone(), started, incarnation: 1 });
    scene.append(Event::ReclaimNoticed { instance, at: started });
    scene.accept("b");
    scene.check("release a, give up c");
}

/// Round trips to the provider until one of nine zones has a machine, where eight are empty and the ninth comes last.
fn round_trips(race: usize) -> usize {
    let kinds = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let mut scene = Scene::new(1, &kinds, None);
    scene.policy.race = race;
    for round in 1.. {
        scene.settle();
        let asked: Vec<String> = scene.world.live_instances().map(|(_, asked)| asked.offer.kind.clone()).collect();
        if asked.iter().any(|kind| kind == "i") {
            return round;
        }
        asked.iter().for_each(|kind| scene.refuse(kind));
    }
    unreachable!("the last zone has a machine")
}

#[test]
fn eight_empty_zones_of_nine_take_a_third_of_the_round_trips() {
    let (one_by_one, raced) = (round_trips(1), round_trips(4));
    println!("{one_by_one} round trips one by one, {raced} in a race: a ratio of {}", one_by_one / raced);
    assert_eq!((one_by_one, raced), (9, 3));
}

#[test]
fn a_race_stays_within_the_budget() {
    // A machine costs $3.60 an hour; each that races may have to be ended.
    let mut scene = Scene::new(1, &["a", "b", "c", "d", "e"], Some("$0.014"));
    scene.check("rent a");
    scene.refuse("a");
    scene.check("rent b, rent c");
    let mut scene = Scene::new(1, &["a", "b"], Some("$0.0001"));
    scene.check("stop by Budget, end, bill $0.00");
}

#[test]
fn machines_that_need_each_other_are_of_one_kind() {
    let mut scene = Scene::new(2, &["a", "b"], None);
    scene.check("rent a, rent a");
    // The second of them is refused: the first one is given back, and the other kind is asked for at once.
    let first = scene.run().instances[0].clone();
    scene.append(Event::Launched { instance: first.clone(), handle: None, account: None });
    scene.refuse("a");
    scene.check("give up a, rent b, rent b");
    let usage = Usage { started: Timestamp(0), elapsed: Elapsed(60 * SECOND) };
    scene.append(Event::Released { instance: first, usage });
    assert_eq!(scene.run().restarts, 0);
    let others: Vec<InstanceId> = scene.run().instances.iter().skip(2).cloned().collect();
    for instance in others {
        scene.append(Event::AgentUp { instance, started: Timestamp(0), incarnation: 0 });
    }
    scene.check("start on b b");
}

/// Three machines, of which one is on demand beside spot machines of any of these kinds.
fn mixed(kinds: &[&str]) -> Scene {
    let spot: Vec<String> = kinds.iter().map(|kind| format!("{kind}/spot")).collect();
    let spot: Vec<&str> = spot.iter().map(String::as_str).collect();
    let mut scene = Scene::new(3, &spot, None);
    let run = scene.world.runs.get_mut(&scene.run).unwrap();
    run.job.wants.on_demand = 1;
    run.plan.anchors = kinds.iter().map(|kind| offer(kind)).collect();
    scene
}

#[test]
fn one_machine_is_on_demand_beside_spot_machines() {
    let mut scene = mixed(&["a"]);
    scene.check("rent a, rent a/spot, rent a/spot");
    for (place, instance) in scene.run().instances.clone().iter().enumerate().rev() {
        scene.append(Event::Launched { instance: instance.clone(), handle: None, account: None });
        let started = Timestamp(place as i64);
        scene.append(Event::AgentUp { instance: instance.clone(), started, incarnation: 0 });
    }
    scene.check("start on a a/spot a/spot");
    let run = scene.world.runs.get_mut(&scene.run).unwrap();
    run.plan.anchors[0].rate = Rate::from_micros_per_hour(10_000_000);
    assert_eq!(scene.run().rate(), Rate::from_micros_per_hour(17_200_000));
}

#[test]
fn where_the_machine_on_demand_is_short_another_kind_is_taken() {
    let mut scene = mixed(&["a", "b"]);
    scene.facts.shortages.insert(("p".into(), "a".into()), Elapsed(60 * SECOND));
    scene.check("rent b, rent b/spot, rent b/spot");
    // One that is had already is kept: only a spot machine is missing.
    let mut scene = mixed(&["a", "b"]);
    scene.check("rent a, rent a/spot, rent a/spot");
    scene.accept("a");
    scene.refuse("a/spot");
    scene.facts.shortages = [(("p".into(), "a".into()), Elapsed(60 * SECOND))].into();
    scene.check("rent a/spot");
}
