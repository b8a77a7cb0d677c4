//! What the stand-in has beside machines, and what an audit makes of it.

use super::*;
use crate::rented::audit::resource::{ResourceKind, ResourceUse};
use crate::rented::machine_name;
use crate::rented::twin::{OWNER, audits_beside};

impl TwinState {
    /// A list, with one resource a page; that of all places by place.
    pub(super) fn list_beside(&self, kind: &str, query: &str) -> Result<HttpReply, String> {
        let at: usize = query.split("pageToken=").nth(1).map_or(0, |token| token.parse().unwrap());
        let is_meant = |path: &&String| path.split('/').rev().nth(1) == Some(kind);
        let paths: Vec<&String> = self.beside.keys().filter(is_meant).collect();
        let aggregates = ["disks", "addresses"].contains(&kind);
        let items = match paths.get(at) {
            Some(path) if aggregates => {
                let (place, _) = path.split_once(&format!("/{kind}/")).unwrap();
                json!({ "zones/empty": { "warning": { "code": "NO_RESULTS_ON_PAGE" } },
                        place: { kind: [self.beside[*path]] } })
            }
            Some(path) => json!([self.beside[*path]]),
            None if aggregates => json!({}),
            None => return ok(json!({ "kind": "compute#list" })),
        };
        let next = if at + 1 < paths.len() { json!((at + 1).to_string()) } else { Value::Null };
        let unreachables = if self.unreachable { vec!["zones/us-west1-a"] } else { Vec::new() };
        ok(json!({ "items": items, "nextPageToken": next, "unreachables": unreachables }))
    }

    pub(super) fn delete_beside(&mut self, path: &str) -> Result<HttpReply, String> {
        match self.beside.get(path) {
            Some(resource) if resource["users"].as_array().is_some_and(|users| !users.is_empty()) => {
                refuse(400, "resourceInUseByAnotherResource")
            }
            Some(_) => {
                self.beside.remove(path);
                ok(json!({ "name": "o", "status": "RUNNING" }))
            }
            None => refuse(404, "notFound"),
        }
    }

    /// Adds a resource in a place, with a label of its owner.
    fn add(&mut self, (place, kind, name): (&str, &str, &str), owner: Option<&str>, mut more: Value) {
        let address = |place: &str| format!("https://www.googleapis.com/compute/v1/projects/p/{place}");
        more["name"] = name.into();
        more["creationTimestamp"] = "2025-11-24T02:26:40.000-08:00".into();
        if let Some(owner) = owner {
            more["labels"] = json!({ "gradus-owner": owner_label(owner) });
        }
        match place.split_once('/') {
            Some(("zones", _)) => more["zone"] = address(place).into(),
            Some(_) => more["region"] = address(place).into(),
            None => {}
        }
        self.beside.insert(format!("{place}/{kind}/{name}"), more);
    }
}

