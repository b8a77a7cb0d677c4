//! The provider `tencent`: machines of Tencent Cloud CVM, on demand and spot, with GPUs of NVIDIA.
//!
//! A machine is one request, `RunInstances`, with the loop's token as `ClientToken`: asked again, the same machine is answered.
//! Machines carry the owner's tag, by which they are listed region by region: the loop looks only where it has rented, an
//! audit everywhere. Tencent itself is told to end a machine once its run can need it no longer; whether it does so with spot
//! machines is not known. The catalog ships without prices of Tencent's: they are read from Tencent, or imported.
//! Wire-compatible with what Tencent documents, and never run against the real cloud.

mod check;
mod credentials;
mod failure;
mod listed;
mod order;
mod power;
mod resources;
mod signature;
#[cfg(test)]
mod twin;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::boot_disk::BootDisk;
use domain::listing::Cloud;
use domain::wants::Wants;
use domain::{Elapsed, Offer, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::aws::now;
use crate::aws::wire::HttpTransport;
use crate::aws::wire::query::{OWNER_TAG, Params, params};
use crate::catalog::Catalog;
use crate::provider::{BillingRule, ProviderTraits};
use crate::rented::account::CallerAccount;
use crate::rented::audit::resource::{CloudResource, ResourceList};
use crate::rented::offers::{Listable, offers};
use crate::rented::{
    CloudApi, CloudFailure, CloudMachine, LaunchOrder, MachineChoice, MachinePlace, MachinePower, in_regions, value,
};
use crate::ssh::NodeReach;
use listed::{GroupSet, ImageSet, InstancesAnswer, RegionSet, SoldSet, ZoneSet};
use order::CvmSite;
use wire::{TcService, TencentClient};

pub use check::{TencentReport, policy};
pub use credentials::{TencentSources, VARIABLES};
pub use order::disk_gib;

/// The provider's name.
pub const NAME: &str = "tencent";

/// The name of the security group that is looked for in a region, unless the user names another.
const GROUP: &str = "gradus";

/// A machine is listed at once, and rarely later. It installs a driver before it can be reached. Rent is counted by the second.
/// None of these times was measured, and how long a token is known is an assumption.
const TRAITS: ProviderTraits = ProviderTraits {
    visible_within: Elapsed(300_000_000),
    effective_within: Elapsed(120_000_000),
    boots_within: Elapsed(2_400_000_000),
    token_lifetime: Some(Elapsed(3_600_000_000)),
    observe_every: Elapsed(10_000_000),
    rents_together: false,
    billing: BillingRule { step: Elapsed(1_000_000), least: Elapsed(1_000_000) },
    places: None,
    abandoned_within: None,
    keeps_events: false,
    concurrency: 8,
};

/// What the user may set in `tencent.json` of a home.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TencentOptions {
    /// An image, `img-…`; without it, the newest one of Ubuntu 22.04.
    pub image: Option<String>,
    /// A security group for each region; without it, the one called `gradus`.
    pub security_groups: BTreeMap<String, String>,
    /// A network and a subnet for each zone, as `vpc-…/subnet-…`; without it, the account's default ones.
    pub subnets: BTreeMap<String, String>,
    /// The currency of the account, `USD` or `CNY`, in which the limit of a spot price is stated; dollars without it.
    pub currency: Option<String>,
    /// How agents of its machines reach the loop.
    pub reach: NodeReach,
}

/// A client for CVM.
#[derive(Debug)]
pub struct Tencent {
    client: TencentClient,
    options: TencentOptions,
    /// The account of the key, which stays the same.
    account: CallerAccount,
}

/// What `RunInstances` answers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LaunchedSet {
    #[serde(default)]
    instance_id_set: Vec<String>,
}

/// Machines on a page of a list, and pages that are read; more is taken for a mistake.
const PAGE: usize = 100;
const PAGES: usize = 1000;

