//! AWS's answers, parsed from XML: only the fields that are used. Missing fields are empty.

use domain::InstanceId;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::query::{INSTANCE_TAG, MEMBERS_TAG};

/// A list, which XML wraps in `<item>` elements.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Items<T> {
    /// Its elements.
    pub item: Vec<T>,
}

impl<T> Default for Items<T> {
    fn default() -> Items<T> {
        Items { item: Vec::new() }
    }
}

/// Parses an answer.
///
/// # Errors
/// Why it is malformed: then the effect of the request is unknown.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    quick_xml::de::from_str(text).map_err(|error| format!("the answer cannot be read: {error}"))
}

/// Answer to `RunInstances`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Reservation {
    pub instances_set: Items<ListedMachine>,
}

/// Answer to `DescribeInstances`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Machines {
    pub reservation_set: Items<Reservation>,
    pub next_token: String,
}

impl Machines {
    /// All machines of this page.
    pub fn all(self) -> impl Iterator<Item = ListedMachine> {
        self.reservation_set.item.into_iter().flat_map(|reservation| reservation.instances_set.item)
    }
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListedMachine {
    pub instance_id: String,
    pub instance_type: String,
    pub instance_state: StateName,
    /// Where it can be reached: a public address, if it has one.
    pub ip_address: String,
    pub private_ip_address: String,
    pub launch_time: String,
    /// Which of the machines of its request it is, from 0.
    pub ami_launch_index: String,
    /// Why it is in this state, with the time: `User initiated (2026-11-23 18:00:00 GMT)`.
    pub reason: String,
    /// `spot`, or empty.
    pub instance_lifecycle: String,
    pub tag_set: Items<Tag>,
}

/// The name of a state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct StateName {
    pub name: String,
}

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Tag {
    pub key: String,
    pub value: String,
}

impl ListedMachine {
    /// The value of a tag.
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tag_set.item.iter().find(|tag| tag.key == key).map(|tag| tag.value.as_str())
    }

    /// Our name of it, as it stands on it: machines of one request have the tags of the first.
    pub fn instance(&self) -> Option<String> {
        let first = self.tag(INSTANCE_TAG)?;
        let is_several = self.tag(MEMBERS_TAG).is_some_and(|members| members != "1");
        let index: u64 = self.ami_launch_index.parse().unwrap_or(0);
        match is_several && index > 0 {
            true => InstanceId::new(first).following(index).map(|instance| instance.to_string()),
            false => Some(first.to_owned()),
        }
    }

    /// Where it can be reached from here.
    pub fn address(&self) -> Option<&str> {
        let is_address = |address: &&str| address.parse::<std::net::IpAddr>().is_ok();
        [&self.ip_address, &self.private_ip_address].into_iter().map(String::as_str).find(is_address)
    }
}

/// Answer to `GetCallerIdentity`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Identity {
    pub get_caller_identity_result: Caller,
}

/// Who we are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Caller {
    pub arn: String,
    pub account: String,
}

/// Answer to `AssumeRoleWithWebIdentity`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct AssumedRole {
    pub assume_role_with_web_identity_result: AssumedCredentials,
}

/// Answer to `AssumeRole`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct RoleSession {
    pub assume_role_result: AssumedCredentials,
}

/// What holds the credentials of a role.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct AssumedCredentials {
    pub credentials: SessionCredentials,
}

/// Credentials for a while.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct SessionCredentials {
    pub access_key_id: String,
    #[serde(alias = "SecretAccessKey")]
    pub secret_access_key: String,
    #[serde(alias = "Token")]
    pub session_token: String,
    pub expiration: String,
}

impl std::fmt::Debug for SessionCredentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SessionCredentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Answer to `DescribeRegions`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Regions {
    pub region_info: Items<RegionName>,
}

/// A region.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RegionName {
    pub region_name: String,
}

/// Answer to `DescribeSpotPriceHistory`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SpotPrices {
    pub spot_price_history_set: Items<SpotQuote>,
    pub next_token: String,
}

/// What a machine type costs in a zone since a time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SpotQuote {
    pub instance_type: String,
    pub availability_zone: String,
    /// Dollars per hour, as a decimal.
    pub spot_price: String,
    pub timestamp: String,
}

/// Answer to `DescribeImages`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Images {
    pub images_set: Items<Image>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Image {
    pub root_device_name: String,
}

/// Answer to `DescribeSubnets`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Subnets {
    pub subnet_set: Items<Subnet>,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Subnet {
    pub subnet_id: String,
    pub vpc_id: String,
    pub availability_zone: String,
    /// How many addresses of it are free.
    pub available_ip_address_count: u32,
}

/// Answer to `CreateSecurityGroup`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NewGroup {
    pub group_id: String,
}

