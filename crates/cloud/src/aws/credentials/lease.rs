//! Getting keys from where they are.

use std::io::ErrorKind;
use std::process::Command;

use domain::Timestamp;
use serde::Deserialize;

use super::super::client::now;
use super::super::wire::answers::{self, AssumedRole, RoleSession, SessionCredentials};
use super::super::wire::failure::AwsFailure;
use super::super::wire::query::{Query, assume_role, assume_with_web_identity, word};
use super::super::wire::signature::{AccessKey, sign};
use super::super::wire::{HttpReply, HttpRequest, HttpTransport, times};
use super::{AssumedWith, CredentialSource, Lease, SsoRole};
use crate::credential_process;

pub(super) const NOTHING: &str = "no credentials for AWS were found; run `aws configure`, or set `AWS_ACCESS_KEY_ID` and \
                       `AWS_SECRET_ACCESS_KEY`";

/// The origin of a key that STS has given for a token.
const OF_A_TOKEN: &str = "the token of an identity provider";

impl CredentialSource {
    /// Gets a key; `sts` is the address of STS and its region, `has_given` whether this source gave one before.
    ///
    /// # Errors
    /// Why there is none.
    pub fn lease(
        &self,
        transport: &dyn HttpTransport,
        sts: (&str, &str),
        has_given: bool,
    ) -> Result<Lease, AwsFailure> {
        match self {
            CredentialSource::Key { key, origin } => {
                Ok(Lease { key: key.clone(), until: None, origin: origin.clone() })
            }
            CredentialSource::WebIdentity { file, role, session } => {
                let token = std::fs::read_to_string(file)
                    .map_err(|error| AwsFailure::Credentials(format!("cannot read the token in `{file}`: {error}")))?;
                let query = assume_with_web_identity(role, session, token.trim());
                let reply = transport.send(&query.request(sts.0)).map_err(AwsFailure::Doubt)?;
                if reply.status != 200 {
                    return Err(refused(&query, &reply, (OF_A_TOKEN, self)));
                }
                let role: AssumedRole = answers::read(&reply.text()).map_err(AwsFailure::Doubt)?;
                role.assume_role_with_web_identity_result.credentials.lease(OF_A_TOKEN.to_owned())
            }
            CredentialSource::Metadata { endpoint } => metadata(transport, endpoint, has_given),
            CredentialSource::Process { command, profile } => printed(command, profile),
            CredentialSource::Sso(role) => of_portal(transport, role),
            CredentialSource::Role(assumed) => assume(transport, assumed, sts, has_given),
        }
    }
}

impl SessionCredentials {
    fn lease(self, origin: String) -> Result<Lease, AwsFailure> {
        if self.access_key_id.is_empty() || self.secret_access_key.is_empty() {
            return Err(AwsFailure::Credentials(format!("{origin} gives no key")));
        }
        // One whose end cannot be read is used once.
        let until = times::read(&self.expiration).unwrap_or(Timestamp(0));
        let key = AccessKey {
            id: self.access_key_id,
            secret: self.secret_access_key,
            session: Some(self.session_token).filter(|token| !token.is_empty()),
        };
        Ok(Lease { key, until: Some(until), origin })
    }
}

/// The role of this machine, from its metadata service, which wants a token first (IMDSv2).
fn metadata(transport: &dyn HttpTransport, endpoint: &str, has_given: bool) -> Result<Lease, AwsFailure> {
    let doubt = |why: &str| AwsFailure::Doubt(format!("the metadata service of this machine: {why}"));
    let ask = |method: &'static str, path: &str, header: (&str, &str)| {
        let headers = vec![(header.0.to_owned(), header.1.to_owned())];
        let request = HttpRequest { method, url: format!("{endpoint}{path}"), headers, body: Vec::new() };
        let reply = transport.send(&request).map_err(|why| doubt(&why))?;
        match reply.status {
            200 => Ok(reply.text()),
            429 | 500.. => Err(doubt(&format!("HTTP status {}", reply.status))),
            // It is turned off, or the machine has no role.
            _ => Err(AwsFailure::Credentials(NOTHING.to_owned())),
        }
    };
    // Where nothing ever answered there is no such service.
    let is_there = |failure| if has_given { failure } else { AwsFailure::Credentials(NOTHING.to_owned()) };
    let token = ask("PUT", "/latest/api/token", ("x-aws-ec2-metadata-token-ttl-seconds", "300")).map_err(is_there)?;
    let header = ("x-aws-ec2-metadata-token", token.as_str());
    let folder = "/latest/meta-data/iam/security-credentials/";
    let role = ask("GET", folder, header)?;
    let role = role.lines().next().unwrap_or_default().trim().to_owned();
    let text = ask("GET", &format!("{folder}{role}"), header)?;
    let found: SessionCredentials = serde_json::from_str(&text)
        .map_err(|error| AwsFailure::Credentials(format!("the metadata service answered: {error}")))?;
    found.lease(format!("this machine's role `{role}`"))
}

