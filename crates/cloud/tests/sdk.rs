//! What is sent to clouds, with their official SDKs as judges: each request is taken apart by the SDK's model of the API and
//! sent again by the SDK, and both are the same. `cargo xtask test --long` provides the SDKs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use cloud::alibaba::{Alibaba, AlibabaOptions, AlibabaSources};
use cloud::aws::credentials::CredentialSources;
use cloud::aws::wire::answers::{IngressRule, Peer};
use cloud::aws::wire::query::{self, Query};
use cloud::aws::wire::resources::{delete, describe_tagged, listing};
use cloud::aws::wire::{HttpReply, HttpRequest, HttpTransport};
use cloud::aws::{Client, ReachSettings};
use cloud::azure::{Azure, AzureOptions, AzureSources};
use cloud::gcp::{Gcp, GcpOptions, GcpSources};
use cloud::prices::{self, KnownTypes};
use cloud::rented::audit::resource::ResourceKind;
use cloud::rented::{CloudApi, LaunchOrder, MachineChoice, MachinePlace, MachinePower};
use cloud::ssh::{Executables, NodeReach};
use cloud::tencent::{Tencent, TencentOptions, TencentSources};
use cloud::{Aws, AwsOptions, AwsSettings, LaunchRequest, Provider, ProviderAnswer, ProviderCall};
use domain::rental::EndRequest;
use domain::volume::DiskTier;
use domain::{InstanceId, Node, Offer, Timestamp};
use serde_json::{Value, json};

/// The key that the SDK signs with too.
const KEY: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")];

const REGION: &str = "us-east-1";

/// Remembers what is sent, and answers as a cloud documents.
struct Recorder {
    answer: fn(&HttpRequest) -> (u16, String),
    sent: Mutex<Vec<HttpRequest>>,
}

impl Recorder {
    fn new(answer: fn(&HttpRequest) -> (u16, String)) -> Arc<Recorder> {
        Arc::new(Recorder { answer, sent: Mutex::default() })
    }

    /// The requests as the judge reads them.
    fn lines(&self, cloud: &str) -> Vec<Value> {
        let line = |request: &HttpRequest| {
            let headers: BTreeMap<&str, &str> =
                request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let body = String::from_utf8_lossy(&request.body);
            let action = body.split('&').next().unwrap_or_default().strip_prefix("Action=").unwrap_or_default();
            let named = ["x-acs-action", "x-tc-action"].into_iter().find_map(|name| headers.get(name).copied());
            let action = named.unwrap_or(action);
            json!({
                "cloud": cloud,
                "name": format!("{} {action}", request.method),
                "method": request.method,
                "url": request.url,
                "headers": headers,
                "body": body,
            })
        };
        self.sent.lock().unwrap().iter().map(line).collect()
    }
}

impl HttpTransport for Recorder {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let (status, body) = (self.answer)(request);
        // A token is not the cloud's own API.
        if !request.url.contains("/oauth2/") {
            self.sent.lock().unwrap().push(request.clone());
        }
        Ok(HttpReply { headers: Vec::new(), status, body: body.into_bytes() })
    }
}

fn request(kind: &str, name: &str, has_peers: bool) -> LaunchRequest {
    let rate = "1/h".parse().unwrap();
    LaunchRequest {
        members: vec![InstanceId::new(name)],
        token: format!("token-{name}"),
        offer: Offer {
            provider: String::new(),
            kind: kind.to_owned(),
            node: Node::default(),
            rate,
            price_source: String::new(),
        },
        price_cap: None,
        expires: Some(Timestamp(1_763_980_000_000_000)),
        first_answer: None,
        has_peers,
    }
}

fn of_aws(request: &HttpRequest) -> (u16, String) {
    let body = String::from_utf8_lossy(&request.body);
    let action = body.split('&').next().unwrap_or_default().strip_prefix("Action=").unwrap_or_default().to_owned();
    let answer = match action.as_str() {
        "" => r#"{"Parameter":{"Value":"ami-0123456789abcdef0"}}"#,
        "DescribeImages" => "<R><imagesSet><item><rootDeviceName>/dev/sda1</rootDeviceName></item></imagesSet></R>",
        "DescribeSubnets" => {
            "<R><subnetSet><item><vpcId>vpc-1</vpcId><availabilityZone>us-east-1a</availabilityZone></item></subnetSet></R>"
        }
        "CreateSecurityGroup" => "<R><groupId>sg-1</groupId></R>",
        "GetCallerIdentity" => {
            "<R><GetCallerIdentityResult><Account>123456789012</Account></GetCallerIdentityResult></R>"
        }
        "RunInstances" => {
            "<R><instancesSet><item><instanceId>i-1</instanceId><amiLaunchIndex>0</amiLaunchIndex></item></instancesSet></R>"
        }
        _ => "<R/>",
    };
    (200, answer.to_owned())
}

