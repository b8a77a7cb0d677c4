//! A stand-in for the Azure Resource Manager, in this process: what its documentation says that it answers.

mod resources;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use domain::rental::{MachineState, ProviderAnswer, ProviderCall};
use serde_json::{Value, json};

use super::*;
use crate::aws::wire::{HttpReply, HttpRequest, times};
use crate::provider::Provider;
use crate::rented::kept::twin::stops_and_starts;
use crate::rented::twin::{audits, clock, conforms, launched, provider, rents_over_tls, word_of};

/// Machines, and how the next request to make one goes wrong.
#[derive(Default)]
struct Twin {
    state: Mutex<TwinState>,
}

#[derive(Default)]
struct TwinState {
    /// By name.
    machines: BTreeMap<String, Value>,
    /// The errors of operations that were begun; none of those that go well.
    operations: Vec<Option<&'static str>>,
    /// Disks, interfaces, addresses, snapshots and images, by type and name.
    beside: BTreeMap<(String, String), Value>,
    /// What tags were put on, with the owner.
    tagged: Vec<String>,
    polled: u32,
    made: u32,
    /// The code and message with which the next request is refused at once.
    refuse: Option<(&'static str, &'static str)>,
    /// The code with which the next operation ends.
    fail: Option<&'static str>,
    lose: bool,
    /// Whether operations never end.
    slow: bool,
    /// Whether nothing can be deleted.
    is_stuck: bool,
    /// Whether permissions cannot be asked for.
    is_closed: bool,
}

impl Twin {
    fn step(&self) {
        let mut state = self.state.lock().unwrap();
        state.machines.retain(|_, machine| machine["properties"]["provisioningState"] != "Deleting");
        for machine in state.machines.values_mut() {
            if machine["properties"]["provisioningState"] == "Creating" {
                machine["properties"]["provisioningState"] = "Succeeded".into();
            }
        }
    }
}

fn reply(status: u16, headers: &[(&str, &str)], value: &Value) -> Result<HttpReply, String> {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Ok(HttpReply { headers, status, body: value.to_string().into_bytes() })
}

fn refuse(status: u16, code: &str, message: &str) -> Result<HttpReply, String> {
    reply(status, &[], &json!({ "error": { "code": code, "message": message } }))
}

const MANAGER: &str = "https://management.azure.com/subscriptions/s/";
const INTERFACES: &str = "/subscriptions/s/resourceGroups/GRADUS/providers/Microsoft.Network/networkInterfaces/";

impl TwinState {
    fn put(&mut self, name: &str, mut machine: Value) -> Result<HttpReply, String> {
        if self.machines.contains_key(name) {
            return refuse(412, "PreconditionFailed", "there is one of this name");
        }
        if let Some((code, message)) = self.refuse.take() {
            return refuse(409, code, message);
        }
        let network = &machine["properties"]["networkProfile"]["networkInterfaceConfigurations"][0];
        let address = &network["properties"]["ipConfigurations"][0]["properties"]["publicIPAddressConfiguration"];
        let goes_with_it = [&machine["properties"]["storageProfile"]["osDisk"], &network["properties"]];
        assert!(goes_with_it.iter().all(|part| part["deleteOption"] == "Delete"), "{machine}");
        assert_eq!(address["properties"]["deleteOption"], "Delete", "{machine}");
        assert_eq!(machine["identity"], Value::Null, "programs find no credentials there");
        let fails = self.fail.take();
        self.made += 1;
        self.operations.push(fails);
        machine["name"] = name.into();
        machine["properties"]["provisioningState"] = if fails.is_some() { "Failed" } else { "Creating" }.into();
        let made = times::rfc3339(clock()).replace('Z', ".1234567+00:00");
        machine["properties"]["timeCreated"] = made.into();
        machine["properties"]["networkProfile"] =
            json!({ "networkInterfaces": [{ "id": format!("{INTERFACES}{name}") }] });
        self.machines.insert(name.to_owned(), machine.clone());
        let operation = format!("{MANAGER}providers/Microsoft.Compute/locations/l/operations/{}", self.made - 1);
        match std::mem::take(&mut self.lose) {
            true => Err("connection reset".to_owned()),
            false => reply(201, &[("azure-asyncoperation", &operation), ("retry-after", "10")], &machine),
        }
    }

    fn operation(&mut self, number: usize) -> Result<HttpReply, String> {
        self.polled += 1;
        let operation = match self.operations[number] {
            _ if self.slow || self.polled % 2 == 1 => json!({ "name": "o", "status": "InProgress" }),
            Some(code) => json!({ "status": "Failed", "error": { "code": code, "message": "as asked" } }),
            None => json!({ "name": "o", "status": "Succeeded" }),
        };
        reply(200, &[("retry-after", "10")], &operation)
    }

