//! A stand-in for Tencent Cloud, in this process: what its documentation says that it answers. It checks signatures.

mod kept;
mod resources;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use domain::rental::{MachineState, ProviderAnswer, ProviderCall};
use serde_json::{Value, json};

use super::*;
use crate::aws::wire::signature::AccessKey;
use crate::aws::wire::{HttpReply, HttpRequest, times};
use crate::provider::Provider;
use crate::rented::twin::{OWNER, audits, clock, conforms, launched, provider, rents_over_tls, request, word_of};

/// Machines, and how the next request to make one goes wrong.
#[derive(Default)]
struct Twin {
    state: Mutex<TwinState>,
}

#[derive(Default)]
struct TwinState {
    /// By region and id.
    machines: BTreeMap<(String, String), Value>,
    /// What each token has rented, and with which parameters.
    tokens: BTreeMap<String, (String, Value)>,
    /// Disks and addresses, by region and id.
    beside: BTreeMap<(String, String), Value>,
    made: u32,
    /// The code with which the next request to rent is refused.
    refuse: Option<&'static str>,
    lose: bool,
    /// A region that does not answer.
    silent: Option<&'static str>,
    /// An action that is not allowed.
    denied: Option<&'static str>,
    /// Whether every zone is sold out.
    is_sold_out: bool,
    /// The regions that were looked at.
    looked: Vec<String>,
    /// Whose the key is; `1` without.
    account: Option<&'static str>,
}

const REGIONS: [&str; 3] = ["ap-guangzhou", "ap-singapore", "eu-frankfurt"];

impl Twin {
    fn step(&self) {
        let mut state = self.state.lock().unwrap();
        state.machines.retain(|_, machine| machine["InstanceState"] != "TERMINATING");
        for machine in state.machines.values_mut().filter(|machine| machine["InstanceState"] == "PENDING") {
            machine["InstanceState"] = "RUNNING".into();
        }
    }
}

fn ok(mut value: Value) -> Result<HttpReply, String> {
    value["RequestId"] = "r".into();
    let body = json!({ "Response": value }).to_string().into_bytes();
    Ok(HttpReply { headers: Vec::new(), status: 200, body })
}

fn refuse(code: &str) -> Result<HttpReply, String> {
    ok(json!({ "Error": { "Code": code, "Message": "as asked" } }))
}

fn key() -> AccessKey {
    AccessKey { id: "id".into(), secret: "secret".into(), session: None }
}

/// The value of a filter.
fn filter<'a>(body: &'a Value, name: &str) -> &'a str {
    let filters = body["Filters"].as_array().unwrap();
    let found = filters.iter().find(|filter| filter["Name"] == name);
    found.map_or("", |filter| filter["Values"][0].as_str().unwrap())
}

