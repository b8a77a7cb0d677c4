//! Requests to the Azure Resource Manager: tokens, pages, and operations that take long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::credentials::{AzureSources, AzureToken};
use super::failure::{ArmError, failed, of_operation};
use crate::aws::now;
use crate::aws::wire::{HttpReply, HttpRequest, HttpTransport};
use crate::rented::CloudFailure;

/// A token is replaced so long before it ends.
const RENEWED_BEFORE: i64 = 120_000_000;

/// Pages of one list that are read; more is taken for a mistake.
const PAGES: usize = 1000;

/// How long an operation is waited for. The loop gives a call up after a minute; Azure says within seconds whether it has a
/// machine, and minutes later that its system is up.
const PATIENCE: Duration = Duration::from_secs(25);

/// Between two looks at an operation, where Azure does not say how long to wait.
const USUAL_PAUSE: u64 = 5;

/// A client with the credentials of this machine.
pub(super) struct AzureClient {
    transport: Arc<dyn HttpTransport>,
    endpoint: String,
    authority: String,
    sources: AzureSources,
    token: Mutex<Option<AzureToken>>,
    pause: fn(Duration),
}

impl std::fmt::Debug for AzureClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AzureClient").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// A part of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArmPage<T> {
    #[serde(default = "Vec::new")]
    value: Vec<T>,
    #[serde(default)]
    next_link: Option<String>,
}

/// How an operation goes.
#[derive(Deserialize)]
struct ArmOperation {
    status: String,
    #[serde(default)]
    error: Option<ArmError>,
}

impl AzureClient {
    /// A client that sends with `transport`, and waits with `pause`.
    pub fn new(
        transport: Arc<dyn HttpTransport>,
        (endpoint, authority): (&str, &str),
        sources: AzureSources,
        pause: fn(Duration),
    ) -> AzureClient {
        let (endpoint, authority) = (endpoint.trim_end_matches('/').to_owned(), authority.to_owned());
        AzureClient { transport, endpoint, authority, sources, token: Mutex::default(), pause }
    }

    fn token(&self) -> Result<String, CloudFailure> {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = token.as_ref().filter(|token| token.until.0 - now().0 > RENEWED_BEFORE) {
            return Ok(token.text.clone());
        }
        let source = self.sources.source().map_err(CloudFailure::Denied)?;
        let new = source.token(self.transport.as_ref(), &self.authority, token.is_some())?;
        Ok(token.insert(new).text.clone())
    }

    fn send(
        &self,
        method: &'static str,
        url: &str,
        more: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<HttpReply, CloudFailure> {
        let mut headers = vec![("authorization".to_owned(), format!("Bearer {}", self.token()?))];
        headers.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let request = HttpRequest { method, url: url.to_owned(), headers, body };
        let reply = self.transport.send(&request);
        let reply = reply.map_err(|why| CloudFailure::Doubt(format!("no answer from Azure: {why}")))?;
        match reply.status {
            200..=299 => Ok(reply),
            status => {
                // A token that is not accepted is not used again.
                if status == 401 {
                    *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                Err(failed(&reply))
            }
        }
    }

    /// Reads all pages of a list.
    pub fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, CloudFailure> {
        let (mut found, mut url) = (Vec::new(), format!("{}{path}", self.endpoint));
        for _ in 0..PAGES {
            let page: ArmPage<T> = read(&self.send("GET", &url, &[], Vec::new())?)?;
            found.extend(page.value);
            match page.next_link.filter(|link| !link.is_empty()) {
                Some(link) if self.is_ours(&link) => url = link,
                Some(link) => return Err(CloudFailure::Doubt(format!("the next page is at `{link}`, not at Azure"))),
                None => return Ok(found),
            }
        }
        Err(CloudFailure::Doubt("the list has no end".to_owned()))
    }

    /// Begins to make what does not exist yet. Where it does, that is [`CloudFailure::Exists`], and nothing is changed.
    pub fn create(&self, path: &str, body: Vec<u8>) -> Result<HttpReply, CloudFailure> {
        let headers = [("content-type", "application/json"), ("if-none-match", "*")];
        self.send("PUT", &format!("{}{path}", self.endpoint), &headers, body)
    }

    /// Reads something.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CloudFailure> {
        read(&self.send("GET", &format!("{}{path}", self.endpoint), &[], Vec::new())?)
    }

    /// Begins what a path says by its end.
    pub fn post(&self, path: &str) -> Result<HttpReply, CloudFailure> {
        self.send("POST", &format!("{}{path}", self.endpoint), &[], Vec::new())
    }

    /// Changes a part of something, and reads what it is then.
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: Vec<u8>) -> Result<T, CloudFailure> {
        let headers = [("content-type", "application/json")];
        read(&self.send("PATCH", &format!("{}{path}", self.endpoint), &headers, body)?)
    }

