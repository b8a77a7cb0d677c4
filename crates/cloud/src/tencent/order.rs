//! The parameters of `RunInstances`, as a pure function.

use std::collections::BTreeMap;

use domain::boot_disk::BootDisk;
use domain::{Bytes, Duration, Timestamp};
use serde_json::{Value, json};

use super::TencentOptions;
use crate::aws::base64;
use crate::aws::wire::query::{EXPIRES_TAG, INSTANCE_TAG, OWNER_TAG};
use crate::aws::wire::times::rfc3339;
use crate::rented::limits::{ends_at, price_limit};
use crate::rented::user_data::user_data_with_driver;
use crate::rented::{CloudFailure, LaunchOrder};

/// The largest disk of a system that is sold: 2048 GiB, in tens.
const LARGEST_GIB: u64 = 2040;

/// Tencent ends a machine five minutes from now at the earliest; a machine that has just booted is given more.
pub(super) const SOONEST: Duration = Duration::from_secs(35 * 60);

/// Gibibytes of the disk of a machine with so much for its work. Tencent sells them by tens.
pub fn disk_gib(work: Bytes) -> u64 {
    BootDisk::TENCENT.gib(work)
}

/// Where a machine is put and what it boots, looked up before it is rented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CvmSite {
    pub zone: String,
    pub group: String,
    pub image: String,
}

/// What is sent. The machine has no role, so that programs on it find no credentials.
///
/// # Errors
/// [`CloudFailure::Invalid`] where it cannot be had.
pub(super) fn run_instances(
    order: &LaunchOrder<'_>,
    site: &CvmSite,
    options: &TencentOptions,
    now: Timestamp,
) -> Result<Value, CloudFailure> {
    let (choice, request) = (order.choice, order.request);
    let gib = disk_gib(request.offer.node.disk_free);
    if gib > LARGEST_GIB {
        let most = LARGEST_GIB - BootDisk::TENCENT.system_gib;
        let why = format!("a machine of Tencent Cloud has a disk of at most {most} GiB for its work");
        return Err(CloudFailure::Invalid(why));
    }
    let mut sent = json!({
        "InstanceChargeType": if choice.is_spot { "SPOTPAID" } else { "POSTPAID_BY_HOUR" },
        "Placement": { "Zone": site.zone },
        "InstanceType": choice.machine,
        "ImageId": site.image,
        "SystemDisk": { "DiskType": "CLOUD_SSD", "DiskSize": gib },
        "VirtualPrivateCloud": network(options.subnets.get(&site.zone).map(String::as_str))?,
        "InternetAccessible": {
            "InternetChargeType": "TRAFFIC_POSTPAID_BY_HOUR",
            "InternetMaxBandwidthOut": 100,
            "PublicIpAssigned": true,
        },
        "InstanceCount": 1,
        "InstanceName": order.name,
        "SecurityGroupIds": [site.group],
        "ClientToken": request.token,
        "TagSpecification": [{ "ResourceType": "instance", "Tags": tags(order) }],
        "UserData": base64(user_data_with_driver(order.public_key).as_bytes()),
    });
    if choice.is_spot {
        let most = request.price_cap.unwrap_or(request.offer.rate);
        let limit = price_limit(most, options.currency.as_deref(), "tencent.json")?;
        let spot = json!({ "MaxPrice": limit, "SpotInstanceType": "one-time" });
        sent["InstanceMarketOptions"] = json!({ "MarketType": "spot", "SpotOptions": spot });
    }
    if let Some(at) = request.expires.and_then(|expires| ends_at(expires, now, SOONEST)) {
        sent["ActionTimer"] = json!({ "TimerAction": "TerminateInstances", "ActionTime": at });
    }
    Ok(sent)
}

fn tags(order: &LaunchOrder<'_>) -> Vec<Value> {
    let instance = order.request.members.first().map(ToString::to_string).unwrap_or_default();
    let mut tags = BTreeMap::from([(OWNER_TAG, order.owner.to_owned()), (INSTANCE_TAG, instance)]);
    tags.extend(order.request.expires.map(|expires| (EXPIRES_TAG, rfc3339(expires))));
    tags.into_iter().map(|(key, value)| json!({ "Key": key, "Value": value })).collect()
}

