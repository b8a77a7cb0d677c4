//! A stand-in for Compute Engine, in this process: what its documentation says that it answers.

mod resources;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use domain::InstanceId;
use domain::rental::{EndRequest, MachineState, ProviderAnswer, ProviderCall, ProviderView};
use serde_json::{Value, json};

use super::*;
use crate::aws::wire::{HttpReply, HttpRequest};
use crate::provider::Provider;
use crate::rented::kept::twin::stops_and_starts;
use crate::rented::twin::{audits, conforms, launched, provider, rents_over_tls, word_of};

/// Machines, and how the next request to make one goes wrong.
#[derive(Default)]
struct Twin {
    state: Mutex<TwinState>,
}

#[derive(Default)]
struct TwinState {
    /// By zone and name.
    machines: BTreeMap<(String, String), Value>,
    /// Operations that were begun, by request id: asked again, the same is answered.
    requests: BTreeMap<String, Value>,
    /// Disks, addresses, snapshots and images, by path.
    beside: BTreeMap<String, Value>,
    made: u32,
    /// The error with which the next operation ends.
    fail: Option<&'static str>,
    lose: bool,
    unreachable: bool,
    /// Whether permissions of the project cannot be asked for.
    is_closed: bool,
    /// A project that the credentials have no access to.
    forbidden: Option<&'static str>,
}

impl Twin {
    fn step(&self) {
        let mut state = self.state.lock().unwrap();
        state.machines.retain(|_, machine| machine["status"] != "STOPPING");
        for machine in state.machines.values_mut() {
            if machine["status"] == "PROVISIONING" {
                machine["status"] = "RUNNING".into();
            }
        }
    }
}

fn ok(value: Value) -> Result<HttpReply, String> {
    Ok(HttpReply { headers: Vec::new(), status: 200, body: value.to_string().into_bytes() })
}

fn refuse(status: u16, reason: &str) -> Result<HttpReply, String> {
    let body = json!({ "error": { "code": status, "message": "as asked", "errors": [{ "reason": reason }] } });
    Ok(HttpReply { headers: Vec::new(), status, body: body.to_string().into_bytes() })
}

impl TwinState {
    /// What is asked for in the project `p`, which has all machines; or the answer of another one.
    fn in_project<'a>(&self, url: &'a str) -> Result<&'a str, Result<HttpReply, String>> {
        let path = url.strip_prefix("https://compute.googleapis.com/compute/v1/projects/").expect("the API");
        let (project, path) = path.split_once('/').expect("a project");
        match project {
            _ if self.forbidden == Some(project) => Err(refuse(403, "forbidden")),
            "p" => Ok(path),
            _ if path.starts_with("aggregated/instances?") => Err(ok(json!({ "items": {} }))),
            _ => panic!("{url} is of another project"),
        }
    }

    /// Reads, stops or starts a machine.
    fn power(
        &mut self,
        method: &str,
        (zone, name, rest): (&str, &str, &[&str]),
        query: &str,
    ) -> Result<HttpReply, String> {
        let Some(machine) = self.machines.get_mut(&(zone.to_owned(), name.to_owned())) else {
            return refuse(404, "notFound");
        };
        match (method, rest) {
            ("GET", []) => return ok(machine.clone()),
            ("POST", ["stop"]) => {
                assert_eq!(query, "discardLocalSsd=true", "one with Local SSDs is not stopped without");
                machine["status"] = "TERMINATED".into();
                return ok(json!({ "name": "o", "status": "RUNNING" }));
            }
            ("POST", ["start"]) => {}
            other => panic!("{other:?}"),
        }
        let id = query.strip_prefix("requestId=").unwrap();
        let mut operation = json!({ "name": format!("operation-{}", self.requests.len()), "status": "RUNNING" });
        match self.fail.take() {
            Some(code) => operation["error"] = json!({ "errors": [{ "code": code, "message": "as asked" }] }),
            None => machine["status"] = "RUNNING".into(),
        }
        self.requests.entry(id.to_owned()).or_insert(operation.clone());
        match std::mem::take(&mut self.lose) {
            true => Err("connection reset".to_owned()),
            false => ok(operation),
        }
    }

    fn delete(&mut self, zone: &str, name: &str) -> Result<HttpReply, String> {
        match self.machines.get_mut(&(zone.to_owned(), name.to_owned())) {
            Some(machine) => {
                machine["status"] = "STOPPING".into();
                ok(json!({ "name": "o", "status": "RUNNING" }))
            }
            None => refuse(404, "notFound"),
        }
    }

    fn insert(&mut self, zone: &str, id: &str, body: &Value) -> Result<HttpReply, String> {
        if let Some(operation) = self.requests.get(id) {
            return ok(operation.clone());
        }
        let name = body["name"].as_str().unwrap().to_owned();
        let key = (zone.to_owned(), name.clone());
        if self.machines.contains_key(&key) {
            return refuse(409, "alreadyExists");
        }
        let mut operation = json!({ "name": format!("operation-{}", self.requests.len()), "status": "RUNNING" });
        if let Some(code) = self.fail.take() {
            operation["error"] = json!({ "errors": [{ "code": code, "message": "as asked" }] });
        } else {
            self.made += 1;
            let mut machine = body.clone();
            machine["zone"] = format!("https://www.googleapis.com/compute/v1/projects/p/zones/{zone}").into();
            machine["status"] = "PROVISIONING".into();
            machine["creationTimestamp"] = "2025-11-24T02:26:40.000-08:00".into();
            machine["networkInterfaces"] =
                json!([{ "networkIP": "10.0.0.2", "accessConfigs": [{ "natIP": "192.0.2.7" }] }]);
            self.machines.insert(key, machine);
        }
        self.requests.insert(id.to_owned(), operation.clone());
        match std::mem::take(&mut self.lose) {
            true => Err("connection reset".to_owned()),
            false => ok(operation),
        }
    }
}

