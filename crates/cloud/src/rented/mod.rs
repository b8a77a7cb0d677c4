//! A provider over any cloud that has an API of its own ([`CloudApi`]): what all of them share.
//!
//! What is asked for is on disk before it is asked ([`rentals`]), a machine that runs is reached as a node ([`reach`]), and it
//! ends itself when nobody attends it any more ([`user_data`]). A cloud lists its machines; what it listed once, and
//! has not listed for two minutes, is gone. Machines carry a name that follows from their owner and from ours
//! ([`machine_name`]), by which they are found again after an answer was lost. AWS, whose API says more than this, has
//! a provider of its own on the same ground.

pub(crate) mod account;
mod api;
pub mod audit;
mod choice;
pub mod kept;
pub(crate) mod key;
pub(crate) mod limits;
mod look;
mod names;
pub mod offers;
pub(crate) mod reach;
pub(crate) mod rentals;
#[cfg(test)]
pub(crate) mod twin;
pub(crate) mod user_data;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use domain::rental::{EndRequest, LaunchRequest, MachineHandle, Refusal};
use domain::wants::{Spot, Wants};
use domain::{InstanceId, Timestamp};

pub use account::rented_elsewhere;
pub use api::{CloudApi, CloudFailure, CloudMachine, LaunchOrder, MachinePlace, MachinePower};
pub(crate) use api::{in_regions, or_denied, resources_in};
pub use choice::MachineChoice;
pub use names::{machine_name, name_prefix};
pub use reach::{ReachSettings, calls_over_tls};
pub use user_data::MIG_PROGRAM;

use crate::aws::wire::query::Params;
use crate::catalog::Catalog;
use crate::provider::{FailedPeer, Provider, ProviderAnswer, ProviderCall, ProviderTraits};
use kept::{KeptMachines, named_machine};
use reach::Reach;
use rentals::{Rental, Rentals};

/// Machines of a cloud.
pub struct Rented<C> {
    home: PathBuf,
    api: C,
    owner: String,
    rentals: Rentals,
    kept: KeptMachines,
    reach: Arc<Reach>,
    clock: fn() -> Timestamp,
    /// Since when lists lack machines that are written down as stopped.
    lacked: Mutex<BTreeMap<String, Timestamp>>,
    /// For each machine, held while it is asked for: a call that was given up and its repetition must not both ask.
    asking: Mutex<BTreeMap<InstanceId, Arc<Mutex<()>>>>,
}

impl<C: CloudApi> Rented<C> {
    /// The machines that `api` may rent.
    pub fn new(home: PathBuf, settings: ReachSettings, api: C) -> Rented<C> {
        Rented::with_clock(home, settings, api, crate::aws::now)
    }

    /// The same with another clock, for tests.
    pub fn with_clock(home: PathBuf, settings: ReachSettings, api: C, clock: fn() -> Timestamp) -> Rented<C> {
        let (rentals, kept) = (Rentals::new(&home, api.name()), KeptMachines::new(&home, api.name()));
        let owner = settings.owner.clone();
        let reach = Arc::new(Reach::new(settings, rentals.clone()));
        Rented { home, api, owner, rentals, kept, reach, clock, lacked: Mutex::default(), asking: Mutex::default() }
    }

    /// What asks the cloud.
    pub fn api(&self) -> &C {
        &self.api
    }

    fn launch(&self, request: &LaunchRequest) -> ProviderAnswer {
        let [instance] = &request.members[..] else {
            return refused("machines are asked for one by one".to_owned());
        };
        if let Some(named) = named_machine(&request.offer.kind) {
            return self.start_kept(request, named);
        }
        let asking = self.asking_of(instance);
        let _one_at_a_time = asking.lock().unwrap_or_else(PoisonError::into_inner);
        let choice = match request.offer.kind.parse::<MachineChoice>() {
            Ok(choice) => choice,
            Err(why) => return refused(why),
        };
        let rental = match self.rental(instance, request, &choice) {
            Ok(rental) => rental,
            Err(answer) => return answer,
        };
        if let Some(handle) = &rental.handle {
            return accepted(instance, handle);
        }
        // In another account the same request would rent a second machine.
        let other = match self.api_of(instance, &rental) {
            Ok(other) => other,
            Err(why) => return ProviderAnswer::Doubt(why),
        };
        let api = other.as_ref().unwrap_or(&self.api);
        // An earlier request may have rented it.
        if rental.unanswered > 0
            && let Some(answer) = self.found(api, instance)
        {
            return answer;
        }
        if let Err(error) = self.count(instance, 1) {
            return ProviderAnswer::Doubt(format!("cannot write down that `{instance}` is asked for: {error}"));
        }
        match api.rent(&choice, &rental.params) {
            Ok(handle) => self.rented(instance, &handle),
            Err(CloudFailure::Exists(said)) => self.found(api, instance).unwrap_or(ProviderAnswer::Doubt(said)),
            Err(failure) => match failure.refusal() {
                None => ProviderAnswer::Doubt(failure.to_string()),
                Some(refusal) => match self.count(instance, -1) {
                    Err(error) => ProviderAnswer::Doubt(format!("cannot write down `{failure}`: {error}")),
                    Ok(0) => ProviderAnswer::Refused(refusal),
                    Ok(_) if matches!(refusal, Refusal::Denied { .. } | Refusal::Invalid { .. }) => {
                        ProviderAnswer::Doubt(format!("{failure}; a request before it may have rented"))
                    }
                    Ok(_) => ProviderAnswer::Refused(refusal),
                },
            },
        }
    }

