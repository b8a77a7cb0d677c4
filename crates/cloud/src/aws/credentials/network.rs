//! In which network this machine is, where it is one of EC2, as its metadata service says.

use super::super::wire::failure::AwsFailure;
use super::super::wire::{HttpRequest, HttpTransport};

/// The network of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNetwork {
    pub region: String,
    /// The VPC, `vpc-…`.
    pub network: String,
    /// The private address of this machine.
    pub address: String,
}

/// Reads it; `None` where the service does not say.
///
/// # Errors
/// [`AwsFailure::Doubt`] where the service does not answer for now: it has given the key of this machine's role before.
pub fn own_network(transport: &dyn HttpTransport, endpoint: &str) -> Result<Option<OwnNetwork>, AwsFailure> {
    let doubt = |why: &str| AwsFailure::Doubt(format!("the metadata service of this machine: {why}"));
    let ask = |method: &'static str, path: &str, header: (&str, &str)| {
        let headers = vec![(header.0.to_owned(), header.1.to_owned())];
        let request = HttpRequest { method, url: format!("{endpoint}/latest/{path}"), headers, body: Vec::new() };
        let reply = transport.send(&request).map_err(|why| doubt(&why))?;
        match reply.status {
            200 => Ok(Some(reply.text().trim().to_owned()).filter(|text| !text.is_empty())),
            429 | 500.. => Err(doubt(&format!("HTTP status {}", reply.status))),
            _ => Ok(None),
        }
    };
    let Some(token) = ask("PUT", "api/token", ("x-aws-ec2-metadata-token-ttl-seconds", "300"))? else {
        return Ok(None);
    };
    let value = |path: &str| ask("GET", &format!("meta-data/{path}"), ("x-aws-ec2-metadata-token", token.as_str()));
    let (region, mac, address) = (value("placement/region")?, value("mac")?, value("local-ipv4")?);
    let (Some(region), Some(mac), Some(address)) = (region, mac, address) else { return Ok(None) };
    let network = value(&format!("network/interfaces/macs/{mac}/vpc-id"))?;
    Ok(network.map(|network| OwnNetwork { region, network, address }))
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::HttpReply;
    use super::*;

    /// Answers by the address that is asked for.
    struct Metadata(fn(&str) -> (u16, &'static str));

    impl HttpTransport for Metadata {
        fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
            let (status, body) = (self.0)(&request.url);
            Ok(HttpReply { status, headers: Vec::new(), body: body.into() })
        }
    }

    #[test]
    fn a_machine_of_ec2_knows_its_network() {
        let known = |url: &str| match url.trim_start_matches("http://imds/latest/") {
            "api/token" => (200, "T"),
            "meta-data/placement/region" => (200, "us-east-1"),
            "meta-data/mac" => (200, "0e:49:61:0f:c3:11"),
            "meta-data/local-ipv4" => (200, "10.0.0.7\n"),
            "meta-data/network/interfaces/macs/0e:49:61:0f:c3:11/vpc-id" => (200, "vpc-1"),
            _ => (404, ""),
        };
        let found = own_network(&Metadata(known), "http://imds").unwrap();
        let expected = OwnNetwork { region: "us-east-1".into(), network: "vpc-1".into(), address: "10.0.0.7".into() };
        assert_eq!(found, Some(expected));
        assert_eq!(own_network(&Metadata(|_| (404, "")), "http://imds"), Ok(None));
        // For a moment, which is not to change the rules of a group.
        assert!(matches!(own_network(&Metadata(|_| (503, "")), "http://imds"), Err(AwsFailure::Doubt(_))));
    }
}
