//! What the instance view of a machine says of its power.

use serde::Deserialize;

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
            Some("deallocated") => Ok(MachinePower::Off(None)),
            Some("running" | "stopping" | "stopped") => Ok(MachinePower::On),
            other => Err(CloudFailure::Doubt(format!("Azure does not say whether it is on: {other:?}"))),
        }
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
}