/// Answer to `DescribeSecurityGroups`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Groups {
    pub security_group_info: Items<Group>,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Group {
    pub group_id: String,
    pub tag_set: Items<Tag>,
    ip_permissions: Items<Permission>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Permission {
    ip_protocol: String,
    from_port: Option<i32>,
    to_port: Option<i32>,
    ip_ranges: Items<RangeV4>,
    ipv6_ranges: Items<RangeV6>,
    prefix_list_ids: Items<Prefix>,
    groups: Items<NewGroup>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RangeV4 {
    cidr_ip: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RangeV6 {
    cidr_ipv6: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Prefix {
    prefix_list_id: String,
}

/// An ingress rule of a security group: protocol, ports and peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressRule {
    pub protocol: String,
    pub from: Option<i32>,
    pub to: Option<i32>,
    pub peer: Peer,
}

/// Who is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    V4(String),
    V6(String),
    Prefix(String),
    Group(String),
}

impl Peer {
    /// The parameter that names it.
    pub fn parameter(&self) -> &'static str {
        match self {
            Peer::V4(_) => "IpRanges.1.CidrIp",
            Peer::V6(_) => "Ipv6Ranges.1.CidrIpv6",
            Peer::Prefix(_) => "PrefixListIds.1.PrefixListId",
            Peer::Group(_) => "Groups.1.GroupId",
        }
    }

    /// Its value.
    pub fn value(&self) -> &str {
        match self {
            Peer::V4(value) | Peer::V6(value) | Peer::Prefix(value) | Peer::Group(value) => value,
        }
    }
}

impl Group {
    /// Everything that it lets in.
    pub fn rules(&self) -> Vec<IngressRule> {
        let each = self.ip_permissions.item.iter().flat_map(|permission| {
            let v4 = permission.ip_ranges.item.iter().map(|range| Peer::V4(range.cidr_ip.clone()));
            let v6 = permission.ipv6_ranges.item.iter().map(|range| Peer::V6(range.cidr_ipv6.clone()));
            let lists = permission.prefix_list_ids.item.iter().map(|list| Peer::Prefix(list.prefix_list_id.clone()));
            let groups = permission.groups.item.iter().map(|group| Peer::Group(group.group_id.clone()));
            let rule = |peer| IngressRule {
                protocol: permission.ip_protocol.clone(),
                from: permission.from_port,
                to: permission.to_port,
                peer,
            };
            v4.chain(v6).chain(lists).chain(groups).map(rule).collect::<Vec<_>>()
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_read() {
        let text = r#"<?xml version="1.0" encoding="UTF-8"?>
            <DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId>
              <reservationSet><item><reservationId>r-1</reservationId><groupSet/><instancesSet>
                <item><instanceId>i-1</instanceId><instanceState><code>16</code><name>running</name></instanceState>
                  <ipAddress>192.0.2.7</ipAddress><privateIpAddress>10.0.0.7</privateIpAddress>
                  <launchTime>2026-11-23T18:00:00.000Z</launchTime><reason/><instanceLifecycle>spot</instanceLifecycle>
                  <tagSet><item><key>gradus-owner</key><value>me &amp; you</value></item></tagSet></item>
                <item><instanceId>i-2</instanceId><instanceState><name>terminated</name></instanceState>
                  <reason>User initiated (2026-11-23 18:30:00 GMT)</reason></item>
              </instancesSet></item></reservationSet><nextToken>more</nextToken></DescribeInstancesResponse>"#;
        let machines: Machines = read(text).unwrap();
        assert_eq!(machines.next_token, "more");
        let all: Vec<ListedMachine> = machines.all().collect();
        assert_eq!((all[0].address(), all[0].tag("gradus-owner")), (Some("192.0.2.7"), Some("me & you")));
        assert_eq!((&*all[0].instance_state.name, &*all[0].instance_lifecycle), ("running", "spot"));
        assert_eq!((all[1].address(), all[1].tag("gradus-owner")), (None, None));
        assert_eq!(all[1].reason, "User initiated (2026-11-23 18:30:00 GMT)");
        let none: Machines = read("<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>").unwrap();
        assert_eq!(none.all().count(), 0);
        for damaged in ["", "<html>", "<DescribeInstancesResponse><reservationSet>", "no XML"] {
            assert!(read::<Machines>(damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn identity_and_groups_are_read() {
        let text = "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::1:user/me</Arn>\
                    <UserId>A</UserId><Account>1</Account></GetCallerIdentityResult></GetCallerIdentityResponse>";
        let identity: Identity = read(text).unwrap();
        assert_eq!(identity.get_caller_identity_result.arn, "arn:aws:iam::1:user/me");
        let text = "<DescribeSecurityGroupsResponse><securityGroupInfo><item><groupId>sg-1</groupId><ipPermissions>\
             <item><ipProtocol>tcp</ipProtocol><fromPort>22</fromPort><toPort>22</toPort><groups/><ipRanges>\
             <item><cidrIp>192.0.2.1/32</cidrIp></item></ipRanges><ipv6Ranges><item><cidrIpv6>::/0</cidrIpv6></item>\
             </ipv6Ranges></item><item><ipProtocol>-1</ipProtocol><groups><item><groupId>sg-2</groupId></item></groups>\
             </item></ipPermissions></item></securityGroupInfo></DescribeSecurityGroupsResponse>";
        let groups: Groups = read(text).unwrap();
        let rules = groups.security_group_info.item[0].rules();
        let shown: Vec<String> =
            rules.iter().map(|rule| format!("{} {:?} {}", rule.protocol, rule.from, rule.peer.value())).collect();
        assert_eq!(shown, ["tcp Some(22) 192.0.2.1/32", "tcp Some(22) ::/0", "-1 None sg-2"]);
    }
}
