//! Requests to Alibaba Cloud: an action and its parameters, by the address of its region.

use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;

use super::credentials::{AlibabaLease, AlibabaSource, AlibabaSources};
use super::failure::failed;
use super::signature::{nonce, sign};
use crate::aws::now;
use crate::aws::wire::query::{Params, word};
use crate::aws::wire::signature::AccessKey;
use crate::aws::wire::{HttpReply, HttpRequest, HttpTransport};
use crate::rented::CloudFailure;

/// Credentials that end are replaced so long before.
const RENEWED_BEFORE: i64 = 300_000_000;

/// One of Alibaba's services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcsService {
    /// Elastic Compute Service.
    Ecs,
    /// Virtual Private Cloud.
    Vpc,
    /// Security Token Service, which knows no regions.
    Sts,
}

impl AcsService {
    fn version(self) -> &'static str {
        match self {
            AcsService::Ecs => "2014-05-26",
            AcsService::Vpc => "2016-04-28",
            AcsService::Sts => "2015-04-01",
        }
    }

    /// Who answers for a region; for no region in particular where it is empty.
    fn host(self, region: &str) -> String {
        match (self, region) {
            (AcsService::Sts, _) => "sts.aliyuncs.com".to_owned(),
            (AcsService::Ecs, "") => "ecs.aliyuncs.com".to_owned(),
            // The oldest region has addresses of another form.
            (AcsService::Ecs, "cn-hangzhou") => "ecs-cn-hangzhou.aliyuncs.com".to_owned(),
            (AcsService::Vpc, "" | "cn-hangzhou") => "vpc.aliyuncs.com".to_owned(),
            (AcsService::Ecs, region) => format!("ecs.{}.aliyuncs.com", word(region)),
            (AcsService::Vpc, region) => format!("vpc.{}.aliyuncs.com", word(region)),
        }
    }
}

/// A signed request. All parameters are in its query, as Alibaba's own libraries send them.
pub(super) fn signed(
    (service, action): (AcsService, &str),
    region: &str,
    params: &Params,
    key: &AccessKey,
    endpoint: Option<&str>,
) -> HttpRequest {
    let base = endpoint.map_or_else(|| format!("https://{}", service.host(region)), str::to_owned);
    let mut pairs: Vec<String> = params.iter().map(|(name, value)| format!("{}={}", word(name), word(value))).collect();
    pairs.sort_unstable();
    let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
    let url = format!("{}/{query}", base.trim_end_matches('/'));
    let headers = [("accept", "application/json"), ("x-acs-action", action), ("x-acs-version", service.version())];
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut request = HttpRequest { method: "POST", url, headers, body: Vec::new() };
    sign(&mut request, key, now(), &nonce(&key.secret));
    request
}

/// A client with the credentials of this machine.
pub(super) struct AlibabaClient {
    transport: Arc<dyn HttpTransport>,
    endpoint: Option<String>,
    sources: AlibabaSources,
    lease: Mutex<Option<AlibabaLease>>,
}

impl std::fmt::Debug for AlibabaClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AlibabaClient").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl AlibabaClient {
    /// A client that sends with `transport`, to `endpoint` where that stands in for Alibaba.
    pub fn new(transport: Arc<dyn HttpTransport>, endpoint: Option<&str>, sources: AlibabaSources) -> AlibabaClient {
        AlibabaClient { transport, endpoint: endpoint.map(str::to_owned), sources, lease: Mutex::default() }
    }

    fn key(&self) -> Result<AccessKey, CloudFailure> {
        let source = match self.sources.source().map_err(CloudFailure::Denied)? {
            AlibabaSource::Key(key) => return Ok(key),
            lent => lent,
        };
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lease) = lease.as_ref().filter(|lease| lease.until.0 - now().0 > RENEWED_BEFORE) {
            return Ok(lease.key.clone());
        }
        let new = source.lease(self.transport.as_ref(), self.endpoint.as_deref())?;
        Ok(lease.insert(new).key.clone())
    }

    /// Carries out an action of a service in a region.
    pub fn ask<T: DeserializeOwned>(
        &self,
        (service, action): (AcsService, &str),
        region: &str,
        params: &Params,
    ) -> Result<T, CloudFailure> {
        let key = self.key()?;
        let request = signed((service, action), region, params, &key, self.endpoint.as_deref());
        let reply = self.transport.send(&request);
        let reply = reply.map_err(|why| CloudFailure::Doubt(format!("no answer from Alibaba Cloud: {why}")))?;
        if reply.status == 200 {
            return read(&reply);
        }
        let failure = failed(&reply);
        // Credentials that are not accepted are not used again.
        if matches!(failure, CloudFailure::Denied(_)) {
            *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Err(failure)
    }
}

/// Reads an answer.
pub(super) fn read<T: DeserializeOwned>(reply: &HttpReply) -> Result<T, CloudFailure> {
    serde_json::from_slice(&reply.body)
        .map_err(|error| CloudFailure::Doubt(format!("Alibaba Cloud's answer cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::wire::query::params;

    #[test]
    fn a_region_has_addresses_of_its_own() {
        let check = |service: AcsService, region: &str, expected: &str| assert_eq!(service.host(region), expected);
        check(AcsService::Ecs, "ap-southeast-1", "ecs.ap-southeast-1.aliyuncs.com");
        check(AcsService::Ecs, "cn-hangzhou", "ecs-cn-hangzhou.aliyuncs.com");
        check(AcsService::Ecs, "x/evil.org", "ecs.x%2Fevil.org.aliyuncs.com");
        check(AcsService::Vpc, "eu-central-1", "vpc.eu-central-1.aliyuncs.com");
        check(AcsService::Sts, "eu-central-1", "sts.aliyuncs.com");
    }

    #[test]
    fn a_request_is_an_action_with_its_parameters() {
        let key = AccessKey { id: "i".into(), secret: "s".into(), session: None };
        let sent = params([("RegionId", "us-east-1"), ("InstanceId", "i-1"), ("Tag.1.Value", "a b/ü")]);
        let request = signed((AcsService::Ecs, "DeleteInstance"), "us-east-1", &sent, &key, None);
        let query = "InstanceId=i-1&RegionId=us-east-1&Tag.1.Value=a%20b%2F%C3%BC";
        assert_eq!(request.url, format!("https://ecs.us-east-1.aliyuncs.com/?{query}"));
        assert_eq!((request.method, request.body.len()), ("POST", 0));
        let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
        let expected = ["accept", "x-acs-action", "x-acs-version", "host", "x-acs-date", "x-acs-signature-nonce"];
        assert_eq!((&names[..6], names.last()), (&expected[..], Some(&"authorization")));
        let other = signed((AcsService::Sts, "GetCallerIdentity"), "", &sent, &key, Some("http://127.0.0.1:1/"));
        assert!(other.url.starts_with("http://127.0.0.1:1/?InstanceId="), "{}", other.url);
    }
}
