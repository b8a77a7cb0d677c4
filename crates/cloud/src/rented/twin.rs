//! A test's ground for providers over a cloud's API: a home, a clock that the test moves, the suite of all providers, and
//! what else all of them must show.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use domain::listing::Cloud;
use domain::rental::{EndRequest, MachineState, ProviderAnswer, ProviderCall, Refusal};
use domain::{Duration, Elapsed, InstanceId, Timestamp};

use super::audit::verdict::{AuditedResource, ResourceJudge, ResourceVerdict, end_unneeded};
use super::audit::{AuditVerdict, MachineJudge, end_orphans};
use super::{CloudApi, CloudFailure, ReachSettings, Rented, machine_name};
use crate::catalog::{Catalog, import};
use crate::conformance::{self, Awaited, ProviderWorld};
use crate::provider::{LaunchRequest, Provider, offers};
use crate::rented::rentals::Rentals;
use crate::ssh::{DirectDoor, Executables, NodeReach};

/// Who rents in tests.
pub const OWNER: &str = "Me of Tests";

/// Now, in microseconds; tests share it, and it only moves on.
static CLOCK: AtomicI64 = AtomicI64::new(1_763_980_000_000_000);

/// The time of tests.
pub fn clock() -> Timestamp {
    Timestamp(CLOCK.load(Ordering::SeqCst))
}

/// Lets time pass.
pub fn pass(time: Elapsed) {
    CLOCK.fetch_add(i64::try_from(time.0).unwrap(), Ordering::SeqCst);
}

/// A price of a cloud of which the catalog has none.
const PRICE: &str = "cloud,region,instance_type,gpu,gpu_count,vcpu,mem_gib,on_demand,spot\n\
                     tencent,ap-guangzhou,GN7.2XLARGE32,T4,1,8,32,1.2,0.4\n";

/// A provider with a home of its own, whose machines nobody can reach.
pub fn provider<C: CloudApi>(home: &Path, api: C) -> Rented<C> {
    provider_reached(home, api, (NodeReach::Tunnel, None))
}

/// The same, where agents of machines that it rents are to reach the loop so.
fn provider_reached<C: CloudApi>(home: &Path, api: C, (reach, door): (NodeReach, Option<DirectDoor>)) -> Rented<C> {
    if api.name() == crate::tencent::NAME {
        let catalog = Catalog::embedded().unwrap();
        let read = import::read("prices.csv", PRICE, &catalog, &import::Defaults::default()).unwrap();
        import::keep(home, "prices", &read.listings).unwrap();
    }
    let unreachable = home.join("unreachable");
    std::fs::write(&unreachable, "Host *\n  ProxyCommand false\n").unwrap();
    let program = Executables { gradus: "/bin/true".into(), rank: "/bin/true".into(), libtorch: None };
    let socket = home.join("loop.sock");
    let (owner, ssh_config) = (OWNER.into(), Some(unreachable));
    let settings = ReachSettings { owner, socket, program, ssh_config, reach, door };
    Rented::with_clock(home.to_owned(), settings, api, clock)
}

/// A world in which each look is a minute later, and the cloud advances by one step.
pub struct SteppedWorld<F> {
    pub step: F,
    pub started: Timestamp,
    pub passed: AtomicU32,
}

impl<F: Fn()> ProviderWorld for SteppedWorld<F> {
    fn pass(&self, _awaited: Awaited) -> bool {
        pass(Elapsed(60_000_000));
        (self.step)();
        // What has not come by then does not come.
        self.passed.fetch_add(1, Ordering::SeqCst) < 100
    }

    fn is_metered(&self) -> bool {
        self.passed.load(Ordering::SeqCst) > 0
    }

    fn longest_rent(&self) -> Elapsed {
        // Other tests move the clock too.
        Elapsed(clock().since(self.started).0.saturating_add(3_600_000_000))
    }
}

