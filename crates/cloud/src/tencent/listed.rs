//! What Tencent Cloud lists: machines, regions, zones, images and security groups.

use domain::rental::MachineState;
use serde::Deserialize;

use crate::aws::wire::times;
use crate::rented::CloudMachine;

/// A part of the list of machines.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InstancesAnswer {
    pub total_count: usize,
    #[serde(default)]
    pub instance_set: Vec<CvmInstance>,
}

/// A machine. Whatever is missing of one must not hide another one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct CvmInstance {
    placement: CvmPlacement,
    instance_id: String,
    instance_type: String,
    instance_name: Option<String>,
    instance_charge_type: String,
    instance_state: String,
    created_time: Option<String>,
    public_ip_addresses: Option<Vec<String>>,
    private_ip_addresses: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct CvmPlacement {
    zone: String,
}

impl CvmInstance {
    /// The machine, in the region that was asked for it.
    pub fn machine(self, region: &str) -> CloudMachine {
        let state = match self.instance_state.as_str() {
            "PENDING" | "STARTING" => MachineState::Pending,
            // One that is stopped is billed on, one that was not made may be; they are ended like any other.
            "STOPPING" | "STOPPED" | "LAUNCH_FAILED" | "SHUTDOWN" | "TERMINATING" => MachineState::Ending,
            _ => MachineState::Running,
        };
        let mut known = self.public_ip_addresses.into_iter().chain(self.private_ip_addresses).flatten();
        let address = known.find(|address| address.parse::<std::net::IpAddr>().is_ok());
        CloudMachine {
            address,
            handle: self.instance_id,
            name: self.instance_name.unwrap_or_default(),
            region: region.to_owned(),
            zone: Some(self.placement.zone).filter(|zone| !zone.is_empty()),
            machine: self.instance_type,
            is_spot: self.instance_charge_type == "SPOTPAID",
            state,
            started: self.created_time.as_deref().and_then(times::read),
            ended: None,
        }
    }
}

/// The regions of an account.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RegionSet {
    pub region_set: Vec<CvmRegion>,
}

/// One of them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CvmRegion {
    pub region: String,
}

/// The zones of a region.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ZoneSet {
    pub zone_set: Vec<CvmZone>,
}

/// A zone, and whether it is open.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CvmZone {
    pub zone: String,
    #[serde(default)]
    pub zone_state: String,
}

/// Where a type of machines is sold.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SoldSet {
    pub instance_type_quota_set: Vec<CvmSold>,
}

/// A zone, and whether the type is sold there now.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CvmSold {
    pub zone: String,
    #[serde(default)]
    pub status: String,
}

/// Images.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ImageSet {
    pub image_set: Vec<CvmImage>,
}

/// An image.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CvmImage {
    image_id: String,
    #[serde(default)]
    os_name: Option<String>,
    #[serde(default)]
    architecture: Option<String>,
    #[serde(default)]
    image_state: Option<String>,
    #[serde(default)]
    created_time: Option<String>,
}

impl ImageSet {
    /// The newest image of Ubuntu 22.04.
    pub fn newest(self) -> Option<String> {
        let is_meant = |image: &CvmImage| {
            let is_ubuntu = image.os_name.as_deref().is_some_and(|name| name.starts_with("Ubuntu Server 22.04"));
            let runs_ours = image.architecture.as_deref().is_none_or(|name| name == "x86_64");
            is_ubuntu && runs_ours && image.image_state.as_deref().is_none_or(|state| state == "NORMAL")
        };
        let meant = self.image_set.into_iter().filter(is_meant);
        let newest =
            meant.max_by(|one, other| (&one.created_time, &one.image_id).cmp(&(&other.created_time, &other.image_id)));
        newest.map(|image| image.image_id)
    }
}

/// Security groups.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GroupSet {
    pub security_group_set: Vec<CvmGroup>,
}

/// One of them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CvmGroup {
    pub security_group_id: String,
    #[serde(default)]
    pub security_group_name: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The parts of a machine that are read, in the shape of the reference of the API.
    fn instance(state: &str) -> CvmInstance {
        let instance = json!({
            "Placement": { "Zone": "ap-guangzhou-6", "HostId": null, "ProjectId": 0 }, "InstanceId": "ins-r9hr2upy",
            "InstanceType": "GN7.2XLARGE32", "CPU": 8, "Memory": 32, "RestrictState": "NORMAL",
            "InstanceName": "gradus-a-b", "InstanceChargeType": "SPOTPAID", "InstanceState": state,
            "PrivateIpAddresses": ["172.16.0.8"], "PublicIpAddresses": null, "CreatedTime": "2026-11-27T05:04:03Z",
            "ExpiredTime": null, "Tags": [{ "Key": "gradus-owner", "Value": "me" }],
        });
        serde_json::from_value(instance).unwrap()
    }

    #[test]
    fn machines_are_read() {
        let machine = instance("RUNNING").machine("ap-guangzhou");
        assert_eq!((machine.handle.as_str(), machine.name.as_str()), ("ins-r9hr2upy", "gradus-a-b"));
        assert_eq!((machine.region.as_str(), machine.zone.as_deref()), ("ap-guangzhou", Some("ap-guangzhou-6")));
        assert_eq!((machine.machine.as_str(), machine.is_spot), ("GN7.2XLARGE32", true));
        assert_eq!(machine.address.as_deref(), Some("172.16.0.8"), "its private one, for want of a public one");
        assert_eq!(machine.started, times::read("2026-11-27T05:04:03Z"));
        let little: CvmInstance = serde_json::from_value(json!({ "InstanceId": "ins-1" })).unwrap();
        assert_eq!(little.machine("r").started, None);
    }

    #[test]
    fn what_is_stopped_or_was_not_made_is_ending_and_never_gone() {
        let check = |state: &str, expected| assert_eq!(instance(state).machine("r").state, expected, "{state}");
        check("PENDING", MachineState::Pending);
        check("RUNNING", MachineState::Running);
        for state in ["STOPPED", "LAUNCH_FAILED", "SHUTDOWN", "TERMINATING"] {
            check(state, MachineState::Ending);
        }
    }

    #[test]
    fn the_newest_image_of_ubuntu_is_booted() {
        let image = |id: &str, os: &str, architecture: &str, made: Option<&str>| json!({ "ImageId": id, "OsName": os, "Architecture": architecture, "ImageState": "NORMAL", "CreatedTime": made });
        let ubuntu = "Ubuntu Server 22.04 LTS 64bit";
        let images = json!({ "TotalCount": 4, "ImageSet": [
            image("img-old", ubuntu, "x86_64", None),
            image("img-new", ubuntu, "x86_64", Some("2025-03-01T00:00:00Z")),
            image("img-arm", ubuntu, "arm", Some("2026-03-01T00:00:00Z")),
            image("img-24", "Ubuntu Server 24.04 LTS 64bit", "x86_64", Some("2026-03-01T00:00:00Z")),
        ] });
        let images: ImageSet = serde_json::from_value(images).unwrap();
        assert_eq!(images.newest().as_deref(), Some("img-new"));
        assert_eq!(ImageSet { image_set: Vec::new() }.newest(), None);
    }
}
