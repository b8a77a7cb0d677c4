//! What the stand-in has beside machines, and what an audit makes of it.

use super::*;
use crate::rented::twin::audits_beside;

impl TwinState {
    /// A page of a list, with one resource.
    pub(super) fn list_beside(&self, kind: &str, region: &str, body: &Value) -> Result<HttpReply, String> {
        if self.silent == Some(region) {
            return Err("timed out".to_owned());
        }
        let owner = body.get("Filters").map(|_| filter(body, "tag:gradus-owner"));
        let is_meant = |((place, _), one): &(&(String, String), &Value)| {
            place == region && one.get(format!("{kind}Id")).is_some() && owner.is_none_or(|owner| one["Owner"] == owner)
        };
        let found: Vec<&Value> = self.beside.iter().filter(is_meant).map(|(_, one)| one).collect();
        let at = body["Offset"].as_u64().unwrap_or(0) as usize;
        let page: Vec<&Value> = found.iter().copied().skip(at).take(1).collect();
        let set = format!("{kind}Set");
        ok(json!({ "TotalCount": found.len(), set: page }))
    }

    pub(super) fn delete_beside(&mut self, region: &str, ids: &Value) -> Result<HttpReply, String> {
        let key = (region.to_owned(), ids[0].as_str().unwrap().to_owned());
        match self.beside.get(&key) {
            Some(one) if one["InstanceId"] != "" => refuse("ResourceBusy"),
            Some(_) => {
                self.beside.remove(&key);
                ok(json!({}))
            }
            None => refuse("InvalidDisk.NotFound"),
        }
    }

    /// Adds a resource, with the tags of an owner's machine.
    fn add(&mut self, (kind, region, id): (&str, &str, &str), (owner, instance): (&str, &str), mut more: Value) {
        let tags = json!([{ "Key": "gradus-owner", "Value": owner }, { "Key": "gradus-instance", "Value": instance }]);
        more[format!("{kind}Id")] = id.into();
        more[if kind == "Disk" { "Tags" } else { "TagSet" }] = tags;
        more["Owner"] = owner.into();
        if more["InstanceId"].is_null() {
            more["InstanceId"] = "".into();
        }
        self.beside.insert((region.to_owned(), id.to_owned()), more);
    }
}

/// A disk that nothing has, made at this time of Beijing.
fn disk(made: &str) -> Value {
    json!({ "DiskType": "CLOUD_SSD", "DiskSize": 200, "DiskState": "UNATTACHED", "CreateTime": made })
}

#[test]
fn an_audit_finds_what_is_beside_machines_in_all_regions_and_ends_what_nothing_needs() {
    let twin = Arc::new(Twin::default());
    let (here, there, gone) = ("ap-guangzhou", "eu-frankfurt", (OWNER, "r-i9"));
    let old = "2025-11-24 10:26:40";
    let mut state = twin.state.lock().unwrap();
    state.add(("Disk", here, "disk-left"), gone, disk(old));
    state.add(("Disk", here, "disk-new"), gone, disk("2025-11-24 11:30:00"));
    state.add(("Disk", there, "disk-far"), gone, disk(old));
    state.add(("Disk", here, "disk-rented"), (OWNER, "r-i1"), disk(old));
    state.add(("Disk", here, "disk-others"), ("you", "r-i9"), disk(old));
    let held = json!({ "DiskType": "CLOUD_SSD", "DiskSize": 200, "DiskState": "ATTACHED", "InstanceId": "ins-1" });
    state.add(("Disk", here, "disk-held"), gone, held);
    let free = json!({ "AddressStatus": "UNBIND", "AddressIp": "192.0.2.7", "CreatedTime": "2025-11-24T10:26:40Z" });
    state.add(("Address", there, "eip-1"), gone, free.clone());
    state.add(("Address", there, "eip-2"), gone, free);
    drop(state);
    let expected = [
        "address eip-1 Orphaned unknown",
        "address eip-2 Orphaned unknown",
        "disk disk-far Orphaned unknown",
        "disk disk-held InUse unknown",
        "disk disk-left Orphaned unknown",
        "disk disk-new Young unknown",
        "disk disk-rented Rented unknown",
    ];
    let first = times::read("2025-11-24T11:26:40Z").unwrap();
    audits_beside(&Cloud::Tencent, &api(&twin), first, &expected);
    assert_eq!(twin.state.lock().unwrap().beside.len(), 4);
}

#[test]
fn a_region_that_does_not_answer_is_named() {
    let twin = Arc::new(Twin::default());
    twin.state.lock().unwrap().silent = Some("eu-frankfurt");
    let unseen = api(&twin).resources(OWNER, false).unseen();
    assert!(unseen.len() == 2 && unseen[0].starts_with("disks in eu-frankfurt: no answer"), "{unseen:?}");
}
