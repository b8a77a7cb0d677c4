//! What EC2 lists beside machines, and the actions that list and delete it.

use serde::Deserialize;

use super::answers::{Items, Tag};
use super::query::{OWNER_TAG, Query, ec2, filters, params};
use super::times;
use crate::rented::audit::resource::{CloudResource, ResourceKind, ResourceTags, ResourceUse};

/// The action that lists what is of a kind; none of what EC2 does not list, or gradus does not make.
pub fn listing(kind: ResourceKind) -> Option<&'static str> {
    match kind {
        ResourceKind::Interface => Some("DescribeNetworkInterfaces"),
        ResourceKind::Disk => Some("DescribeVolumes"),
        ResourceKind::Address => Some("DescribeAddresses"),
        ResourceKind::Snapshot => Some("DescribeSnapshots"),
        ResourceKind::Image => Some("DescribeImages"),
        ResourceKind::SecurityGroup => Some("DescribeSecurityGroups"),
        // The key of a home enters machines by their user data.
        ResourceKind::KeyPair => None,
    }
}

/// Lists what an owner has, or with none the whole account, by an action of [`listing`]; the next page if `page` is given.
pub fn describe_tagged(action: &'static str, owner: Option<&str>, page: Option<&str>) -> Query {
    let tag = format!("tag:{OWNER_TAG}");
    let mut sent = owner.map(|owner| filters(&[(tag.as_str(), owner)])).unwrap_or_default();
    if ["DescribeSnapshots", "DescribeImages"].contains(&action) {
        // Without it, everybody's public ones are listed too.
        sent.extend(params([("Owner.1", "self")]));
    }
    if action != "DescribeAddresses" {
        sent.extend(params([("MaxResults", "500")]));
        sent.extend(page.map(|page| ("NextToken".to_owned(), page.to_owned())));
    }
    ec2(action, sent)
}

/// The action that deletes a resource, which EC2 refuses where something has it; none for what is never deleted.
pub fn delete(kind: ResourceKind, handle: &str) -> Option<Query> {
    let (action, name) = match kind {
        ResourceKind::Interface => ("DeleteNetworkInterface", "NetworkInterfaceId"),
        ResourceKind::Disk => ("DeleteVolume", "VolumeId"),
        ResourceKind::Address => ("ReleaseAddress", "AllocationId"),
        ResourceKind::Snapshot | ResourceKind::Image | ResourceKind::SecurityGroup | ResourceKind::KeyPair => {
            return None;
        }
    };
    Some(ec2(action, params([(name, handle)])))
}

