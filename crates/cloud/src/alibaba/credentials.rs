//! Where the key of Alibaba Cloud comes from: variables, a profile of the `aliyun` program, a role that a profile assumes, or
//! the role of the machine that this runs on.

use std::collections::BTreeMap;

use domain::Timestamp;
use serde::Deserialize;

use super::failure::failed;
use super::wire::{AcsService, read, signed};
use crate::aws::wire::query::{params, word};
use crate::aws::wire::signature::AccessKey;
use crate::aws::wire::{HttpReply, HttpRequest, HttpTransport, times};
use crate::rented::CloudFailure;

/// The variables that are read, under the names that Alibaba's own libraries give them.
pub const VARIABLES: &[&str] = &[
    "ALIBABA_CLOUD_ACCESS_KEY_ID",
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
    "ALIBABA_CLOUD_SECURITY_TOKEN",
    "ALIBABA_CLOUD_PROFILE",
    "ALIBABA_CLOUD_ECS_METADATA",
    "GRADUS_ALIBABA_ENDPOINT",
];

/// What to do where there is none.
const SET: &str = "set `ALIBABA_CLOUD_ACCESS_KEY_ID` and `ALIBABA_CLOUD_ACCESS_KEY_SECRET`, or run `aliyun configure`";

/// Who gives keys to machines with a role.
const METADATA: &str = "http://100.100.100.200/latest/meta-data/ram/security-credentials";

/// What this machine says about credentials, gathered once by the shell.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AlibabaSources {
    /// The variables of [`VARIABLES`] that are set.
    pub variables: BTreeMap<String, String>,
    /// The text of `~/.aliyun/config.json`.
    pub config: String,
}

impl std::fmt::Debug for AlibabaSources {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.variables.keys().collect();
        formatter.debug_struct("AlibabaSources").field("variables", &names).finish_non_exhaustive()
    }
}

/// Where a key comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum AlibabaSource {
    /// One that was found.
    Key(AccessKey),
    /// A role that whoever has this key may assume.
    Role {
        /// The key.
        key: AccessKey,
        /// The role's name, `acs:ram::ACCOUNT:role/NAME`.
        role: String,
        /// What the session is called.
        session: String,
    },
    /// The role of the machine that this runs on.
    Machine {
        /// The role's name.
        role: String,
    },
}

/// A key and until when it can be used.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct AlibabaLease {
    pub key: AccessKey,
    pub until: Timestamp,
}