/// The key of a role, with the key of whoever may assume it.
fn assume(
    transport: &dyn HttpTransport,
    assumed: &AssumedWith,
    sts: (&str, &str),
    has_given: bool,
) -> Result<Lease, AwsFailure> {
    let AssumedWith { role, session, external_id, duration, source, profile } = assumed;
    let first = source.lease(transport, sts, has_given)?;
    let query = assume_role(role, session, external_id.as_deref(), duration.as_deref());
    let mut request = query.request(sts.0);
    sign(&mut request, &first.key, (sts.1, "sts"), now());
    let reply = transport.send(&request).map_err(AwsFailure::Doubt)?;
    if reply.status != 200 {
        return Err(refused(&query, &reply, (&first.origin, source)));
    }
    let answer: RoleSession = answers::read(&reply.text()).map_err(AwsFailure::Doubt)?;
    answer.assume_role_result.credentials.lease(format!("the role `{role}` of the profile `{profile}`"))
}

/// Interprets an error reply of STS. Credentials that it does not accept are named by their origin, with what to do about their
/// source.
fn refused(query: &Query, reply: &HttpReply, (origin, source): (&str, &CredentialSource)) -> AwsFailure {
    match AwsFailure::of(query, reply) {
        AwsFailure::Credentials(why) => AwsFailure::Credentials(format!("{why} from {origin}; {}", source.remedy())),
        other => other,
    }
}

/// What a program prints: the key as JSON, version 1.
fn printed(command: &str, profile: &str) -> Result<Lease, AwsFailure> {
    let wrong = |why: String| AwsFailure::Credentials(format!("`credential_process` of the profile `{profile}` {why}"));
    let words = words(command).ok_or_else(|| wrong("has a quote that is not closed".to_owned()))?;
    let Some((program, arguments)) = words.split_first() else { return Err(wrong("is empty".to_owned())) };
    let output =
        credential_process::output(Command::new(program).args(arguments)).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => {
                AwsFailure::Doubt(format!("`credential_process` of the profile `{profile}` {error}"))
            }
            _ => wrong(format!("cannot start `{program}`: {error}")),
        })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(wrong(format!("failed ({}): {stderr}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| wrong(format!("printed no JSON: {error}")))?;
    if value["Version"] != 1 {
        return Err(wrong(format!("printed version {}, and 1 is what is read", value["Version"])));
    }
    let found: SessionCredentials =
        serde_json::from_value(value).map_err(|error| wrong(format!("printed no key: {error}")))?;
    let ends = !found.expiration.is_empty();
    let lease = found.lease(format!("`credential_process` of the profile `{profile}`"))?;
    // A key without an end does not end.
    Ok(Lease { until: lease.until.filter(|_| ends), ..lease })
}

/// Words of a command line as a shell divides them, without anything else that a shell does; none where a quote stays open.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some('"') | None, '\\') => word.get_or_insert_default().extend(letters.next()),
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// A token that `aws sso login` has left.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SsoToken {
    #[serde(default)]
    start_url: String,
    access_token: String,
    expires_at: String,
}

/// What the portal gives for a token.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortalAnswer {
    role_credentials: PortalCredentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortalCredentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    /// Milliseconds since 1970.
    expiration: i64,
}

