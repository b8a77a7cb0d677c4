//! Machines of one run that fetch programs from each other, as nodes of a pool do, so that these leave this machine once and not
//! once per machine.
//!
//! Machines of a run boot at the same time, and none of them has anything at first. One gets everything from here while the
//! others wait; from then on each that has everything serves as many as a node does. Where nothing can be fetched from those that
//! have it, nobody waits any more, and the rest is sent from here.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::InstanceId;
use domain::rental::FailedPeer;

use crate::rented::MachineChoice;
use crate::rented::rentals::Rental;
use crate::ssh::{Host, Inventory, PeerFailures, PeerLoad, READERS};

/// A machine waits for others for so long, and then gets everything from here: it is given up if it has no agent in time.
const WAIT: Duration = Duration::from_secs(600);

/// Machines that are prepared, or were, and which of them others fetch from.
#[derive(Debug, Default)]
pub(super) struct Gangs {
    members: Mutex<BTreeMap<InstanceId, GangMember>>,
    /// Notified when one of them may have changed.
    changed: Condvar,
    load: PeerLoad,
    failures: PeerFailures,
}

/// Where machines can read from each other: those of one run, in one place and account, whose ranks must reach each other too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GangNetwork {
    run: String,
    account: Option<String>,
    region: String,
    zone: Option<String>,
}

/// A machine that is prepared, or was.
#[derive(Debug)]
struct GangMember {
    network: GangNetwork,
    host: Host,
    state: MemberState,
}

/// How far a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberState {
    /// Everything is sent to it from here.
    FromHere,
    /// It fetches from others of its run.
    Fetching,
    /// It has everything.
    Prepared,
}

/// What another machine of the run knows of one.
#[derive(Debug, Clone, Copy)]
struct MemberFacts {
    state: MemberState,
    /// Whether it could not send its files a moment ago.
    has_failed: bool,
}

impl GangNetwork {
    /// That of a machine which must reach others of its run; `None` for one that is alone.
    pub fn of(instance: &InstanceId, rental: &Rental) -> Option<GangNetwork> {
        if !rental.request.has_peers {
            return None;
        }
        let choice: MachineChoice = rental.request.offer.kind.parse().ok()?;
        let (run, _) = instance.as_str().rsplit_once("-i")?;
        let account = rental.account.clone();
        Some(GangNetwork { run: run.to_owned(), account, region: choice.region, zone: choice.zone })
    }
}

impl Gangs {
    /// A machine that is about to be prepared.
    pub fn join(&self, instance: &InstanceId, network: GangNetwork, host: &Host) -> JoiningMember<'_> {
        // The log of the run names machines as it does.
        let host = Host { name: instance.to_string(), ..host.clone() };
        JoiningMember { gangs: self, instance: instance.clone(), network, host }
    }

    /// Who is read from now.
    pub fn load(&self) -> &PeerLoad {
        &self.load
    }

    /// Machines that could not send their files when this one was prepared; each once.
    pub fn take_failed(&self, instance: &InstanceId) -> Vec<FailedPeer> {
        self.failures.take(instance.as_str())
    }

    /// A machine is gone.
    pub fn forget(&self, instance: &InstanceId) {
        self.locked().remove(instance);
        self.changed.notify_all();
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<InstanceId, GangMember>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A machine that is being prepared, until this is dropped.
#[derive(Debug)]
pub(super) struct JoiningMember<'a> {
    gangs: &'a Gangs,
    instance: InstanceId,
    network: GangNetwork,
    /// The machine as a node, with the name that it has in the log of its run.
    pub host: Host,
}