/// Every action of AWS that a home may send, as it sends it.
fn sent_to_aws() -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(of_aws);
    let client = || {
        let variables = KEY.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Client::new(recorder.clone(), CredentialSources { variables, ..CredentialSources::default() })
    };
    let program = Executables { gradus: "/bin/true".into(), rank: "/bin/true".into(), libtorch: None };
    let socket = home.path().join("loop.sock");
    let (owner, reach) = ("me / of tests".into(), NodeReach::Tunnel);
    let reach = ReachSettings { owner, socket, program, ssh_config: None, reach, door: None };
    let options = AwsOptions { ssh_from: Some("192.0.2.1".into()), ..AwsOptions::default() };
    let aws = Aws::new(AwsSettings { home: home.path().to_owned(), options, reach }, client());
    for (kind, name, has_peers, tier) in [
        ("us-east-1/us-east-1a/g4dn.xlarge/spot", "r-i1", false, None),
        ("us-east-1/c7i.large", "r-i2", true, Some(DiskTier::High)),
        ("us-east-1/p3.16xlarge", "r-i3", false, Some(DiskTier::Ultra)),
    ] {
        let mut request = request(kind, name, has_peers);
        request.offer.node.volume = tier.map(DiskTier::volume);
        let answer = aws.call(&ProviderCall::Launch(Box::new(request)));
        assert!(matches!(answer, ProviderAnswer::Accepted(_)), "{answer:?}");
    }
    aws.call(&ProviderCall::Observe(vec![InstanceId::new("r-i1")]));
    aws.call(&ProviderCall::End(vec![EndRequest { instance: InstanceId::new("r-i1"), handle: None }]));
    let rule = |peer| IngressRule { protocol: "tcp".into(), from: Some(22), to: Some(22), peer };
    let kinds = [
        ResourceKind::Interface,
        ResourceKind::Disk,
        ResourceKind::Address,
        ResourceKind::Snapshot,
        ResourceKind::Image,
        ResourceKind::SecurityGroup,
    ];
    let lists = kinds.into_iter().filter_map(listing);
    let lists = lists.flat_map(|action| [Some("me"), None].map(|owner| describe_tagged(action, owner, Some("a+b/="))));
    let deletes = kinds.into_iter().filter_map(|kind| delete(kind, "x-1"));
    let mut others: Vec<Query> = vec![
        query::stop("i-1"),
        query::start("i-1"),
        query::describe_regions(),
        query::describe_subnets(Some("subnet-1")),
        query::describe_all_subnets(Some("vpc-1")),
        query::describe_route_tables(Some("vpc-1")),
        query::run_instances(query::params([
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("ClientToken", "private"),
            ("NetworkInterface.1.DeviceIndex", "0"),
            ("NetworkInterface.1.SubnetId", "subnet-1"),
            ("NetworkInterface.1.AssociatePublicIpAddress", "false"),
            ("NetworkInterface.1.SecurityGroupId.1", "sg-1"),
        ])),
        query::describe_owned("me", Some("r-i1"), Some("a+b/=")),
        query::describe_spot_prices(&["p5.48xlarge", "g4dn.xlarge"], "2026-11-27T00:00:00Z", Some("more")),
        query::change_ingress(false, "sg-1", &rule(Peer::V4("192.0.2.1/32".into()))),
        query::change_ingress(false, "sg-1", &rule(Peer::V6("2001:db8::/32".into()))),
        query::dry(query::terminate(&["i-1"])),
        query::describe_reservations(),
        query::run_instances(query::params([
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("ClientToken", "reserved"),
            ("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId", "cr-1"),
            ("InstanceMarketOptions.MarketType", "capacity-block"),
        ])),
        query::assume_role("arn:aws:iam::123456789012:role/x", "gradus", Some("external"), Some("3600")),
    ];
    others.extend(lists.chain(deletes));
    for query in others {
        client().tell(REGION, &query).unwrap();
    }
    recorder.lines("aws")
}

/// Rents, lists and ends machines of each kind.
fn tried(api: &dyn CloudApi, kinds: &[&str]) {
    for kind in kinds {
        let (choice, request) = (kind.parse::<MachineChoice>().unwrap(), request(kind, "r-i1", false));
        let (name, owner, public_key) = ("gradus-0123-4567", "me", "ssh-ed25519 AAAA gradus");
        let order = LaunchOrder { request: &request, choice: &choice, name, owner, public_key };
        let handle = api.rent(&choice, &api.order(&order).unwrap()).unwrap();
        let (region, zone) = (choice.region.clone(), choice.zone.clone());
        api.end(&MachinePlace { handle, region, zone }).unwrap();
    }
    assert_eq!(api.machines("me").unwrap(), []);
}

