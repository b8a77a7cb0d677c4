//! Which resources nothing needs any more, since when, and which of them an audit may end: a pure function.
//!
//! A resource is ended only if three things are proved: it carries the tag of this very home, no run has a machine that it may
//! have been made with, and nothing has had it for the whole grace. Where a cloud does not say since when, the time counts from
//! the first audit that found it so. Snapshots and images are never ended, whatever their tags: gradus makes none, so somebody
//! wanted to keep what they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use domain::listing::Cloud;
use domain::{Duration, InstanceId, Timestamp};

use super::price::{ResourcePrice, price};
use super::resource::{CloudResource, ResourceKind, ResourceUse};
use crate::catalog::Catalog;
use crate::rented::{machine_name, name_prefix};

/// The verdict about a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceVerdict {
    /// A run of this home has the machine that it was made with.
    Rented,
    /// Something that no run has holds it, such as a machine that is stopped.
    InUse,
    /// Nothing needs it, and that for less than the grace.
    Young,
    /// Nothing needs it, and it may be ended.
    Orphaned,
    /// No run needs it, and it is not ended: it holds data that gradus has not copied, or lacks this home's tag.
    ByHand,
    /// It is free, and later machines use it again.
    Reused,
    /// It is another home's.
    OtherHome,
    /// It has no tag or name of gradus.
    Foreign,
}

impl ResourceVerdict {
    /// Whether it is not this home's: then it is shown, and never ended.
    pub fn is_of_others(self) -> bool {
        match self {
            ResourceVerdict::OtherHome | ResourceVerdict::Foreign => true,
            ResourceVerdict::Rented
            | ResourceVerdict::InUse
            | ResourceVerdict::Young
            | ResourceVerdict::Orphaned
            | ResourceVerdict::ByHand
            | ResourceVerdict::Reused => false,
        }
    }
}

/// A resource, its price, and the verdict about it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AuditedResource {
    #[serde(flatten)]
    pub resource: CloudResource,
    pub price: ResourcePrice,
    /// For how long nothing has had it, as far as that is known; none while something has it.
    pub unused_for: Option<Duration>,
    pub verdict: ResourceVerdict,
}

/// What is to be judged with which knowledge.
#[derive(Debug)]
pub struct ResourceJudge<'a> {
    pub cloud: Cloud,
    pub catalog: &'a Catalog,
    pub owner: &'a str,
    /// The tag of the owner, as this cloud writes it.
    pub tag: &'a str,
    /// Machines that runs have or are about to have, read after the cloud was asked.
    pub rented: &'a BTreeSet<InstanceId>,
    /// Since when audits have found resources unused, by their keys.
    pub noted: &'a BTreeMap<String, Timestamp>,
    /// What was unused for less is not ended.
    pub grace: Duration,
    pub now: Timestamp,
}