    /// Deletes something; that it was begun is enough.
    pub fn delete(&self, path: &str) -> Result<(), CloudFailure> {
        self.send("DELETE", &format!("{}{path}", self.endpoint), &[], Vec::new()).map(drop)
    }

    /// Whether an address is one of the Resource Manager, which writes the port into some: no other is told the token.
    fn is_ours(&self, url: &str) -> bool {
        let rest = url.strip_prefix(&self.endpoint).map(|rest| rest.strip_prefix(":443").unwrap_or(rest));
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// Waits for what was begun. It may still be under way afterwards: then what was made is there, and a list shows what
    /// becomes of it.
    pub fn outcome(&self, begun: &HttpReply) -> Result<(), CloudFailure> {
        let Some(url) = begun.header("azure-asyncoperation").filter(|url| self.is_ours(url)) else { return Ok(()) };
        let (mut left, mut wait) = (PATIENCE, retry_after(begun));
        while !left.is_zero() {
            let waited = wait.min(left);
            (self.pause)(waited);
            left = left.saturating_sub(waited);
            // What fails here says nothing of the operation.
            let in_doubt = |failure: CloudFailure| CloudFailure::Doubt(failure.to_string());
            let reply = self.send("GET", url, &[], Vec::new()).map_err(in_doubt)?;
            let operation: ArmOperation = read(&reply)?;
            match operation.status.as_str() {
                "Succeeded" => return Ok(()),
                "Failed" | "Canceled" => return Err(of_operation(&operation.error.unwrap_or_default())),
                _ => wait = retry_after(&reply),
            }
        }
        Ok(())
    }
}

/// How long Azure asks clients to wait, a second at least.
fn retry_after(reply: &HttpReply) -> Duration {
    let told = reply.header("retry-after").and_then(|text| text.trim().parse::<u64>().ok());
    Duration::from_secs(told.unwrap_or(USUAL_PAUSE).max(1))
}

fn read<T: DeserializeOwned>(reply: &HttpReply) -> Result<T, CloudFailure> {
    serde_json::from_slice(&reply.body)
        .map_err(|error| CloudFailure::Doubt(format!("Azure's answer cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn azure_says_how_long_to_wait() {
        let check = |value: Option<&str>, seconds: u64| {
            let headers = value.map(|value| ("retry-after".to_owned(), value.to_owned())).into_iter().collect();
            let reply = HttpReply { headers, status: 202, body: Vec::new() };
            assert_eq!(retry_after(&reply), Duration::from_secs(seconds), "{value:?}");
        };
        check(Some("10"), 10);
        check(Some("0"), 1);
        check(Some("Wed, 21 Oct 2026 07:28:00 GMT"), 5);
        check(None, 5);
    }

    struct Nobody;

    impl HttpTransport for Nobody {
        fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
            panic!("{} was asked", request.url)
        }
    }

    #[test]
    fn a_token_is_told_to_the_resource_manager_only() {
        let hosts = ("https://management.azure.com/", "https://login.microsoftonline.com");
        let client = AzureClient::new(Arc::new(Nobody), hosts, AzureSources::default(), |_| ());
        assert!(client.is_ours("https://management.azure.com/subscriptions/s?page=2"));
        // As lists of more than a page go on.
        assert!(client.is_ours("https://management.azure.com:443/subscriptions/s?page=2"));
        for url in [
            "https://management.azure.com.evil.org/",
            "https://management.azure.com:443@evil.org/",
            "https://management.azure.com:4430/",
            "http://management.azure.com/",
            "https://evil.org/",
        ] {
            assert!(!client.is_ours(url), "{url}");
            let headers = vec![("azure-asyncoperation".to_owned(), url.to_owned())];
            assert_eq!(client.outcome(&HttpReply { headers, status: 201, body: Vec::new() }), Ok(()));
        }
    }
}
