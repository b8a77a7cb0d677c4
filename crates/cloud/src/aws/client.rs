//! A client for AWS: each action is a request that is signed, sent once and parsed. It does not retry: that is up to
//! the loop.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use domain::Timestamp;
use serde::de::DeserializeOwned;

use super::credentials::{CredentialSource, CredentialSources, Lease, OwnNetwork, own_network};
use super::wire::answers::{self, Caller, Identity, ListedMachine, Machines};
use super::wire::failure::AwsFailure;
use super::wire::query::{self, Query};
use super::wire::signature::sign;
use super::wire::{HttpReply, HttpRequest, HttpTransport};

/// A key is replaced so long before it ends.
const RENEWED_BEFORE: i64 = 300_000_000;

/// For so long a failure to ask whose a key is stands: where STS cannot be reached, as in a private network, each request waits
/// for seconds.
const UNKNOWN_FOR: Duration = Duration::from_secs(30);

/// Maximum number of pages of a list; more is considered an error.
const PAGES: usize = 1000;

/// A client for AWS with the credentials of this machine.
pub struct Client {
    transport: Arc<dyn HttpTransport>,
    sources: CredentialSources,
    lease: Mutex<Option<Lease>>,
    /// The last key whose account was asked for.
    account: Mutex<Option<AskedAccount>>,
}

/// What STS has answered about whose a key is, and when it was asked.
#[derive(Clone)]
struct AskedAccount {
    key: String,
    account: Result<String, AwsFailure>,
    at: Instant,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Client").field("sources", &self.sources).finish_non_exhaustive()
    }
}

impl Client {
    /// A client that sends with `transport`.
    pub fn new(transport: Arc<dyn HttpTransport>, sources: CredentialSources) -> Client {
        Client { transport, sources, lease: Mutex::default(), account: Mutex::default() }
    }

    /// The credential sources of this machine.
    pub fn sources(&self) -> &CredentialSources {
        &self.sources
    }

    /// The address of a service in a region.
    fn endpoint(&self, service: &str, region: &str) -> String {
        let host = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let named = self.sources.variable("AWS_ENDPOINT_URL").map(str::to_owned);
        named.unwrap_or_else(|| format!("https://{service}.{region}.{host}"))
    }

    /// The key to sign with, and where it comes from.
    ///
    /// # Errors
    /// [`AwsFailure`] when there is none.
    pub fn key(&self, region: &str) -> Result<Lease, AwsFailure> {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |lease: &Lease| lease.until.is_none_or(|until| until.0 - now().0 > RENEWED_BEFORE);
        if let Some(lease) = lease.as_ref().filter(|lease| is_fresh(lease)) {
            return Ok(lease.clone());
        }
        let source = self.sources.source().map_err(AwsFailure::Credentials)?;
        match source.lease(self.transport.as_ref(), (&self.endpoint("sts", region), region), lease.is_some()) {
            Ok(found) => Ok(lease.insert(found).clone()),
            // It could not be renewed now, and holds for some minutes.
            Err(failure) => {
                let is_valid = |lease: &&Lease| lease.until.is_none_or(|until| until.0 > now().0);
                lease.as_ref().filter(is_valid).cloned().ok_or(failure)
            }
        }
    }

    fn signed(&self, mut request: HttpRequest, region: &str, service: &str) -> Result<HttpReply, AwsFailure> {
        let lease = self.key(region)?;
        sign(&mut request, &lease.key, (region, service), now());
        self.transport.send(&request).map_err(|why| AwsFailure::Doubt(format!("no answer from AWS: {why}")))
    }

