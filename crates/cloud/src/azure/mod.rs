//! The provider `azure`: virtual machines of Azure, on demand and spot, with GPUs of NVIDIA.
//!
//! A machine is one request, which makes its disk, its network interface and its address with it, and each of them goes when
//! it goes; what is left where that fails is found by an audit. Azure knows no tokens. Its name, which follows from ours, takes their place: the request says `If-None-Match: *`,
//! so that of two requests the second is refused while there is a machine of this name. What Azure cannot place stays behind
//! as a machine that has failed; it is deleted before the request counts as refused. Machines are in one resource group
//! and carry the owner's tag. Wire-compatible with what Azure documents, and never run against the real cloud.

mod check;
mod credentials;
mod failure;
mod listed;
mod order;
mod power;
mod resources;
#[cfg(test)]
mod twin;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::boot_disk::BootDisk;
use domain::listing::Cloud;
use domain::wants::Wants;
use domain::{Elapsed, Offer};
use serde::Deserialize;

use crate::aws::wire::HttpTransport;
use crate::aws::wire::query::{Params, params, word};
use crate::catalog::Catalog;
use crate::provider::{BillingRule, ProviderTraits};
use crate::rented::audit::resource::{CloudResource, ResourceList};
use crate::rented::offers::{Listable, offers};
use crate::rented::{
    CloudApi, CloudFailure, CloudMachine, LaunchOrder, MachineChoice, MachinePlace, MachinePower, value,
};
use crate::ssh::NodeReach;
use check::{ArmPermission, missing};
use listed::{ListedAddress, ListedVm};
use wire::AzureClient;

pub use check::{AzureReport, role};
pub use credentials::{AzureSource, AzureSources, VARIABLES};
pub use order::disk_gib;

/// The provider's name.
pub const NAME: &str = "azure";

/// Where the Resource Manager is.
pub const ENDPOINT: &str = "https://management.azure.com";

/// The resource group with the machines, unless the user names another.
const GROUP: &str = "gradus";

/// Versions of the APIs.
const COMPUTE: &str = "api-version=2024-07-01";
const NETWORK: &str = "api-version=2023-09-01";
const AUTHORIZATION: &str = "api-version=2022-04-01";

/// A machine is listed at once, and rarely later; its name holds as long as it is there. Rent is counted by the second.
const TRAITS: ProviderTraits = ProviderTraits {
    visible_within: Elapsed(300_000_000),
    effective_within: Elapsed(120_000_000),
    boots_within: Elapsed(1_800_000_000),
    token_lifetime: Some(Elapsed(3_600_000_000)),
    observe_every: Elapsed(10_000_000),
    rents_together: false,
    billing: BillingRule { step: Elapsed(1_000_000), least: Elapsed(1_000_000) },
    places: None,
    abandoned_within: None,
    keeps_events: false,
    concurrency: 8,
};

/// What the user may set in `azure.json` of a home.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AzureOptions {
    /// The subscription that pays; without it, that of `AZURE_SUBSCRIPTION_ID`.
    pub subscription: Option<String>,
    /// The resource group in which machines are made, which must exist; `gradus` without it.
    pub resource_group: Option<String>,
    /// An image as `PUBLISHER:OFFER:SKU:VERSION`, or by its address.
    pub image: Option<String>,
    /// The address of a subnet for each region; without it, the subnet `default` of the virtual network `gradus-REGION` in the
    /// resource group.
    pub subnets: BTreeMap<String, String>,
    /// How agents of its machines reach the loop.
    pub reach: NodeReach,
}

/// A client for Azure.
#[derive(Debug)]
pub struct Azure {
    client: Arc<AzureClient>,
    subscription: String,
    options: AzureOptions,
}

impl Azure {
    /// A client for a subscription. A stand-in that is named by `endpoint` gives tokens too, unless a variable says who does.
    pub fn new(
        transport: Arc<dyn HttpTransport>,
        endpoint: Option<&str>,
        sources: AzureSources,
        subscription: &str,
        options: AzureOptions,
    ) -> Azure {
        Azure::with_pause(transport, endpoint, sources, subscription, options, std::thread::sleep)
    }

    fn with_pause(
        transport: Arc<dyn HttpTransport>,
        endpoint: Option<&str>,
        sources: AzureSources,
        subscription: &str,
        options: AzureOptions,
        pause: fn(Duration),
    ) -> Azure {
        let authority =
            sources.variable("AZURE_AUTHORITY_HOST").or(endpoint).unwrap_or(credentials::AUTHORITY).to_owned();
        let hosts = (endpoint.unwrap_or(ENDPOINT), authority.as_str());
        let client = Arc::new(AzureClient::new(transport, hosts, sources, pause));
        Azure { client, subscription: subscription.to_owned(), options }
    }

    fn group(&self) -> &str {
        self.options.resource_group.as_deref().unwrap_or(GROUP)
    }

    /// The path of something in the resource group.
    fn path(&self, rest: &str) -> String {
        let (subscription, group) = (word(&self.subscription), word(self.group()));
        format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{rest}")
    }

    fn machine_path(&self, name: &str) -> String {
        self.path(&format!("Microsoft.Compute/virtualMachines/{}?{COMPUTE}", word(name)))
    }

    fn action_path(&self, name: &str, action: &str) -> String {
        self.path(&format!("Microsoft.Compute/virtualMachines/{}/{action}?{COMPUTE}", word(name)))
    }

