//! Where a token for Azure comes from: the secret of an application, or the identity of the machine that this runs on.

use std::collections::BTreeMap;

use domain::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::aws::now;
use crate::aws::wire::query::{encoded, params, word};
use crate::aws::wire::{HttpReply, HttpRequest, HttpTransport};
use crate::rented::CloudFailure;

/// The variables that are read, under the names that Azure's own libraries give them.
pub const VARIABLES: &[&str] = &[
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_SUBSCRIPTION_ID",
    "AZURE_AUTHORITY_HOST",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
];

/// Who gives tokens to applications.
pub const AUTHORITY: &str = "https://login.microsoftonline.com";

/// Who gives tokens to machines with an identity.
const METADATA: &str = "http://169.254.169.254";

/// What tokens are for.
const RESOURCE: &str = "https://management.azure.com/";

/// What this machine says about credentials, gathered once by the shell.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AzureSources {
    /// The variables of [`VARIABLES`] that are set.
    pub variables: BTreeMap<String, String>,
}

impl std::fmt::Debug for AzureSources {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.variables.keys().collect();
        formatter.debug_struct("AzureSources").field("variables", &names).finish()
    }
}

/// Where a token comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum AzureSource {
    /// An application with a secret.
    Application { tenant: String, id: String, secret: String },
    /// The identity of the machine that this runs on: the one that is named, or its own.
    Machine { host: String, id: Option<String> },
}

/// A token and until when it can be used.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct AzureToken {
    pub text: String,
    pub until: Timestamp,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    /// Seconds: a number from Entra, and a text from a machine's metadata service.
    #[serde(default)]
    expires_in: Value,
}

impl AzureSources {
    /// The value of a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Decides which source is used.
    ///
    /// # Errors
    /// Which variable is missing.
    pub fn source(&self) -> Result<AzureSource, String> {
        let named = |name: &str| {
            let missing = || format!("`AZURE_CLIENT_SECRET` is set and `{name}` is not");
            self.variable(name).map(str::to_owned).ok_or_else(missing)
        };
        match self.variable("AZURE_CLIENT_SECRET") {
            Some(secret) => Ok(AzureSource::Application {
                tenant: named("AZURE_TENANT_ID")?,
                id: named("AZURE_CLIENT_ID")?,
                secret: secret.to_owned(),
            }),
            None => Ok(AzureSource::Machine {
                host: self.variable("AZURE_POD_IDENTITY_AUTHORITY_HOST").unwrap_or(METADATA).to_owned(),
                id: self.variable("AZURE_CLIENT_ID").map(str::to_owned),
            }),
        }
    }
}

impl AzureSource {
    /// The request for a token.
    fn request(&self, authority: &str) -> HttpRequest {
        match self {
            AzureSource::Application { tenant, id, secret } => {
                let scope = format!("{RESOURCE}.default");
                let form = params([
                    ("client_id", id),
                    ("client_secret", secret),
                    ("grant_type", "client_credentials"),
                    ("scope", &scope),
                ]);
                HttpRequest {
                    method: "POST",
                    url: format!("{}/{}/oauth2/v2.0/token", authority.trim_end_matches('/'), word(tenant)),
                    headers: vec![("content-type".into(), "application/x-www-form-urlencoded".into())],
                    body: encoded(&form).into_bytes(),
                }
            }
            AzureSource::Machine { host, id } => {
                let which = id.as_ref().map(|id| format!("&client_id={}", word(id))).unwrap_or_default();
                let (host, resource) = (host.trim_end_matches('/'), word(RESOURCE));
                let path = "metadata/identity/oauth2/token?api-version=2018-02-01";
                HttpRequest {
                    method: "GET",
                    url: format!("{host}/{path}&resource={resource}{which}"),
                    headers: vec![("metadata".into(), "true".into())],
                    body: Vec::new(),
                }
            }
        }
    }

    /// Gets a token; `has_given` says whether this source gave one before.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn token(
        &self,
        transport: &dyn HttpTransport,
        authority: &str,
        has_given: bool,
    ) -> Result<AzureToken, CloudFailure> {
        let reply = transport.send(&self.request(authority));
        match self {
            AzureSource::Application { .. } => {
                let reply = reply.map_err(|why| CloudFailure::Doubt(format!("no token from Azure: {why}")))?;
                answer(&reply, "Azure does not accept the credentials of this application")
            }
            AzureSource::Machine { .. } => {
                let none = "no credentials for Azure were found";
                // Where nothing ever answered there is no such service.
                let reply = reply.map_err(|why| match has_given {
                    true => CloudFailure::Doubt(format!("no token from this machine's metadata service: {why}")),
                    false => CloudFailure::Denied(format!("{none}; {SET}")),
                })?;
                answer(&reply, none)
            }
        }
    }
}

const SET: &str = "set `AZURE_TENANT_ID`, `AZURE_CLIENT_ID` and `AZURE_CLIENT_SECRET` to those of an application";