/// Runs the suite; `step` moves the cloud on.
pub fn conforms<C: CloudApi>(api: C, step: impl Fn()) {
    let home = tempfile::tempdir().unwrap();
    let provider = provider(home.path(), api);
    let world = SteppedWorld { step, started: clock(), passed: AtomicU32::new(0) };
    conformance::check(&provider, &InstanceId::new("digits-0193f2a1-i1"), &world);
}

/// A request for a machine of this kind, which may be considered abandoned at 2025-11-24T10:26:40Z.
pub fn request(provider: &dyn Provider, name: &str, kind: &str) -> LaunchRequest {
    let mut offer = offers(provider).unwrap().remove(0);
    offer.kind = kind.to_owned();
    LaunchRequest {
        members: vec![InstanceId::new(name)],
        token: name.into(),
        offer,
        price_cap: None,
        expires: Some(Timestamp(1_763_980_000_000_000)),
        first_answer: None,
        has_peers: false,
    }
}

/// What a new provider over this home answers when `r-i1` is asked for.
pub fn launched<C: CloudApi>(api: C, home: &Path, kind: &str) -> ProviderAnswer {
    let provider = provider(home, api);
    let request = request(&provider, "r-i1", kind);
    provider.call(&ProviderCall::Launch(Box::new(request)))
}

/// What an answer that has rented nothing proves.
pub fn word_of(answer: &ProviderAnswer) -> &'static str {
    match answer {
        ProviderAnswer::Refused(Refusal::Capacity { .. }) => "capacity",
        ProviderAnswer::Refused(Refusal::Quota { .. }) => "quota",
        ProviderAnswer::Refused(Refusal::Denied { .. }) => "denied",
        ProviderAnswer::Refused(_) => "other",
        ProviderAnswer::Doubt(_) => "doubt",
        other => panic!("{other:?}"),
    }
}

/// Machines whose agents are to call over TLS are rented only by a loop with an address for them, and stay such machines.
/// `made` counts those that the cloud has rented.
pub fn rents_over_tls<C: CloudApi>(api: impl Fn() -> C, kind: &str, made: impl Fn() -> u32) {
    let (home, instance) = (tempfile::tempdir().unwrap(), InstanceId::new("r-i1"));
    let rentals = Rentals::new(home.path(), api().name());
    let ask = |reach, door| {
        let rents = provider_reached(home.path(), api(), (reach, door));
        let request = request(&rents, "r-i1", kind);
        rents.call(&ProviderCall::Launch(Box::new(request)))
    };
    let refused = ask(NodeReach::Tls, None);
    let ProviderAnswer::Refused(Refusal::Denied { message }) = refused else { panic!("{refused:?}") };
    assert!(message.contains("--agents-at"), "{message}");
    assert_eq!((made(), rentals.read(&instance).unwrap()), (0, None), "nothing was asked for");
    let door = DirectDoor::new(|_, _| Err("nobody joins here".to_owned()), |_| false);
    assert!(matches!(ask(NodeReach::Tls, Some(door)), ProviderAnswer::Accepted(_)));
    // Whatever is set since, it is the same machine and is reached as before.
    assert!(matches!(ask(NodeReach::Tunnel, None), ProviderAnswer::Accepted(_)));
    let known = rentals.read(&instance).unwrap().map(|rental| rental.reach);
    assert_eq!((made(), known), (1, Some(NodeReach::Tls)));
}

