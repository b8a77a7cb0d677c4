//! Tencent Cloud's signature, version 3 (`TC3-HMAC-SHA256`): a request is signed with a key derived from the secret, the day and
//! the service. Of its headers only `content-type` and `host` are signed.

use domain::Timestamp;
use sha2::{Digest, Sha256};

use crate::aws::wire::HttpRequest;
use crate::aws::wire::signature::{AccessKey, hex, hmac, parts};
use crate::aws::wire::times::rfc3339;

/// How it is called in the header.
const METHOD: &str = "TC3-HMAC-SHA256";

/// The headers that are signed.
const SIGNED: &str = "content-type;host";

/// Adds `host`, the time, the token of a session and `authorization` to a request to a service.
pub(super) fn sign(request: &mut HttpRequest, key: &AccessKey, service: &str, at: Timestamp) {
    let host = parts(&request.url).0.to_owned();
    let seconds = at.0.div_euclid(1_000_000);
    request.headers.push(("host".to_owned(), host));
    request.headers.push(("x-tc-timestamp".to_owned(), seconds.to_string()));
    if let Some(session) = &key.session {
        request.headers.push(("x-tc-token".to_owned(), session.clone()));
    }
    let value = authorization(request, key, service, seconds);
    request.headers.push(("authorization".to_owned(), value));
}

/// The header `authorization` of a request that has all others.
pub(super) fn authorization(request: &HttpRequest, key: &AccessKey, service: &str, seconds: i64) -> String {
    let header = |name: &str| {
        let found = request.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.trim()).unwrap_or_default()
    };
    let (_, path, query) = parts(&request.url);
    let canonical = format!(
        "{}\n{path}\n{query}\ncontent-type:{}\nhost:{}\n\n{SIGNED}\n{}",
        request.method,
        header("content-type"),
        header("host"),
        hex(&Sha256::digest(&request.body))
    );
    let stamp = rfc3339(Timestamp(seconds.saturating_mul(1_000_000)));
    let day = stamp.get(..10).unwrap_or_default();
    let scope = format!("{day}/{service}/tc3_request");
    let to_sign = format!("{METHOD}\n{seconds}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let steps = [day, service, "tc3_request", &to_sign];
    let secret = format!("TC3{}", key.secret).into_bytes();
    let signature = steps.iter().fold(secret, |key, step| hmac(&key, step.as_bytes()));
    format!("{METHOD} Credential={}/{scope}, SignedHeaders={SIGNED}, Signature={}", key.id, hex(&signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request of Tencent's documentation ("Signature v3").
    fn signed(secret: &str, session: Option<&str>) -> HttpRequest {
        let key = AccessKey {
            id: "AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE".into(),
            secret: secret.into(),
            session: session.map(str::to_owned),
        };
        let body = r#"{"Limit": 1, "Filters": [{"Values": ["\u672a\u547d\u540d"], "Name": "instance-name"}]}"#;
        let headers = vec![("content-type".to_owned(), "application/json; charset=utf-8".to_owned())];
        let url = "https://cvm.tencentcloudapi.com/".to_owned();
        let mut request = HttpRequest { method: "POST", url, headers, body: body.into() };
        sign(&mut request, &key, "cvm", Timestamp(1_551_113_065_000_000));
        request
    }

    /// Both editions of the documentation, whose secrets differ.
    #[test]
    fn the_documented_vectors_are_met() {
        let check = |secret: &str, expected: &str| {
            let value = signed(secret, None).headers.pop().unwrap().1;
            let expected = format!(
                "TC3-HMAC-SHA256 Credential=AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE/2019-02-25/cvm/tc3_request, \
                 SignedHeaders=content-type;host, Signature={expected}"
            );
            assert_eq!(value, expected);
        };
        check("Gu5t9xGARNpq86cd98joQYCN3EXAMPLE", "72e494ea809ad7a8c8f7a4507b9bddcbaa8e581f516e8da2f66e2c5a96525168");
        check("Gu5t9xGARNpq86cd98joQYCN3*******", "2230eefd229f582d8b1b891af7107b91597240707d778ab3738f756258d7652c");
    }

    #[test]
    fn a_request_is_dated_and_names_its_session() {
        let headers = signed("s", Some("token")).headers;
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["content-type", "host", "x-tc-timestamp", "x-tc-token", "authorization"]);
        assert_eq!((headers[2].1.as_str(), headers[3].1.as_str()), ("1551113065", "token"));
    }
}
