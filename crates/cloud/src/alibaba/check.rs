//! What an identity may do, and the least policy with which jobs can be run.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::wire::AcsService;
use super::{Alibaba, GROUP};
use crate::aws::wire::query::{Params, params};
use crate::rented::{CloudApi, CloudFailure, or_denied};

/// What a run and an audit need.
const ACTIONS: [&str; 14] = [
    "ecs:DeleteDisk",
    "ecs:DeleteInstance",
    "ecs:DescribeDisks",
    "ecs:DescribeInstances",
    "ecs:DescribeRegions",
    "ecs:DescribeSecurityGroups",
    "ecs:DescribeSnapshots",
    "ecs:ModifyInstanceAutoReleaseTime",
    "ecs:RunInstances",
    "ecs:StartInstance",
    "ecs:StopInstance",
    "vpc:DescribeEipAddresses",
    "vpc:DescribeVSwitches",
    "vpc:ReleaseEipAddress",
];

/// What an identity of Alibaba's is allowed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AlibabaReport {
    /// The account that pays.
    pub account: String,
    /// Who the key belongs to, as `acs:ram::ACCOUNT:user/NAME`.
    pub arn: String,
    /// Machines of the owner in all regions.
    pub machines: usize,
    /// Actions that were denied.
    pub missing: Vec<&'static str>,
}

/// The least policy with which jobs can be run, as `aliyun ram CreatePolicy --PolicyDocument` reads it.
pub fn policy() -> Value {
    json!({ "Version": "1", "Statement": [{ "Effect": "Allow", "Action": ACTIONS, "Resource": "*" }] })
}

/// Who a key belongs to.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CallerIdentity {
    pub account_id: String,
    arn: String,
}

impl Alibaba {
    /// Who the key belongs to, which needs no permission.
    pub(super) fn caller(&self) -> Result<CallerIdentity, CloudFailure> {
        self.client.ask((AcsService::Sts, "GetCallerIdentity"), "", &Params::new())
    }

    /// Who the key belongs to, how many machines of an owner there are, and which actions are denied. Alibaba is asked for each
    /// action; for those that change something with `DryRun`, or about a machine that does not exist.
    ///
    /// # Errors
    /// [`CloudFailure`].
    pub fn check(&self, owner: &str) -> Result<AlibabaReport, CloudFailure> {
        let caller = self.caller()?;
        let mut missing = Vec::new();
        let regions = or_denied(self.regions(), "ecs:DescribeRegions", &mut missing)?.unwrap_or_default();
        let machines = or_denied(self.machines_in(owner, &regions), "ecs:DescribeInstances", &mut missing)?;
        let machines = machines.map_or(0, |machines| machines.len());
        let region = tried_in(&regions);
        for (service, action, permission, sent) in tries(region) {
            let tried = self.client.ask::<Value>((service, action), region, &sent);
            or_denied(tried, permission, &mut missing)?;
        }
        Ok(AlibabaReport { account: caller.account_id, arn: caller.arn, machines, missing })
    }
}

/// The region in which actions are tried.
fn tried_in(regions: &BTreeSet<String>) -> &str {
    regions.first().map_or("cn-hangzhou", String::as_str)
}

/// Requests that change nothing. An answer that is no denial counts as allowed.
fn tries(region: &str) -> [(AcsService, &'static str, &'static str, Params); 12] {
    let group = params([("RegionId", region), ("SecurityGroupName", GROUP)]);
    let of_region = params([("RegionId", region)]);
    let run = params([
        ("RegionId", region),
        ("DryRun", "true"),
        ("InstanceType", "ecs.gn6i-c4g1.xlarge"),
        ("ImageFamily", "acs:ubuntu_22_04_x64"),
        ("SecurityGroupId", "sg-gradus"),
        ("VSwitchId", "vsw-gradus"),
    ]);
    let one = params([("InstanceId", "i-gradus"), ("DryRun", "true")]);
    // It knows no `DryRun`.
    let release = params([("RegionId", region), ("InstanceId", "i-gradus")]);
    let disk = params([("DiskId", "d-gradus")]);
    let address = params([("RegionId", region), ("AllocationId", "eip-gradus")]);
    [
        (AcsService::Ecs, "DescribeSecurityGroups", "ecs:DescribeSecurityGroups", group),
        (AcsService::Vpc, "DescribeVSwitches", "vpc:DescribeVSwitches", of_region.clone()),
        (AcsService::Ecs, "DescribeDisks", "ecs:DescribeDisks", of_region.clone()),
        (AcsService::Ecs, "DescribeSnapshots", "ecs:DescribeSnapshots", of_region.clone()),
        (AcsService::Vpc, "DescribeEipAddresses", "vpc:DescribeEipAddresses", of_region),
        (AcsService::Ecs, "RunInstances", "ecs:RunInstances", run),
        (AcsService::Ecs, "DeleteInstance", "ecs:DeleteInstance", one.clone()),
        (AcsService::Ecs, "StopInstance", "ecs:StopInstance", one.clone()),
        (AcsService::Ecs, "StartInstance", "ecs:StartInstance", one),
        (AcsService::Ecs, "ModifyInstanceAutoReleaseTime", "ecs:ModifyInstanceAutoReleaseTime", release),
        (AcsService::Ecs, "DeleteDisk", "ecs:DeleteDisk", disk),
        (AcsService::Vpc, "ReleaseEipAddress", "vpc:ReleaseEipAddress", address),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_of_the_policy_is_tried() {
        let mut tried: Vec<&str> = tries("r").iter().map(|(_, _, permission, _)| *permission).collect();
        tried.extend(["ecs:DescribeRegions", "ecs:DescribeInstances"]);
        tried.sort_unstable();
        assert_eq!(tried, ACTIONS);
        for (_, action, _, sent) in tries("r") {
            let is_tried_only = sent.contains(&("DryRun".to_owned(), "true".to_owned()));
            // There is nothing of that name.
            let is_of_nothing =
                sent.iter().any(|(_, value)| ["i-gradus", "d-gradus", "eip-gradus"].contains(&&**value));
            assert_eq!(is_tried_only || is_of_nothing, !action.starts_with("Describe"), "{action}");
        }
    }
}
