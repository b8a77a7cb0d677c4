//! What the stand-in has beside machines, and what an audit makes of it.

use super::*;
use crate::rented::twin::audits_beside;

impl TwinState {
    /// A page of a list, with one resource: by its number for addresses, by a token for what ECS lists.
    pub(super) fn list_beside(&self, kind: &str, region: &str, form: &Form) -> Result<HttpReply, String> {
        if self.silent == Some(region) {
            return Err("timed out".to_owned());
        }
        assert_eq!(form["RegionId"], region);
        let owner = form.get("Tag.1.Value").map(String::as_str);
        let is_meant = |((of, place, _), one): &(&(String, String, String), &Value)| {
            of == kind && place == region && owner.is_none_or(|owner| one["Tags"]["Tag"][0]["Owner"] == owner)
        };
        let found: Vec<&Value> = self.beside.iter().filter(is_meant).map(|(_, one)| one).collect();
        let number = form.get("PageNumber").map_or(0, |number| number.parse::<usize>().unwrap() - 1);
        let at = form.get("NextToken").map_or(number, |token| token.parse().unwrap());
        let next = if at + 1 < found.len() { (at + 1).to_string() } else { String::new() };
        let page: Vec<&Value> = found.iter().copied().skip(at).take(1).collect();
        let several = if kind == "EipAddress" { "EipAddresses".to_owned() } else { format!("{kind}s") };
        let mut answer = json!({ "RequestId": "r", "TotalCount": found.len(), several: { kind: page } });
        if kind != "EipAddress" {
            answer["NextToken"] = next.into();
        }
        ok(&answer)
    }

    pub(super) fn delete_beside(&mut self, kind: &str, region: &str, id: &str) -> Result<HttpReply, String> {
        let key = (kind.to_owned(), region.to_owned(), id.to_owned());
        match self.beside.get(&key) {
            Some(one) if one["InstanceId"] != "" => refuse(403, "IncorrectDiskStatus"),
            Some(_) => {
                self.beside.remove(&key);
                ok(&json!({ "RequestId": "r" }))
            }
            None => refuse(404, if kind == "Disk" { "InvalidDiskId.NotFound" } else { "InvalidAllocationId.NotFound" }),
        }
    }

    /// Adds a resource that has been there since 10:26:40, with the tags of an owner's machine.
    fn add(&mut self, (kind, region, id): (&str, &str, &str), (owner, instance): (&str, &str), mut more: Value) {
        let (name, value, since) = match kind {
            "EipAddress" => ("Key", "Value", "AllocationTime"),
            _ => ("TagKey", "TagValue", "CreationTime"),
        };
        more[match kind {
            "Disk" => "DiskId",
            "Snapshot" => "SnapshotId",
            _ => "AllocationId",
        }] = id.into();
        more[since] = "2025-11-24T10:26:40Z".into();
        more["Tags"] = json!({ "Tag": [{ name: "gradus-owner", value: owner, "Owner": owner },
                                       { name: "gradus-instance", value: instance }] });
        if more["InstanceId"].is_null() {
            more["InstanceId"] = "".into();
        }
        self.beside.insert((kind.to_owned(), region.to_owned(), id.to_owned()), more);
    }
}

fn disk(detached: &str) -> Value {
    json!({ "Category": "cloud_essd", "Size": 200, "Status": "Available", "DetachedTime": detached })
}

#[test]
fn an_audit_finds_what_is_beside_machines_in_all_regions_and_ends_what_nothing_needs() {
    let twin = Arc::new(Twin::default());
    let gone = (OWNER, "r-i9");
    let (here, there) = ("cn-hangzhou", "us-east-1");
    let mut state = twin.state.lock().unwrap();
    state.add(("Disk", here, "d-left"), gone, disk("2025-11-24T11:26:40Z"));
    state.add(("Disk", here, "d-new"), gone, disk("2025-11-24T11:36:39Z"));
    state.add(("Disk", there, "d-far"), gone, disk(""));
    state.add(("Disk", here, "d-rented"), (OWNER, "r-i1"), disk(""));
    state.add(("Disk", here, "d-others"), ("you", "r-i9"), disk(""));
    let held = json!({ "Category": "cloud_essd", "Size": 200, "Status": "In_use", "InstanceId": "i-1" });
    state.add(("Disk", here, "d-held"), gone, held);
    for id in ["eip-1", "eip-2"] {
        state.add(("EipAddress", there, id), gone, json!({ "Status": "Available", "IpAddress": "192.0.2.7" }));
    }
    state.add(("Snapshot", here, "s-copy"), gone, json!({ "SourceDiskSize": "200" }));
    drop(state);
    let expected = [
        "address eip-1 Orphaned unknown",
        "address eip-2 Orphaned unknown",
        "disk d-far Orphaned unknown",
        "disk d-held InUse unknown",
        "disk d-left Orphaned unknown",
        "disk d-new Young unknown",
        "disk d-rented Rented unknown",
        "snapshot s-copy ByHand unknown",
    ];
    let first = times::read("2025-11-24T11:26:40Z").unwrap();
    audits_beside(&Cloud::Alibaba, &api(&twin), first, &expected);
    assert_eq!(twin.state.lock().unwrap().beside.len(), 5);
}

#[test]
fn a_region_that_does_not_answer_and_a_denial_are_named() {
    let twin = Arc::new(Twin::default());
    twin.state.lock().unwrap().silent = Some("us-east-1");
    let unseen = api(&twin).resources(OWNER, false).unseen();
    assert!(unseen.iter().any(|why| why.starts_with("disks in us-east-1: no answer")), "{unseen:?}");
    twin.state.lock().unwrap().silent = None;
    twin.state.lock().unwrap().denied = Some("DescribeSnapshots");
    let unseen = api(&twin).resources(OWNER, false).unseen();
    let expected = "snapshots in ap-southeast-1, cn-hangzhou, us-east-1: Forbidden.RAM: as asked";
    assert!(unseen.len() == 1 && unseen[0].starts_with(expected), "{unseen:?}");
    twin.state.lock().unwrap().denied = Some("DescribeRegions");
    let list = api(&twin).resources(OWNER, false);
    assert!(!list.is_complete() && list.unseen()[0].starts_with("disks in every region: Forbidden.RAM"), "{list:?}");
}
