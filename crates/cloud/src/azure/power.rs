//! What the instance view of a machine says of its power.

use domain::Timestamp;
use serde::Deserialize;

use crate::aws::wire::times;
use crate::rented::{CloudFailure, MachinePower};

/// The statuses of a machine, of which one is its power.
#[derive(Debug, Deserialize)]
pub(super) struct InstanceView {
    #[serde(default)]
    statuses: Vec<ViewStatus>,
}

#[derive(Debug, Deserialize)]
struct ViewStatus {
    #[serde(default)]
    code: String,
    /// Azure writes it to the status of the last operation alone.
    #[serde(default)]
    time: String,
}

impl InstanceView {
    /// Whether the machine is on. One that is stopped and not deallocated is paid for like one that runs.
    ///
    /// # Errors
    /// [`CloudFailure::Doubt`] where Azure does not say.
    pub fn power(&self) -> Result<MachinePower, CloudFailure> {
        let word = self.statuses.iter().find_map(|status| status.code.strip_prefix("PowerState/"));
        match word {
            Some("starting") => Ok(MachinePower::Starting),
            Some("deallocating") => Ok(MachinePower::Stopping),
            Some("deallocated") => Ok(MachinePower::Off(self.ended())),
            Some("running" | "stopping" | "stopped") => Ok(MachinePower::On),
            other => Err(CloudFailure::Doubt(format!("Azure does not say whether it is on: {other:?}"))),
        }
    }

    /// When the last operation on a machine has succeeded, which of one that is deallocated is that, or a later one such as new
    /// tags: it was off by then. One that has failed, such as a start, says nothing of when it went off.
    fn ended(&self) -> Option<Timestamp> {
        let last = self.statuses.iter().find(|status| status.code == "ProvisioningState/succeeded")?;
        times::read(&last.time)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_deallocated_machine_is_off() {
        let power = |code: &str| {
            let view = json!({ "statuses": [{ "code": "ProvisioningState/succeeded" }, { "code": code }] });
            serde_json::from_value::<InstanceView>(view).unwrap().power()
        };
        let check = |word: &str, expected| assert_eq!(power(&format!("PowerState/{word}")), Ok(expected), "{word}");
        check("starting", MachinePower::Starting);
        check("running", MachinePower::On);
        check("stopping", MachinePower::On);
        // Its system is off, and it is paid for.
        check("stopped", MachinePower::On);
        check("deallocating", MachinePower::Stopping);
        check("deallocated", MachinePower::Off(None));
        assert!(matches!(power("PowerState/unknown"), Err(CloudFailure::Doubt(_))));
        assert!(matches!(power("OSState/x"), Err(CloudFailure::Doubt(_))));
    }

    #[test]
    fn a_machine_is_off_since_its_deallocation_has_succeeded() {
        let check = |provisioning: &str, time: &str, expected: Option<&str>| {
            let last = json!({ "code": format!("ProvisioningState/{provisioning}"), "level": "Info", "time": time });
            let view = json!({ "statuses": [last, { "code": "PowerState/deallocated", "level": "Info" }] });
            let found = serde_json::from_value::<InstanceView>(view).unwrap().power();
            let expected = expected.map(|text| times::read(text).unwrap());
            assert_eq!(found, Ok(MachinePower::Off(expected)), "{provisioning} {time}");
        };
        let time = "2026-11-24T11:00:00.3138469+00:00";
        check("succeeded", time, Some("2026-11-24T11:00:00Z"));
        check("succeeded", "soon", None);
        check("updating", time, None);
        check("failed/AllocationFailed", time, None);
    }
}
