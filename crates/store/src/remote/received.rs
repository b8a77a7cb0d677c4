//! Compares uploads with the checksum that the store reports.
//!
//! A store answers a PUT with a checksum of the bytes received: `x-goog-hash` (Google), `Content-MD5` (Azure), or an
//! ETag that is their MD5 (S3 and compatible servers, unless they encrypt with customer keys). It is compared with that
//! of the bytes sent, and a request that differs is sent again. A local folder is read back instead ([`super::write`]).
//! MD5 is what the services use; it protects against damage, not against malice.

use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt;
use md5::{Digest, Md5};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, HeaderMap};

use super::failure::RECEIVED_OTHER;
use super::listing::{UnreadableKeys, is_listing, readable};
use super::upload::Upload;

/// Connects clients that verify what they send, and leave unreadable keys out of listings.
#[derive(Debug)]
pub(super) struct VerifyingConnector {
    connector: ReqwestConnector,
    uploads: reqwest::Client,
    unreadable: UnreadableKeys,
}

impl VerifyingConnector {
    /// One whose uploads go through that client, and that remembers the keys there.
    pub fn new(uploads: reqwest::Client, unreadable: &UnreadableKeys) -> VerifyingConnector {
        VerifyingConnector { connector: ReqwestConnector::default(), uploads, unreadable: unreadable.clone() }
    }
}

impl HttpConnector for VerifyingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.connector.connect(options)?;
        let (uploads, unreadable) = (self.uploads.clone(), self.unreadable.clone());
        Ok(HttpClient::new(Verifying { client, uploads, unreadable }))
    }
}

#[derive(Debug)]
struct Verifying {
    client: HttpClient,
    /// The client of uploads whose progress is told.
    uploads: reqwest::Client,
    unreadable: UnreadableKeys,
}

#[derive(Debug, thiserror::Error)]
#[error("{RECEIVED_OTHER}: their MD5 is {stored}, that of what was sent {sent}")]
struct Corrupted {
    sent: String,
    stored: String,
}

#[async_trait]
impl HttpService for Verifying {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if is_listing(&request) {
            return readable(self.client.execute(request).await?, &self.unreadable).await;
        }
        if request.method().as_str() != "PUT" || request.body().content_length() == 0 {
            return self.client.execute(request).await;
        }
        // Objects of directory buckets have ETags that look like an MD5 and are none.
        let has_md5 = !request.uri().host().is_some_and(|host| host.contains("s3express"));
        let body = request.body().clone().collect().await?.to_bytes();
        let response = match Upload::current() {
            Some(upload) => upload.send(&self.uploads, request, body.clone()).await?,
            None => self.client.execute(request).await?,
        };
        let stored = reported(response.headers()).filter(|_| has_md5 && response.status().is_success());
        let Some(stored) = stored else { return Ok(response) };
        let sent = hex(&Md5::digest(&body));
        match sent == stored {
            true => Ok(response),
            // Sent again, if the request may be.
            false => Err(HttpError::new(HttpErrorKind::Interrupted, Corrupted { sent, stored })),
        }
    }
}

/// The MD5 that the store reports, in hex, if the answer contains it.
fn reported(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let from_base64 = |text: &str| BASE64_STANDARD.decode(text.trim()).ok().map(|bytes| hex(&bytes));
    if headers.contains_key("x-goog-hash") {
        let values = headers.get_all("x-goog-hash").iter().filter_map(|value| value.to_str().ok());
        return values
            .flat_map(|value| value.split(','))
            .find_map(|hash| hash.trim().strip_prefix("md5="))
            .and_then(from_base64);
    }
    if let Some(md5) = text("content-md5") {
        return from_base64(md5);
    }
    let is_encrypted = text("x-amz-server-side-encryption").is_some_and(|kind| kind.starts_with("aws:kms"))
        || headers.contains_key("x-amz-server-side-encryption-customer-algorithm");
    let etag = text("etag")?.trim_matches('"');
    let is_md5 = etag.len() == 32 && etag.bytes().all(|byte| byte.is_ascii_hexdigit()) && !is_encrypted;
    is_md5.then(|| etag.to_ascii_lowercase())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use object_store::HeaderValue;

    use super::*;

    #[test]
    fn stores_report_what_they_received() {
        let check = |headers: &[(&'static str, &'static str)], expected: Option<&str>| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_static(value));
            }
            assert_eq!(reported(&map).as_deref(), expected, "{headers:?}");
        };
        let md5 = "5d41402abc4b2a76b9719d911017c592";
        check(&[("etag", "\"5d41402abc4b2a76b9719d911017c592\"")], Some(md5));
        check(&[("etag", "\"5D41402ABC4B2A76B9719D911017C592\"")], Some(md5));
        check(&[("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="), ("etag", "0x8D1")], Some(md5));
        check(&[("x-goog-hash", "crc32c=yZRlqg==,md5=XUFAKrxLKna5cZ2REBfFkg==")], Some(md5));
        check(&[("x-goog-hash", "crc32c=yZRlqg=="), ("x-goog-hash", "md5=XUFAKrxLKna5cZ2REBfFkg==")], Some(md5));
        // A composed object, parts, and keys of others: the ETag is no MD5 then.
        check(&[("x-goog-hash", "crc32c=yZRlqg=="), ("etag", "\"5d41402abc4b2a76b9719d911017c592\"")], None);
        check(&[("etag", "\"5d41402abc4b2a76b9719d911017c592-3\"")], None);
        check(&[("etag", "\"5d41402abc4b2a76b9719d911017c592\""), ("x-amz-server-side-encryption", "aws:kms")], None);
        check(&[("etag", "0x8D4BCC2E4835CD0")], None);
        check(&[], None);
    }
}