/// An audit ends what no run has once it is old enough, and nothing else; `step` moves the cloud on.
pub fn audits<C: CloudApi>(cloud: Cloud, api: impl Fn() -> C, kind: &str, step: impl Fn()) {
    let home = tempfile::tempdir().unwrap();
    let rents = provider(home.path(), api());
    for name in ["r-i1", "r-i2"] {
        let request = request(&rents, name, kind);
        assert!(matches!(rents.call(&ProviderCall::Launch(Box::new(request))), ProviderAnswer::Accepted(_)));
    }
    step();
    let api = api();
    let (catalog, rented) = (Catalog::embedded().unwrap(), [InstanceId::new("r-i1")].into());
    let audit = |now| {
        let (cloud, grace) = (cloud.clone(), Duration::from_secs(600));
        let judge = MachineJudge { cloud, catalog: &catalog, owner: OWNER, rented: &rented, grace, now };
        judge.judge(&api.machines(OWNER).unwrap())
    };
    // The second one; other tests move the clock too.
    let made = api.machines(OWNER).unwrap().iter().filter_map(|machine| machine.started).max().unwrap();
    let young = audit(made);
    assert!(young.iter().all(|machine| machine.verdict != AuditVerdict::Orphaned), "{young:?}");
    assert_eq!(end_orphans(&api, &young), Default::default());
    // In the eyes of another home.
    let (cloud, grace) = (cloud.clone(), Duration::from_secs(0));
    let stranger = MachineJudge { cloud, catalog: &catalog, owner: "stranger", rented: &rented, grace, now: made };
    let others = stranger.others(&api.every_machine().unwrap(), &[]);
    assert_eq!(others.iter().filter(|machine| machine.verdict == AuditVerdict::OtherHome).count(), 2, "{others:?}");
    assert_eq!(end_orphans(&api, &others), Default::default());
    let old = audit(Timestamp(made.0 + 600_000_000));
    let orphaned = old.iter().filter(|machine| machine.verdict == AuditVerdict::Orphaned).count();
    assert_eq!((old.len(), orphaned), (2, 1), "{old:?}");
    let (ended, failures) = end_orphans(&api, &old);
    assert_eq!((ended.len(), failures), (1, Vec::new()));
    step();
    let left: Vec<String> = api.machines(OWNER).unwrap().into_iter().map(|machine| machine.name).collect();
    assert_eq!(left, [machine_name(OWNER, &InstanceId::new("r-i1"))]);
}

/// An audit ends what nothing needs beside machines, and nothing else. A run has `r-i1`; it is 10 minutes after `first`, and after
/// another audit. `expected` is what is found then: kind, name, verdict and price of each.
pub fn audits_beside<C: CloudApi>(cloud: &Cloud, api: &C, first: Timestamp, expected: &[&str]) {
    let (catalog, rented) = (Catalog::embedded().unwrap(), [InstanceId::new("r-i1")].into());
    let judged = |owner: &str, lists_all, noted: &BTreeMap<String, Timestamp>, now| {
        let list = api.resources(owner, lists_all);
        assert!(list.is_complete(), "{:?}", list.unseen());
        let (catalog, rented, tag, grace) = (&catalog, &rented, &api.owner_tag(owner), Duration::from_secs(600));
        let judge = ResourceJudge { cloud: cloud.clone(), catalog, owner, tag, rented, noted, grace, now };
        let judged = judge.judge(list.found);
        let notes = judge.notes(&judged, true);
        (judged, notes)
    };
    let end = |judged: &[AuditedResource]| end_unneeded(judged, |one| api.end_resource(one));
    let is_orphaned = |one: &&AuditedResource| one.verdict == ResourceVerdict::Orphaned;
    let (_, noted) = judged(OWNER, false, &BTreeMap::new(), first);
    let later = Timestamp(first.0 + 600_000_000);
    let (found, _) = judged(OWNER, false, &noted, later);
    let line = |one: &AuditedResource| {
        format!("{} {} {:?} {}", one.resource.kind.noun(), one.resource.handle, one.verdict, one.price)
    };
    let mut lines: Vec<String> = found.iter().map(line).collect();
    lines.sort();
    assert_eq!(lines, expected);
    // In the eyes of another home.
    let (others, _) = judged("stranger", true, &noted, later);
    assert!(others.len() >= found.len() && others.iter().all(|one| one.verdict.is_of_others()), "{others:?}");
    assert_eq!(end(&others), Default::default());
    let (ended, failures) = end(&found);
    assert_eq!((ended.len(), failures), (found.iter().filter(is_orphaned).count(), Vec::new()));
    let (left, _) = judged(OWNER, false, &noted, later);
    assert_eq!((left.len(), left.iter().find(is_orphaned)), (found.len() - ended.len(), None));
    // Asked again, what is gone does no harm.
    for one in found.iter().filter(is_orphaned) {
        let again = api.end_resource(&one.resource);
        assert!(matches!(again, Ok(()) | Err(CloudFailure::NotFound(_))), "{again:?}");
    }
}

