//! The provider `lambda`: on-demand machines of Lambda Cloud.
//!
//! Its API has no tokens, so a machine is looked for by its name before it is asked for again. It lists neither when a
//! machine began nor one that has ended: both are written down here. Wire-compatible with what Lambda documents, and never run
//! against the real cloud.

#[cfg(test)]
mod twin;

use std::sync::Arc;

use domain::listing::Cloud;
use domain::rental::MachineState;
use domain::wants::{Spot, Wants};
use domain::{Bytes, Elapsed, Offer};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::aws::wire::query::Params;
use crate::aws::wire::{HttpReply, HttpRequest, HttpTransport};
use crate::catalog::Catalog;
use crate::provider::{BillingRule, ProviderTraits};
use crate::rented::audit::resource::{CloudResource, ResourceKind, ResourceList, ResourceTags};
use crate::rented::offers::{Listable, offers};
use crate::rented::user_data::user_data;
use crate::rented::{
    CloudApi, CloudFailure, CloudMachine, LaunchOrder, MachineChoice, MachinePlace, name_prefix, value,
};
use crate::ssh::NodeReach;

/// The provider's name.
pub const NAME: &str = "lambda";

/// The variables that the key is looked for in, the first one first.
pub const VARIABLES: [&str; 2] = ["LAMBDA_API_KEY", "LAMBDA_CLOUD_API_KEY"];

/// Where the API is.
pub const ENDPOINT: &str = "https://cloud.lambda.ai";

/// Disk of the smallest machine that Lambda rents; larger ones have more.
const DISK: Bytes = Bytes(500 << 30);

/// A machine boots within some minutes, and is billed by the minute. There are no tokens.
const TRAITS: ProviderTraits = ProviderTraits {
    visible_within: Elapsed(300_000_000),
    effective_within: Elapsed(120_000_000),
    boots_within: Elapsed(1_800_000_000),
    token_lifetime: None,
    observe_every: Elapsed(10_000_000),
    rents_together: false,
    billing: BillingRule { step: Elapsed(60_000_000), least: Elapsed(60_000_000) },
    places: None,
    abandoned_within: None,
    keeps_events: false,
    concurrency: 4,
};

/// What the user may set in `lambda.json` of a home.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LambdaOptions {
    /// How agents of its machines reach the loop.
    pub reach: NodeReach,
}

/// A client for Lambda's API.
pub struct Lambda {
    transport: Arc<dyn HttpTransport>,
    endpoint: String,
    key: String,
}

impl std::fmt::Debug for Lambda {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Lambda").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// What holds every answer.
#[derive(Deserialize)]
struct Answer<T> {
    data: T,
}

#[derive(Deserialize)]
struct Launched {
    instance_ids: Vec<String>,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    ip: Option<String>,
    status: String,
    region: Named,
    instance_type: Named,
}

impl Listed {
    fn machine(self) -> CloudMachine {
        let state = match self.status.as_str() {
            "booting" => MachineState::Pending,
            "active" | "unhealthy" => MachineState::Running,
            "terminated" | "preempted" => MachineState::Gone(None),
            _ => MachineState::Ending,
        };
        CloudMachine {
            handle: self.id,
            name: self.name.unwrap_or_default(),
            region: self.region.name,
            zone: None,
            machine: self.instance_type.name,
            is_spot: false,
            state,
            address: self.ip.filter(|ip| ip.parse::<std::net::IpAddr>().is_ok()),
            started: None,
            ended: None,
        }
    }
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct SshKey {
    name: String,
    #[serde(default)]
    public_key: String,
}

#[derive(Deserialize)]
struct Refused {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    code: String,
    #[serde(default)]
    message: String,
}

impl Lambda {
    /// A client with this key.
    pub fn new(transport: Arc<dyn HttpTransport>, endpoint: Option<&str>, key: &str) -> Lambda {
        let endpoint = endpoint.unwrap_or(ENDPOINT).trim_end_matches('/').to_owned();
        Lambda { transport, endpoint, key: key.to_owned() }
    }

