//! The parameters of `RunInstances`, as a pure function.

use domain::boot_disk::BootDisk;
use domain::{Bytes, Duration, Timestamp};

use super::AlibabaOptions;
use crate::aws::base64;
use crate::aws::wire::query::{EXPIRES_TAG, INSTANCE_TAG, OWNER_TAG, Params, params};
use crate::aws::wire::times::rfc3339;
use crate::rented::limits::{ends_at, price_limit};
use crate::rented::user_data::user_data_with_driver;
use crate::rented::{CloudFailure, LaunchOrder};

/// The newest image of Ubuntu 22.04, without a driver.
const IMAGE: &str = "acs:ubuntu_22_04_x64";

/// The largest disk that a system may have.
const LARGEST_GIB: u64 = 2048;

/// Families that take no newer kind of disk.
const OLD_DISKS: [&str; 2] = ["ecs.gn5-", "ecs.gn5i-"];

/// The kind of disk that a machine takes.
pub(crate) fn disk_kind(machine: &str) -> &'static str {
    let is_old = OLD_DISKS.iter().any(|family| machine.starts_with(family));
    if is_old { "cloud_ssd" } else { "cloud_essd" }
}

/// Gibibytes of the disk of a machine with so much for its work.
pub fn disk_gib(work: Bytes) -> u64 {
    BootDisk::ALIBABA.gib(work)
}

/// Where a machine is put, looked up in its region before it is rented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EcsSite {
    pub group: String,
    pub vswitch: String,
    /// That of the vSwitch. Spot machines are refused without it.
    pub zone: String,
}

/// What is sent. The machine has no role, so that programs on it find no credentials.
///
/// # Errors
/// [`CloudFailure::Invalid`] where it cannot be had.
pub(super) fn run_instances(
    order: &LaunchOrder<'_>,
    site: &EcsSite,
    options: &AlibabaOptions,
    now: Timestamp,
) -> Result<Params, CloudFailure> {
    let (choice, request) = (order.choice, order.request);
    let gib = disk_gib(request.offer.node.disk_free);
    if gib > LARGEST_GIB {
        let most = LARGEST_GIB - BootDisk::ALIBABA.system_gib;
        let why = format!("a machine of Alibaba Cloud has a disk of at most {most} GiB for its work");
        return Err(CloudFailure::Invalid(why));
    }
    let image = options.image.as_deref().unwrap_or(IMAGE);
    let mut sent = params([
        ("RegionId", &choice.region),
        ("InstanceType", &choice.machine),
        ("Amount", "1"),
        ("ClientToken", &request.token),
        ("InstanceName", order.name),
        ("InstanceChargeType", "PostPaid"),
        (if image.starts_with("acs:") { "ImageFamily" } else { "ImageId" }, image),
        ("SecurityGroupId", &site.group),
        ("VSwitchId", &site.vswitch),
        ("ZoneId", &site.zone),
        ("InternetChargeType", "PayByTraffic"),
        ("InternetMaxBandwidthOut", "100"),
        ("SystemDisk.Category", disk_kind(&choice.machine)),
        ("SystemDisk.Size", &gib.to_string()),
        ("UserData", &base64(user_data_with_driver(order.public_key).as_bytes())),
    ]);
    if choice.is_spot {
        let most = request.price_cap.unwrap_or(request.offer.rate);
        let limit = price_limit(most, options.currency.as_deref(), "alibaba.json")?;
        sent.extend(params([
            ("SpotStrategy", "SpotWithPriceLimit"),
            ("SpotPriceLimit", &limit),
            ("SpotInterruptionBehavior", "Terminate"),
        ]));
    }
    let released = request.expires.and_then(|expires| ends_at(expires, now, SOONEST));
    sent.extend(released.map(|at| ("AutoReleaseTime".to_owned(), at)));
    let instance = request.members.first().map(ToString::to_string).unwrap_or_default();
    let mut tags = vec![(OWNER_TAG, order.owner.to_owned()), (INSTANCE_TAG, instance)];
    tags.extend(request.expires.map(|expires| (EXPIRES_TAG, rfc3339(expires))));
    for (at, (key, value)) in tags.into_iter().enumerate() {
        sent.push((format!("Tag.{}.Key", at + 1), key.to_owned()));
        sent.push((format!("Tag.{}.Value", at + 1), value));
    }
    Ok(sent)
}

