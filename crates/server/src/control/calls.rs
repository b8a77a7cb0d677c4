//! Calls to providers: each on a separate thread, within its provider's rate limit, with a deadline.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use ::control::{CallId, ControllerInput};
use cloud::Provider;
use domain::InstanceId;
use domain::rental::{LaunchDetails, ProviderAnswer, ProviderCall};

use super::Wake;

/// A call that was not answered within this time is abandoned: it may have been carried out or not.
const DEADLINE: Duration = Duration::from_secs(60);

/// Abandoned calls of a provider that have not returned, at most: each has a thread, and may have it for ever. With so many, no
/// other call is made until one of them returns.
const ABANDONED_MAX: usize = 32;

/// The calls that are under way, and those that wait for their turn.
pub(super) struct ProviderCalls {
    providers: BTreeMap<String, Queue>,
    sender: Sender<Wake>,
}

struct Queue {
    provider: Arc<dyn Provider>,
    under_way: BTreeMap<CallId, UnderWay>,
    waiting: VecDeque<(CallId, ProviderCall)>,
    /// Each thread that makes a call has a copy.
    threads: Arc<()>,
}

struct UnderWay {
    since: Instant,
    is_launch: bool,
}

impl ProviderCalls {
    pub(super) fn new(providers: &[Arc<dyn Provider>], sender: Sender<Wake>) -> ProviderCalls {
        let queue = |provider: &Arc<dyn Provider>| {
            let (under_way, waiting, threads) = (BTreeMap::new(), VecDeque::new(), Arc::default());
            (provider.name().to_owned(), Queue { provider: provider.clone(), under_way, waiting, threads })
        };
        ProviderCalls { providers: providers.iter().map(queue).collect(), sender }
    }

    /// Makes a call, now or when its provider's limit allows it.
    pub fn start(&mut self, id: CallId, provider: &str, call: ProviderCall) {
        if let Some(queue) = self.providers.get_mut(provider) {
            queue.waiting.push_back((id, call));
            queue.go_on(&self.sender);
        }
    }

    /// A call was answered; the next may start.
    pub fn answered(&mut self, id: CallId) {
        for queue in self.providers.values_mut() {
            if queue.under_way.remove(&id).is_some() {
                queue.go_on(&self.sender);
            }
        }
    }

    /// Calls that are abandoned now, each with the answer to assume.
    pub fn overdue(&mut self) -> impl Iterator<Item = ControllerInput> {
        let mut overdue = Vec::new();
        for queue in self.providers.values_mut() {
            for (id, call) in &queue.under_way {
                if call.since.elapsed() >= DEADLINE {
                    let why = format!("no answer within {} s", DEADLINE.as_secs());
                    let answer =
                        if call.is_launch { ProviderAnswer::Doubt(why) } else { ProviderAnswer::Unavailable(why) };
                    overdue.push((*id, answer));
                }
            }
            // Its thread may hang forever; its slot is free again.
            for (id, _) in &overdue {
                queue.under_way.remove(id);
            }
            queue.go_on(&self.sender);
            if queue.is_stuck() {
                let why = format!("{ABANDONED_MAX} earlier calls have not returned");
                let refused = queue.waiting.drain(..).map(|(id, _)| (id, ProviderAnswer::Unavailable(why.clone())));
                overdue.extend(refused);
            }
        }
        let assumed = |(call, answer)| ControllerInput::Answered { call, answer, details: LaunchDetails::default() };
        overdue.into_iter().map(assumed)
    }
}

impl Queue {
    /// Calls that are no longer waited for and have not returned.
    fn abandoned(&self) -> usize {
        (Arc::strong_count(&self.threads) - 1).saturating_sub(self.under_way.len())
    }

    fn is_stuck(&self) -> bool {
        self.abandoned() >= ABANDONED_MAX
    }

