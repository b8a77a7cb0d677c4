//! Calls to the provider of this machine.

use std::io;
use std::time::{Duration, Instant};

use domain::rental::{DiskFault, MachineHandle, MachineState, ProviderView, Refusal, SeenMachine};
use domain::wire::Entry;
use domain::{Elapsed, InstanceId, Offer};
use node::{Folder, processes};

use super::{Local, NAME, existing, machine};
use crate::provider::{
    BillingRule, Error, LaunchError, LaunchRequest, Provider, ProviderAnswer, ProviderCall, ProviderTraits, Sight,
};

/// A folder is there when it was made, and an agent calls within a second even on a busy machine.
const TRAITS: ProviderTraits = ProviderTraits {
    visible_within: Elapsed(0),
    effective_within: Elapsed(0),
    boots_within: Elapsed(120_000_000),
    token_lifetime: Some(Elapsed(u64::MAX)),
    observe_every: Elapsed(20_000),
    rents_together: false,
    billing: BillingRule::EXACT,
    places: None,
    abandoned_within: None,
    keeps_events: true,
    concurrency: 8,
};

/// Interval between two scans of all processes for unknown machines.
const STRANGERS: Duration = Duration::from_secs(60);

impl Local {
    /// The offer: this machine.
    ///
    /// # Errors
    /// [`Error`] if the kernel does not report its hardware.
    pub fn offers(&self) -> Result<Vec<Offer>, Error> {
        let home = existing(&self.settings.home);
        let node = machine::node(home).map_err(self.error("look at this machine".into()))?;
        Ok(vec![Offer {
            provider: NAME.into(),
            kind: "this-machine".into(),
            node,
            rate: self.settings.rate,
            price_source: self.settings.price_source.clone(),
        }])
    }

    /// Starts an agent for each member, unless one was started before.
    ///
    /// # Errors
    /// [`LaunchError`] says whether one may have been.
    pub fn launch(&self, request: &LaunchRequest) -> Result<(), LaunchError> {
        request.members.iter().try_for_each(|instance| {
            let error = self.error(format!("start an agent for `{instance}`"));
            self.try_launch(instance, request).map_err(|source| match self.try_sight(instance) {
                _ if source.kind() == io::ErrorKind::WouldBlock => LaunchError::InDoubt(error(source)),
                // An earlier request, before a crash, may have succeeded.
                Ok(Sight::Unknown | Sight::Gone(None)) => LaunchError::Refused(error(source)),
                Ok(Sight::Alive | Sight::Gone(Some(_))) | Err(_) => LaunchError::InDoubt(error(source)),
            })
        })
    }

    /// The view of an instance. Remaining processes of a dead agent are ended here.
    ///
    /// # Errors
    /// [`Error`] if its folder or its processes cannot be read.
    pub fn sight(&self, instance: &InstanceId) -> Result<Sight, Error> {
        self.try_sight(instance).map_err(self.error(format!("look for `{instance}`")))
    }

    /// Tells the agent of an instance to end, and kills its remaining processes after a while. To be repeated until
    /// [`Local::sight`] reports it as gone.
    ///
    /// # Errors
    /// [`Error`] if its processes cannot be read.
    pub fn release(&self, instance: &InstanceId) -> Result<(), Error> {
        self.try_release(instance).map_err(self.error(format!("end `{instance}`")))
    }

    /// The last events recorded by the agent of an instance, oldest first.
    ///
    /// # Errors
    /// [`Error`] if its spool cannot be read.
    pub fn last_events(&self, instance: &InstanceId) -> Result<Vec<Entry>, Error> {
        let entries = Folder::new(self.folder(instance)).unacknowledged();
        entries.map_err(self.error(format!("read the last events of `{instance}`")))
    }

    /// Every instance of this owner of which a process runs.
    ///
    /// # Errors
    /// [`Error`] when processes cannot be listed.
    pub fn list(&self) -> Result<Vec<InstanceId>, Error> {
        let names = processes::values(&[(processes::OWNER, &self.settings.owner)], processes::INSTANCE);
        let names = names.map_err(self.error("list processes".into()))?;
        Ok(names.into_iter().map(InstanceId::new).collect())
    }

    fn observe(&self, asked: &[InstanceId]) -> ProviderView {
        let mut view = ProviderView { is_complete: true, machines: Vec::new(), unseen: Vec::new() };
        for instance in asked {
            let state = match self.sight(instance) {
                Ok(Sight::Unknown) => continue,
                Ok(Sight::Alive) => MachineState::Running,
                Ok(Sight::Gone(usage)) => MachineState::Gone(usage),
                Err(_) => {
                    view.is_complete = false;
                    continue;
                }
            };
            view.machines.push(seen(instance, state));
        }
        let strangers = self.strangers().into_iter().filter(|instance| !asked.contains(instance));
        view.machines.extend(strangers.map(|instance| seen(&instance, MachineState::Running)));
        view
    }

    /// Every running instance of this owner; scans all processes, so at most once a minute.
    fn strangers(&self) -> Vec<InstanceId> {
        let mut looked = self.looked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if looked.is_some_and(|at| at.elapsed() < STRANGERS) {
            return Vec::new();
        }
        *looked = Some(Instant::now());
        self.list().unwrap_or_default()
    }
}

/// An instance here has one name for both sides.
fn seen(instance: &InstanceId, state: MachineState) -> SeenMachine {
    SeenMachine { handle: MachineHandle(instance.to_string()), instance: instance.clone(), state, notice: None }
}

impl Provider for Local {
    fn name(&self) -> &'static str {
        NAME
    }

    fn traits(&self) -> ProviderTraits {
        TRAITS
    }

    fn call(&self, call: &ProviderCall) -> ProviderAnswer {
        let unavailable = |error: Error| ProviderAnswer::Unavailable(error.chain());
        match call {
            ProviderCall::Offers => self.offers().map_or_else(unavailable, ProviderAnswer::Offers),
            ProviderCall::Launch(request) => match self.launch(request) {
                Ok(()) => {
                    let handle = |instance: &InstanceId| (instance.clone(), MachineHandle(instance.to_string()));
                    ProviderAnswer::Accepted(request.members.iter().map(handle).collect())
                }
                Err(LaunchError::Refused(error)) => {
                    let disk = disk_fault(&error.source);
                    ProviderAnswer::Refused(Refusal::Invalid { message: error.chain(), disk })
                }
                Err(LaunchError::InDoubt(error)) => ProviderAnswer::Doubt(error.chain()),
            },
            ProviderCall::Observe(asked) => ProviderAnswer::Observed(self.observe(asked)),
            ProviderCall::End(requests) => {
                let ended = requests.iter().try_for_each(|request| self.release(&request.instance));
                ended.map_or_else(unavailable, |()| ProviderAnswer::Ending)
            }
            ProviderCall::LastEvents(instance) => {
                self.last_events(instance).map_or_else(unavailable, ProviderAnswer::LastEvents)
            }
        }
    }
}

/// A full or read-only disk is the same at the next request; anything else may not be.
fn disk_fault(error: &io::Error) -> Option<DiskFault> {
    match error.kind() {
        io::ErrorKind::StorageFull => Some(DiskFault::Full),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Some(DiskFault::ReadOnly),
        _ => None,
    }
}
