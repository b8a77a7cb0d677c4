//! In which network and subnet of a region machines are put, and whether they have a public address.
//!
//! The server enters each machine by SSH once, to start its agent. So machines have private addresses only where the server is
//! in the same network, which it knows as a machine of EC2, or where the user says that it reaches them.

use serde::Deserialize;

use super::super::AwsOptions;
use super::super::client::Client;
use super::super::wire::answers::{Subnet, Subnets};
use super::super::wire::failure::AwsFailure;
use super::super::wire::networks::{RouteTables, roomiest};
use super::super::wire::query;

/// Which addresses machines have, where the user says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// Private ones only, which the server reaches: from the same network, over a VPN, or through a jump host.
    Private,
    /// Public ones, as the subnets of the default network give them.
    Public,
}

/// Where machines of one request are put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPlace {
    /// The VPC.
    pub network: String,
    /// The subnet, unless EC2 chooses one of the default ones.
    pub subnet: Option<String>,
    /// Whether a public address is refused.
    pub is_private: bool,
}

/// A network whose private subnets have a way out.
#[derive(Debug, PartialEq, Eq)]
struct PrivateNetwork {
    id: String,
    subnets: Vec<Subnet>,
}

/// The place for so many machines, in a zone if one is named.
///
/// # Errors
/// [`AwsFailure`].
pub fn place(
    client: &Client,
    options: &AwsOptions,
    region: &str,
    (zone, count): (Option<&str>, usize),
) -> Result<NetworkPlace, AwsFailure> {
    let is_required = options.addresses == Some(Addresses::Private);
    if let Some(subnet) = options.subnets.get(region) {
        let network = usual(client, options, region)?;
        return Ok(NetworkPlace { network, subnet: Some(subnet.clone()), is_private: is_required });
    }
    if let Some(private) = private(client, options, region)? {
        let subnets: Vec<&Subnet> = private.subnets.iter().collect();
        if let Some(subnet) = roomiest(&subnets, zone, count) {
            let subnet = Some(subnet.subnet_id.clone());
            return Ok(NetworkPlace { network: private.id, subnet, is_private: true });
        }
        if is_required {
            let zone = zone.unwrap_or(region);
            let message = format!("no private subnet of `{}` in `{zone}` has {count} free addresses", private.id);
            return Err(AwsFailure::Capacity(message));
        }
    }
    Ok(NetworkPlace { network: usual(client, options, region)?, subnet: None, is_private: false })
}

/// The networks of a region in which machines are put.
///
/// # Errors
/// [`AwsFailure`].
pub fn networks(client: &Client, options: &AwsOptions, region: &str) -> Result<Vec<String>, AwsFailure> {
    let private = match options.subnets.contains_key(region) {
        true => None,
        false => private(client, options, region)?.map(|private| private.id),
    };
    match (private, options.addresses) {
        (Some(private), Some(Addresses::Private)) => Ok(vec![private]),
        (Some(private), _) => {
            // A region may lack a default network.
            let usual = match usual(client, options, region) {
                Ok(usual) => Some(usual).filter(|usual| *usual != private),
                Err(AwsFailure::Invalid { .. }) => None,
                Err(failure) => return Err(failure),
            };
            Ok(usual.into_iter().chain([private]).collect())
        }
        (None, _) => Ok(vec![usual(client, options, region)?]),
    }
}

/// The network of the user's subnet, or else the default one.
fn usual(client: &Client, options: &AwsOptions, region: &str) -> Result<String, AwsFailure> {
    let subnet = options.subnets.get(region).map(String::as_str);
    let subnets: Subnets = client.ask(region, &query::describe_subnets(subnet))?;
    let network = subnets.subnet_set.item.into_iter().next().map(|subnet| subnet.vpc_id);
    network.filter(|network| !network.is_empty()).ok_or_else(|| {
        let message = format!("`{region}` has no default network; name a subnet in `aws.json`, see docs/aws.md");
        AwsFailure::Invalid { code: "NoNetwork".into(), message }
    })
}

