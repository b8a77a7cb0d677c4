//! What an account has beside machines: disks, elastic addresses and snapshots, region by region.

use serde::Deserialize;

use super::listed::minute;
use super::wire::AcsService;
use super::{Alibaba, PAGES};
use crate::aws::wire::query::{OWNER_TAG, Params, params};
use crate::rented::audit::resource::{CloudResource, ResourceKind, ResourceList, ResourceTags, ResourceUse};
use crate::rented::{CloudFailure, resources_in};

/// The kinds that are listed.
const KINDS: [ResourceKind; 3] = [ResourceKind::Disk, ResourceKind::Address, ResourceKind::Snapshot];

/// A part of any of these lists.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ResourcesPage {
    disks: EcsDisks,
    snapshots: EcsSnapshots,
    eip_addresses: VpcAddresses,
    next_token: Option<String>,
    total_count: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EcsDisks {
    disk: Vec<EcsDisk>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EcsSnapshots {
    snapshot: Vec<EcsSnapshot>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct VpcAddresses {
    eip_address: Vec<VpcAddress>,
}

/// A disk. Whatever is missing of one must not hide another one.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EcsDisk {
    disk_id: String,
    disk_name: String,
    zone_id: String,
    category: String,
    size: Option<u64>,
    /// `Available` where nothing has it.
    status: String,
    instance_id: String,
    creation_time: String,
    detached_time: String,
    tags: AcsTags,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EcsSnapshot {
    snapshot_id: String,
    snapshot_name: String,
    source_disk_size: String,
    creation_time: String,
    tags: AcsTags,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct VpcAddress {
    allocation_id: String,
    ip_address: String,
    status: String,
    instance_id: String,
    allocation_time: String,
    tags: AcsTags,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct AcsTags {
    tag: Vec<AcsTag>,
}

/// A tag, as ECS names its parts, or VPC.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct AcsTag {
    #[serde(alias = "Key")]
    tag_key: String,
    #[serde(alias = "Value")]
    tag_value: String,
}

impl AcsTags {
    fn ours(&self) -> ResourceTags {
        let found = |key: &str| self.tag.iter().find(|tag| tag.tag_key == key).map(|tag| tag.tag_value.as_str());
        ResourceTags::read(found)
    }
}

/// What has something of this status.
fn used(status: &str, holder: &str) -> ResourceUse {
    match (status, holder) {
        ("Available", "") => ResourceUse::Nothing,
        (_, "") => ResourceUse::Changing,
        (_, holder) => ResourceUse::HeldBy(holder.to_owned()),
    }
}

impl ResourcesPage {
    /// All of it, in the region that was asked for it.
    fn all(self, region: &str) -> Vec<CloudResource> {
        let disks = self.disks.disk.iter().map(|one| CloudResource {
            zone: Some(one.zone_id.clone()).filter(|zone| !zone.is_empty()),
            name: one.disk_name.clone(),
            tier: one.category.clone(),
            gib: one.size,
            tags: one.tags.ours(),
            used: used(&one.status, &one.instance_id),
            created: minute(&one.creation_time),
            unused_since: minute(&one.detached_time),
            ..CloudResource::new(ResourceKind::Disk, &one.disk_id, region)
        });
        let addresses = self.eip_addresses.eip_address.iter().filter(|one| one.status != "Releasing");
        let addresses = addresses.map(|one| CloudResource {
            name: one.ip_address.clone(),
            tags: one.tags.ours(),
            used: used(&one.status, &one.instance_id),
            created: minute(&one.allocation_time),
            ..CloudResource::new(ResourceKind::Address, &one.allocation_id, region)
        });
        let snapshots = self.snapshots.snapshot.iter().map(|one| CloudResource {
            name: one.snapshot_name.clone(),
            gib: one.source_disk_size.parse().ok(),
            tags: one.tags.ours(),
            created: minute(&one.creation_time),
            ..CloudResource::new(ResourceKind::Snapshot, &one.snapshot_id, region)
        });
        disks.chain(addresses).chain(snapshots).collect()
    }
}

/// The action that lists a kind, and the parameter that says how much of it is on a page.
fn listing(kind: ResourceKind) -> Option<(AcsService, &'static str, &'static str)> {
    match kind {
        ResourceKind::Disk => Some((AcsService::Ecs, "DescribeDisks", "MaxResults")),
        ResourceKind::Snapshot => Some((AcsService::Ecs, "DescribeSnapshots", "MaxResults")),
        ResourceKind::Address => Some((AcsService::Vpc, "DescribeEipAddresses", "PageSize")),
        // A machine's only interface goes with it, and the user makes groups, keys and images.
        ResourceKind::Interface | ResourceKind::Image | ResourceKind::SecurityGroup | ResourceKind::KeyPair => None,
    }
}

impl Alibaba {
    /// What an owner has, by its tag; with `lists_all` what everybody in the account has.
    pub(super) fn resources_of(&self, owner: &str, lists_all: bool) -> ResourceList {
        let owner = Some(owner).filter(|_| !lists_all);
        resources_in(self.regions(), &KINDS, |kind, region| self.listed_resources(kind, region, owner))
    }

    /// All pages of a list.
    fn listed_resources(
        &self,
        kind: ResourceKind,
        region: &str,
        owner: Option<&str>,
    ) -> Result<Vec<CloudResource>, CloudFailure> {
        let Some((service, action, limit)) = listing(kind) else { return Ok(Vec::new()) };
        let mut first = params([("RegionId", region), (limit, "100")]);
        if let Some(owner) = owner {
            first.extend(params([("Tag.1.Key", OWNER_TAG), ("Tag.1.Value", owner)]));
        }
        let (mut found, mut sent) = (Vec::new(), first.clone());
        for number in 2..PAGES {
            let page: ResourcesPage = self.client.ask((service, action), region, &sent)?;
            let (token, total) = (page.next_token.clone().filter(|token| !token.is_empty()), page.total_count);
            let page = page.all(region);
            let is_empty = page.is_empty();
            found.extend(page);
            // The two services divide their lists differently.
            let next = match (service, token) {
                (AcsService::Vpc, _) if !is_empty && found.len() < total => ("PageNumber", number.to_string()),
                (AcsService::Ecs, Some(token)) => ("NextToken", token),
                _ => return Ok(found),
            };
            sent.clone_from(&first);
            sent.push((next.0.to_owned(), next.1));
        }
        Err(CloudFailure::Doubt("the list has no end".to_owned()))
    }

    /// Deletes a disk or an address, which Alibaba refuses where something has it.
    pub(super) fn delete_resource(&self, resource: &CloudResource) -> Result<(), CloudFailure> {
        let CloudResource { kind, handle, region, .. } = resource;
        match kind {
            ResourceKind::Disk => self.deleted((AcsService::Ecs, "DeleteDisk"), region, &params([("DiskId", handle)])),
            ResourceKind::Address => {
                let sent = params([("RegionId", region), ("AllocationId", handle)]);
                self.deleted((AcsService::Vpc, "ReleaseEipAddress"), region, &sent)
            }
            other => Err(CloudFailure::Invalid(format!("gradus deletes no {} of `alibaba`", other.noun()))),
        }
    }

    fn deleted(&self, action: (AcsService, &str), region: &str, sent: &Params) -> Result<(), CloudFailure> {
        #[derive(Deserialize)]
        struct Deleted {}
        let Deleted {} = self.client.ask(action, region, sent)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::aws::wire::times;

    fn read(page: Value) -> Vec<CloudResource> {
        serde_json::from_value::<ResourcesPage>(page).unwrap().all("cn-hangzhou")
    }

    /// The parts that are read, in the shape of the references of the APIs.
    #[test]
    fn resources_are_read() {
        let tags = json!({ "Tag": [{ "TagKey": "gradus-owner", "TagValue": "me" },
                                   { "TagKey": "gradus-instance", "TagValue": "r-i1" }] });
        let disk = |status: &str, instance: &str| {
            read(json!({ "TotalCount": 1, "NextToken": "", "Disks": { "Disk": [{
                "DiskId": "d-1", "DiskName": "", "RegionId": "cn-hangzhou", "ZoneId": "cn-hangzhou-g", "Type": "system",
                "Category": "cloud_essd", "PerformanceLevel": "PL1", "Size": 200, "Status": status,
                "InstanceId": instance, "CreationTime": "2026-11-24T11:00:00Z", "DetachedTime": "2026-11-24T12:00:00Z",
                "Tags": tags,
            }] } }))
            .remove(0)
        };
        let found = disk("Available", "");
        assert_eq!((found.kind, found.zone.as_deref()), (ResourceKind::Disk, Some("cn-hangzhou-g")));
        assert_eq!((found.tier.as_str(), found.gib), ("cloud_essd", Some(200)));
        assert_eq!((found.tags.owner.as_deref(), found.tags.instance.is_some()), (Some("me"), true));
        assert_eq!(found.created, times::read("2026-11-24T11:00:00Z"));
        assert_eq!((found.used, found.unused_since), (ResourceUse::Nothing, times::read("2026-11-24T12:00:00Z")));
        assert_eq!(disk("In_use", "i-1").used, ResourceUse::HeldBy("i-1".into()));
        assert_eq!(disk("Available", "i-1").used, ResourceUse::HeldBy("i-1".into()), "never against what it says");
        for status in ["Attaching", "Detaching", "Creating", "ReIniting", ""] {
            assert_eq!(disk(status, "").used, ResourceUse::Changing, "{status}");
        }
        let address = |status: &str| {
            read(json!({ "TotalCount": 1, "EipAddresses": { "EipAddress": [{
                "AllocationId": "eip-1", "IpAddress": "192.0.2.7", "Status": status, "InstanceId": "",
                "AllocationTime": "2026-11-24T11:00:00Z", "Tags": { "Tag": [{ "Key": "gradus-owner", "Value": "me" }] },
            }] } }))
        };
        assert_eq!((address("Available")[0].tags.owner.as_deref(), address("Releasing").len()), (Some("me"), 0));
        assert_eq!(address("Associating")[0].used, ResourceUse::Changing);
        let snapshot = json!({ "SnapshotId": "s-1", "SourceDiskSize": "200", "CreationTime": "2026-11-24T11:00:00Z" });
        let snapshot = read(json!({ "Snapshots": { "Snapshot": [snapshot] } })).remove(0);
        assert_eq!((snapshot.handle.as_str(), snapshot.gib, snapshot.tags.owner), ("s-1", Some(200), None));
    }
}