    fn ask<T: for<'a> Deserialize<'a>>(
        &self,
        method: &'static str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, CloudFailure> {
        let mut headers = vec![("authorization".to_owned(), format!("Bearer {}", self.key))];
        headers.extend(body.map(|_| ("content-type".to_owned(), "application/json".to_owned())));
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = HttpRequest { method, url: format!("{}/api/v1/{path}", self.endpoint), headers, body };
        let reply = self.transport.send(&request);
        let reply = reply.map_err(|why| CloudFailure::Doubt(format!("no answer from Lambda: {why}")))?;
        if reply.status != 200 {
            return Err(failed(&reply));
        }
        let answer: Answer<T> = serde_json::from_slice(&reply.body)
            .map_err(|error| CloudFailure::Doubt(format!("Lambda's answer cannot be read: {error}")))?;
        Ok(answer.data)
    }

    /// Machines of the account, whoever has rented them.
    fn listed(&self) -> Result<Vec<Listed>, CloudFailure> {
        self.ask("GET", "instances", None)
    }

    /// Keys that the account knows.
    fn ssh_keys(&self) -> Result<Vec<SshKey>, CloudFailure> {
        self.ask("GET", "ssh-keys", None)
    }

    /// Sees to it that the account knows a key; its name there.
    fn ssh_key(&self, owner: &str, public_key: &str) -> Result<String, CloudFailure> {
        let name = key_name(owner);
        let keys = self.ssh_keys()?;
        let words = |text: &str| text.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
        match keys.iter().find(|key| key.name == name) {
            Some(key) if words(&key.public_key) == words(public_key) => Ok(name),
            Some(_) => Err(CloudFailure::Invalid(format!(
                "the SSH key `{name}` of the account is not that of this home; delete it in Lambda's console"
            ))),
            None => {
                let body = json!({ "name": name, "public_key": public_key.trim() });
                let made: SshKey = self.ask("POST", "ssh-keys", Some(&body))?;
                Ok(made.name)
            }
        }
    }

    /// Who may use the key: the number of machines in the account.
    ///
    /// # Errors
    /// [`CloudFailure`].
    pub fn check(&self) -> Result<usize, CloudFailure> {
        self.listed().map(|machines| machines.len())
    }
}

/// The name of an owner's key in the account.
fn key_name(owner: &str) -> String {
    name_prefix(owner).trim_end_matches('-').to_owned()
}

/// What an error reply means.
fn failed(reply: &HttpReply) -> CloudFailure {
    let text = reply.text();
    let Ok(Refused { error }) = serde_json::from_str::<Refused>(&text) else {
        let said = format!("HTTP status {}: {}", reply.status, text.chars().take(200).collect::<String>());
        return match reply.status {
            429 => CloudFailure::Throttled(said),
            401 | 403 => CloudFailure::Denied(said),
            _ => CloudFailure::Doubt(said),
        };
    };
    let said = format!("{}: {}", error.code, error.message);
    match error.code.as_str() {
        "instance-operations/launch/insufficient-capacity" => CloudFailure::Capacity(said),
        "global/quota-exceeded" => CloudFailure::Quota(said),
        "global/invalid-api-key" => {
            CloudFailure::Denied(format!("{said}; set `LAMBDA_API_KEY` to a key of Lambda's console"))
        }
        "global/account-inactive" => CloudFailure::Denied(said),
        "global/object-does-not-exist" => CloudFailure::NotFound(said),
        "global/unknown" | "global/internal-error" => CloudFailure::Doubt(said),
        _ if reply.status == 429 => CloudFailure::Throttled(said),
        _ if reply.status >= 500 => CloudFailure::Doubt(said),
        _ => CloudFailure::Invalid(said),
    }
}

impl CloudApi for Lambda {
    fn name(&self) -> &'static str {
        NAME
    }

    fn traits(&self) -> ProviderTraits {
        TRAITS
    }

