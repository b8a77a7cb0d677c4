//! The parameters of `RunInstances`, as a pure function.

use domain::rental::LaunchRequest;
use domain::volume::{Volume, VolumeKind};
use domain::{Node, Rate};

use super::wire::query::{EXPIRES_TAG, INSTANCE_TAG, MEMBERS_TAG, OWNER_TAG, Params, params};
use super::wire::reservations::ReservedPlace;
use super::wire::times::rfc3339;
use crate::rented::MachineChoice;

/// The public parameter that names the image to boot: one with NVIDIA's driver where there is a GPU for it.
pub fn image(choice: &MachineChoice) -> &'static str {
    let has_nvidia = choice.machine.starts_with(['g', 'p']) && !choice.machine.starts_with("g4ad.");
    match has_nvidia {
        true => "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
        false => "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id",
    }
}

/// Location of a machine, looked up in its region before it is rented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSite {
    pub image: String,
    /// The name that the image gives to its first disk.
    pub root_device: String,
    pub group: String,
    pub subnet: Option<String>,
    /// Whether a public address is refused, which needs a subnet.
    pub is_private: bool,
    /// Reserved capacity that it uses.
    pub reserved: Option<ReservedPlace>,
}

/// What is sent. It is written down before it is sent, and the same is sent again. A spot machine may cost `spot_cap` at most.
pub fn order(
    request: &LaunchRequest,
    choice: &MachineChoice,
    (site, spot_cap): (&LaunchSite, Rate),
    owner: &str,
    user_data: &str,
) -> Params {
    let count = request.members.len().to_string();
    let mut sent = params([
        ("ImageId", &site.image),
        ("InstanceType", &choice.machine),
        ("MinCount", &count),
        ("MaxCount", &count),
        ("ClientToken", &request.token),
        ("InstanceInitiatedShutdownBehavior", "terminate"),
        ("MetadataOptions.HttpEndpoint", "enabled"),
        ("MetadataOptions.HttpTokens", "required"),
        // A container on the machine must not have access to the machine's role.
        ("MetadataOptions.HttpPutResponseHopLimit", "1"),
        ("UserData", &base64(user_data.as_bytes())),
    ]);
    sent.extend(disk(site, &request.offer.node));
    let zone = site.reserved.as_ref().map(|reserved| reserved.zone.clone()).or_else(|| choice.zone.clone());
    sent.extend(zone.map(|zone| ("Placement.AvailabilityZone".to_owned(), zone)));
    sent.extend(interface(site));
    if choice.is_spot {
        sent.extend(params([
            ("InstanceMarketOptions.MarketType", "spot"),
            ("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time"),
            ("InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "terminate"),
        ]));
        // Without a cap AWS may charge up to the price on demand.
        let cap = spot_cap.micros_per_hour().unsigned_abs();
        sent.push(("InstanceMarketOptions.SpotOptions.MaxPrice".to_owned(), domain::money::decimal(cap, 2, 6)));
    }
    if let Some(reserved) = &site.reserved {
        let target = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
        sent.push((target.to_owned(), reserved.id.clone()));
        sent.extend(reserved.is_block.then(|| ("InstanceMarketOptions.MarketType".into(), "capacity-block".into())));
    }
    sent.extend(tags(request, owner));
    sent
}

/// The disk: that of the plan, as fast as it was planned. gp3 at its base needs no figures, and io2 takes no throughput.
fn disk(site: &LaunchSite, node: &Node) -> Params {
    let volume = node.volume.unwrap_or(Volume::BASE);
    let mut sent = params([
        ("BlockDeviceMapping.1.DeviceName", site.root_device.as_str()),
        ("BlockDeviceMapping.1.Ebs.VolumeSize", &volume.gib(node.disk_free).to_string()),
        ("BlockDeviceMapping.1.Ebs.VolumeType", volume.kind.word()),
        ("BlockDeviceMapping.1.Ebs.Encrypted", "true"),
        ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
    ]);
    if volume != Volume::BASE {
        sent.push(("BlockDeviceMapping.1.Ebs.Iops".to_owned(), volume.iops.to_string()));
        let has_throughput = volume.kind == VolumeKind::Gp3;
        let throughput = ("BlockDeviceMapping.1.Ebs.Throughput".to_owned(), volume.throughput.to_string());
        sent.extend(has_throughput.then_some(throughput));
    }
    sent
}

/// The subnet and the security group: of the machine, or of an interface where what the subnet gives is overruled, since AWS takes
/// no mixture of both.
fn interface(site: &LaunchSite) -> Params {
    match (&site.subnet, site.is_private) {
        (Some(subnet), true) => params([
            ("NetworkInterface.1.DeviceIndex", "0"),
            ("NetworkInterface.1.SubnetId", subnet),
            ("NetworkInterface.1.AssociatePublicIpAddress", "false"),
            ("NetworkInterface.1.SecurityGroupId.1", &site.group),
        ]),
        (Some(subnet), false) => params([("SecurityGroupId.1", &site.group), ("SubnetId", subnet)]),
        (None, _) => params([("SecurityGroupId.1", &site.group)]),
    }
}

/// The tags of the machine, of its disk and of its interface, by which an audit knows whose they are.
fn tags(request: &LaunchRequest, owner: &str) -> Params {
    let instance = request.members.first().map(ToString::to_string).unwrap_or_default();
    let mut pairs =
        vec![("Name", format!("gradus {instance}")), (OWNER_TAG, owner.to_owned()), (INSTANCE_TAG, instance)];
    if request.members.len() > 1 {
        pairs.push((MEMBERS_TAG, request.members.len().to_string()));
    }
    pairs.extend(request.expires.map(|expires| (EXPIRES_TAG, rfc3339(expires))));
    let mut sent = Params::new();
    for (number, resource) in ["instance", "volume", "network-interface"].into_iter().enumerate() {
        let specification = format!("TagSpecification.{}", number + 1);
        sent.push((format!("{specification}.ResourceType"), resource.to_owned()));
        for (at, (key, value)) in pairs.iter().enumerate() {
            sent.push((format!("{specification}.Tag.{}.Key", at + 1), (*key).to_owned()));
            sent.push((format!("{specification}.Tag.{}.Value", at + 1), value.clone()));
        }
    }
    sent
}

/// Base64 with padding, as clouds want user data.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().chain([0, 0].iter()).take(3).fold(0_usize, |word, byte| word << 8 | usize::from(*byte));
        for place in 0..4 {
            match place <= chunk.len() {
                true => text.push(char::from(LETTERS[word >> (18 - 6 * place) & 63])),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use domain::volume::DiskTier;
    use domain::{Bytes, InstanceId, Offer, Timestamp};

    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn machines_with_gpus_of_nvidia_have_its_driver() {
        let has = |kind: &str| image(&kind.parse::<MachineChoice>().unwrap()).contains("nvidia");
        assert!(has("us-east-1/p4d.24xlarge") && has("us-east-1/g5.xlarge") && !has("us-east-1/g4ad.xlarge"));
        assert!(!has("us-east-1/c7i.large"));
    }

    fn ordered(kind: &str, cap: Option<&str>) -> BTreeMap<String, String> {
        ordered_at(kind, cap, None)
    }

    fn ordered_at(kind: &str, cap: Option<&str>, reserved: Option<ReservedPlace>) -> BTreeMap<String, String> {
        let offer = Offer {
            provider: "aws".into(),
            kind: kind.into(),
            node: Node { disk_free: Bytes(100 * GIB + 1), ..Node::default() },
            rate: "1/h".parse().unwrap(),
            price_source: String::new(),
        };
        let request = LaunchRequest {
            members: vec![InstanceId::new("r-i1")],
            token: "token".into(),
            offer,
            price_cap: cap.map(|cap| cap.parse().unwrap()),
            expires: Some(Timestamp(1_440_938_160_000_000)),
            first_answer: None,
            has_peers: false,
        };
        let (image, root_device, group) = ("ami-1".into(), "/dev/sda1".into(), "sg-1".into());
        let site = LaunchSite { image, root_device, group, subnet: None, is_private: false, reserved };
        order(&request, &kind.parse().unwrap(), (&site, cap.unwrap_or("1/h").parse().unwrap()), "me", "#!/bin/sh\n")
            .into_iter()
            .collect()
    }

    #[test]
    fn a_machine_is_closed_encrypted_tagged_and_ends_with_its_system() {
        let sent = ordered("us-east-1/p4d.24xlarge", None);
        let is = |name: &str, value: &str| assert_eq!(sent.get(name).map(String::as_str), Some(value), "{name}");
        is("ClientToken", "token");
        is("InstanceInitiatedShutdownBehavior", "terminate");
        is("MetadataOptions.HttpTokens", "required");
        is("BlockDeviceMapping.1.Ebs.Encrypted", "true");
        is("BlockDeviceMapping.1.Ebs.VolumeSize", "141");
        is("UserData", "IyEvYmluL3NoCg==");
        is("TagSpecification.1.ResourceType", "instance");
        is("TagSpecification.1.Tag.2.Key", "gradus-owner");
        is("TagSpecification.1.Tag.2.Value", "me");
        is("TagSpecification.2.Tag.3.Value", "r-i1");
        is("TagSpecification.3.ResourceType", "network-interface");
        is("TagSpecification.3.Tag.2.Value", "me");
        is("TagSpecification.1.Tag.4.Value", "2015-08-30T12:36:00Z");
        assert!(!sent.keys().any(|name| name.starts_with("InstanceMarketOptions") || name.starts_with("Placement")));
    }

    #[test]
    fn a_disk_is_asked_for_as_fast_as_it_was_planned() {
        let (image, root_device, group) = ("ami-1".into(), "/dev/sda1".into(), "sg-1".into());
        let site = LaunchSite { image, root_device, group, subnet: None, is_private: false, reserved: None };
        let check = |volume: Option<Volume>, expected: &str| {
            let node = Node { disk_free: Bytes(100 * GIB), volume, ..Node::default() };
            let sent: BTreeMap<String, String> = disk(&site, &node).into_iter().collect();
            let of = |name: &str| {
                let value = sent.get(&format!("BlockDeviceMapping.1.Ebs.{name}"));
                value.map_or("-", String::as_str).to_owned()
            };
            let names = ["VolumeType", "VolumeSize", "Iops", "Throughput", "Encrypted", "DeleteOnTermination"];
            assert_eq!(names.map(of).join(" "), expected, "{volume:?}");
        };
        check(None, "gp3 140 - - true true");
        check(Some(DiskTier::Low.volume()), "gp3 140 - - true true");
        check(Some(DiskTier::High.volume()), "gp3 140 7000 437 true true");
        check(Some(DiskTier::Ultra.volume()), "io2 140 20000 - true true");
        // At most 1,000 IOPS per GiB.
        check(Some(Volume::io2(256_000)), "io2 256 256000 - true true");
    }

    #[test]
    fn spot_and_zones_are_asked_for_only_where_they_are_meant() {
        let sent = ordered("us-east-1/us-east-1a/p4d.24xlarge/spot", Some("12.5/h"));
        assert_eq!(sent["InstanceMarketOptions.MarketType"], "spot");
        assert_eq!(sent["InstanceMarketOptions.SpotOptions.MaxPrice"], "12.50");
        assert_eq!(sent["Placement.AvailabilityZone"], "us-east-1a");
        let uncapped = ordered("us-east-1/p4d.24xlarge/spot", None);
        assert_eq!(uncapped["InstanceMarketOptions.SpotOptions.MaxPrice"], "1.00", "no more than is counted");
    }

    #[test]
    fn reserved_capacity_is_named_and_decides_the_zone() {
        let kind = "us-east-1/p5.48xlarge";
        let place = |is_block| ReservedPlace { id: "cr-1".into(), zone: "us-east-1b".into(), is_block };
        let sent = ordered_at(kind, None, Some(place(false)));
        let target = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
        assert_eq!((sent[target].as_str(), sent["Placement.AvailabilityZone"].as_str()), ("cr-1", "us-east-1b"));
        assert!(!sent.contains_key("InstanceMarketOptions.MarketType"));
        let block = ordered_at(kind, None, Some(place(true)));
        assert_eq!(block["InstanceMarketOptions.MarketType"], "capacity-block");
        assert!(!ordered(kind, None).contains_key(target));
    }

    #[test]
    fn a_machine_without_a_public_address_is_closed_like_others() {
        let check = |subnet: Option<&str>, is_private: bool, expected: &[(&str, &str)]| {
            let (image, root_device, group) = ("ami-1".into(), "/dev/sda1".into(), "sg-1".into());
            let subnet = subnet.map(str::to_owned);
            let site = LaunchSite { image, root_device, group, subnet, is_private, reserved: None };
            let expected = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            assert_eq!(interface(&site), expected.collect::<Params>());
        };
        check(None, false, &[("SecurityGroupId.1", "sg-1")]);
        check(Some("subnet-1"), false, &[("SecurityGroupId.1", "sg-1"), ("SubnetId", "subnet-1")]);
        let private = [
            ("NetworkInterface.1.DeviceIndex", "0"),
            ("NetworkInterface.1.SubnetId", "subnet-1"),
            ("NetworkInterface.1.AssociatePublicIpAddress", "false"),
            ("NetworkInterface.1.SecurityGroupId.1", "sg-1"),
        ];
        check(Some("subnet-1"), true, &private);
    }

    #[test]
    fn base64_pads() {
        let check = |text: &str, expected: &str| assert_eq!(base64(text.as_bytes()), expected);
        // From RFC 4648.
        for (text, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            check(text, expected);
        }
    }
}
