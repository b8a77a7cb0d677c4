//! The provider `aws`: machines of Amazon EC2, rented when they are needed.
//!
//! A launch is one `RunInstances` with the intent's token, whose parameters are on disk before it is sent
//! ([`order`]). A look is one `DescribeInstances` per region, by the tag of the owner ([`look`]). A machine that runs is
//! reached as a node, by SSH. [`user_data`](crate::rented) ends a machine that nobody attends any more. What AWS says, and what
//! an error of it proves, is in [`wire`].

mod account;
mod audit;
mod bid;
mod check;
mod client;
pub mod credentials;
mod end;
mod kept;
mod launch;
mod look;
mod offers;
mod order;
mod site;
pub mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use domain::listing::Cloud;
use domain::rental::{LaunchRequest, MachineState, ProviderView, SeenMachine};
use domain::wants::{Spot, Wants};
use domain::{Elapsed, InstanceId, Rate};
use serde::Deserialize;

use crate::catalog::Catalog;
use crate::provider::{BillingRule, FailedPeer, Provider, ProviderAnswer, ProviderCall, ProviderTraits};

pub use crate::rented::{MachineChoice, ReachSettings};
pub use audit::Auditor;
pub use check::{CheckReport, Permission, check, policy};
pub use client::{Client, now};
pub(crate) use look::is_name;
pub use offers::{disk_rate, offers, with_disk};
pub(crate) use order::base64;
pub use site::{Addresses, zones};

use crate::rented::audit::rate;
use crate::rented::kept::KeptMachines;
use crate::rented::reach::Reach;
use crate::rented::rentals::{self, Rentals};
use crate::ssh::NodeReach;
use wire::answers::ListedMachine;
use wire::failure::AwsFailure;

/// The provider's name.
pub const NAME: &str = "aws";

/// AWS lists a new machine within seconds and rarely within minutes; booting is followed by a copy of half a gigabyte.
/// A token is valid for a day after the end of its machine.
const TRAITS: ProviderTraits = ProviderTraits {
    visible_within: Elapsed(300_000_000),
    effective_within: Elapsed(120_000_000),
    boots_within: Elapsed(1_200_000_000),
    token_lifetime: Some(Elapsed(86_400_000_000)),
    observe_every: Elapsed(5_000_000),
    rents_together: true,
    billing: BillingRule { step: Elapsed(1_000_000), least: Elapsed(60_000_000) },
    places: None,
    abandoned_within: None,
    keeps_events: false,
    concurrency: 8,
};

/// User settings in `aws.json` of a home.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AwsOptions {
    /// An image, `ami-…`, or the public parameter that names one.
    pub image: Option<String>,
    /// A subnet for each region; without one it follows from the addresses that machines have.
    pub subnets: BTreeMap<String, String>,
    /// Which addresses machines have; without it private ones where this machine is in the same network and a subnet there has
    /// a way out, or else public ones.
    pub addresses: Option<Addresses>,
    /// Capacity that the account has reserved, `cr-…`, for machines on demand of its types and zones.
    pub reservations: Vec<String>,
    /// The addresses that machines let in by SSH, such as `192.0.2.1/32`.
    pub ssh_from: Option<String>,
    /// Configuration of `ssh` that is read before ours, such as for a jump host.
    pub ssh_config: Option<PathBuf>,
    /// How agents of its machines reach the loop.
    pub reach: NodeReach,
}

/// Settings of the provider.
#[derive(Debug, Clone)]
pub struct AwsSettings {
    /// The folder of all state here, absolute.
    pub home: PathBuf,
    pub options: AwsOptions,
    pub reach: ReachSettings,
}

/// Machines of EC2.
#[derive(Debug)]
pub struct Aws {
    settings: AwsSettings,
    client: Client,
    rentals: Rentals,
    kept: KeptMachines,
    reach: Arc<Reach>,
    /// For each region, held while a launch there is prepared, so that two do not make the same group or request.
    preparing: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    /// Held while the key is made, or the list of regions changed.
    sharing: Mutex<()>,
}

