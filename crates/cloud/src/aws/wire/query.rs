//! The Query protocol of EC2 and STS: a form of names and values. Each function is one action.

use super::HttpRequest;

/// Names and values, in the order in which they are sent.
pub type Params = Vec<(String, String)>;

/// The tag with the owner of a machine.
pub const OWNER_TAG: &str = "gradus-owner";
/// The tag with our own name of a machine.
pub const INSTANCE_TAG: &str = "gradus-instance";
/// The tag with the number of machines that one request has rented. Their names follow that of the first.
pub const MEMBERS_TAG: &str = "gradus-members";
/// The tag with the time from which a machine may be considered abandoned.
pub const EXPIRES_TAG: &str = "gradus-expires";

const EC2_VERSION: &str = "2016-11-15";
const STS_VERSION: &str = "2011-06-15";

/// An action of a service, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// `ec2` or `sts`.
    pub service: &'static str,
    /// Such as `RunInstances`.
    pub action: &'static str,
    /// All but the action and the version.
    pub params: Params,
}

impl Query {
    /// The request to `endpoint`, not signed yet.
    pub fn request(&self, endpoint: &str) -> HttpRequest {
        let version = if self.service == "sts" { STS_VERSION } else { EC2_VERSION };
        let mut params =
            vec![("Action".to_owned(), self.action.to_owned()), ("Version".to_owned(), version.to_owned())];
        params.extend(self.params.iter().cloned());
        let content_type = "application/x-www-form-urlencoded; charset=utf-8";
        HttpRequest {
            method: "POST",
            url: format!("{}/", endpoint.trim_end_matches('/')),
            headers: vec![("content-type".into(), content_type.into())],
            body: encoded(&params).into_bytes(),
        }
    }
}

/// A form: a space as `+`, everything else but letters, digits, `-`, `.`, `_` and `~` as `%XX`.
pub fn encoded(params: &[(String, String)]) -> String {
    let form = |text: &str| word(text).replace("%20", "+");
    let pairs: Vec<String> = params.iter().map(|(name, value)| format!("{}={}", form(name), form(value))).collect();
    pairs.join("&")
}

/// Text as a part of an address: everything but letters, digits, `-`, `.`, `_` and `~` as `%XX` (RFC 3986).
pub fn word(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => word.push(char::from(byte)),
            _ => word.push_str(&format!("%{byte:02X}")),
        }
    }
    word
}

