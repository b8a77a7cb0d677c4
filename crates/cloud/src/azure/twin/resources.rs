//! What the stand-in has beside machines, and what an audit makes of it.

use domain::InstanceId;

use super::*;
use crate::rented::machine_name;
use crate::rented::twin::{OWNER, audits_beside};

impl TwinState {
    /// Everything of a type.
    pub(super) fn beside_of(&self, namespace: &str, kind: &str) -> Vec<Value> {
        let of = format!("{namespace}/{kind}");
        self.beside.iter().filter(|((known, _), _)| *known == of).map(|(_, value)| value.clone()).collect()
    }

    pub(super) fn list_beside(&self, namespace: &str, kind: &str) -> Result<HttpReply, String> {
        reply(200, &[], &json!({ "value": self.beside_of(namespace, kind) }))
    }

    pub(super) fn machine(&self, name: &str) -> Result<HttpReply, String> {
        match self.machines.get(name) {
            Some(machine) => reply(200, &[], machine),
            None => refuse(404, "ResourceNotFound", "as asked"),
        }
    }

    /// Puts tags on an interface, which has an address of another name, or on that.
    pub(super) fn tag(&mut self, kind: &str, name: &str, body: &[u8]) -> Result<HttpReply, String> {
        let asked: Value = serde_json::from_slice(body).unwrap();
        self.tagged.push(format!("{kind}/{name}: {}", asked["tags"]["gradus-owner"].as_str().unwrap()));
        let id = format!("/{}", MANAGER.trim_start_matches("https://management.azure.com/"));
        let address = format!("{id}resourceGroups/gradus/providers/Microsoft.Network/publicIPAddresses/{name}-ip");
        let parts = json!([{ "name": name, "properties": { "publicIPAddress": { "id": address } } }]);
        let parts = if kind == "networkInterfaces" { parts } else { json!([]) };
        reply(200, &[], &json!({ "name": name, "properties": { "ipConfigurations": parts } }))
    }

    pub(super) fn delete_beside(&mut self, namespace: &str, kind: &str, name: &str) -> Result<HttpReply, String> {
        let key = (format!("{namespace}/{kind}"), name.to_owned());
        let is_held = |one: &Value| {
            let holders =
                [&one["managedBy"], &one["properties"]["virtualMachine"], &one["properties"]["ipConfiguration"]];
            holders.iter().any(|holder| !holder.is_null())
        };
        match self.beside.get(&key) {
            Some(one) if is_held(one) => refuse(409, "OperationNotAllowed", "something has it"),
            Some(_) => {
                self.beside.remove(&key);
                reply(202, &[], &Value::Null)
            }
            None => refuse(404, "ResourceNotFound", "as asked"),
        }
    }

    /// Adds a resource, with the tags of an owner's machine.
    fn add(&mut self, kind: &str, name: &str, tags: Option<(&str, &str)>, mut more: Value) {
        more["name"] = name.into();
        more["location"] = "eastus".into();
        more["properties"]["provisioningState"] = "Succeeded".into();
        if let Some((owner, instance)) = tags {
            more["tags"] = json!({ "gradus-owner": owner, "gradus-instance": instance });
        }
        self.beside.insert((kind.to_owned(), name.to_owned()), more);
    }
}

const DISKS: &str = "Microsoft.Compute/disks";
const NICS: &str = "Microsoft.Network/networkInterfaces";
const ADDRESSES: &str = "Microsoft.Network/publicIPAddresses";

/// A disk since when nothing has it.
fn disk(sku: &str, since: &str) -> Value {
    json!({ "sku": { "name": sku }, "properties": {
        "diskState": "Unattached", "diskSizeGB": 256, "timeCreated": "2025-11-24T10:26:40.1234567+00:00",
        "LastOwnershipUpdateTime": since,
    } })
}