    fn asking_of(&self, name: &InstanceId) -> Arc<Mutex<()>> {
        let mut all = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(name.clone()).or_default().clone()
    }

    /// What was asked for before, or else what will be: written down before it is asked.
    fn rental(
        &self,
        instance: &InstanceId,
        request: &LaunchRequest,
        choice: &MachineChoice,
    ) -> Result<Rental, ProviderAnswer> {
        if let Some(rental) = self.rentals.asked(instance, &request.token)? {
            return self.reach.require_for(&rental).map(|()| rental);
        }
        let reach = self.reach.wanted()?;
        let here = |error: io::Error| refused(format!("cannot prepare to rent `{}`: {error}", request.offer.kind));
        let key = key::public_key(&self.rentals.shared()).map_err(here)?;
        let name = machine_name(&self.owner, instance);
        let order = LaunchOrder { request, choice, name: &name, owner: &self.owner, public_key: &key };
        let params = self.api.order(&order).map_err(|failure| match failure.refusal() {
            Some(refusal) => ProviderAnswer::Refused(refusal),
            None => ProviderAnswer::Doubt(format!("it could not be asked for now: {failure}")),
        })?;
        let account = self.api.account().map_err(|failure| {
            let why = account::unknown(&failure);
            match failure {
                CloudFailure::Denied(_) => ProviderAnswer::Refused(Refusal::Denied { message: why }),
                _ => ProviderAnswer::Doubt(why),
            }
        })?;
        self.rentals.note_region(&choice.region).map_err(here)?;
        let rental = Rental::new(request.clone(), choice.region.clone(), params);
        let rental = Rental { account, reach, ..rental };
        self.rentals.write(instance, &rental).map_err(here)?;
        Ok(rental)
    }

    /// All machines, where any was ever asked for.
    fn listed(&self, api: &C) -> Result<Vec<CloudMachine>, CloudFailure> {
        let regions = self.rentals.regions();
        let regions = regions.map_err(|error| CloudFailure::Doubt(format!("cannot read which regions: {error}")))?;
        api.machines_in(&self.owner, &regions)
    }

    /// The machine of this name, if the cloud lists one; none where it lists none.
    fn found(&self, api: &C, instance: &InstanceId) -> Option<ProviderAnswer> {
        let name = machine_name(&self.owner, instance);
        match self.listed(api) {
            Ok(machines) => {
                let living = |machine: &&CloudMachine| machine.name == name && !machine.is_gone();
                machines.iter().find(living).map(|machine| self.rented(instance, &machine.handle))
            }
            Err(failure) => Some(ProviderAnswer::Doubt(format!("it is not known whether it was rented: {failure}"))),
        }
    }

    fn rented(&self, instance: &InstanceId, handle: &str) -> ProviderAnswer {
        let now = (self.clock)();
        let known = self.rentals.change(instance, |rental| {
            rental.handle = Some(handle.to_owned());
            rental.unanswered = 0;
            rental.rented.get_or_insert(now);
            true
        });
        match known {
            Ok(_) => accepted(instance, handle),
            Err(error) => ProviderAnswer::Doubt(format!("cannot write down that `{handle}` was rented: {error}")),
        }
    }

