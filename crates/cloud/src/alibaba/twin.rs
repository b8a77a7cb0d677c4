//! A stand-in for Alibaba Cloud, in this process: what its documentation says that it answers. It checks signatures.

mod kept;
mod network;
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
    tokens: BTreeMap<String, (String, Form)>,
    /// Disks, snapshots and addresses, by kind, region and id.
    beside: BTreeMap<(String, String, String), Value>,
    nonces: BTreeSet<String>,
    made: u32,
    /// The status and code with which the next request to rent is refused.
    refuse: Option<(u16, &'static str)>,
    lose: bool,
    /// A region that does not answer.
    silent: Option<&'static str>,
    /// An action that is not allowed.
    denied: Option<&'static str>,
    /// The regions that were looked at.
    looked: Vec<String>,
    /// Whose the key is; `1` without.
    account: Option<&'static str>,
}

type Form = BTreeMap<String, String>;

const REGIONS: [&str; 3] = ["ap-southeast-1", "cn-hangzhou", "us-east-1"];

impl Twin {
    fn step(&self) {
        let mut state = self.state.lock().unwrap();
        state.machines.retain(|_, machine| machine["Status"] != "Stopping");
        for machine in state.machines.values_mut().filter(|machine| machine["Status"] == "Pending") {
            machine["Status"] = "Running".into();
        }
    }
}

fn ok(value: &Value) -> Result<HttpReply, String> {
    Ok(HttpReply { headers: Vec::new(), status: 200, body: value.to_string().into_bytes() })
}

fn refuse(status: u16, code: &str) -> Result<HttpReply, String> {
    let body = json!({ "RequestId": "r", "HostId": "h", "Code": code, "Message": "as asked", "Recommend": "" });
    Ok(HttpReply { headers: Vec::new(), status, body: body.to_string().into_bytes() })
}

fn key() -> AccessKey {
    AccessKey { id: "id".into(), secret: "secret".into(), session: None }
}

fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte.unwrap()).to_digit(16).unwrap() as u8;
        bytes.push(if byte == b'%' { digit(rest.next()) << 4 | digit(rest.next()) } else { byte });
    }
    String::from_utf8(bytes).unwrap()
}

