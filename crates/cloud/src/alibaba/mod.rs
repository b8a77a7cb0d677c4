//! The provider `alibaba`: machines of Alibaba Cloud ECS, on demand and spot, with GPUs of NVIDIA.
//!
//! A machine is one request, `RunInstances`, with the loop's token as `ClientToken`: asked again, the same machine is answered.
//! Machines carry the owner's tag, by which they are listed region by region: the loop looks only where it has rented, an
//! audit everywhere. Alibaba itself releases a machine once its run can need it no longer. Wire-compatible with what Alibaba
//! documents, and never run against the real cloud.

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

use crate::aws::now;
use crate::aws::wire::HttpTransport;
use crate::aws::wire::query::{OWNER_TAG, Params, params};
use crate::catalog::Catalog;
use crate::provider::{BillingRule, ProviderTraits};
use crate::rented::account::CallerAccount;
use crate::rented::audit::resource::{CloudResource, ResourceList};
use crate::rented::offers::{Listable, offers};
use crate::rented::{
    CloudApi, CloudFailure, CloudMachine, LaunchOrder, MachineChoice, MachinePlace, MachinePower, in_regions,
};
use crate::ssh::NodeReach;
use listed::{EcsGroup, GroupsAnswer, InstancesPage, RegionsAnswer, SwitchesAnswer, VpcSwitch};
use order::EcsSite;
use wire::{AcsService, AlibabaClient};

pub use check::{AlibabaReport, policy};
pub use credentials::{AlibabaSource, AlibabaSources, VARIABLES};
pub use order::disk_gib;
pub(crate) use order::disk_kind;
pub use power::has_economical_mode;

/// The provider's name.
pub const NAME: &str = "alibaba";

/// The name of the security group that is looked for in a region, unless the user names another.
const GROUP: &str = "gradus";

/// A machine is listed at once, and rarely later. It installs a driver before it can be reached, and bare metal takes long to
/// boot. Rent is counted by the second. None of these times was measured, and how long a token is known is an assumption.
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

/// What the user may set in `alibaba.json` of a home.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlibabaOptions {
    /// An image, or a family of images, which begins with `acs:`.
    pub image: Option<String>,
    /// A security group for each region; without it, the one called `gradus`.
    pub security_groups: BTreeMap<String, String>,
    /// A vSwitch for each region or zone; without it, one of the network of the security group.
    pub vswitches: BTreeMap<String, String>,
    /// The currency of the account, `USD` or `CNY`, in which the limit of a spot price is stated; dollars without it.
    pub currency: Option<String>,
    /// How agents of its machines reach the loop.
    pub reach: NodeReach,
}

/// A client for ECS.
#[derive(Debug)]
pub struct Alibaba {
    client: AlibabaClient,
    options: AlibabaOptions,
    /// The account of the key, which stays the same.
    account: CallerAccount,
}

/// What `RunInstances` answers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RunAnswer {
    instance_id_sets: RunInstanceIds,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RunInstanceIds {
    instance_id_set: Vec<String>,
}

/// Pages of one list that are read; more is taken for a mistake.
const PAGES: usize = 1000;

impl Alibaba {
    /// A client that sends with `transport`, to `endpoint` where that stands in for Alibaba.
    pub fn new(
        transport: Arc<dyn HttpTransport>,
        endpoint: Option<&str>,
        sources: AlibabaSources,
        options: AlibabaOptions,
    ) -> Alibaba {
        let client = AlibabaClient::new(transport, endpoint, sources);
        Alibaba { client, options, account: CallerAccount::default() }
    }

