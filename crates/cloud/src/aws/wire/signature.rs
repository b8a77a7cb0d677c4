//! AWS Signature Version 4: a request is signed with a key derived from the secret, the day, the region and the
//! service.
//!
//! An implementation of a hundred lines, because the official crate needs thirteen more that a first build does not
//! have. It is checked with AWS's published test vectors here, and by moto with authentication on in `tests/moto`.

use domain::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::HttpRequest;
use super::times::stamp;

/// What requests are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// The public part.
    pub id: String,
    /// The secret part.
    pub secret: String,
    /// The token of a session, where the key belongs to one.
    pub session: Option<String>,
}

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AccessKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Adds `host`, `x-amz-date`, the session's token and `authorization` to a request.
pub fn sign(request: &mut HttpRequest, key: &AccessKey, (region, service): (&str, &str), at: Timestamp) {
    let stamp = stamp(at);
    let (host, path, query) = parts(&request.url);
    request.headers.push(("host".into(), host.to_owned()));
    request.headers.push(("x-amz-date".into(), stamp.clone()));
    if let Some(session) = &key.session {
        request.headers.push(("x-amz-security-token".into(), session.clone()));
    }
    let mut headers: Vec<(&str, String)> =
        request.headers.iter().map(|(name, value)| (name.as_str(), one_space(value))).collect();
    headers.sort();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let signed = names.join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!(
        "{}\n{path}\n{}\n{lines}\n{signed}\n{}",
        request.method,
        canonical_query(query),
        hex(&Sha256::digest(&request.body))
    );
    let day = stamp.get(..8).unwrap_or_default();
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let to_sign = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let secret = format!("AWS4{}", key.secret);
    let steps = [day, region, service, "aws4_request", &to_sign];
    let signature = steps.iter().fold(secret.into_bytes(), |key, step| hmac(&key, step.as_bytes()));
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={signed}, Signature={}",
        key.id,
        hex(&signature)
    );
    request.headers.push(("authorization".into(), value));
}

/// Host, path and query of an address.
pub(crate) fn parts(url: &str) -> (&str, &str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    match rest.find('/') {
        Some(at) => (&rest[..at], &rest[at..], query),
        None => (rest, "/", query),
    }
}

/// The pairs in order, each encoded as it is in the address already.
pub(crate) fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<(&str, &str)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// A header's value with each run of spaces as one.
fn one_space(value: &str) -> String {
    value.split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// HMAC with SHA-256.
pub(crate) fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    // HMAC accepts keys of any length, so there is no error.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// Hexadecimal digits in lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::times;
    use super::*;

    /// The key and time of AWS's test vectors.
    fn check(method: &'static str, url: &str, headers: &[(&str, &str)], body: &str, expected: &str) {
        let (service, session) = match url {
            url if url.contains("iam.") => ("iam", None),
            url if url.contains("ec2.") => ("ec2", Some("a/token+==".to_owned())),
            _ => ("service", None),
        };
        let key =
            AccessKey { id: "AKIDEXAMPLE".into(), secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(), session };
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut request = HttpRequest { method, url: url.into(), headers, body: body.into() };
        sign(&mut request, &key, ("us-east-1", service), times::read("2015-08-30T12:36:00Z").unwrap());
        let (_, value) = request.headers.pop().unwrap();
        assert_eq!(value.rsplit_once('=').unwrap().1, expected, "{method} {url}");
    }

    /// From AWS's Signature Version 4 test suite, and the example of its documentation (`iam`); the last is what botocore
    /// 1.44 makes of a request with a session.
    #[test]
    fn published_vectors_are_met() {
        let at = "https://example.amazonaws.com";
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let utf8 = [("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
        check("GET", at, &[], "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
        check("POST", at, &[], "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
        check(
            "GET",
            &format!("{at}/?Param2=value2&Param1=value1"),
            &[],
            "",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        );
        check("POST", at, &form, "Param1=value1", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
        check(
            "GET",
            "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
            &utf8,
            "",
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
        );
        check(
            "POST",
            "https://ec2.us-east-1.amazonaws.com/",
            &utf8,
            "Action=DescribeInstances&Filter.1.Name=tag%3Ag%C3%BC&Version=2016-11-15",
            "6955597e197101f18ae3872d70d8d6d93b80625821714a5da6fd4cd2a9648806",
        );
    }

    #[test]
    fn a_key_does_not_print_its_secret() {
        let key = AccessKey { id: "AKID".into(), secret: "hush".into(), session: Some("token".into()) };
        let shown = format!("{key:?}");
        assert!(shown.contains("AKID") && !shown.contains("hush") && !shown.contains("token"), "{shown}");
    }
}