impl TwinState {
    fn account(&self) -> &'static str {
        self.account.unwrap_or("1")
    }

    /// Whether a request is signed by who may ask, for the first time.
    fn admits(&mut self, request: &HttpRequest) -> Result<(), &'static str> {
        let header = |name: &str| {
            let found = request.headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let mut unsigned = request.clone();
        unsigned.headers.retain(|(name, _)| name != "authorization");
        if header("authorization") != signature::authorization(&unsigned, &key()) {
            return Err("SignatureDoesNotMatch");
        }
        match self.nonces.insert(header("x-acs-signature-nonce")) {
            true => Ok(()),
            false => Err("SignatureNonceUsed"),
        }
    }

    fn run(&mut self, region: &str, form: &Form) -> Result<HttpReply, String> {
        if form.contains_key("DryRun") {
            return refuse(400, "DryRunOperation");
        }
        let answer = |id: &str| json!({ "RequestId": "r", "InstanceIdSets": { "InstanceIdSet": [id] } });
        if let Some((id, sent)) = self.tokens.get(&form["ClientToken"]) {
            return if sent == form { ok(&answer(id)) } else { refuse(400, "IdempotentParameterMismatch") };
        }
        if let Some((status, code)) = self.refuse.take() {
            return refuse(status, code);
        }
        assert_eq!((form["SecurityGroupId"].as_str(), form.get("RamRoleName")), ("sg-1", None));
        if form.contains_key("SpotStrategy") && !form.contains_key("ZoneId") {
            return refuse(400, "InvalidSpotParam.EmptyZoneID");
        }
        self.made += 1;
        let id = format!("i-{}", self.made);
        let made = times::rfc3339(clock());
        let machine = json!({
            "InstanceId": id, "InstanceName": form["InstanceName"], "InstanceType": form["InstanceType"],
            "ZoneId": form["ZoneId"], "Status": "Pending", "CreationTime": format!("{}Z", &made[..16]),
            "SpotStrategy": form.get("SpotStrategy").map_or("NoSpot", String::as_str), "Owner": form["Tag.1.Value"],
            "PublicIpAddress": { "IpAddress": ["192.0.2.7"] }, "Account": self.account(),
            "StoppedMode": "Not-applicable", "AutoReleaseTime": form.get("AutoReleaseTime"),
        });
        self.machines.insert((region.to_owned(), id.clone()), machine);
        self.tokens.insert(form["ClientToken"].clone(), (id.clone(), form.clone()));
        if std::mem::take(&mut self.lose) { Err("connection reset".to_owned()) } else { ok(&answer(&id)) }
    }

    /// One machine a page.
    fn page(&mut self, region: &str, form: &Form) -> Result<HttpReply, String> {
        let owner = form.get("Tag.1.Value");
        assert!(owner.is_none() || form["Tag.1.Key"] == "gradus-owner");
        self.looked.push(region.to_owned());
        if self.silent == Some(region) {
            return Err("timed out".to_owned());
        }
        let at: usize = form.get("NextToken").map_or(0, |token| token.parse().unwrap());
        let account = self.account();
        let is_here = |place: &str, machine: &Value| place == region && machine["Account"] == account;
        let here =
            self.machines.iter().filter(|((place, _), machine)| is_here(place, machine)).map(|(_, machine)| machine);
        let is_owned = |machine: &&Value| owner.is_none_or(|owner| machine["Owner"] == owner.as_str());
        let owned: Vec<&Value> = here.filter(is_owned).collect();
        let next = if at + 1 < owned.len() { (at + 1).to_string() } else { String::new() };
        let page: Vec<&Value> = owned.into_iter().skip(at).take(1).collect();
        ok(&json!({ "TotalCount": 9, "NextToken": next, "Instances": { "Instance": page } }))
    }

    fn delete(&mut self, region: &str, form: &Form) -> Result<HttpReply, String> {
        let id = &form["InstanceId"];
        match self.machines.get_mut(&(region.to_owned(), id.clone())) {
            // As Alibaba does, a machine that is being made cannot be ended yet.
            Some(machine) if machine["Status"] == "Pending" => refuse(403, "IncorrectInstanceStatus.Initializing"),
            Some(machine) => {
                assert_eq!(form.get("Force").map(String::as_str), Some("true"));
                machine["Status"] = "Stopping".into();
                ok(&json!({ "RequestId": "r" }))
            }
            None => refuse(404, "InvalidInstanceId.NotFound"),
        }
    }
}