/// Pairs of words as parameters.
pub fn params<const N: usize>(pairs: [(&str, &str); N]) -> Params {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A list `NAME.1`, `NAME.2` and so on.
fn listed(name: &str, values: &[&str]) -> Params {
    values.iter().enumerate().map(|(at, value)| (format!("{name}.{}", at + 1), (*value).to_owned())).collect()
}

/// An action of EC2.
pub(super) fn ec2(action: &'static str, params: Params) -> Query {
    Query { service: "ec2", action, params }
}

/// Filters, each with one value.
pub(super) fn filters(pairs: &[(&str, &str)]) -> Params {
    let each = pairs.iter().enumerate().flat_map(|(at, (name, value))| {
        let key = |rest: &str| format!("Filter.{}.{rest}", at + 1);
        [(key("Name"), (*name).to_owned()), (key("Value.1"), (*value).to_owned())]
    });
    each.collect()
}

/// Who we are.
pub fn caller_identity() -> Query {
    Query { service: "sts", action: "GetCallerIdentity", params: Vec::new() }
}

/// Credentials for a token of an identity provider; not signed.
pub fn assume_with_web_identity(role: &str, session: &str, token: &str) -> Query {
    let params = params([("RoleArn", role), ("RoleSessionName", session), ("WebIdentityToken", token)]);
    Query { service: "sts", action: "AssumeRoleWithWebIdentity", params }
}

/// Credentials of a role, for whoever may assume it.
pub fn assume_role(role: &str, session: &str, external_id: Option<&str>, duration: Option<&str>) -> Query {
    let mut sent = params([("RoleArn", role), ("RoleSessionName", session)]);
    sent.extend(external_id.map(|id| ("ExternalId".to_owned(), id.to_owned())));
    sent.extend(duration.map(|seconds| ("DurationSeconds".to_owned(), seconds.to_owned())));
    Query { service: "sts", action: "AssumeRole", params: sent }
}

/// Rents what `params` describe.
pub fn run_instances(params: Params) -> Query {
    ec2("RunInstances", params)
}

/// Lists every machine of an owner, or only that with our name `instance`; the next page if `page` is given.
pub fn describe_owned(owner: &str, instance: Option<&str>, page: Option<&str>) -> Query {
    let (owned, named) = (format!("tag:{OWNER_TAG}"), format!("tag:{INSTANCE_TAG}"));
    let mut pairs = vec![(owned.as_str(), owner)];
    pairs.extend(instance.map(|instance| (named.as_str(), instance)));
    let mut params = filters(&pairs);
    // Page sizes are not allowed if machines are named; here none is.
    params.push(("MaxResults".into(), "1000".into()));
    params.extend(page.map(|page| ("NextToken".to_owned(), page.to_owned())));
    ec2("DescribeInstances", params)
}

/// Lists every machine of the account, whoever rented it; the next page if `page` is given.
pub fn describe_every(page: Option<&str>) -> Query {
    let mut sent = params([("MaxResults", "1000")]);
    sent.extend(page.map(|page| ("NextToken".to_owned(), page.to_owned())));
    ec2("DescribeInstances", sent)
}

/// Ends machines.
pub fn terminate(handles: &[&str]) -> Query {
    ec2("TerminateInstances", listed("InstanceId", handles))
}

/// Stops a machine, whose disk stays.
pub fn stop(handle: &str) -> Query {
    ec2("StopInstances", listed("InstanceId", &[handle]))
}

/// Starts a stopped machine.
pub fn start(handle: &str) -> Query {
    ec2("StartInstances", listed("InstanceId", &[handle]))
}

/// Regions that the account may use.
pub fn describe_regions() -> Query {
    ec2("DescribeRegions", Vec::new())
}

/// Prices of spot machines of these types with Linux from a time on, each with the last one before it; the next page if
/// `page` is given.
pub fn describe_spot_prices(types: &[&str], since: &str, page: Option<&str>) -> Query {
    let mut params = listed("InstanceType", types);
    params.extend(listed("ProductDescription", &["Linux/UNIX"]));
    params.push(("StartTime".into(), since.to_owned()));
    params.extend(page.map(|page| ("NextToken".to_owned(), page.to_owned())));
    ec2("DescribeSpotPriceHistory", params)
}

/// The capacity that the account has reserved and can use now.
pub fn describe_reservations() -> Query {
    ec2("DescribeCapacityReservations", filters(&[("state", "active")]))
}

/// One image.
pub fn describe_image(image: &str) -> Query {
    ec2("DescribeImages", listed("ImageId", &[image]))
}

/// One subnet, or the default ones of a region.
pub fn describe_subnets(subnet: Option<&str>) -> Query {
    ec2(
        "DescribeSubnets",
        subnet.map_or_else(|| filters(&[("default-for-az", "true")]), |id| listed("SubnetId", &[id])),
    )
}

/// Every subnet of a region, or of one network.
pub fn describe_all_subnets(network: Option<&str>) -> Query {
    ec2("DescribeSubnets", network.map_or_else(Params::new, |network| filters(&[("vpc-id", network)])))
}

/// The route tables of a region, or of one network.
pub fn describe_route_tables(network: Option<&str>) -> Query {
    ec2("DescribeRouteTables", network.map_or_else(Params::new, |network| filters(&[("vpc-id", network)])))
}

/// The security group of that name in a network.
pub fn describe_group(name: &str, network: &str) -> Query {
    ec2("DescribeSecurityGroups", filters(&[("group-name", name), ("vpc-id", network)]))
}

/// Makes a security group that belongs to `owner`.
pub fn create_group(name: &str, network: &str, owner: &str) -> Query {
    let mut params = params([
        ("GroupName", name),
        ("GroupDescription", "gradus: SSH from where its loop runs, nothing else"),
        ("VpcId", network),
        ("TagSpecification.1.ResourceType", "security-group"),
    ]);
    params.extend([
        ("TagSpecification.1.Tag.1.Key".to_owned(), OWNER_TAG.to_owned()),
        ("TagSpecification.1.Tag.1.Value".to_owned(), owner.to_owned()),
    ]);
    ec2("CreateSecurityGroup", params)
}

/// Opens or closes a group for one protocol, ports and addresses.
pub fn change_ingress(is_opened: bool, group: &str, rule: &super::answers::IngressRule) -> Query {
    let action = if is_opened { "AuthorizeSecurityGroupIngress" } else { "RevokeSecurityGroupIngress" };
    let mut sent = params([("GroupId", group), ("IpPermissions.1.IpProtocol", &rule.protocol)]);
    for (name, port) in [("FromPort", rule.from), ("ToPort", rule.to)] {
        sent.extend(port.map(|port| (format!("IpPermissions.1.{name}"), port.to_string())));
    }
    sent.push((format!("IpPermissions.1.{}", rule.peer.parameter()), rule.peer.value().to_owned()));
    ec2(action, sent)
}

/// Turns a request into a dry run, which reports only whether the action would be allowed.
pub fn dry(mut query: Query) -> Query {
    query.params.push(("DryRun".into(), "true".into()));
    query
}

/// The value of a public parameter of Systems Manager, which speaks JSON.
pub fn get_parameter(endpoint: &str, name: &str) -> HttpRequest {
    HttpRequest {
        method: "POST",
        url: format!("{}/", endpoint.trim_end_matches('/')),
        headers: vec![
            ("content-type".into(), "application/x-amz-json-1.1".into()),
            ("x-amz-target".into(), "AmazonSSM.GetParameter".into()),
        ],
        body: serde_json::json!({ "Name": name }).to_string().into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::answers::{IngressRule, Peer};
    use super::*;

    fn check(query: Query, expected: &str) {
        let request = query.request("https://ec2.us-east-1.amazonaws.com");
        assert_eq!(request.url, "https://ec2.us-east-1.amazonaws.com/");
        assert_eq!(String::from_utf8(request.body).unwrap(), expected);
    }

    #[test]
    fn actions_are_forms() {
        check(caller_identity(), "Action=GetCallerIdentity&Version=2011-06-15");
        check(
            describe_owned("me / ü", Some("r-i1"), Some("a+b")),
            "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Agradus-owner&Filter.1.Value.1=me+%2F+%C3%BC&\
             Filter.2.Name=tag%3Agradus-instance&Filter.2.Value.1=r-i1&MaxResults=1000&NextToken=a%2Bb",
        );
        check(describe_every(None), "Action=DescribeInstances&Version=2016-11-15&MaxResults=1000");
        check(
            terminate(&["i-1", "i-2"]),
            "Action=TerminateInstances&Version=2016-11-15&InstanceId.1=i-1&InstanceId.2=i-2",
        );
        check(stop("i-1"), "Action=StopInstances&Version=2016-11-15&InstanceId.1=i-1");
        check(start("i-1"), "Action=StartInstances&Version=2016-11-15&InstanceId.1=i-1");
        check(
            describe_spot_prices(&["p5.48xlarge"], "2026-11-27T00:00:00Z", Some("more")),
            "Action=DescribeSpotPriceHistory&Version=2016-11-15&InstanceType.1=p5.48xlarge&\
             ProductDescription.1=Linux%2FUNIX&StartTime=2026-11-27T00%3A00%3A00Z&NextToken=more",
        );
        check(
            describe_reservations(),
            "Action=DescribeCapacityReservations&Version=2016-11-15&Filter.1.Name=state&Filter.1.Value.1=active",
        );
        check(describe_image("ami-1"), "Action=DescribeImages&Version=2016-11-15&ImageId.1=ami-1");
        check(
            describe_subnets(None),
            "Action=DescribeSubnets&Version=2016-11-15&Filter.1.Name=default-for-az&Filter.1.Value.1=true",
        );
        check(
            describe_all_subnets(Some("vpc-1")),
            "Action=DescribeSubnets&Version=2016-11-15&Filter.1.Name=vpc-id&Filter.1.Value.1=vpc-1",
        );
        check(describe_all_subnets(None), "Action=DescribeSubnets&Version=2016-11-15");
        check(
            describe_route_tables(Some("vpc-1")),
            "Action=DescribeRouteTables&Version=2016-11-15&Filter.1.Name=vpc-id&Filter.1.Value.1=vpc-1",
        );
        check(
            dry(run_instances(params([("MinCount", "1")]))),
            "Action=RunInstances&Version=2016-11-15&MinCount=1&DryRun=true",
        );
    }

    #[test]
    fn a_group_is_opened_for_one_address() {
        let rule =
            IngressRule { protocol: "tcp".into(), from: Some(22), to: Some(22), peer: Peer::V4("192.0.2.1/32".into()) };
        check(
            change_ingress(true, "sg-1", &rule),
            "Action=AuthorizeSecurityGroupIngress&Version=2016-11-15&GroupId=sg-1&IpPermissions.1.IpProtocol=tcp&\
             IpPermissions.1.FromPort=22&IpPermissions.1.ToPort=22&IpPermissions.1.IpRanges.1.CidrIp=192.0.2.1%2F32",
        );
        let all = IngressRule { protocol: "-1".into(), from: None, to: None, peer: Peer::Group("sg-2".into()) };
        check(
            change_ingress(false, "sg-1", &all),
            "Action=RevokeSecurityGroupIngress&Version=2016-11-15&GroupId=sg-1&IpPermissions.1.IpProtocol=-1&\
             IpPermissions.1.Groups.1.GroupId=sg-2",
        );
    }

    #[test]
    fn a_parameter_is_asked_for_in_json() {
        let request = get_parameter("https://ssm.us-east-1.amazonaws.com/", "/aws/service/x");
        assert_eq!(request.body, br#"{"Name":"/aws/service/x"}"#);
        assert_eq!(request.headers[1].1, "AmazonSSM.GetParameter");
    }
}