/// The private subnets that are to be used; `None` where machines have public addresses.
fn private(client: &Client, options: &AwsOptions, region: &str) -> Result<Option<PrivateNetwork>, AwsFailure> {
    if options.addresses == Some(Addresses::Public) {
        return Ok(None);
    }
    let is_required = options.addresses == Some(Addresses::Private);
    // Who names the addresses that are let in has decided how machines are reached.
    let asks_itself = is_required || options.ssh_from.is_none();
    let own = if asks_itself { client.own_network()? } else { None };
    let own = own.filter(|own| own.region == region).map(|own| own.network);
    if !is_required && own.is_none() {
        return Ok(None);
    }
    let tables = match client.ask::<RouteTables>(region, &query::describe_route_tables(own.as_deref())) {
        // A policy of an earlier version lacks it.
        Err(AwsFailure::Denied { .. }) if !is_required => return Ok(None),
        other => other?,
    };
    let subnets: Subnets = client.ask(region, &query::describe_all_subnets(own.as_deref()))?;
    match network_of(&tables, &subnets.subnet_set.item, own.as_deref()) {
        Ok(found) => Ok(Some(found)),
        Err(_) if !is_required => Ok(None),
        Err((code, why)) => {
            let hint = "name a subnet in `aws.json`, or remove `\"addresses\": \"private\"` there, see docs/aws.md";
            Err(AwsFailure::Invalid { code: code.into(), message: format!("`{region}` has {why}; {hint}") })
        }
    }
}