    fn subnet(&self, region: &str) -> String {
        let usual = || self.path(&format!("Microsoft.Network/virtualNetworks/gradus-{region}/subnets/default"));
        self.options.subnets.get(region).cloned().unwrap_or_else(usual)
    }

    /// Deletes a machine without waiting for its system to shut down.
    fn delete(&self, name: &str) -> Result<(), CloudFailure> {
        self.client.delete(&format!("{}&forceDeletion=true", self.machine_path(name)))
    }

    /// The subscription that pays, how many machines of an owner it has, and what may be done in the resource group.
    ///
    /// # Errors
    /// [`CloudFailure`].
    pub fn check(&self, owner: &str) -> Result<AzureReport, CloudFailure> {
        let machines = self.machines(owner)?.len();
        let path = self.path(&format!("Microsoft.Authorization/permissions?{AUTHORIZATION}"));
        let (missing, unknown) = match self.client.list::<ArmPermission>(&path) {
            Ok(permissions) => (missing(&permissions), None),
            Err(failure) => (Vec::new(), Some(failure.to_string())),
        };
        let (subscription, resource_group) = (self.subscription.clone(), self.group().to_owned());
        Ok(AzureReport { subscription, resource_group, machines, missing, unknown })
    }
}

impl CloudApi for Azure {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The subscription and the resource group, whose names are the same in all cases of their letters.
    fn account(&self) -> Result<Option<String>, CloudFailure> {
        Ok(Some(format!("{}/{}", self.subscription, self.group()).to_lowercase()))
    }

    fn of_account(&self, account: &str) -> Option<Azure> {
        let (subscription, group) = account.split_once('/')?;
        let options = AzureOptions { resource_group: Some(group.to_owned()), ..self.options.clone() };
        Some(Azure { client: self.client.clone(), subscription: subscription.to_owned(), options })
    }

    fn traits(&self) -> ProviderTraits {
        TRAITS
    }

    fn offers(&self, catalog: &Catalog, wants: &Wants) -> Vec<Offer> {
        // Its price list says nothing of machines, so that where they are is not known.
        let (cloud, disk) = (Cloud::Azure, BootDisk::AZURE.least_work);
        let lists = Listable { cloud, provider: NAME, disk, leaves_out: &[], is_confirmed: false };
        let mut offers = offers(catalog, wants, &lists);
        offers.retain(|offer| {
            let choice = offer.kind.parse::<MachineChoice>();
            choice.is_ok_and(|choice| order::is_driven(&choice.machine))
        });
        offers
    }

    fn order(&self, order: &LaunchOrder<'_>) -> Result<Params, CloudFailure> {
        let body = order::machine(order, &self.subnet(&order.choice.region), &self.options)?;
        Ok(params([("name", order.name), ("body", &body.to_string())]))
    }

    fn rent(&self, _choice: &MachineChoice, params: &Params) -> Result<String, CloudFailure> {
        let name = value(params, "name");
        let begun = self.client.create(&self.machine_path(name), value(params, "body").as_bytes().to_vec())?;
        match self.client.outcome(&begun) {
            Ok(()) => {
                // It is rented without them too.
                let _ = self.tag_network(name, value(params, "body"));
                Ok(name.to_owned())
            }
            Err(failure) if failure.refusal().is_some() => match self.delete(name) {
                Ok(()) | Err(CloudFailure::NotFound(_)) => Err(failure),
                Err(other) => {
                    let said = format!("{failure}; what is left of `{name}` could not be deleted: {other}");
                    Err(CloudFailure::Doubt(said))
                }
            },
            Err(failure) => Err(failure),
        }
    }

    fn machines(&self, owner: &str) -> Result<Vec<CloudMachine>, CloudFailure> {
        let path = self.path(&format!("Microsoft.Compute/virtualMachines?{COMPUTE}"));
        let listed = self.client.list::<ListedVm>(&path)?;
        let ours: Vec<ListedVm> = listed.into_iter().filter(|vm| vm.is_of(owner)).collect();
        if ours.is_empty() {
            return Ok(Vec::new());
        }
        // A machine is listed without its address.
        let path = self.path(&format!("Microsoft.Network/publicIPAddresses?{NETWORK}"));
        let addresses = self.client.list::<ListedAddress>(&path)?;
        Ok(ours.into_iter().map(|vm| vm.machine(&addresses)).collect())
    }

    fn every_machine(&self) -> Result<Vec<CloudMachine>, CloudFailure> {
        let path = self.path(&format!("Microsoft.Compute/virtualMachines?{COMPUTE}"));
        let listed = self.client.list::<ListedVm>(&path)?;
        Ok(listed.into_iter().map(|vm| vm.machine(&[])).collect())
    }

    fn end(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        self.delete(&place.handle)
    }

    fn resources(&self, owner: &str, lists_all: bool) -> ResourceList {
        self.resources_of(owner, lists_all)
    }

    fn end_resource(&self, resource: &CloudResource) -> Result<(), CloudFailure> {
        self.delete_resource(resource)
    }

    fn stop(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        self.client.post(&self.action_path(&place.handle, "deallocate")).map(drop)
    }

    fn start(&self, place: &MachinePlace, _token: &str) -> Result<(), CloudFailure> {
        // Azure knows no tokens; one that is on is not started again.
        let begun = self.client.post(&self.action_path(&place.handle, "start"))?;
        self.client.outcome(&begun)
    }

    fn power(&self, place: &MachinePlace) -> Result<MachinePower, CloudFailure> {
        let view: power::InstanceView = self.client.get(&self.action_path(&place.handle, "instanceView"))?;
        view.power()
    }
}
