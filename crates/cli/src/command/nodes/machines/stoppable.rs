//! Whether a machine may be stopped: by the loop that runs, and with the permissions at its cloud.

use cloud::aws::wire::failure::AwsFailure;
use cloud::aws::wire::query;
use cloud::rented::CloudFailure;
use cloud::rented::kept::KeptMachine;
use server::Home;

use super::disk::world;
use crate::error::Error;
use crate::local::disks;
use crate::local::rented::{self, RentedCloud};
use crate::settings::GlobalSettings;

/// Asks whether a machine may be stopped: without permission it would run on, and cost money, until it may; a loop of an earlier
/// version would delete it.
///
/// # Errors
/// [`Error::Code`] where it may not, or where that is not known.
pub fn require_stoppable(machine: &KeptMachine, settings: &GlobalSettings, home: &Home) -> Result<(), Error> {
    let (cloud, handle) = (machine.offer.provider.as_str(), machine.handle.as_str());
    disks::require_stops(home, cloud)?;
    let missing = match RentedCloud::open(cloud, settings, home)? {
        RentedCloud::Aws { client, .. } => {
            return match client.tell(&machine.region, &query::dry(query::stop(handle))) {
                Ok(()) | Err(AwsFailure::DryRun) => Ok(()),
                Err(failure) => Err(rented::refused(&format!("stop `{handle}`"), &failure)),
            };
        }
        RentedCloud::Gcp(api) => api.check(home.owner()).map(|report| report.missing),
        RentedCloud::Azure(api) => api.check(home.owner()).map(|report| report.missing),
        RentedCloud::Alibaba(api) => api.check(home.owner()).map(|report| report.missing),
        RentedCloud::Tencent(api) => api.check(home.owner()).map(|report| report.missing),
        RentedCloud::Lambda(_) => return Ok(()),
    };
    permitted((cloud, handle), missing)
}

/// The permissions with which a machine is stopped, looked at while it is, and started again, as far as a cloud can be asked for
/// them. Without those to look, nothing of the cloud could be proved gone.
fn needed(cloud: &str) -> &'static [&'static str] {
    match cloud {
        cloud::gcp::NAME => &[
            "compute.instances.stop",
            "compute.instances.get",
            "compute.instances.start",
            "compute.zoneOperations.get",
        ],
        cloud::azure::NAME => &[
            "Microsoft.Compute/virtualMachines/deallocate/action",
            "Microsoft.Compute/virtualMachines/instanceView/read",
            "Microsoft.Compute/virtualMachines/start/action",
        ],
        cloud::alibaba::NAME => {
            &["ecs:StopInstance", "ecs:ModifyInstanceAutoReleaseTime", "ecs:DescribeInstances", "ecs:StartInstance"]
        }
        // Whether it may stop and start machines cannot be tried.
        cloud::tencent::NAME => &["cvm:DescribeInstancesActionTimer", "cvm:DescribeInstances"],
        _ => &[],
    }
}

/// Refuses to stop a machine without one of the permissions that it needs, if that is known to be missing.
fn permitted((cloud, handle): (&str, &str), missing: Result<Vec<&'static str>, CloudFailure>) -> Result<(), Error> {
    let missing = missing.map_err(|failure| world(format!("cannot stop `{handle}`: {failure}"), "run it again"))?;
    if let Some(needed) = needed(cloud).iter().find(|needed| missing.contains(needed)) {
        let hint = format!("`gradus cloud policy {cloud}` prints the role or policy that is needed");
        return Err(world(format!("cannot stop `{handle}`: the permission `{needed}` is missing"), &hint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_in_the_policy_that_is_printed() {
        let check = |cloud: &str, policy: serde_json::Value| {
            let policy = policy.to_string();
            for permission in needed(cloud) {
                assert!(policy.contains(&format!("\"{permission}\"")), "{cloud}: {permission}");
            }
        };
        check(cloud::gcp::NAME, cloud::gcp::role());
        check(cloud::azure::NAME, cloud::azure::role());
        check(cloud::alibaba::NAME, cloud::alibaba::policy());
        check(cloud::tencent::NAME, cloud::tencent::policy());
    }

    /// One that can be stopped, and not looked at afterwards, would leave the whole cloud without a complete view.
    #[test]
    fn a_machine_that_could_not_be_looked_at_or_started_is_not_stopped() {
        let check = |cloud: &str, missing: &'static str, expected: bool| {
            let found = permitted((cloud, "box"), Ok(vec![missing]));
            assert_eq!(found.is_ok(), expected, "{missing}");
            if let Err(error) = found {
                assert!(error.to_string().contains(missing), "{error}");
            }
        };
        check("azure", "Microsoft.Compute/virtualMachines/deallocate/action", false);
        check("azure", "Microsoft.Compute/virtualMachines/instanceView/read", false);
        check("azure", "Microsoft.Compute/virtualMachines/start/action", false);
        check("azure", "Microsoft.Compute/virtualMachines/write", true);
        check("gcp", "compute.instances.get", false);
        check("gcp", "compute.instances.create", true);
        check("alibaba", "ecs:StartInstance", false);
        check("tencent", "cvm:DescribeInstances", false);
        assert!(permitted(("gcp", "box"), Err(CloudFailure::Doubt("no answer".to_owned()))).is_err());
    }
}