fn answer(reply: &HttpReply, refused: &str) -> Result<AzureToken, CloudFailure> {
    match reply.status {
        200 => {}
        // A metadata service that is being updated answers 410.
        410 | 429 | 500.. => {
            return Err(CloudFailure::Doubt(format!("no token from Azure: HTTP status {}", reply.status)));
        }
        status => return Err(CloudFailure::Denied(format!("{refused} (HTTP status {status}); {SET}"))),
    }
    let answer: TokenAnswer = serde_json::from_slice(&reply.body)
        .map_err(|error| CloudFailure::Doubt(format!("Azure's token cannot be read: {error}")))?;
    let seconds = match &answer.expires_in {
        Value::String(text) => text.parse().unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    };
    let until = Timestamp(now().0.saturating_add(seconds.saturating_mul(1_000_000)));
    Ok(AzureToken { text: answer.access_token, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u16, &'static str);

    impl HttpTransport for Fixed {
        fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
            assert!(!request.url.contains("secret"), "{}", request.url);
            Ok(HttpReply { headers: Vec::new(), status: self.0, body: self.1.into() })
        }
    }

    fn sources(variables: &[(&str, &str)]) -> AzureSources {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        AzureSources { variables }
    }

    const APPLICATION: [(&str, &str); 3] =
        [("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_ID", "i"), ("AZURE_CLIENT_SECRET", "secret&")];

    #[test]
    fn the_first_source_that_has_something_is_used() {
        let check = |variables: &[(&str, &str)], transport: &Fixed, expected: &str| {
            let source = sources(variables).source().map_err(CloudFailure::Denied);
            let shown = match source.and_then(|source| source.token(transport, AUTHORITY, false)) {
                Ok(token) => format!("{} {}", token.text, token.until.0 > now().0 + 3_000_000_000),
                Err(failure) => failure.to_string(),
            };
            assert!(shown.starts_with(expected), "{shown}\n  is not\n{expected}");
        };
        check(&APPLICATION, &Fixed(200, r#"{"token_type":"Bearer","expires_in":3599,"access_token":"T"}"#), "T true");
        check(&[], &Fixed(200, r#"{"access_token":"M","expires_in":"86399","token_type":"Bearer"}"#), "M true");
        let secret = &APPLICATION[2..];
        check(secret, &Fixed(200, "{}"), "`AZURE_CLIENT_SECRET` is set and `AZURE_TENANT_ID` is not");
        let refused = "Azure does not accept the credentials of this application (HTTP status 401); set";
        check(&APPLICATION, &Fixed(401, r#"{"error":"invalid_client"}"#), refused);
        check(&[], &Fixed(404, ""), "no credentials for Azure were found (HTTP status 404); set `AZURE_TENANT_ID`");
        check(&APPLICATION, &Fixed(503, ""), "no token from Azure: HTTP status 503");
        check(&APPLICATION, &Fixed(200, "<html>"), "Azure's token cannot be read");
    }

    struct Silent;

    impl HttpTransport for Silent {
        fn send(&self, _request: &HttpRequest) -> Result<HttpReply, String> {
            Err("timed out".to_owned())
        }
    }

    #[test]
    fn a_metadata_service_that_fails_for_a_moment_is_not_a_machine_without_an_identity() {
        let check = |transport: &dyn HttpTransport, has_given: bool, expected: &str| {
            let shown = match sources(&[]).source().unwrap().token(transport, AUTHORITY, has_given) {
                Ok(token) => token.text,
                Err(failure) => format!("{failure:?}"),
            };
            assert!(shown.starts_with(expected), "{shown}\n  is not\n{expected}");
        };
        check(&Silent, false, "Denied(");
        check(&Silent, true, "Doubt(");
        check(&Fixed(410, ""), false, "Doubt(");
        check(&Fixed(404, ""), true, "Denied(");
    }

    #[test]
    fn tokens_are_asked_for_as_documented() {
        let request = sources(&APPLICATION).source().unwrap().request(AUTHORITY);
        assert_eq!(request.url, "https://login.microsoftonline.com/t/oauth2/v2.0/token");
        let form = "client_id=i&client_secret=secret%26&grant_type=client_credentials\
                    &scope=https%3A%2F%2Fmanagement.azure.com%2F.default";
        assert_eq!(String::from_utf8(request.body).unwrap(), form);
        let request = sources(&[("AZURE_CLIENT_ID", "u")]).source().unwrap().request(AUTHORITY);
        let url = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01\
                   &resource=https%3A%2F%2Fmanagement.azure.com%2F&client_id=u";
        assert_eq!((request.method, request.url.as_str()), ("GET", url));
        assert_eq!(request.headers, [("metadata".to_owned(), "true".to_owned())]);
    }

    #[test]
    fn a_secret_does_not_print_itself() {
        assert!(!format!("{:?}", sources(&APPLICATION)).contains("secret&"));
    }
}
