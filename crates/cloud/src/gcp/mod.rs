//! The provider `gcp`: machines of Google Compute Engine, on demand and spot, with GPUs that come with their type.
//!
//! A machine is asked for in one zone with a request id that follows from its token, and under a name that only one machine
//! can have; the operation that this starts says whether it was had. A look is one aggregated list, by the label of the
//! owner. Wire-compatible with what Google documents, and never run against the real cloud.

mod check;
mod credentials;
mod listed;
mod power;
mod resources;
#[cfg(test)]
mod twin;
mod wire;

use std::sync::Arc;

use domain::boot_disk::BootDisk;
use domain::listing::Cloud;
use domain::wants::Wants;
use domain::{Bytes, Elapsed, Offer};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::aws::wire::HttpTransport;
use crate::aws::wire::query::{Params, word};
use crate::catalog::Catalog;
use crate::provider::{BillingRule, ProviderTraits};
use crate::rented::audit::resource::{CloudResource, ResourceList};
use crate::rented::offers::{Listable, offers};
use crate::rented::user_data::user_data;
use crate::rented::{
    CloudApi, CloudFailure, CloudMachine, LaunchOrder, MachineChoice, MachinePlace, MachinePower, name_prefix, value,
};

pub use check::{GcpReport, role};
use check::{PERMISSIONS, PROJECTS};
pub use credentials::{GcpSource, GcpSources, VARIABLES};
use wire::GcpClient;

/// The provider's name.
pub const NAME: &str = "gcp";

/// Where the API is.
pub const ENDPOINT: &str = "https://compute.googleapis.com";

/// A machine is listed at once, and rarely later; a request id holds for an hour. Rent is counted by the second, and a minute
/// at least.
const TRAITS: ProviderTraits = ProviderTraits {
    visible_within: Elapsed(300_000_000),
    effective_within: Elapsed(120_000_000),
    boots_within: Elapsed(1_200_000_000),
    token_lifetime: Some(Elapsed(3_600_000_000)),
    observe_every: Elapsed(5_000_000),
    rents_together: false,
    billing: BillingRule { step: Elapsed(1_000_000), least: Elapsed(60_000_000) },
    places: None,
    abandoned_within: None,
    keeps_events: false,
    concurrency: 8,
};

/// What the user may set in `gcp.json` of a home.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GcpOptions {
    /// The project that pays; without it, the one that credentials or variables name.
    pub project: Option<String>,
    /// An image or a family, such as `projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts`.
    pub image: Option<String>,
    /// A network, such as `global/networks/default`.
    pub network: Option<String>,
    /// A subnetwork for each region, such as `regions/us-central1/subnetworks/mine`.
    pub subnetworks: std::collections::BTreeMap<String, String>,
    /// Network tags, by which firewall rules of the user's apply.
    pub tags: Vec<String>,
    /// How agents of its machines reach the loop.
    pub reach: crate::ssh::NodeReach,
}

/// A client for Compute Engine.
#[derive(Debug)]
pub struct Gcp {
    client: Arc<GcpClient>,
    project: String,
    options: GcpOptions,
}

/// Gibibytes of the disk of a machine with so much for its work.
pub fn disk_gib(work: Bytes) -> u64 {
    BootDisk::GCP.gib(work)
}

impl Gcp {
    /// A client for a project.
    pub fn new(
        transport: Arc<dyn HttpTransport>,
        endpoint: Option<&str>,
        sources: GcpSources,
        project: &str,
        options: GcpOptions,
    ) -> Gcp {
        let client = Arc::new(GcpClient::new(transport, endpoint.unwrap_or(ENDPOINT), sources));
        Gcp { client, project: project.to_owned(), options }
    }

    fn path(&self, rest: &str) -> String {
        format!("/compute/v1/projects/{}/{rest}", self.project)
    }

    /// The zones of a region.
    ///
    /// # Errors
    /// [`CloudFailure`].
    pub fn zones(&self, region: &str) -> Result<Vec<String>, CloudFailure> {
        #[derive(Deserialize)]
        struct Region {
            #[serde(default)]
            zones: Vec<String>,
        }
        let region: Region = self.client.get(&self.path(&format!("regions/{}", word(region))))?;
        let mut zones: Vec<String> = region.zones.iter().map(|url| last(url).to_owned()).collect();
        zones.sort_unstable();
        Ok(zones)
    }

    fn image(&self, machine: &str) -> String {
        let has_gpu = ["a2-", "a3-", "g2-"].iter().any(|family| machine.starts_with(family));
        let default = match has_gpu {
            true => {
                "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2204-amd64-with-nvidia-550"
            }
            false => "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts",
        };
        self.options.image.clone().unwrap_or_else(|| default.to_owned())
    }

    fn network(&self, region: &str) -> Value {
        let access = json!([{ "type": "ONE_TO_ONE_NAT", "name": "External NAT" }]);
        match self.options.subnetworks.get(region) {
            Some(subnetwork) => json!([{ "subnetwork": subnetwork, "accessConfigs": access }]),
            None => {
                let network = self.options.network.as_deref().unwrap_or("global/networks/default");
                json!([{ "network": network, "accessConfigs": access }])
            }
        }
    }