impl TwinState {
    fn account(&self) -> &'static str {
        self.account.unwrap_or("1")
    }

    fn run(&mut self, region: &str, body: &Value) -> Result<HttpReply, String> {
        if body["DryRun"] == true {
            return ok(json!({}));
        }
        let token = body["ClientToken"].as_str().unwrap();
        if let Some((id, sent)) = self.tokens.get(token) {
            let is_same = sent == body;
            return if is_same { ok(json!({ "InstanceIdSet": [id] })) } else { refuse("InvalidParameterValue") };
        }
        if let Some(code) = self.refuse.take() {
            return refuse(code);
        }
        assert_eq!((&body["SecurityGroupIds"], &body["CamRoleName"]), (&json!(["sg-1"]), &Value::Null));
        self.made += 1;
        let id = format!("ins-{}", self.made);
        let machine = json!({
            "InstanceId": id, "InstanceName": body["InstanceName"], "InstanceType": body["InstanceType"],
            "Placement": body["Placement"], "InstanceState": "PENDING", "CreatedTime": times::rfc3339(clock()),
            "InstanceChargeType": body["InstanceChargeType"], "Tags": body["TagSpecification"][0]["Tags"],
            "PublicIpAddresses": ["192.0.2.7"], "Account": self.account(),
            "StopChargingMode": "NOT_APPLICABLE", "ActionTimer": body["ActionTimer"],
        });
        self.machines.insert((region.to_owned(), id.clone()), machine);
        self.tokens.insert(token.to_owned(), (id.clone(), body.clone()));
        match std::mem::take(&mut self.lose) {
            true => Err("connection reset".to_owned()),
            false => ok(json!({ "InstanceIdSet": [id] })),
        }
    }

    /// One machine a page, whatever is asked for.
    fn page(&mut self, region: &str, body: &Value) -> Result<HttpReply, String> {
        self.looked.push(region.to_owned());
        if self.silent == Some(region) {
            return Err("timed out".to_owned());
        }
        let owner = body.get("Filters").map(|_| filter(body, "tag:gradus-owner"));
        let owner = owner.map(|owner| json!({ "Key": "gradus-owner", "Value": owner }));
        let account = self.account();
        let is_tagged = |machine: &Value| {
            owner.as_ref().is_none_or(|owner| machine["Tags"].as_array().is_some_and(|tags| tags.contains(owner)))
        };
        let is_owned = |machine: &&Value| machine["Account"] == account && is_tagged(machine);
        let here = self.machines.iter().filter(|((place, _), _)| place == region).map(|(_, machine)| machine);
        let owned: Vec<&Value> = here.filter(is_owned).collect();
        let at = body["Offset"].as_u64().unwrap() as usize;
        let page: Vec<&Value> = owned.iter().copied().skip(at).take(1).collect();
        ok(json!({ "TotalCount": owned.len(), "InstanceSet": page }))
    }

    fn terminate(&mut self, region: &str, body: &Value) -> Result<HttpReply, String> {
        let id = body["InstanceIds"][0].as_str().unwrap().to_owned();
        match self.machines.get_mut(&(region.to_owned(), id)) {
            // As Tencent does, a machine that is being made cannot be ended yet.
            Some(machine) if machine["InstanceState"] == "PENDING" => {
                refuse("UnsupportedOperation.InstanceStatePending")
            }
            Some(machine) => {
                machine["InstanceState"] = "TERMINATING".into();
                ok(json!({}))
            }
            None => refuse("InvalidInstanceId.NotFound"),
        }
    }

    fn answer(&mut self, action: &str, region: &str, body: &Value) -> Result<HttpReply, String> {
        match action {
            "GetCallerIdentity" => {
                let (account, arn) = (self.account(), format!("qcs::cam::uin/{}:uin/2", self.account()));
                ok(json!({ "AccountId": account, "Arn": arn, "UserId": "2", "PrincipalId": "2", "Type": "CAMUser" }))
            }
            "DescribeRegions" => {
                let regions = REGIONS.map(|region| json!({ "Region": region, "RegionState": "AVAILABLE" }));
                ok(json!({ "TotalCount": 3, "RegionSet": regions }))
            }
            "DescribeZones" => {
                let of = |number: u32, state: &str| json!({ "Zone": format!("{region}-{number}"), "ZoneState": state });
                let zones = [of(7, "AVAILABLE"), of(6, "AVAILABLE"), of(1, "UNAVAILABLE")];
                ok(json!({ "TotalCount": 3, "ZoneSet": zones }))
            }
            "DescribeZoneInstanceConfigInfos" => {
                let status = if self.is_sold_out { "SOLD_OUT" } else { "SELL" };
                let of = |number: u32, status: &str| json!({ "Zone": format!("{region}-{number}"), "Status": status });
                ok(json!({ "InstanceTypeQuotaSet": [of(7, status), of(3, "SOLD_OUT"), of(6, status)] }))
            }
            "DescribeImages" => {
                let name =
                    if body["InstanceType"] == "GN8.LARGE56" { "CentOS" } else { "Ubuntu Server 22.04 LTS 64bit" };
                ok(json!({ "TotalCount": 1, "ImageSet": [{ "ImageId": "img-1", "OsName": name }] }))
            }
            "DescribeSecurityGroups" => {
                let has = filter(body, "security-group-name") == "gradus" && region != "eu-frankfurt";
                // A part of a name is found too.
                let mut groups = vec![json!({ "SecurityGroupId": "sg-0", "SecurityGroupName": "gradus-other" })];
                groups.extend(has.then(|| json!({ "SecurityGroupId": "sg-1", "SecurityGroupName": "gradus" })));
                ok(json!({ "TotalCount": 1, "SecurityGroupSet": groups }))
            }
            "DescribeDisks" => self.list_beside("Disk", region, body),
            "DescribeAddresses" => self.list_beside("Address", region, body),
            "TerminateDisks" => self.delete_beside(region, &body["DiskIds"]),
            "ReleaseAddresses" => self.delete_beside(region, &body["AddressIds"]),
            "RunInstances" => self.run(region, body),
            "DescribeInstances" if body.get("InstanceIds").is_some() => self.one(region, body),
            "DescribeInstances" => self.page(region, body),
            "TerminateInstances" => self.terminate(region, body),
            "DescribeInstancesActionTimer" => self.timers(region, body),
            "DeleteInstancesActionTimer" => self.forget(region, body),
            "ImportInstancesActionTimer" => self.import(region, body),
            "StopInstances" | "StartInstances" => self.change(action, region, body),
            other => panic!("{other}"),
        }
    }
}