impl Aws {
    /// The machines that `client` may rent.
    pub fn new(settings: AwsSettings, client: Client) -> Aws {
        let rentals = Rentals::new(&settings.home, NAME);
        let reach = Arc::new(Reach::new(settings.reach.clone(), rentals.clone()));
        let kept = KeptMachines::new(&settings.home, NAME);
        Aws { settings, client, rentals, kept, reach, preparing: Mutex::default(), sharing: Mutex::default() }
    }

    fn owner(&self) -> &str {
        &self.settings.reach.owner
    }

    /// What is held while a launch in this region is prepared.
    fn preparing(&self, region: &str) -> Arc<Mutex<()>> {
        let mut regions = self.preparing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        regions.entry(region.to_owned()).or_default().clone()
    }

    /// What AWS may charge for a spot machine of this request, whose rate and limit hold its disk too.
    fn bid(&self, request: &LaunchRequest, choice: &MachineChoice) -> Rate {
        let offer = &request.offer;
        let catalog = Catalog::open(&self.settings.home).ok();
        let disk = catalog.as_ref().map(|catalog| disk_rate(catalog, Some(&choice.region), &offer.node));
        let disk = disk.unwrap_or_default().micros_per_hour();
        let machine = |rate: Rate| Rate::from_micros_per_hour(rate.micros_per_hour().saturating_sub(disk));
        let on_demand = catalog.and_then(|catalog| rate(&catalog, &Cloud::Aws, &choice.region, &choice.machine, false));
        bid::bid(machine(offer.rate), on_demand, request.price_cap.map(machine))
    }

