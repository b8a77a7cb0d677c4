//! `Idempotency-Key`: the same request sent again is carried out once.

use axum::http::HeaderMap;
use serde_json::json;

use crate::api::failure::ApiError;
use crate::api::views::SubmitRequest;
use crate::api::{Api, reading};
use crate::submit::{KeyedSubmission, claim_key, keyed, sha256};

/// The `Idempotency-Key` of a request: the same request with the same key is carried out once.
pub(in crate::api) fn key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let hint = "send a text of your own for each submission, such as a UUID, or leave the header out";
    let refused = |why: &str| ApiError::new(400, format!("`Idempotency-Key` {why}")).hint(hint);
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().map_err(|_| refused("has characters other than printable ASCII"))?;
    // Else all requests of a client whose variable is unset would be one.
    if key.trim().is_empty() {
        return Err(refused("is empty"));
    }
    Ok(Some(key.to_owned()))
}

/// The `Idempotency-Key` of a submission, and the SHA-256 of what it asks for. The key is part of what is hashed, so that
/// secrets cannot be tried one after the other.
pub(in crate::api) struct SubmissionKey {
    /// The key.
    pub text: String,
    request: String,
}

impl SubmissionKey {
    pub(in crate::api) fn new(key: String, request: &SubmitRequest) -> SubmissionKey {
        let SubmitRequest { job, folder, file, envs, secrets } = request;
        let asked = json!([key, job, folder, file, envs, secrets]).to_string();
        SubmissionKey { text: key, request: sha256(asked.as_bytes()) }
    }

    /// The run or sweep of this key, if a request came before with it, and was this one.
    pub(in crate::api) async fn known(&self, api: &Api) -> Result<Option<String>, ApiError> {
        let (home, text) = (api.home.clone(), self.text.clone());
        let first = reading::blocking(move || keyed(&home, &text).map_err(ApiError::inside)).await?;
        first.map(|first| self.name_of(first)).transpose()
    }

    /// The run or sweep that the key stands for from now on: this one, or that of the same request, sent at the same time.
    pub(in crate::api) async fn claimed(&self, api: &Api, name: String) -> Result<String, ApiError> {
        let (home, text) = (api.home.clone(), self.text.clone());
        let submission = KeyedSubmission { name, request: self.request.clone() };
        let claim = move || claim_key(&home, &text, submission).map_err(ApiError::inside);
        self.name_of(reading::blocking(claim).await?)
    }

    fn name_of(&self, first: KeyedSubmission) -> Result<String, ApiError> {
        if first.request == self.request { Ok(first.name) } else { Err(other_request(&first.name)) }
    }
}

/// A key that belongs to another request.
pub(in crate::api) fn other_request(name: &str) -> ApiError {
    let message = format!("this `Idempotency-Key` was used for another request, `{name}`");
    ApiError::new(409, message).hint("send another key")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_key_is_a_text_that_is_not_empty() {
        let check = |value: &[u8], expected: Result<&str, &str>| {
            let mut headers = HeaderMap::new();
            headers.insert("idempotency-key", HeaderValue::from_bytes(value).unwrap());
            let found = key(&headers);
            let found = found.map_err(|refused| (refused.status, refused.message));
            let expected = expected.map(|key| Some(key.to_owned()));
            assert_eq!(found, expected.map_err(|why| (400, format!("`Idempotency-Key` {why}"))));
        };
        check(b"once", Ok("once"));
        check(b"", Err("is empty"));
        check(b" ", Err("is empty"));
        check("\u{e9}".as_bytes(), Err("has characters other than printable ASCII"));
        assert_eq!(key(&HeaderMap::new()), Ok(None));
    }
}
