//! Prerequisites of a machine in its region: an image, a network, and a security group that allows only SSH from here.
//! The group is checked each time, and reset to exactly that.

mod network;

use super::client::Client;
use super::order::{LaunchSite, image as image_of};
use super::wire::answers::{Groups, Images, IngressRule, NewGroup, Peer, Subnets};
use super::wire::failure::AwsFailure;
use super::wire::query;
use super::wire::reservations::{CapacityReservations, ReservedPlace};
use super::{AwsOptions, wire::query::OWNER_TAG};
use crate::rented::MachineChoice;
pub use network::Addresses;
use network::NetworkPlace;

/// Looks up or creates all of them, for so many machines.
///
/// # Errors
/// [`AwsFailure`]; nothing was rented.
pub fn prepare(
    client: &Client,
    options: &AwsOptions,
    owner: &str,
    choice: &MachineChoice,
    (has_peers, count): (bool, usize),
) -> Result<LaunchSite, AwsFailure> {
    let region = &choice.region;
    let image = match options.image.as_deref() {
        Some(image) if !image.starts_with('/') => image.to_owned(),
        named => client.parameter(region, named.unwrap_or(image_of(choice)))?,
    };
    let images: Images = client.ask(region, &query::describe_image(&image))?;
    let found = images.images_set.item.into_iter().next();
    let root = found.map(|image| image.root_device_name).filter(|name| !name.is_empty());
    let reserved = match options.reservations.is_empty() || choice.is_spot {
        true => None,
        false => reserved(client, options, choice, count)?,
    };
    let zone = reserved.as_ref().map(|reserved| reserved.zone.as_str()).or(choice.zone.as_deref());
    let NetworkPlace { network, subnet, is_private } = network::place(client, options, region, (zone, count))?;
    let group = group(client, region, (owner, has_peers), &network, &wanted(client, options, region)?)?;
    let root_device = root.unwrap_or_else(|| "/dev/sda1".to_owned());
    Ok(LaunchSite { image, root_device, group, subnet, is_private, reserved })
}

/// The capacity that a launch uses of what is reserved. A subnet of the user's is in one zone, and so is what is put there.
fn reserved(
    client: &Client,
    options: &AwsOptions,
    choice: &MachineChoice,
    count: usize,
) -> Result<Option<ReservedPlace>, AwsFailure> {
    let region = &choice.region;
    let all: CapacityReservations = client.ask(region, &query::describe_reservations())?;
    let Some(subnet) = options.subnets.get(region).filter(|_| choice.zone.is_none()) else {
        return Ok(all.place(&options.reservations, choice, count));
    };
    let subnets: Subnets = client.ask(region, &query::describe_subnets(Some(subnet)))?;
    let zone = subnets.subnet_set.item.into_iter().next().map(|subnet| subnet.availability_zone);
    Ok(all.place(&options.reservations, &MachineChoice { zone, ..choice.clone() }, count))
}

/// Sees to it that machines of a region let in this one, whose address may have changed since they were rented.
///
/// # Errors
/// [`AwsFailure`].
pub fn let_in(
    client: &Client,
    options: &AwsOptions,
    owner: &str,
    (region, has_peers): (&str, bool),
) -> Result<(), AwsFailure> {
    let wanted = wanted(client, options, region)?;
    for network in network::networks(client, options, region)? {
        group(client, region, (owner, has_peers), &network, &wanted)?;
    }
    Ok(())
}

/// The zones of a region in which machines can be put without a subnet of the user's: those with a default one.
///
/// # Errors
/// [`AwsFailure`].
pub fn zones(client: &Client, region: &str) -> Result<Vec<String>, AwsFailure> {
    let subnets: Subnets = client.ask(region, &query::describe_subnets(None))?;
    let mut zones: Vec<String> = subnets.subnet_set.item.into_iter().map(|subnet| subnet.availability_zone).collect();
    zones.retain(|zone| !zone.is_empty());
    zones.sort_unstable();
    zones.dedup();
    Ok(zones)
}

/// What is let in from outside: SSH from this machine, by its public address, and by its private one where it is in EC2 there.
fn wanted(client: &Client, options: &AwsOptions, region: &str) -> Result<Vec<IngressRule>, AwsFailure> {
    if let Some(from) = &options.ssh_from {
        return Ok(vec![ssh_from(from)]);
    }
    let own = match options.addresses {
        Some(Addresses::Public) => None,
        Some(Addresses::Private) | None => client.own_network()?.filter(|own| own.region == region),
    };
    let unknown = |why: &str| AwsFailure::Invalid {
        code: "UnknownAddress".into(),
        message: format!(
            "cannot find out from which address this machine reaches AWS ({why}); write it as `ssh_from` in \
             `aws.json`, see docs/aws.md"
        ),
    };
    match (own, options.addresses) {
        (Some(own), Some(Addresses::Private)) => Ok(vec![ssh_from(&own.address)]),
        (None, Some(Addresses::Private)) => Err(unknown("it uses no role of a machine of EC2 in this region")),
        (own, Some(Addresses::Public) | None) => {
            let public = client.own_address().map_err(|why| unknown(&why))?;
            let own = own.map(|own| own.address).filter(|own| *own != public);
            Ok([Some(public), own].into_iter().flatten().map(|from| ssh_from(&from)).collect())
        }
    }
}