    /// Looks at all regions in which anything was asked for, at the same time.
    fn observe(&self, asked: &[InstanceId]) -> ProviderAnswer {
        let mut regions = match self.rentals.regions() {
            Ok(regions) => regions,
            Err(error) => return ProviderAnswer::Unavailable(format!("cannot read `aws/regions`: {error}")),
        };
        let mut view = ProviderView { is_complete: true, machines: Vec::new(), unseen: Vec::new() };
        let mut rented = Vec::new();
        // AWS forgets machines that are gone, but we do not.
        for instance in asked {
            match self.rentals.read(instance) {
                Ok(Some(rental)) => {
                    if let (Some(usage), Some(handle)) = (rental.gone, &rental.handle) {
                        view.machines.push(look::gone(instance, handle, usage));
                    }
                    regions.insert(rental.region.clone());
                    rented.push((instance.clone(), rental));
                }
                Ok(None) => {}
                Err(_) => view.is_complete = false,
            }
        }
        let answers: Vec<Result<Vec<ListedMachine>, AwsFailure>> = std::thread::scope(|scope| {
            let look = |region| scope.spawn(move || self.client.machines(region, self.owner(), None));
            let threads: Vec<_> = regions.iter().map(|region| look(region.as_str())).collect();
            let lost = |_| Err(AwsFailure::Doubt("it could not be asked".to_owned()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
        });
        let mut reasons = Vec::new();
        for (region, answer) in regions.iter().zip(answers) {
            match answer {
                Ok(machines) => machines.iter().for_each(|machine| self.take(machine, asked, &mut view)),
                Err(failure) => reasons.push(format!("{region}: {failure}")),
            }
        }
        if !reasons.is_empty() {
            // A view cannot carry the error, and it is not fatal.
            let _ =
                rentals::replace(&self.rentals.shared(), "unseen.log", format!("{}\n", reasons.join("\n")).as_bytes());
        }
        if !reasons.is_empty() && reasons.len() == regions.len() {
            return ProviderAnswer::Unavailable(reasons.join("; "));
        }
        view.is_complete &= reasons.is_empty();
        view.unseen.extend(reasons.into_iter().map(|reason| format!("could not look at {reason}")));
        self.note_elsewhere(&rented, &mut view);
        ProviderAnswer::Observed(view)
    }

    /// Adds a listed machine to the view, and ensures that it has an agent.
    fn take(&self, machine: &ListedMachine, asked: &[InstanceId], view: &mut ProviderView) {
        let Some(seen) = look::seen(machine, client::now()) else { return };
        let seen = match self.as_kept(machine, seen) {
            Ok(Some(seen)) => seen,
            Ok(None) => return,
            Err(_) => {
                view.is_complete = false;
                return;
            }
        };
        if view.machines.iter().any(|other| other.handle == seen.handle) {
            return;
        }
        let is_asked = asked.contains(&seen.instance);
        match seen.state {
            MachineState::Gone(usage) => {
                self.reach.forget(&seen.instance);
                if !is_asked {
                    return;
                }
                // An unrecorded usage could differ in the next view.
                if self.note_gone(&seen, usage).is_err() {
                    view.is_complete = false;
                    return;
                }
            }
            MachineState::Running if is_asked => self.attend(machine, &seen),
            MachineState::Running | MachineState::Pending | MachineState::Ending => {}
        }
        view.machines.push(seen);
    }

    fn attend(&self, machine: &ListedMachine, seen: &SeenMachine) {
        let rental = self.rentals.read(&seen.instance).ok().flatten();
        if let (Some(rental), Some(address)) = (rental, machine.address()) {
            self.learn_account(&seen.instance, &rental);
            self.reach.attend(&rental, &seen.handle, address);
        }
    }

    fn note_gone(&self, seen: &SeenMachine, usage: Option<domain::run::Usage>) -> std::io::Result<()> {
        let changed = self.rentals.change(&seen.instance, |rental| {
            let is_other = rental.handle.as_ref().is_some_and(|handle| *handle != seen.handle.0);
            if rental.gone.is_some() || usage.is_none() || is_other {
                return false;
            }
            rental.gone = usage;
            rental.handle = Some(seen.handle.0.clone());
            true
        });
        changed.map(drop)
    }
}

impl Provider for Aws {
    fn name(&self) -> &'static str {
        NAME
    }

    fn traits(&self) -> ProviderTraits {
        TRAITS
    }

    fn call(&self, call: &ProviderCall) -> ProviderAnswer {
        match call {
            ProviderCall::Offers => match Catalog::open(&self.settings.home) {
                Ok(catalog) => {
                    ProviderAnswer::Offers(offers(&catalog, &Wants { spot: Spot::Never, ..Wants::default() }))
                }
                Err(error) => ProviderAnswer::Unavailable(error.to_string()),
            },
            ProviderCall::Launch(request) => self.launch(request),
            ProviderCall::Observe(asked) => self.observe(asked),
            ProviderCall::End(requests) => self.end(requests),
            // The agent's last events were on a disk that is gone with its machine.
            ProviderCall::LastEvents(_) => ProviderAnswer::LastEvents(Vec::new()),
        }
    }

    fn account_of(&self, instance: &InstanceId) -> Option<String> {
        self.rentals.read(instance).ok().flatten()?.account
    }

    fn take_failed_peers(&self, instance: &InstanceId) -> Vec<FailedPeer> {
        self.reach.take_failed_peers(instance)
    }
}

#[cfg(test)]
mod tests {
    use super::wire::scripted::{Script, aws, error, reply};
    use super::*;

    #[test]
    fn a_region_that_could_not_be_looked_at_is_named() {
        let home = tempfile::tempdir().unwrap();
        let check = |answering: &'static str, expected: &str| {
            let script = Script::new(move |asked| match asked.starts_with(answering) {
                true => Ok(reply(200, "<R/>")),
                false => Ok(error("RequestLimitExceeded")),
            });
            let aws = aws(home.path(), script);
            aws.rentals.note_region("us-east-1").unwrap();
            aws.rentals.note_region("eu-west-1").unwrap();
            let answer = match aws.observe(&[]) {
                ProviderAnswer::Observed(view) => format!("complete: {}", view.is_complete),
                ProviderAnswer::Unavailable(why) => why,
                other => panic!("{other:?}"),
            };
            let log = std::fs::read_to_string(home.path().join("aws/unseen.log")).unwrap_or_default();
            assert_eq!(format!("{answer} / {}", log.trim_end().replace('\n', ", ")), expected);
        };
        check("", "complete: true / ");
        check("us-east-1", "complete: false / eu-west-1: RequestLimitExceeded");
        let both = "eu-west-1: RequestLimitExceeded; us-east-1: RequestLimitExceeded";
        check("nowhere", &format!("{both} / {}", both.replace("; ", ", ")));
    }
}