    /// Interprets an error reply. A key that AWS rejects is not used again; where it came from is named, with what to do.
    fn failed(&self, query: &Query, reply: &HttpReply) -> AwsFailure {
        let why = match AwsFailure::of(query, reply) {
            AwsFailure::Credentials(why) => why,
            other => return other,
        };
        let mut origin = String::new();
        if let Some(lease) = self.lease.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            lease.until = Some(Timestamp(0));
            origin = format!(" from {}", lease.origin);
        }
        let remedy = self.sources.source().map_or_else(|why| why, |source| source.remedy());
        AwsFailure::Credentials(format!("{why}{origin}; {remedy}"))
    }

    /// Sends a query, and parses the answer.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub fn ask<T: DeserializeOwned>(&self, region: &str, query: &Query) -> Result<T, AwsFailure> {
        let reply = self.signed(query.request(&self.endpoint(query.service, region)), region, query.service)?;
        match reply.status {
            200 => answers::read(&reply.text()).map_err(AwsFailure::Doubt),
            _ => Err(self.failed(query, &reply)),
        }
    }

    /// Sends a query whose answer has no content.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub fn tell(&self, region: &str, query: &Query) -> Result<(), AwsFailure> {
        self.ask::<serde::de::IgnoredAny>(region, query).map(drop)
    }

    /// Every machine of an owner that a region lists, or those with our name `instance`.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub fn machines(
        &self,
        region: &str,
        owner: &str,
        instance: Option<&str>,
    ) -> Result<Vec<ListedMachine>, AwsFailure> {
        self.listed(region, |page| query::describe_owned(owner, instance, page))
    }

    /// Every machine of the account that a region lists, whoever rented it.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub fn every_machine(&self, region: &str) -> Result<Vec<ListedMachine>, AwsFailure> {
        self.listed(region, query::describe_every)
    }

    /// All pages of a list of machines.
    fn listed(&self, region: &str, query: impl Fn(Option<&str>) -> Query) -> Result<Vec<ListedMachine>, AwsFailure> {
        let mut found = Vec::new();
        let mut page: Option<String> = None;
        for _ in 0..PAGES {
            let machines: Machines = self.ask(region, &query(page.as_deref()))?;
            page = Some(machines.next_token.clone()).filter(|token| !token.is_empty());
            found.extend(machines.all());
            if page.is_none() {
                return Ok(found);
            }
        }
        Err(AwsFailure::Doubt(format!("the list of machines in `{region}` has no end")))
    }

    /// Who we are.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub fn caller(&self, region: &str) -> Result<Caller, AwsFailure> {
        let identity: Identity = self.ask(region, &query::caller_identity())?;
        Ok(identity.get_caller_identity_result)
    }

    /// The account that the current key belongs to: asked for until STS has answered once for each key.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub fn account(&self, region: &str) -> Result<String, AwsFailure> {
        self.account_asked(region, Duration::ZERO)
    }

    /// The same where work continues without it: after a failure it is not asked for again for a while.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub fn account_if_known(&self, region: &str) -> Result<String, AwsFailure> {
        self.account_asked(region, UNKNOWN_FOR)
    }

    fn account_asked(&self, region: &str, failure_stands: Duration) -> Result<String, AwsFailure> {
        let key = self.key(region)?.key.id;
        let last = self.account.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(last) = last.filter(|last| last.key == key)
            && (last.account.is_ok() || last.at.elapsed() < failure_stands)
        {
            return last.account;
        }
        let account = self.account_of(region, &key);
        let mut last = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        // What another thread has learned meanwhile stays.
        let is_known = last.as_ref().is_some_and(|last| last.key == key && last.account.is_ok());
        if account.is_ok() || !is_known {
            *last = Some(AskedAccount { key, account: account.clone(), at: Instant::now() });
        }
        account
    }

    fn account_of(&self, region: &str, key: &str) -> Result<String, AwsFailure> {
        let account = self.caller(region)?.account;
        if account.is_empty() {
            return Err(AwsFailure::Doubt("AWS STS names no account for this key".to_owned()));
        }
        // It may have been replaced meanwhile.
        if self.key(region)?.key.id != key {
            return Err(AwsFailure::Doubt("the key changed while its account was asked for".to_owned()));
        }
        Ok(account)
    }

    /// The value of a public parameter of Systems Manager.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub fn parameter(&self, region: &str, name: &str) -> Result<String, AwsFailure> {
        let reply = self.signed(query::get_parameter(&self.endpoint("ssm", region), name), region, "ssm")?;
        let asked = Query { service: "ssm", action: "GetParameter", params: Vec::new() };
        if reply.status != 200 {
            return Err(self.failed(&asked, &reply));
        }
        let value: serde_json::Value =
            serde_json::from_slice(&reply.body).map_err(|error| AwsFailure::Doubt(error.to_string()))?;
        let text = value["Parameter"]["Value"].as_str();
        let absent = || format!("the reply of AWS Systems Manager has no value for the parameter `{name}`");
        text.map(str::to_owned).ok_or_else(|| AwsFailure::Doubt(absent()))
    }

    /// The network of this machine, where it is one of EC2 whose role is used. Others are not asked: nothing would answer there,
    /// after seconds.
    ///
    /// # Errors
    /// [`AwsFailure::Doubt`] where the metadata service does not answer for now.
    pub fn own_network(&self) -> Result<Option<OwnNetwork>, AwsFailure> {
        match self.sources.source() {
            Ok(CredentialSource::Metadata { endpoint }) => own_network(self.transport.as_ref(), &endpoint),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// The public address of this machine, as seen by AWS.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn own_address(&self) -> Result<String, String> {
        let request = HttpRequest {
            method: "GET",
            url: "https://checkip.amazonaws.com/".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        let reply = self.transport.send(&request)?;
        let text = reply.text().trim().to_owned();
        text.parse::<std::net::IpAddr>().map(|_| text).map_err(|_| format!("HTTP status {}", reply.status))
    }
}

/// The wall clock: AWS refuses a signature that is off by five minutes.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::wire::scripted::{Script, reply};
    use super::*;

    #[test]
    fn where_sts_cannot_be_reached_it_is_not_asked_for_every_machine() {
        let script = Script::new(|_| Err("no route".to_owned()));
        let client = super::super::wire::scripted::client(script.clone());
        for _ in 0..3 {
            assert!(client.account_if_known("us-east-1").is_err());
        }
        assert_eq!(script.asked.lock().unwrap().len(), 1);
        // What rests on it does not wait.
        assert!(client.account("us-east-1").is_err());
        assert_eq!(script.asked.lock().unwrap().len(), 2);
    }

    #[test]
    fn keys_that_are_not_accepted_are_named_with_what_to_type() {
        let check = |client: &Client, expected: &[&str]| {
            let message = client.caller("us-east-1").unwrap_err().to_string();
            assert!(expected.iter().all(|part| message.contains(part)), "{message}");
            assert!(!message.contains("gradus cloud check"), "it is what was typed: {message}");
        };
        let script = || Script::new(|_| Ok(super::super::wire::scripted::error("InvalidClientTokenId")));
        check(
            &super::super::wire::scripted::client(script()),
            &["does not accept the credentials from environment variables; set `AWS_ACCESS_KEY_ID`"],
        );
        let credentials = "[default]\naws_access_key_id = F\naws_secret_access_key = f\n".to_owned();
        let of_profile = CredentialSources { credentials, ..CredentialSources::default() };
        check(
            &Client::new(script(), of_profile),
            &["does not accept the credentials from the profile `default`; ", "`aws configure --profile default`"],
        );
    }

    #[test]
    fn a_key_that_is_not_accepted_is_asked_for_again() {
        let script = Script::new(|asked| {
            let key = r#"{"AccessKeyId":"A","SecretAccessKey":"s","Expiration":"2999-01-01T00:00:00Z"}"#;
            Ok(match asked {
                asked if asked.contains("Action=") => super::super::wire::scripted::error("ExpiredToken"),
                _ => reply(200, key),
            })
        });
        let client = Client::new(script.clone(), CredentialSources::default());
        for _ in 0..2 {
            assert!(matches!(client.caller("us-east-1"), Err(AwsFailure::Credentials(_))));
        }
        // Three requests to the metadata service for each key.
        assert_eq!(script.asked.lock().unwrap().len(), 8);
    }
}
