//! Requests to Compute Engine, its operations, its errors and its times.

use std::sync::{Arc, Mutex, PoisonError};

use domain::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::credentials::{GcpSources, Token};
use crate::aws::now;
use crate::aws::wire::{HttpReply, HttpRequest, HttpTransport, times};
use crate::rented::CloudFailure;

/// A token is replaced so long before it ends.
const RENEWED_BEFORE: i64 = 120_000_000;

/// How often an operation is waited for; the server answers each time after two minutes at most.
const WAITS: usize = 2;

/// A client with the credentials of this machine.
pub struct GcpClient {
    transport: Arc<dyn HttpTransport>,
    endpoint: String,
    sources: GcpSources,
    token: Mutex<Option<Token>>,
}

impl std::fmt::Debug for GcpClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("GcpClient").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// What was begun, and how it went.
#[derive(Debug, Deserialize)]
pub struct GcpOperation {
    pub name: String,
    pub status: String,
    #[serde(default)]
    pub error: Option<OperationErrors>,
}

/// Why an operation has failed.
#[derive(Debug, Deserialize)]
pub struct OperationErrors {
    #[serde(default)]
    pub errors: Vec<OperationError>,
}

/// One reason.
#[derive(Debug, Deserialize)]
pub struct OperationError {
    pub code: String,
    #[serde(default)]
    pub message: String,
}

impl GcpClient {
    /// A client that sends with `transport`.
    pub fn new(transport: Arc<dyn HttpTransport>, endpoint: &str, sources: GcpSources) -> GcpClient {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        GcpClient { transport, endpoint, sources, token: Mutex::default() }
    }

    fn token(&self) -> Result<String, CloudFailure> {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |token: &&Token| token.until.is_none_or(|until| until.0 - now().0 > RENEWED_BEFORE);
        if let Some(token) = token.as_ref().filter(is_fresh) {
            return Ok(token.text.clone());
        }
        let source = self.sources.source().map_err(CloudFailure::Denied)?;
        let new = source.token(self.transport.as_ref())?;
        Ok(token.insert(new).text.clone())
    }

    fn send(&self, method: &'static str, path: &str, body: Vec<u8>) -> Result<HttpReply, CloudFailure> {
        self.send_to(method, &format!("{}{path}", self.endpoint), body)
    }

    fn send_to(&self, method: &'static str, url: &str, body: Vec<u8>) -> Result<HttpReply, CloudFailure> {
        let mut headers = vec![("authorization".to_owned(), format!("Bearer {}", self.token()?))];
        if !body.is_empty() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        let request = HttpRequest { method, url: url.to_owned(), headers, body };
        let reply = self.transport.send(&request);
        let reply = reply.map_err(|why| CloudFailure::Doubt(format!("no answer from Google: {why}")))?;
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

    /// Reads something.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CloudFailure> {
        read(&self.send("GET", path, Vec::new())?)
    }

    /// Begins something.
    pub fn post(&self, path: &str, body: Vec<u8>) -> Result<GcpOperation, CloudFailure> {
        read(&self.send("POST", path, body)?)
    }

    /// Asks another of Google's APIs, or the stand-in in its place.
    pub fn ask_api<T: DeserializeOwned>(&self, api: &str, path: &str, body: Vec<u8>) -> Result<T, CloudFailure> {
        let api = if self.endpoint == super::ENDPOINT { api } else { &self.endpoint };
        read(&self.send_to("POST", &format!("{api}{path}"), body)?)
    }

    /// Deletes something; that it was begun is enough.
    pub fn delete(&self, path: &str) -> Result<(), CloudFailure> {
        self.send("DELETE", path, Vec::new()).map(drop)
    }

    /// How an operation went. One that does not end in time is in doubt.
    pub fn outcome(&self, first: GcpOperation, path: impl Fn(&str) -> String) -> Result<(), CloudFailure> {
        let mut operation = first;
        for _ in 0..WAITS {
            if operation.status == "DONE" {
                break;
            }
            // What fails here says nothing of the operation.
            let waited = self.post(&path(&operation.name), Vec::new());
            operation = waited.map_err(|failure| CloudFailure::Doubt(failure.to_string()))?;
        }
        if operation.status != "DONE" {
            return Err(CloudFailure::Doubt(format!("the operation `{}` has not ended yet", operation.name)));
        }
        match operation.error.and_then(|error| error.errors.into_iter().next()) {
            None => Ok(()),
            Some(error) => Err(of_operation(&error)),
        }
    }
}

fn read<T: DeserializeOwned>(reply: &HttpReply) -> Result<T, CloudFailure> {
    serde_json::from_slice(&reply.body)
        .map_err(|error| CloudFailure::Doubt(format!("Google's answer cannot be read: {error}")))
}