impl HttpTransport for Twin {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let mut state = self.state.lock().unwrap();
        if let Err(code) = state.admits(request) {
            return refuse(400, code);
        }
        let action = request.headers.iter().find(|(name, _)| name == "x-acs-action").unwrap().1.clone();
        if state.denied == Some(&*action) {
            return refuse(403, "Forbidden.RAM");
        }
        let (base, query) = request.url.split_once("/?").unwrap_or((request.url.trim_end_matches('/'), ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let form: Form = pairs.map(|(name, value)| (plain(name), plain(value))).collect();
        let host = base.strip_prefix("https://").unwrap();
        let region = match host {
            "sts.aliyuncs.com" => {
                let (account, arn) = (state.account(), format!("acs:ram::{}:user/u", state.account()));
                return ok(&json!({ "IdentityType": "RAMUser", "AccountId": account, "Arn": arn, "UserId": "2" }));
            }
            "ecs.aliyuncs.com" => {
                let regions = REGIONS.map(|region| json!({ "RegionId": region, "LocalName": "x" }));
                return ok(&json!({ "RequestId": "r", "Regions": { "Region": regions } }));
            }
            "ecs-cn-hangzhou.aliyuncs.com" | "vpc.aliyuncs.com" => "cn-hangzhou",
            host => host.strip_suffix(".aliyuncs.com").unwrap().split_once('.').unwrap().1,
        };
        match action.as_str() {
            "RunInstances" => state.run(region, &form),
            "DescribeInstances" if form.contains_key("InstanceIds") => state.one(region, &form),
            "DescribeInstances" => state.page(region, &form),
            "DeleteInstance" => state.delete(region, &form),
            "DescribeDisks" => state.list_beside("Disk", region, &form),
            "DescribeSnapshots" => state.list_beside("Snapshot", region, &form),
            "DescribeEipAddresses" => state.list_beside("EipAddress", region, &form),
            "DeleteDisk" => state.delete_beside("Disk", region, &form["DiskId"]),
            "ReleaseEipAddress" => state.delete_beside("EipAddress", region, &form["AllocationId"]),
            "StopInstance" | "StartInstance" | "ModifyInstanceAutoReleaseTime" => state.change(&action, region, &form),
            "DescribeSecurityGroups" => {
                let groups = match form.get("SecurityGroupName").map(String::as_str) {
                    Some("gradus") if region != "us-east-1" => {
                        vec![json!({ "SecurityGroupId": "sg-1", "VpcId": "vpc-1", "SecurityGroupName": "gradus" })]
                    }
                    _ => Vec::new(),
                };
                ok(&json!({ "RequestId": "r", "SecurityGroups": { "SecurityGroup": groups } }))
            }
            "DescribeVSwitches" => {
                let of = |zone: &str, left: u32| {
                    let id = format!("vsw-{zone}");
                    json!({ "VSwitchId": id, "ZoneId": format!("{region}-{zone}"), "AvailableIpAddressCount": left })
                };
                let switches = match form.get("VSwitchId") {
                    Some(id) => vec![json!({ "VSwitchId": id, "ZoneId": format!("{region}-h"),
                                             "AvailableIpAddressCount": 9 })],
                    None => vec![of("h", 9), of("g", 9), of("a", 0), of("g", 9)],
                };
                ok(&json!({ "VSwitches": { "VSwitch": switches } }))
            }
            other => panic!("{other}"),
        }
    }
}

fn api_with(twin: &Arc<Twin>, secret: &str, options: AlibabaOptions) -> Alibaba {
    let variables = [("ALIBABA_CLOUD_ACCESS_KEY_ID", "id"), ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", secret)];
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Alibaba::new(twin.clone(), None, AlibabaSources { variables, config: String::new() }, options)
}

fn api(twin: &Arc<Twin>) -> Alibaba {
    api_with(twin, "secret", AlibabaOptions::default())
}

fn launch(twin: &Arc<Twin>, home: &std::path::Path, kind: &str) -> ProviderAnswer {
    launched(api(twin), home, kind)
}

const KIND: &str = "cn-hangzhou/cn-hangzhou-h/ecs.gn6i-c4g1.xlarge/spot";

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
    let value = |name: &str| sent.get(name).map_or("", String::as_str);
    assert_eq!((value("VSwitchId"), value("ZoneId")), ("vsw-h", "cn-hangzhou-h"));
    assert_eq!((value("SpotStrategy"), value("SpotInterruptionBehavior")), ("SpotWithPriceLimit", "Terminate"));
    assert!(value("SpotPriceLimit").parse::<f64>().is_ok_and(|limit| limit > 0.1), "{}", value("SpotPriceLimit"));
    let tags = ["Tag.1.Value", "Tag.2.Key", "Tag.2.Value", "Tag.3.Key", "Tag.3.Value"].map(value);
    assert_eq!(tags, [OWNER, "gradus-instance", "r-i1", "gradus-expires", "2025-11-24T10:26:40Z"]);
    assert!(value("AutoReleaseTime").ends_with(":00Z"), "Alibaba itself ends what nobody needs any more");
    assert!(value("UserData").starts_with("IyEvYmluL3No"), "a script of a shell");
    assert_eq!((value("ImageFamily"), value("SystemDisk.Category")), ("acs:ubuntu_22_04_x64", "cloud_essd"));
}

#[test]
fn a_token_rents_once_and_only_what_it_was_for() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    let sent: Params = twin.state.lock().unwrap().tokens["r-i1"].1.clone().into_iter().collect();
    let choice = KIND.parse().unwrap();
    assert_eq!(api(&twin).rent(&choice, &sent).unwrap(), "i-1");
    let other: Params = sent.into_iter().filter(|(name, _)| name != "InstanceType").collect();
    assert!(matches!(api(&twin).rent(&choice, &other), Err(CloudFailure::Exists(_))));
    assert_eq!(twin.state.lock().unwrap().made, 1);
}