    /// One machine a page.
    fn page(&self, query: &str) -> Result<HttpReply, String> {
        let at: usize = query.split_once("skiptoken=").map_or(0, |(_, at)| at.parse().unwrap());
        let mut page = json!({ "value": self.machines.values().skip(at).take(1).collect::<Vec<_>>() });
        if at + 1 < self.machines.len() {
            let path = "resourceGroups/gradus/providers/Microsoft.Compute/virtualMachines";
            page["nextLink"] = format!("{MANAGER}{path}?{COMPUTE}&$skiptoken={}", at + 1).into();
        }
        reply(200, &[], &page)
    }

    fn addresses(&self) -> Result<HttpReply, String> {
        let of = |name: &String| {
            let id = format!("{}{name}/ipConfigurations/{name}", INTERFACES.replace("GRADUS", "gradus"));
            json!({ "name": name, "properties": { "ipAddress": "192.0.2.7", "ipConfiguration": { "id": id } } })
        };
        let beside = self.beside_of("Microsoft.Network", "publicIPAddresses");
        reply(200, &[], &json!({ "value": self.machines.keys().map(of).chain(beside).collect::<Vec<_>>() }))
    }

    /// Reads, stops or starts a machine.
    fn power(&mut self, name: &str, action: &str) -> Result<HttpReply, String> {
        let Some(machine) = self.machines.get_mut(name) else {
            return refuse(404, "ResourceNotFound", "as asked");
        };
        let is_off = machine["isOff"] == true;
        match action {
            "instanceView" => {
                let code = format!("PowerState/{}", if is_off { "deallocated" } else { "running" });
                return reply(200, &[], &json!({ "statuses": [{ "code": code }] }));
            }
            "deallocate" => machine["isOff"] = true.into(),
            "start" => {
                if let Some((code, message)) = self.refuse.take() {
                    return refuse(409, code, message);
                }
                machine["isOff"] = false.into();
            }
            other => panic!("{other}"),
        }
        match std::mem::take(&mut self.lose) {
            true => Err("connection reset".to_owned()),
            false => reply(202, &[("retry-after", "10")], &Value::Null),
        }
    }

    fn delete(&mut self, name: &str) -> Result<HttpReply, String> {
        match self.machines.get_mut(name) {
            _ if self.is_stuck => refuse(503, "ServerBusy", "not now"),
            Some(machine) => {
                machine["properties"]["provisioningState"] = "Deleting".into();
                reply(202, &[("retry-after", "10")], &Value::Null)
            }
            None => reply(204, &[], &Value::Null),
        }
    }
}

impl HttpTransport for Twin {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let mut state = self.state.lock().unwrap();
        if request.url == "https://login.microsoftonline.com/t/oauth2/v2.0/token" {
            return reply(200, &[], &json!({ "token_type": "Bearer", "expires_in": 3599, "access_token": "token" }));
        }
        let path = request.url.strip_prefix(MANAGER).expect("the Resource Manager");
        let has = |name: &str, value: &str| request.headers.contains(&(name.to_owned(), value.to_owned()));
        if !has("authorization", "Bearer token") {
            return refuse(401, "InvalidAuthenticationToken", "as asked");
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if let Some((_, number)) = path.split_once("/operations/") {
            return state.operation(number.parse().unwrap());
        }
        assert!(query.starts_with("api-version=20"), "{}", request.url);
        // Azure itself writes the name of a group in other letters.
        let path = path.replace("resourceGroups/GRADUS/", "resourceGroups/gradus/");
        let path = path.strip_prefix("resourceGroups/gradus/providers/").expect("the resource group");
        let parts: Vec<&str> = path.split('/').collect();
        match (request.method, &parts[..]) {
            ("PUT", ["Microsoft.Compute", "virtualMachines", name]) => {
                assert!(has("if-none-match", "*"), "a machine that is there must not be changed");
                state.put(name, serde_json::from_slice(&request.body).unwrap())
            }
            ("GET", ["Microsoft.Compute", "virtualMachines"]) => state.page(query),
            (_, ["Microsoft.Compute", "virtualMachines", name, action]) => {
                assert_eq!(request.method == "GET", *action == "instanceView", "{action}");
                state.power(name, action)
            }
            ("GET", ["Microsoft.Compute", "virtualMachines", name]) => state.machine(name),
            ("GET", ["Microsoft.Network", "publicIPAddresses"]) => state.addresses(),
            ("GET", [namespace, kind]) if *kind != "permissions" => state.list_beside(namespace, kind),
            ("PATCH", ["Microsoft.Network", kind, name]) => state.tag(kind, name, &request.body),
            ("DELETE", ["Microsoft.Compute", "virtualMachines", name]) => {
                assert!(query.ends_with("&forceDeletion=true"), "{query}");
                state.delete(name)
            }
            ("DELETE", [namespace, kind, name]) => state.delete_beside(namespace, kind, name),
            ("GET", ["Microsoft.Authorization", "permissions"]) => match state.is_closed {
                true => refuse(403, "AuthorizationFailed", "as asked"),
                false => {
                    let not = "Microsoft.Compute/virtualMachines/write";
                    reply(200, &[], &json!({ "value": [{ "actions": ["*"], "notActions": [not] }] }))
                }
            },
            other => panic!("{other:?}"),
        }
    }
}

