//! What an audit finds beside machines: disks, addresses, interfaces and snapshots, of this home and of others.

use std::collections::{BTreeMap, BTreeSet};

use cloud::aws::wire::query::{Params, Query, params};
use cloud::aws::{Auditor, Client};
use cloud::rented::audit::verdict::{AuditedResource, ResourceJudge, ResourceVerdict, end_unneeded};
use cloud::{Catalog, LaunchRequest, ProviderAnswer};
use domain::listing::Cloud;
use domain::{Duration, InstanceId, Timestamp};
use serde::Deserialize;

use super::server::{Moto, OWNER, client, provider};
use super::{ANY_KEY, REGION, launch, offer, request};

/// Answers to what makes one thing each.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Made {
    volume_id: String,
    allocation_id: String,
    snapshot_id: String,
    network_interface: MadeInterface,
    subnet_set: cloud::aws::wire::answers::Items<MadeSubnet>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MadeInterface {
    network_interface_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MadeSubnet {
    subnet_id: String,
}

/// Makes something with the tags of an owner's machine `r-i1`.
fn make(client: &Client, region: &str, action: &'static str, (kind, owner): (&str, &str), mut more: Params) -> Made {
    more.extend(params([
        ("TagSpecification.1.ResourceType", kind),
        ("TagSpecification.1.Tag.1.Key", "gradus-owner"),
        ("TagSpecification.1.Tag.1.Value", owner),
        ("TagSpecification.1.Tag.2.Key", "gradus-instance"),
        ("TagSpecification.1.Tag.2.Value", "r-i1"),
    ]));
    client.ask(region, &Query { service: "ec2", action, params: more }).unwrap()
}

fn volume(client: &Client, (region, zone): (&str, &str), owner: &str) -> String {
    let wanted = params([("Size", "140"), ("VolumeType", "gp3"), ("AvailabilityZone", zone)]);
    make(client, region, "CreateVolume", ("volume", owner), wanted).volume_id
}

struct Judged {
    found: Vec<AuditedResource>,
    noted: BTreeMap<String, Timestamp>,
}

impl Judged {
    /// What an audit by an owner finds at a time, with what the one before has noted; a run has `r-i2`.
    fn by(auditor: &Auditor<'_>, noted: &BTreeMap<String, Timestamp>, now: Timestamp, lists_all: bool) -> Judged {
        let list = auditor.resources(lists_all).unwrap();
        assert!(list.is_complete(), "{:?}", list.unseen());
        let (catalog, rented, owner, grace) = (auditor.catalog, auditor.rented, auditor.owner, auditor.grace);
        let judge = ResourceJudge { cloud: Cloud::Aws, catalog, owner, tag: owner, rented, noted, grace, now };
        let found = judge.judge(list.found);
        let noted = judge.notes(&found, true);
        Judged { found, noted }
    }

    fn lines(&self) -> Vec<String> {
        let line = |one: &AuditedResource| {
            format!("{} {} {:?} {}", one.resource.region, one.resource.kind.noun(), one.verdict, one.price)
        };
        let mut lines: Vec<String> = self.found.iter().map(line).collect();
        lines.sort();
        lines
    }
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn an_audit_finds_what_is_left_beside_machines_and_ends_what_nothing_needs() {
    let (moto, home) = (Moto::start(None), tempfile::tempdir().unwrap());
    let (aws, direct) = (provider(home.path(), moto.port, ANY_KEY), client(moto.port, ANY_KEY));
    let rented = LaunchRequest { offer: offer("us-east-1/g4dn.xlarge"), ..request("r-i2", "two") };
    assert!(matches!(launch(&aws, &rented), ProviderAnswer::Accepted(_)));
    let left = volume(&direct, (REGION, "us-east-1a"), OWNER);
    volume(&direct, ("eu-west-1", "eu-west-1a"), OWNER);
    volume(&direct, (REGION, "us-east-1a"), "somebody else");
    for owner in [OWNER, "somebody else"] {
        let made = make(&direct, REGION, "AllocateAddress", ("elastic-ip", owner), params([("Domain", "vpc")]));
        assert!(!made.allocation_id.is_empty());
    }
    let copy = make(&direct, REGION, "CreateSnapshot", ("snapshot", OWNER), params([("VolumeId", &left)]));
    assert!(!copy.snapshot_id.is_empty());
    let subnets = Query { service: "ec2", action: "DescribeSubnets", params: Params::new() };
    let subnet = direct.ask::<Made>(REGION, &subnets).unwrap().subnet_set.item.remove(0).subnet_id;
    let interface = params([("SubnetId", subnet.as_str())]);
    let interface = make(&direct, REGION, "CreateNetworkInterface", ("network-interface", OWNER), interface);
    assert!(!interface.network_interface.network_interface_id.is_empty());

    let (catalog, rented, grace) =
        (Catalog::embedded().unwrap(), BTreeSet::from([InstanceId::new("r-i2")]), Duration::from_secs(600));
    let auditor = Auditor { client: &direct, owner: OWNER, region: REGION, catalog: &catalog, rented: &rented, grace };
    let begun = cloud::aws::now();
    let later = Timestamp(begun.0 + 600_000_000);
    let end = |judged: &Judged| end_unneeded(&judged.found, |one| auditor.end_resource(one));
    // AWS does not say since when a disk is detached: the first audit ends nothing.
    let first = Judged::by(&auditor, &BTreeMap::new(), begun, false);
    assert!(first.found.iter().all(|one| one.verdict != ResourceVerdict::Orphaned), "{:?}", first.found);
    assert_eq!((end(&first), first.noted.len()), (Default::default(), 4));
    let second = Judged::by(&auditor, &first.noted, later, false);
    let kept = ["us-east-1 disk Rented $0.004384/h", "us-east-1 snapshot ByHand at most $0.00959/h"];
    let orphaned = [
        "eu-west-1 disk Orphaned $0.016877/h",
        "us-east-1 address Orphaned $0.005/h",
        "us-east-1 disk Orphaned $0.015343/h",
        "us-east-1 network interface Orphaned free",
    ];
    let mut expected = [&kept[..], &orphaned[..]].concat();
    expected.sort_unstable();
    assert_eq!(second.lines(), expected);
    // In the eyes of another home everything is another's, and its own things are not ended for this one.
    let stranger = Auditor { owner: "stranger", ..auditor };
    let strange = Judged::by(&stranger, &first.noted, later, true);
    let is_of_others = |one: &AuditedResource| one.verdict.is_of_others();
    assert!(strange.found.len() >= 8 && strange.found.iter().all(is_of_others), "{:?}", strange.lines());
    assert_eq!(end(&strange), Default::default());

    let (ended, failures) = end(&second);
    assert_eq!((ended.len(), failures), (4, Vec::new()));
    let third = Judged::by(&auditor, &second.noted, later, false);
    assert_eq!((third.lines(), third.noted.len()), (kept.map(str::to_owned).to_vec(), 0));
    let other = Auditor { owner: "somebody else", ..auditor };
    let lines = Judged::by(&other, &BTreeMap::new(), later, false).lines();
    assert_eq!(lines, ["us-east-1 address Young $0.005/h", "us-east-1 disk Young $0.015343/h"], "another home's stay");
    // Asked again, what is gone does no harm; what a machine has, EC2 refuses.
    assert_eq!(end(&second).1, Vec::<String>::new());
    let held = third.found.iter().find(|one| one.verdict == ResourceVerdict::Rented).unwrap();
    let refused = auditor.end_resource(&held.resource);
    assert!(refused.is_err_and(|why| why.to_string().contains("VolumeInUse")), "{held:?}");
}