impl HttpTransport for Twin {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let mut state = self.state.lock().unwrap();
        if request.url == "https://cloudresourcemanager.googleapis.com/v1/projects/p:testIamPermissions" {
            let mut asked: Value = serde_json::from_slice(&request.body).unwrap();
            let allowed = asked["permissions"].as_array_mut().unwrap();
            allowed.retain(|permission| permission != "compute.instances.create");
            return if state.is_closed { refuse(403, "accessNotConfigured") } else { ok(asked) };
        }
        let path = match state.in_project(&request.url) {
            Ok(path) => path,
            Err(answer) => return answer,
        };
        if !request.headers.contains(&("authorization".to_owned(), "Bearer token".to_owned())) {
            return refuse(401, "authError");
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<&str> = path.split('/').collect();
        match (request.method, &parts[..]) {
            ("GET", ["regions", region]) => {
                let zones = ["b", "a"].map(|letter| format!("https://x/zones/{region}-{letter}"));
                ok(json!({ "name": region, "zones": zones }))
            }
            ("GET", ["aggregated", "instances"]) => {
                let label = query.split('&').next().unwrap().strip_prefix("filter=labels.gradus-owner%3D");
                let mut items: BTreeMap<String, Value> = BTreeMap::new();
                items.insert("zones/empty".into(), json!({ "warning": { "code": "NO_RESULTS_ON_PAGE" } }));
                for ((zone, _), machine) in &state.machines {
                    if label.is_none_or(|label| machine["labels"]["gradus-owner"] == label) {
                        let scope = items.entry(format!("zones/{zone}")).or_insert(json!({ "instances": [] }));
                        scope["instances"].as_array_mut().unwrap().push(machine.clone());
                    }
                }
                let unreachables = if state.unreachable { vec!["zones/us-west1-a"] } else { Vec::new() };
                ok(json!({ "items": items, "unreachables": unreachables }))
            }
            ("POST", ["zones", zone, "instances"]) => {
                let body: Value = serde_json::from_slice(&request.body).unwrap();
                assert_eq!(body["serviceAccounts"], Value::Null, "programs find no credentials there");
                state.insert(zone, query.strip_prefix("requestId=").unwrap(), &body)
            }
            ("POST", ["zones", _, "operations", name, "wait"]) => {
                let operations = state.requests.values_mut();
                let operation = operations.into_iter().find(|operation| operation["name"] == *name).unwrap();
                operation["status"] = "DONE".into();
                ok(operation.clone())
            }
            (method, ["zones", zone, "instances", name, rest @ ..]) if method != "DELETE" => {
                state.power(method, (*zone, *name, rest), query)
            }
            ("DELETE", ["zones", zone, "instances", name]) => state.delete(zone, name),
            ("GET", ["aggregated" | "global", kind]) => state.list_beside(kind, query),
            ("DELETE", _) => state.delete_beside(path),
            other => panic!("{other:?}"),
        }
    }
}