fn api(twin: &Arc<Twin>) -> Azure {
    let variables = [("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_ID", "i"), ("AZURE_CLIENT_SECRET", "secret")];
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let sources = AzureSources { variables };
    Azure::with_pause(twin.clone(), None, sources, "s", AzureOptions::default(), |_| ())
}

#[test]
fn it_keeps_what_every_provider_promises() {
    let twin = Arc::new(Twin::default());
    conforms(api(&twin), || twin.step());
    assert!(twin.state.lock().unwrap().machines.is_empty(), "nothing is left");
    assert_eq!(twin.state.lock().unwrap().made, 1);
}

fn launch(twin: &Arc<Twin>, home: &std::path::Path, kind: &str) -> ProviderAnswer {
    launched(api(twin), home, kind)
}

const KIND: &str = "eastus/1/Standard_NC24ads_A100_v4/spot";

#[test]
fn a_lost_answer_does_not_rent_twice() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    twin.state.lock().unwrap().lose = true;
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Doubt(_)));
    // Another provider over the same home: the loop was started again.
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    let state = twin.state.lock().unwrap();
    assert_eq!(state.made, 1);
    let machine = state.machines.values().next().unwrap();
    assert_eq!((&machine["location"], &machine["zones"]), (&"eastus".into(), &json!(["1"])));
    let tags = json!({ "gradus-owner": "Me of Tests", "gradus-instance": "r-i1",
                       "gradus-expires": "2025-11-24T10:26:40Z" });
    assert_eq!(machine["tags"], tags);
    let properties = &machine["properties"];
    assert_eq!((&properties["priority"], &properties["evictionPolicy"]), (&"Spot".into(), &"Delete".into()));
    assert!(properties["billingProfile"]["maxPrice"].as_f64().is_some_and(|most| most > 0.1));
    assert_eq!(properties["hardwareProfile"]["vmSize"], "Standard_NC24ads_A100_v4");
    assert!(properties["osProfile"]["customData"].as_str().is_some_and(|text| text.starts_with("IyEvYmluL3No")));
}

