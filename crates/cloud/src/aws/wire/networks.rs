//! Subnets and the routes of each: which of them hold machines without a public address that still reach the internet.
//!
//! A subnet is private if its route table has no default route to an internet gateway. It has a way out if the default route
//! leads to a NAT gateway or instance, a transit gateway, or a VPC endpoint. Only such a subnet is of use: an agent has to
//! reach object stores and its server.

use serde::Deserialize;

use super::answers::{Items, Subnet};

/// All addresses of IPv4, as the destination of a default route.
const EVERYWHERE: &str = "0.0.0.0/0";

/// Answer to `DescribeRouteTables`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RouteTables {
    pub route_table_set: Items<RouteTable>,
}

/// A route table of a VPC.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RouteTable {
    pub vpc_id: String,
    pub route_set: Items<VpcRoute>,
    pub association_set: Items<Association>,
}

/// A route; of its targets at most one is not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VpcRoute {
    pub destination_cidr_block: String,
    /// An internet gateway `igw-…`, a VPN gateway `vgw-…`, a VPC endpoint `vpce-…`, or `local`.
    pub gateway_id: String,
    pub nat_gateway_id: String,
    pub instance_id: String,
    pub network_interface_id: String,
    pub transit_gateway_id: String,
    /// `active`, or `blackhole` where the target is gone.
    pub state: String,
}

/// What a route table is for: one subnet, or all subnets of the VPC that have none of their own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Association {
    pub subnet_id: String,
    pub main: bool,
}

/// Where the default route of a subnet leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayOut {
    /// To an internet gateway: machines need a public address.
    InternetGateway,
    /// Through something that lends its own address.
    Translated,
    /// Nowhere, or only to a network of the user's.
    None,
}

impl VpcRoute {
    fn way_out(&self) -> WayOut {
        let translates =
            [&self.nat_gateway_id, &self.instance_id, &self.network_interface_id, &self.transit_gateway_id];
        match () {
            () if self.destination_cidr_block != EVERYWHERE => WayOut::None,
            // A route to an internet gateway makes a subnet public, also while the gateway is detached.
            () if self.gateway_id.starts_with("igw-") => WayOut::InternetGateway,
            () if self.state == "blackhole" => WayOut::None,
            () if self.gateway_id.starts_with("vpce-") => WayOut::Translated,
            () if translates.iter().any(|target| !target.is_empty()) => WayOut::Translated,
            () => WayOut::None,
        }
    }
}

impl RouteTables {
    /// Where the default route of a subnet leads: that of its own route table, or of its VPC's main one.
    pub fn way_out(&self, subnet: &Subnet) -> WayOut {
        let with = |is_meant: &dyn Fn(&Association) -> bool| {
            let mut tables = self.route_table_set.item.iter().filter(|table| table.vpc_id == subnet.vpc_id);
            tables.find(|table| table.association_set.item.iter().any(is_meant))
        };
        let own = with(&|association| association.subnet_id == subnet.subnet_id);
        let table = own.or_else(|| with(&|association| association.main));
        let mut ways = table.into_iter().flat_map(|table| table.route_set.item.iter().map(VpcRoute::way_out));
        ways.find(|way| *way != WayOut::None).unwrap_or(WayOut::None)
    }

    /// The private subnets with a way out, of one VPC if it is named.
    pub fn private<'a>(&self, subnets: &'a [Subnet], network: Option<&str>) -> Vec<&'a Subnet> {
        let is_meant = |subnet: &&Subnet| {
            network.is_none_or(|network| subnet.vpc_id == network) && self.way_out(subnet) == WayOut::Translated
        };
        subnets.iter().filter(is_meant).collect()
    }
}

/// The subnet for so many machines, in this zone if one is named: that with the most free addresses, and of equals the first by
/// name.
pub fn roomiest<'a>(private: &[&'a Subnet], zone: Option<&str>, count: usize) -> Option<&'a Subnet> {
    let fits = |subnet: &&&Subnet| {
        zone.is_none_or(|zone| subnet.availability_zone == zone) && subnet.available_ip_address_count as usize >= count
    };
    let order = |subnet: &&Subnet| (std::cmp::Reverse(subnet.available_ip_address_count), subnet.subnet_id.clone());
    private.iter().filter(fits).copied().min_by_key(order)
}

#[cfg(test)]
mod tests {
    use super::super::answers::{Subnets, read};
    use super::*;

