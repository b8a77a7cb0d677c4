//! A machine in a subnet whose way out is a NAT gateway has no public address.

use cloud::aws::Addresses;
use cloud::aws::wire::answers::{Subnet, Subnets};
use cloud::aws::wire::query::{self, Params, Query, params};
use cloud::{LaunchRequest, ProviderAnswer};
use domain::rental::Refusal;
use serde::Deserialize;

use super::server::{Moto, client, provider_with};
use super::{ANY_KEY, REGION, all, launch, offer, request};

/// Answers to what makes one thing each.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Made {
    subnet: Subnet,
    nat_gateway: NatGateway,
    route_table: RouteTableName,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NatGateway {
    nat_gateway_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RouteTableName {
    route_table_id: String,
}

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn a_machine_in_a_private_subnet_has_no_public_address() {
    let (moto, home) = (Moto::start(None), tempfile::tempdir().unwrap());
    let direct = client(moto.port, ANY_KEY);
    let make = |action: &'static str, params: Params| -> Made {
        direct.ask(REGION, &Query { service: "ec2", action, params }).unwrap()
    };
    let usual: Subnets = direct.ask(REGION, &query::describe_subnets(None)).unwrap();
    let Subnet { vpc_id: network, subnet_id: public, .. } = &usual.subnet_set.item[0];
    let place = [("VpcId", network.as_str()), ("CidrBlock", "172.31.240.0/24"), ("AvailabilityZone", "us-east-1b")];
    let private = make("CreateSubnet", params(place)).subnet.subnet_id;
    let gateway = params([("SubnetId", public.as_str()), ("ConnectivityType", "private")]);
    let gateway = make("CreateNatGateway", gateway).nat_gateway.nat_gateway_id;
    let table = make("CreateRouteTable", params([("VpcId", network.as_str())])).route_table.route_table_id;
    let route =
        [("RouteTableId", table.as_str()), ("DestinationCidrBlock", "0.0.0.0/0"), ("NatGatewayId", gateway.as_str())];
    make("CreateRoute", params(route));
    make("AssociateRouteTable", params([("RouteTableId", table.as_str()), ("SubnetId", private.as_str())]));

    let aws = provider_with(home.path(), moto.port, ANY_KEY, Some(Addresses::Private));
    let in_zone = |kind: &str, name: &str| LaunchRequest { offer: offer(kind), ..request(name, name) };
    let answer = launch(&aws, &in_zone("us-east-1/us-east-1b/g4dn.xlarge", "r-i1"));
    assert!(matches!(answer, ProviderAnswer::Accepted(_)), "{answer:?}");
    let machines = all(&direct);
    assert_eq!((machines.len(), machines[0].ip_address.as_str()), (1, ""));
    assert!(machines[0].private_ip_address.starts_with("172.31.240."), "{:?}", machines[0]);
    let answer = launch(&aws, &in_zone("us-east-1/us-east-1a/g4dn.xlarge", "r-i2"));
    assert!(matches!(answer, ProviderAnswer::Refused(Refusal::Capacity { .. })), "{answer:?}");
    assert_eq!(all(&direct).len(), 1);
}