/// What an operation that has failed means.
fn of_operation(error: &OperationError) -> CloudFailure {
    let said = format!("{}: {}", error.code, error.message);
    match error.code.as_str() {
        code if code.starts_with("ZONE_RESOURCE_POOL_EXHAUSTED") => CloudFailure::Capacity(said),
        "STOCKOUT" | "RESOURCE_POOL_EXHAUSTED" | "UNSUPPORTED_OPERATION" => CloudFailure::Capacity(said),
        "QUOTA_EXCEEDED" => CloudFailure::Quota(said),
        "RATE_LIMIT_EXCEEDED" => CloudFailure::Throttled(said),
        "PERMISSIONS_ERROR" | "PERMISSION_DENIED" => CloudFailure::Denied(said),
        "RESOURCE_ALREADY_EXISTS" => CloudFailure::Exists(said),
        "RESOURCE_NOT_FOUND" => CloudFailure::NotFound(said),
        "INTERNAL_ERROR" | "BACKEND_ERROR" => CloudFailure::Doubt(said),
        _ => CloudFailure::Invalid(said),
    }
}

#[derive(Deserialize)]
struct Refused {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Vec<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    #[serde(default)]
    reason: String,
}

/// What an error reply means.
pub fn failed(reply: &HttpReply) -> CloudFailure {
    let text = reply.text();
    let (reason, message) = match serde_json::from_str::<Refused>(&text) {
        Ok(Refused { error }) => {
            (error.errors.into_iter().next().map(|detail| detail.reason).unwrap_or_default(), error.message)
        }
        Err(_) => (String::new(), text.chars().take(200).collect()),
    };
    let said = format!("HTTP status {} {reason}: {message}", reply.status).replace(" : ", ": ");
    match (reply.status, reason.as_str()) {
        (_, "quotaExceeded") => CloudFailure::Quota(said),
        (429, _) | (_, "rateLimitExceeded" | "userRateLimitExceeded") => CloudFailure::Throttled(said),
        (_, "resourcesExhausted" | "stockout") => CloudFailure::Capacity(said),
        (401, _) => CloudFailure::Denied(format!("{said}; see docs/gcp.md for where gradus reads credentials from")),
        (403, _) => CloudFailure::Denied(said),
        (404, _) => CloudFailure::NotFound(said),
        (409, _) => CloudFailure::Exists(said),
        (500.., _) => CloudFailure::Doubt(said),
        _ => CloudFailure::Invalid(said),
    }
}

/// A request id that follows from a token: a UUID, as Google wants it.
pub fn request_id(token: &str) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(format!("gradus {token}"));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    // Version 8, for bytes of one's own (RFC 9562).
    format!("{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(12, 15), part(15, 18), part(18, 30))
}

/// Reads `2026-11-24T03:00:00.000-08:00`: Google writes times with the offset of California.
pub fn time(text: &str) -> Option<Timestamp> {
    let local = times::read(text)?;
    let rest = text.get(19..)?;
    let at = rest.find(['+', '-', 'Z'])?;
    let offset = rest.get(at..)?;
    let sign = match offset.chars().next()? {
        'Z' => return Some(local),
        '-' => -1,
        _ => 1,
    };
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let seconds = hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60;
    Some(Timestamp(local.0 - sign * seconds * 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_they_prove() {
        let check = |status: u16, reason: &str, expected: &str| {
            let body = format!(r#"{{"error":{{"code":{status},"message":"m","errors":[{{"reason":"{reason}"}}]}}}}"#);
            let word = format!("{:?}", failed(&HttpReply { headers: Vec::new(), status, body: body.into() }));
            assert!(word.starts_with(expected), "{word} is not {expected}");
        };
        check(403, "quotaExceeded", "Quota(");
        check(403, "rateLimitExceeded", "Throttled(");
        check(403, "forbidden", "Denied(");
        check(401, "authError", "Denied(");
        check(404, "notFound", "NotFound(");
        check(409, "alreadyExists", "Exists(");
        check(400, "invalid", "Invalid(");
        check(503, "backendError", "Doubt(");
        let of =
            |code: &str| format!("{:?}", of_operation(&OperationError { code: code.into(), message: String::new() }));
        assert!(of("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS").starts_with("Capacity("));
        assert!(of("QUOTA_EXCEEDED").starts_with("Quota("));
        assert!(of("RESOURCE_ALREADY_EXISTS").starts_with("Exists("));
        assert!(of("INTERNAL_ERROR").starts_with("Doubt("));
    }

    #[test]
    fn times_have_an_offset() {
        let utc = times::read("2026-11-24T11:00:00Z");
        for text in ["2026-11-24T03:00:00.000-08:00", "2026-11-24T11:00:00Z", "2026-11-24T12:30:00.5+01:30"] {
            assert_eq!(time(text), utc, "{text}");
        }
        for text in ["", "2026-11-24", "2026-11-24T03:00:00", "2026-11-24T03:00:00-8"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn a_request_id_is_a_uuid_and_follows_from_the_token() {
        let id = request_id("token");
        assert_eq!((id.len(), id.split('-').map(str::len).collect::<Vec<_>>()), (36, vec![8, 4, 4, 4, 12]));
        assert_eq!(id, request_id("token"));
        assert_ne!(id, request_id("other"));
    }
}