    /// The shapes of `DescribeRouteTables`, as EC2's documentation of it shows them.
    fn tables(routes_of_main: &str, routes_of_own: &str) -> RouteTables {
        let table = |routes: &str, association: &str| {
            format!(
                "<item><routeTableId>rtb-1</routeTableId><vpcId>vpc-1</vpcId><routeSet><item>\
                 <destinationCidrBlock>10.0.0.0/16</destinationCidrBlock><gatewayId>local</gatewayId>\
                 <state>active</state><origin>CreateRouteTable</origin></item>{routes}</routeSet><associationSet><item>\
                 <routeTableAssociationId>rtbassoc-1</routeTableAssociationId><routeTableId>rtb-1</routeTableId>\
                 {association}</item></associationSet><tagSet/></item>"
            )
        };
        let main = table(routes_of_main, "<main>true</main>");
        let own = table(routes_of_own, "<subnetId>subnet-own</subnetId><main>false</main>");
        let text = format!(
            "<DescribeRouteTablesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>\
             <routeTableSet>{main}{own}</routeTableSet></DescribeRouteTablesResponse>"
        );
        read(&text).unwrap()
    }

    fn to(target: &str) -> String {
        format!("<item><destinationCidrBlock>0.0.0.0/0</destinationCidrBlock>{target}<state>active</state></item>")
    }

    fn subnet(id: &str, zone: &str, free: u32) -> Subnet {
        let (subnet_id, availability_zone) = (id.to_owned(), zone.to_owned());
        Subnet { subnet_id, vpc_id: "vpc-1".to_owned(), availability_zone, available_ip_address_count: free }
    }

    #[test]
    fn a_subnet_is_private_by_its_own_routes_or_those_of_its_network() {
        let gateway = to("<gatewayId>igw-1</gatewayId>");
        let check = |route: &str, expected: WayOut| {
            let own = tables(&gateway, route);
            assert_eq!(own.way_out(&subnet("subnet-own", "a", 1)), expected, "{route}");
            assert_eq!(own.way_out(&subnet("subnet-other", "a", 1)), WayOut::InternetGateway, "{route}");
            let main = tables(route, &gateway);
            assert_eq!(main.way_out(&subnet("subnet-other", "a", 1)), expected, "{route}");
        };
        check(&gateway, WayOut::InternetGateway);
        check(&to("<natGatewayId>nat-1</natGatewayId>"), WayOut::Translated);
        check(&to("<instanceId>i-1</instanceId><networkInterfaceId>eni-1</networkInterfaceId>"), WayOut::Translated);
        check(&to("<transitGatewayId>tgw-1</transitGatewayId>"), WayOut::Translated);
        check(&to("<gatewayId>vpce-1</gatewayId>"), WayOut::Translated);
        check(&to("<gatewayId>vgw-1</gatewayId>"), WayOut::None);
        check(&to("<natGatewayId>nat-1</natGatewayId>").replace("active", "blackhole"), WayOut::None);
        check(&gateway.replace("active", "blackhole"), WayOut::InternetGateway);
        check(&to("<natGatewayId>nat-1</natGatewayId>").replace("0.0.0.0/0", "192.0.2.0/24"), WayOut::None);
        check("", WayOut::None);
        assert_eq!(RouteTables::default().way_out(&subnet("subnet-own", "a", 1)), WayOut::None, "nothing is known");
    }

    #[test]
    fn the_subnet_with_the_most_free_addresses_in_the_zone_is_used() {
        let subnets = [subnet("subnet-b", "a", 5), subnet("subnet-a", "a", 5), subnet("subnet-c", "b", 9)];
        let tables = tables(&to("<natGatewayId>nat-1</natGatewayId>"), "");
        let check = |zone: Option<&str>, count: usize, expected: Option<&str>| {
            let found = roomiest(&tables.private(&subnets, Some("vpc-1")), zone, count);
            assert_eq!(found.map(|subnet| subnet.subnet_id.as_str()), expected, "{zone:?} {count}");
        };
        check(None, 1, Some("subnet-c"));
        check(Some("a"), 5, Some("subnet-a"));
        check(Some("a"), 6, None);
        check(Some("c"), 1, None);
        assert_eq!(tables.private(&subnets, Some("vpc-2")), Vec::<&Subnet>::new());
        assert_eq!(tables.private(&subnets, None).len(), 3);
    }

    #[test]
    fn free_addresses_of_a_subnet_are_read() {
        let text = "<DescribeSubnetsResponse><subnetSet><item><subnetId>subnet-1</subnetId><state>available</state>\
                    <vpcId>vpc-1</vpcId><cidrBlock>10.0.1.0/24</cidrBlock>\
                    <availableIpAddressCount>251</availableIpAddressCount><availabilityZone>us-east-1a</availabilityZone>\
                    <defaultForAz>false</defaultForAz><mapPublicIpOnLaunch>false</mapPublicIpOnLaunch></item></subnetSet>\
                    </DescribeSubnetsResponse>";
        let subnets: Subnets = read(text).unwrap();
        assert_eq!(subnets.subnet_set.item, [subnet("subnet-1", "us-east-1a", 251)]);
    }
}