    fn go_on(&mut self, sender: &Sender<Wake>) {
        while self.under_way.len() < self.provider.traits().concurrency.max(1) && !self.is_stuck() {
            let Some((id, call)) = self.waiting.pop_front() else { return };
            let is_launch = matches!(call, ProviderCall::Launch(_));
            let [before, after] = points(&call);
            self.under_way.insert(id, UnderWay { since: Instant::now(), is_launch });
            let (provider, answers, thread) = (self.provider.clone(), sender.clone(), self.threads.clone());
            std::thread::spawn(move || {
                chaos::point(before);
                let answer = provider.call(&call);
                chaos::point(after);
                let details = details(provider.as_ref(), &call, &answer);
                drop(thread);
                // A loop that has ended wants no answer.
                let _ = answers.send(Wake::Answered(id, answer, details));
            });
        }
    }
}

/// What a provider knows of an accepted launch besides its answer, and of how machines were prepared that it sees; nothing of
/// other calls.
fn details(provider: &dyn Provider, call: &ProviderCall, answer: &ProviderAnswer) -> LaunchDetails {
    let (account, prepared): (_, Vec<&InstanceId>) = match (call, answer) {
        (ProviderCall::Launch(request), ProviderAnswer::Accepted(_)) => {
            let first = request.members.first();
            (first.and_then(|instance| provider.account_of(instance)), first.into_iter().collect())
        }
        (_, ProviderAnswer::Observed(view)) => (None, view.machines.iter().map(|machine| &machine.instance).collect()),
        _ => return LaunchDetails::default(),
    };
    let failed = prepared.into_iter().flat_map(|instance| {
        let failed = provider.take_failed_peers(instance).into_iter();
        failed.map(move |failed| (instance.clone(), failed))
    });
    LaunchDetails { account, failed_peers: failed.collect() }
}