impl HttpTransport for Twin {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let header = |name: &str| {
            let found = request.headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let host = header("host");
        let service = host.strip_suffix(".tencentcloudapi.com").unwrap();
        let seconds = header("x-tc-timestamp").parse().unwrap();
        if header("authorization") != signature::authorization(request, &key(), service, seconds) {
            return refuse("AuthFailure.SignatureFailure");
        }
        let mut state = self.state.lock().unwrap();
        let action = header("x-tc-action");
        if state.denied == Some(&*action) {
            return refuse("AuthFailure.UnauthorizedOperation");
        }
        state.answer(&action, &header("x-tc-region"), &serde_json::from_slice(&request.body).unwrap())
    }
}

fn api_with(twin: &Arc<Twin>, secret: &str, options: TencentOptions) -> Tencent {
    let variables = [("TENCENTCLOUD_SECRET_ID", "id"), ("TENCENTCLOUD_SECRET_KEY", secret)];
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Tencent::new(twin.clone(), None, TencentSources { variables, file: String::new() }, options)
}

fn api(twin: &Arc<Twin>) -> Tencent {
    api_with(twin, "secret", TencentOptions::default())
}

fn launch(twin: &Arc<Twin>, home: &std::path::Path, kind: &str) -> ProviderAnswer {
    launched(api(twin), home, kind)
}

const KIND: &str = "ap-guangzhou/ap-guangzhou-7/GN7.2XLARGE32/spot";

#[test]
fn it_keeps_what_every_provider_promises() {
    let twin = Arc::new(Twin::default());
    conforms(api(&twin), || twin.step());
    assert!(twin.state.lock().unwrap().machines.is_empty(), "nothing is left");
    assert_eq!(twin.state.lock().unwrap().made, 1);
}

#[test]
fn a_lost_answer_does_not_rent_twice() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    twin.state.lock().unwrap().lose = true;
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Doubt(_)));
    // Another provider over the same home: the loop was started again.
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    let state = twin.state.lock().unwrap();
    assert_eq!((state.made, state.tokens.len()), (1, 1));
    let (_, sent) = &state.tokens["r-i1"];
    assert_eq!((&sent["Placement"]["Zone"], &sent["ImageId"]), (&"ap-guangzhou-7".into(), &"img-1".into()));
    let spot = &sent["InstanceMarketOptions"];
    assert_eq!((&sent["InstanceChargeType"], &spot["MarketType"]), (&"SPOTPAID".into(), &"spot".into()));
    assert_eq!(spot["SpotOptions"]["MaxPrice"], "1.2", "the price that was asked for, in dollars");
    let tags = json!([{ "Key": "gradus-expires", "Value": "2025-11-24T10:26:40Z" },
                      { "Key": "gradus-instance", "Value": "r-i1" }, { "Key": "gradus-owner", "Value": OWNER }]);
    assert_eq!(sent["TagSpecification"][0]["Tags"], tags);
    assert_eq!(
        sent["ActionTimer"]["TimerAction"], "TerminateInstances",
        "Tencent itself is told when nobody needs it any more"
    );
    assert!(sent["UserData"].as_str().is_some_and(|text| text.starts_with("IyEvYmluL3No") && text.len() < 16 << 10));
}

#[test]
fn a_token_rents_once() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    let body = twin.state.lock().unwrap().tokens["r-i1"].1.to_string();
    let again = api(&twin).rent(&KIND.parse().unwrap(), &params([("body", &body)]));
    assert_eq!(again, Ok("ins-1".to_owned()));
    assert_eq!(twin.state.lock().unwrap().made, 1);
}

#[test]
fn a_refusal_says_why_and_nothing_is_made() {
    let check = |code, expected: &str| {
        let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
        twin.state.lock().unwrap().refuse = Some(code);
        assert_eq!(word_of(&launch(&twin, home.path(), KIND)), expected, "{code}");
        assert_eq!(twin.state.lock().unwrap().made, 0);
    };
    check("ResourceInsufficient.SpecifiedInstanceType", "capacity");
    check("ResourcesSoldOut.SpecifiedInstanceType", "capacity");
    check("LimitExceeded.SpotQuota", "quota");
    check("UnauthorizedOperation", "denied");
    check("RequestLimitExceeded", "other");
    check("InvalidParameterValue.Range", "other");
    check("InternalError", "doubt");
}