impl ResourceJudge<'_> {
    /// The verdict about each resource.
    pub fn judge(&self, found: Vec<CloudResource>) -> Vec<AuditedResource> {
        let judged = |resource: CloudResource| AuditedResource {
            price: price(self.catalog, &self.cloud, &resource),
            unused_for: self.unused_for(&resource),
            verdict: self.verdict(&resource),
            resource,
        };
        found.into_iter().map(judged).collect()
    }

    /// What the next audit is to know: since when resources that nothing needs are unused, where their cloud does not say so.
    /// After an incomplete list, what was known of others stays known.
    pub fn notes(&self, judged: &[AuditedResource], is_complete: bool) -> BTreeMap<String, Timestamp> {
        let waits = |one: &&AuditedResource| {
            let is_waiting = matches!(one.verdict, ResourceVerdict::Young | ResourceVerdict::Orphaned);
            is_waiting && one.resource.used == ResourceUse::Nothing && one.resource.unused_since.is_none()
        };
        let found: BTreeSet<String> = judged.iter().map(|one| one.resource.key()).collect();
        let others = self.noted.iter().filter(|(key, _)| !is_complete && !found.contains(*key));
        let others = others.map(|(key, since)| (key.clone(), *since));
        let waiting = judged.iter().filter(waits).map(|one| {
            let key = one.resource.key();
            let since = self.noted.get(&key).copied().unwrap_or(self.now);
            (key, since)
        });
        others.chain(waiting).collect()
    }

    fn verdict(&self, resource: &CloudResource) -> ResourceVerdict {
        let is_named = resource.name.starts_with(&name_prefix(self.owner));
        let is_tagged = match resource.tags.owner.as_deref() {
            Some(owner) if owner == self.tag => true,
            Some(_) => return ResourceVerdict::OtherHome,
            None if !is_named => return ResourceVerdict::Foreign,
            None => false,
        };
        match resource.kind {
            ResourceKind::Snapshot | ResourceKind::Image => return ResourceVerdict::ByHand,
            ResourceKind::SecurityGroup | ResourceKind::KeyPair => return ResourceVerdict::Reused,
            ResourceKind::Interface | ResourceKind::Disk | ResourceKind::Address => {}
        }
        if self.is_rented(resource) {
            return ResourceVerdict::Rented;
        }
        match (&resource.used, self.unused_for(resource)) {
            (ResourceUse::HeldBy(_), _) => ResourceVerdict::InUse,
            (ResourceUse::Changing, _) => ResourceVerdict::Young,
            // A name may have been given to it by anybody.
            (ResourceUse::Nothing, _) if !is_tagged => ResourceVerdict::ByHand,
            (ResourceUse::Nothing, Some(unused)) if unused >= self.grace => ResourceVerdict::Orphaned,
            (ResourceUse::Nothing, _) => ResourceVerdict::Young,
        }
    }

    /// Whether a run has a machine that this may have been made with.
    fn is_rented(&self, resource: &CloudResource) -> bool {
        let is_named = |instance: &InstanceId| machine_name(self.owner, instance) == resource.name;
        resource.tags.instances().any(|instance| self.rented.contains(&instance)) || self.rented.iter().any(is_named)
    }

    /// For how long nothing has had it: since its cloud says so, or since an audit found it so, and no longer than it is there.
    fn unused_for(&self, resource: &CloudResource) -> Option<Duration> {
        if resource.used != ResourceUse::Nothing {
            return None;
        }
        let noted = || self.noted.get(&resource.key()).copied();
        let since = resource.unused_since.or_else(noted).unwrap_or(self.now);
        let since = resource.created.map_or(since, |created| since.max(created));
        Some(Duration::from_micros(self.now.since(since).0))
    }
}

/// Ends all orphans, interfaces first, continuing after errors: the keys of those, and why others were not ended.
pub fn end_unneeded<E: Display>(
    resources: &[AuditedResource],
    end: impl Fn(&CloudResource) -> Result<(), E>,
) -> (BTreeSet<String>, Vec<String>) {
    let orphaned = resources.iter().filter(|one| one.verdict == ResourceVerdict::Orphaned);
    let mut orphaned: Vec<&CloudResource> = orphaned.map(|one| &one.resource).collect();
    orphaned.sort_by_key(|resource| resource.kind);
    let (mut ended, mut failures) = (BTreeSet::new(), Vec::new());
    for resource in orphaned {
        match end(resource) {
            Ok(()) => drop(ended.insert(resource.key())),
            Err(failure) => {
                let CloudResource { kind, handle, region, .. } = resource;
                failures.push(format!("{} `{handle}` in {region}: {failure}", kind.noun()));
            }
        }
    }
    (ended, failures)
}

#[cfg(test)]
mod tests {
    use super::super::resource::ResourceTags;
    use super::*;

    const MINUTE: i64 = 60_000_000;

    fn at(minute: i64) -> Timestamp {
        Timestamp(minute * MINUTE)
    }

    /// What an audit knows in the 60th minute: a run has `a-i1`, and the grace is 10 minutes.
    fn judged(resource: &CloudResource, noted: &[(&str, i64)]) -> AuditedResource {
        let (catalog, rented) = (Catalog::embedded().unwrap(), BTreeSet::from([InstanceId::new("a-i1")]));
        let noted = noted.iter().map(|(key, minute)| ((*key).to_owned(), at(*minute))).collect();
        let judge = judge(&catalog, &rented, &noted);
        judge.judge(vec![resource.clone()]).remove(0)
    }

