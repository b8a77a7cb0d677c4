//! The list of machines: one of all zones, page by page.

use std::collections::BTreeMap;

use domain::rental::MachineState;
use serde::Deserialize;
use serde_json::Value;

use super::{Gcp, OWNER_LABEL, last, owner_label, wire};
use crate::aws::wire::query::word;
use crate::rented::{CloudFailure, CloudMachine};

/// Pages of one list that are read; more is taken for a mistake.
const PAGES: usize = 1000;

/// A page of machines, by zone.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedPage {
    #[serde(default)]
    items: BTreeMap<String, ScopedList>,
    #[serde(default)]
    next_page_token: Option<String>,
    /// Zones that could not be looked at.
    #[serde(default)]
    unreachables: Vec<String>,
}

#[derive(Deserialize)]
struct ScopedList {
    #[serde(default)]
    instances: Vec<Instance>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instance {
    name: String,
    zone: String,
    machine_type: String,
    status: String,
    #[serde(default)]
    creation_timestamp: String,
    #[serde(default)]
    scheduling: Value,
    #[serde(default)]
    network_interfaces: Vec<Interface>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Interface {
    #[serde(default, rename = "networkIP")]
    network_ip: String,
    #[serde(default)]
    access_configs: Vec<Access>,
}

#[derive(Deserialize)]
struct Access {
    #[serde(default, rename = "natIP")]
    nat_ip: String,
}

impl Instance {
    fn address(&self) -> Option<String> {
        let public = self.network_interfaces.iter().flat_map(|one| &one.access_configs).map(|access| &access.nat_ip);
        let private = self.network_interfaces.iter().map(|one| &one.network_ip);
        public.chain(private).find(|address| address.parse::<std::net::IpAddr>().is_ok()).cloned()
    }

    fn machine(self) -> CloudMachine {
        let zone = last(&self.zone).to_owned();
        let region = zone.rsplit_once('-').map_or(zone.as_str(), |(region, _)| region).to_owned();
        let state = match self.status.as_str() {
            "PROVISIONING" | "STAGING" => MachineState::Pending,
            "RUNNING" | "REPAIRING" => MachineState::Running,
            // One that is stopped still has a disk that costs money; it is ended like any other.
            _ => MachineState::Ending,
        };
        CloudMachine {
            handle: self.name.clone(),
            address: self.address(),
            region,
            zone: Some(zone),
            machine: last(&self.machine_type).to_owned(),
            is_spot: self.scheduling["provisioningModel"] == "SPOT",
            state,
            started: wire::time(&self.creation_timestamp),
            ended: None,
            name: self.name,
        }
    }
}

impl Gcp {
    /// Every machine of the project, or of an owner there.
    pub(super) fn listed(&self, owner: Option<&str>) -> Result<Vec<CloudMachine>, CloudFailure> {
        let filter = owner.map(|owner| word(&format!("labels.{OWNER_LABEL}={}", owner_label(owner))));
        let filter = filter.map(|filter| format!("filter={filter}&")).unwrap_or_default();
        let (mut found, mut page) = (Vec::new(), String::new());
        for _ in 0..PAGES {
            let path = self.path(&format!("aggregated/instances?{filter}maxResults=500{page}"));
            let list: AggregatedPage = self.client.get(&path)?;
            if !list.unreachables.is_empty() {
                return Err(CloudFailure::Doubt(format!("could not look at {}", list.unreachables.join(", "))));
            }
            found.extend(list.items.into_values().flat_map(|scope| scope.instances).map(Instance::machine));
            match list.next_page_token.filter(|token| !token.is_empty()) {
                Some(token) => page = format!("&pageToken={}", word(&token)),
                None => return Ok(found),
            }
        }
        Err(CloudFailure::Doubt("the list of machines has no end".to_owned()))
    }
}