#[test]
fn a_machine_is_put_where_it_is_sold() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert_eq!(api(&twin).zones("ap-guangzhou").unwrap(), ["ap-guangzhou-6", "ap-guangzhou-7"]);
    let zone = |kind: &str| api(&twin).zone(&kind.parse().unwrap());
    assert_eq!(zone("ap-guangzhou/GN7.2XLARGE32").unwrap(), "ap-guangzhou-6", "the first that sells it");
    assert_eq!(zone(KIND).unwrap(), "ap-guangzhou-7", "as was asked for");
    twin.state.lock().unwrap().is_sold_out = true;
    assert!(matches!(zone("ap-guangzhou/GN7.2XLARGE32"), Err(CloudFailure::Capacity(_))));
    assert_eq!(word_of(&launch(&twin, home.path(), "ap-guangzhou/GN7.2XLARGE32")), "capacity");
    let why = format!(
        "{:?}",
        launch(&twin, tempfile::tempdir().unwrap().path(), "eu-frankfurt/eu-frankfurt-1/GN7.2XLARGE32")
    );
    assert!(why.contains("no security group `gradus` in `eu-frankfurt`; docs/tencent.md"), "{why}");
    let image = api(&twin).image(&"ap-guangzhou/GN8.LARGE56".parse().unwrap());
    assert!(matches!(image, Err(CloudFailure::Invalid(why)) if why.contains("name one as `image` in `tencent.json`")));
    let options = TencentOptions {
        image: Some("img-mine".to_owned()),
        security_groups: [("eu-frankfurt".to_owned(), "sg-mine".to_owned())].into(),
        ..TencentOptions::default()
    };
    let named = api_with(&twin, "secret", options);
    assert_eq!(named.group("eu-frankfurt").unwrap(), "sg-mine");
    assert_eq!(named.image(&KIND.parse().unwrap()).unwrap(), "img-mine");
    assert_eq!(twin.state.lock().unwrap().made, 0);
}

fn look(provider: &dyn Provider) -> ProviderAnswer {
    provider.call(&ProviderCall::Observe(Vec::new()))
}

#[test]
fn the_loop_looks_where_it_has_rented_and_an_audit_everywhere() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    assert!(
        matches!(look(&provider(home.path(), api(&twin))), ProviderAnswer::Observed(view) if view.machines.len() == 1)
    );
    assert_eq!(twin.state.lock().unwrap().looked, ["ap-guangzhou"]);
    twin.state.lock().unwrap().silent = Some("eu-frankfurt");
    assert!(matches!(look(&provider(home.path(), api(&twin))), ProviderAnswer::Observed(_)));
    let all = api(&twin).machines(OWNER);
    assert!(matches!(all, Err(CloudFailure::Doubt(why)) if why.contains("`eu-frankfurt`: no answer")));
}

#[test]
fn machines_of_others_are_not_seen_and_lists_are_read_to_their_end() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    let rents = provider(home.path(), api(&twin));
    for name in ["r-i1", "r-i2", "r-i3"] {
        let request = request(&rents, name, KIND);
        assert!(matches!(rents.call(&ProviderCall::Launch(Box::new(request))), ProviderAnswer::Accepted(_)));
    }
    assert_eq!(api(&twin).machines(OWNER).unwrap().len(), 3, "on three pages");
    assert_eq!(api(&twin).machines("somebody").unwrap(), []);
}

#[test]
fn what_is_being_made_is_ended_as_soon_as_that_can_be() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    let place = api(&twin).machines(OWNER).unwrap()[0].place();
    assert!(matches!(api(&twin).end(&place), Err(CloudFailure::Invalid(_))), "it is asked for again");
    twin.step();
    assert_eq!(api(&twin).end(&place), Ok(()));
    assert_eq!(api(&twin).machines(OWNER).unwrap()[0].state, MachineState::Ending);
    twin.step();
    assert!(matches!(api(&twin).end(&place), Err(CloudFailure::NotFound(_))));
}

#[test]
fn a_wrong_secret_is_named_as_such_and_what_is_missing_too() {
    let twin = Arc::new(Twin::default());
    let refused = api_with(&twin, "other", TencentOptions::default()).machines(OWNER);
    assert!(matches!(refused, Err(CloudFailure::Denied(why)) if why.contains("SignatureFailure: as asked; see docs/")));
    let check = |denied: Option<&'static str>, expected: &[&str]| {
        twin.state.lock().unwrap().denied = denied;
        let report = api(&twin).check(OWNER).unwrap();
        assert_eq!((report.account.as_str(), report.arn.as_str(), report.machines), ("1", "qcs::cam::uin/1:uin/2", 0));
        assert_eq!(report.missing, expected);
    };
    check(None, &[]);
    check(Some("RunInstances"), &["cvm:RunInstances"]);
    check(Some("DescribeSecurityGroups"), &["vpc:DescribeSecurityGroups"]);
    check(Some("DescribeRegions"), &["cvm:DescribeRegions"]);
    assert_eq!(twin.state.lock().unwrap().made, 0, "nothing is changed");
}

#[test]
fn an_audit_ends_what_no_run_has_and_nothing_else() {
    let twin = Arc::new(Twin::default());
    audits(Cloud::Tencent, || api(&twin), KIND, || twin.step());
}

#[test]
fn machines_that_call_over_tls_are_rented_only_where_they_are_heard() {
    let twin = Arc::new(Twin::default());
    rents_over_tls(|| api(&twin), KIND, || twin.state.lock().unwrap().made);
}
