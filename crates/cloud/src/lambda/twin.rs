//! A stand-in for Lambda Cloud, in this process: what its documentation says that it answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use domain::InstanceId;
use domain::rental::{EndRequest, ProviderAnswer, ProviderCall, Refusal};
use serde_json::{Value, json};

use super::*;
use crate::provider::{LaunchRequest, Provider};
use crate::rented::twin::{OWNER, audits_beside, clock, conforms, provider, rents_over_tls};

/// Machines, keys, and how the next launch goes wrong.
#[derive(Default)]
struct Twin {
    state: Mutex<TwinState>,
}

#[derive(Default)]
struct TwinState {
    machines: BTreeMap<String, Value>,
    keys: Vec<Value>,
    made: u32,
    /// The code of an error that the next launch is answered with.
    refuse: Option<&'static str>,
    /// Whether the next launch is carried out and its answer lost.
    lose: bool,
    asked: Vec<String>,
}

impl Twin {
    /// Machines come up and go down, and are forgotten in the end.
    fn step(&self) {
        let mut state = self.state.lock().unwrap();
        state.machines.retain(|_, machine| machine["status"] != "terminated");
        for machine in state.machines.values_mut() {
            match machine["status"].as_str().unwrap() {
                "booting" => machine["status"] = "active".into(),
                "terminating" => machine["status"] = "terminated".into(),
                _ => {}
            }
        }
    }
}

fn ok(data: Value) -> Result<HttpReply, String> {
    Ok(HttpReply { headers: Vec::new(), status: 200, body: json!({ "data": data }).to_string().into_bytes() })
}

fn refuse(status: u16, code: &str) -> Result<HttpReply, String> {
    let body = json!({ "error": { "code": code, "message": "as asked", "suggestion": "" } });
    Ok(HttpReply { headers: Vec::new(), status, body: body.to_string().into_bytes() })
}

impl HttpTransport for Twin {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let mut state = self.state.lock().unwrap();
        let path = request.url.strip_prefix("https://cloud.lambda.ai/api/v1/").expect("Lambda's API");
        state.asked.push(format!("{} {path}", request.method));
        if !request.headers.contains(&("authorization".to_owned(), "Bearer secret".to_owned())) {
            return refuse(401, "global/invalid-api-key");
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        match (request.method, path) {
            ("GET", "instances") => ok(state.machines.values().cloned().collect()),
            ("GET", "ssh-keys") => ok(state.keys.clone().into()),
            ("POST", "ssh-keys") => {
                state.keys.push(body.clone());
                ok(body)
            }
            ("POST", "instance-operations/launch") => {
                if let Some(code) = state.refuse.take() {
                    return refuse(400, code);
                }
                assert_eq!(body["ssh_key_names"].as_array().map(Vec::len), Some(1), "exactly one key");
                assert!(body["user_data"].as_str().is_some_and(|text| text.starts_with("#!/bin/sh")));
                state.made += 1;
                let id = format!("{:032x}", state.made);
                let machine = json!({
                    "id": id, "name": body["name"], "ip": "192.0.2.7", "status": "booting",
                    "region": { "name": body["region_name"] },
                    "instance_type": { "name": body["instance_type_name"] },
                });
                state.machines.insert(id.clone(), machine);
                match std::mem::take(&mut state.lose) {
                    true => Err("connection reset".to_owned()),
                    false => ok(json!({ "instance_ids": [id] })),
                }
            }
            ("POST", "instance-operations/terminate") => {
                let id = body["instance_ids"][0].as_str().unwrap();
                match state.machines.get_mut(id) {
                    Some(machine) => {
                        if machine["status"] != "terminated" {
                            machine["status"] = "terminating".into();
                        }
                        ok(json!({ "terminated_instances": [machine.clone()] }))
                    }
                    None => refuse(404, "global/object-does-not-exist"),
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn api(twin: &Arc<Twin>) -> Lambda {
    Lambda::new(twin.clone(), None, "secret")
}

#[test]
fn it_keeps_what_every_provider_promises() {
    let twin = Arc::new(Twin::default());
    conforms(api(&twin), || twin.step());
    let is_ended = |machine: &Value| machine["status"] == "terminated";
    assert!(twin.state.lock().unwrap().machines.values().all(is_ended), "nothing is left");
    assert_eq!(twin.state.lock().unwrap().made, 1);
}

fn launch(twin: &Arc<Twin>, home: &std::path::Path) -> ProviderAnswer {
    let provider = provider(home, api(twin));
    let offer = crate::provider::offers(&provider).unwrap().remove(0);
    let request = LaunchRequest {
        members: vec![InstanceId::new("r-i1")],
        token: "token".into(),
        offer,
        price_cap: None,
        expires: None,
        first_answer: None,
        has_peers: false,
    };
    provider.call(&ProviderCall::Launch(Box::new(request)))
}

#[test]
fn a_lost_answer_does_not_rent_twice() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    twin.state.lock().unwrap().lose = true;
    assert!(matches!(launch(&twin, home.path()), ProviderAnswer::Doubt(_)));
    // Also not after the loop was started again.
    assert!(matches!(launch(&twin, home.path()), ProviderAnswer::Accepted(_)));
    assert_eq!(twin.state.lock().unwrap().made, 1);
}

#[test]
fn a_machine_that_one_list_lacks_is_not_gone_and_is_still_ended() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path()), ProviderAnswer::Accepted(_)));
    twin.step();
    let (provider, instance) = (provider(home.path(), api(&twin)), InstanceId::new("r-i1"));
    let look = || -> (bool, Vec<MachineState>) {
        match provider.call(&ProviderCall::Observe(vec![instance.clone()])) {
            ProviderAnswer::Observed(view) => (view.is_complete, view.machines.iter().map(|seen| seen.state).collect()),
            other => panic!("{other:?}"),
        }
    };
    let running = (true, vec![MachineState::Running]);
    assert_eq!(look(), running);
    let hidden = std::mem::take(&mut twin.state.lock().unwrap().machines);
    assert_eq!(look(), (false, vec![]), "one list proves nothing");
    twin.state.lock().unwrap().machines = hidden;
    assert_eq!(look(), running);
    let end = EndRequest { instance: instance.clone(), handle: None };
    assert!(matches!(provider.call(&ProviderCall::End(vec![end])), ProviderAnswer::Ending));
    assert_eq!(twin.state.lock().unwrap().asked.last().unwrap(), "POST instance-operations/terminate");
    // What was ended is gone as soon as it is not listed.
    twin.state.lock().unwrap().machines.clear();
    assert!(matches!(look(), (true, states) if matches!(states[..], [MachineState::Gone(Some(_))])));
}

