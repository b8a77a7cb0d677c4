//! The provider `aws` against moto, an independent stand-in for AWS; `cargo xtask test` provides it.
//!
//! moto itself accepts a token twice and never fails; the [`proxy`] in front of it behaves like AWS.

mod beside;
mod faults;
mod kept;
mod private;
mod proxy;
mod server;

use std::collections::BTreeSet;
use std::time::Instant;

use cloud::aws::wire::answers::{Groups, Items, ListedMachine};
use cloud::aws::wire::query::{self, Query, params};
use cloud::aws::{Auditor, Client};
use cloud::conformance::{Awaited, ProviderWorld};
use cloud::rented::audit::{AuditVerdict, AuditedMachine};
use cloud::{Catalog, LaunchRequest, Provider, ProviderAnswer, ProviderCall};
use domain::rental::{EndRequest, MachineState, Refusal};
use domain::{Duration, Elapsed, InstanceId, Offer};

use proxy::Proxy;
use server::{Moto, OWNER, client, provider};

const ANY_KEY: (&str, &str) = ("key", "secret");
const REGION: &str = "us-east-1";

/// moto passes through states by itself.
struct AtOnce(Instant);

impl ProviderWorld for AtOnce {
    fn pass(&self, _: Awaited) -> bool {
        self.0.elapsed().as_secs() < 60
    }

    fn is_metered(&self) -> bool {
        true
    }

    fn longest_rent(&self) -> Elapsed {
        // AWS bills a minute at least.
        Elapsed(60_000_000 + Elapsed::from_std(self.0.elapsed()).0)
    }
}

pub fn offer(kind: &str) -> Offer {
    let rate = "1/h".parse().unwrap();
    Offer {
        provider: "aws".into(),
        kind: kind.into(),
        node: domain::Node::default(),
        rate,
        price_source: "test".into(),
    }
}

pub fn request(instance: &str, token: &str) -> LaunchRequest {
    LaunchRequest {
        members: vec![InstanceId::new(instance)],
        token: token.into(),
        offer: offer("us-east-1/g4dn.xlarge/spot"),
        price_cap: None,
        expires: None,
        first_answer: None,
        has_peers: false,
    }
}

pub fn launch(provider: &dyn Provider, request: &LaunchRequest) -> ProviderAnswer {
    provider.call(&ProviderCall::Launch(Box::new(request.clone())))
}

/// All machines of the tests' owner in moto, in any state.
pub fn all(client: &Client) -> Vec<ListedMachine> {
    client.machines(REGION, OWNER, None).unwrap()
}