/// A machine is never taken for gone, asked for again or ended with the credentials of another account. `set` sets whose they
/// are, none where the cloud does not say; `lose` has the next answer lost, `made` is how many machines were made.
pub fn keeps_to_its_account<C: CloudApi>(
    api: impl Fn() -> C,
    kind: &str,
    step: impl Fn(),
    set: impl Fn(Option<&'static str>),
    lose: impl Fn(),
    made: impl Fn() -> u32,
) {
    let home = tempfile::tempdir().unwrap();
    // Credentials are read when gradus starts.
    let ask = |call: ProviderCall| provider(home.path(), api()).call(&call);
    let launch = |name: &str| {
        let request = request(&provider(home.path(), api()), name, kind);
        ask(ProviderCall::Launch(Box::new(request)))
    };
    let seen = |name: &str| match ask(ProviderCall::Observe(vec![InstanceId::new(name)])) {
        ProviderAnswer::Observed(view) => {
            let own = view.machines.iter().find(|machine| machine.instance.as_str() == name);
            (own.map(|machine| machine.state), view.is_complete, view.unseen.join("; "))
        }
        other => panic!("{other:?}"),
    };
    let end = |name: &str| ask(ProviderCall::End(vec![EndRequest { instance: InstanceId::new(name), handle: None }]));
    set(Some("1"));
    assert!(matches!(launch("r-i1"), ProviderAnswer::Accepted(_)));
    assert_eq!(provider(home.path(), api()).account_of(&InstanceId::new("r-i1")).as_deref(), Some("1"));
    lose();
    assert!(matches!(launch("r-i2"), ProviderAnswer::Doubt(_)));
    step();
    let running = (Some(MachineState::Running), true, String::new());
    assert_eq!(seen("r-i1"), running);
    set(Some("2"));
    for _ in 0..2 {
        let (state, is_complete, why) = seen("r-i1");
        assert!(state.is_none() && !is_complete, "{state:?}");
        assert!(why.starts_with("`r-i1` was rented in account `1`, and here `2` is set"), "{why}");
        // Longer than a machine is missed before it is gone.
        pass(Elapsed(200_000_000));
    }
    let answer = launch("r-i2");
    assert!(matches!(&answer, ProviderAnswer::Doubt(why) if why.contains("account `1`")), "{answer:?}");
    assert_eq!(made(), 2, "it is not asked for in another account");
    assert!(matches!(end("r-i1"), ProviderAnswer::Unavailable(_)));
    // With credentials of an account that is not known.
    set(None);
    let (state, is_complete, why) = seen("r-i1");
    assert!(state.is_none() && !is_complete && why.contains("it is not known which account"), "{why}");
    assert!(!matches!(launch("r-i2"), ProviderAnswer::Accepted(_)));
    assert!(!matches!(launch("r-i3"), ProviderAnswer::Accepted(_)));
    assert_eq!(made(), 2, "nothing is rented in an account that is not known");
    set(Some("1"));
    assert_eq!(seen("r-i1"), running);
    assert!(matches!(launch("r-i2"), ProviderAnswer::Accepted(_)));
    assert_eq!(made(), 2);
    assert_eq!(end("r-i1"), ProviderAnswer::Ending);
    step();
    assert!(matches!(seen("r-i1").0, Some(MachineState::Gone(Some(_)))));
}
