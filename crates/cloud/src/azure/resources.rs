//! What a resource group has beside machines: disks, network interfaces, addresses, snapshots and images. A machine that is deleted
//! takes its own along; what is left where that fails is found here.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::listed::ArmId;
use super::{Azure, COMPUTE, NETWORK};
use crate::aws::wire::query::word;
use crate::aws::wire::times;
use crate::rented::audit::resource::{CloudResource, ResourceKind, ResourceList, ResourceTags, ResourceUse};
use crate::rented::{CloudFailure, name_prefix};

/// The version of the API of disks and snapshots, which is not that of machines.
const DISKS: &str = "api-version=2024-03-02";

/// The kinds that are listed.
const KINDS: [ResourceKind; 5] =
    [ResourceKind::Interface, ResourceKind::Disk, ResourceKind::Address, ResourceKind::Snapshot, ResourceKind::Image];

/// The type of a kind at the Resource Manager, and the version of its API.
fn provider(kind: ResourceKind) -> Option<(&'static str, &'static str)> {
    match kind {
        ResourceKind::Interface => Some(("Microsoft.Network/networkInterfaces", NETWORK)),
        ResourceKind::Address => Some(("Microsoft.Network/publicIPAddresses", NETWORK)),
        ResourceKind::Disk => Some(("Microsoft.Compute/disks", DISKS)),
        ResourceKind::Snapshot => Some(("Microsoft.Compute/snapshots", DISKS)),
        ResourceKind::Image => Some(("Microsoft.Compute/images", COMPUTE)),
        // The user makes the networks with their groups, and keys are in the user data.
        ResourceKind::SecurityGroup | ResourceKind::KeyPair => None,
    }
}