fn living(client: &Client) -> usize {
    all(client).iter().filter(|machine| machine.instance_state.name != "terminated").count()
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn the_provider_keeps_its_promises() {
    let (moto, home) = (Moto::start(None), tempfile::tempdir().unwrap());
    let proxy = Proxy::start(moto.port, None);
    let provider = provider(home.path(), proxy.port, ANY_KEY);
    cloud::conformance::check(&provider, &InstanceId::new("r-i1"), &AtOnce(Instant::now()));
}

/// moto takes the speed of a disk and does not list it, so that is read from what was sent.
#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn a_disk_is_rented_as_fast_as_it_was_planned() {
    #[derive(Default, serde::Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Volumes {
        volume_set: Items<ListedVolume>,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct ListedVolume {
        size: String,
        volume_type: String,
    }
    let (moto, home) = (Moto::start(None), tempfile::tempdir().unwrap());
    let (provider, direct) = (provider(home.path(), moto.port, ANY_KEY), client(moto.port, ANY_KEY));
    let mut fast = request("r-i1", "token");
    fast.offer.node.volume = Some(domain::volume::DiskTier::High.volume());
    assert!(matches!(launch(&provider, &fast), ProviderAnswer::Accepted(_)));
    let listed = Query { service: "ec2", action: "DescribeVolumes", params: params([]) };
    let listed: Volumes = direct.ask(REGION, &listed).unwrap();
    let listed: Vec<String> =
        listed.volume_set.item.iter().map(|volume| format!("{} {}", volume.volume_type, volume.size)).collect();
    assert_eq!(listed, ["gp3 40"]);
    let text = std::fs::read_to_string(home.path().join("instances/r-i1/aws.json")).unwrap();
    let rental: serde_json::Value = serde_json::from_str(&text).unwrap();
    let sent = |name: &str| {
        let name = format!("BlockDeviceMapping.1.Ebs.{name}");
        let mut pairs = rental["params"].as_array().unwrap().iter();
        pairs.find(|pair| pair[0] == name.as_str()).map(|pair| pair[1].as_str().unwrap().to_owned())
    };
    assert_eq!((sent("Iops").as_deref(), sent("Throughput").as_deref()), (Some("7000"), Some("437")));
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn a_token_rents_one_machine_whatever_was_lost_here() {
    let (moto, home) = (Moto::start(None), tempfile::tempdir().unwrap());
    let (proxy, direct) = (Proxy::start(moto.port, None), client(moto.port, ANY_KEY));
    let first = launch(&provider(home.path(), proxy.port, ANY_KEY), &request("r-i1", "token"));
    assert!(matches!(first, ProviderAnswer::Accepted(_)), "{first:?}");
    // The reply was never recorded: the same request is repeated.
    let file = home.path().join("instances/r-i1/aws.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut rental: serde_json::Value = serde_json::from_str(&text).unwrap();
    rental["handle"] = serde_json::Value::Null;
    std::fs::write(&file, rental.to_string()).unwrap();
    assert_eq!(launch(&provider(home.path(), proxy.port, ANY_KEY), &request("r-i1", "token")), first);
    // All state was lost, and another request is sent with the token: AWS refuses, and is queried for the token's
    // machine.
    let other_home = tempfile::tempdir().unwrap();
    assert_eq!(launch(&provider(other_home.path(), proxy.port, ANY_KEY), &request("r-i1", "token")), first);
    assert_eq!(all(&direct).len(), 1);
    let machine = &all(&direct)[0];
    assert_eq!(machine.instance_lifecycle, "spot");
    assert_eq!(machine.tag("gradus-instance"), Some("r-i1"));
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn a_group_lets_in_ssh_from_here_and_nothing_else() {
    let (moto, home) = (Moto::start(None), tempfile::tempdir().unwrap());
    let (provider, direct) = (provider(home.path(), moto.port, ANY_KEY), client(moto.port, ANY_KEY));
    launch(&provider, &request("r-i1", "one"));
    let groups = || -> Groups {
        let named = Query {
            service: "ec2",
            action: "DescribeSecurityGroups",
            params: params([("Filter.1.Name", "tag:gradus-owner"), ("Filter.1.Value.1", OWNER)]),
        };
        direct.ask(REGION, &named).unwrap()
    };
    let rules = |groups: Groups| -> Vec<String> {
        let each = groups.security_group_info.item.iter().flat_map(|group| group.rules());
        each.map(|rule| format!("{} {:?} {}", rule.protocol, rule.from, rule.peer.value())).collect()
    };
    assert_eq!(rules(groups()), ["tcp Some(22) 192.0.2.1/32"]);
    // Another user opens it to the world; the next launch closes it.
    let group = groups().security_group_info.item[0].group_id.clone();
    let world = query::change_ingress(
        true,
        &group,
        &cloud::aws::wire::answers::IngressRule {
            protocol: "tcp".into(),
            from: Some(0),
            to: Some(65535),
            peer: cloud::aws::wire::answers::Peer::V4("0.0.0.0/0".into()),
        },
    );
    direct.tell(REGION, &world).unwrap();
    assert_eq!(rules(groups()).len(), 2);
    launch(&provider, &request("r-i2", "two"));
    assert_eq!(rules(groups()), ["tcp Some(22) 192.0.2.1/32"]);
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn machines_of_one_job_reach_each_other_and_nobody_else_reaches_them() {
    let (moto, home) = (Moto::start(None), tempfile::tempdir().unwrap());
    let (provider, direct) = (provider(home.path(), moto.port, ANY_KEY), client(moto.port, ANY_KEY));
    let zones = cloud::aws::zones(&direct, REGION).unwrap();
    assert!(zones.len() > 2 && zones[0] == "us-east-1a", "{zones:?}");
    let kind = format!("us-east-1/{}/g4dn.xlarge", zones[1]);
    for (instance, has_peers) in [("r-i1", true), ("r-i2", true), ("r-i3", false)] {
        let request = LaunchRequest { has_peers, offer: offer(&kind), ..request(instance, instance) };
        let answer = launch(&provider, &request);
        assert!(matches!(answer, ProviderAnswer::Accepted(_)), "{answer:?}");
    }
    let named = Query {
        service: "ec2",
        action: "DescribeSecurityGroups",
        params: params([("Filter.1.Name", "tag:gradus-owner"), ("Filter.1.Value.1", OWNER)]),
    };
    let groups: Groups = direct.ask(REGION, &named).unwrap();
    let mut rules: Vec<String> = Vec::new();
    for group in &groups.security_group_info.item {
        let rule = |peer: &str| if peer == group.group_id { "itself".to_owned() } else { peer.to_owned() };
        let each = group.rules().into_iter().map(|one| format!("{} {}", one.protocol, rule(one.peer.value())));
        let mut each: Vec<String> = each.collect();
        each.sort();
        rules.push(each.join(", "));
    }
    rules.sort();
    assert_eq!(rules, ["-1 itself, tcp 192.0.2.1/32", "tcp 192.0.2.1/32"]);
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn one_request_rents_several_machines_that_are_told_apart() {
    let (moto, home) = (Moto::start(None), tempfile::tempdir().unwrap());
    let (proxy, direct) = (Proxy::start(moto.port, None), client(moto.port, ANY_KEY));
    let rented = provider(home.path(), proxy.port, ANY_KEY);
    let members: Vec<InstanceId> = (9..12).map(|number| InstanceId::new(format!("r-i{number}"))).collect();
    let wanted = LaunchRequest { members: members.clone(), has_peers: true, ..request("r-i9", "token") };
    let first = launch(&rented, &wanted);
    let ProviderAnswer::Accepted(named) = &first else { panic!("{first:?}") };
    assert_eq!(named.iter().map(|(member, _)| member.clone()).collect::<Vec<_>>(), members);
    // Asked for again, also where nothing is known here any more.
    assert_eq!(launch(&rented, &wanted), first);
    let other_home = tempfile::tempdir().unwrap();
    assert_eq!(launch(&provider(other_home.path(), proxy.port, ANY_KEY), &wanted), first);
    assert_eq!(living(&direct), 3);
    let seen = || match rented.call(&ProviderCall::Observe(members.clone())) {
        ProviderAnswer::Observed(view) => view.machines,
        answer => panic!("{answer:?}"),
    };
    let mut names: Vec<(InstanceId, _)> = seen().into_iter().map(|one| (one.instance, one.handle)).collect();
    names.sort();
    let mut expected = named.clone();
    expected.sort();
    assert_eq!(names, expected);
    // One of them is ended, by our name alone.
    let middle = EndRequest { instance: members[1].clone(), handle: None };
    std::fs::remove_file(other_home.path().join("instances/r-i10/aws.json")).unwrap();
    let unknowing = provider(other_home.path(), proxy.port, ANY_KEY);
    assert_eq!(unknowing.call(&ProviderCall::End(vec![middle])), ProviderAnswer::Ending);
    let alive: BTreeSet<InstanceId> = all(&direct)
        .iter()
        .filter(|machine| !["terminated", "shutting-down"].contains(&machine.instance_state.name.as_str()))
        .filter_map(|machine| machine.instance().map(InstanceId::new))
        .collect();
    assert_eq!(alive, BTreeSet::from([members[0].clone(), members[2].clone()]));
    let apart = LaunchRequest { members: vec![members[0].clone(), members[2].clone()], ..request("r-i9", "other") };
    assert!(matches!(launch(&rented, &apart), ProviderAnswer::Refused(Refusal::Invalid { .. })));
}

/// Without any one action of the policy, `gradus cloud check aws` names it, and prints a statement with it.
#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn each_missing_permission_is_named() {
    let mut whole = cloud::aws::policy();
    let mut actions = Vec::new();
    for statement in whole["Statement"].as_array_mut().unwrap() {
        // moto reads neither conditions nor parts of resources.
        statement["Resource"] = "*".into();
        let each = statement["Action"].as_array().unwrap().iter().map(|action| action.as_str().unwrap().to_owned());
        actions.extend(each);
    }
    // What is looked at is asked for each; the rest is tried dry, and may need what it is allowed for.
    let asked: Vec<&String> = actions.iter().filter(|action| !action.starts_with("iam:")).collect();
    let moto = Moto::start(Some(3 * asked.len() as u32));
    let direct = client(moto.port, ANY_KEY);
    let mut keys = Vec::new();
    for action in &asked {
        let mut less = whole.clone();
        for statement in less["Statement"].as_array_mut().unwrap() {
            statement["Action"].as_array_mut().unwrap().retain(|allowed| allowed != action.as_str());
        }
        less["Statement"].as_array_mut().unwrap().retain(|statement| statement["Action"] != serde_json::json!([]));
        keys.push(identity(&direct, &action.replace(':', "-"), &less.to_string()));
    }
    let unsure = [
        "ec2:TerminateInstances",
        "ec2:StopInstances",
        "ec2:StartInstances",
        "ec2:AuthorizeSecurityGroupIngress",
        "ec2:RevokeSecurityGroupIngress",
        "ec2:DeleteVolume",
        "ec2:ReleaseAddress",
        "ec2:DeleteNetworkInterface",
    ];
    for (action, (id, secret)) in asked.iter().zip(&keys) {
        let report = cloud::aws::check(&client(moto.port, (id, secret)), REGION).unwrap();
        let found = report.permissions.iter().find(|permission| permission.action == action.as_str());
        let is_allowed = found.map(|permission| permission.is_allowed);
        match action.as_str() {
            // It comes with making, and moto does not ask for it.
            "ec2:CreateTags" => {}
            action if unsure.contains(&action) => assert_eq!(is_allowed, Some(None), "{action}"),
            action => {
                assert_eq!(is_allowed, Some(Some(false)), "{action}: {report:?}");
                let text = serde_json::json!(report.missing()).to_string();
                assert!(text.contains(action), "{action} is not in {text}");
            }
        }
    }
}

/// An identity with a policy, made while moto asks nobody who they are.
fn identity(direct: &Client, name: &str, policy: &str) -> (String, String) {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Made {
        create_access_key_result: Inner,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Inner {
        access_key: cloud::aws::wire::answers::SessionCredentials,
    }
    let iam = |action, params| Query { service: "iam", action, params };
    direct.tell(REGION, &iam("CreateUser", params([("UserName", name)]))).unwrap();
    let allowed = params([("UserName", name), ("PolicyName", "gradus"), ("PolicyDocument", policy)]);
    direct.tell(REGION, &iam("PutUserPolicy", allowed)).unwrap();
    let made: Made = direct.ask(REGION, &iam("CreateAccessKey", params([("UserName", name)]))).unwrap();
    let key = made.create_access_key_result.access_key;
    (key.access_key_id, key.secret_access_key)
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn what_is_not_allowed_is_named_with_the_line_to_add() {
    let moto = Moto::start(Some(6));
    let direct = client(moto.port, ANY_KEY);
    let mut whole = cloud::aws::policy();
    // moto reads neither conditions nor parts of resources.
    for statement in whole["Statement"].as_array_mut().unwrap() {
        statement["Resource"] = "*".into();
    }
    let mut less = whole.clone();
    let statements = less["Statement"].as_array_mut().unwrap();
    statements.retain(|statement| statement["Sid"] != "GradusEndsWhatIsItsOwn");
    let (id, secret) = identity(&direct, "whole", &whole.to_string());
    let (less_id, less_secret) = identity(&direct, "less", &less.to_string());
    let home = tempfile::tempdir().unwrap();

    let wrong = provider(home.path(), moto.port, (&id, "wrong"));
    let answer = launch(&wrong, &request("r-i1", "one"));
    let ProviderAnswer::Refused(Refusal::Denied { message }) = &answer else { panic!("{answer:?}") };
    assert!(message.contains("AWS does not accept the credentials"), "{message}");

    let right = provider(home.path(), moto.port, (&id, &secret));
    let answer = launch(&right, &request("r-i1", "one"));
    assert!(matches!(answer, ProviderAnswer::Accepted(_)), "the printed policy is enough: {answer:?}");
    let end = ProviderCall::End(vec![EndRequest { instance: InstanceId::new("r-i1"), handle: None }]);
    let answer = provider(home.path(), moto.port, (&less_id, &less_secret)).call(&end);
    let ProviderAnswer::Unavailable(why) = &answer else { panic!("{answer:?}") };
    assert!(why.contains("allow `ec2:TerminateInstances`, as `gradus cloud policy aws` prints it"), "{why}");
    assert_eq!(right.call(&end), ProviderAnswer::Ending);

    let report = cloud::aws::check(&client(moto.port, (&id, &secret)), REGION).unwrap();
    assert!(report.arn.ends_with(":user/whole") && report.missing().is_empty(), "{report:?}");
    let report = cloud::aws::check(&client(moto.port, (&less_id, &less_secret)), REGION).unwrap();
    let is_unknown = |action: &str| {
        report.permissions.iter().any(|permission| permission.action == action && permission.is_allowed.is_none())
    };
    assert!(report.missing().is_empty() && is_unknown("ec2:TerminateInstances"), "{report:?}");
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn an_audit_finds_orphans_and_ends_them() {
    let (moto, home) = (Moto::start(None), tempfile::tempdir().unwrap());
    let (provider, direct) = (provider(home.path(), moto.port, ANY_KEY), client(moto.port, ANY_KEY));
    for (instance, kind) in [("r-i1", "us-east-1/g4dn.xlarge"), ("r-i2", "eu-west-1/p3.2xlarge/spot")] {
        let request = LaunchRequest { offer: offer(kind), ..request(instance, instance) };
        let answer = launch(&provider, &request);
        assert!(matches!(answer, ProviderAnswer::Accepted(_)), "{answer:?}");
    }
    let catalog = Catalog::embedded().unwrap();
    let rented = BTreeSet::from([InstanceId::new("r-i1")]);
    let auditor = |grace, owner| Auditor {
        client: &direct,
        owner,
        region: REGION,
        catalog: &catalog,
        rented: &rented,
        grace: Duration::from_secs(grace),
    };
    let verdicts = |auditor: &Auditor| -> Vec<String> {
        let (found, unseen) = auditor.look().unwrap();
        assert_eq!(unseen, Vec::<String>::new());
        let line = |machine: &AuditedMachine| {
            format!("{} {} {} {:?}", machine.region, machine.instance, machine.machine, machine.verdict)
        };
        let mut lines: Vec<String> = found.iter().map(line).collect();
        lines.sort();
        lines
    };
    let rented_line = "us-east-1 r-i1 g4dn.xlarge Rented";
    assert_eq!(verdicts(&auditor(600, OWNER)), ["eu-west-1 r-i2 p3.2xlarge/spot Young", rented_line]);
    assert_eq!(verdicts(&auditor(0, OWNER)), ["eu-west-1 r-i2 p3.2xlarge/spot Orphaned", rented_line]);
    assert_eq!(verdicts(&auditor(0, "somebody else")), Vec::<String>::new());
    let stranger = auditor(0, "somebody else");
    let (others, _) = stranger.look_at_all().unwrap();
    let is_ended = |machine: &AuditedMachine| stranger.end(machine).unwrap();
    assert!(
        others.iter().all(|machine| machine.verdict == AuditVerdict::OtherHome && !is_ended(machine)),
        "{others:?}"
    );
    assert_eq!(others.len(), 2);
    let auditor = auditor(0, OWNER);
    let (found, _) = auditor.look().unwrap();
    assert!(found.iter().any(|machine| machine.rate.is_some()), "{found:?}");
    let ended: Vec<bool> = found.iter().map(|machine| auditor.end(machine).unwrap()).collect();
    assert_eq!(ended.iter().filter(|ended| **ended).count(), 1);
    assert!(found.iter().all(|machine| machine.verdict != AuditVerdict::Young));
    assert_eq!(verdicts(&auditor), [rented_line]);
    assert_eq!(living(&direct), 1);
}

/// A provider's view of a machine.
pub fn state(provider: &dyn Provider, instance: &InstanceId) -> Option<MachineState> {
    match provider.call(&ProviderCall::Observe(vec![instance.clone()])) {
        ProviderAnswer::Observed(view) => {
            view.machines.into_iter().find(|machine| machine.instance == *instance).map(|machine| machine.state)
        }
        _ => None,
    }
}
