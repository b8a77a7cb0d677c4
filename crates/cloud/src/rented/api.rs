//! What a cloud's API must be able to do, and what an error of it proves.

use std::collections::BTreeSet;

use domain::rental::{LaunchRequest, MachineState, Refusal};
use domain::wants::Wants;
use domain::{Offer, Timestamp};

use super::MachineChoice;
use super::audit::resource::{CloudResource, ResourceKind, ResourceList};
use crate::aws::wire::query::Params;
use crate::catalog::Catalog;
use crate::provider::ProviderTraits;

/// The API of a cloud. It asks once and tries nothing again: that is decided by the loop.
pub trait CloudApi: Send + Sync {
    /// The provider's name.
    fn name(&self) -> &'static str;

    /// The account in which machines are rented and listed, such as a project; none where the cloud does not say.
    ///
    /// # Errors
    /// [`CloudFailure`] of a cloud that has to be asked and does not answer: then it is not known which account it is.
    fn account(&self) -> Result<Option<String>, CloudFailure> {
        Ok(None)
    }

    /// The same API for another account, with the same credentials; none where an account has credentials of its own.
    fn of_account(&self, _account: &str) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// What the cloud promises about time.
    fn traits(&self) -> ProviderTraits;

    /// What of the catalog can be rented there, the cheapest first.
    fn offers(&self, catalog: &Catalog, wants: &Wants) -> Vec<Offer>;

    /// What will be sent. Nothing is rented by this; it is written down, and the same is sent again.
    ///
    /// # Errors
    /// [`CloudFailure`].
    fn order(&self, order: &LaunchOrder<'_>) -> Result<Params, CloudFailure>;

    /// Rents; the cloud's name of the machine.
    ///
    /// # Errors
    /// [`CloudFailure`], which says whether anything may have been rented.
    fn rent(&self, choice: &MachineChoice, params: &Params) -> Result<String, CloudFailure>;

    /// Every machine of an owner, in all regions: all that the cloud lists, or an error.
    ///
    /// # Errors
    /// [`CloudFailure`].
    fn machines(&self, owner: &str) -> Result<Vec<CloudMachine>, CloudFailure>;

    /// Every machine of the account, in all regions, whoever rented it.
    ///
    /// # Errors
    /// [`CloudFailure`].
    fn every_machine(&self) -> Result<Vec<CloudMachine>, CloudFailure>;

    /// Every machine of an owner in these regions, and maybe others: a cloud that lists region by region is asked only
    /// where anything can be.
    ///
    /// # Errors
    /// [`CloudFailure`].
    fn machines_in(&self, owner: &str, _regions: &BTreeSet<String>) -> Result<Vec<CloudMachine>, CloudFailure> {
        self.machines(owner)
    }

    /// Ends a machine; asked again it does no harm.
    ///
    /// # Errors
    /// [`CloudFailure`].
    fn end(&self, place: &MachinePlace) -> Result<(), CloudFailure>;

    /// The tag of an owner, as it stands on what is his there.
    fn owner_tag(&self, owner: &str) -> String {
        owner.to_owned()
    }

    /// What there is beside machines of an owner, in all regions: disks, addresses, interfaces, snapshots and images. With
    /// `lists_all` what of that costs money of everybody in the account, and what the owner's machines share.
    fn resources(&self, _owner: &str, _lists_all: bool) -> ResourceList {
        ResourceList::default()
    }

    /// Deletes such a resource; asked again it does no harm. That it was begun is enough.
    ///
    /// # Errors
    /// [`CloudFailure`]; what something has must be refused.
    fn end_resource(&self, resource: &CloudResource) -> Result<(), CloudFailure> {
        let (name, noun) = (self.name(), resource.kind.noun());
        Err(CloudFailure::Invalid(format!("gradus deletes no {noun} of `{name}`")))
    }

    /// Stops a machine and keeps its disk; asked again it does no harm. That it was begun is enough.
    ///
    /// # Errors
    /// [`CloudFailure`]; [`CloudFailure::Invalid`] of a cloud whose machines are not stopped from here.
    fn stop(&self, _place: &MachinePlace) -> Result<(), CloudFailure> {
        Err(not_stopped(self.name()))
    }

    /// Starts a stopped machine. `token` is the same when the same start is asked for again.
    ///
    /// # Errors
    /// [`CloudFailure`], which says whether it may have been started.
    fn start(&self, _place: &MachinePlace, _token: &str) -> Result<(), CloudFailure> {
        Err(not_stopped(self.name()))
    }

    /// Has the cloud itself end a machine that was stopped and started again, whatever becomes of us; asked again it does no
    /// harm. Nothing where the cloud cannot, or where stopping it has not taken that back.
    ///
    /// # Errors
    /// [`CloudFailure`].
    fn end_by(&self, _place: &MachinePlace, _at: Timestamp) -> Result<(), CloudFailure> {
        Ok(())
    }

    /// Whether a machine is on, off, or on its way.
    ///
    /// # Errors
    /// [`CloudFailure`]; [`CloudFailure::NotFound`] where there is no such machine.
    fn power(&self, _place: &MachinePlace) -> Result<MachinePower, CloudFailure> {
        Err(not_stopped(self.name()))
    }
}

fn not_stopped(name: &str) -> CloudFailure {
    CloudFailure::Invalid(format!("machines of `{name}` cannot be stopped and started"))
}

/// Whether a machine that may be stopped is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachinePower {
    Starting,
    /// It is paid for, whether its system runs or not.
    On,
    Stopping,
    /// Only its disk is paid for, since then where the cloud says so.
    Off(Option<Timestamp>),
}

