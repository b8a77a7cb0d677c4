//! Alibaba Cloud's signature, version 3 (`ACS3-HMAC-SHA256`): the request is signed with the secret itself, and carries its time
//! and a number that is used once.

use std::sync::atomic::{AtomicU64, Ordering};

use domain::Timestamp;
use sha2::{Digest, Sha256};

use crate::aws::now;
use crate::aws::wire::HttpRequest;
use crate::aws::wire::signature::{AccessKey, canonical_query, hex, hmac, parts};
use crate::aws::wire::times::rfc3339;

/// How it is called in the header.
const METHOD: &str = "ACS3-HMAC-SHA256";

/// Adds `host`, the time, a nonce, the hash of the body, the token of a session and `authorization` to a request. The query of
/// its address must be encoded.
pub(super) fn sign(request: &mut HttpRequest, key: &AccessKey, at: Timestamp, nonce: &str) {
    let host = parts(&request.url).0.to_owned();
    let mut add = |name: &str, value: String| request.headers.push((name.to_owned(), value));
    add("host", host);
    add("x-acs-date", rfc3339(at));
    add("x-acs-signature-nonce", nonce.to_owned());
    add("x-acs-content-sha256", hex(&Sha256::digest(&request.body)));
    if let Some(session) = &key.session {
        add("x-acs-accesskey-id", key.id.clone());
        add("x-acs-security-token", session.clone());
    }
    let value = authorization(request, key);
    request.headers.push(("authorization".to_owned(), value));
}

/// The header `authorization` of a request that has all others.
pub(super) fn authorization(request: &HttpRequest, key: &AccessKey) -> String {
    let (_, path, query) = parts(&request.url);
    let mut headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.trim())).collect();
    headers.sort_unstable();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let signed = names.join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!(
        "{}\n{path}\n{}\n{lines}\n{signed}\n{}",
        request.method,
        canonical_query(query),
        hex(&Sha256::digest(&request.body))
    );
    let to_sign = format!("{METHOD}\n{}", hex(&Sha256::digest(canonical)));
    let signature = hex(&hmac(key.secret.as_bytes(), to_sign.as_bytes()));
    format!("{METHOD} Credential={},SignedHeaders={signed},Signature={signature}", key.id)
}

/// Requests that this process has signed.
static SIGNED: AtomicU64 = AtomicU64::new(0);

/// A text that no other request has: Alibaba refuses one that it has seen within a quarter of an hour.
pub(super) fn nonce(secret: &str) -> String {
    let (process, number) = (std::process::id(), SIGNED.fetch_add(1, Ordering::Relaxed));
    let digest = Sha256::digest(format!("{secret}|{}|{process}|{number}", now().0));
    hex(&digest).chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::wire::times;

    fn signed(url: &str, headers: &[(&str, &str)], key: &AccessKey, at: &str, nonce: &str) -> String {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut request = HttpRequest { method: "POST", url: url.into(), headers, body: Vec::new() };
        sign(&mut request, key, times::read(at).unwrap(), nonce);
        request.headers.pop().unwrap().1
    }

    /// The example of Alibaba's documentation ("Request syntax and signature method V3").
    #[test]
    fn the_documented_vector_is_met() {
        let key = AccessKey { id: "YourAccessKeyId".into(), secret: "YourAccessKeySecret".into(), session: None };
        let url = "https://ecs.cn-shanghai.aliyuncs.com/?ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd\
                   &RegionId=cn-shanghai";
        let headers = [("x-acs-action", "RunInstances"), ("x-acs-version", "2014-05-26")];
        let value = signed(url, &headers, &key, "2023-10-26T10:22:32Z", "3156853299f313e23d1673dc12e1703d");
        let expected = "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,\
                        SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,\
                        Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0";
        assert_eq!(value, expected);
    }

    /// What `alibabacloud_tea_openapi` 0.4.6, Alibaba's own library, makes of a request with a session.
    #[test]
    fn a_session_and_letters_of_others_are_signed_as_alibabas_library_signs_them() {
        let key = AccessKey { id: "ID".into(), secret: "secret".into(), session: Some("a/token+==".into()) };
        let url = "https://ecs.cn-beijing.aliyuncs.com/?RegionId=cn-beijing&Tag.1.Key=gradus-owner\
                   &Tag.1.Value=me%20%2F%20%C3%BC%2B%2A~";
        let headers =
            [("accept", "application/json"), ("x-acs-action", "DescribeInstances"), ("x-acs-version", "2014-05-26")];
        let value = signed(url, &headers, &key, "2026-11-27T05:00:00Z", "n");
        let signature = "f51612c2ec73c6beb6f6f39c0a35884a92be168de02f17a1e03574cff9c2af8e";
        assert!(value.ends_with(&format!("Signature={signature}")), "{value}");
    }

    #[test]
    fn no_nonce_comes_twice() {
        let all: std::collections::BTreeSet<String> = (0..100).map(|_| nonce("secret")).collect();
        assert_eq!((all.len(), all.iter().all(|one| one.len() == 32)), (100, true));
    }
}
