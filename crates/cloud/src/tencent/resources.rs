//! What an account has beside machines: disks and elastic addresses, region by region. Whose a snapshot is Tencent does not list.

use serde::Deserialize;
use serde_json::json;

use super::wire::TcService;
use super::{PAGE, PAGES, Tencent, filters};
use crate::aws::wire::query::OWNER_TAG;
use crate::aws::wire::times;
use crate::rented::audit::resource::{CloudResource, ResourceKind, ResourceList, ResourceTags, ResourceUse};
use crate::rented::{CloudFailure, resources_in};

/// The kinds that are listed.
const KINDS: [ResourceKind; 2] = [ResourceKind::Disk, ResourceKind::Address];

/// A part of either list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ResourceSet {
    total_count: usize,
    disk_set: Vec<CbsDisk>,
    address_set: Vec<VpcAddress>,
}

/// A disk. Whatever is missing of one must not hide another one, and much may be null.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct CbsDisk {
    disk_id: String,
    disk_name: Option<String>,
    placement: Option<CbsPlacement>,
    disk_type: Option<String>,
    disk_size: Option<u64>,
    /// `UNATTACHED` where nothing has it.
    disk_state: Option<String>,
    instance_id: Option<String>,
    create_time: Option<String>,
    tags: Option<Vec<TcTag>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct CbsPlacement {
    zone: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct VpcAddress {
    address_id: String,
    address_ip: Option<String>,
    /// `UNBIND` where nothing has it.
    address_status: Option<String>,
    instance_id: Option<String>,
    network_interface_id: Option<String>,
    created_time: Option<String>,
    tag_set: Option<Vec<TcTag>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct TcTag {
    key: String,
    value: String,
}

fn tags(set: Option<&Vec<TcTag>>) -> ResourceTags {
    ResourceTags::read(|key| set?.iter().find(|tag| tag.key == key).map(|tag| tag.value.as_str()))
}

/// What has something, which is in this state while nothing has it.
fn used(state: Option<&str>, free: &str, holders: [Option<&String>; 2]) -> ResourceUse {
    match holders.into_iter().flatten().find(|holder| !holder.is_empty()) {
        Some(holder) => ResourceUse::HeldBy(holder.clone()),
        None if state == Some(free) => ResourceUse::Nothing,
        None => ResourceUse::Changing,
    }
}

/// A time. That of a disk has no zone and is that of Beijing: read as UTC it is later, and nothing is ended too early.
fn time(text: Option<&String>) -> Option<domain::Timestamp> {
    times::read(text?)
}

impl ResourceSet {
    /// All of it that is not about to be gone, in the region that was asked for it.
    fn all(self, region: &str) -> Vec<CloudResource> {
        let disks = self.disk_set.into_iter().map(|one| CloudResource {
            tags: tags(one.tags.as_ref()),
            used: used(one.disk_state.as_deref(), "UNATTACHED", [one.instance_id.as_ref(), None]),
            created: time(one.create_time.as_ref()),
            zone: one.placement.and_then(|placement| placement.zone),
            name: one.disk_name.unwrap_or_default(),
            tier: one.disk_type.unwrap_or_default(),
            gib: one.disk_size,
            ..CloudResource::new(ResourceKind::Disk, &one.disk_id, region)
        });
        let addresses = self.address_set.into_iter();
        let addresses = addresses.filter(|one| one.address_status.as_deref() != Some("OFFLINING"));
        let addresses = addresses.map(|one| {
            let holders = [one.instance_id.as_ref(), one.network_interface_id.as_ref()];
            CloudResource {
                tags: tags(one.tag_set.as_ref()),
                used: used(one.address_status.as_deref(), "UNBIND", holders),
                created: time(one.created_time.as_ref()),
                name: one.address_ip.unwrap_or_default(),
                ..CloudResource::new(ResourceKind::Address, &one.address_id, region)
            }
        });
        disks.chain(addresses).collect()
    }
}

impl Tencent {
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
        let is_address = kind == ResourceKind::Address;
        let action = if is_address { (TcService::Vpc, "DescribeAddresses") } else { (TcService::Cbs, "DescribeDisks") };
        let (mut found, mut offset) = (Vec::new(), 0);
        for _ in 0..PAGES {
            let mut body = json!({ "Limit": PAGE, "Offset": offset });
            if let Some(owner) = owner {
                body["Filters"] = json!(filters(&[(format!("tag:{OWNER_TAG}").as_str(), owner)]));
            }
            let set: ResourceSet = self.client.ask(action, region, &body.to_string())?;
            let (count, total) = (set.disk_set.len() + set.address_set.len(), set.total_count);
            offset += count;
            found.extend(set.all(region));
            if count == 0 || offset >= total {
                return Ok(found);
            }
        }
        Err(CloudFailure::Doubt("the list has no end".to_owned()))
    }

    /// Deletes a disk or an address, which Tencent refuses where something has it.
    pub(super) fn delete_resource(&self, resource: &CloudResource) -> Result<(), CloudFailure> {
        #[derive(Deserialize)]
        struct Deleted {}
        let CloudResource { kind, handle, region, .. } = resource;
        let (action, body) = match kind {
            ResourceKind::Disk => ((TcService::Cbs, "TerminateDisks"), json!({ "DiskIds": [handle] })),
            ResourceKind::Address => ((TcService::Vpc, "ReleaseAddresses"), json!({ "AddressIds": [handle] })),
            other => {
                return Err(CloudFailure::Invalid(format!("gradus deletes no {} of `tencent`", other.noun())));
            }
        };
        self.client.ask(action, region, &body.to_string()).map(|Deleted {}| ())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn read(set: Value) -> Vec<CloudResource> {
        serde_json::from_value::<ResourceSet>(set).unwrap().all("ap-guangzhou")
    }

    /// The parts that are read, in the shape of the references of the APIs.
    #[test]
    fn resources_are_read() {
        let disk = |state: &str, instance: &str| {
            read(json!({ "TotalCount": 1, "DiskSet": [{
                "DiskId": "disk-1", "DiskName": "x", "Placement": { "Zone": "ap-guangzhou-6", "ProjectId": 0 },
                "DiskType": "CLOUD_SSD", "DiskSize": 200, "DiskState": state, "InstanceId": instance,
                "CreateTime": "2026-11-24 19:00:00", "DeadlineTime": null,
                "Tags": [{ "Key": "gradus-owner", "Value": "me" }, { "Key": "gradus-instance", "Value": "r-i1" }],
            }] }))
            .remove(0)
        };
        let found = disk("UNATTACHED", "");
        assert_eq!(
            (found.tier.as_str(), found.gib, found.zone.as_deref()),
            ("CLOUD_SSD", Some(200), Some("ap-guangzhou-6"))
        );
        assert_eq!((found.tags.owner.as_deref(), found.tags.instance.is_some()), (Some("me"), true));
        assert_eq!((found.used, found.created), (ResourceUse::Nothing, times::read("2026-11-24T19:00:00Z")));
        assert_eq!(disk("ATTACHED", "ins-1").used, ResourceUse::HeldBy("ins-1".into()));
        assert_eq!(disk("UNATTACHED", "ins-1").used, ResourceUse::HeldBy("ins-1".into()), "never against what it says");
        for state in ["ATTACHING", "DETACHING", "EXPANDING", "TORECYCLE", ""] {
            assert_eq!(disk(state, "").used, ResourceUse::Changing, "{state}");
        }
        let address = |status: &str, interface: Value| {
            read(json!({ "TotalCount": 1, "AddressSet": [{
                "AddressId": "eip-1", "AddressIp": "192.0.2.7", "AddressStatus": status, "InstanceId": null,
                "NetworkInterfaceId": interface, "CreatedTime": "2026-11-24T11:00:00Z", "TagSet": null,
            }] }))
        };
        assert_eq!(address("UNBIND", Value::Null)[0].used, ResourceUse::Nothing);
        assert_eq!(address("BIND_ENI", "eni-1".into())[0].used, ResourceUse::HeldBy("eni-1".into()));
        assert_eq!(address("CREATING", Value::Null)[0].used, ResourceUse::Changing);
        assert_eq!(
            (address("OFFLINING", Value::Null).len(), address("UNBIND", Value::Null)[0].tags.owner.is_some()),
            (0, false)
        );
    }
}