    fn offers(&self, catalog: &Catalog, wants: &Wants) -> Vec<Offer> {
        // Lambda has no spot machines, and none with processors that are not x86-64 but these.
        if wants.spot == Spot::Only {
            return Vec::new();
        }
        let wants = Wants { spot: Spot::Never, ..wants.clone() };
        let (cloud, leaves_out) = (Cloud::Lambda, &["gpu_1x_gh200"][..]);
        offers(catalog, &wants, &Listable { cloud, provider: NAME, disk: DISK, leaves_out, is_confirmed: false })
    }

    fn order(&self, order: &LaunchOrder<'_>) -> Result<Params, CloudFailure> {
        if order.choice.is_spot || order.choice.zone.is_some() {
            return Err(CloudFailure::Invalid("Lambda has neither spot machines nor zones".to_owned()));
        }
        let key = self.ssh_key(order.owner, order.public_key)?;
        let body = json!({
            "region_name": order.choice.region,
            "instance_type_name": order.choice.machine,
            "ssh_key_names": [key],
            "file_system_names": [],
            "name": order.name,
            "user_data": user_data(order.public_key),
        });
        Ok(vec![("body".to_owned(), body.to_string())])
    }

    fn rent(&self, _choice: &MachineChoice, params: &Params) -> Result<String, CloudFailure> {
        let body: Value = serde_json::from_str(value(params, "body"))
            .map_err(|error| CloudFailure::Invalid(format!("what was written down cannot be read: {error}")))?;
        let launched: Launched = self.ask("POST", "instance-operations/launch", Some(&body))?;
        let first = launched.instance_ids.into_iter().next();
        first.ok_or_else(|| CloudFailure::Doubt("Lambda has taken the request and named no machine".to_owned()))
    }

    fn machines(&self, owner: &str) -> Result<Vec<CloudMachine>, CloudFailure> {
        let prefix = name_prefix(owner);
        let all = self.listed()?.into_iter().map(Listed::machine);
        Ok(all.filter(|machine| machine.name.starts_with(&prefix)).collect())
    }

    fn every_machine(&self) -> Result<Vec<CloudMachine>, CloudFailure> {
        Ok(self.listed()?.into_iter().map(Listed::machine).collect())
    }

    fn end(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        let body = json!({ "instance_ids": [place.handle] });
        self.ask::<Value>("POST", "instance-operations/terminate", Some(&body)).map(drop)
    }

    /// Disks and addresses are parts of machines. The key of an owner is free, and enters each of the machines to come.
    fn resources(&self, owner: &str, lists_all: bool) -> ResourceList {
        let mut list = ResourceList::default();
        if lists_all {
            let place = "every region";
            let tags = ResourceTags { owner: Some(owner.to_owned()), ..ResourceTags::default() };
            let of = |key: SshKey| {
                let tags = tags.clone();
                CloudResource { tags, ..CloudResource::new(ResourceKind::KeyPair, &key.name, place) }
            };
            let keys = self.ssh_keys();
            let ours = keys.map(|keys| keys.into_iter().filter(|key| key.name == key_name(owner)).map(of).collect());
            list.add(ResourceKind::KeyPair, place, ours);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_they_prove() {
        let check = |status: u16, body: &str, expected: &str| {
            let failure = failed(&HttpReply { headers: Vec::new(), status, body: body.into() });
            let word = format!("{failure:?}");
            assert!(word.starts_with(expected), "{word} is not {expected}");
        };
        let named = |code: &str| format!(r#"{{"error":{{"code":"{code}","message":"m","suggestion":"s"}}}}"#);
        check(400, &named("instance-operations/launch/insufficient-capacity"), "Capacity(");
        check(400, &named("global/quota-exceeded"), "Quota(");
        check(401, &named("global/invalid-api-key"), "Denied(");
        check(403, &named("global/account-inactive"), "Denied(");
        check(404, &named("global/object-does-not-exist"), "NotFound(");
        check(400, &named("global/invalid-parameters"), "Invalid(");
        check(500, &named("global/unknown"), "Doubt(");
        check(503, "<html>", "Doubt(");
        check(429, "slow down", "Throttled(");
    }
}
