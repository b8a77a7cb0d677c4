//! Checks the permissions of the credentials with dry runs, and generates the minimal policy.

use serde_json::{Value, json};

use super::client::Client;
use super::order;
use super::wire::answers::{IngressRule, Peer};
use super::wire::failure::AwsFailure;
use super::wire::query::{self, OWNER_TAG, Query, params};
use super::wire::resources;
use crate::rented::MachineChoice;
use crate::rented::audit::resource::ResourceKind;

/// The permissions of an account.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CheckReport {
    /// Who we are.
    pub arn: String,
    pub account: String,
    /// Where the credentials come from.
    pub origin: String,
    pub permissions: Vec<Permission>,
}

/// Whether one action is allowed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Permission {
    /// Such as `ec2:RunInstances`.
    pub action: String,
    /// `None` if AWS did not say.
    pub is_allowed: Option<bool>,
    /// AWS's message, unless the action is allowed.
    pub said: Option<String>,
}

impl CheckReport {
    /// The statements that a policy lacks, as JSON.
    pub fn missing(&self) -> Vec<Value> {
        let missing: Vec<&str> = self
            .permissions
            .iter()
            .filter(|permission| permission.is_allowed == Some(false))
            .map(|permission| permission.action.as_str())
            .collect();
        let lacks = |statement: &Value| {
            let actions = statement["Action"].as_array().into_iter().flatten().filter_map(Value::as_str);
            actions.into_iter().any(|action| missing.contains(&action))
        };
        statements().into_iter().filter(lacks).collect()
    }
}

