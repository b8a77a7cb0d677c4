//! Requests to Tencent Cloud: an action and its parameters as JSON, with the region in a header.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::credentials::TencentSources;
use super::failure::{TcError, failed};
use super::signature::sign;
use crate::aws::now;
use crate::aws::wire::signature::AccessKey;
use crate::aws::wire::{HttpRequest, HttpTransport};
use crate::rented::CloudFailure;

/// One of Tencent's services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcService {
    /// Cloud Virtual Machine.
    Cvm,
    /// Cloud Block Storage.
    Cbs,
    /// Virtual Private Cloud.
    Vpc,
    /// Security Token Service.
    Sts,
}

impl TcService {
    /// Its name, in its address and in signatures.
    pub fn name(self) -> &'static str {
        match self {
            TcService::Cvm => "cvm",
            TcService::Cbs => "cbs",
            TcService::Vpc => "vpc",
            TcService::Sts => "sts",
        }
    }

    fn version(self) -> &'static str {
        match self {
            TcService::Cvm | TcService::Cbs | TcService::Vpc => "2017-03-12",
            TcService::Sts => "2018-08-13",
        }
    }
}

/// A signed request; for no region in particular where it is empty.
pub(super) fn signed(
    (service, action): (TcService, &str),
    region: &str,
    body: &str,
    key: &AccessKey,
    endpoint: Option<&str>,
) -> HttpRequest {
    let usual = || format!("https://{}.tencentcloudapi.com", service.name());
    let base = endpoint.map_or_else(usual, str::to_owned);
    let mut headers = vec![
        ("content-type", "application/json; charset=utf-8"),
        ("x-tc-action", action),
        ("x-tc-version", service.version()),
        ("x-tc-language", "en-US"),
    ];
    headers.extend(Some(("x-tc-region", region)).filter(|_| !region.is_empty()));
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let url = format!("{}/", base.trim_end_matches('/'));
    let mut request = HttpRequest { method: "POST", url, headers, body: body.as_bytes().to_vec() };
    sign(&mut request, key, service.name(), now());
    request
}

/// A client with the credentials of this machine.
pub(super) struct TencentClient {
    transport: Arc<dyn HttpTransport>,
    endpoint: Option<String>,
    sources: TencentSources,
}

impl std::fmt::Debug for TencentClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TencentClient").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// What holds every answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TcAnswer {
    response: Value,
}

impl TencentClient {
    /// A client that sends with `transport`, to `endpoint` where that stands in for Tencent.
    pub fn new(transport: Arc<dyn HttpTransport>, endpoint: Option<&str>, sources: TencentSources) -> TencentClient {
        TencentClient { transport, endpoint: endpoint.map(str::to_owned), sources }
    }

    /// Carries out an action of a service in a region, with its parameters as JSON.
    pub fn ask<T: DeserializeOwned>(
        &self,
        (service, action): (TcService, &str),
        region: &str,
        body: &str,
    ) -> Result<T, CloudFailure> {
        let key = self.sources.key().map_err(CloudFailure::Denied)?;
        let request = signed((service, action), region, body, &key, self.endpoint.as_deref());
        let reply = self.transport.send(&request);
        let reply = reply.map_err(|why| CloudFailure::Doubt(format!("no answer from Tencent Cloud: {why}")))?;
        if reply.status != 200 {
            let said = format!("HTTP status {}: {}", reply.status, reply.text().chars().take(200).collect::<String>());
            let is_too_much = reply.status == 429;
            return Err(if is_too_much { CloudFailure::Throttled(said) } else { CloudFailure::Doubt(said) });
        }
        let unread =
            |error: serde_json::Error| CloudFailure::Doubt(format!("Tencent Cloud's answer cannot be read: {error}"));
        let TcAnswer { mut response } = serde_json::from_slice(&reply.body).map_err(unread)?;
        match response.get_mut("Error").map(Value::take) {
            Some(error) => Err(failed(&serde_json::from_value::<TcError>(error).map_err(unread)?)),
            None => serde_json::from_value(response).map_err(unread),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_an_action_with_its_parameters() {
        let key = AccessKey { id: "i".into(), secret: "s".into(), session: None };
        let request = signed((TcService::Cvm, "DescribeInstances"), "ap-guangzhou", r#"{"Limit":1}"#, &key, None);
        assert_eq!((request.method, request.url.as_str()), ("POST", "https://cvm.tencentcloudapi.com/"));
        assert_eq!(request.body, br#"{"Limit":1}"#);
        let header = |name: &str| request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
        assert_eq!((header("x-tc-action"), header("x-tc-version")), (Some("DescribeInstances"), Some("2017-03-12")));
        assert_eq!((header("x-tc-region"), header("host")), (Some("ap-guangzhou"), Some("cvm.tencentcloudapi.com")));
        let other = signed((TcService::Sts, "GetCallerIdentity"), "", "{}", &key, Some("http://127.0.0.1:1"));
        assert_eq!(other.url, "http://127.0.0.1:1/");
        assert!(other.headers.iter().all(|(name, _)| name != "x-tc-region"), "{other:?}");
    }
}