/// The key of a role of IAM Identity Center.
fn of_portal(transport: &dyn HttpTransport, wanted: &SsoRole) -> Result<Lease, AwsFailure> {
    let SsoRole { profile, cache, start_url, region, account, role } = wanted;
    let login = |why: &str| {
        AwsFailure::Credentials(format!("{why} for `{start_url}`; run `aws sso login --profile {profile}`"))
    };
    let texts = cache.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let texts = texts.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let tokens = texts.filter_map(|text| serde_json::from_str::<SsoToken>(&text).ok());
    let of_page = tokens.filter(|token| token.start_url.trim_end_matches('/') == start_url.trim_end_matches('/'));
    let newest = of_page.max_by_key(|token| times::read(&token.expires_at).map_or(0, |until| until.0));
    let token = newest.ok_or_else(|| login("there is no token"))?;
    if times::read(&token.expires_at).is_none_or(|until| until.0 <= now().0) {
        return Err(login("the token has expired"));
    }
    let (account, role) = (word(account), word(role));
    let host = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    let request = HttpRequest {
        method: "GET",
        url: format!("https://portal.sso.{region}.{host}/federation/credentials?account_id={account}&role_name={role}"),
        headers: vec![("x-amz-sso_bearer_token".to_owned(), token.access_token)],
        body: Vec::new(),
    };
    let reply = transport.send(&request).map_err(AwsFailure::Doubt)?;
    match reply.status {
        200 => {}
        401 | 403 => return Err(login(&format!("the portal refuses the token (HTTP status {})", reply.status))),
        429 | 500.. => return Err(AwsFailure::Doubt(format!("the SSO portal: HTTP status {}", reply.status))),
        status => {
            let body = reply.text().chars().take(200).collect::<String>();
            return Err(AwsFailure::Credentials(format!("the SSO portal: HTTP status {status}: {body}")));
        }
    }
    let answer: PortalAnswer =
        serde_json::from_slice(&reply.body).map_err(|error| AwsFailure::Doubt(format!("the SSO portal: {error}")))?;
    let PortalCredentials { access_key_id, secret_access_key, session_token, expiration } = answer.role_credentials;
    let key = AccessKey { id: access_key_id, secret: secret_access_key, session: Some(session_token) };
    let origin = format!("SSO of the profile `{profile}`");
    Ok(Lease { key, until: Some(Timestamp(expiration.saturating_mul(1000))), origin })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::CredentialSources;
    use super::*;

    /// Answers each request with what this returns for it, and remembers it.
    struct Scripted<F>(F, Mutex<Vec<HttpRequest>>);

    impl<F: Fn(&HttpRequest) -> HttpReply + Send + Sync> HttpTransport for Scripted<F> {
        fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
            self.1.lock().unwrap().push(request.clone());
            Ok((self.0)(request))
        }
    }

    fn reply(status: u16, body: &str) -> HttpReply {
        HttpReply { headers: Vec::new(), status, body: body.into() }
    }

    fn sources(profile: &str, config: &str, cache: Option<&std::path::Path>) -> CredentialSources {
        CredentialSources {
            variables: [("AWS_PROFILE".to_owned(), profile.to_owned())].into(),
            config: config.to_owned(),
            sso_cache: cache.map(std::path::Path::to_owned),
            ..CredentialSources::default()
        }
    }

    const ROLE: &str = "<R><AssumeRoleResult><Credentials><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s\
                        </SecretAccessKey><SessionToken>t</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>\
                        </Credentials></AssumeRoleResult></R>";

    #[test]
    fn a_role_is_assumed_with_the_keys_of_another_profile() {
        let config = "[profile base]\naws_access_key_id=A\naws_secret_access_key=s\n[profile work]\n\
                      role_arn = arn:aws:iam::1:role/x\nsource_profile = base\nexternal_id = e\nduration_seconds=900\n\
                      [profile chain]\nrole_arn = arn:aws:iam::2:role/y\nsource_profile = work\n";
        let transport = Scripted(|_: &HttpRequest| reply(200, ROLE), Mutex::default());
        let lease = |profile| {
            let source = sources(profile, config, None).source().unwrap();
            source.lease(&transport, ("https://sts", "us-east-1"), false).unwrap()
        };
        let found = lease("work");
        assert_eq!((&*found.key.id, found.key.session.as_deref()), ("ASIA", Some("t")));
        assert_eq!(found.origin, "the role `arn:aws:iam::1:role/x` of the profile `work`");
        assert_eq!(lease("chain").origin, "the role `arn:aws:iam::2:role/y` of the profile `chain`");
        let asked = transport.1.lock().unwrap();
        let body = String::from_utf8(asked[0].body.clone()).unwrap();
        assert_eq!(
            body,
            "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx&RoleSessionName=gradus&\
             ExternalId=e&DurationSeconds=900"
        );
        let signed = |at: usize| {
            let request: &HttpRequest = &asked[at];
            let header = request.headers.iter().find(|(name, _)| name == "authorization").unwrap();
            header.1.split('/').next().unwrap().to_owned()
        };
        // The second role is assumed with the key of the first.
        let by = ["A", "A", "ASIA"].map(|id| format!("AWS4-HMAC-SHA256 Credential={id}"));
        assert_eq!([signed(0), signed(1), signed(2)], by);
    }

    /// An error as STS writes it.
    fn error(code: &str) -> HttpReply {
        reply(403, &format!("<ErrorResponse><Error><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"))
    }

    #[test]
    fn keys_that_a_role_is_assumed_with_are_named_where_they_are_not_accepted() {
        let config = "[profile base]\naws_access_key_id=A\naws_secret_access_key=s\n[profile work]\n\
                      role_arn = arn:aws:iam::1:role/x\nsource_profile = base\n\
                      [profile chain]\nrole_arn = arn:aws:iam::2:role/y\nsource_profile = work\n";
        let check = |profile: &str, refused: &'static str, code: &'static str, expected: &str| {
            let answer = move |request: &HttpRequest| match String::from_utf8_lossy(&request.body).contains(refused) {
                true => error(code),
                false => reply(200, ROLE),
            };
            let transport = Scripted(answer, Mutex::default());
            let source = sources(profile, config, None).source().unwrap();
            let failure = source.lease(&transport, ("https://sts", "us-east-1"), false).unwrap_err();
            assert_eq!(failure.to_string(), format!("{code}: no; {expected}"));
        };
        let remedy = sources("base", config, None).source().unwrap().remedy();
        assert!(remedy.contains("`aws configure --profile base`"), "{remedy}");
        let of_base = format!("AWS does not accept the credentials from the profile `base`; {remedy}");
        check("work", "role%2Fx", "InvalidClientTokenId", &of_base);
        check("chain", "role%2Fx", "InvalidClientTokenId", &of_base);
        let of_role = "AWS does not accept the credentials from the role `arn:aws:iam::1:role/x` of the profile `work`";
        check("chain", "role%2Fy", "ExpiredToken", &format!("{of_role}; {remedy}"));
        let denied = "allow `sts:AssumeRole`, as `gradus cloud policy aws` prints it";
        check("work", "role%2Fx", "AccessDenied", denied);
    }

    #[test]
    fn a_token_of_an_identity_provider_is_named_where_it_is_not_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token").display().to_string();
        std::fs::write(&file, "t").unwrap();
        let source = CredentialSource::WebIdentity { file: file.clone(), role: "r".into(), session: "s".into() };
        for code in ["ExpiredTokenException", "InvalidIdentityToken", "IDPRejectedClaim"] {
            let transport = Scripted(move |_: &HttpRequest| error(code), Mutex::default());
            let failure = source.lease(&transport, ("https://sts", "us-east-1"), false).unwrap_err();
            let expected = format!(
                "{code}: no; AWS does not accept the credentials from the token of an identity provider; renew the token in `{file}`"
            );
            assert_eq!(failure, AwsFailure::Credentials(expected));
        }
    }

    #[test]
    fn profiles_that_lead_nowhere_say_so() {
        let check = |config: &str, expected: &str| {
            let why = sources("p", config, None).source().unwrap_err();
            assert!(why.starts_with(expected), "{why}\n  is not\n{expected}");
        };
        let role = "[profile p]\nrole_arn = r\n";
        check(&format!("{role}source_profile = p\n"), "the profile `p` is its own `source_profile`");
        let circle = "[profile q]\nrole_arn = r\nsource_profile = p\n";
        check(&format!("{role}source_profile = q\n{circle}"), "the profile `p` is its own `source_profile`");
        check(&format!("{role}source_profile = q\n"), "the profile `p` names the profile `q`, which has no keys");
        check(&format!("{role}source_profile = q\nmfa_serial = m\n"), "the profile `p` needs a code of `m`");
        check(&format!("{role}credential_source = Moon\n"), "the profile `p` has the `credential_source` `Moon`");
        check("[profile p]\nsso_start_url = u\n", "the profile `p` uses SSO and has no `sso_region`");
        check("[profile p]\nlogin_session = x\n", "the profile `p` uses `login_session`, which gradus does not read");
    }

    #[test]
    fn a_program_prints_keys() {
        let run = |command: &str| {
            let config = format!("[profile p]\ncredential_process = {command}\n");
            let transport = Scripted(|_: &HttpRequest| reply(500, ""), Mutex::default());
            match sources("p", &config, None).source().unwrap().lease(&transport, ("", ""), false) {
                Ok(lease) => format!("{} {:?}", lease.key.id, lease.until),
                Err(failure) => failure.to_string(),
            }
        };
        let printed = |json: &str| run(&format!("/bin/echo '{json}'"));
        assert_eq!(printed(r#"{"Version":1,"AccessKeyId":"A","SecretAccessKey":"s"}"#), "A None");
        let ends = r#"{"Version":1,"AccessKeyId":"A","SecretAccessKey":"s","Expiration":"1970-01-01T00:00:01Z"}"#;
        assert_eq!(printed(ends), "A Some(Timestamp(1000000))");
        assert!(printed(r#"{"Version":2}"#).contains("printed version 2"));
        assert!(run("/bin/false").contains("failed (exit status: 1)"));
        assert!(run("/nonexistent").contains("cannot start `/nonexistent`"));
        assert!(run("'x").contains("a quote that is not closed"));
        let split = |text: &str| words(text).unwrap().join("|");
        assert_eq!(split(r#"a "b c" d\ e '' 'f"g'"#), r#"a|b c|d e||f"g"#);
    }

    #[test]
    fn a_token_of_sso_is_exchanged() {
        let cache = tempfile::tempdir().unwrap();
        let token = |until: &str, token: &str| {
            format!(r#"{{"startUrl":"https://x.awsapps.com/start","accessToken":"{token}","expiresAt":"{until}"}}"#)
        };
        std::fs::write(cache.path().join("client.json"), "{}").unwrap();
        let config = "[profile p]\nsso_session = s\nsso_account_id = 12\nsso_role_name = a+b\n[sso-session s]\n\
                      sso_start_url = https://x.awsapps.com/start/\nsso_region = eu-west-1\n";
        let answer =
            r#"{"roleCredentials":{"accessKeyId":"A","secretAccessKey":"s","sessionToken":"t","expiration":5}}"#;
        let transport = Scripted(
            move |request: &HttpRequest| match request.headers[0].1.as_str() {
                "good" => reply(200, answer),
                _ => reply(401, ""),
            },
            Mutex::default(),
        );
        let lease = || {
            let source = sources("p", config, Some(cache.path())).source().unwrap();
            match source.lease(&transport, ("", ""), false) {
                Ok(lease) => format!("{} {:?} {}", lease.key.id, lease.until, lease.origin),
                Err(failure) => failure.to_string(),
            }
        };
        let login = "for `https://x.awsapps.com/start/`; run `aws sso login --profile p`";
        assert_eq!(lease(), format!("there is no token {login}"));
        std::fs::write(cache.path().join("a.json"), token("2020-01-01T00:00:00Z", "good")).unwrap();
        assert_eq!(lease(), format!("the token has expired {login}"));
        std::fs::write(cache.path().join("a.json"), token("2999-01-01T00:00:00Z", "bad")).unwrap();
        assert_eq!(lease(), format!("the portal refuses the token (HTTP status 401) {login}"));
        std::fs::write(cache.path().join("b.json"), token("2999-01-02T00:00:00Z", "good")).unwrap();
        assert_eq!(lease(), "A Some(Timestamp(5000)) SSO of the profile `p`");
        assert_eq!(
            transport.1.lock().unwrap().last().unwrap().url,
            "https://portal.sso.eu-west-1.amazonaws.com/federation/credentials?account_id=12&role_name=a%2Bb"
        );
    }
}