    fn judge<'a>(
        catalog: &'a Catalog,
        rented: &'a BTreeSet<InstanceId>,
        noted: &'a BTreeMap<String, Timestamp>,
    ) -> ResourceJudge<'a> {
        let (cloud, grace, now) = (Cloud::Aws, Duration::from_secs(600), at(60));
        ResourceJudge { cloud, catalog, owner: "me", tag: "me", rented, noted, grace, now }
    }

    /// A disk of this home's run `b`, which has ended, that nothing has had since the start.
    fn disk() -> CloudResource {
        let tags = ResourceTags { owner: Some("me".into()), instance: Some(InstanceId::new("b-i1")), members: 1 };
        CloudResource {
            tags,
            created: Some(at(0)),
            unused_since: Some(at(0)),
            ..CloudResource::new(ResourceKind::Disk, "vol-1", "us-east-1")
        }
    }

    fn check(resource: &CloudResource, noted: &[(&str, i64)], expected: ResourceVerdict) {
        assert_eq!(judged(resource, noted).verdict, expected, "{resource:?} {noted:?}");
    }

    fn tagged(owner: Option<&str>, instance: Option<&str>) -> ResourceTags {
        ResourceTags { owner: owner.map(str::to_owned), instance: instance.map(InstanceId::new), members: 1 }
    }

    #[test]
    fn only_what_carries_the_tag_of_this_very_home_is_ended() {
        check(&disk(), &[], ResourceVerdict::Orphaned);
        for other in ["you", "m", "me2", "Me", ""] {
            let tags = tagged(Some(other), Some("b-i1"));
            check(&CloudResource { tags, ..disk() }, &[], ResourceVerdict::OtherHome);
        }
        let untagged = CloudResource { tags: tagged(None, Some("b-i1")), ..disk() };
        check(&untagged, &[], ResourceVerdict::Foreign);
        // A name is no proof.
        let named = CloudResource { name: machine_name("me", &InstanceId::new("b-i1")), ..untagged.clone() };
        check(&named, &[], ResourceVerdict::ByHand);
        let other = CloudResource { name: machine_name("you", &InstanceId::new("b-i1")), ..untagged };
        check(&other, &[], ResourceVerdict::Foreign);
    }

    #[test]
    fn what_a_run_has_is_not_ended() {
        let made_with = |instance: &str, members| {
            let tags = ResourceTags { members, ..tagged(Some("me"), Some(instance)) };
            CloudResource { tags, ..disk() }
        };
        check(&made_with("a-i1", 1), &[], ResourceVerdict::Rented);
        // Machines of one request carry the tags of the first, which may have ended before the others.
        check(&made_with("a-i0", 2), &[], ResourceVerdict::Rented);
        check(&made_with("a-i0", 1), &[], ResourceVerdict::Orphaned);
        check(&made_with("a-i2", 3), &[], ResourceVerdict::Orphaned);
        // Some clouds have names in place of tags.
        let name = machine_name("me", &InstanceId::new("a-i1"));
        let named = CloudResource { name, tags: tagged(Some("me"), None), ..disk() };
        check(&named, &[], ResourceVerdict::Rented);
        check(&CloudResource { tags: tagged(None, None), ..named }, &[], ResourceVerdict::Rented);
        let held = CloudResource { used: ResourceUse::HeldBy("i-1".into()), ..made_with("a-i1", 1) };
        check(&held, &[], ResourceVerdict::Rented);
    }

    #[test]
    fn what_something_has_is_not_ended_whoever_that_is() {
        let held = |by: &str| CloudResource { used: ResourceUse::HeldBy(by.to_owned()), ..disk() };
        for by in ["i-1", "eni-1", ""] {
            check(&held(by), &[("disk/us-east-1/vol-1", 0)], ResourceVerdict::InUse);
            assert_eq!(judged(&held(by), &[]).unused_for, None);
        }
        check(&CloudResource { used: ResourceUse::Changing, ..disk() }, &[], ResourceVerdict::Young);
    }

    #[test]
    fn what_holds_data_that_gradus_has_not_copied_is_never_ended() {
        for kind in [ResourceKind::Snapshot, ResourceKind::Image] {
            check(&CloudResource { kind, ..disk() }, &[], ResourceVerdict::ByHand);
            let rented = CloudResource { kind, tags: tagged(Some("me"), Some("a-i1")), ..disk() };
            check(&rented, &[], ResourceVerdict::ByHand);
            let other = CloudResource { kind, tags: tagged(Some("you"), None), ..disk() };
            check(&other, &[], ResourceVerdict::OtherHome);
        }
    }

    #[test]
    fn what_later_machines_use_again_is_not_ended() {
        for kind in [ResourceKind::SecurityGroup, ResourceKind::KeyPair] {
            check(&CloudResource { kind, ..disk() }, &[], ResourceVerdict::Reused);
        }
        for kind in [ResourceKind::Interface, ResourceKind::Address] {
            check(&CloudResource { kind, ..disk() }, &[], ResourceVerdict::Orphaned);
        }
    }

    #[test]
    fn the_grace_counts_from_when_nothing_has_it_any_more() {
        let since = |unused: Option<i64>, created: Option<i64>| CloudResource {
            unused_since: unused.map(at),
            created: created.map(at),
            ..disk()
        };
        let key = "disk/us-east-1/vol-1";
        // The cloud says since when.
        check(&since(Some(50), Some(0)), &[], ResourceVerdict::Orphaned);
        check(&since(Some(51), Some(0)), &[], ResourceVerdict::Young);
        check(&since(Some(51), Some(0)), &[(key, 0)], ResourceVerdict::Young);
        // It does not, and a disk that is old may have been detached a moment ago.
        check(&since(None, Some(0)), &[], ResourceVerdict::Young);
        check(&since(None, None), &[], ResourceVerdict::Young);
        check(&since(None, Some(0)), &[(key, 50)], ResourceVerdict::Orphaned);
        check(&since(None, Some(0)), &[(key, 51)], ResourceVerdict::Young);
        check(&since(None, Some(0)), &[("disk/eu-west-1/vol-1", 0)], ResourceVerdict::Young);
        // Another one of the same name was there before.
        check(&since(None, Some(55)), &[(key, 0)], ResourceVerdict::Young);
        check(&since(Some(0), Some(55)), &[], ResourceVerdict::Young);
        // A cloud whose clock is ahead.
        check(&since(Some(70), Some(70)), &[], ResourceVerdict::Young);
        let unused = |resource: &CloudResource| judged(resource, &[(key, 45)]).unused_for;
        assert_eq!(unused(&since(None, Some(0))), Some(Duration::from_secs(900)));
    }

    #[test]
    fn an_audit_notes_what_it_is_the_first_to_find() {
        let (catalog, rented) = (Catalog::embedded().unwrap(), BTreeSet::from([InstanceId::new("a-i1")]));
        let of = |handle: &str| CloudResource { handle: handle.to_owned(), unused_since: None, ..disk() };
        let found = vec![
            of("known"),
            of("new"),
            CloudResource { used: ResourceUse::HeldBy("i-1".into()), ..of("held") },
            CloudResource { used: ResourceUse::Changing, ..of("changing") },
            CloudResource { tags: tagged(Some("me"), Some("a-i1")), ..of("rented") },
            CloudResource { tags: tagged(Some("you"), None), ..of("other") },
            CloudResource { kind: ResourceKind::Snapshot, ..of("copy") },
            CloudResource { unused_since: Some(at(0)), ..of("dated") },
        ];
        let key = |handle: &str| format!("disk/us-east-1/{handle}");
        let noted = ["known", "held", "gone"].map(|handle| (key(handle), at(20))).into();
        let judge = judge(&catalog, &rented, &noted);
        let judged = judge.judge(found);
        let expected = BTreeMap::from([(key("known"), at(20)), (key("new"), at(60))]);
        assert_eq!(judge.notes(&judged, true), expected);
        // One that is in a region that did not answer keeps its time.
        let mut incomplete = expected;
        incomplete.insert(key("gone"), at(20));
        assert_eq!(judge.notes(&judged, false), incomplete);
    }

    #[test]
    fn an_orphan_that_cannot_be_ended_keeps_no_other() {
        let of = |kind, handle: &str, verdict| AuditedResource {
            resource: CloudResource { kind, handle: handle.to_owned(), ..disk() },
            price: ResourcePrice::Unknown,
            unused_for: None,
            verdict,
        };
        let resources = [
            of(ResourceKind::Address, "address", ResourceVerdict::Orphaned),
            of(ResourceKind::Disk, "stuck", ResourceVerdict::Orphaned),
            of(ResourceKind::Interface, "interface", ResourceVerdict::Orphaned),
            of(ResourceKind::Disk, "rented", ResourceVerdict::Rented),
            of(ResourceKind::Disk, "held", ResourceVerdict::InUse),
            of(ResourceKind::Disk, "young", ResourceVerdict::Young),
            of(ResourceKind::Snapshot, "copy", ResourceVerdict::ByHand),
            of(ResourceKind::SecurityGroup, "group", ResourceVerdict::Reused),
            of(ResourceKind::Disk, "other", ResourceVerdict::OtherHome),
            of(ResourceKind::Disk, "foreign", ResourceVerdict::Foreign),
        ];
        let asked = std::cell::RefCell::new(Vec::new());
        let (ended, failures) = end_unneeded(&resources, |resource| {
            asked.borrow_mut().push(resource.handle.clone());
            if resource.handle == "stuck" { Err("not now") } else { Ok(()) }
        });
        assert_eq!(asked.into_inner(), ["interface", "stuck", "address"], "an interface has its address");
        let expected = ["address/us-east-1/address", "network interface/us-east-1/interface"];
        assert_eq!(ended.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(failures, ["disk `stuck` in us-east-1: not now"]);
    }
}