#[derive(Deserialize)]
struct AliyunConfig {
    #[serde(default)]
    current: String,
    #[serde(default)]
    profiles: Vec<AliyunProfile>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AliyunProfile {
    name: String,
    mode: String,
    access_key_id: String,
    access_key_secret: String,
    sts_token: String,
    ram_role_arn: String,
    ram_session_name: String,
    ram_role_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LentKey {
    access_key_id: String,
    access_key_secret: String,
    security_token: String,
    expiration: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AssumedRole {
    credentials: LentKey,
}

impl AlibabaSources {
    /// The value of a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether anything says that this machine uses Alibaba Cloud.
    pub fn is_set(&self) -> bool {
        let names = ["ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ECS_METADATA"];
        !self.config.is_empty() || names.iter().any(|name| self.variable(name).is_some())
    }

    /// Decides which source is used.
    ///
    /// # Errors
    /// Why none can be, with what to do.
    pub fn source(&self) -> Result<AlibabaSource, String> {
        let (id, secret) = ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET");
        match (self.variable(id), self.variable(secret)) {
            (Some(id), Some(secret)) => {
                let session = self.variable("ALIBABA_CLOUD_SECURITY_TOKEN").map(str::to_owned);
                Ok(AlibabaSource::Key(AccessKey { id: id.to_owned(), secret: secret.to_owned(), session }))
            }
            (Some(_), None) => Err(format!("`{id}` is set and `{secret}` is not")),
            (None, Some(_)) => Err(format!("`{secret}` is set and `{id}` is not")),
            (None, None) if !self.config.is_empty() => self.of_profile(),
            (None, None) => match self.variable("ALIBABA_CLOUD_ECS_METADATA") {
                Some(role) => Ok(AlibabaSource::Machine { role: role.to_owned() }),
                None => Err(format!("no credentials for Alibaba Cloud were found; {SET}")),
            },
        }
    }

    fn of_profile(&self) -> Result<AlibabaSource, String> {
        let config: AliyunConfig = serde_json::from_str(&self.config)
            .map_err(|error| format!("`~/.aliyun/config.json` cannot be read: {error}; {SET}"))?;
        let name = self.variable("ALIBABA_CLOUD_PROFILE").unwrap_or(&config.current);
        let profile = config.profiles.iter().find(|profile| profile.name == name);
        let profile = profile.ok_or_else(|| format!("`~/.aliyun/config.json` has no profile `{name}`; {SET}"))?;
        let (id, secret) = (profile.access_key_id.clone(), profile.access_key_secret.clone());
        let lacks = |key: &str| Err(format!("the profile `{name}` of `~/.aliyun/config.json` has no `{key}`; {SET}"));
        match profile.mode.as_str() {
            "AK" | "StsToken" | "RamRoleArn" if id.is_empty() => lacks("access_key_id"),
            "AK" | "StsToken" | "RamRoleArn" if secret.is_empty() => lacks("access_key_secret"),
            "StsToken" if profile.sts_token.is_empty() => lacks("sts_token"),
            "RamRoleArn" if profile.ram_role_arn.is_empty() => lacks("ram_role_arn"),
            "EcsRamRole" if profile.ram_role_name.is_empty() => lacks("ram_role_name"),
            "AK" => Ok(AlibabaSource::Key(AccessKey { id, secret, session: None })),
            "StsToken" => Ok(AlibabaSource::Key(AccessKey { id, secret, session: Some(profile.sts_token.clone()) })),
            "RamRoleArn" => {
                let session = match profile.ram_session_name.as_str() {
                    "" => "gradus",
                    name => name,
                };
                let (key, role) = (AccessKey { id, secret, session: None }, profile.ram_role_arn.clone());
                Ok(AlibabaSource::Role { key, role, session: session.to_owned() })
            }
            "EcsRamRole" => Ok(AlibabaSource::Machine { role: profile.ram_role_name.clone() }),
            mode => Err(format!("profiles of the mode `{mode}` are not read; {SET}")),
        }
    }
}

impl AlibabaSource {
    /// Gets a key for a while, from `endpoint` where that stands in for Alibaba.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn lease(
        &self,
        transport: &dyn HttpTransport,
        endpoint: Option<&str>,
    ) -> Result<AlibabaLease, CloudFailure> {
        let lent = match self {
            AlibabaSource::Key(key) => return Ok(AlibabaLease { key: key.clone(), until: Timestamp(i64::MAX) }),
            AlibabaSource::Role { key, role, session } => {
                let sent = params([("RoleArn", role), ("RoleSessionName", session)]);
                let request = signed((AcsService::Sts, "AssumeRole"), "", &sent, key, endpoint);
                let assumed: AssumedRole = read(&accepted(transport, &request)?)?;
                assumed.credentials
            }
            AlibabaSource::Machine { role } => {
                let url = format!("{METADATA}/{}", word(role));
                let request = HttpRequest { method: "GET", url, headers: Vec::new(), body: Vec::new() };
                let reply = transport.send(&request);
                let none = |why: String| {
                    CloudFailure::Denied(format!("the role `{role}` of this machine gives no key ({why}); {SET}"))
                };
                let reply = reply.map_err(none)?;
                match reply.status {
                    200 => read(&reply)?,
                    429 | 500.. => return Err(CloudFailure::Doubt(format!("no key: HTTP status {}", reply.status))),
                    status => return Err(none(format!("HTTP status {status}"))),
                }
            }
        };
        let LentKey { access_key_id: id, access_key_secret: secret, security_token, expiration } = lent;
        let until = times::read(&expiration);
        let until = until.ok_or_else(|| CloudFailure::Doubt(format!("a key that ends `{expiration}`")))?;
        Ok(AlibabaLease { key: AccessKey { id, secret, session: Some(security_token) }, until })
    }
}

fn accepted(transport: &dyn HttpTransport, request: &HttpRequest) -> Result<HttpReply, CloudFailure> {
    let reply = transport.send(request);
    let reply = reply.map_err(|why| CloudFailure::Doubt(format!("no answer from Alibaba Cloud: {why}")))?;
    if reply.status == 200 { Ok(reply) } else { Err(failed(&reply)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn sources(variables: &[(&str, &str)], config: &str) -> AlibabaSources {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        AlibabaSources { variables, config: config.to_owned() }
    }

    /// As `aliyun configure` writes it.
    const CONFIG: &str = r#"{
        "current": "default",
        "profiles": [
            {"name": "default", "mode": "AK", "access_key_id": "A", "access_key_secret": "B", "region_id": "cn-beijing",
             "output_format": "json", "language": "zh", "site": "", "retry_timeout": 0},
            {"name": "sts", "mode": "StsToken", "access_key_id": "A", "access_key_secret": "B", "sts_token": "C"},
            {"name": "role", "mode": "RamRoleArn", "access_key_id": "A", "access_key_secret": "B",
             "ram_role_arn": "acs:ram::1:role/r", "ram_session_name": "s"},
            {"name": "machine", "mode": "EcsRamRole", "ram_role_name": "r"},
            {"name": "empty", "mode": "AK", "access_key_id": ""},
            {"name": "no-token", "mode": "StsToken", "access_key_id": "A", "access_key_secret": "B"},
            {"name": "no-role", "mode": "RamRoleArn", "access_key_id": "A", "access_key_secret": "B"},
            {"name": "no-name", "mode": "EcsRamRole"},
            {"name": "sso", "mode": "CloudSSO"}
        ]
    }"#;

    #[test]
    fn the_first_source_that_has_something_is_used() {
        let check = |variables: &[(&str, &str)], config: &str, expected: &str| {
            let shown = match sources(variables, config).source() {
                Ok(AlibabaSource::Key(key)) => format!("{} {} {:?}", key.id, key.secret, key.session),
                Ok(AlibabaSource::Role { role, session, .. }) => format!("{role} {session}"),
                Ok(AlibabaSource::Machine { role }) => format!("machine {role}"),
                Err(why) => why,
            };
            assert!(shown.starts_with(expected), "{shown}\n  is not\n{expected}");
        };
        let (id, secret) = (("ALIBABA_CLOUD_ACCESS_KEY_ID", "I"), ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "S"));
        check(&[id, secret], CONFIG, "I S None");
        check(&[id, secret, ("ALIBABA_CLOUD_SECURITY_TOKEN", "T")], "", "I S Some(\"T\")");
        check(&[id], CONFIG, "`ALIBABA_CLOUD_ACCESS_KEY_ID` is set and `ALIBABA_CLOUD_ACCESS_KEY_SECRET` is not");
        check(&[], CONFIG, "A B None");
        let profile = |name| [("ALIBABA_CLOUD_PROFILE", name)];
        check(&profile("sts"), CONFIG, "A B Some(\"C\")");
        check(&profile("role"), CONFIG, "acs:ram::1:role/r s");
        check(&profile("machine"), CONFIG, "machine r");
        check(&profile("empty"), CONFIG, "the profile `empty` of `~/.aliyun/config.json` has no `access_key_id`; set");
        check(&profile("no-token"), CONFIG, "the profile `no-token` of `~/.aliyun/config.json` has no `sts_token`");
        check(&profile("no-role"), CONFIG, "the profile `no-role` of `~/.aliyun/config.json` has no `ram_role_arn`");
        check(&profile("no-name"), CONFIG, "the profile `no-name` of `~/.aliyun/config.json` has no `ram_role_name`");
        check(
            &profile("sso"),
            CONFIG,
            "profiles of the mode `CloudSSO` are not read; set `ALIBABA_CLOUD_ACCESS_KEY_ID`",
        );
        check(&profile("none"), CONFIG, "`~/.aliyun/config.json` has no profile `none`");
        check(&[], "{", "`~/.aliyun/config.json` cannot be read");
        check(&[("ALIBABA_CLOUD_ECS_METADATA", "r")], "", "machine r");
        check(&[], "", "no credentials for Alibaba Cloud were found; set `ALIBABA_CLOUD_ACCESS_KEY_ID`");
    }

    /// Answers everything alike, and writes down who was asked.
    struct Answers(u16, &'static str, Mutex<Vec<HttpRequest>>);

    impl HttpTransport for Answers {
        fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
            self.2.lock().unwrap().push(request.clone());
            Ok(HttpReply { headers: Vec::new(), status: self.0, body: self.1.into() })
        }
    }

    fn lease(source: &AlibabaSource, status: u16, body: &'static str) -> (String, HttpRequest) {
        let answers = Answers(status, body, Mutex::default());
        let shown = match source.lease(&answers, None) {
            Ok(lease) => format!("{} {} {:?} {}", lease.key.id, lease.key.secret, lease.key.session, lease.until.0),
            Err(failure) => format!("{failure:?}"),
        };
        let asked = answers.2.lock().unwrap().remove(0);
        (shown, asked)
    }

    #[test]
    fn a_role_lends_its_key_for_a_while() {
        let key = AccessKey { id: "A".into(), secret: "B".into(), session: None };
        let role = AlibabaSource::Role { key, role: "acs:ram::1:role/r".into(), session: "s".into() };
        let body = r#"{"RequestId":"x","AssumedRoleUser":{"Arn":"a"},"Credentials":{"AccessKeyId":"STS.I",
                       "AccessKeySecret":"S","SecurityToken":"T","Expiration":"2026-11-27T05:00:00Z"}}"#;
        let (shown, asked) = lease(&role, 200, body);
        assert_eq!(shown, "STS.I S Some(\"T\") 1795755600000000");
        assert_eq!(asked.url, "https://sts.aliyuncs.com/?RoleArn=acs%3Aram%3A%3A1%3Arole%2Fr&RoleSessionName=s");
        let (shown, _) = lease(&role, 403, r#"{"Code":"NoPermission","Message":"m"}"#);
        assert_eq!(shown, "Denied(\"NoPermission: m\")");
    }

    #[test]
    fn a_machine_lends_the_key_of_its_role() {
        let machine = AlibabaSource::Machine { role: "r".into() };
        let body = r#"{"AccessKeyId":"STS.I","AccessKeySecret":"S","Expiration":"2026-11-27T05:00:00Z",
                       "SecurityToken":"T","LastUpdated":"2026-11-27T00:00:00Z","Code":"Success"}"#;
        let (shown, asked) = lease(&machine, 200, body);
        assert_eq!(shown, "STS.I S Some(\"T\") 1795755600000000");
        assert_eq!(asked.url, "http://100.100.100.200/latest/meta-data/ram/security-credentials/r");
        assert!(lease(&machine, 404, "").0.starts_with("Denied(\"the role `r` of this machine gives no key"));
        assert!(lease(&machine, 503, "").0.starts_with("Doubt("));
    }

    #[test]
    fn a_secret_does_not_print_itself() {
        let shown = format!("{:?}", sources(&[("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "hush")], "hush"));
        assert!(!shown.contains("hush"), "{shown}");
    }
}
