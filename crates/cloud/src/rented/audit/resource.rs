//! What a cloud lists beside machines: disks, addresses, network interfaces, snapshots, images, and what machines share.

use std::collections::BTreeMap;
use std::fmt::Display;

use domain::{InstanceId, Timestamp};

use crate::aws::is_name;
use crate::aws::wire::query::{INSTANCE_TAG, MEMBERS_TAG, OWNER_TAG};

/// Machines that one request rents at most; a tag that states more is not believed.
const MEMBERS: u64 = 4096;

/// Places that a sentence names.
const NAMED: usize = 3;

/// The kind of a resource, in the order in which an audit ends them: an interface may have an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    Interface,
    Disk,
    Address,
    /// A copy of a disk.
    Snapshot,
    /// An image that machines boot.
    Image,
    /// A firewall of machines, which those of one network share.
    SecurityGroup,
    /// A key that enters machines.
    KeyPair,
}

impl ResourceKind {
    /// What one is called.
    pub fn noun(self) -> &'static str {
        match self {
            ResourceKind::Interface => "network interface",
            ResourceKind::Disk => "disk",
            ResourceKind::Address => "address",
            ResourceKind::Snapshot => "snapshot",
            ResourceKind::Image => "image",
            ResourceKind::SecurityGroup => "security group",
            ResourceKind::KeyPair => "SSH key",
        }
    }

    /// What several are called.
    pub fn plural(self) -> &'static str {
        match self {
            ResourceKind::Interface => "network interfaces",
            ResourceKind::Disk => "disks",
            ResourceKind::Address => "addresses",
            ResourceKind::Snapshot => "snapshots",
            ResourceKind::Image => "images",
            ResourceKind::SecurityGroup => "security groups",
            ResourceKind::KeyPair => "SSH keys",
        }
    }
}

/// The tags of ours that stand on a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ResourceTags {
    /// Whose it is, as its cloud writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Our name of the machine that it was made with: of the first one, if several were rented together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceId>,
    /// How many were rented together, where there were several.
    #[serde(skip)]
    pub members: u64,
}

impl ResourceTags {
    /// The tags of ours, of all that `tag` knows by their keys.
    pub fn read<'a>(tag: impl Fn(&str) -> Option<&'a str>) -> ResourceTags {
        ResourceTags {
            owner: tag(OWNER_TAG).map(str::to_owned),
            instance: tag(INSTANCE_TAG).filter(|name| is_name(name)).map(InstanceId::new),
            members: tag(MEMBERS_TAG).and_then(|count| count.parse().ok()).unwrap_or(1),
        }
    }

    /// The machines that it may have been made with.
    pub fn instances(&self) -> impl Iterator<Item = InstanceId> + '_ {
        let following = move |more: u64| match (&self.instance, more) {
            (Some(first), 0) => Some(first.clone()),
            (Some(first), more) => first.following(more),
            (None, _) => None,
        };
        (0..self.members.clamp(1, MEMBERS)).filter_map(following)
    }
}

/// What has a resource now.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceUse {
    #[default]
    Nothing,
    /// A machine or an interface, by the cloud's name of it.
    HeldBy(String),
    /// It is being made, attached or detached.
    Changing,
}

/// A resource as its cloud lists it. One that is gone, or about to be, is not listed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CloudResource {
    pub kind: ResourceKind,
    /// The cloud's name of it.
    pub handle: String,
    pub region: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The name that it was given, where it has one of its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The cloud's name of its type, such as `gp3`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub tier: String,
    /// Its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gib: Option<u64>,
    /// Its IOPS and MiB/s, where its cloud provisions them and says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<u32>,
    #[serde(flatten)]
    pub tags: ResourceTags,
    #[serde(rename = "use")]
    pub used: ResourceUse,
    /// Since when it is there, if the cloud says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Since when nothing has it, if the cloud says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused_since: Option<Timestamp>,
}