impl JoiningMember<'_> {
    /// Waits until others of its run can send it what it lacks, or it is to get that from here; returns those that have it.
    pub fn wait(&self) -> Inventory {
        let begun = Instant::now();
        let mut members = self.gangs.locked();
        loop {
            let waited = begun.elapsed();
            let facts = |member: &GangMember| {
                let has_failed = self.gangs.load.has_failed(&member.host.name);
                MemberFacts { state: member.state, has_failed }
            };
            let others: Vec<MemberFacts> = self.others(&members).map(facts).collect();
            if let Some(state) = next_state(&others, waited >= WAIT) {
                let prepared = self.others(&members).filter(|member| member.state == MemberState::Prepared);
                let hosts = prepared.map(|member| member.host.clone()).collect();
                members.insert(self.instance.clone(), self.in_state(state));
                return Inventory { hosts };
            }
            let left = WAIT.saturating_sub(waited);
            members = self.gangs.changed.wait_timeout(members, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// It has everything; these could not send their files.
    pub fn prepared(self, failed: Vec<FailedPeer>) {
        self.gangs.failures.copied(self.instance.as_str(), failed);
        self.gangs.load.note_prepared(self.instance.as_str());
        self.gangs.locked().insert(self.instance.clone(), self.in_state(MemberState::Prepared));
    }

    /// Other machines from which it could read.
    fn others<'m>(&'m self, members: &'m BTreeMap<InstanceId, GangMember>) -> impl Iterator<Item = &'m GangMember> {
        let others = members.iter().filter(move |(id, member)| **id != self.instance && member.network == self.network);
        others.map(|(_, member)| member)
    }

    fn in_state(&self, state: MemberState) -> GangMember {
        GangMember { network: self.network.clone(), host: self.host.clone(), state }
    }
}

impl Drop for JoiningMember<'_> {
    fn drop(&mut self) {
        let mut members = self.gangs.locked();
        if members.get(&self.instance).is_some_and(|member| member.state != MemberState::Prepared) {
            // It was not prepared: another one may be the first.
            members.remove(&self.instance);
        }
        drop(members);
        self.gangs.changed.notify_all();
    }
}

/// What a machine does that lacks files, by what is known of the others of its run; `None` while it waits for them.
fn next_state(others: &[MemberFacts], has_waited: bool) -> Option<MemberState> {
    let count = |state: MemberState| others.iter().filter(|other| other.state == state).count();
    let (fetching, prepared) = (count(MemberState::Fetching), count(MemberState::Prepared));
    let able = others.iter().filter(|other| other.state == MemberState::Prepared && !other.has_failed).count();
    if fetching < able * READERS {
        return Some(MemberState::Fetching);
    }
    let can_nobody_help = prepared > 0 && able == 0;
    let is_first = fetching + count(MemberState::FromHere) == 0;
    (is_first || can_nobody_help || has_waited).then_some(MemberState::FromHere)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use domain::rental::LaunchRequest;
    use domain::{Bytes, Node, Offer, Rate};

    use super::*;
    use crate::ssh::NodeReach;

    fn rental(kind: &str, has_peers: bool) -> Rental {
        let (node, rate) = (Node::default(), Rate::default());
        let offer = Offer { provider: "aws".into(), kind: kind.into(), node, rate, price_source: String::new() };
        let request = LaunchRequest {
            members: vec![InstanceId::new("r-i1")],
            token: "token".into(),
            offer,
            price_cap: None,
            expires: None,
            first_answer: None,
            has_peers,
        };
        Rental::new(request, "us-east-1".into(), Vec::new())
    }

    fn network(instance: &str, kind: &str) -> GangNetwork {
        GangNetwork::of(&InstanceId::new(instance), &rental(kind, true)).unwrap()
    }

    fn host(handle: &str) -> Host {
        Host {
            name: handle.into(),
            address: handle.into(),
            config: None,
            pool: None,
            reach: NodeReach::Tunnel,
            rate: Rate::default(),
            node: Node::default(),
            is_drained: false,
            is_prepared: true,
            facts: None,
            link: None,
        }
    }

    /// A machine of `r` in one place, which is prepared now.
    fn joining<'a>(gangs: &'a Gangs, instance: &str) -> JoiningMember<'a> {
        let network = network(instance, "us-east-1/us-east-1a/g4dn.xlarge");
        gangs.join(&InstanceId::new(instance), network, &host("i-1"))
    }

    fn names(inventory: &Inventory) -> Vec<&str> {
        inventory.hosts.iter().map(|host| host.name.as_str()).collect()
    }

    #[test]
    fn one_machine_of_a_run_gets_programs_from_here_and_the_others_from_those_that_have_them() {
        use MemberState::{Fetching, FromHere, Prepared};
        let check = |others: &[(MemberState, bool)], has_waited: bool, expected: Option<MemberState>| {
            let others: Vec<MemberFacts> = others
                .iter()
                .map(|(state, has_failed)| MemberFacts { state: *state, has_failed: *has_failed })
                .collect();
            assert_eq!(next_state(&others, has_waited), expected, "{others:?} {has_waited}");
        };
        check(&[], false, Some(FromHere));
        check(&[(FromHere, false)], false, None);
        check(&[(FromHere, false)], true, Some(FromHere));
        check(&[(Prepared, false)], false, Some(Fetching));
        check(&[(Prepared, false), (FromHere, false)], false, Some(Fetching));
        check(&[(Prepared, false), (Fetching, false)], false, Some(Fetching));
        // Each is read by two at a time.
        check(&[(Prepared, false), (Fetching, false), (Fetching, false)], false, None);
        check(&[(Prepared, false), (Prepared, false), (Fetching, false), (Fetching, false)], false, Some(Fetching));
        check(&[(Prepared, false), (Fetching, false), (Fetching, false)], true, Some(FromHere));
        // Where nothing can be fetched from it, nobody waits for a second one.
        check(&[(Prepared, true), (FromHere, false)], false, Some(FromHere));
        check(&[(Prepared, true), (Prepared, false)], false, Some(Fetching));
    }

    #[test]
    fn machines_of_one_run_zone_and_account_that_must_reach_each_other_are_a_gang() {
        let kind = "us-east-1/us-east-1a/g4dn.xlarge";
        let one = network("r-i1", kind);
        assert_eq!(one, network("r-i12", "us-east-1/us-east-1a/g4dn.xlarge/spot"), "on other terms");
        assert_ne!(one, network("other-i1", kind));
        assert_ne!(one, network("r-i2", "us-east-1/us-east-1b/g4dn.xlarge"));
        assert_ne!(one, network("r-i2", "eu-west-1/g4dn.xlarge"));
        let elsewhere = Rental { account: Some("2".into()), ..rental(kind, true) };
        assert_ne!(GangNetwork::of(&InstanceId::new("r-i2"), &elsewhere), Some(one));
        assert_eq!(GangNetwork::of(&InstanceId::new("r-i1"), &rental(kind, false)), None, "its group lets in nobody");
        assert_eq!(GangNetwork::of(&InstanceId::new("r-i1"), &rental("us-east-1/g4dn.xlarge@i-1", true)), None);
    }

    #[test]
    fn a_machine_waits_for_the_first_one_and_then_fetches_from_it() {
        let gangs = Gangs::default();
        let other = network("other-i1", "us-east-1/us-east-1a/g4dn.xlarge");
        gangs.join(&InstanceId::new("other-i1"), other, &host("i-9")).prepared(Vec::new());
        let first = joining(&gangs, "r-i1");
        assert_eq!(names(&first.wait()), [""; 0], "no machine of its run has anything");
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let gangs = &gangs;
            scope.spawn(move || {
                let second = joining(gangs, "r-i2");
                sender.send(second.wait()).unwrap();
                second.prepared(Vec::new());
            });
            first.prepared(Vec::new());
            assert_eq!(names(&receiver.recv().unwrap()), ["r-i1"]);
        });
        let third = joining(&gangs, "r-i3");
        assert_eq!(names(&third.wait()), ["r-i1", "r-i2"]);
        gangs.forget(&InstanceId::new("r-i1"));
        assert_eq!(names(&third.wait()), ["r-i2"], "one is gone");
    }

    #[test]
    fn where_the_first_machine_fails_another_one_is_the_first() {
        let gangs = Gangs::default();
        let first = joining(&gangs, "r-i1");
        first.wait();
        assert_eq!(gangs.locked().len(), 1);
        drop(first);
        assert_eq!(gangs.locked().len(), 0);
        assert_eq!(names(&joining(&gangs, "r-i2").wait()), [""; 0], "it does not wait for it");
    }

    #[test]
    fn what_could_not_be_fetched_is_reported_of_its_machine_and_once() {
        let gangs = Gangs::default();
        let failed = vec![FailedPeer { peer: "r-i1".into(), why: "it is off".into(), sent: Bytes(5) }];
        joining(&gangs, "r-i2").prepared(failed.clone());
        assert_eq!(gangs.take_failed(&InstanceId::new("r-i1")), []);
        assert_eq!(gangs.take_failed(&InstanceId::new("r-i2")), failed);
        assert_eq!(gangs.take_failed(&InstanceId::new("r-i2")), []);
    }
}
