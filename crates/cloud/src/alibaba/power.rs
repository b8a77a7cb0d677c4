//! Stopping machines in economical mode, in which only their disk is paid for, and starting them again: ECS 2014-05-26
//! (<https://www.alibabacloud.com/help/en/ecs/user-guide/economical-mode>).
//!
//! Alibaba releases a machine at the time that it was told when it was rented, also one that is stopped, and its disk with it.
//! So that time is taken back first, and told again once a run has the machine. One of a family without economical mode is stopped
//! without an error, and billed on.

use domain::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::Alibaba;
use super::order::SOONEST;
use super::wire::AcsService;
use crate::aws::now;
use crate::aws::wire::query::{Params, params};
use crate::rented::limits::ends_at;
use crate::rented::{CloudFailure, MachinePlace, MachinePower};

/// Families with local disks or persistent memory, which have no economical mode.
const ALWAYS_BILLED: [&str; 5] = ["ecs.gn5-", "ecs.i", "ecs.d", "ecs.re6p", "ecs.ebmre6p"];

/// Whether only the disk of a stopped machine is paid for.
pub fn has_economical_mode(machine: &str) -> bool {
    !ALWAYS_BILLED.iter().any(|family| machine.starts_with(family))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PowerPage {
    #[serde(default)]
    instances: PowerList,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PowerList {
    #[serde(default)]
    instance: Vec<EcsPower>,
}

/// The parts of a machine that say whether it is on.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EcsPower {
    status: String,
    #[serde(default)]
    stopped_mode: String,
}

/// What is answered to an action that says nothing.
#[derive(Deserialize)]
struct Agreed {}

/// What a status and a mode mean. Alibaba does not say since when a machine is off.
fn power_of(status: &str, stopped_mode: &str) -> MachinePower {
    match (status, stopped_mode) {
        ("Pending" | "Starting", _) => MachinePower::Starting,
        ("Stopping", _) => MachinePower::Stopping,
        ("Stopped", "StopCharging") => MachinePower::Off(None),
        // One that is stopped in another mode is paid for like one that runs.
        _ => MachinePower::On,
    }
}

impl Alibaba {
    fn tell(&self, action: &str, place: &MachinePlace, sent: &Params) -> Result<(), CloudFailure> {
        self.client.ask((AcsService::Ecs, action), &place.region, sent).map(|Agreed {}| ())
    }

    pub(super) fn stop_at(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        let kept = params([("RegionId", &place.region), ("InstanceId", &place.handle)]);
        self.tell("ModifyInstanceAutoReleaseTime", place, &kept)?;
        let sent = params([("InstanceId", &place.handle), ("StoppedMode", "StopCharging")]);
        match self.tell("StopInstance", place, &sent) {
            // One that is stopped is not stopped again.
            Err(CloudFailure::Invalid(why)) => match self.power_at(place)? {
                MachinePower::Stopping | MachinePower::Off(_) => Ok(()),
                MachinePower::Starting | MachinePower::On => {
                    let billed = "if it is off, it is billed all the same: end it in the console of Alibaba Cloud";
                    Err(CloudFailure::Invalid(format!("{why}; {billed}")))
                }
            },
            other => other,
        }
    }

    pub(super) fn start_at(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        self.tell("StartInstance", place, &params([("InstanceId", &place.handle)]))
    }

    /// Has Alibaba release a machine at a time; nothing where that is too far off.
    pub(super) fn end_at(&self, place: &MachinePlace, at: Timestamp) -> Result<(), CloudFailure> {
        let Some(at) = ends_at(at, now(), SOONEST) else { return Ok(()) };
        let sent = params([("RegionId", &place.region), ("InstanceId", &place.handle), ("AutoReleaseTime", &at)]);
        self.tell("ModifyInstanceAutoReleaseTime", place, &sent)
    }

    pub(super) fn power_at(&self, place: &MachinePlace) -> Result<MachinePower, CloudFailure> {
        let ids = json!([place.handle]).to_string();
        let sent = params([("RegionId", &place.region), ("InstanceIds", &ids)]);
        let page: PowerPage = self.client.ask((AcsService::Ecs, "DescribeInstances"), &place.region, &sent)?;
        let machine = page.instances.instance.into_iter().next();
        let machine = machine
            .ok_or_else(|| CloudFailure::NotFound(format!("`{}` has no machine `{}`", place.region, place.handle)))?;
        Ok(power_of(&machine.status, &machine.stopped_mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_that_is_not_billed_is_off() {
        let check =
            |status: &str, mode: &str, expected| assert_eq!(power_of(status, mode), expected, "{status} {mode}");
        check("Pending", "Not-applicable", MachinePower::Starting);
        check("Starting", "StopCharging", MachinePower::Starting);
        check("Running", "Not-applicable", MachinePower::On);
        check("Stopping", "StopCharging", MachinePower::Stopping);
        check("Stopped", "StopCharging", MachinePower::Off(None));
        check("Stopped", "KeepCharging", MachinePower::On);
        check("Stopped", "", MachinePower::On);
    }

    #[test]
    fn machines_with_local_disks_are_always_billed() {
        for machine in ["ecs.gn5-c4g1.xlarge", "ecs.i3g.2xlarge", "ecs.d3s.2xlarge"] {
            assert!(!has_economical_mode(machine), "{machine}");
        }
        for machine in ["ecs.gn5i-c4g1.xlarge", "ecs.gn6i-c4g1.xlarge", "ecs.gn7i-c8g1.2xlarge", "ecs.ebmgn7e.32xlarge"]
        {
            assert!(has_economical_mode(machine), "{machine}");
        }
    }
}