/// A machine that is to be rented.
#[derive(Debug, Clone, Copy)]
pub struct LaunchOrder<'a> {
    pub request: &'a LaunchRequest,
    pub choice: &'a MachineChoice,
    /// What it is called at the cloud.
    pub name: &'a str,
    pub owner: &'a str,
    /// Who may enter it.
    pub public_key: &'a str,
}

/// A machine as a cloud lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudMachine {
    /// The cloud's name of it.
    pub handle: String,
    /// The name that it was given.
    pub name: String,
    pub region: String,
    pub zone: Option<String>,
    /// The cloud's name of its type.
    pub machine: String,
    pub is_spot: bool,
    pub state: MachineState,
    /// The address at which it is reached.
    pub address: Option<String>,
    /// When its rent began, where the cloud says so.
    pub started: Option<Timestamp>,
    /// When it ended, where it has and the cloud says so.
    pub ended: Option<Timestamp>,
}

impl CloudMachine {
    /// Whether nothing of it is left.
    pub fn is_gone(&self) -> bool {
        matches!(self.state, MachineState::Gone(_))
    }

    /// Where it is.
    pub fn place(&self) -> MachinePlace {
        MachinePlace { handle: self.handle.clone(), region: self.region.clone(), zone: self.zone.clone() }
    }
}

/// Which machine, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachinePlace {
    pub handle: String,
    pub region: String,
    pub zone: Option<String>,
}

/// Why a cloud did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudFailure {
    /// No such machine is free there now.
    Capacity(String),
    /// The account may not have more of these.
    Quota(String),
    /// Too many requests.
    Throttled(String),
    /// The credentials are missing, not accepted, or do not allow it.
    Denied(String),
    /// There is a machine of this name already.
    Exists(String),
    /// There is no such thing.
    NotFound(String),
    /// The request cannot be carried out as it is.
    Invalid(String),
    /// Whether it was carried out is not known.
    Doubt(String),
}

impl CloudFailure {
    /// What a failed launch proves; none where it proves nothing.
    pub fn refusal(&self) -> Option<Refusal> {
        let message = self.to_string();
        match self {
            CloudFailure::Capacity(_) => Some(Refusal::Capacity { message }),
            CloudFailure::Quota(_) => Some(Refusal::Quota { message }),
            CloudFailure::Throttled(_) => Some(Refusal::Throttled { after: None }),
            CloudFailure::Denied(_) => Some(Refusal::Denied { message }),
            CloudFailure::NotFound(_) | CloudFailure::Invalid(_) => Some(Refusal::Invalid { message, disk: None }),
            CloudFailure::Exists(_) | CloudFailure::Doubt(_) => None,
        }
    }
}