#[test]
fn of_two_requests_for_one_name_the_second_makes_and_changes_nothing() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    let before = twin.state.lock().unwrap().machines.clone();
    let name = before.keys().next().unwrap();
    let params = params([("name", name), ("body", r#"{"location":"westus"}"#)]);
    let second = api(&twin).rent(&KIND.parse().unwrap(), &params);
    assert!(matches!(second, Err(CloudFailure::Exists(_))), "{second:?}");
    assert_eq!(twin.state.lock().unwrap().machines, before);
}

#[test]
fn a_refusal_says_why_and_nothing_is_made() {
    let check = |code, message, expected: &str| {
        let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
        twin.state.lock().unwrap().refuse = Some((code, message));
        assert_eq!(word_of(&launch(&twin, home.path(), KIND)), expected, "{code}");
        assert_eq!(twin.state.lock().unwrap().made, 0);
    };
    check("SkuNotAvailable", "The requested VM size is currently not available in location 'eastus'.", "capacity");
    check("QuotaExceeded", "m", "quota");
    check("OperationNotAllowed", "exceeding approved LowPriorityCores quota", "quota");
    check("AuthorizationFailed", "m", "denied");
    check("TooManyRequests", "m", "other");
    check("OperationNotAllowed", "Spot is not supported for this offer.", "other");
}

#[test]
fn what_could_not_be_placed_is_deleted_before_it_counts_as_refused() {
    let check = |code, is_stuck, expected: &str| {
        let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
        twin.state.lock().unwrap().fail = Some(code);
        twin.state.lock().unwrap().is_stuck = is_stuck;
        assert_eq!(word_of(&launch(&twin, home.path(), KIND)), expected, "{code}");
        twin.step();
        twin.state.lock().unwrap().machines.len()
    };
    assert_eq!(check("AllocationFailed", false, "capacity"), 0);
    assert_eq!(check("ZonalAllocationFailed", false, "capacity"), 0);
    assert_eq!(check("QuotaExceeded", false, "quota"), 0);
    assert_eq!(check("AllocationFailed", true, "doubt"), 1, "it is not refused while something is left");
    // It ran, and is billed: a look finds it, and it is ended like any other.
    assert_eq!(check("OSProvisioningTimedOut", false, "doubt"), 1);
}

#[test]
fn an_operation_that_takes_long_has_made_a_machine() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    twin.state.lock().unwrap().slow = true;
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    // Azure asks for ten seconds between two looks, and a call must end within a minute.
    assert_eq!(twin.state.lock().unwrap().polled, 3);
    let machines = api(&twin).machines("Me of Tests").unwrap();
    assert_eq!((machines.len(), machines[0].state), (1, MachineState::Pending));
    assert_eq!(machines[0].address.as_deref(), Some("192.0.2.7"));
}

#[test]
fn machines_of_others_are_not_seen() {
    let twin = Arc::new(Twin::default());
    let of = |tags: Value| {
        let properties = json!({ "hardwareProfile": { "vmSize": "v" }, "provisioningState": "Succeeded" });
        json!({ "name": "n", "location": "eastus", "tags": tags, "properties": properties })
    };
    let others =
        [("a", of(json!({}))), ("b", of(json!({ "gradus-owner": "you" }))), ("c", of(json!({ "gradus-owner": "me" })))];
    twin.state.lock().unwrap().machines = others.map(|(name, machine)| (name.to_owned(), machine)).into();
    assert_eq!(api(&twin).machines("me").unwrap().len(), 1, "on the last of three pages");
    assert_eq!(api(&twin).machines("nobody").unwrap(), []);
}

#[test]
fn a_home_that_never_rented_there_does_not_ask() {
    let (twin, homes) = (Arc::new(Twin::default()), [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()]);
    let seen = |home: &std::path::Path| match provider(home, api(&twin)).call(&ProviderCall::Observe(Vec::new())) {
        ProviderAnswer::Observed(view) => (view.is_complete, view.machines.len()),
        other => panic!("{other:?}"),
    };
    assert!(matches!(launch(&twin, homes[0].path(), KIND), ProviderAnswer::Accepted(_)));
    assert_eq!(seen(homes[0].path()), (true, 1));
    assert_eq!(seen(homes[1].path()), (true, 0), "credentials alone are no reason to ask");
}

#[test]
fn what_is_missing_is_named_and_what_is_not_known_is_not_missing() {
    let twin = Arc::new(Twin::default());
    let report = api(&twin).check("me").unwrap();
    assert_eq!((report.subscription.as_str(), report.resource_group.as_str(), report.machines), ("s", "gradus", 0));
    assert_eq!((report.missing, report.unknown), (vec!["Microsoft.Compute/virtualMachines/write"], None));
    twin.state.lock().unwrap().is_closed = true;
    let report = api(&twin).check("me").unwrap();
    assert!(report.missing.is_empty() && report.unknown.is_some_and(|why| why.contains("as asked")));
}

#[test]
fn an_audit_ends_what_no_run_has_and_nothing_else() {
    let twin = Arc::new(Twin::default());
    audits(Cloud::Azure, || api(&twin), KIND, || twin.step());
}

#[test]
fn a_machine_is_stopped_and_started_again() {
    let twin = Arc::new(Twin::default());
    let is_off = || twin.state.lock().unwrap().machines.values().all(|machine| machine["isOff"] == true);
    let lose = || twin.state.lock().unwrap().lose = true;
    let clear = || twin.state.lock().unwrap().machines.clear();
    stops_and_starts(api(&twin), "eastus/1/Standard_NC24ads_A100_v4", || twin.step(), lose, (is_off, clear));
}

#[test]
fn an_account_is_a_subscription_with_a_resource_group_in_any_case() {
    let api = api(&Arc::new(Twin::default()));
    assert_eq!(api.account(), Ok(Some("s/gradus".to_owned())));
    let shouted = AzureOptions { resource_group: Some("GRADUS".to_owned()), ..AzureOptions::default() };
    assert_eq!(Azure { options: shouted, ..api.of_account("S/x").unwrap() }.account(), api.account());
    let path = api.of_account("t/before").unwrap().machine_path("m");
    assert!(path.starts_with("/subscriptions/t/resourceGroups/before/providers/Microsoft.Compute/"), "{path}");
}

#[test]
fn machines_that_call_over_tls_are_rented_only_where_they_are_heard() {
    let twin = Arc::new(Twin::default());
    rents_over_tls(|| api(&twin), KIND, || twin.state.lock().unwrap().made);
}