#[test]
fn a_refusal_says_why() {
    let check = |code, expected: &str| {
        let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
        twin.state.lock().unwrap().refuse = Some(code);
        let ProviderAnswer::Refused(refusal) = launch(&twin, home.path()) else { panic!("{code} is refused") };
        let word = match refusal {
            Refusal::Capacity { .. } => "capacity",
            Refusal::Quota { .. } => "quota",
            Refusal::Denied { .. } => "denied",
            Refusal::Throttled { .. } | Refusal::Invalid { .. } => "other",
        };
        assert_eq!(word, expected, "{code}");
    };
    check("instance-operations/launch/insufficient-capacity", "capacity");
    check("global/quota-exceeded", "quota");
    check("global/account-inactive", "denied");
    check("global/invalid-parameters", "other");
}

#[test]
fn machines_of_others_are_not_seen() {
    let twin = Arc::new(Twin::default());
    let other = json!({ "id": "x", "name": "mine", "status": "active", "region": { "name": "r" },
                        "instance_type": { "name": "t" } });
    twin.state.lock().unwrap().machines.insert("x".into(), other);
    assert_eq!(api(&twin).machines("me").unwrap(), []);
    assert_eq!(api(&twin).check().unwrap(), 1);
    let wrong = Lambda::new(twin, None, "other");
    assert!(matches!(wrong.check(), Err(CloudFailure::Denied(why)) if why.contains("set `LAMBDA_API_KEY`")));
}

#[test]
fn the_key_of_a_home_is_listed_where_everything_is_and_stays() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path()), ProviderAnswer::Accepted(_)));
    twin.state.lock().unwrap().keys.push(json!({ "name": "mine", "public_key": "ssh-ed25519 A" }));
    audits_beside(&Cloud::Lambda, &api(&twin), clock(), &[]);
    let found = api(&twin).resources(OWNER, true).found;
    assert_eq!((found.len(), found[0].kind), (1, ResourceKind::KeyPair));
    assert!(matches!(api(&twin).end_resource(&found[0]), Err(CloudFailure::Invalid(_))));
    assert_eq!(twin.state.lock().unwrap().keys.len(), 2);
}

#[test]
fn machines_that_call_over_tls_are_rented_only_where_they_are_heard() {
    let twin = Arc::new(Twin::default());
    rents_over_tls(|| api(&twin), "us-east-1/gpu_1x_a10", || twin.state.lock().unwrap().made);
}