impl std::fmt::Display for CloudFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CloudFailure::Capacity(said)
            | CloudFailure::Quota(said)
            | CloudFailure::Throttled(said)
            | CloudFailure::Denied(said)
            | CloudFailure::Exists(said)
            | CloudFailure::NotFound(said)
            | CloudFailure::Invalid(said)
            | CloudFailure::Doubt(said) => formatter.write_str(said),
        }
    }
}

/// The machines of several regions, which are looked at at once: all of them, or an error.
pub(crate) fn in_regions(
    regions: &BTreeSet<String>,
    look: impl Fn(&str) -> Result<Vec<CloudMachine>, CloudFailure> + Sync,
) -> Result<Vec<CloudMachine>, CloudFailure> {
    let look = &look;
    let lists: Vec<Result<Vec<CloudMachine>, CloudFailure>> = std::thread::scope(|scope| {
        let looks: Vec<_> = regions.iter().map(|region| scope.spawn(move || look(region))).collect();
        let broken = |_| Err(CloudFailure::Doubt("the look has ended early".to_owned()));
        looks.into_iter().map(|look| look.join().unwrap_or_else(broken)).collect()
    });
    let mut found = Vec::new();
    for (region, list) in regions.iter().zip(lists) {
        match list {
            Ok(machines) => found.extend(machines),
            Err(CloudFailure::Denied(why)) => return Err(CloudFailure::Denied(why)),
            // What is in a region that cannot be looked at is not known.
            Err(failure) => return Err(CloudFailure::Doubt(format!("could not look at `{region}`: {failure}"))),
        }
    }
    Ok(found)
}

/// The resources of these kinds in several regions, which are looked at at once.
pub(crate) fn resources_in(
    regions: Result<BTreeSet<String>, CloudFailure>,
    kinds: &[ResourceKind],
    list: impl Fn(ResourceKind, &str) -> Result<Vec<CloudResource>, CloudFailure> + Sync,
) -> ResourceList {
    let mut all = ResourceList::default();
    let regions = match regions {
        Ok(regions) => regions,
        Err(failure) => {
            kinds.iter().for_each(|kind| all.add(*kind, "every region", Err(&failure)));
            return all;
        }
    };
    let list = &list;
    let answers: Vec<Vec<Result<Vec<CloudResource>, CloudFailure>>> = std::thread::scope(|scope| {
        let each = |region| move || kinds.iter().map(|kind| list(*kind, region)).collect::<Vec<_>>();
        let looks: Vec<_> = regions.iter().map(|region| scope.spawn(each(region.as_str()))).collect();
        let lost = || Err(CloudFailure::Doubt("the look has ended early".to_owned()));
        let broken = |_| kinds.iter().map(|_| lost()).collect::<Vec<_>>();
        looks.into_iter().map(|look| look.join().unwrap_or_else(broken)).collect()
    });
    for (region, answers) in regions.iter().zip(answers) {
        kinds.iter().zip(answers).for_each(|(kind, answer)| all.add(*kind, region, answer));
    }
    all
}

/// What was answered; none where the action was denied, which is written down, or refused for another reason.
pub(crate) fn or_denied<T>(
    tried: Result<T, CloudFailure>,
    permission: &'static str,
    missing: &mut Vec<&'static str>,
) -> Result<Option<T>, CloudFailure> {
    match tried {
        Ok(answer) => Ok(Some(answer)),
        Err(CloudFailure::Denied(_)) => {
            missing.push(permission);
            Ok(None)
        }
        // It does not say whether the action is allowed.
        Err(failure @ (CloudFailure::Doubt(_) | CloudFailure::Throttled(_))) => Err(failure),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_denial_is_a_missing_permission() {
        let check = |failure: CloudFailure, expected: Result<&[&str], ()>| {
            let mut missing = Vec::new();
            let found = or_denied(Err::<(), _>(failure), "RunInstances", &mut missing);
            assert_eq!(found.map(|_| &missing[..]).map_err(drop), expected);
        };
        check(CloudFailure::Denied("m".into()), Ok(&["RunInstances"]));
        check(CloudFailure::Invalid("DryRunOperation: m".into()), Ok(&[]));
        check(CloudFailure::NotFound("m".into()), Ok(&[]));
        check(CloudFailure::Doubt("m".into()), Err(()));
        check(CloudFailure::Throttled("m".into()), Err(()));
    }
}
