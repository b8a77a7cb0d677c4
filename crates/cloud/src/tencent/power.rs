//! Stopping machines so that only their disk is paid for, and starting them again: CVM 2017-03-12
//! (<https://www.tencentcloud.com/document/product/213/19922>).
//!
//! Tencent ends a machine at the time that it was told when it was rented, also one that is stopped, and its disk with it. So that
//! timer is deleted first, and set again once a run has the machine. One of a type that is billed while it is off is stopped
//! without an error, and billed on.

use domain::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::Tencent;
use super::order::SOONEST;
use super::wire::TcService;
use crate::aws::now;
use crate::rented::limits::ends_at;
use crate::rented::{CloudFailure, MachinePlace, MachinePower};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PowerSet {
    #[serde(default)]
    instance_set: Vec<CvmPower>,
}

/// The parts of a machine that say whether it is on.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CvmPower {
    instance_state: String,
    #[serde(default)]
    stop_charging_mode: Option<String>,
}

/// What a machine is told for a time to come.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TimerSet {
    #[serde(default)]
    action_timers: Option<Vec<CvmTimer>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CvmTimer {
    action_timer_id: String,
}

/// What is answered to an action that says nothing.
#[derive(Deserialize)]
struct Agreed {}

/// What a state and a mode mean. Tencent does not say since when a machine is off.
fn power_of(state: &str, mode: &str) -> MachinePower {
    match (state, mode) {
        ("PENDING" | "STARTING", _) => MachinePower::Starting,
        ("STOPPING" | "SHUTDOWN" | "TERMINATING", _) => MachinePower::Stopping,
        ("STOPPED", "STOP_CHARGING") => MachinePower::Off(None),
        // One that is stopped in another mode is paid for like one that runs.
        _ => MachinePower::On,
    }
}

impl Tencent {
    fn tell(&self, action: &str, place: &MachinePlace, body: &serde_json::Value) -> Result<(), CloudFailure> {
        self.client.ask((TcService::Cvm, action), &place.region, &body.to_string()).map(|Agreed {}| ())
    }

    pub(super) fn stop_at(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        let asked = json!({ "InstanceIds": [place.handle], "StatusList": ["UNDO"] }).to_string();
        let timers: TimerSet =
            self.client.ask((TcService::Cvm, "DescribeInstancesActionTimer"), &place.region, &asked)?;
        let timers: Vec<String> =
            timers.action_timers.into_iter().flatten().map(|timer| timer.action_timer_id).collect();
        if !timers.is_empty() {
            self.tell("DeleteInstancesActionTimer", place, &json!({ "ActionTimerIds": timers }))?;
        }
        let sent = json!({ "InstanceIds": [place.handle], "StopType": "SOFT_FIRST", "StoppedMode": "STOP_CHARGING" });
        match self.tell("StopInstances", place, &sent) {
            // One that is stopped is not stopped again.
            Err(CloudFailure::Invalid(why)) => match self.power_at(place)? {
                MachinePower::Stopping | MachinePower::Off(_) => Ok(()),
                MachinePower::Starting | MachinePower::On => {
                    let billed = "if it is off, it is billed all the same: end it in the console of Tencent Cloud";
                    Err(CloudFailure::Invalid(format!("{why}; {billed}")))
                }
            },
            other => other,
        }
    }

    pub(super) fn start_at(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        self.tell("StartInstances", place, &json!({ "InstanceIds": [place.handle] }))
    }

    /// Has Tencent end a machine at a time; nothing where that is too far off.
    pub(super) fn end_at(&self, place: &MachinePlace, at: Timestamp) -> Result<(), CloudFailure> {
        let Some(at) = ends_at(at, now(), SOONEST) else { return Ok(()) };
        let timer = json!({ "TimerAction": "TerminateInstances", "ActionTime": at });
        let sent = json!({ "InstanceIds": [place.handle], "ActionTimer": timer });
        self.tell("ImportInstancesActionTimer", place, &sent)
    }

    pub(super) fn power_at(&self, place: &MachinePlace) -> Result<MachinePower, CloudFailure> {
        let body = json!({ "InstanceIds": [place.handle] }).to_string();
        let set: PowerSet = self.client.ask((TcService::Cvm, "DescribeInstances"), &place.region, &body)?;
        let machine = set.instance_set.into_iter().next();
        let machine = machine
            .ok_or_else(|| CloudFailure::NotFound(format!("`{}` has no machine `{}`", place.region, place.handle)))?;
        Ok(power_of(&machine.instance_state, machine.stop_charging_mode.as_deref().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_that_is_not_billed_is_off() {
        let check = |state: &str, mode: &str, expected| assert_eq!(power_of(state, mode), expected, "{state} {mode}");
        check("PENDING", "NOT_APPLICABLE", MachinePower::Starting);
        check("STARTING", "STOP_CHARGING", MachinePower::Starting);
        check("RUNNING", "NOT_APPLICABLE", MachinePower::On);
        check("REBOOTING", "NOT_APPLICABLE", MachinePower::On);
        check("STOPPING", "NOT_APPLICABLE", MachinePower::Stopping);
        check("TERMINATING", "NOT_APPLICABLE", MachinePower::Stopping);
        check("STOPPED", "STOP_CHARGING", MachinePower::Off(None));
        check("STOPPED", "KEEP_CHARGING", MachinePower::On);
        check("STOPPED", "", MachinePower::On);
    }
}