    /// Carries out an action of ECS that changes nothing.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        action: &str,
        region: &str,
        params: &Params,
    ) -> Result<T, CloudFailure> {
        self.client.ask((AcsService::Ecs, action), region, params)
    }

    /// The regions that the account may use.
    fn regions(&self) -> Result<BTreeSet<String>, CloudFailure> {
        let answer: RegionsAnswer = self.client.ask((AcsService::Ecs, "DescribeRegions"), "", &Params::new())?;
        Ok(answer.regions.region.into_iter().map(|region| region.region_id).collect())
    }

    /// Every machine of a region, or of an owner there.
    fn machines_of(&self, owner: Option<&str>, region: &str) -> Result<Vec<CloudMachine>, CloudFailure> {
        let mut first = params([("RegionId", region), ("MaxResults", "100")]);
        if let Some(owner) = owner {
            first.extend(params([("Tag.1.Key", OWNER_TAG), ("Tag.1.Value", owner)]));
        }
        let (mut found, mut sent) = (Vec::new(), first.clone());
        for _ in 0..PAGES {
            let page: InstancesPage = self.client.ask((AcsService::Ecs, "DescribeInstances"), region, &sent)?;
            found.extend(page.instances.instance.into_iter().map(|instance| instance.machine(region)));
            match page.next_token.filter(|token| !token.is_empty()) {
                Some(token) => {
                    sent.clone_from(&first);
                    sent.push(("NextToken".to_owned(), token));
                }
                None => return Ok(found),
            }
        }
        Err(CloudFailure::Doubt("the list of machines has no end".to_owned()))
    }

    /// The security group of a region, with its network.
    fn group(&self, region: &str) -> Result<EcsGroup, CloudFailure> {
        let named = self.options.security_groups.get(region).map(String::as_str);
        let which = match named {
            Some(id) => ("SecurityGroupId", id),
            None => ("SecurityGroupName", GROUP),
        };
        let sent = params([("RegionId", region), which]);
        let answer: GroupsAnswer = self.client.ask((AcsService::Ecs, "DescribeSecurityGroups"), region, &sent)?;
        let of_network = answer.security_groups.security_group.into_iter().find(|group| !group.vpc_id.is_empty());
        of_network.ok_or_else(|| {
            let name = named.unwrap_or(GROUP);
            let why = format!("there is no security group `{name}` of a VPC in `{region}`");
            CloudFailure::Invalid(format!("{why}; docs/alibaba.md says how it is made"))
        })
    }

    /// The vSwitches of a network (`VpcId`), or one of them (`VSwitchId`), by zone, that have an address left.
    fn switches(&self, region: &str, which: (&str, &str)) -> Result<Vec<VpcSwitch>, CloudFailure> {
        let sent = params([("RegionId", region), which, ("PageSize", "50")]);
        let answer: SwitchesAnswer = self.client.ask((AcsService::Vpc, "DescribeVSwitches"), region, &sent)?;
        let mut switches = answer.v_switches.v_switch;
        switches.retain(|switch| switch.available_ip_address_count > 0);
        switches.sort_by(|one, other| (&one.zone_id, &one.v_switch_id).cmp(&(&other.zone_id, &other.v_switch_id)));
        Ok(switches)
    }

    /// Where a machine is put. A vSwitch is in one zone, and so is the machine.
    fn site(&self, choice: &MachineChoice) -> Result<EcsSite, CloudFailure> {
        let region = choice.region.as_str();
        let group = self.group(region)?;
        let named = choice.zone.as_ref().and_then(|zone| self.options.vswitches.get(zone));
        let which = match named.or_else(|| self.options.vswitches.get(region)) {
            Some(vswitch) => ("VSwitchId", vswitch.as_str()),
            None => ("VpcId", group.vpc_id.as_str()),
        };
        let is_meant = |switch: &VpcSwitch| choice.zone.as_ref().is_none_or(|zone| *zone == switch.zone_id);
        let vswitch = self.switches(region, which)?.into_iter().find(is_meant);
        let vswitch = vswitch.ok_or_else(|| {
            let place = choice.zone.as_deref().unwrap_or(region);
            let why = match which {
                ("VpcId", network) => format!("`{network}` has no vSwitch with a free address in `{place}`"),
                (_, vswitch) => format!("`{vswitch}` is not in `{place}`, or has no free address"),
            };
            CloudFailure::Invalid(format!("{why}; docs/alibaba.md says how one is made"))
        })?;
        Ok(EcsSite { group: group.security_group_id, vswitch: vswitch.v_switch_id, zone: vswitch.zone_id })
    }

    /// The zones of a region in which the network has a vSwitch; none where the user has named one for the region.
    ///
    /// # Errors
    /// [`CloudFailure`].
    pub fn zones(&self, region: &str) -> Result<Vec<String>, CloudFailure> {
        if self.options.vswitches.contains_key(region) {
            return Ok(Vec::new());
        }
        let group = self.group(region)?;
        let mut zones: Vec<String> =
            self.switches(region, ("VpcId", &group.vpc_id))?.into_iter().map(|switch| switch.zone_id).collect();
        zones.dedup();
        Ok(zones)
    }
}

impl CloudApi for Alibaba {
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
        // Its price list says nothing of machines, so that where they are is not known. Processors of gn7r are ARM.
        let (cloud, leaves_out) = (Cloud::Alibaba, &["ecs.gn7r-"][..]);
        let disk = BootDisk::ALIBABA.least_work;
        offers(catalog, wants, &Listable { cloud, provider: NAME, disk, leaves_out, is_confirmed: false })
    }

    fn order(&self, order: &LaunchOrder<'_>) -> Result<Params, CloudFailure> {
        order::run_instances(order, &self.site(order.choice)?, &self.options, now())
    }

    fn rent(&self, choice: &MachineChoice, params: &Params) -> Result<String, CloudFailure> {
        let answer: RunAnswer = self.client.ask((AcsService::Ecs, "RunInstances"), &choice.region, params)?;
        let none = || CloudFailure::Doubt("Alibaba Cloud has accepted a request without naming a machine".to_owned());
        answer.instance_id_sets.instance_id_set.into_iter().next().ok_or_else(none)
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
        struct Deleted {}
        let sent = params([("InstanceId", &place.handle), ("Force", "true")]);
        self.client.ask((AcsService::Ecs, "DeleteInstance"), &place.region, &sent).map(|Deleted {}| ())
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
        // Alibaba knows no tokens for this; one that is on is not started again.
        self.start_at(place)
    }

    fn end_by(&self, place: &MachinePlace, at: Timestamp) -> Result<(), CloudFailure> {
        self.end_at(place, at)
    }

    fn power(&self, place: &MachinePlace) -> Result<MachinePower, CloudFailure> {
        self.power_at(place)
    }
}