fn disk(users: &[&str], detached: &str) -> Value {
    json!({ "status": "READY", "sizeGb": "140", "users": users, "lastDetachTimestamp": detached,
            "type": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-b/diskTypes/pd-ssd" })
}

const ZONE: &str = "zones/us-central1-b";
const MADE: &str = "2025-11-24T10:26:40Z";

fn at(text: &str) -> domain::Timestamp {
    crate::aws::wire::times::read(text).unwrap()
}

#[test]
fn an_audit_finds_what_is_beside_machines_and_ends_what_nothing_needs() {
    let twin = Arc::new(Twin::default());
    let rented = machine_name(OWNER, &InstanceId::new("r-i1"));
    let mut state = twin.state.lock().unwrap();
    let disks = |name: &'static str| (ZONE, "disks", name);
    state.add((ZONE, "disks", &rented), Some(OWNER), disk(&[], ""));
    state.add(disks("held"), Some(OWNER), disk(&["https://x/zones/us-central1-b/instances/m"], ""));
    state.add(disks("left"), Some(OWNER), disk(&[], "2025-11-24T03:26:40.000-08:00"));
    state.add(disks("new"), Some(OWNER), disk(&[], "2025-11-24T03:36:39.000-08:00"));
    state.add(disks("going"), Some(OWNER), json!({ "status": "DELETING" }));
    state.add(("regions/us-central1", "disks", "regional"), Some(OWNER), disk(&[], ""));
    state.add(disks("others"), Some("you"), disk(&[], ""));
    state.add(disks("plain"), None, disk(&[], ""));
    state.add((ZONE, "disks", &machine_name(OWNER, &InstanceId::new("r-i9"))), None, disk(&[], ""));
    let reserved = json!({ "status": "RESERVED", "addressType": "EXTERNAL", "address": "192.0.2.7" });
    state.add(("regions/us-central1", "addresses", "ip"), Some(OWNER), reserved.clone());
    state.add(("global", "addresses", "anycast"), Some(OWNER), reserved);
    let used = json!({ "status": "IN_USE", "addressType": "EXTERNAL", "users": ["https://x/instances/m"] });
    state.add(("regions/us-central1", "addresses", "used"), Some(OWNER), used);
    state.add(("global", "snapshots", "copy"), Some(OWNER), json!({ "status": "READY", "diskSizeGb": "10" }));
    state.add(("global", "images", "image"), Some(OWNER), json!({ "status": "READY", "diskSizeGb": "10" }));
    drop(state);
    let named = machine_name(OWNER, &InstanceId::new("r-i9"));
    let mut expected = [
        "address anycast Orphaned $0.01/h".to_owned(),
        "address ip Orphaned $0.01/h".to_owned(),
        "address used InUse at most $0.01/h".to_owned(),
        "disk held InUse $0.032603/h".to_owned(),
        "disk left Orphaned $0.032603/h".to_owned(),
        "disk new Young $0.032603/h".to_owned(),
        "disk regional Orphaned $0.032603/h".to_owned(),
        format!("disk {rented} Rented $0.032603/h"),
        format!("disk {named} ByHand $0.032603/h"),
        "image image ByHand unknown".to_owned(),
        "snapshot copy ByHand at most $0.000685/h".to_owned(),
    ];
    expected.sort();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    // Ten minutes later it is 11:36:40.
    audits_beside(&Cloud::Gcp, &api(&twin), at("2025-11-24T11:26:40Z"), &expected);
    let state = twin.state.lock().unwrap();
    assert!(state.beside.contains_key(&format!("{ZONE}/disks/others")));
    assert!(!state.beside.contains_key("global/addresses/anycast"));
}

#[test]
fn disks_are_read_with_the_times_that_google_states() {
    let twin = Arc::new(Twin::default());
    let detached = "2025-11-24T03:26:40.000-08:00";
    twin.state.lock().unwrap().add((ZONE, "disks", "left"), Some(OWNER), disk(&[], detached));
    let held = disk(&["https://x/zones/us-central1-b/instances/m"], detached);
    twin.state.lock().unwrap().add((ZONE, "disks", "held"), Some(OWNER), held);
    let found = api(&twin).resources(OWNER, false).found;
    let left = found.iter().find(|one| one.name == "left").unwrap();
    assert_eq!((left.kind, left.region.as_str()), (ResourceKind::Disk, "us-central1"));
    assert_eq!((left.zone.as_deref(), left.tier.as_str(), left.gib), (Some("us-central1-b"), "pd-ssd", Some(140)));
    assert_eq!((left.created, left.unused_since), (Some(at(MADE)), Some(at("2025-11-24T11:26:40Z"))));
    let held = found.iter().find(|one| one.name == "held").unwrap();
    assert_eq!(held.used, ResourceUse::HeldBy("m".into()));
    assert!(matches!(api(&twin).end_resource(held), Err(CloudFailure::Invalid(_))), "Google refuses it");
}

#[test]
fn a_place_that_does_not_answer_is_named() {
    let twin = Arc::new(Twin::default());
    twin.state.lock().unwrap().add((ZONE, "disks", "left"), Some(OWNER), disk(&[], ""));
    twin.state.lock().unwrap().unreachable = true;
    let list = api(&twin).resources(OWNER, false);
    assert!(!list.is_complete() && list.found.is_empty(), "{list:?}");
    assert!(list.unseen().contains(&"disks in p: could not look at zones/us-west1-a".to_owned()), "{list:?}");
}

#[test]
fn the_disk_of_a_machine_carries_the_label_of_its_owner() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    let state = twin.state.lock().unwrap();
    let machine = state.machines.values().next().unwrap();
    assert_eq!(machine["disks"][0]["initializeParams"]["labels"], json!({ "gradus-owner": owner_label(OWNER) }));
}
