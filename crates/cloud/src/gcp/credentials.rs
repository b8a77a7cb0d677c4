//! Where a token for Google comes from: a variable, the credentials of `gcloud auth application-default login`, the `gcloud`
//! program, or the machine's own account.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::process::Command;

use domain::Timestamp;
use serde::Deserialize;

use crate::aws::now;
use crate::aws::wire::query::encoded;
use crate::aws::wire::{HttpReply, HttpRequest, HttpTransport};
use crate::credential_process;
use crate::rented::CloudFailure;

/// The variables that are read.
pub const VARIABLES: &[&str] = &[
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "GOOGLE_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "CLOUDSDK_CORE_PROJECT",
    "GRADUS_GCP_ENDPOINT",
    "GCE_METADATA_HOST",
];

/// What this machine says about credentials, gathered once by the shell.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct GcpSources {
    /// The variables of [`VARIABLES`] that are set.
    pub variables: BTreeMap<String, String>,
    /// The text of the file of application-default credentials.
    pub file: String,
}

impl std::fmt::Debug for GcpSources {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.variables.keys().collect();
        formatter.debug_struct("GcpSources").field("variables", &names).finish_non_exhaustive()
    }
}

/// Where a token comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum GcpSource {
    /// One that was found.
    Token(String),
    /// What `gcloud auth application-default login` has left.
    User { id: String, secret: String, refresh: String },
    /// A service account, for which `gcloud` signs.
    Program,
    /// The account of the machine that this runs on.
    Metadata { host: String },
}

/// A token and until when it can be used.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    /// None where that is not known.
    pub until: Option<Timestamp>,
}

#[derive(Deserialize)]
struct CredentialFile {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    client_id: String,
    #[serde(default)]
    client_secret: String,
    #[serde(default)]
    refresh_token: String,
    #[serde(default)]
    quota_project_id: Option<String>,
    #[serde(default)]
    project_id: Option<String>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    expires_in: i64,
}

impl GcpSources {
    /// The value of a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn credentials(&self) -> Option<CredentialFile> {
        serde_json::from_str(&self.file).ok()
    }

    /// Whether anything says that this machine uses Google's cloud.
    pub fn is_set(&self) -> bool {
        self.variable("GOOGLE_OAUTH_ACCESS_TOKEN").is_some() || !self.file.is_empty()
    }

    /// The project that variables or credentials name.
    pub fn project(&self) -> Option<String> {
        let named = self.variable("GOOGLE_CLOUD_PROJECT").or_else(|| self.variable("CLOUDSDK_CORE_PROJECT"));
        let of_file = || self.credentials().and_then(|file| file.project_id.or(file.quota_project_id));
        named.map(str::to_owned).or_else(of_file)
    }

    /// Decides which source is used.
    ///
    /// # Errors
    /// Why none can be, with what to do.
    pub fn source(&self) -> Result<GcpSource, String> {
        if let Some(token) = self.variable("GOOGLE_OAUTH_ACCESS_TOKEN") {
            return Ok(GcpSource::Token(token.to_owned()));
        }
        let named = self.variable("GOOGLE_APPLICATION_CREDENTIALS");
        if let Some(path) = named.filter(|_| self.file.is_empty()) {
            return Err(format!(
                "`GOOGLE_APPLICATION_CREDENTIALS` names `{path}`, which is empty or cannot be read; correct it, or unset it and {LOGIN}"
            ));
        }
        if self.file.is_empty() {
            let host = self.variable("GCE_METADATA_HOST").unwrap_or("metadata.google.internal");
            return Ok(GcpSource::Metadata { host: host.to_owned() });
        }
        let Some(file) = self.credentials() else {
            return Err(match named {
                Some(path) => format!("`{path}` is not a Google credentials file; {LOGIN}"),
                None => format!("the file of application-default credentials cannot be read; {LOGIN}"),
            });
        };
        match file.kind.as_str() {
            "authorized_user" => {
                let (id, secret, refresh) = (file.client_id, file.client_secret, file.refresh_token);
                Ok(GcpSource::User { id, secret, refresh })
            }
            "service_account" => Ok(GcpSource::Program),
            other => Err(format!(
                "application-default credentials of the kind `{other}` are not read; set `GOOGLE_OAUTH_ACCESS_TOKEN` \
                 to what `gcloud auth print-access-token` prints"
            )),
        }
    }
}

const LOGIN: &str = "run `gcloud auth application-default login`";

