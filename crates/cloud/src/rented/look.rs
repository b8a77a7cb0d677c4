//! What a cloud lists, and what is concluded from what it does not: each machine in the account in which it was rented.

use std::collections::BTreeMap;
use std::io;

use domain::rental::{MachineHandle, MachineState, ProviderView, SeenMachine};
use domain::run::Usage;
use domain::{Elapsed, InstanceId, Timestamp};

use super::account::{elsewhere, unknown};
use super::rentals::Absence;
use super::{CloudApi, CloudFailure, CloudMachine, Rented, machine_name};
use crate::provider::ProviderAnswer;

/// How long a machine must be missing in a cloud's lists to be gone.
pub(super) const MISSED: Elapsed = Elapsed(120_000_000);

impl<C: CloudApi> Rented<C> {
    /// What the cloud sees of these machines, and which others of the owner it lists.
    pub(super) fn observe(&self, asked: &[InstanceId]) -> ProviderAnswer {
        let mut view = ProviderView { is_complete: true, machines: Vec::new(), unseen: Vec::new() };
        // A home that never prepared to rent there has nothing there, whatever credentials are set.
        if asked.is_empty() && !self.rentals.shared().exists() {
            return ProviderAnswer::Observed(view);
        }
        let names: BTreeMap<String, &InstanceId> =
            asked.iter().map(|instance| (machine_name(&self.owner, instance), instance)).collect();
        let now = self.api.account();
        let accounts = self.by_account(asked, &now);
        for (account, asked) in &accounts {
            if let Err(why) = self.look(account.as_deref(), (asked.as_slice(), &names), &now, &mut view) {
                view.unseen.push(why);
            }
        }
        if view.unseen.len() == accounts.len() {
            return ProviderAnswer::Unavailable(view.unseen.join("; "));
        }
        view.is_complete &= view.unseen.is_empty();
        ProviderAnswer::Observed(view)
    }

    /// Looks at one account, none for that of now, and at what was rented there; `names` are those of all that is asked about.
    fn look(
        &self,
        account: Option<&str>,
        (asked, names): (&[InstanceId], &BTreeMap<String, &InstanceId>),
        account_now: &Result<Option<String>, CloudFailure>,
        view: &mut ProviderView,
    ) -> Result<(), String> {
        let (other, machines) = match account {
            None => (None, self.listed(&self.api).map_err(|failure| failure.to_string())?),
            Some(account) => {
                let now = account_now.as_ref().map_err(unknown)?.as_deref().unwrap_or_default();
                let unseen = |why: Option<&str>| elsewhere(asked, (account, now), why);
                let api = self.api.of_account(account).ok_or_else(|| unseen(None))?;
                let machines = self.listed(&api).map_err(|failure| unseen(Some(&failure.to_string())))?;
                (Some(api), machines)
            }
        };
        let (api, now) = (other.as_ref().unwrap_or(&self.api), (self.clock)());
        if let Ok(here) = account_now {
            self.forget_deleted(api, (account.or(here.as_deref()), &machines), now);
        }
        for machine in &machines {
            if self.take_kept(api, machine, (asked, account.is_none()), view) {
                continue;
            }
            match names.get(&machine.name) {
                Some(instance) if asked.contains(instance) => self.take(instance, machine, now, view),
                // Two names of an account list the same machine.
                Some(_) => {}
                // What no run has is looked for in the account of now.
                None if account.is_none() && !machine.is_gone() => {
                    view.machines.push(of(InstanceId::new(machine.name.clone()), machine, machine.state));
                }
                None => {}
            }
        }
        for instance in asked {
            if view.machines.iter().any(|machine| machine.instance == *instance) {
                continue;
            }
            match self.vanished(instance, now) {
                Ok(Absence::Gone(handle, usage)) => {
                    let (handle, state) = (MachineHandle(handle), MachineState::Gone(usage));
                    view.machines.push(SeenMachine { handle, instance: instance.clone(), state, notice: None });
                }
                Ok(Absence::Unseen) => {}
                Ok(Absence::Missed) | Err(_) => view.is_complete = false,
            }
        }
        Ok(())
    }