/// A page of any of these lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourcePage {
    network_interface_set: Items<Interface>,
    volume_set: Items<Volume>,
    addresses_set: Items<Address>,
    snapshot_set: Items<Snapshot>,
    images_set: Items<OwnImage>,
    security_group_info: Items<SharedGroup>,
    pub next_token: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Interface {
    network_interface_id: String,
    availability_zone: String,
    status: String,
    attachment: Attachment,
    tag_set: Items<Tag>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Attachment {
    attachment_id: String,
    instance_id: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Volume {
    volume_id: String,
    volume_type: String,
    size: String,
    iops: String,
    throughput: String,
    availability_zone: String,
    /// `creating`, `available`, `in-use`, `deleting`, `deleted` or `error`.
    status: String,
    create_time: String,
    attachment_set: Items<Attachment>,
    tag_set: Items<Tag>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Address {
    allocation_id: String,
    public_ip: String,
    instance_id: String,
    network_interface_id: String,
    association_id: String,
    tag_set: Items<Tag>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Snapshot {
    snapshot_id: String,
    volume_size: String,
    start_time: String,
    storage_tier: String,
    tag_set: Items<Tag>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OwnImage {
    image_id: String,
    name: String,
    creation_date: String,
    tag_set: Items<Tag>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SharedGroup {
    group_id: String,
    group_name: String,
    tag_set: Items<Tag>,
}

impl ResourcePage {
    /// All resources of this page that are not about to be gone, in the region that was asked for it.
    pub fn all(self, region: &str) -> Vec<CloudResource> {
        let interfaces = self.network_interface_set.item.into_iter().map(|one| one.resource(region));
        let volumes = self.volume_set.item.into_iter().filter_map(|one| one.resource(region));
        let addresses = self.addresses_set.item.into_iter().filter_map(|one| one.resource(region));
        let snapshots = self.snapshot_set.item.into_iter().map(|one| one.resource(region));
        let images = self.images_set.item.into_iter().map(|one| one.resource(region));
        let groups = self.security_group_info.item.into_iter().map(|one| one.resource(region));
        interfaces.chain(volumes).chain(addresses).chain(snapshots).chain(images).chain(groups).collect()
    }
}

fn tags(set: &Items<Tag>) -> ResourceTags {
    ResourceTags::read(|key| set.item.iter().find(|tag| tag.key == key).map(|tag| tag.value.as_str()))
}

fn zone(name: String) -> Option<String> {
    Some(name).filter(|name| !name.is_empty())
}

/// The first of these names that is one.
fn holder(names: [&str; 3]) -> Option<ResourceUse> {
    names.into_iter().find(|name| !name.is_empty()).map(|name| ResourceUse::HeldBy(name.to_owned()))
}

impl Interface {
    fn resource(self, region: &str) -> CloudResource {
        let held = holder([&self.attachment.instance_id, &self.attachment.attachment_id, ""]);
        let used = match self.status.as_str() {
            "available" => held.unwrap_or_default(),
            _ => held.unwrap_or(ResourceUse::Changing),
        };
        let tags = tags(&self.tag_set);
        let zone = zone(self.availability_zone);
        CloudResource {
            zone,
            tags,
            used,
            ..CloudResource::new(ResourceKind::Interface, &self.network_interface_id, region)
        }
    }
}

impl Volume {
    fn resource(self, region: &str) -> Option<CloudResource> {
        let attached = self.attachment_set.item.first();
        let held = attached.and_then(|one| holder([&one.instance_id, &one.attachment_id, ""]));
        let used = match self.status.as_str() {
            "deleting" | "deleted" => return None,
            "available" | "error" => held.unwrap_or_default(),
            _ => held.unwrap_or(ResourceUse::Changing),
        };
        Some(CloudResource {
            tags: tags(&self.tag_set),
            zone: zone(self.availability_zone),
            tier: self.volume_type,
            gib: self.size.parse().ok(),
            iops: self.iops.parse().ok(),
            throughput: self.throughput.parse().ok(),
            used,
            created: times::read(&self.create_time),
            ..CloudResource::new(ResourceKind::Disk, &self.volume_id, region)
        })
    }
}

impl Address {
    /// None for one that cannot be named: the oldest kind of addresses has no id.
    fn resource(self, region: &str) -> Option<CloudResource> {
        if self.allocation_id.is_empty() {
            return None;
        }
        let held = holder([&self.instance_id, &self.network_interface_id, &self.association_id]);
        Some(CloudResource {
            tags: tags(&self.tag_set),
            name: self.public_ip,
            used: held.unwrap_or_default(),
            ..CloudResource::new(ResourceKind::Address, &self.allocation_id, region)
        })
    }
}

impl Snapshot {
    fn resource(self, region: &str) -> CloudResource {
        CloudResource {
            tags: tags(&self.tag_set),
            tier: self.storage_tier,
            gib: self.volume_size.parse().ok(),
            created: times::read(&self.start_time),
            ..CloudResource::new(ResourceKind::Snapshot, &self.snapshot_id, region)
        }
    }
}

impl OwnImage {
    fn resource(self, region: &str) -> CloudResource {
        CloudResource {
            tags: tags(&self.tag_set),
            name: self.name,
            created: times::read(&self.creation_date),
            ..CloudResource::new(ResourceKind::Image, &self.image_id, region)
        }
    }
}

impl SharedGroup {
    fn resource(self, region: &str) -> CloudResource {
        CloudResource {
            tags: tags(&self.tag_set),
            name: self.group_name,
            ..CloudResource::new(ResourceKind::SecurityGroup, &self.group_id, region)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::answers::read;
    use super::super::query::encoded;
    use super::*;

    const TAGS: &str = "<tagSet><item><key>gradus-owner</key><value>me</value></item><item><key>gradus-instance</key>\
                        <value>r-i1</value></item></tagSet>";

    fn page(list: &str, items: &str) -> Vec<CloudResource> {
        let text = format!(
            "<R xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId><{list}>{items}</{list}></R>"
        );
        read::<ResourcePage>(&text).unwrap().all("us-east-1")
    }

    #[test]
    fn each_list_is_that_of_an_owner_or_of_the_account() {
        let check = |kind, owner, page, expected: &str| {
            let query = describe_tagged(listing(kind).unwrap(), owner, page);
            assert_eq!(format!("{} {}", query.action, encoded(&query.params)), expected);
        };
        let tag = "Filter.1.Name=tag%3Agradus-owner&Filter.1.Value.1=me";
        let of = |action: &str, rest: &str| format!("{action} {tag}{rest}");
        let paged = "&MaxResults=500&NextToken=a%2Bb";
        check(ResourceKind::Disk, Some("me"), Some("a+b"), &of("DescribeVolumes", paged));
        check(ResourceKind::Interface, Some("me"), None, &of("DescribeNetworkInterfaces", "&MaxResults=500"));
        check(ResourceKind::Snapshot, Some("me"), None, &of("DescribeSnapshots", "&Owner.1=self&MaxResults=500"));
        check(ResourceKind::Image, Some("me"), None, &of("DescribeImages", "&Owner.1=self&MaxResults=500"));
        check(ResourceKind::SecurityGroup, Some("me"), None, &of("DescribeSecurityGroups", "&MaxResults=500"));
        // EC2 lists addresses without pages.
        check(ResourceKind::Address, Some("me"), Some("a"), &of("DescribeAddresses", ""));
        check(ResourceKind::Disk, None, None, "DescribeVolumes MaxResults=500");
        check(ResourceKind::Snapshot, None, None, "DescribeSnapshots Owner.1=self&MaxResults=500");
        assert_eq!(listing(ResourceKind::KeyPair), None);
    }

    #[test]
    fn what_holds_data_is_never_deleted() {
        let check = |kind, expected: Option<&str>| {
            let query = delete(kind, "h").map(|query| format!("{} {}", query.action, encoded(&query.params)));
            assert_eq!(query.as_deref(), expected, "{kind:?}");
        };
        check(ResourceKind::Disk, Some("DeleteVolume VolumeId=h"));
        check(ResourceKind::Address, Some("ReleaseAddress AllocationId=h"));
        check(ResourceKind::Interface, Some("DeleteNetworkInterface NetworkInterfaceId=h"));
        for kind in [ResourceKind::Snapshot, ResourceKind::Image, ResourceKind::SecurityGroup, ResourceKind::KeyPair] {
            check(kind, None);
        }
    }

    #[test]
    fn volumes_are_read() {
        let volume = |status: &str, attached: &str| {
            let items = format!(
                "<item><volumeId>vol-1</volumeId><size>140</size><snapshotId/><availabilityZone>us-east-1a</availabilityZone>\
                 <status>{status}</status><createTime>2026-11-24T11:00:00.000Z</createTime><attachmentSet>{attached}\
                 </attachmentSet>{TAGS}<volumeType>gp3</volumeType><iops>7000</iops><throughput>437</throughput></item>"
            );
            page("volumeSet", &items)
        };
        let attached = "<item><volumeId>vol-1</volumeId><instanceId>i-1</instanceId><device>/dev/sda1</device><status>attached\
                        </status><deleteOnTermination>true</deleteOnTermination></item>";
        let expected = CloudResource {
            zone: Some("us-east-1a".into()),
            tier: "gp3".into(),
            gib: Some(140),
            iops: Some(7000),
            throughput: Some(437),
            tags: ResourceTags {
                owner: Some("me".into()),
                instance: Some(domain::InstanceId::new("r-i1")),
                members: 1,
            },
            used: ResourceUse::HeldBy("i-1".into()),
            created: times::read("2026-11-24T11:00:00Z"),
            ..CloudResource::new(ResourceKind::Disk, "vol-1", "us-east-1")
        };
        assert_eq!(volume("in-use", attached), [expected]);
        let used = |status: &str, attached: &str| volume(status, attached)[0].used.clone();
        assert_eq!(used("available", ""), ResourceUse::Nothing);
        assert_eq!(used("error", ""), ResourceUse::Nothing);
        assert_eq!(used("creating", ""), ResourceUse::Changing);
        // It is being attached to something that is not named yet.
        assert_eq!(used("in-use", ""), ResourceUse::Changing);
        assert_eq!(used("available", attached), ResourceUse::HeldBy("i-1".into()), "never against what it says");
        assert_eq!(volume("deleting", ""), []);
        assert_eq!(page("volumeSet", "<item><volumeId>vol-1</volumeId></item>")[0].used, ResourceUse::Changing);
    }

    #[test]
    fn addresses_and_interfaces_are_read() {
        let address = |rest: &str| {
            let items = format!(
                "<item><publicIp>192.0.2.7</publicIp><allocationId>eipalloc-1</allocationId><domain>vpc</domain>{rest}{TAGS}</item>"
            );
            page("addressesSet", &items).remove(0)
        };
        assert_eq!(address("<instanceId/><networkInterfaceId/>").used, ResourceUse::Nothing);
        for held in ["instanceId", "networkInterfaceId", "associationId"] {
            assert_eq!(address(&format!("<{held}>x-1</{held}>")).used, ResourceUse::HeldBy("x-1".into()), "{held}");
        }
        assert_eq!((address("").name.as_str(), address("").tags.owner.as_deref()), ("192.0.2.7", Some("me")));
        assert_eq!(page("addressesSet", "<item><publicIp>192.0.2.7</publicIp></item>"), []);
        let interface = |status: &str, rest: &str| {
            let items = format!(
                "<item><networkInterfaceId>eni-1</networkInterfaceId><status>{status}</status>{rest}{TAGS}</item>"
            );
            page("networkInterfaceSet", &items).remove(0).used
        };
        assert_eq!(interface("available", ""), ResourceUse::Nothing);
        assert_eq!(interface("pending", ""), ResourceUse::Changing);
        let attached = "<attachment><attachmentId>eni-attach-1</attachmentId><instanceId>i-1</instanceId></attachment>";
        assert_eq!(interface("in-use", attached), ResourceUse::HeldBy("i-1".into()));
    }

    #[test]
    fn copies_and_groups_are_read() {
        let snapshot = format!(
            "<item><snapshotId>snap-1</snapshotId><volumeId>vol-1</volumeId><status>completed</status>\
             <startTime>2026-11-24T11:00:00.000Z</startTime><volumeSize>140</volumeSize>{TAGS}</item>"
        );
        let snapshot = page("snapshotSet", &snapshot).remove(0);
        assert_eq!((snapshot.gib, snapshot.created), (Some(140), times::read("2026-11-24T11:00:00Z")));
        let image = "<item><imageId>ami-1</imageId><name>mine</name><creationDate>2026-11-24T11:00:00.000Z</creationDate></item>";
        let image = page("imagesSet", image).remove(0);
        assert_eq!((image.handle.as_str(), image.name.as_str(), image.tags.owner), ("ami-1", "mine", None));
        let group = format!("<item><groupId>sg-1</groupId><groupName>gradus-x</groupName>{TAGS}</item>");
        let group = page("securityGroupInfo", &group).remove(0);
        assert_eq!((group.kind, group.name.as_str()), (ResourceKind::SecurityGroup, "gradus-x"));
        assert_eq!(read::<ResourcePage>("<R><volumeSet/><nextToken>more</nextToken></R>").unwrap().next_token, "more");
    }
}