impl Tencent {
    /// A client that sends with `transport`, to `endpoint` where that stands in for Tencent.
    pub fn new(
        transport: Arc<dyn HttpTransport>,
        endpoint: Option<&str>,
        sources: TencentSources,
        options: TencentOptions,
    ) -> Tencent {
        let client = TencentClient::new(transport, endpoint, sources);
        Tencent { client, options, account: CallerAccount::default() }
    }

    /// Carries out an action of CVM that changes nothing.
    pub(crate) fn read<T: DeserializeOwned>(&self, action: &str, region: &str, body: &str) -> Result<T, CloudFailure> {
        self.client.ask((TcService::Cvm, action), region, body)
    }

    /// The currency in which the account pays.
    pub fn currency(&self) -> &str {
        self.options.currency.as_deref().unwrap_or("USD")
    }

    /// The regions that the account may use.
    fn regions(&self) -> Result<BTreeSet<String>, CloudFailure> {
        let answer: RegionSet = self.client.ask((TcService::Cvm, "DescribeRegions"), "", "{}")?;
        Ok(answer.region_set.into_iter().map(|region| region.region).collect())
    }

    /// Every machine of a region, or of an owner there.
    fn machines_of(&self, owner: Option<&str>, region: &str) -> Result<Vec<CloudMachine>, CloudFailure> {
        let mut found = Vec::new();
        for _ in 0..PAGES {
            let mut body = json!({ "Limit": PAGE, "Offset": found.len() });
            if let Some(owner) = owner {
                body["Filters"] = json!(filters(&[(format!("tag:{OWNER_TAG}").as_str(), owner)]));
            }
            let body = body.to_string();
            let answer: InstancesAnswer = self.client.ask((TcService::Cvm, "DescribeInstances"), region, &body)?;
            let count = answer.instance_set.len();
            found.extend(answer.instance_set.into_iter().map(|instance| instance.machine(region)));
            if count == 0 || found.len() >= answer.total_count {
                return Ok(found);
            }
        }
        Err(CloudFailure::Doubt("the list of machines has no end".to_owned()))
    }

    /// The security group of a region.
    fn group(&self, region: &str) -> Result<String, CloudFailure> {
        if let Some(id) = self.options.security_groups.get(region) {
            return Ok(id.clone());
        }
        let body = json!({ "Filters": filters(&[("security-group-name", GROUP)]) }).to_string();
        let answer: GroupSet = self.client.ask((TcService::Vpc, "DescribeSecurityGroups"), region, &body)?;
        let group = answer.security_group_set.into_iter().find(|group| group.security_group_name == GROUP);
        group.map(|group| group.security_group_id).ok_or_else(|| {
            let why = format!("there is no security group `{GROUP}` in `{region}`");
            CloudFailure::Invalid(format!("{why}; docs/tencent.md says how it is made"))
        })
    }

    /// A zone of a region that sells such a machine now, where none is named.
    fn zone(&self, choice: &MachineChoice) -> Result<String, CloudFailure> {
        if let Some(zone) = &choice.zone {
            return Ok(zone.clone());
        }
        let terms = if choice.is_spot { "SPOTPAID" } else { "POSTPAID_BY_HOUR" };
        let filters = filters(&[("instance-type", choice.machine.as_str()), ("instance-charge-type", terms)]);
        let (action, body) = ("DescribeZoneInstanceConfigInfos", json!({ "Filters": filters }).to_string());
        let answer: SoldSet = self.client.ask((TcService::Cvm, action), &choice.region, &body)?;
        let sold = answer.instance_type_quota_set.into_iter().filter(|sold| sold.status == "SELL");
        let none = || CloudFailure::Capacity(format!("no zone of `{}` sells `{}` now", choice.region, choice.machine));
        sold.map(|sold| sold.zone).min().ok_or_else(none)
    }

    /// The image to boot.
    fn image(&self, choice: &MachineChoice) -> Result<String, CloudFailure> {
        if let Some(image) = &self.options.image {
            return Ok(image.clone());
        }
        let filters = filters(&[("image-type", "PUBLIC_IMAGE"), ("platform", "Ubuntu")]);
        let body = json!({ "Filters": filters, "InstanceType": choice.machine, "Limit": PAGE }).to_string();
        let answer: ImageSet = self.client.ask((TcService::Cvm, "DescribeImages"), &choice.region, &body)?;
        answer.newest().ok_or_else(|| {
            let why = format!("`{}` in `{}` boots no image of Ubuntu 22.04", choice.machine, choice.region);
            CloudFailure::Invalid(format!("{why}; name one as `image` in `tencent.json`"))
        })
    }