    /// Adds a machine that was stopped before to a view, under the name that it has now; whether it is one. What is asked about
    /// is of the account that is looked at, and everything else of that of now.
    fn take_kept(
        &self,
        api: &C,
        machine: &CloudMachine,
        (asked, is_now): (&[InstanceId], bool),
        view: &mut ProviderView,
    ) -> bool {
        let kept = match self.kept.read(&machine.handle) {
            Ok(None) => return false,
            Ok(Some(kept)) => kept,
            // What cannot be read proves nothing.
            Err(_) => {
                view.is_complete = false;
                return true;
            }
        };
        match self.see_kept(api, (&kept, machine), (self.clock)()) {
            Ok(Some(seen)) => {
                let is_gone = matches!(seen.state, MachineState::Gone(_));
                if asked.contains(&kept.instance) || is_now && !is_gone {
                    view.machines.push(seen);
                }
            }
            Ok(None) => {}
            Err(_) => view.is_complete = false,
        }
        true
    }

    /// Adds a listed machine that is asked about to a view.
    fn take(&self, instance: &InstanceId, machine: &CloudMachine, now: Timestamp, view: &mut ProviderView) {
        if !machine.is_gone() {
            self.seen(instance, machine, now);
            view.machines.push(of(instance.clone(), machine, machine.state));
            return;
        }
        match self.ended(instance, machine.ended.unwrap_or(now)) {
            Ok(usage) => view.machines.push(of(instance.clone(), machine, MachineState::Gone(usage))),
            Err(_) => view.is_complete = false,
        }
    }

    /// A machine is listed: that it was is written down, and it is seen to that it has an agent.
    fn seen(&self, instance: &InstanceId, machine: &CloudMachine, now: Timestamp) {
        let account = self.api.account().ok().flatten();
        let rental = self.rentals.change(instance, |rental| {
            let is_known = rental.is_seen && rental.handle.is_some() && (rental.account.is_some() || account.is_none());
            if is_known && rental.missed.is_none() && rental.gone.is_none() {
                return false;
            }
            // An earlier version has not written it down; one of another account is never listed as now's.
            rental.account = rental.account.take().or_else(|| account.clone());
            // Whatever was thought of it, it costs money.
            (rental.is_seen, rental.missed, rental.gone) = (true, None, None);
            rental.handle.get_or_insert_with(|| machine.handle.clone());
            rental.rented = Some(machine.started.or(rental.rented).unwrap_or(now));
            true
        });
        if let (Ok(Some(rental)), MachineState::Running, Some(address)) = (rental, machine.state, &machine.address) {
            self.reach.attend(&rental, &MachineHandle(machine.handle.clone()), address);
        }
    }

    /// What was used of a machine that is gone since `at`, the same each time.
    pub(super) fn ended(&self, instance: &InstanceId, at: Timestamp) -> io::Result<Option<Usage>> {
        self.reach.forget(instance);
        let rental = self.rentals.change(instance, |rental| {
            let Some(started) = rental.rented.filter(|_| rental.gone.is_none()) else { return false };
            rental.gone = Some(Usage { started, elapsed: at.since(started).max(Elapsed(1)) });
            true
        })?;
        Ok(rental.and_then(|rental| rental.gone))
    }

    /// What is not listed. One list without a machine proves nothing: what was taken for gone would not be ended any more.
    fn vanished(&self, instance: &InstanceId, now: Timestamp) -> io::Result<Absence> {
        let rental = self.rentals.change(instance, |rental| {
            let is_new = rental.is_seen && rental.gone.is_none() && rental.missed.is_none();
            if is_new {
                rental.missed = Some(now);
            }
            is_new
        })?;
        let Some(rental) = rental else { return Ok(Absence::Unseen) };
        let Some(handle) = rental.handle.filter(|_| rental.gone.is_some() || rental.is_seen) else {
            return Ok(Absence::Unseen);
        };
        let since = rental.missed.unwrap_or(now);
        if rental.gone.is_none() && !rental.is_ending && now.since(since) < MISSED {
            return Ok(Absence::Missed);
        }
        // Its disk went with it.
        if let Some(kept) = self.kept.read(&handle)?.filter(|kept| kept.instance == *instance)
            && kept.stopped().is_none()
        {
            self.kept.forget(&kept, now)?;
        }
        Ok(Absence::Gone(handle, self.ended(instance, since)?))
    }
}

/// A listed machine as a view has it.
fn of(instance: InstanceId, machine: &CloudMachine, state: MachineState) -> SeenMachine {
    SeenMachine { handle: MachineHandle(machine.handle.clone()), instance, state, notice: None }
}
