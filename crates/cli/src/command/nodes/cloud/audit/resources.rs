//! What an audit finds beside machines: disks, addresses, interfaces, snapshots and images.

use std::collections::BTreeSet;
use std::fmt::Display;

use cloud::Catalog;
use cloud::rented::audit::resource::{CloudResource, ResourceList, ResourceUse};
use cloud::rented::audit::unused::UnusedNotes;
use cloud::rented::audit::verdict::{AuditedResource, ResourceJudge, ResourceVerdict, end_unneeded};
use domain::listing::Cloud;
use server::Home;

use super::{AuditRequest, rented_now};
use crate::error::Error;
use crate::figures::short;
use crate::table;

/// What is found, and what came of it.
#[derive(Debug, Default)]
pub(super) struct ResourceAudit {
    pub resources: Vec<AuditedResource>,
    /// The keys of those that were ended.
    pub ended: BTreeSet<String>,
    /// What was not ended, with the reason.
    pub failures: Vec<String>,
    /// What could not be listed, with the reason.
    pub unseen: Vec<String>,
    /// Why it could not be written down since when resources are unused.
    pub unnoted: Option<String>,
}

impl ResourceAudit {
    /// Whether an audit has ended it.
    pub fn is_ended(&self, one: &AuditedResource) -> bool {
        self.ended.contains(&one.resource.key())
    }

    /// Of those that were ended, a sentence each.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        let ended = self.resources.iter().filter(|one| self.is_ended(one));
        ended.map(|one| {
            let CloudResource { kind, handle, region, .. } = &one.resource;
            format!("audit: the {} `{handle}` in {region} belonged to no run and was ended", kind.noun())
        })
    }

    /// A line for each, below a head.
    pub fn lines(&self) -> Vec<String> {
        let head =
            ["region", "resource", "name", "type", "size", "used by", "unused for", "price", "made with", "verdict"];
        let rows: Vec<Vec<String>> = self.resources.iter().map(|one| row(one, self.is_ended(one))).collect();
        table::lines(&head, &rows)
    }
}

/// Judges what a cloud lists, writes down since when it is unused, and ends what nothing needs if requested.
///
/// # Errors
/// [`Error`] where it cannot be read what runs have.
pub(super) fn audit<E: Display>(
    list: ResourceList,
    (cloud, tag): (Cloud, &str),
    (request, catalog, home): (&AuditRequest, &Catalog, &Home),
    end: impl Fn(&CloudResource) -> Result<(), E>,
) -> Result<ResourceAudit, Error> {
    let (is_complete, unseen) = (list.is_complete(), list.unseen());
    let notes = UnusedNotes::new(home.root(), cloud.name());
    let noted = notes.read();
    // Only now: whatever is listed was intended before.
    let (rented, now) = (&rented_now(home)?, server::clock::now());
    let (owner, grace) = (home.owner(), request.grace);
    let judge = ResourceJudge { cloud, catalog, owner, tag, rented, noted: &noted, grace, now };
    let resources = judge.judge(list.found);
    let written = notes.replace(&judge.notes(&resources, is_complete));
    let unnoted = written.err().map(|why| format!("could not write down since when resources are unused: {why}"));
    let (ended, failures) = if request.ends { end_unneeded(&resources, end) } else { Default::default() };
    Ok(ResourceAudit { resources, ended, failures, unseen, unnoted })
}

fn row(one: &AuditedResource, is_ended: bool) -> Vec<String> {
    let verdict = match (is_ended, one.verdict) {
        (true, _) => "ended",
        (false, ResourceVerdict::Rented) => "used by a run",
        (false, ResourceVerdict::InUse) => "in use",
        (false, ResourceVerdict::Young) => "unused, younger than the grace",
        (false, ResourceVerdict::Orphaned) => "orphaned",
        (false, ResourceVerdict::ByHand) => "delete it by hand, or keep it",
        (false, ResourceVerdict::Reused) => "for later machines",
        (false, ResourceVerdict::OtherHome) => "of another home",
        (false, ResourceVerdict::Foreign) => "not of gradus",
    };
    let resource = &one.resource;
    let none = || "-".to_owned();
    let some = |text: &str| if text.is_empty() { none() } else { text.to_owned() };
    let used = match &resource.used {
        ResourceUse::Nothing => none(),
        ResourceUse::HeldBy(name) => some(name),
        ResourceUse::Changing => "changing".to_owned(),
    };
    vec![
        resource.region.clone(),
        resource.kind.noun().to_owned(),
        resource.handle.clone(),
        some(&resource.tier),
        resource.gib.map_or_else(none, |gib| format!("{gib} GiB")),
        used,
        one.unused_for.map_or_else(none, short),
        one.price.to_string(),
        resource.tags.instance.as_ref().map_or_else(none, ToString::to_string),
        verdict.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use cloud::rented::audit::price::ResourcePrice;
    use cloud::rented::audit::resource::{ResourceKind, ResourceTags};
    use domain::{Duration, InstanceId};

    use super::*;

    #[test]
    fn a_line_says_what_it_is_what_it_costs_and_what_becomes_of_it() {
        let tags = ResourceTags { instance: Some(InstanceId::new("r-i1")), ..ResourceTags::default() };
        let disk = CloudResource {
            tier: "gp3".to_owned(),
            gib: Some(140),
            tags,
            ..CloudResource::new(ResourceKind::Disk, "vol-1", "us-east-1")
        };
        let audited = |resource, price, unused_for, verdict| AuditedResource { resource, price, unused_for, verdict };
        let unused = Some(Duration::from_secs(3600));
        let price = ResourcePrice::PerHour("0.015343/h".parse().unwrap());
        let address = CloudResource {
            used: ResourceUse::HeldBy("i-1".to_owned()),
            ..CloudResource::new(ResourceKind::Address, "eipalloc-1", "us-east-1")
        };
        let found = ResourceAudit {
            resources: vec![
                audited(disk.clone(), price, unused, ResourceVerdict::Orphaned),
                audited(address, ResourcePrice::Unknown, None, ResourceVerdict::InUse),
            ],
            ..ResourceAudit::default()
        };
        let lines = |found: &ResourceAudit| -> Vec<String> {
            let words = |line: String| {
                line.split("  ").filter(|word| !word.is_empty()).map(str::trim).collect::<Vec<_>>().join("|")
            };
            found.lines().into_iter().map(words).collect()
        };
        let head = "region|resource|name|type|size|used by|unused for|price|made with|verdict";
        let disk_line = "us-east-1|disk|vol-1|gp3|140 GiB|-|1h|$0.015343/h|r-i1|orphaned";
        let address_line = "us-east-1|address|eipalloc-1|-|-|i-1|-|unknown|-|in use";
        assert_eq!(lines(&found), [head, disk_line, address_line]);
        let ended = ResourceAudit { ended: BTreeSet::from([disk.key()]), ..found };
        assert_eq!(lines(&ended)[1], disk_line.replace("orphaned", "ended"));
        let notes: Vec<String> = ended.notes().collect();
        assert_eq!(notes, ["audit: the disk `vol-1` in us-east-1 belonged to no run and was ended"]);
    }
}