/// Queries the caller's identity and, action by action, whether it is allowed.
///
/// # Errors
/// [`AwsFailure`] if AWS rejects the credentials or cannot be reached.
pub fn check(client: &Client, region: &str) -> Result<CheckReport, AwsFailure> {
    let origin = client.key(region)?.origin;
    let caller = client.caller(region)?;
    let queries = probes();
    let mut permissions: Vec<Permission> = std::thread::scope(|scope| {
        let ask = |query| scope.spawn(move || permission(query, client.tell(region, query)));
        let threads: Vec<_> = queries.iter().map(ask).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let machine = MachineChoice { region: region.into(), zone: None, machine: "c7i.large".into(), is_spot: false };
    let image = order::image(&machine);
    let asked = Query { service: "ssm", action: "GetParameter", params: Vec::new() };
    permissions.push(permission(&asked, client.parameter(region, image).map(drop)));
    Ok(CheckReport { arn: caller.arn, account: caller.account, origin, permissions })
}

/// Actions that may be allowed only for resources with our tag.
const OF_OUR_OWN: [&str; 8] = [
    "TerminateInstances",
    "StopInstances",
    "StartInstances",
    "AuthorizeSecurityGroupIngress",
    "RevokeSecurityGroupIngress",
    "DeleteVolume",
    "ReleaseAddress",
    "DeleteNetworkInterface",
];

/// The action that comes with another one, and is allowed only with it.
const TAGGING: &str = "ec2:CreateTags";

/// Interprets the answer to a dry run. EC2 checks permissions first, so an error about a machine that does not exist
/// shows that ending it is allowed.
fn permission(query: &Query, answer: Result<(), AwsFailure>) -> Permission {
    let mut asked = format!("{}:{}", query.service, query.action);
    let (is_allowed, said) = match answer {
        Ok(()) | Err(AwsFailure::DryRun | AwsFailure::NotFound(_) | AwsFailure::Invalid { .. }) => (Some(true), None),
        Err(AwsFailure::Capacity(_) | AwsFailure::Quota(_) | AwsFailure::TokenReused(_)) => (Some(true), None),
        // Our own policy allows these only for resources with our tag, and the one in the request does not exist.
        Err(AwsFailure::Denied { .. }) if OF_OUR_OWN.contains(&query.action) => {
            (None, Some("cannot be checked without a machine".to_owned()))
        }
        Err(AwsFailure::Denied { action, message }) => {
            // Resources are tagged on creation.
            if action == TAGGING {
                asked = action;
            }
            (Some(false), Some(message))
        }
        Err(failure @ (AwsFailure::Throttled(_) | AwsFailure::Credentials(_) | AwsFailure::Doubt(_))) => {
            (None, Some(failure.to_string()))
        }
    };
    Permission { action: asked, is_allowed, said }
}

/// One harmless request for each action that a run needs.
fn probes() -> Vec<Query> {
    let nobody =
        IngressRule { protocol: "tcp".into(), from: Some(22), to: Some(22), peer: Peer::V4("192.0.2.1/32".into()) };
    let (group, machine) = ("sg-00000000000000000", "i-00000000000000000");
    let one = params([
        ("ImageId", "ami-00000000000000000"),
        ("InstanceType", "c7i.large"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.1.Tag.1.Key", OWNER_TAG),
        ("TagSpecification.1.Tag.1.Value", "gradus-check"),
    ]);
    let deletes = [
        (ResourceKind::Disk, "vol-00000000000000000"),
        (ResourceKind::Address, "eipalloc-00000000000000000"),
        (ResourceKind::Interface, "eni-00000000000000000"),
    ];
    let lists = ["DescribeVolumes", "DescribeAddresses", "DescribeSnapshots", "DescribeNetworkInterfaces"];
    let mut probes = vec![
        query::describe_owned("gradus-check", None, None),
        query::describe_regions(),
        query::describe_image("ami-00000000000000000"),
        query::describe_subnets(None),
        query::describe_route_tables(Some("vpc-00000000000000000")),
        query::describe_group("gradus-check", "vpc-00000000000000000"),
        query::dry(query::describe_spot_prices(&["c7i.large"], "2026-01-01T00:00:00Z", None)),
        query::dry(query::run_instances(one)),
        query::dry(query::terminate(&[machine])),
        query::dry(query::stop(machine)),
        query::dry(query::start(machine)),
        query::dry(query::create_group("gradus-check", "vpc-00000000000000000", "gradus-check")),
        query::dry(query::change_ingress(true, group, &nobody)),
        query::dry(query::change_ingress(false, group, &nobody)),
    ];
    probes.extend(lists.map(|action| resources::describe_tagged(action, Some("gradus-check"), None)));
    probes.extend(deletes.into_iter().filter_map(|(kind, name)| resources::delete(kind, name)).map(query::dry));
    probes
}

/// The least policy with which jobs can be run.
pub fn policy() -> Value {
    json!({ "Version": "2012-10-17", "Statement": statements() })
}

fn statements() -> Vec<Value> {
    let ours = json!({ "StringLike": { format!("aws:ResourceTag/{OWNER_TAG}"): "*" } });
    let making = json!({ "StringEquals": { "ec2:CreateAction": ["RunInstances", "CreateSecurityGroup"] } });
    let spot = json!({ "StringEquals": { "iam:AWSServiceName": "spot.amazonaws.com" } });
    vec![
        json!({
            "Sid": "GradusLooks", "Effect": "Allow", "Resource": "*",
            "Action": [
                "ec2:DescribeInstances", "ec2:DescribeRegions", "ec2:DescribeImages", "ec2:DescribeSubnets",
                "ec2:DescribeRouteTables", "ec2:DescribeSecurityGroups", "ec2:DescribeSpotPriceHistory",
                "ec2:DescribeVolumes", "ec2:DescribeAddresses", "ec2:DescribeSnapshots", "ec2:DescribeNetworkInterfaces"
            ],
        }),
        json!({
            "Sid": "GradusImages", "Effect": "Allow", "Resource": "arn:aws:ssm:*::parameter/aws/service/*",
            "Action": ["ssm:GetParameter"],
        }),
        json!({
            "Sid": "GradusRents", "Effect": "Allow", "Resource": "*",
            "Action": ["ec2:RunInstances", "ec2:CreateSecurityGroup"],
        }),
        json!({
            "Sid": "GradusTagsWhatItMakes", "Effect": "Allow", "Resource": "*", "Condition": making,
            "Action": ["ec2:CreateTags"],
        }),
        json!({
            "Sid": "GradusEndsWhatIsItsOwn", "Effect": "Allow", "Resource": "*", "Condition": ours,
            "Action": [
                "ec2:TerminateInstances", "ec2:StopInstances", "ec2:StartInstances",
                "ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress", "ec2:DeleteVolume",
                "ec2:ReleaseAddress", "ec2:DeleteNetworkInterface"
            ],
        }),
        json!({
            "Sid": "GradusFirstSpotMachine", "Effect": "Allow", "Condition": spot,
            "Resource": "arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot",
            "Action": ["iam:CreateServiceLinkedRole"],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_that_is_asked_for_is_in_the_policy() {
        let policy = policy().to_string();
        for query in probes() {
            let action = format!("\"{}:{}\"", query.service, query.action);
            assert!(policy.contains(&action), "{action}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_its_statement() {
        let query = query::dry(query::run_instances(Vec::new()));
        let check = |answer, expected| assert_eq!(permission(&query, answer).is_allowed, expected);
        check(Err(AwsFailure::DryRun), Some(true));
        check(Err(AwsFailure::NotFound("InvalidAMIID.NotFound".into())), Some(true));
        check(Err(AwsFailure::Doubt("no answer".into())), None);
        let denied = AwsFailure::Denied { action: "ec2:RunInstances".into(), message: "no".into() };
        let denied = permission(&query, Err(denied));
        assert_eq!(denied.is_allowed, Some(false));
        let report =
            CheckReport { arn: "a".into(), account: "1".into(), origin: "x".into(), permissions: vec![denied] };
        let missing = report.missing();
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0]["Sid"], "GradusRents");
    }

    #[test]
    fn what_is_allowed_for_our_own_machines_only_is_not_called_missing() {
        let denied = || AwsFailure::Denied { action: "x".into(), message: "no".into() };
        let ours = probes().into_iter().filter(|query| permission(query, Err(denied())).is_allowed.is_none());
        let ours: Vec<&str> = ours.map(|query| query.action).collect();
        assert_eq!(ours, OF_OUR_OWN);
        let tags = AwsFailure::Denied { action: TAGGING.into(), message: "no".into() };
        let tags = permission(&query::run_instances(Vec::new()), Err(tags));
        assert_eq!((&*tags.action, tags.is_allowed), (TAGGING, Some(false)));
        let said = permission(&query::terminate(&["i-1"]), Err(denied())).said;
        assert_eq!(said.as_deref(), Some("cannot be checked without a machine"));
        assert!(
            probes().iter().all(|query| query.action != "CreateTags"),
            "it is allowed only while something is made"
        );
    }
}