    /// Counts a request that is about to be sent, or one that was answered; how many are unanswered now.
    fn count(&self, instance: &InstanceId, more: i32) -> io::Result<u32> {
        let rental = self.rentals.change(instance, |rental| {
            rental.unanswered = rental.unanswered.saturating_add_signed(more);
            true
        })?;
        rental.map(|rental| rental.unanswered).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn end(&self, requests: &[EndRequest]) -> ProviderAnswer {
        let (mut failures, mut listed) = (Vec::new(), None);
        for request in requests {
            if let Err(failure) = self.end_one(request, &mut listed) {
                failures.push(format!("`{}`: {failure}", request.instance));
            }
        }
        match failures.is_empty() {
            true => ProviderAnswer::Ending,
            false => ProviderAnswer::Unavailable(failures.join("; ")),
        }
    }

    fn end_one(&self, request: &EndRequest, listed: &mut Option<Vec<CloudMachine>>) -> Result<(), CloudFailure> {
        let rental = self.rentals.read(&request.instance);
        let rental = rental.map_err(|error| CloudFailure::Doubt(format!("cannot read what it is: {error}")))?;
        if rental.as_ref().is_some_and(|rental| rental.gone.is_some()) {
            return Ok(());
        }
        let other = match &rental {
            // Where it is not known whose the credentials are it is tried: another account has no such machine.
            Some(rental) if self.api.account().is_ok() => {
                self.api_of(&request.instance, rental).map_err(CloudFailure::Denied)?
            }
            _ => None,
        };
        let api = other.as_ref().unwrap_or(&self.api);
        let told = request.handle.as_ref().map(|handle| handle.0.clone());
        let named = told.clone().or_else(|| rental.as_ref().and_then(|rental| rental.handle.clone()));
        if let Some(handle) = &named
            && self.end_kept(api, &request.instance, handle)?
        {
            return Ok(());
        }
        let known = rental.as_ref().and_then(|rental| {
            let kind = rental.request.offer.kind.as_str();
            let kind = named_machine(kind).map_or(kind, |(kind, _)| kind);
            let choice = kind.parse::<MachineChoice>().ok()?;
            let handle = named.clone()?;
            Some(MachinePlace { handle, region: choice.region, zone: choice.zone })
        });
        if let Some(place) = known {
            end_at(api, &place)?;
            // An end that cannot be written down is asked for again.
            let agreed =
                self.rentals.change(&request.instance, |rental| !std::mem::replace(&mut rental.is_ending, true));
            return agreed
                .map(drop)
                .map_err(|error| CloudFailure::Doubt(format!("cannot write down its end: {error}")));
        }
        let of_other = other.as_ref().map(|api| self.listed(api)).transpose()?;
        if of_other.is_none() && listed.is_none() {
            *listed = Some(self.listed(&self.api)?);
        }
        let name = machine_name(&self.owner, &request.instance);
        let is_meant = |machine: &&CloudMachine| {
            !machine.is_gone() && (machine.name == name || told.as_ref() == Some(&machine.handle))
        };
        for machine in of_other.as_ref().or(listed.as_ref()).into_iter().flatten().filter(is_meant) {
            // Another run may have started it again.
            if !self.end_kept(api, &request.instance, &machine.handle)? {
                end_at(api, &machine.place())?;
            }
        }
        Ok(())
    }
}

fn end_at<C: CloudApi>(api: &C, place: &MachinePlace) -> Result<(), CloudFailure> {
    match api.end(place) {
        // Not listed yet, or gone already: the next list shows which.
        Err(CloudFailure::NotFound(_)) => Ok(()),
        other => other,
    }
}

impl<C: CloudApi> Provider for Rented<C> {
    fn name(&self) -> &'static str {
        self.api.name()
    }

    fn traits(&self) -> ProviderTraits {
        self.api.traits()
    }

    fn call(&self, call: &ProviderCall) -> ProviderAnswer {
        match call {
            ProviderCall::Offers => match Catalog::open(&self.home) {
                Ok(catalog) => {
                    let wants = Wants { spot: Spot::Never, ..Wants::default() };
                    ProviderAnswer::Offers(self.api.offers(&catalog, &wants))
                }
                Err(error) => ProviderAnswer::Unavailable(error.to_string()),
            },
            ProviderCall::Launch(request) => self.launch(request),
            ProviderCall::Observe(asked) => self.observe(asked),
            ProviderCall::End(requests) => self.end(requests),
            // What the agent wrote down last is on a disk that is gone with its machine.
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

/// One value of what was written down.
pub(crate) fn value<'a>(params: &'a Params, name: &str) -> &'a str {
    params.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
}

fn accepted(instance: &InstanceId, handle: &str) -> ProviderAnswer {
    ProviderAnswer::Accepted(vec![(instance.clone(), MachineHandle(handle.to_owned()))])
}

fn refused(message: String) -> ProviderAnswer {
    ProviderAnswer::Refused(Refusal::Invalid { message, disk: None })
}
