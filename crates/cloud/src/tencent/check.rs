//! What an identity may do, and the least policy with which jobs can be run.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::wire::TcService;
use super::{GROUP, Tencent, filters};
use crate::rented::{CloudApi, CloudFailure, or_denied};

/// What a run and an audit need.
const ACTIONS: [&str; 17] = [
    "cbs:DescribeDisks",
    "cbs:TerminateDisks",
    "cvm:DeleteInstancesActionTimer",
    "cvm:DescribeImages",
    "cvm:DescribeInstances",
    "cvm:DescribeInstancesActionTimer",
    "cvm:DescribeRegions",
    "cvm:DescribeZoneInstanceConfigInfos",
    "cvm:DescribeZones",
    "cvm:ImportInstancesActionTimer",
    "cvm:RunInstances",
    "cvm:StartInstances",
    "cvm:StopInstances",
    "cvm:TerminateInstances",
    "vpc:DescribeAddresses",
    "vpc:DescribeSecurityGroups",
    "vpc:ReleaseAddresses",
];

/// What an identity of Tencent's is allowed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TencentReport {
    /// The account that pays.
    pub account: String,
    /// Who the key belongs to, as `qcs::cam::uin/ACCOUNT:uin/USER`.
    pub arn: String,
    /// Machines of the owner in all regions.
    pub machines: usize,
    /// Actions that were denied.
    pub missing: Vec<&'static str>,
    /// Actions that are needed and cannot be tried.
    pub untried: [&'static str; 7],
}

/// The least policy with which jobs can be run, as `tccli cam CreatePolicy --PolicyDocument` reads it.
pub fn policy() -> Value {
    json!({ "version": "2.0", "statement": [{ "effect": "allow", "action": ACTIONS, "resource": ["*"] }] })
}

/// Who a key belongs to.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CallerAnswer {
    pub account_id: String,
    arn: String,
}

/// What changes or deletes something has no `DryRun`.
const UNTRIED: [&str; 7] = [
    "cbs:TerminateDisks",
    "cvm:DeleteInstancesActionTimer",
    "cvm:ImportInstancesActionTimer",
    "cvm:StartInstances",
    "cvm:StopInstances",
    "cvm:TerminateInstances",
    "vpc:ReleaseAddresses",
];

/// A region that every account has, where none is known.
const REGION: &str = "ap-guangzhou";

impl Tencent {
    /// Who the key belongs to.
    pub(super) fn caller(&self) -> Result<CallerAnswer, CloudFailure> {
        self.client.ask((TcService::Sts, "GetCallerIdentity"), REGION, "{}")
    }

    /// Who the key belongs to, how many machines of an owner there are, and which actions are denied. Tencent is asked for each
    /// action but those that change or delete something, for renting with `DryRun`.
    ///
    /// # Errors
    /// [`CloudFailure`].
    pub fn check(&self, owner: &str) -> Result<TencentReport, CloudFailure> {
        let caller = self.caller()?;
        let mut missing = Vec::new();
        let regions = or_denied(self.regions(), "cvm:DescribeRegions", &mut missing)?.unwrap_or_default();
        let machines = or_denied(self.machines_in(owner, &regions), "cvm:DescribeInstances", &mut missing)?;
        let machines = machines.map_or(0, |machines| machines.len());
        for (service, action, permission, body) in tries() {
            let tried = self.client.ask::<Value>((service, action), tried_in(&regions), &body.to_string());
            or_denied(tried, permission, &mut missing)?;
        }
        Ok(TencentReport { account: caller.account_id, arn: caller.arn, machines, missing, untried: UNTRIED })
    }
}

/// The region in which actions are tried.
fn tried_in(regions: &BTreeSet<String>) -> &str {
    regions.first().map_or(REGION, String::as_str)
}

/// Requests that change nothing. An answer that is no denial counts as allowed.
fn tries() -> [(TcService, &'static str, &'static str, Value); 8] {
    let run = json!({
        "DryRun": true, "InstanceType": "GN7.2XLARGE32", "ImageId": "img-00000000", "Placement": { "Zone": "ap-guangzhou-6" },
    });
    let group = json!({ "Filters": filters(&[("security-group-name", GROUP)]) });
    let timers = json!({ "StatusList": ["UNDO"] });
    let (sold, image) = (json!({ "Filters": filters(&[("instance-type", "GN7.2XLARGE32")]) }), json!({ "Limit": 1 }));
    [
        (TcService::Vpc, "DescribeSecurityGroups", "vpc:DescribeSecurityGroups", group),
        (TcService::Cvm, "DescribeZones", "cvm:DescribeZones", json!({})),
        (TcService::Cvm, "DescribeZoneInstanceConfigInfos", "cvm:DescribeZoneInstanceConfigInfos", sold),
        (TcService::Cvm, "DescribeImages", "cvm:DescribeImages", image),
        (TcService::Cbs, "DescribeDisks", "cbs:DescribeDisks", json!({ "Limit": 1 })),
        (TcService::Vpc, "DescribeAddresses", "vpc:DescribeAddresses", json!({ "Limit": 1 })),
        (TcService::Cvm, "DescribeInstancesActionTimer", "cvm:DescribeInstancesActionTimer", timers),
        (TcService::Cvm, "RunInstances", "cvm:RunInstances", run),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_of_the_policy_is_tried_unless_it_changes_something() {
        let mut tried: Vec<&str> = tries().iter().map(|(_, _, permission, _)| *permission).collect();
        tried.extend(["cvm:DescribeRegions", "cvm:DescribeInstances"]);
        tried.extend(UNTRIED);
        tried.sort_unstable();
        assert_eq!(tried, ACTIONS);
        for (_, action, _, body) in tries() {
            assert_eq!(body["DryRun"] == true, !action.starts_with("Describe"), "{action}");
        }
    }
}