#[test]
fn an_audit_finds_what_a_deleted_machine_has_left_and_ends_it() {
    let twin = Arc::new(Twin::default());
    let ours = |instance: &'static str| Some((OWNER, instance));
    let (left, gone) = ("2025-11-24T11:26:40.5+00:00", ours("r-i9"));
    let named = machine_name(OWNER, &InstanceId::new("r-i8"));
    let held = |by: &str| json!({ "id": format!("/subscriptions/s/resourceGroups/GRADUS/providers/{by}") });
    let mut state = twin.state.lock().unwrap();
    state.add(DISKS, "left", gone, disk("Premium_LRS", left));
    state.add(DISKS, "new", gone, disk("Premium_LRS", "2025-11-24T11:36:39+00:00"));
    state.add(DISKS, "slow", gone, disk("StandardSSD_LRS", left));
    state.add(DISKS, "rented", ours("r-i1"), disk("Premium_LRS", left));
    state.add(DISKS, "others", Some(("you", "r-i1")), disk("Premium_LRS", left));
    state.add(DISKS, &named, None, disk("Premium_LRS", left));
    let mut kept = disk("Premium_LRS", left);
    kept["managedBy"] = held("Microsoft.Compute/virtualMachines/m")["id"].clone();
    kept["properties"]["diskState"] = "Reserved".into();
    state.add(DISKS, "kept", gone, kept);
    state.add(NICS, "nic", gone, json!({}));
    let of_machine = json!({ "properties": { "virtualMachine": held("Microsoft.Compute/virtualMachines/m") } });
    state.add(NICS, "used", gone, of_machine);
    state.add(ADDRESSES, "ip", gone, json!({ "sku": { "name": "Standard" } }));
    let part = "Microsoft.Network/networkInterfaces/used/ipConfigurations/used";
    state.add(ADDRESSES, "used", gone, json!({ "properties": { "ipConfiguration": held(part) } }));
    state.add(ADDRESSES, "plain", None, json!({}));
    let copy = json!({ "sku": { "name": "Standard_LRS" }, "properties": { "diskSizeGB": 10 } });
    state.add("Microsoft.Compute/snapshots", "copy", gone, copy);
    state.add("Microsoft.Compute/images", "image", gone, json!({}));
    drop(state);
    let named = format!("disk {named} ByHand $0.046291/h");
    let mut expected = [
        "address ip Orphaned $0.005/h",
        "address used InUse $0.005/h",
        named.as_str(),
        "disk kept InUse $0.046291/h",
        "disk left Orphaned $0.046291/h",
        "disk new Young $0.046291/h",
        "disk rented Rented $0.046291/h",
        // No tariff of it is known.
        "disk slow Orphaned unknown",
        "image image ByHand unknown",
        "network interface nic Orphaned free",
        "network interface used InUse free",
        "snapshot copy ByHand at most $0.000685/h",
    ];
    expected.sort_unstable();
    let first = times::read("2025-11-24T11:26:40Z").unwrap();
    audits_beside(&Cloud::Azure, &api(&twin), first, &expected);
    let state = twin.state.lock().unwrap();
    assert!(state.beside.contains_key(&(DISKS.to_owned(), "others".to_owned())));
    assert!(!state.beside.contains_key(&(NICS.to_owned(), "nic".to_owned())));
}

#[test]
fn the_interface_and_the_address_of_a_machine_carry_its_tags() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    let state = twin.state.lock().unwrap();
    let name = state.machines.keys().next().unwrap();
    let of = |kind: &str, rest: &str| format!("{kind}/{name}{rest}: {OWNER}");
    assert_eq!(state.tagged, [of("networkInterfaces", ""), of("publicIPAddresses", "-ip")]);
}

#[test]
fn what_something_has_is_refused() {
    let twin = Arc::new(Twin::default());
    let mut held = disk("Premium_LRS", "2025-11-24T11:26:40+00:00");
    held["managedBy"] = "/subscriptions/s/resourceGroups/gradus/providers/Microsoft.Compute/virtualMachines/m".into();
    twin.state.lock().unwrap().add(DISKS, "held", Some((OWNER, "r-i1")), held);
    let found = api(&twin).resources(OWNER, false).found;
    assert!(matches!(api(&twin).end_resource(&found[0]), Err(CloudFailure::Invalid(_))));
    assert_eq!(twin.state.lock().unwrap().beside.len(), 1);
}