impl GcpSource {
    /// Gets a token.
    ///
    /// # Errors
    /// Why there is none.
    pub fn token(&self, transport: &dyn HttpTransport) -> Result<Token, CloudFailure> {
        match self {
            GcpSource::Token(text) => Ok(Token { text: text.clone(), until: None }),
            GcpSource::User { id, secret, refresh } => {
                let form = [
                    ("client_id", id.as_str()),
                    ("client_secret", secret),
                    ("refresh_token", refresh),
                    ("grant_type", "refresh_token"),
                ];
                let form: Vec<(String, String)> =
                    form.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
                let request = HttpRequest {
                    method: "POST",
                    url: "https://oauth2.googleapis.com/token".to_owned(),
                    headers: vec![("content-type".into(), "application/x-www-form-urlencoded".into())],
                    body: encoded(&form).into_bytes(),
                };
                let reply = transport.send(&request).map_err(CloudFailure::Doubt)?;
                answer(&reply, "Google does not accept the credentials of this user")
            }
            GcpSource::Program => printed(),
            GcpSource::Metadata { host } => {
                let request = HttpRequest {
                    method: "GET",
                    url: format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token"),
                    headers: vec![("metadata-flavor".into(), "Google".into())],
                    body: Vec::new(),
                };
                let none = format!("no credentials for Google were found; {LOGIN}");
                let reply = transport.send(&request).map_err(|_| CloudFailure::Denied(none.clone()))?;
                answer(&reply, &none)
            }
        }
    }
}

fn answer(reply: &HttpReply, refused: &str) -> Result<Token, CloudFailure> {
    match reply.status {
        200 => {}
        429 | 500.. => return Err(CloudFailure::Doubt(format!("no token from Google: HTTP status {}", reply.status))),
        status => {
            return Err(CloudFailure::Denied(format!("{refused} (HTTP status {status}); {LOGIN}")));
        }
    }
    let answer: TokenAnswer = serde_json::from_slice(&reply.body)
        .map_err(|error| CloudFailure::Doubt(format!("Google's token cannot be read: {error}")))?;
    let until = Timestamp(now().0.saturating_add(answer.expires_in.saturating_mul(1_000_000)));
    Ok(Token { text: answer.access_token, until: Some(until) })
}

/// What `gcloud` prints: it can sign with the key of a service account.
fn printed() -> Result<Token, CloudFailure> {
    let mut gcloud = Command::new("gcloud");
    gcloud.args(["auth", "application-default", "print-access-token"]);
    let wrong = |why: String| {
        CloudFailure::Denied(format!(
            "a service account needs `gcloud` to sign ({why}); or set `GOOGLE_OAUTH_ACCESS_TOKEN` to a token"
        ))
    };
    let output = credential_process::output(&mut gcloud).map_err(|error| match error.kind() {
        ErrorKind::TimedOut => CloudFailure::Doubt(format!("`gcloud`, which signs for the service account, {error}")),
        _ => wrong(error.to_string()),
    })?;
    if !output.status.success() {
        return Err(wrong(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    // It holds for an hour; how much of that is over is not printed.
    let until = Timestamp(now().0.saturating_add(600_000_000));
    Ok(Token { text: String::from_utf8_lossy(&output.stdout).trim().to_owned(), until: Some(until) })
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

    fn check(variables: &[(&str, &str)], file: &str, transport: &Fixed, expected: &str) {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let sources = GcpSources { variables, file: file.to_owned() };
        let shown = match sources.source().map_err(CloudFailure::Denied).and_then(|source| source.token(transport)) {
            Ok(token) => token.text,
            Err(failure) => failure.to_string(),
        };
        let shown = format!("{shown} of {}", sources.project().unwrap_or("-".into()));
        assert!(shown.starts_with(expected), "{shown}\n  is not\n{expected}");
    }

    #[test]
    fn the_first_source_that_has_something_is_used() {
        let user = r#"{"type":"authorized_user","client_id":"i","client_secret":"secret","refresh_token":"r","quota_project_id":"q"}"#;
        let good = Fixed(200, r#"{"access_token":"T","expires_in":3599}"#);
        check(&[("GOOGLE_OAUTH_ACCESS_TOKEN", "V")], user, &good, "V of q");
        check(&[("GOOGLE_CLOUD_PROJECT", "p")], user, &good, "T of p");
        check(&[], "", &good, "T of -");
        check(
            &[],
            user,
            &Fixed(400, "{}"),
            "Google does not accept the credentials of this user (HTTP status 400); run",
        );
        check(
            &[],
            "",
            &Fixed(404, ""),
            "no credentials for Google were found; run `gcloud auth application-default login`",
        );
        check(&[], "{", &good, "the file of application-default credentials cannot be read");
        let named = [("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent")];
        check(
            &named,
            "",
            &good,
            "`GOOGLE_APPLICATION_CREDENTIALS` names `/nonexistent`, which is empty or cannot be read; correct it, or unset",
        );
        check(&named, "{", &good, "`/nonexistent` is not a Google credentials file; run `gcloud");
        check(&named, user, &good, "T of q");
        check(
            &[],
            r#"{"type":"external_account"}"#,
            &good,
            "application-default credentials of the kind `external_account`",
        );
        check(&[], user, &Fixed(503, ""), "no token from Google: HTTP status 503");
    }
}