/// The rule that lets in SSH from an address, or from a range of them.
fn ssh_from(from: &str) -> IngressRule {
    let peer = match (from.contains(':'), from.contains('/')) {
        (true, true) => Peer::V6(from.to_owned()),
        (true, false) => Peer::V6(format!("{from}/128")),
        (false, true) => Peer::V4(from.to_owned()),
        (false, false) => Peer::V4(format!("{from}/32")),
    };
    IngressRule { protocol: "tcp".into(), from: Some(22), to: Some(22), peer }
}

/// Our group in a network, which lets in what is wanted and nothing else. Machines that must reach each other have a group of
/// their own, within which everything is let in.
fn group(
    client: &Client,
    region: &str,
    (owner, has_peers): (&str, bool),
    network: &str,
    wanted: &[IngressRule],
) -> Result<String, AwsFailure> {
    let short: String = owner.chars().rev().take(12).collect();
    let name = format!("gradus-{short}{}", if has_peers { "-peers" } else { "" });
    let groups: Groups = client.ask(region, &query::describe_group(&name, network))?;
    let found = groups.security_group_info.item.into_iter().next();
    let (id, rules) = match found {
        Some(group) => {
            let is_ours = group.tag_set.item.iter().any(|tag| tag.key == OWNER_TAG && tag.value == owner);
            if !is_ours {
                let message = format!("the security group `{name}` in `{region}` is not ours; rename or delete it");
                return Err(AwsFailure::Invalid { code: "ForeignGroup".into(), message });
            }
            let rules = group.rules();
            (group.group_id, rules)
        }
        None => {
            let made = client.ask(region, &query::create_group(&name, network, owner));
            let made: NewGroup = made.map_err(not_everywhere_yet)?;
            (made.group_id, Vec::new())
        }
    };
    let within = IngressRule { protocol: "-1".into(), from: None, to: None, peer: Peer::Group(id.clone()) };
    let wanted: Vec<&IngressRule> = wanted.iter().chain(has_peers.then_some(&within)).collect();
    for surplus in rules.iter().filter(|rule| !wanted.contains(rule)) {
        match client.tell(region, &query::change_ingress(false, &id, surplus)) {
            // Another process was faster.
            Err(AwsFailure::NotFound(said)) if said.starts_with("InvalidPermission.NotFound") => {}
            other => other.map_err(not_everywhere_yet)?,
        }
    }
    for missing in wanted.into_iter().filter(|rule| !rules.contains(rule)) {
        match client.tell(region, &query::change_ingress(true, &id, missing)) {
            // Another launch was faster.
            Err(AwsFailure::Invalid { code, .. }) if code == "InvalidPermission.Duplicate" => {}
            other => other.map_err(not_everywhere_yet)?,
        }
    }
    Ok(id)
}