/// Anything of these kinds. Whatever is missing of one must not hide another one.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListedResource {
    name: String,
    location: String,
    zones: Option<Vec<String>>,
    tags: Option<BTreeMap<String, String>>,
    sku: Option<ResourceSku>,
    /// The machine that has a disk.
    managed_by: Option<String>,
    properties: ResourceProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceSku {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceProperties {
    provisioning_state: String,
    #[serde(rename = "diskSizeGB")]
    disk_size: Option<u64>,
    disk_state: String,
    time_created: String,
    /// When a disk was attached or detached last, or its machine deallocated or started.
    #[serde(rename = "LastOwnershipUpdateTime", alias = "lastOwnershipUpdateTime")]
    last_ownership_update: String,
    /// What has an interface.
    virtual_machine: Option<ArmId>,
    private_endpoint: Option<ArmId>,
    /// What has an address.
    ip_configuration: Option<ArmId>,
    nat_gateway: Option<ArmId>,
}

/// The name of what has something, of its address in the Resource Manager: of the interface, of an address of one of its parts.
fn holder(id: &str) -> String {
    let parts: Vec<&str> = id.split('/').collect();
    let of = |kind: &str| parts.windows(2).find(|pair| pair[0].eq_ignore_ascii_case(kind)).map(|pair| pair[1]);
    of("networkInterfaces").or(parts.last().copied()).unwrap_or_default().to_owned()
}

impl ListedResource {
    fn held(&self) -> Option<ResourceUse> {
        let ResourceProperties { virtual_machine, private_endpoint, ip_configuration, nat_gateway, .. } =
            &self.properties;
        let ids = [virtual_machine, private_endpoint, ip_configuration, nat_gateway].map(Option::as_ref);
        let ids = ids.into_iter().flatten().map(|id| id.id.as_str()).chain(self.managed_by.as_deref());
        ids.filter(|id| !id.is_empty()).map(|id| ResourceUse::HeldBy(holder(id))).next()
    }

    /// The resource; none that is about to be gone.
    fn resource(&self, kind: ResourceKind) -> Option<CloudResource> {
        let properties = &self.properties;
        if properties.provisioning_state == "Deleting" {
            return None;
        }
        let held = self.held();
        let used = match (kind, properties.disk_state.as_str(), properties.provisioning_state.as_str()) {
            (ResourceKind::Snapshot | ResourceKind::Image, _, _) => ResourceUse::Nothing,
            (ResourceKind::Disk, "Unattached", _) => held.unwrap_or_default(),
            // One that is reserved is that of a machine which is deallocated.
            (ResourceKind::Disk, _, _) => held.unwrap_or(ResourceUse::Changing),
            (_, _, "Succeeded" | "Failed") => held.unwrap_or_default(),
            _ => held.unwrap_or(ResourceUse::Changing),
        };
        let tag = |key: &str| self.tags.as_ref().and_then(|tags| tags.get(key)).map(String::as_str);
        Some(CloudResource {
            zone: self.zones.as_ref().and_then(|zones| zones.first().cloned()),
            name: self.name.clone(),
            tier: self.sku.as_ref().map(|sku| sku.name.clone()).unwrap_or_default(),
            gib: properties.disk_size,
            tags: ResourceTags::read(tag),
            used,
            created: times::read(&properties.time_created),
            unused_since: times::read(&properties.last_ownership_update),
            ..CloudResource::new(kind, &self.name, &self.location)
        })
    }
}

/// The parts of a machine and of an interface by which what is made with a machine is found.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MadeWith {
    properties: MadeWithProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MadeWithProperties {
    network_profile: MadeWithNetwork,
    ip_configurations: Vec<MadeWithAddress>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MadeWithNetwork {
    network_interfaces: Vec<ArmId>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MadeWithAddress {
    properties: AddressOf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AddressOf {
    #[serde(rename = "publicIPAddress")]
    address: Option<ArmId>,
}

impl Azure {
    /// What an owner has, by its tag or its name; with `lists_all` what everybody has in the resource group.
    pub(super) fn resources_of(&self, owner: &str, lists_all: bool) -> ResourceList {
        let prefix = name_prefix(owner);
        let is_meant = |one: &CloudResource| {
            lists_all || one.name.starts_with(&prefix) || one.tags.owner.as_deref() == Some(owner)
        };
        let mut list = ResourceList::default();
        for kind in KINDS {
            let Some((provider, version)) = provider(kind) else { continue };
            let listed = self.client.list::<ListedResource>(&self.path(&format!("{provider}?{version}")));
            let found =
                listed.map(|listed| listed.iter().filter_map(|one| one.resource(kind)).filter(is_meant).collect());
            list.add(kind, self.group(), found);
        }
        list
    }

    /// Deletes a disk, an interface or an address, which Azure refuses where something has it.
    pub(super) fn delete_resource(&self, resource: &CloudResource) -> Result<(), CloudFailure> {
        let is_deleted = matches!(resource.kind, ResourceKind::Disk | ResourceKind::Interface | ResourceKind::Address);
        match provider(resource.kind).filter(|_| is_deleted) {
            Some((provider, version)) => {
                self.client.delete(&self.path(&format!("{provider}/{}?{version}", word(&resource.handle))))
            }
            None => Err(CloudFailure::Invalid(format!("gradus deletes no {} of `azure`", resource.kind.noun()))),
        }
    }

    /// Puts the tags of a machine on its interface and on the address of that, by which an audit knows whose they are where they
    /// are left behind. A machine is rented without it too: then they are listed by their name, and their user deletes them.
    ///
    /// # Errors
    /// [`CloudFailure`].
    pub(super) fn tag_network(&self, name: &str, body: &str) -> Result<(), CloudFailure> {
        let asked: Value = serde_json::from_str(body)
            .map_err(|error| CloudFailure::Invalid(format!("what was written down cannot be read: {error}")))?;
        let tags = json!({ "tags": asked["tags"] }).to_string();
        let tag = |id: &str| -> Result<MadeWith, CloudFailure> {
            self.client.patch(&format!("{id}?{NETWORK}"), tags.as_bytes().to_vec())
        };
        let machine: MadeWith = self.client.get(&self.machine_path(name))?;
        for interface in machine.properties.network_profile.network_interfaces {
            let addresses = tag(&interface.id)?.properties.ip_configurations;
            for address in addresses.into_iter().filter_map(|one| one.properties.address) {
                tag(&address.id)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: ResourceKind, value: Value) -> Option<CloudResource> {
        serde_json::from_value::<ListedResource>(value).unwrap().resource(kind)
    }

    /// In the shape of the references of the APIs.
    const MACHINE: &str = "/subscriptions/s/resourceGroups/GRADUS/providers/Microsoft.Compute/virtualMachines/m";
    const INTERFACE: &str = "/subscriptions/s/resourceGroups/gradus/providers/Microsoft.Network/networkInterfaces/n";

    #[test]
    fn disks_are_read() {
        let disk = |state: &str, managed_by: Value| {
            json!({
                "name": "m_OsDisk_1_0f47", "location": "eastus", "zones": ["1"], "managedBy": managed_by,
                "type": "Microsoft.Compute/disks", "sku": { "name": "Premium_LRS", "tier": "Premium" },
                "tags": { "gradus-owner": "me", "gradus-instance": "r-i1" },
                "properties": {
                    "osType": "Linux", "diskSizeGB": 256, "provisioningState": "Succeeded", "diskState": state,
                    "timeCreated": "2026-11-24T11:00:00.3138469+00:00",
                    "LastOwnershipUpdateTime": "2026-11-24T12:00:00.5+00:00",
                },
            })
        };
        let found = read(ResourceKind::Disk, disk("Unattached", Value::Null)).unwrap();
        assert_eq!((found.region.as_str(), found.zone.as_deref(), found.gib), ("eastus", Some("1"), Some(256)));
        assert_eq!((found.tier.as_str(), found.tags.owner.as_deref()), ("Premium_LRS", Some("me")));
        assert_eq!(found.created, times::read("2026-11-24T11:00:00Z"));
        assert_eq!((found.used, found.unused_since), (ResourceUse::Nothing, times::read("2026-11-24T12:00:00Z")));
        let used = |state: &str, managed_by: Value| read(ResourceKind::Disk, disk(state, managed_by)).unwrap().used;
        assert_eq!(used("Attached", MACHINE.into()), ResourceUse::HeldBy("m".into()));
        assert_eq!(used("Reserved", MACHINE.into()), ResourceUse::HeldBy("m".into()));
        assert_eq!(used("Unattached", MACHINE.into()), ResourceUse::HeldBy("m".into()), "never against what it says");
        for state in ["Reserved", "ActiveSAS", "ActiveUpload", "ReadyToUpload", "Frozen", ""] {
            assert_eq!(used(state, Value::Null), ResourceUse::Changing, "{state}");
        }
    }

    #[test]
    fn interfaces_and_addresses_are_read() {
        let used = |kind, properties: Value| {
            read(kind, json!({ "name": "x", "location": "eastus", "properties": properties })).map(|one| one.used)
        };
        let (interface, address) = (ResourceKind::Interface, ResourceKind::Address);
        let plain = json!({ "provisioningState": "Succeeded" });
        assert_eq!(used(interface, plain.clone()), Some(ResourceUse::Nothing));
        assert_eq!(used(address, plain), Some(ResourceUse::Nothing));
        let of_machine = json!({ "provisioningState": "Succeeded", "virtualMachine": { "id": MACHINE } });
        assert_eq!(used(interface, of_machine), Some(ResourceUse::HeldBy("m".into())));
        let part = format!("{INTERFACE}/ipConfigurations/i");
        let of_interface = json!({ "provisioningState": "Succeeded", "ipConfiguration": { "id": part } });
        assert_eq!(used(address, of_interface), Some(ResourceUse::HeldBy("n".into())));
        assert_eq!(used(interface, json!({ "provisioningState": "Updating" })), Some(ResourceUse::Changing));
        assert_eq!(used(interface, json!({})), Some(ResourceUse::Changing));
        assert_eq!(used(address, json!({ "provisioningState": "Deleting" })), None);
    }

    #[test]
    fn what_holds_data_is_never_deleted() {
        for kind in [ResourceKind::Snapshot, ResourceKind::Image] {
            let copy = json!({ "name": "c", "location": "eastus", "tags": null, "properties": { "diskSizeGB": 10 } });
            let copy = read(kind, copy).unwrap();
            assert_eq!((copy.used, copy.tags.owner), (ResourceUse::Nothing, None));
        }
    }
}