/// A network and a subnet of it as `VPC/SUBNET`; the account's default ones without.
fn network(named: Option<&str>) -> Result<Value, CloudFailure> {
    let Some(text) = named else { return Ok(json!({ "VpcId": "DEFAULT", "SubnetId": "DEFAULT" })) };
    match text.split_once('/') {
        Some((network, subnet)) => Ok(json!({ "VpcId": network, "SubnetId": subnet })),
        None => {
            let why = format!("`{text}` in `tencent.json` is no subnet; write `vpc-…/subnet-…`");
            Err(CloudFailure::Invalid(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::rental::LaunchRequest;
    use domain::{InstanceId, Node, Offer, Rate};

    use super::*;
    use crate::aws::wire::times;

    fn sent(work: Bytes) -> Result<Value, CloudFailure> {
        let offer = Offer {
            provider: "tencent".into(),
            kind: "ap-guangzhou/GN7.2XLARGE32/spot".into(),
            node: Node { disk_free: work, ..Node::default() },
            rate: Rate::from_micros_per_hour(1_200_000),
            price_source: String::new(),
        };
        let request = LaunchRequest {
            members: vec![InstanceId::new("r-i1")],
            token: "r-i1-token".into(),
            offer,
            price_cap: None,
            expires: times::read("2026-11-28T05:00:00Z"),
            first_answer: None,
            has_peers: false,
        };
        let choice = request.offer.kind.parse().unwrap();
        let (name, owner) = ("gradus-a-b", "me / ü");
        let order = LaunchOrder { request: &request, choice: &choice, name, owner, public_key: "key" };
        let site = CvmSite { zone: "ap-guangzhou-6".into(), group: "sg-1".into(), image: "img-1".into() };
        run_instances(&order, &site, &TencentOptions::default(), times::read("2026-11-27T05:00:00Z").unwrap())
    }

    /// `tencentcloud-sdk-python-cvm` 3.0.1459, Tencent's own library, reads this without a name that it does not know, and sends
    /// it unchanged.
    #[test]
    fn what_is_sent_is_what_tencents_library_sends() {
        let mut sent = sent(Bytes(160 << 30)).unwrap();
        assert!(sent["UserData"].take().is_string());
        let expected = json!({
            "InstanceChargeType": "SPOTPAID", "Placement": { "Zone": "ap-guangzhou-6" }, "InstanceType": "GN7.2XLARGE32",
            "ImageId": "img-1", "SystemDisk": { "DiskType": "CLOUD_SSD", "DiskSize": 200 },
            "VirtualPrivateCloud": { "VpcId": "DEFAULT", "SubnetId": "DEFAULT" },
            "InternetAccessible": { "InternetChargeType": "TRAFFIC_POSTPAID_BY_HOUR", "InternetMaxBandwidthOut": 100,
                                    "PublicIpAssigned": true },
            "InstanceCount": 1, "InstanceName": "gradus-a-b", "SecurityGroupIds": ["sg-1"], "ClientToken": "r-i1-token",
            "TagSpecification": [{ "ResourceType": "instance", "Tags": [
                { "Key": "gradus-expires", "Value": "2026-11-28T05:00:00Z" }, { "Key": "gradus-instance", "Value": "r-i1" },
                { "Key": "gradus-owner", "Value": "me / ü" },
            ] }],
            "UserData": null,
            "InstanceMarketOptions": { "MarketType": "spot",
                                       "SpotOptions": { "MaxPrice": "1.2", "SpotInstanceType": "one-time" } },
            "ActionTimer": { "TimerAction": "TerminateInstances", "ActionTime": "2026-11-28T05:00:00Z" },
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn a_disk_that_no_machine_has_is_refused() {
        let refused = sent(Bytes(2010 << 30));
        assert!(matches!(refused, Err(CloudFailure::Invalid(why)) if why.contains("at most 2000 GiB")));
    }

    #[test]
    fn disks_are_sold_by_tens() {
        assert_eq!(disk_gib(Bytes(160 << 30)), 200);
        assert_eq!(disk_gib(Bytes((160 << 30) + 1)), 210);
    }

    #[test]
    fn a_subnet_is_named_with_its_network() {
        assert_eq!(network(None).unwrap()["SubnetId"], "DEFAULT");
        assert_eq!(network(Some("vpc-1/subnet-1")).unwrap(), json!({ "VpcId": "vpc-1", "SubnetId": "subnet-1" }));
        assert!(matches!(network(Some("subnet-1")), Err(CloudFailure::Invalid(why)) if why.contains("`subnet-1`")));
    }
}