#[test]
fn a_refusal_says_why_and_nothing_is_made() {
    let check = |status, code, expected: &str| {
        let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
        twin.state.lock().unwrap().refuse = Some((status, code));
        assert_eq!(word_of(&launch(&twin, home.path(), KIND)), expected, "{code}");
        assert_eq!(twin.state.lock().unwrap().made, 0);
    };
    check(403, "OperationDenied.NoStock", "capacity");
    check(403, "Zone.NotOnSale", "capacity");
    check(403, "QuotaExceed.ElasticQuota", "quota");
    check(403, "Forbidden.RAM", "denied");
    check(400, "Throttling.User", "other");
    check(400, "InvalidParameter", "other");
    check(500, "InternalError", "doubt");
}

fn look(provider: &dyn Provider) -> ProviderAnswer {
    provider.call(&ProviderCall::Observe(Vec::new()))
}

#[test]
fn the_loop_looks_where_it_has_rented_and_an_audit_everywhere() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert!(matches!(look(&provider(home.path(), api(&twin))), ProviderAnswer::Observed(view) if view.is_complete));
    assert_eq!(twin.state.lock().unwrap().looked, [""; 0], "nothing was ever asked for");
    assert!(matches!(launch(&twin, home.path(), KIND), ProviderAnswer::Accepted(_)));
    assert!(
        matches!(look(&provider(home.path(), api(&twin))), ProviderAnswer::Observed(view) if view.machines.len() == 1)
    );
    assert_eq!(twin.state.lock().unwrap().looked, ["cn-hangzhou"]);
    twin.state.lock().unwrap().silent = Some("us-east-1");
    assert!(matches!(look(&provider(home.path(), api(&twin))), ProviderAnswer::Observed(_)));
    let all = api(&twin).machines(OWNER);
    assert!(matches!(all, Err(CloudFailure::Doubt(why)) if why.contains("`us-east-1`: no answer")));
    twin.state.lock().unwrap().silent = Some("cn-hangzhou");
    assert!(matches!(look(&provider(home.path(), api(&twin))), ProviderAnswer::Unavailable(_)), "no view is no proof");
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
    let started = api(&twin).machines(OWNER).unwrap()[0].started.unwrap();
    assert_eq!(started.0 % 60_000_000, 0, "Alibaba leaves seconds out");
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
fn a_wrong_secret_is_named_as_such() {
    let twin = Arc::new(Twin::default());
    let wrong = api_with(&twin, "other", AlibabaOptions::default());
    let refused = wrong.machines(OWNER);
    assert!(
        matches!(refused, Err(CloudFailure::Denied(why)) if why.contains("SignatureDoesNotMatch: as asked; see docs/"))
    );
}

#[test]
fn what_is_missing_is_named() {
    let twin = Arc::new(Twin::default());
    let check = |denied: Option<&'static str>, expected: &[&str]| {
        twin.state.lock().unwrap().denied = denied;
        let report = api(&twin).check(OWNER).unwrap();
        assert_eq!((report.account.as_str(), report.arn.as_str(), report.machines), ("1", "acs:ram::1:user/u", 0));
        assert_eq!(report.missing, expected);
    };
    check(None, &[]);
    check(Some("RunInstances"), &["ecs:RunInstances"]);
    check(Some("DescribeVSwitches"), &["vpc:DescribeVSwitches"]);
    check(Some("DescribeRegions"), &["ecs:DescribeRegions"]);
    twin.state.lock().unwrap().denied = Some("GetCallerIdentity");
    assert!(matches!(api(&twin).check(OWNER), Err(CloudFailure::Denied(_))));
    assert_eq!(twin.state.lock().unwrap().made, 0, "nothing is changed");
}

#[test]
fn an_audit_ends_what_no_run_has_and_nothing_else() {
    let twin = Arc::new(Twin::default());
    audits(Cloud::Alibaba, || api(&twin), KIND, || twin.step());
}

#[test]
fn machines_that_call_over_tls_are_rented_only_where_they_are_heard() {
    let twin = Arc::new(Twin::default());
    rents_over_tls(|| api(&twin), KIND, || twin.state.lock().unwrap().made);
}