/// Alibaba releases a machine half an hour from now at the earliest.
pub(super) const SOONEST: Duration = Duration::from_secs(35 * 60);

#[cfg(test)]
mod tests {
    use domain::rental::LaunchRequest;
    use domain::{InstanceId, Node, Offer, Rate};

    use super::*;
    use crate::aws::wire::query::encoded;
    use crate::aws::wire::times;

    fn request(work: Bytes) -> LaunchRequest {
        let offer = Offer {
            provider: "alibaba".into(),
            kind: "cn-hangzhou/ecs.gn6i-c4g1.xlarge/spot".into(),
            node: Node { disk_free: work, ..Node::default() },
            rate: Rate::from_micros_per_hour(1_200_000),
            price_source: String::new(),
        };
        LaunchRequest {
            members: vec![InstanceId::new("r-i1")],
            token: "r-i1-token".into(),
            offer,
            price_cap: None,
            expires: times::read("2026-11-28T05:00:00Z"),
            first_answer: None,
            has_peers: false,
        }
    }

    fn sent(request: &LaunchRequest) -> Result<Params, CloudFailure> {
        let choice = request.offer.kind.parse().unwrap();
        let (name, owner) = ("gradus-a-b", "me / ü");
        let order = LaunchOrder { request, choice: &choice, name, owner, public_key: "key" };
        let site = EcsSite { group: "sg-1".into(), vswitch: "vsw-1".into(), zone: "cn-hangzhou-g".into() };
        run_instances(&order, &site, &AlibabaOptions::default(), times::read("2026-11-27T05:00:00Z").unwrap())
    }

    /// `alibabacloud_ecs20140526` 7.11.8, Alibaba's own library, was given the same values, and its request written down.
    #[test]
    fn what_is_sent_is_what_alibabas_library_sends() {
        let mut sent = sent(&request(Bytes(160 << 30))).unwrap();
        sent.retain(|(name, _)| name != "UserData");
        sent.sort();
        let expected = "Amount=1&AutoReleaseTime=2026-11-28T05%3A00%3A00Z&ClientToken=r-i1-token\
                        &ImageFamily=acs%3Aubuntu_22_04_x64&InstanceChargeType=PostPaid&InstanceName=gradus-a-b\
                        &InstanceType=ecs.gn6i-c4g1.xlarge&InternetChargeType=PayByTraffic\
                        &InternetMaxBandwidthOut=100&RegionId=cn-hangzhou&SecurityGroupId=sg-1\
                        &SpotInterruptionBehavior=Terminate&SpotPriceLimit=1.2&SpotStrategy=SpotWithPriceLimit\
                        &SystemDisk.Category=cloud_essd&SystemDisk.Size=200&Tag.1.Key=gradus-owner\
                        &Tag.1.Value=me+%2F+%C3%BC&Tag.2.Key=gradus-instance&Tag.2.Value=r-i1\
                        &Tag.3.Key=gradus-expires&Tag.3.Value=2026-11-28T05%3A00%3A00Z&VSwitchId=vsw-1&ZoneId=cn-hangzhou-g";
        assert_eq!(encoded(&sent), expected);
    }

    #[test]
    fn a_disk_that_no_machine_has_is_refused() {
        let refused = sent(&request(Bytes(2009 << 30)));
        assert!(matches!(refused, Err(CloudFailure::Invalid(why)) if why.contains("at most 2008 GiB")));
    }

    #[test]
    fn a_disk_has_the_work_and_the_system() {
        assert_eq!(disk_gib(Bytes(100 << 30)), 140);
        assert_eq!(disk_gib(Bytes((100 << 30) + 1)), 141);
    }
}