fn api(twin: &Arc<Twin>) -> Gcp {
    api_of(twin, "p")
}

fn api_of(twin: &Arc<Twin>, project: &str) -> Gcp {
    let variables = [("GOOGLE_OAUTH_ACCESS_TOKEN".to_owned(), "token".to_owned())].into();
    let sources = GcpSources { variables, file: String::new() };
    Gcp::new(twin.clone(), None, sources, project, GcpOptions::default())
}

#[test]
fn it_keeps_what_every_provider_promises() {
    let twin = Arc::new(Twin::default());
    conforms(api(&twin), || twin.step());
    assert!(twin.state.lock().unwrap().machines.is_empty(), "nothing is left");
    assert_eq!(twin.state.lock().unwrap().made, 1);
}

fn launch(twin: &Arc<Twin>, home: &std::path::Path, kind: &str) -> ProviderAnswer {
    launch_in(twin, home, kind, "p")
}

fn launch_in(twin: &Arc<Twin>, home: &std::path::Path, kind: &str, project: &str) -> ProviderAnswer {
    launched(api_of(twin, project), home, kind)
}

const KIND: &str = "us-central1/us-central1-b/a2-highgpu-1g/spot";

#[test]
fn a_lost_answer_does_not_rent_twice() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    twin.state.lock().unwrap().lose = true;
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Doubt(_)));
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    let state = twin.state.lock().unwrap();
    assert_eq!(state.made, 1);
    let ((zone, _), machine) = state.machines.iter().next().unwrap();
    assert_eq!((zone.as_str(), &machine["scheduling"]["provisioningModel"]), ("us-central1-b", &"SPOT".into()));
    assert_eq!(machine["scheduling"]["instanceTerminationAction"], "DELETE");
    assert_eq!(machine["machineType"], "zones/us-central1-b/machineTypes/a2-highgpu-1g");
}

#[test]
fn an_operation_that_fails_says_what_it_proves() {
    let check = |code, expected: &str| {
        let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
        twin.state.lock().unwrap().fail = Some(code);
        assert_eq!(word_of(&launch(&twin, home.path(), KIND)), expected, "{code}");
    };
    check("ZONE_RESOURCE_POOL_EXHAUSTED", "capacity");
    check("QUOTA_EXCEEDED", "quota");
    check("INVALID_FIELD", "other");
    check("INTERNAL_ERROR", "doubt");
}

#[test]
fn zones_that_cannot_be_seen_are_no_proof() {
    let twin = Arc::new(Twin::default());
    assert_eq!(api(&twin).zones("us-central1").unwrap(), ["us-central1-a", "us-central1-b"]);
    twin.state.lock().unwrap().unreachable = true;
    assert!(matches!(api(&twin).machines("me"), Err(CloudFailure::Doubt(why)) if why.contains("us-west1-a")));
}

#[test]
fn what_is_missing_is_named_and_what_is_not_known_is_not_missing() {
    let twin = Arc::new(Twin::default());
    let report = api(&twin).check("me").unwrap();
    assert_eq!((report.project.as_str(), report.machines), ("p", 0));
    assert_eq!((report.missing, report.unknown), (vec!["compute.instances.create"], None));
    twin.state.lock().unwrap().is_closed = true;
    let report = api(&twin).check("me").unwrap();
    assert!(report.missing.is_empty() && report.unknown.is_some_and(|why| why.contains("as asked")));
}