/// The network with private subnets: that of this machine, or else the only one.
///
/// # Errors
/// A code, and what the region has instead.
fn network_of(
    tables: &RouteTables,
    subnets: &[Subnet],
    own: Option<&str>,
) -> Result<PrivateNetwork, (&'static str, &'static str)> {
    let found = tables.private(subnets, own);
    let first = found.first().ok_or(("NoPrivateSubnet", "no private subnet with a way out"))?;
    if found.iter().any(|subnet| subnet.vpc_id != first.vpc_id) {
        return Err(("SeveralNetworks", "private subnets in several networks"));
    }
    Ok(PrivateNetwork { id: first.vpc_id.clone(), subnets: found.iter().map(|subnet| (*subnet).clone()).collect() })
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::HttpReply;
    use super::super::super::wire::answers::read;
    use super::super::super::wire::scripted::{Script, client, client_in_ec2, error, reply};
    use super::*;

    /// A region with a default network whose only private subnet is in zone `a`.
    fn region(asked: &str, is_denied: bool) -> Result<HttpReply, String> {
        let subnet = |id: &str, zone: &str| {
            format!(
                "<item><subnetId>{id}</subnetId><vpcId>vpc-1</vpcId><availabilityZone>us-east-1{zone}</availabilityZone>\
                 <availableIpAddressCount>9</availableIpAddressCount></item>"
            )
        };
        let table = |target: &str, association: &str| {
            format!(
                "<item><vpcId>vpc-1</vpcId><routeSet><item><destinationCidrBlock>0.0.0.0/0</destinationCidrBlock>{target}\
                 <state>active</state></item></routeSet><associationSet><item>{association}</item></associationSet></item>"
            )
        };
        let tables = [
            table("<gatewayId>igw-1</gatewayId>", "<main>true</main>"),
            table("<natGatewayId>nat-1</natGatewayId>", "<subnetId>subnet-p</subnetId><main>false</main>"),
        ];
        let subnets = [subnet("subnet-d", "a"), subnet("subnet-p", "a"), subnet("subnet-e", "b")];
        Ok(match asked {
            asked if asked.contains("DescribeRouteTables") && is_denied => error("UnauthorizedOperation"),
            asked if asked.contains("DescribeRouteTables") => {
                reply(200, &format!("<R><routeTableSet>{}</routeTableSet></R>", tables.concat()))
            }
            asked if asked.contains("DescribeSubnets") => {
                reply(200, &format!("<R><subnetSet>{}</subnetSet></R>", subnets.concat()))
            }
            _ => reply(404, ""),
        })
    }

    /// The subnet and whether it is private, or why there is none.
    fn shown(client: &Client, options: &AwsOptions, zone: Option<&str>) -> String {
        match place(client, options, "us-east-1", (zone, 1)) {
            Ok(place) => format!("{} {}", place.subnet.unwrap_or_else(|| "default".to_owned()), place.is_private),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn machines_are_private_where_the_user_says_that_they_are_reached() {
        let check = |addresses: Option<Addresses>, zone: Option<&str>, expected: &str| {
            let script = Script::new(|asked| region(asked, false));
            let options = AwsOptions { addresses, ..AwsOptions::default() };
            assert_eq!(shown(&client(script), &options, zone), expected, "{addresses:?} {zone:?}");
        };
        check(None, None, "default false");
        check(Some(Addresses::Public), None, "default false");
        check(Some(Addresses::Private), None, "subnet-p true");
        check(Some(Addresses::Private), Some("us-east-1a"), "subnet-p true");
        let refused = "no private subnet of `vpc-1` in `us-east-1b` has 1 free addresses";
        check(Some(Addresses::Private), Some("us-east-1b"), refused);
    }

    #[test]
    fn a_subnet_of_the_user_s_overrules() {
        let check = |addresses: Option<Addresses>, expected: &str| {
            let script = Script::new(|asked| region(asked, false));
            let subnets = [("us-east-1".to_owned(), "subnet-u".to_owned())].into();
            let options = AwsOptions { addresses, subnets, ..AwsOptions::default() };
            assert_eq!(shown(&client(script), &options, None), expected, "{addresses:?}");
        };
        check(None, "subnet-u false");
        check(Some(Addresses::Private), "subnet-u true");
    }

    fn client_there(is_denied: bool) -> Client {
        client_in_ec2(move |asked| region(asked, is_denied))
    }

    #[test]
    fn machines_are_private_where_the_server_is_in_the_same_network() {
        let check = |options: &AwsOptions, (zone, is_denied): (Option<&str>, bool), expected: &str| {
            assert_eq!(shown(&client_there(is_denied), options, zone), expected, "{options:?} {zone:?} {is_denied}");
        };
        let unset = AwsOptions::default();
        check(&unset, (None, false), "subnet-p true");
        check(&unset, (Some("us-east-1b"), false), "default false");
        // A policy of an earlier version does not allow it.
        check(&unset, (None, true), "default false");
        check(&AwsOptions { addresses: Some(Addresses::Public), ..unset.clone() }, (None, false), "default false");
        check(&AwsOptions { ssh_from: Some("192.0.2.1".into()), ..unset.clone() }, (None, false), "default false");
        assert_eq!(networks(&client_there(false), &unset, "us-east-1").unwrap(), ["vpc-1"]);
    }

    #[test]
    fn private_subnets_of_several_networks_are_not_guessed_among() {
        let subnet = |id: &str, network: &str| Subnet {
            subnet_id: id.into(),
            vpc_id: network.into(),
            availability_zone: "us-east-1a".into(),
            available_ip_address_count: 1,
        };
        let subnets = [subnet("subnet-1", "vpc-1"), subnet("subnet-2", "vpc-2")];
        let table = |network: &str| {
            format!(
                "<item><vpcId>{network}</vpcId><routeSet><item><destinationCidrBlock>0.0.0.0/0</destinationCidrBlock>\
                 <natGatewayId>nat-1</natGatewayId><state>active</state></item></routeSet>\
                 <associationSet><item><main>true</main></item></associationSet></item>"
            )
        };
        let text = format!("<R><routeTableSet>{}{}</routeTableSet></R>", table("vpc-1"), table("vpc-2"));
        let tables: RouteTables = read(&text).unwrap();
        let found = |own| network_of(&tables, &subnets, own).map(|found| found.id).map_err(|(code, _)| code);
        assert_eq!(found(None), Err("SeveralNetworks"));
        assert_eq!(found(Some("vpc-2")), Ok("vpc-2".to_owned()));
        assert_eq!(found(Some("vpc-3")), Err("NoPrivateSubnet"));
    }
}