/// Kill points of a test: before a call is made, and before its answer is handled.
fn points(call: &ProviderCall) -> [&'static str; 2] {
    match call {
        ProviderCall::Offers => ["offers.before", "offers.after"],
        ProviderCall::Launch(_) => ["launch.before", "launch.after"],
        ProviderCall::Observe(_) => ["observe.before", "observe.after"],
        ProviderCall::End(_) => ["end.before", "end.after"],
        ProviderCall::LastEvents(_) => ["last_events.before", "last_events.after"],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use domain::rental::{
        BillingRule, FailedPeer, LaunchRequest, MachineHandle, MachineState, ProviderTraits, ProviderView, SeenMachine,
    };
    use domain::{Bytes, Elapsed, Node, Offer, Rate};

    use super::*;

    /// Knows an account and a failed node of each machine.
    struct Knowing;

    impl Provider for Knowing {
        fn name(&self) -> &'static str {
            "knowing"
        }

        fn traits(&self) -> ProviderTraits {
            unreachable!("nobody asks for them")
        }

        fn call(&self, _call: &ProviderCall) -> ProviderAnswer {
            unreachable!("it was called before")
        }

        fn account_of(&self, instance: &InstanceId) -> Option<String> {
            Some(format!("account of {instance}"))
        }

        fn take_failed_peers(&self, instance: &InstanceId) -> Vec<FailedPeer> {
            vec![FailedPeer { peer: format!("peer of {instance}"), why: "off".into(), sent: Bytes(1) }]
        }
    }

    /// Does not answer while somebody has this.
    struct Silent(Arc<Mutex<()>>);

    impl Provider for Silent {
        fn name(&self) -> &'static str {
            "silent"
        }

        fn traits(&self) -> ProviderTraits {
            ProviderTraits {
                visible_within: Elapsed(0),
                effective_within: Elapsed(0),
                boots_within: Elapsed(0),
                token_lifetime: None,
                observe_every: Elapsed(0),
                rents_together: false,
                billing: BillingRule::EXACT,
                abandoned_within: None,
                keeps_events: false,
                concurrency: 1,
                places: None,
            }
        }

        fn call(&self, _call: &ProviderCall) -> ProviderAnswer {
            let _answers = self.0.lock().unwrap();
            ProviderAnswer::Ending
        }
    }

    /// Each call that hung left a thread, as long as the server ran.
    #[test]
    fn calls_that_do_not_return_do_not_take_all_threads() {
        let gate = Arc::new(Mutex::new(()));
        let silence = gate.lock().unwrap();
        let silent: Arc<dyn Provider> = Arc::new(Silent(gate.clone()));
        let (sender, inbox) = channel();
        let mut calls = ProviderCalls::new(&[silent], sender);
        for number in 1..=100 {
            calls.start(CallId(number), "silent", ProviderCall::Offers);
            let long_ago = Instant::now().checked_sub(DEADLINE).unwrap();
            let under_way = calls.providers.values_mut().flat_map(|queue| queue.under_way.values_mut());
            under_way.for_each(|call| call.since = long_ago);
            let answers: Vec<ControllerInput> = calls.overdue().collect();
            let [ControllerInput::Answered { call, answer: ProviderAnswer::Unavailable(_), .. }] = &answers[..] else {
                panic!("{answers:?}");
            };
            assert_eq!(*call, CallId(number));
        }
        assert_eq!(calls.providers["silent"].abandoned(), ABANDONED_MAX);
        drop(silence);
        (0..ABANDONED_MAX).for_each(|_| assert!(matches!(inbox.recv(), Ok(Wake::Answered(..)))));
        calls.start(CallId(101), "silent", ProviderCall::Offers);
        assert!(matches!(inbox.recv(), Ok(Wake::Answered(CallId(101), ..))));
    }

    #[test]
    fn what_a_provider_knows_of_a_launch_goes_with_its_answer() {
        let (node, rate) = (Node::default(), Rate::default());
        let offer = Offer { provider: "knowing".into(), kind: "m".into(), node, rate, price_source: "test".into() };
        let launch = ProviderCall::Launch(Box::new(LaunchRequest {
            members: vec![InstanceId::new("r-i1")],
            token: "t".into(),
            offer,
            price_cap: None,
            expires: None,
            first_answer: None,
            has_peers: false,
        }));
        let known = details(&Knowing, &launch, &ProviderAnswer::Accepted(Vec::new()));
        assert_eq!(known.account.as_deref(), Some("account of r-i1"));
        let [(instance, failed)] = &known.failed_peers[..] else { panic!("{known:?}") };
        assert_eq!((instance.as_str(), failed.peer.as_str()), ("r-i1", "peer of r-i1"));
        let doubt = ProviderAnswer::Doubt("no answer".into());
        assert_eq!(details(&Knowing, &launch, &doubt), LaunchDetails::default());
        assert_eq!(details(&Knowing, &ProviderCall::Offers, &doubt), LaunchDetails::default());
    }

    /// A machine of a cloud is prepared long after its launch was accepted.
    #[test]
    fn what_a_provider_knows_of_how_machines_were_prepared_goes_with_a_view_of_them() {
        let machine = |name: &str| SeenMachine {
            handle: MachineHandle(format!("handle of {name}")),
            instance: InstanceId::new(name),
            state: MachineState::Running,
            notice: None,
        };
        let machines = vec![machine("r-i1"), machine("r-i2")];
        let seen = ProviderAnswer::Observed(ProviderView { is_complete: true, machines, unseen: Vec::new() });
        let known = details(&Knowing, &ProviderCall::Observe(vec![InstanceId::new("r-i3")]), &seen);
        let failed = known.failed_peers.iter().map(|(instance, failed)| (instance.as_str(), failed.peer.as_str()));
        assert_eq!(failed.collect::<Vec<_>>(), [("r-i1", "peer of r-i1"), ("r-i2", "peer of r-i2")]);
        assert_eq!(known.account, None, "what was launched before has its account");
    }
}