fn sent_to_gcp() -> Vec<Value> {
    let recorder = Recorder::new(|request| match request.method {
        "GET" => (200, r#"{"items":{}}"#.to_owned()),
        _ => (200, r#"{"name":"o","status":"DONE"}"#.to_owned()),
    });
    let variables = [("GOOGLE_OAUTH_ACCESS_TOKEN".to_owned(), "token".to_owned())].into();
    let sources = GcpSources { variables, file: String::new() };
    let api = Gcp::new(recorder.clone(), None, sources, "p", GcpOptions::default());
    tried(&api, &["us-central1/us-central1-b/a2-highgpu-1g/spot", "us-central1/us-central1-a/n2-standard-4"]);
    recorder.lines("gcp")
}

fn sent_to_azure() -> Vec<Value> {
    let recorder = Recorder::new(|request| match request.method {
        "GET" => (200, r#"{"value":[]}"#.to_owned()),
        "POST" => (200, r#"{"token_type":"Bearer","expires_in":3599,"access_token":"token"}"#.to_owned()),
        _ => (202, "{}".to_owned()),
    });
    let variables = [("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_ID", "i"), ("AZURE_CLIENT_SECRET", "secret")];
    let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let api = Azure::new(recorder.clone(), None, AzureSources { variables }, "s", AzureOptions::default());
    tried(&api, &["eastus/1/Standard_NC24ads_A100_v4/spot", "eastus/Standard_NC4as_T4_v3"]);
    recorder.lines("azure")
}

fn header<'a>(request: &'a HttpRequest, name: &str) -> &'a str {
    request.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

fn of_alibaba(request: &HttpRequest) -> (u16, String) {
    let answer = match header(request, "x-acs-action") {
        "GetCallerIdentity" => r#"{"AccountId":"1","Arn":"acs:ram::1:user/u"}"#,
        "DescribeRegions" => r#"{"Regions":{"Region":[{"RegionId":"cn-hangzhou"}]}}"#,
        "DescribeSecurityGroups" => {
            r#"{"SecurityGroups":{"SecurityGroup":[{"SecurityGroupId":"sg-1","VpcId":"vpc-1"}]}}"#
        }
        "DescribeVSwitches" => {
            r#"{"VSwitches":{"VSwitch":[{"VSwitchId":"vsw-1","ZoneId":"cn-hangzhou-h","AvailableIpAddressCount":9}]}}"#
        }
        "RunInstances" => r#"{"InstanceIdSets":{"InstanceIdSet":["i-1"]}}"#,
        "DescribeInstances" if request.url.contains("InstanceIds=") => {
            r#"{"Instances":{"Instance":[{"Status":"Running","StoppedMode":"Not-applicable"}]}}"#
        }
        _ => "{}",
    };
    (200, answer.to_owned())
}

/// Every action of ECS that a home may send, as it sends it.
fn sent_to_alibaba() -> Vec<Value> {
    let recorder = Recorder::new(of_alibaba);
    let variables = [("ALIBABA_CLOUD_ACCESS_KEY_ID", "id"), ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "secret")];
    let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let sources = AlibabaSources { variables, config: String::new() };
    let api = Alibaba::new(recorder.clone(), None, sources, AlibabaOptions::default());
    tried(&api, &["cn-hangzhou/cn-hangzhou-h/ecs.gn6i-c4g1.xlarge/spot", "cn-hangzhou/ecs.gn5-c4g1.xlarge"]);
    stopped(&api, MachinePlace { handle: "i-1".into(), region: "us-east-1".into(), zone: None });
    assert_eq!(api.resources("me", false).unseen(), [""; 0]);
    api.check("me").unwrap();
    let known = KnownTypes::from([("ecs.gn6i-c4g1.xlarge".to_owned(), ["ap-southeast-1".to_owned()].into())]);
    prices::alibaba::on_demand(&api, &known, "ap-southeast-1", &|_| ()).unwrap();
    prices::alibaba::spot(&api, &["ecs.gn6i-c4g1.xlarge".to_owned()], "ap-southeast-1", &|_| ()).unwrap();
    recorder.lines("alibaba")
}

fn of_tencent(request: &HttpRequest) -> (u16, String) {
    let body = String::from_utf8_lossy(&request.body);
    let answer = match header(request, "x-tc-action") {
        "GetCallerIdentity" => r#"{"AccountId":"1","Arn":"qcs::cam::uin/1:uin/2"}"#,
        "DescribeRegions" => r#"{"RegionSet":[{"Region":"ap-guangzhou"}]}"#,
        "DescribeSecurityGroups" => r#"{"SecurityGroupSet":[{"SecurityGroupId":"sg-1","SecurityGroupName":"gradus"}]}"#,
        "DescribeZoneInstanceConfigInfos" => {
            r#"{"InstanceTypeQuotaSet":[{"Zone":"ap-guangzhou-6","InstanceType":"GN7.2XLARGE32","Status":"SELL"}]}"#
        }
        "DescribeImages" => r#"{"ImageSet":[{"ImageId":"img-1","OsName":"Ubuntu Server 22.04 LTS 64bit"}]}"#,
        "RunInstances" => r#"{"InstanceIdSet":["ins-1"]}"#,
        "DescribeInstances" if body.contains("InstanceIds") => {
            r#"{"TotalCount":1,"InstanceSet":[{"InstanceState":"RUNNING","StopChargingMode":"NOT_APPLICABLE"}]}"#
        }
        "DescribeInstances" => r#"{"TotalCount":0,"InstanceSet":[]}"#,
        "DescribeInstancesActionTimer" => r#"{"ActionTimers":[{"ActionTimerId":"865d042d","Status":"UNDO"}]}"#,
        _ => "{}",
    };
    (200, format!(r#"{{"Response":{answer}}}"#))
}

/// Every action of CVM that a home may send, as it sends it.
fn sent_to_tencent() -> Vec<Value> {
    let recorder = Recorder::new(of_tencent);
    let variables = [("TENCENTCLOUD_SECRET_ID", "id"), ("TENCENTCLOUD_SECRET_KEY", "secret")];
    let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let sources = TencentSources { variables, file: String::new() };
    let api = Tencent::new(recorder.clone(), None, sources, TencentOptions::default());
    tried(&api, &["ap-guangzhou/ap-guangzhou-7/GN7.2XLARGE32/spot", "ap-guangzhou/GN7.2XLARGE32"]);
    stopped(&api, MachinePlace { handle: "ins-1".into(), region: "ap-guangzhou".into(), zone: None });
    api.check("me").unwrap();
    let known = KnownTypes::from([("GN7.2XLARGE32".to_owned(), ["ap-guangzhou".to_owned()].into())]);
    prices::tencent::fetch(&api, &known, "ap-guangzhou", &|_| ()).unwrap();
    recorder.lines("tencent")
}

/// Stops a machine, starts it again, and looks whether it is on.
fn stopped(api: &dyn CloudApi, place: MachinePlace) {
    api.stop(&place).unwrap();
    api.start(&place, "token").unwrap();
    api.end_by(&place, Timestamp(1_763_980_000_000_000)).unwrap();
    assert_eq!(api.power(&place), Ok(MachinePower::On));
}

/// What the SDKs say.
fn judged(requests: &[Value]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("requests.jsonl");
    let lines: Vec<String> = requests.iter().map(|request| format!("{request}\n")).collect();
    std::fs::write(&file, lines.concat()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/peers/cloud_sdks.py");
    Command::new("python3").arg(script).arg(file).output().unwrap()
}

#[test]
#[ignore = "needs the clouds' SDKs: `cargo xtask test --long` provides them"]
fn official_sdks_send_the_same() {
    let requests = [sent_to_aws(), sent_to_gcp(), sent_to_azure(), sent_to_alibaba(), sent_to_tencent()].concat();
    let output = judged(&requests);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().filter(|line| line.ends_with(": the same")).count(), requests.len(), "{said}");
    eprintln!("{} requests, the same as those of the SDKs", requests.len());
}

#[test]
#[ignore = "needs the clouds' SDKs: `cargo xtask test --long` provides them"]
fn a_name_that_a_cloud_does_not_know_is_noticed() {
    let check = |requests: Vec<Value>, from: &str, to: &str| {
        let with = |request: &&Value| request["body"].as_str().is_some_and(|body| body.contains(from));
        let mut request = requests.iter().find(with).unwrap().clone();
        request["body"] = request["body"].as_str().unwrap().replace(from, to).into();
        let output = judged(std::slice::from_ref(&request));
        assert_eq!(output.status.code(), Some(1), "{to}: {}", String::from_utf8_lossy(&output.stdout));
    };
    check(sent_to_aws(), "InstanceType=", "InstanceKind=");
    check(sent_to_gcp(), "machineType", "machineKind");
    check(sent_to_azure(), "vmSize", "vmKind");
    check(sent_to_tencent(), "StopType", "StopKind");
    // Requests to Alibaba have no body.
    let mut request = sent_to_alibaba().into_iter().find(|request| request["name"] == "POST StopInstance").unwrap();
    request["url"] = request["url"].as_str().unwrap().replace("StoppedMode", "StopMode").into();
    assert_eq!(judged(&[request]).status.code(), Some(1));
}