/// A new group is not visible to all of EC2 at once: errors about it are retried.
fn not_everywhere_yet(failure: AwsFailure) -> AwsFailure {
    match failure {
        AwsFailure::NotFound(said) if said.starts_with("InvalidGroup.NotFound") => AwsFailure::Throttled(said),
        AwsFailure::Invalid { code, message } if code == "InvalidGroup.Duplicate" => {
            AwsFailure::Throttled(format!("{code}: {message}"))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::scripted::{Script, client, client_in_ec2, error, reply};
    use super::*;

    /// What becomes of the group where one action is answered with an error and all others as usual.
    fn check(action: &'static str, code: &'static str, has_group: bool, expected: &str) {
        check_group((action, code), has_group, false, expected);
    }

    fn check_group((action, code): (&'static str, &'static str), has_group: bool, has_peers: bool, expected: &str) {
        let script = Script::new(move |asked| {
            let group = "<R><securityGroupInfo><item><groupId>sg-1</groupId><tagSet><item><key>gradus-owner</key>\
                         <value>me</value></item></tagSet><ipPermissions><item><ipProtocol>-1</ipProtocol><ipRanges>\
                         <item><cidrIp>0.0.0.0/0</cidrIp></item></ipRanges></item></ipPermissions></item>\
                         </securityGroupInfo></R>";
            Ok(match asked {
                asked if asked.contains(action) => error(code),
                asked if asked.contains("DescribeSecurityGroups") && has_group => reply(200, group),
                _ => reply(200, "<R><groupId>sg-1</groupId></R>"),
            })
        });
        let wanted = [ssh_from("192.0.2.1")];
        let shown = match group(&client(script.clone()), "us-east-1", ("me", has_peers), "vpc-1", &wanted) {
            Ok(id) => id,
            Err(AwsFailure::Throttled(_)) => "again".to_owned(),
            Err(other) => other.to_string(),
        };
        assert_eq!(shown, expected, "{action} {code}");
        let asked = script.asked.lock().unwrap();
        let inside = asked.iter().any(|asked| asked.contains("Authorize") && asked.contains("Groups.1.GroupId=sg-1"));
        assert_eq!(inside, has_peers, "{asked:?}");
        assert_eq!(asked[0].contains("gradus-em-peers"), has_peers, "{asked:?}");
    }

    #[test]
    fn machines_that_must_reach_each_other_have_a_group_of_their_own() {
        check_group(("none", ""), false, true, "sg-1");
        check_group(("none", ""), true, true, "sg-1");
    }

    #[test]
    fn machines_in_the_server_s_network_let_in_its_private_address() {
        let check = |client: &Client, options: &AwsOptions, region: &str, expected: &[&str]| {
            let shown: Vec<String> = match wanted(client, options, region) {
                Ok(rules) => rules.iter().map(|rule| rule.peer.value().to_owned()).collect(),
                Err(failure) => vec![failure.to_string().split(':').next().unwrap_or_default().to_owned()],
            };
            assert_eq!(shown, expected, "{options:?} {region}");
        };
        let there = client_in_ec2(|_| Ok(reply(404, "")));
        let unset = AwsOptions::default();
        let with = |addresses| AwsOptions { addresses: Some(addresses), ..AwsOptions::default() };
        check(&there, &unset, "us-east-1", &["192.0.2.1/32", "10.0.0.7/32"]);
        check(&there, &unset, "eu-west-1", &["192.0.2.1/32"]);
        check(&there, &with(Addresses::Public), "us-east-1", &["192.0.2.1/32"]);
        check(&there, &with(Addresses::Private), "us-east-1", &["10.0.0.7/32"]);
        check(&there, &with(Addresses::Private), "eu-west-1", &["UnknownAddress"]);
        let named = AwsOptions { ssh_from: Some("10.0.0.0/8".into()), ..with(Addresses::Private) };
        check(&there, &named, "eu-west-1", &["10.0.0.0/8"]);
    }

    #[test]
    fn zones_are_those_with_a_default_subnet() {
        let subnet =
            |zone: &str| format!("<item><subnetId>s</subnetId><availabilityZone>{zone}</availabilityZone></item>");
        let text = ["us-east-1b", "us-east-1a", "", "us-east-1b"].map(subnet).concat();
        let text = format!("<R><subnetSet>{text}</subnetSet></R>");
        let script = Script::new(move |_| Ok(reply(200, &text)));
        assert_eq!(zones(&client(script), "us-east-1").unwrap(), ["us-east-1a", "us-east-1b"]);
    }

    #[test]
    fn what_is_reserved_in_another_zone_than_the_user_s_subnet_is_left_alone() {
        let item = "<item><capacityReservationId>cr-1</capacityReservationId><instanceType>p5.48xlarge</instanceType>\
                    <availabilityZone>us-east-1b</availabilityZone><availableInstanceCount>1</availableInstanceCount>\
                    <state>active</state></item>";
        let check = |kind: &str, subnet_zone: Option<&str>, expected: bool| {
            let subnets = format!("<item><availabilityZone>{}</availabilityZone></item>", subnet_zone.unwrap_or(""));
            let text = format!(
                "<R><capacityReservationSet>{item}</capacityReservationSet><subnetSet>{subnets}</subnetSet></R>"
            );
            let script = Script::new(move |_| Ok(reply(200, &text)));
            let subnets = subnet_zone.map(|_| ("us-east-1".to_owned(), "subnet-1".to_owned())).into_iter().collect();
            let options = AwsOptions { subnets, reservations: vec!["cr-1".to_owned()], ..AwsOptions::default() };
            let found = reserved(&client(script), &options, &kind.parse().unwrap(), 1).unwrap();
            assert_eq!(found.is_some(), expected, "{kind} {subnet_zone:?}");
        };
        check("us-east-1/p5.48xlarge", None, true);
        check("us-east-1/p5.48xlarge", Some("us-east-1b"), true);
        check("us-east-1/p5.48xlarge", Some("us-east-1a"), false);
        check("us-east-1/us-east-1a/p5.48xlarge", None, false);
    }

    #[test]
    fn a_group_that_is_not_known_everywhere_yet_is_asked_for_again() {
        check("none", "", false, "sg-1");
        check("Authorize", "InvalidGroup.NotFound", false, "again");
        check("CreateSecurityGroup", "InvalidGroup.Duplicate", false, "again");
        check("Revoke", "InvalidPermission.NotFound", true, "sg-1");
        check("Authorize", "InvalidPermission.Duplicate", true, "sg-1");
        check("Revoke", "InvalidPermission.Malformed", true, "InvalidPermission.Malformed: ");
    }
}
