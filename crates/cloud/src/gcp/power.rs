//! Stopping and starting instances, and what the state of one says.

use serde::Deserialize;

use super::Gcp;
use super::wire;
use crate::aws::wire::query::word;
use crate::rented::{CloudFailure, MachinePlace, MachinePower};

/// The parts of an instance that say whether it is on.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InstancePower {
    status: String,
    #[serde(default)]
    last_stop_timestamp: String,
}

/// What a state of the lifecycle of instances means. One that is suspended keeps its memory, which is paid for.
fn power_of(status: &str, stopped: &str) -> MachinePower {
    match status {
        "PROVISIONING" | "STAGING" => MachinePower::Starting,
        "STOPPING" | "PENDING_STOP" | "DEPROVISIONING" => MachinePower::Stopping,
        "TERMINATED" => MachinePower::Off(wire::time(stopped)),
        _ => MachinePower::On,
    }
}

impl Gcp {
    /// Does something with an instance in its zone, which may not be known: then it is looked for in all zones of its region.
    fn in_its_zone<T>(
        &self,
        place: &MachinePlace,
        ask: impl Fn(&str) -> Result<T, CloudFailure>,
    ) -> Result<T, CloudFailure> {
        let zones = match &place.zone {
            Some(zone) => vec![zone.clone()],
            None => self.zones(&place.region)?,
        };
        for zone in zones {
            match ask(&zone) {
                Err(CloudFailure::NotFound(_)) => {}
                other => return other,
            }
        }
        Err(CloudFailure::NotFound(format!("`{}` has no instance `{}`", place.region, place.handle)))
    }

    fn instance_path(&self, zone: &str, place: &MachinePlace, rest: &str) -> String {
        self.path(&format!("zones/{zone}/instances/{}{rest}", word(&place.handle)))
    }

    /// Google stops an instance with Local SSDs only where it is told what becomes of their contents; what is on its disk stays.
    pub(super) fn stop_at(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        self.in_its_zone(place, |zone| {
            let path = self.instance_path(zone, place, "/stop?discardLocalSsd=true");
            self.client.post(&path, Vec::new()).map(drop)
        })
    }

    pub(super) fn start_at(&self, place: &MachinePlace, token: &str) -> Result<(), CloudFailure> {
        let id = wire::request_id(&format!("start {token}"));
        self.in_its_zone(place, |zone| {
            let path = self.instance_path(zone, place, &format!("/start?requestId={id}"));
            let operation = self.client.post(&path, Vec::new())?;
            self.client.outcome(operation, |operation| self.path(&format!("zones/{zone}/operations/{operation}/wait")))
        })
    }

    pub(super) fn power_at(&self, place: &MachinePlace) -> Result<MachinePower, CloudFailure> {
        let instance: InstancePower =
            self.in_its_zone(place, |zone| self.client.get(&self.instance_path(zone, place, "")))?;
        Ok(power_of(&instance.status, &instance.last_stop_timestamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminated_instance_is_off() {
        let at = "2026-11-24T03:00:00.000-08:00";
        let check = |status: &str, expected| assert_eq!(power_of(status, at), expected, "{status}");
        check("PROVISIONING", MachinePower::Starting);
        check("STAGING", MachinePower::Starting);
        check("RUNNING", MachinePower::On);
        check("REPAIRING", MachinePower::On);
        check("SUSPENDING", MachinePower::On);
        check("SUSPENDED", MachinePower::On);
        check("STOPPING", MachinePower::Stopping);
        check("TERMINATED", MachinePower::Off(wire::time(at)));
        assert_eq!(power_of("TERMINATED", ""), MachinePower::Off(None));
    }
}