    /// What is asked for: a machine without an account of its own, so that programs on it find no credentials.
    fn body(&self, order: &LaunchOrder<'_>, zone: &str) -> Value {
        let choice = order.choice;
        let gib = disk_gib(order.request.offer.node.disk_free).to_string();
        // Machines with GPUs cannot be moved while they run.
        let mut scheduling = json!({ "onHostMaintenance": "TERMINATE", "automaticRestart": false });
        if choice.is_spot {
            scheduling["provisioningModel"] = "SPOT".into();
            scheduling["instanceTerminationAction"] = "DELETE".into();
        }
        json!({
            "name": order.name,
            "machineType": format!("zones/{zone}/machineTypes/{}", choice.machine),
            "labels": { OWNER_LABEL: owner_label(order.owner) },
            "tags": { "items": self.options.tags },
            "disks": [{
                "boot": true,
                "autoDelete": true,
                "initializeParams": {
                    "sourceImage": self.image(&choice.machine),
                    "diskSizeGb": gib,
                    "diskType": format!("zones/{zone}/diskTypes/pd-ssd"),
                    "labels": { OWNER_LABEL: owner_label(order.owner) },
                },
            }],
            "networkInterfaces": self.network(&choice.region),
            "scheduling": scheduling,
            "metadata": { "items": [
                { "key": "startup-script", "value": user_data(order.public_key) },
                { "key": "enable-oslogin", "value": "FALSE" },
                { "key": "block-project-ssh-keys", "value": "TRUE" },
            ] },
        })
    }

    /// The project that pays, how many machines of an owner it has, and what may be done there.
    ///
    /// # Errors
    /// [`CloudFailure`].
    pub fn check(&self, owner: &str) -> Result<GcpReport, CloudFailure> {
        #[derive(Deserialize)]
        struct Allowed {
            #[serde(default)]
            permissions: Vec<String>,
        }
        let machines = self.machines(owner)?.len();
        let path = format!("/v1/projects/{}:testIamPermissions", word(&self.project));
        let asked = json!({ "permissions": PERMISSIONS }).to_string().into_bytes();
        // This needs an API that not every project has enabled.
        let allowed = self.client.ask_api::<Allowed>(PROJECTS, &path, asked);
        let (missing, unknown) = match allowed {
            Ok(Allowed { permissions }) => {
                let is_missing = |asked: &&str| !permissions.iter().any(|allowed| allowed == asked);
                (PERMISSIONS.iter().copied().filter(is_missing).collect(), None)
            }
            Err(failure) => (Vec::new(), Some(failure.to_string())),
        };
        Ok(GcpReport { project: self.project.clone(), machines, missing, unknown })
    }
}

/// The label that says whose a machine is.
const OWNER_LABEL: &str = "gradus-owner";

/// The owner as a label may be written.
fn owner_label(owner: &str) -> String {
    name_prefix(owner).trim_start_matches("gradus-").trim_end_matches('-').to_owned()
}

/// The last part of an address.
fn last(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

impl CloudApi for Gcp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn account(&self) -> Result<Option<String>, CloudFailure> {
        Ok(Some(self.project.clone()))
    }

    fn of_account(&self, account: &str) -> Option<Gcp> {
        Some(Gcp { client: self.client.clone(), project: account.to_owned(), options: self.options.clone() })
    }

    fn traits(&self) -> ProviderTraits {
        TRAITS
    }

    fn offers(&self, catalog: &Catalog, wants: &Wants) -> Vec<Offer> {
        // GPUs that are added to a machine of another family, and processors of ARM, are not rented.
        let (cloud, leaves_out) = (Cloud::Gcp, &["n1-", "t2a-", "c4a-", "a4x-"][..]);
        let disk = BootDisk::GCP.least_work;
        offers(catalog, wants, &Listable { cloud, provider: NAME, disk, leaves_out, is_confirmed: true })
    }

    fn order(&self, order: &LaunchOrder<'_>) -> Result<Params, CloudFailure> {
        let zone = match &order.choice.zone {
            Some(zone) => zone.clone(),
            None => {
                let zones = self.zones(&order.choice.region)?;
                let none = || CloudFailure::Invalid(format!("`{}` has no zones", order.choice.region));
                zones.into_iter().next().ok_or_else(none)?
            }
        };
        let body = self.body(order, &zone);
        let id = wire::request_id(&order.request.token);
        Ok([("zone", zone), ("request", id), ("name", order.name.to_owned()), ("body", body.to_string())]
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec())
    }

    fn rent(&self, _choice: &MachineChoice, params: &Params) -> Result<String, CloudFailure> {
        let (zone, id, name) = (value(params, "zone"), value(params, "request"), value(params, "name"));
        let path = self.path(&format!("zones/{zone}/instances?requestId={id}"));
        let body = value(params, "body").as_bytes().to_vec();
        let operation = self.client.post(&path, body)?;
        self.client.outcome(operation, |operation| self.path(&format!("zones/{zone}/operations/{operation}/wait")))?;
        Ok(name.to_owned())
    }

    fn machines(&self, owner: &str) -> Result<Vec<CloudMachine>, CloudFailure> {
        self.listed(Some(owner))
    }

    fn every_machine(&self) -> Result<Vec<CloudMachine>, CloudFailure> {
        self.listed(None)
    }

    fn end(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        // A machine of an earlier version of this file may be known without its zone.
        let zones = match &place.zone {
            Some(zone) => vec![zone.clone()],
            None => self.zones(&place.region)?,
        };
        for zone in zones {
            match self.client.delete(&self.path(&format!("zones/{zone}/instances/{}", word(&place.handle)))) {
                Ok(()) | Err(CloudFailure::NotFound(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    fn owner_tag(&self, owner: &str) -> String {
        owner_label(owner)
    }

    fn resources(&self, owner: &str, lists_all: bool) -> ResourceList {
        self.resources_of(owner, lists_all)
    }

    fn end_resource(&self, resource: &CloudResource) -> Result<(), CloudFailure> {
        self.delete_resource(resource)
    }

    fn stop(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        self.stop_at(place)
    }

    fn start(&self, place: &MachinePlace, token: &str) -> Result<(), CloudFailure> {
        self.start_at(place, token)
    }

    fn power(&self, place: &MachinePlace) -> Result<MachinePower, CloudFailure> {
        self.power_at(place)
    }
}