#[test]
fn an_audit_ends_what_no_run_has_and_nothing_else() {
    let twin = Arc::new(Twin::default());
    audits(Cloud::Gcp, || api(&twin), KIND, || twin.step());
    assert_eq!(twin.state.lock().unwrap().made, 2);
}

#[test]
fn a_machine_is_stopped_and_started_again() {
    let twin = Arc::new(Twin::default());
    let is_off = || twin.state.lock().unwrap().machines.values().all(|machine| machine["status"] == "TERMINATED");
    let lose = || twin.state.lock().unwrap().lose = true;
    let clear = || twin.state.lock().unwrap().machines.clear();
    let kind = "us-central1/us-central1-b/a2-highgpu-1g";
    stops_and_starts(api(&twin), kind, || twin.step(), lose, (is_off, clear));
}

#[test]
fn a_start_without_capacity_says_so() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    let place = api(&twin).machines(crate::rented::twin::OWNER).unwrap().remove(0).place();
    // Where its zone is not known, it is looked for.
    let anywhere = MachinePlace { zone: None, ..place.clone() };
    api(&twin).stop(&anywhere).unwrap();
    assert!(matches!(api(&twin).power(&place), Ok(MachinePower::Off(_))));
    twin.state.lock().unwrap().fail = Some("ZONE_RESOURCE_POOL_EXHAUSTED");
    assert!(matches!(api(&twin).start(&anywhere, "t"), Err(CloudFailure::Capacity(_))));
    assert_eq!(api(&twin).start(&anywhere, "u"), Ok(()));
    assert_eq!(api(&twin).power(&place), Ok(MachinePower::On));
}

/// Nobody here has stopped it: Google took it back, or it has powered itself off.
#[test]
fn a_terminated_machine_that_was_not_stopped_from_here_is_ended() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    twin.state.lock().unwrap().machines.values_mut().for_each(|machine| machine["status"] = "TERMINATED".into());
    let asked = ProviderCall::Observe(vec![InstanceId::new("r-i1")]);
    match provider(home.path(), api(&twin)).call(&asked) {
        ProviderAnswer::Observed(view) => assert_eq!(view.machines[0].state, MachineState::Ending),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_in_doubt_is_repeated_in_the_project_in_which_it_was_made() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    twin.state.lock().unwrap().lose = true;
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Doubt(_)));
    assert!(matches!(launch_in(&twin, home.path(), KIND, "q"), ProviderAnswer::Accepted(_)));
    assert_eq!(twin.state.lock().unwrap().made, 1);
}

/// The user names another project while machines of the first one run: they cost money until that one says otherwise.
#[test]
fn machines_of_the_project_that_was_named_before_are_not_gone() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    twin.step();
    let ask = |call: ProviderCall| provider(home.path(), api_of(&twin, "q")).call(&call);
    let seen = || -> ProviderView {
        match ask(ProviderCall::Observe(vec![InstanceId::new("r-i1")])) {
            ProviderAnswer::Observed(view) => view,
            other => panic!("{other:?}"),
        }
    };
    let end = || ask(ProviderCall::End(vec![EndRequest { instance: InstanceId::new("r-i1"), handle: None }]));
    let view = seen();
    assert!(view.is_complete && view.machines[0].state == MachineState::Running, "{view:?}");
    twin.state.lock().unwrap().forbidden = Some("p");
    let view = seen();
    assert!(!view.is_complete && view.machines.is_empty(), "{view:?}");
    let said = "`r-i1` was rented in account `p`, and here `q` is set (HTTP status 403";
    assert!(view.unseen.len() == 1 && view.unseen[0].starts_with(said), "{view:?}");
    assert!(matches!(end(), ProviderAnswer::Unavailable(_)));
    assert_eq!(twin.state.lock().unwrap().machines.len(), 1);
    twin.state.lock().unwrap().forbidden = None;
    assert_eq!(end(), ProviderAnswer::Ending);
    twin.step();
    assert!(matches!(seen().machines[0].state, MachineState::Gone(Some(_))));
}

#[test]
fn machines_that_call_over_tls_are_rented_only_where_they_are_heard() {
    let twin = Arc::new(Twin::default());
    rents_over_tls(|| api(&twin), KIND, || twin.state.lock().unwrap().made);
}
