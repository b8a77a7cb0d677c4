//! What Alibaba Cloud lists: machines, regions, and the network that a machine is put into.

use domain::Timestamp;
use domain::rental::MachineState;
use serde::Deserialize;

use crate::aws::wire::times;
use crate::rented::CloudMachine;

/// A part of the list of machines.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InstancesPage {
    #[serde(default)]
    pub instances: EcsInstances,
    #[serde(default)]
    pub next_token: Option<String>,
}

/// Its machines.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EcsInstances {
    #[serde(default)]
    pub instance: Vec<EcsInstance>,
}

/// A machine. Whatever is missing of one must not hide another one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct EcsInstance {
    instance_id: String,
    instance_name: String,
    zone_id: String,
    instance_type: String,
    status: String,
    creation_time: String,
    spot_strategy: String,
    public_ip_address: EcsAddresses,
    eip_address: EcsAddress,
    vpc_attributes: EcsNetwork,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EcsAddresses {
    ip_address: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EcsAddress {
    ip_address: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct EcsNetwork {
    private_ip_address: EcsAddresses,
}

impl EcsInstance {
    fn address(&self) -> Option<String> {
        let private = &self.vpc_attributes.private_ip_address.ip_address;
        let mut known = self.public_ip_address.ip_address.iter().chain([&self.eip_address.ip_address]).chain(private);
        known.find(|address| address.parse::<std::net::IpAddr>().is_ok()).cloned()
    }

    /// The machine, in the region that was asked for it.
    pub fn machine(self, region: &str) -> CloudMachine {
        let state = match self.status.as_str() {
            "Pending" | "Starting" => MachineState::Pending,
            // One that is stopped is billed on; it is ended like any other.
            "Stopping" | "Stopped" => MachineState::Ending,
            _ => MachineState::Running,
        };
        CloudMachine {
            address: self.address(),
            handle: self.instance_id,
            name: self.instance_name,
            region: region.to_owned(),
            zone: Some(self.zone_id).filter(|zone| !zone.is_empty()),
            machine: self.instance_type,
            is_spot: self.spot_strategy.starts_with("Spot"),
            state,
            started: minute(&self.creation_time),
            ended: None,
        }
    }
}

/// Reads `2026-11-27T05:00Z`: Alibaba leaves seconds out.
pub(super) fn minute(text: &str) -> Option<Timestamp> {
    match text.strip_suffix('Z').filter(|bare| bare.len() == 16) {
        Some(bare) => times::read(&format!("{bare}:00Z")),
        None => times::read(text),
    }
}

/// The regions of an account.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RegionsAnswer {
    pub regions: EcsRegions,
}

/// Its regions.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EcsRegions {
    #[serde(default)]
    pub region: Vec<EcsRegion>,
}

/// One of them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EcsRegion {
    pub region_id: String,
}

/// Security groups.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GroupsAnswer {
    pub security_groups: EcsGroups,
}

/// Its groups.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EcsGroups {
    #[serde(default)]
    pub security_group: Vec<EcsGroup>,
}

/// A security group, and the network that it is in.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EcsGroup {
    pub security_group_id: String,
    #[serde(default)]
    pub vpc_id: String,
}

/// The subnets of a network.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SwitchesAnswer {
    pub v_switches: VpcSwitches,
}

/// Its vSwitches.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct VpcSwitches {
    #[serde(default)]
    pub v_switch: Vec<VpcSwitch>,
}

/// A vSwitch, the zone that it is in, and the addresses that it has left.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct VpcSwitch {
    pub zone_id: String,
    pub v_switch_id: String,
    #[serde(default)]
    pub available_ip_address_count: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The parts of a machine that are read, in the shape of the reference of the API.
    fn instance(status: &str) -> EcsInstance {
        let instance = json!({
            "InstanceId": "i-bp1", "InstanceName": "gradus-a-b", "RegionId": "cn-hangzhou", "ZoneId": "cn-hangzhou-g",
            "InstanceType": "ecs.gn6i-c4g1.xlarge", "Status": status, "CreationTime": "2026-11-27T05:04Z",
            "SpotStrategy": "SpotWithPriceLimit", "SpotPriceLimit": 0.98, "GPUAmount": 1, "Recyclable": false,
            "PublicIpAddress": { "IpAddress": ["192.0.2.7"] }, "EipAddress": { "IpAddress": "", "Bandwidth": 0 },
            "VpcAttributes": { "VpcId": "vpc-1", "PrivateIpAddress": { "IpAddress": ["172.17.0.2"] } },
            "Tags": { "Tag": [{ "TagKey": "gradus-owner", "TagValue": "me" }] },
        });
        serde_json::from_value(instance).unwrap()
    }

    #[test]
    fn machines_are_read() {
        let machine = instance("Running").machine("cn-hangzhou");
        assert_eq!((machine.handle.as_str(), machine.name.as_str()), ("i-bp1", "gradus-a-b"));
        assert_eq!((machine.region.as_str(), machine.zone.as_deref()), ("cn-hangzhou", Some("cn-hangzhou-g")));
        assert_eq!((machine.machine.as_str(), machine.is_spot), ("ecs.gn6i-c4g1.xlarge", true));
        assert_eq!(machine.address.as_deref(), Some("192.0.2.7"));
        assert_eq!(machine.started, times::read("2026-11-27T05:04:00Z"));
        let none: EcsInstance = serde_json::from_value(json!({ "SpotStrategy": "NoSpot" })).unwrap();
        let machine = none.machine("r");
        assert_eq!((machine.is_spot, machine.address, machine.started, machine.zone), (false, None, None, None));
    }

    #[test]
    fn what_is_stopped_is_ending_and_never_gone() {
        let check = |status: &str, expected| assert_eq!(instance(status).machine("r").state, expected, "{status}");
        check("Pending", MachineState::Pending);
        check("Starting", MachineState::Pending);
        check("Running", MachineState::Running);
        check("Stopping", MachineState::Ending);
        check("Stopped", MachineState::Ending);
    }

    #[test]
    fn networks_are_read() {
        let answer = json!({ "TotalCount": 1, "VSwitches": { "VSwitch": [
            { "VSwitchId": "vsw-1", "ZoneId": "cn-hangzhou-g", "VpcId": "vpc-1", "AvailableIpAddressCount": 251 }
        ] } });
        let answer: SwitchesAnswer = serde_json::from_value(answer).unwrap();
        assert_eq!(answer.v_switches.v_switch[0].v_switch_id, "vsw-1");
        let answer =
            json!({ "SecurityGroups": { "SecurityGroup": [{ "SecurityGroupId": "sg-1", "VpcId": "vpc-1" }] } });
        let answer: GroupsAnswer = serde_json::from_value(answer).unwrap();
        assert_eq!(answer.security_groups.security_group[0].vpc_id, "vpc-1");
        let answer: RegionsAnswer =
            serde_json::from_value(json!({ "Regions": { "Region": [{ "RegionId": "r", "LocalName": "x" }] } }))
                .unwrap();
        assert_eq!(answer.regions.region[0].region_id, "r");
    }
}
