//! Where the credentials for AWS come from: variables, a token of an identity provider, profiles, or the machine's own role.
//!
//! The order is that of AWS's tools. [`profile`] reads what a profile says: keys, a role that is assumed with the keys of
//! another profile, the tokens that `aws sso login` leaves, or a program that prints keys; [`lease`] gets the keys. What needs
//! a person (a code of a second factor) is refused with the command by which AWS's tools hand their credentials on.

mod lease;
mod network;
mod profile;

use std::collections::BTreeMap;
use std::path::PathBuf;

use domain::Timestamp;

use super::wire::signature::AccessKey;
use lease::NOTHING;
pub use network::{OwnNetwork, own_network};
use profile::{config_heading, section};

/// The variables that are read.
pub const VARIABLES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
];

/// The credential sources of this machine, collected once by the shell.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CredentialSources {
    /// The variables of [`VARIABLES`] that are set.
    pub variables: BTreeMap<String, String>,
    /// The text of `~/.aws/credentials`.
    pub credentials: String,
    /// The text of `~/.aws/config`.
    pub config: String,
    /// The folder with the tokens of `aws sso login`, `~/.aws/sso/cache`.
    pub sso_cache: Option<PathBuf>,
}

impl std::fmt::Debug for CredentialSources {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.variables.keys().collect();
        formatter.debug_struct("CredentialSources").field("variables", &names).finish_non_exhaustive()
    }
}

/// Where credentials come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// A key that was found.
    Key {
        key: AccessKey,
        /// Such as `the profile "default"`.
        origin: String,
    },
    /// A token in a file, for which STS gives a key.
    WebIdentity { file: String, role: String, session: String },
    /// The role of the machine that this runs on.
    Metadata { endpoint: String },
    /// A program that prints a key, such as one that asks a vault.
    Process {
        /// With its arguments, as the profile has it.
        command: String,
        profile: String,
    },
    /// A token that `aws sso login` has left, for which the portal gives keys of a role.
    Sso(SsoRole),
    /// A role that is assumed with another key.
    Role(Box<AssumedWith>),
}

/// The origin of a key in variables.
const IN_VARIABLES: &str = "environment variables";

impl CredentialSource {
    /// What to do where AWS does not accept its key.
    pub fn remedy(&self) -> String {
        match self {
            CredentialSource::Key { origin, .. } if origin == IN_VARIABLES => {
                "set `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, for a temporary key, `AWS_SESSION_TOKEN` again, or unset \
                 them to use a profile"
                    .to_owned()
            }
            CredentialSource::Key { origin, .. } => {
                let profile = origin.split('`').nth(1).unwrap_or("default");
                format!("enter new ones with `aws configure --profile {profile}`")
            }
            CredentialSource::WebIdentity { file, .. } => format!("renew the token in `{file}`"),
            CredentialSource::Metadata { .. } => "check the role of this machine in IAM".to_owned(),
            CredentialSource::Process { profile, .. } => {
                format!("check what the `credential_process` of the profile `{profile}` prints")
            }
            CredentialSource::Sso(role) => format!("run `aws sso login --profile {}`", role.profile),
            CredentialSource::Role(with) => with.source.remedy(),
        }
    }
}

/// A role of IAM Identity Center.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SsoRole {
    pub profile: String,
    pub cache: Option<PathBuf>,
    /// The start page, by which the token is found.
    pub start_url: String,
    pub region: String,
    pub account: String,
    pub role: String,
}

/// A role, and what it is assumed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumedWith {
    pub role: String,
    pub session: String,
    pub external_id: Option<String>,
    /// Seconds, where the profile says how long.
    pub duration: Option<String>,
    pub source: CredentialSource,
    pub profile: String,
}

/// A key and until when it can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub key: AccessKey,
    /// Expiry; `None` for never.
    pub until: Option<Timestamp>,
    /// Where it comes from, for people.
    pub origin: String,
}

