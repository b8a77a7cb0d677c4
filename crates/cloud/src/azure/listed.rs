//! Machines and addresses as Azure lists them.

use std::collections::BTreeMap;

use domain::rental::MachineState;
use serde::Deserialize;

use crate::aws::wire::query::OWNER_TAG;
use crate::aws::wire::times;
use crate::rented::CloudMachine;

/// A machine of a list.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ListedVm {
    name: String,
    location: String,
    #[serde(default)]
    zones: Vec<String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    properties: VmProperties,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VmProperties {
    #[serde(default)]
    provisioning_state: String,
    #[serde(default)]
    time_created: String,
    #[serde(default)]
    hardware_profile: VmHardware,
    #[serde(default)]
    priority: String,
    #[serde(default)]
    network_profile: VmNetwork,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VmHardware {
    #[serde(default)]
    vm_size: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VmNetwork {
    #[serde(default)]
    network_interfaces: Vec<ArmId>,
}

/// Something by its address in the Resource Manager, which is the same in all cases of its letters.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct ArmId {
    #[serde(default)]
    pub id: String,
}

/// A public address of a list.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ListedAddress {
    #[serde(default)]
    properties: AddressProperties,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AddressProperties {
    #[serde(default)]
    ip_address: Option<String>,
    /// What has the address: `…/networkInterfaces/NAME/ipConfigurations/NAME`.
    #[serde(default)]
    ip_configuration: Option<ArmId>,
}

impl ListedVm {
    /// Whether it carries the tag of an owner.
    pub fn is_of(&self, owner: &str) -> bool {
        self.tags.get(OWNER_TAG).is_some_and(|tag| tag == owner)
    }

    fn address(&self, addresses: &[ListedAddress]) -> Option<String> {
        let of = |interface: &ArmId| {
            let prefix = format!("{}/", interface.id.to_ascii_lowercase());
            let has = |address: &&ListedAddress| {
                let user = address.properties.ip_configuration.as_ref();
                user.is_some_and(|user| user.id.to_ascii_lowercase().starts_with(&prefix))
            };
            addresses.iter().find(has).and_then(|address| address.properties.ip_address.clone())
        };
        let found = self.properties.network_profile.network_interfaces.iter().find_map(of);
        found.filter(|address| address.parse::<std::net::IpAddr>().is_ok())
    }

    /// The machine, with that of the addresses which it has.
    pub fn machine(self, addresses: &[ListedAddress]) -> CloudMachine {
        let address = self.address(addresses);
        let state = match self.properties.provisioning_state.as_str() {
            "Creating" => MachineState::Pending,
            // One that has failed may have run, and has a disk that costs money; it is ended like any other.
            "Deleting" | "Failed" | "Canceled" => MachineState::Ending,
            _ => MachineState::Running,
        };
        CloudMachine {
            handle: self.name.clone(),
            name: self.name,
            region: self.location,
            zone: self.zones.into_iter().next(),
            machine: self.properties.hardware_profile.vm_size,
            is_spot: self.properties.priority.eq_ignore_ascii_case("spot"),
            state,
            address,
            started: times::read(&self.properties.time_created),
            ended: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The parts of a machine that are read, in the shape of the reference of the API.
    fn vm(state: &str) -> ListedVm {
        let id = "/subscriptions/s/resourceGroups/GRADUS/providers/Microsoft.Network/networkInterfaces/n";
        let vm = json!({
            "name": "gradus-a-b", "location": "eastus", "zones": ["1"], "type": "Microsoft.Compute/virtualMachines",
            "tags": { "gradus-owner": "me" },
            "properties": {
                "vmId": "0f47b100-583c-48e3-a4c0-aefc2c9bbcc1",
                "provisioningState": state,
                "timeCreated": "2026-11-24T11:00:00.3138469+00:00",
                "hardwareProfile": { "vmSize": "Standard_NC4as_T4_v3" },
                "priority": "Spot",
                "networkProfile": { "networkInterfaces": [{ "id": id, "properties": { "primary": true } }] },
            },
        });
        serde_json::from_value(vm).unwrap()
    }

    fn addresses() -> Vec<ListedAddress> {
        let of = |interface: &str, address: &str| {
            let id = format!(
                "/subscriptions/s/resourceGroups/gradus/providers/Microsoft.Network/networkInterfaces/{interface}\
                 /ipConfigurations/i"
            );
            json!({ "name": "x", "properties": { "ipAddress": address, "ipConfiguration": { "id": id } } })
        };
        let unused = json!({ "name": "unused", "properties": { "publicIPAllocationMethod": "Static" } });
        serde_json::from_value(json!([unused, of("nn", "192.0.2.1"), of("n", "192.0.2.7")])).unwrap()
    }

    #[test]
    fn machines_are_read_with_their_addresses() {
        let machine = vm("Succeeded").machine(&addresses());
        assert_eq!((machine.region.as_str(), machine.zone.as_deref()), ("eastus", Some("1")));
        assert_eq!((machine.machine.as_str(), machine.is_spot), ("Standard_NC4as_T4_v3", true));
        assert_eq!(machine.address.as_deref(), Some("192.0.2.7"));
        assert_eq!(machine.started, times::read("2026-11-24T11:00:00Z"));
        assert_eq!(vm("Succeeded").machine(&[]).address, None);
        assert!(vm("Succeeded").is_of("me") && !vm("Succeeded").is_of("m"));
    }

    /// A machine of somebody else's that lacks what ours have must not hide ours.
    #[test]
    fn machines_with_little_are_read_too() {
        let vm: ListedVm = serde_json::from_value(json!({ "name": "n", "location": "l", "properties": {} })).unwrap();
        assert!(!vm.is_of("me"));
        assert_eq!(vm.machine(&[]).started, None);
    }

    #[test]
    fn what_has_failed_is_ending_and_never_gone() {
        let check = |state: &str, expected| assert_eq!(vm(state).machine(&[]).state, expected, "{state}");
        check("Creating", MachineState::Pending);
        check("Succeeded", MachineState::Running);
        check("Updating", MachineState::Running);
        check("Failed", MachineState::Ending);
        check("Deleting", MachineState::Ending);
    }
}
