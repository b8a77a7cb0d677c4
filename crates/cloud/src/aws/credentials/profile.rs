//! What a profile of AWS's files says about credentials.

use std::collections::BTreeMap;

use super::super::wire::signature::AccessKey;
use super::{AssumedWith, CredentialSource, CredentialSources, SsoRole};

impl CredentialSources {
    /// What a profile uses; none where there is no such profile, or nothing in it. `before` are the profiles that lead to it.
    pub(super) fn of_profile(&self, name: &str, before: &[&str]) -> Result<Option<CredentialSource>, String> {
        let mut values = section(&self.config, &config_heading(name)).unwrap_or_default();
        values.extend(section(&self.credentials, name).unwrap_or_default());
        let value = |key: &str| values.get(key).filter(|value| !value.is_empty()).cloned();
        let key = match (value("aws_access_key_id"), value("aws_secret_access_key")) {
            (Some(id), Some(secret)) => Some(CredentialSource::Key {
                key: AccessKey { id, secret, session: value("aws_session_token") },
                origin: format!("the profile `{name}`"),
            }),
            _ => None,
        };
        if let Some(role) = value("role_arn") {
            // A profile that is its own source lends its own keys.
            if key.is_some() && before.last() == Some(&name) {
                return Ok(key);
            }
            return self.role(name, role, &value, before).map(Some);
        }
        if key.is_some() {
            return Ok(key);
        }
        if value("sso_session").is_some() || value("sso_start_url").is_some() {
            return self.sso(name, &value).map(Some);
        }
        if let Some(command) = value("credential_process") {
            return Ok(Some(CredentialSource::Process { command, profile: name.to_owned() }));
        }
        match value("login_session") {
            Some(_) => {
                Err(handed_on(&format!("the profile `{name}` uses `login_session`, which gradus does not read"), name))
            }
            None => Ok(None),
        }
    }

    /// A role that a profile has assumed.
    fn role(
        &self,
        name: &str,
        role: String,
        value: &dyn Fn(&str) -> Option<String>,
        before: &[&str],
    ) -> Result<CredentialSource, String> {
        if let Some(device) = value("mfa_serial") {
            return Err(handed_on(&format!("the profile `{name}` needs a code of `{device}`"), name));
        }
        let session = value("role_session_name").unwrap_or_else(|| "gradus".to_owned());
        if let Some(file) = value("web_identity_token_file") {
            return Ok(CredentialSource::WebIdentity { file, role, session });
        }
        let source = match (value("source_profile"), value("credential_source").as_deref()) {
            (Some(other), _) => {
                let has_keys = self.of_own_keys(&other);
                if before.contains(&other.as_str()) || (other == name && !has_keys) {
                    let first = before.first().unwrap_or(&name);
                    return Err(format!("the profile `{first}` is its own `source_profile`, and has no keys"));
                }
                let path: Vec<&str> = before.iter().copied().chain([name]).collect();
                let found = self.of_profile(&other, &path)?;
                found.ok_or_else(|| format!("the profile `{name}` names the profile `{other}`, which has no keys"))?
            }
            (None, Some("Environment")) => self.of_variables().ok_or_else(|| {
                format!("the profile `{name}` takes its keys from variables, and `AWS_ACCESS_KEY_ID` is not set")
            })?,
            (None, Some("Ec2InstanceMetadata")) => self.of_metadata()?,
            (None, Some(other)) => {
                return Err(format!(
                    "the profile `{name}` has the `credential_source` `{other}`, which gradus does not read"
                ));
            }
            (None, None) => {
                return Err(format!(
                    "the profile `{name}` has a `role_arn` and neither `source_profile` nor `credential_source`"
                ));
            }
        };
        let (external_id, duration) = (value("external_id"), value("duration_seconds"));
        let profile = name.to_owned();
        Ok(CredentialSource::Role(Box::new(AssumedWith { role, session, external_id, duration, source, profile })))
    }

    fn of_own_keys(&self, name: &str) -> bool {
        let mut values = section(&self.config, &config_heading(name)).unwrap_or_default();
        values.extend(section(&self.credentials, name).unwrap_or_default());
        values.get("aws_access_key_id").is_some_and(|value| !value.is_empty())
    }

    /// A role of IAM Identity Center.
    fn sso(&self, name: &str, value: &dyn Fn(&str) -> Option<String>) -> Result<CredentialSource, String> {
        let session = match value("sso_session") {
            Some(session) => section(&self.config, &format!("sso-session {session}")).ok_or_else(|| {
                format!("the profile `{name}` names the session `{session}`, which `~/.aws/config` does not have")
            })?,
            None => BTreeMap::new(),
        };
        let needed = |key: &str| {
            let found = session.get(key).cloned().or_else(|| value(key)).filter(|value| !value.is_empty());
            found.ok_or_else(|| format!("the profile `{name}` uses SSO and has no `{key}`; run `aws configure sso`"))
        };
        Ok(CredentialSource::Sso(SsoRole {
            profile: name.to_owned(),
            cache: self.sso_cache.clone(),
            start_url: needed("sso_start_url")?,
            region: needed("sso_region")?,
            account: needed("sso_account_id")?,
            role: needed("sso_role_name")?,
        }))
    }
}

/// What only AWS's tools can do: the command by which they hand their credentials on.
fn handed_on(why: &str, profile: &str) -> String {
    format!(
        "{why}; hand its credentials on with \
         `eval \"$(aws configure export-credentials --profile {profile} --format env)\"`"
    )
}

pub(super) fn config_heading(profile: &str) -> String {
    if profile == "default" { profile.to_owned() } else { format!("profile {profile}") }
}

/// The values below `[heading]` of an INI file; none where there is no such heading.
pub(super) fn section(text: &str, heading: &str) -> Option<BTreeMap<String, String>> {
    let mut found = None;
    let mut is_inside = false;
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            is_inside = name.split_whitespace().eq(heading.split_whitespace());
            if is_inside {
                found.get_or_insert_with(BTreeMap::new);
            }
            continue;
        }
        // A line that is indented belongs to the value above it.
        let is_value = !line.starts_with([' ', '\t', '#', ';']);
        if let (true, true, Some((key, value)), Some(values)) = (is_inside, is_value, line.split_once('='), &mut found)
        {
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}