impl CredentialSources {
    /// The value of a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn profile(&self) -> &str {
        self.variable("AWS_PROFILE").unwrap_or("default")
    }

    /// The region that the user's own settings name.
    pub fn region(&self) -> Option<String> {
        let named = self.variable("AWS_REGION").or_else(|| self.variable("AWS_DEFAULT_REGION"));
        named
            .map(str::to_owned)
            .or_else(|| section(&self.config, &config_heading(self.profile()))?.get("region").cloned())
    }

    /// Selects a source.
    ///
    /// # Errors
    /// Why there is none, with a hint.
    pub fn source(&self) -> Result<CredentialSource, String> {
        if let Some(source) = self.of_variables() {
            return Ok(source);
        }
        if let (Some(file), Some(role)) = (self.variable("AWS_WEB_IDENTITY_TOKEN_FILE"), self.variable("AWS_ROLE_ARN"))
        {
            let session = self.variable("AWS_ROLE_SESSION_NAME").unwrap_or("gradus").to_owned();
            return Ok(CredentialSource::WebIdentity { file: file.to_owned(), role: role.to_owned(), session });
        }
        let name = self.profile();
        if let Some(source) = self.of_profile(name, &[])? {
            return Ok(source);
        }
        if self.variable("AWS_PROFILE").is_some() {
            return Err(format!("there is no profile `{name}` with keys in `~/.aws/credentials` or `~/.aws/config`"));
        }
        self.of_metadata()
    }

    /// The key in variables.
    fn of_variables(&self) -> Option<CredentialSource> {
        let (id, secret) = (self.variable("AWS_ACCESS_KEY_ID")?, self.variable("AWS_SECRET_ACCESS_KEY")?);
        let session = self.variable("AWS_SESSION_TOKEN").map(str::to_owned);
        let key = AccessKey { id: id.to_owned(), secret: secret.to_owned(), session };
        Some(CredentialSource::Key { key, origin: IN_VARIABLES.into() })
    }

    /// The role of this machine.
    fn of_metadata(&self) -> Result<CredentialSource, String> {
        if self.variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Err(NOTHING.to_owned());
        }
        let endpoint = self.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or("http://169.254.169.254");
        Ok(CredentialSource::Metadata { endpoint: endpoint.trim_end_matches('/').to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::wire::failure::AwsFailure;
    use super::super::wire::{HttpReply, HttpRequest, HttpTransport, times};
    use super::*;

    fn sources(variables: &[(&str, &str)], credentials: &str, config: &str) -> CredentialSources {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        CredentialSources { variables, credentials: credentials.to_owned(), config: config.to_owned(), sso_cache: None }
    }

    fn check(variables: &[(&str, &str)], credentials: &str, config: &str, expected: &str) {
        let found = match sources(variables, credentials, config).source() {
            Ok(CredentialSource::Key { key, origin }) => {
                format!("{} {} {} from {origin}", key.id, key.secret, key.session.unwrap_or("-".into()))
            }
            Ok(CredentialSource::WebIdentity { file, role, session }) => format!("{file} as {role} for {session}"),
            Ok(CredentialSource::Metadata { endpoint }) => endpoint,
            Ok(other) => format!("{other:?}"),
            Err(why) => why,
        };
        assert!(found.starts_with(expected), "{found}\n  is not\n{expected}");
    }

    #[test]
    fn the_first_source_that_has_something_is_used() {
        let keys = [("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "s")];
        let file = "[default]\naws_access_key_id = F\naws_secret_access_key=f\n\n# x\n[work]\naws_access_key_id=W\n\
                    aws_secret_access_key = w=\naws_session_token=t\n";
        check(&keys, file, "", "A s - from environment variables");
        check(&[], file, "", "F f - from the profile `default`");
        check(&[("AWS_PROFILE", "work")], file, "", "W w= t from the profile `work`");
        check(&[("AWS_PROFILE", "none")], file, "", "there is no profile `none`");
        let config = "[profile other]\nregion = eu-west-1\naws_access_key_id = O\naws_secret_access_key = o\n\
                      s3 =\n  aws_access_key_id = X\n[profile sso]\nsso_session = mine\n[profile role]\nrole_arn = r\n";
        check(&[("AWS_PROFILE", "other")], file, config, "O o - from the profile `other`");
        check(&[("AWS_PROFILE", "sso")], "", config, "the profile `sso` names the session `mine`, which");
        check(&[("AWS_PROFILE", "role")], "", config, "the profile `role` has a `role_arn` and neither");
        let web = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "arn")];
        check(&web, file, "", "/t as arn for gradus");
        check(&[], "", "", "http://169.254.169.254");
        check(&[("AWS_EC2_METADATA_DISABLED", "true")], "", "", "no credentials for AWS were found");
        let region = |variables: &[_]| sources(variables, "", config).region();
        assert_eq!(region(&[("AWS_PROFILE", "other")]).as_deref(), Some("eu-west-1"));
        assert_eq!(region(&[("AWS_REGION", "us-east-2")]).as_deref(), Some("us-east-2"));
        assert_eq!(region(&[]), None);
    }

    /// Replays answers, and records the requests.
    struct Recorded(Mutex<(Vec<HttpRequest>, Vec<HttpReply>)>);

    impl HttpTransport for Recorded {
        fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
            let mut inside = self.0.lock().unwrap();
            inside.0.push(request.clone());
            if inside.1.is_empty() { Err("nobody answers".into()) } else { Ok(inside.1.remove(0)) }
        }
    }

    #[test]
    fn a_machine_s_role_is_asked_for_with_a_token() {
        let key = r#"{"AccessKeyId":"A","SecretAccessKey":"s","Token":"t","Expiration":"2026-11-23T20:00:00Z"}"#;
        let replies =
            ["T", "my-role\n", key].map(|body| HttpReply { headers: Vec::new(), status: 200, body: body.into() });
        let transport = Recorded(Mutex::new((Vec::new(), replies.to_vec())));
        let source = CredentialSource::Metadata { endpoint: "http://imds".into() };
        let lease = source.lease(&transport, ("", ""), false).unwrap();
        assert_eq!((&*lease.key.id, lease.key.session.as_deref()), ("A", Some("t")));
        assert_eq!(lease.until, times::read("2026-11-23T20:00:00Z"));
        let asked = transport.0.lock().unwrap().0.clone();
        assert_eq!(asked[0].method, "PUT");
        assert_eq!(asked[2].url, "http://imds/latest/meta-data/iam/security-credentials/my-role");
        assert_eq!(asked[2].headers, [("x-aws-ec2-metadata-token".to_owned(), "T".to_owned())]);
        let nobody = Recorded(Mutex::default());
        assert!(
            matches!(source.lease(&nobody, ("", ""), false), Err(AwsFailure::Credentials(why)) if why.contains("aws configure"))
        );
    }

    #[test]
    fn a_metadata_service_that_fails_for_a_moment_is_not_a_machine_without_a_role() {
        let check = |replies: &[(u16, &str)], has_given, expected: &str| {
            let replies = replies.iter().map(|(status, body)| HttpReply {
                headers: Vec::new(),
                status: *status,
                body: (*body).into(),
            });
            let transport = Recorded(Mutex::new((Vec::new(), replies.collect())));
            let source = CredentialSource::Metadata { endpoint: "http://imds".into() };
            let shown = match source.lease(&transport, ("", ""), has_given) {
                Ok(lease) => format!("{:?}", lease.until),
                Err(AwsFailure::Doubt(_)) => "doubt".to_owned(),
                Err(AwsFailure::Credentials(why)) => why,
                Err(other) => panic!("{other:?}"),
            };
            assert!(shown.contains(expected), "{shown} is not {expected}");
        };
        check(&[], false, "aws configure");
        check(&[], true, "doubt");
        check(&[(403, "")], true, "aws configure");
        check(&[(200, "T")], false, "doubt");
        check(&[(200, "T"), (503, "")], false, "doubt");
        check(&[(200, "T"), (404, "")], false, "aws configure");
        check(&[(200, "T"), (200, "r"), (200, r#"{"Code":"Failed"}"#)], false, "this machine's role `r` gives no key");
        let key = r#"{"AccessKeyId":"A","SecretAccessKey":"s","Token":"t","Expiration":"soon"}"#;
        check(&[(200, "T"), (200, "r"), (200, key)], false, "Some(Timestamp(0))");
    }
}
