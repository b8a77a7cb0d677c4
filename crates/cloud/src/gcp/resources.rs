//! What a project has beside machines: disks, addresses, snapshots and images, each kind in one list of all places.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Gcp, OWNER_LABEL, last, owner_label, wire};
use crate::aws::wire::query::word;
use crate::rented::audit::resource::{CloudResource, ResourceKind, ResourceList, ResourceTags, ResourceUse};
use crate::rented::{CloudFailure, name_prefix};

/// Pages of one list that are read; more is taken for a mistake.
const PAGES: usize = 1000;

/// What is listed, and where.
const LISTS: [(ResourceKind, &str); 4] = [
    (ResourceKind::Disk, "aggregated/disks"),
    (ResourceKind::Address, "aggregated/addresses"),
    (ResourceKind::Snapshot, "global/snapshots"),
    (ResourceKind::Image, "global/images"),
];

/// The place of what is in none of its own.
const GLOBAL: &str = "global";

/// A page of one of these lists.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourcesPage {
    #[serde(default)]
    items: ListItems,
    #[serde(default)]
    next_page_token: Option<String>,
    /// Zones and regions that could not be looked at.
    #[serde(default)]
    unreachables: Vec<String>,
}

/// What is on a page: by place, or in none.
#[derive(Deserialize)]
#[serde(untagged)]
enum ListItems {
    Placeless(Vec<ListedResource>),
    ByPlace(BTreeMap<String, PlaceItems>),
}

impl Default for ListItems {
    fn default() -> ListItems {
        ListItems::Placeless(Vec::new())
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PlaceItems {
    disks: Vec<ListedResource>,
    addresses: Vec<ListedResource>,
}

impl ListItems {
    fn all(self) -> Vec<ListedResource> {
        match self {
            ListItems::Placeless(items) => items,
            ListItems::ByPlace(places) => {
                places.into_values().flat_map(|place| place.disks.into_iter().chain(place.addresses)).collect()
            }
        }
    }
}

/// Anything of these kinds. Whatever is missing of one must not hide another one.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListedResource {
    name: String,
    zone: String,
    region: String,
    status: String,
    labels: BTreeMap<String, String>,
    /// The addresses of what has it.
    users: Vec<String>,
    /// The address of the type of a disk.
    r#type: String,
    address_type: String,
    size_gb: String,
    disk_size_gb: String,
    creation_timestamp: String,
    last_detach_timestamp: String,
}

impl ListedResource {
    /// The resource; none that is about to be gone.
    fn resource(&self, kind: ResourceKind) -> Option<CloudResource> {
        let held = self.users.first().map(|user| ResourceUse::HeldBy(last(user).to_owned()));
        let used = match (kind, self.status.as_str()) {
            (_, "DELETING") => return None,
            (ResourceKind::Snapshot | ResourceKind::Image, _) => ResourceUse::Nothing,
            (ResourceKind::Disk, "READY" | "FAILED") | (ResourceKind::Address, "RESERVED") => held.unwrap_or_default(),
            _ => held.unwrap_or(ResourceUse::Changing),
        };
        let zone = last(&self.zone);
        let region = match zone {
            "" if self.region.is_empty() => GLOBAL,
            "" => last(&self.region),
            zone => zone.rsplit_once('-').map_or(zone, |(region, _)| region),
        };
        let is_address = kind == ResourceKind::Address;
        let tier = if is_address { self.address_type.as_str() } else { last(&self.r#type) };
        let size = if self.size_gb.is_empty() { &self.disk_size_gb } else { &self.size_gb };
        let owner = self.labels.get(OWNER_LABEL).cloned();
        Some(CloudResource {
            zone: Some(zone.to_owned()).filter(|zone| !zone.is_empty()),
            name: self.name.clone(),
            tier: tier.to_owned(),
            gib: size.parse().ok(),
            tags: ResourceTags { owner, ..ResourceTags::default() },
            used,
            created: wire::time(&self.creation_timestamp),
            unused_since: wire::time(&self.last_detach_timestamp),
            ..CloudResource::new(kind, &self.name, region)
        })
    }
}

impl Gcp {
    /// What an owner has, by its label or its name; with `lists_all` what everybody in the project has.
    pub(super) fn resources_of(&self, owner: &str, lists_all: bool) -> ResourceList {
        let (label, prefix) = (owner_label(owner), name_prefix(owner));
        let is_meant =
            |one: &CloudResource| lists_all || one.name.starts_with(&prefix) || one.tags.owner.as_ref() == Some(&label);
        let mut list = ResourceList::default();
        for (kind, path) in LISTS {
            let listed = self.listed_resources(kind, path);
            list.add(kind, &self.project, listed.map(|found| found.into_iter().filter(is_meant).collect()));
        }
        list
    }

    /// All pages of a list.
    fn listed_resources(&self, kind: ResourceKind, path: &str) -> Result<Vec<CloudResource>, CloudFailure> {
        let (mut found, mut page) = (Vec::new(), String::new());
        for _ in 0..PAGES {
            let list: ResourcesPage = self.client.get(&self.path(&format!("{path}?maxResults=500{page}")))?;
            if !list.unreachables.is_empty() {
                return Err(CloudFailure::Doubt(format!("could not look at {}", list.unreachables.join(", "))));
            }
            found.extend(list.items.all().into_iter().filter_map(|one| one.resource(kind)));
            match list.next_page_token.filter(|token| !token.is_empty()) {
                Some(token) => page = format!("&pageToken={}", word(&token)),
                None => return Ok(found),
            }
        }
        Err(CloudFailure::Doubt("the list has no end".to_owned()))
    }

    /// Deletes a disk or an address, which Google refuses where something has it.
    pub(super) fn delete_resource(&self, resource: &CloudResource) -> Result<(), CloudFailure> {
        let kind = match resource.kind {
            ResourceKind::Disk => "disks",
            ResourceKind::Address => "addresses",
            other => return Err(CloudFailure::Invalid(format!("gradus deletes no {} of `gcp`", other.noun()))),
        };
        let place = match (&resource.zone, resource.region.as_str()) {
            (Some(zone), _) => format!("zones/{}", word(zone)),
            (None, GLOBAL) => GLOBAL.to_owned(),
            (None, region) => format!("regions/{}", word(region)),
        };
        self.client.delete(&self.path(&format!("{place}/{kind}/{}", word(&resource.handle))))
    }
}