impl CloudResource {
    /// A resource of which only its kind, its name at the cloud and its region are known.
    pub fn new(kind: ResourceKind, handle: &str, region: &str) -> CloudResource {
        CloudResource {
            kind,
            handle: handle.to_owned(),
            region: region.to_owned(),
            zone: None,
            name: String::new(),
            tier: String::new(),
            gib: None,
            iops: None,
            throughput: None,
            tags: ResourceTags::default(),
            used: ResourceUse::Nothing,
            created: None,
            unused_since: None,
        }
    }

    /// What distinguishes it from all others of its cloud: a name alone may be that of an interface and of its address.
    pub fn key(&self) -> String {
        format!("{}/{}/{}", self.kind.noun(), self.region, self.handle)
    }
}

/// The resources of an account, and what could not be listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceList {
    pub found: Vec<CloudResource>,
    /// The places of each kind that could not be listed, by the reason.
    unseen: BTreeMap<(ResourceKind, String), Vec<String>>,
}

impl ResourceList {
    /// Adds what is of one kind in one place, or why that is not known.
    pub fn add<E: Display>(&mut self, kind: ResourceKind, place: &str, listed: Result<Vec<CloudResource>, E>) {
        match listed {
            Ok(found) => self.found.extend(found),
            // A permission that is missing is missing in each region.
            Err(why) => self.unseen.entry((kind, why.to_string())).or_default().push(place.to_owned()),
        }
    }

    /// Whether everything was listed.
    pub fn is_complete(&self) -> bool {
        self.unseen.is_empty()
    }

    /// What could not be listed, with the reason: a sentence for each.
    pub fn unseen(&self) -> Vec<String> {
        let sentence = |((kind, why), places): (&(ResourceKind, String), &Vec<String>)| {
            let named = places.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = places.len().saturating_sub(NAMED);
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{} in {named}{rest}: {why}", kind.plural())
        };
        self.unseen.iter().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_name_the_machines_that_were_rented_together() {
        let check = |tags: &[(&str, &str)], expected: &[&str]| {
            let read = ResourceTags::read(|key| tags.iter().find(|(known, _)| *known == key).map(|(_, value)| *value));
            let names: Vec<String> = read.instances().map(|instance| instance.to_string()).collect();
            assert_eq!(names, expected, "{tags:?}");
        };
        check(&[], &[]);
        check(&[("gradus-instance", "r-i9")], &["r-i9"]);
        check(&[("gradus-instance", "r-i9"), ("gradus-members", "3")], &["r-i9", "r-i10", "r-i11"]);
        check(&[("gradus-instance", "r-i9"), ("gradus-members", "0")], &["r-i9"]);
        check(&[("gradus-instance", "r-i9"), ("gradus-members", "many")], &["r-i9"]);
        check(&[("gradus-instance", "own"), ("gradus-members", "2")], &["own"]);
        check(&[("gradus-instance", "../r-i9")], &[]);
        let endless = ResourceTags { instance: Some(InstanceId::new("r-i1")), members: u64::MAX, owner: None };
        assert_eq!(endless.instances().count(), 4096, "a tag that states more is not believed");
    }

    #[test]
    fn what_could_not_be_listed_is_said_once_for_all_regions() {
        let mut list = ResourceList::default();
        let disk = CloudResource::new(ResourceKind::Disk, "vol-1", "a");
        list.add::<String>(ResourceKind::Disk, "a", Ok(vec![disk.clone()]));
        assert!(list.is_complete());
        for place in ["b", "c", "d", "e", "f"] {
            list.add(ResourceKind::Disk, place, Err("not allowed"));
        }
        list.add(ResourceKind::Address, "b", Err("not allowed"));
        assert_eq!((list.found.as_slice(), list.is_complete()), (&[disk][..], false));
        assert_eq!(list.unseen(), ["disks in b, c, d and 2 more: not allowed", "addresses in b: not allowed"]);
    }

    #[test]
    fn an_interface_and_its_address_are_told_apart() {
        let key = |kind| CloudResource::new(kind, "gradus-a-b", "eastus").key();
        assert_eq!(key(ResourceKind::Address), "address/eastus/gradus-a-b");
        assert_ne!(key(ResourceKind::Address), key(ResourceKind::Interface));
    }
}