    /// The zones of a region in which machines can be put.
    ///
    /// # Errors
    /// [`CloudFailure`].
    pub fn zones(&self, region: &str) -> Result<Vec<String>, CloudFailure> {
        let answer: ZoneSet = self.client.ask((TcService::Cvm, "DescribeZones"), region, "{}")?;
        let open = answer.zone_set.into_iter().filter(|zone| zone.zone_state == "AVAILABLE");
        let mut zones: Vec<String> = open.map(|zone| zone.zone).collect();
        zones.sort_unstable();
        Ok(zones)
    }
}

/// Filters, each with one value.
fn filters(pairs: &[(&str, &str)]) -> Vec<Value> {
    pairs.iter().map(|(name, value)| json!({ "Name": name, "Values": [value] })).collect()
}

impl CloudApi for Tencent {
    fn name(&self) -> &'static str {
        NAME
    }

    fn account(&self) -> Result<Option<String>, CloudFailure> {
        self.account.known(|| Ok(self.caller()?.account_id)).map(Some)
    }

    fn traits(&self) -> ProviderTraits {
        TRAITS
    }

    fn offers(&self, catalog: &Catalog, wants: &Wants) -> Vec<Offer> {
        let (cloud, disk) = (Cloud::Tencent, BootDisk::TENCENT.least_work);
        offers(catalog, wants, &Listable { cloud, provider: NAME, disk, leaves_out: &[], is_confirmed: false })
    }

    fn order(&self, order: &LaunchOrder<'_>) -> Result<Params, CloudFailure> {
        let choice = order.choice;
        let (group, zone, image) = (self.group(&choice.region)?, self.zone(choice)?, self.image(choice)?);
        let body = order::run_instances(order, &CvmSite { zone, group, image }, &self.options, now())?;
        Ok(params([("body", &body.to_string())]))
    }

    fn rent(&self, choice: &MachineChoice, params: &Params) -> Result<String, CloudFailure> {
        let body = value(params, "body");
        let answer: LaunchedSet = self.client.ask((TcService::Cvm, "RunInstances"), &choice.region, body)?;
        let none = || CloudFailure::Doubt("Tencent Cloud has accepted a request without naming a machine".to_owned());
        answer.instance_id_set.into_iter().next().ok_or_else(none)
    }

    fn machines(&self, owner: &str) -> Result<Vec<CloudMachine>, CloudFailure> {
        self.machines_in(owner, &self.regions()?)
    }

    fn machines_in(&self, owner: &str, regions: &BTreeSet<String>) -> Result<Vec<CloudMachine>, CloudFailure> {
        in_regions(regions, |region| self.machines_of(Some(owner), region))
    }

    fn every_machine(&self) -> Result<Vec<CloudMachine>, CloudFailure> {
        in_regions(&self.regions()?, |region| self.machines_of(None, region))
    }

    fn end(&self, place: &MachinePlace) -> Result<(), CloudFailure> {
        #[derive(Deserialize)]
        struct Terminated {}
        let body = json!({ "InstanceIds": [place.handle] }).to_string();
        self.client.ask((TcService::Cvm, "TerminateInstances"), &place.region, &body).map(|Terminated {}| ())
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

    fn start(&self, place: &MachinePlace, _token: &str) -> Result<(), CloudFailure> {
        // Tencent knows no tokens for this; one that is on is not started again.
        self.start_at(place)
    }

    fn end_by(&self, place: &MachinePlace, at: Timestamp) -> Result<(), CloudFailure> {
        self.end_at(place, at)
    }

    fn power(&self, place: &MachinePlace) -> Result<MachinePower, CloudFailure> {
        self.power_at(place)
    }
}
