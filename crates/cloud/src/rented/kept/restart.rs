//! Machines of a cloud's API that are stopped with their disk and started again: what is to be done is written down first.

use std::io;
use std::sync::{PoisonError, TryLockError};

use domain::rental::{LaunchRequest, MachineHandle, MachineState, Refusal, SeenMachine};
use domain::run::Usage;
use domain::{Elapsed, InstanceId, Timestamp};

use super::start::{alone, rental_of_start};
use super::{KeptMachine, KeptState, MachineEnd, after_start, machine_end};
use crate::provider::ProviderAnswer;
use crate::rented::{CloudApi, CloudFailure, CloudMachine, MachineChoice, MachinePlace, MachinePower, Rented};

/// A machine that is still stopping is asked again to start after this time.
const STOPPING: Elapsed = Elapsed(10_000_000);

/// A machine whose start was accepted may be seen as stopped for so long.
const VISIBLE: Elapsed = Elapsed(120_000_000);

/// The state of a machine that was stopped before, for the run that has or had it; none while it is not that run's to see.
/// What was used of one that is gone is not known here.
fn state_of(kept: KeptState, power: MachinePower, now: Timestamp) -> Option<MachineState> {
    match (kept, power) {
        // It has not started yet.
        (KeptState::Starting { .. }, MachinePower::Off(_) | MachinePower::Stopping) => None,
        (KeptState::Accepted { at, .. }, MachinePower::Off(_)) if now.since(at) < VISIBLE => None,
        (KeptState::Stopped { .. } | KeptState::Accepted { .. }, MachinePower::Off(_)) => {
            Some(MachineState::Gone(None))
        }
        // Its run did not stop it: it is ended like any other.
        (KeptState::Started, MachinePower::Off(_)) => Some(MachineState::Ending),
        (_, MachinePower::Starting) => Some(MachineState::Pending),
        (_, MachinePower::On) => Some(MachineState::Running),
        (_, MachinePower::Stopping) => Some(MachineState::Ending),
    }
}

/// Where a machine is, as far as that is written down.
pub(super) fn place_of(machine: &KeptMachine) -> MachinePlace {
    let zone = machine.offer.kind.parse::<MachineChoice>().ok().and_then(|choice| choice.zone);
    MachinePlace { handle: machine.handle.clone(), region: machine.region.clone(), zone }
}

impl<C: CloudApi> Rented<C> {
    /// Starts the machine that the kind of an offer names. Asking twice starts it once.
    pub(in crate::rented) fn start_kept(&self, request: &LaunchRequest, (_, handle): (&str, &str)) -> ProviderAnswer {
        self.try_start(request, handle).unwrap_or_else(|answer| answer)
    }

    fn try_start(&self, request: &LaunchRequest, handle: &str) -> Result<ProviderAnswer, ProviderAnswer> {
        let instance = alone(&request.members)?;
        let one_at_a_time = self.asking_of(&InstanceId::new(handle));
        let _one_at_a_time = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((known, since)) = self.kept.to_start(handle, instance)? else {
            return Ok(self.rented(instance, handle));
        };
        let is_repeated = matches!(known.state, KeptState::Starting { .. }) && known.instance == *instance;
        // Its rent begins when it is asked for, which is noted then.
        let rental = rental_of_start((&self.rentals, &self.reach), (instance, request), &known, None)?;
        let other = self.api_of(instance, &rental).map_err(ProviderAnswer::Doubt)?;
        // From here on its end stops it, and keeps the disk.
        let machine = KeptMachine { instance: instance.clone(), state: KeptState::Starting { since }, ..known };
        let unwritten =
            |error: io::Error| ProviderAnswer::Doubt(format!("cannot write down that `{handle}` is started: {error}"));
        self.kept.write(&machine).map_err(unwritten)?;
        Ok(self.start(other.as_ref().unwrap_or(&self.api), &machine, (&request.token, since), is_repeated))
    }

    fn start(
        &self,
        api: &C,
        machine: &KeptMachine,
        (token, since): (&str, Timestamp),
        is_repeated: bool,
    ) -> ProviderAnswer {
        let (handle, place) = (&machine.handle, place_of(machine));
        let unknown = |error: io::Error| ProviderAnswer::Doubt(format!("cannot write down `{handle}`: {error}"));
        let note = |state| self.kept.write(&KeptMachine { state, ..machine.clone() });
        let started = match api.power(&place) {
            Ok(MachinePower::Stopping) => {
                return ProviderAnswer::Refused(Refusal::Throttled { after: Some(STOPPING) });
            }
            // The answer to its start was lost.
            Ok(MachinePower::Starting | MachinePower::On) => Ok(()),
            Ok(MachinePower::Off(_)) => match self.note_asked(&machine.instance) {
                Ok(()) => api.start(&place, token),
                Err(error) => return unknown(error),
            },
            // That it cannot be looked at says nothing of a start before.
            Err(failure) if is_repeated => return ProviderAnswer::Doubt(failure.to_string()),
            Err(failure) => Err(failure),
        };
        match started {
            Ok(()) => match note(KeptState::Accepted { since, at: (self.clock)() }) {
                Ok(()) => self.rented(&machine.instance, handle),
                Err(error) => unknown(error),
            },
            Err(failure) => match failure.refusal() {
                None => ProviderAnswer::Doubt(failure.to_string()),
                Some(throttled @ Refusal::Throttled { .. }) => ProviderAnswer::Refused(throttled),
                Some(refusal) => match note(KeptState::Stopped { since }) {
                    Ok(()) => ProviderAnswer::Refused(refusal),
                    Err(error) => unknown(error),
                },
            },
        }
    }

    /// Its rent begins when it is asked for: whatever becomes of the answer, and of this process.
    fn note_asked(&self, instance: &InstanceId) -> io::Result<()> {
        let now = (self.clock)();
        let noted = self.rentals.change(instance, |rental| rental.rented.replace(now) != Some(now))?;
        noted.map(drop).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// A listed machine under the name that it has now; none that is stopped and no run's to see.
    ///
    /// # Errors
    /// Why it is not known how it is: then it proves nothing.
    pub(in crate::rented) fn see_kept(
        &self,
        api: &C,
        (kept, machine): (&KeptMachine, &CloudMachine),
        now: Timestamp,
    ) -> Result<Option<SeenMachine>, String> {
        let unread = |error: io::Error| format!("cannot read or write what it is: {error}");
        // What its run has, and is not to be stopped, is as it is listed.
        let (state, off) = match kept.state {
            KeptState::Started => (Some(machine.state), None),
            _ => {
                let power = api.power(&machine.place()).map_err(|failure| failure.to_string())?;
                // It was asked to start or to stop while the cloud answered: the next look sees which.
                if self.kept.read(&kept.handle).map_err(unread)?.as_ref() != Some(kept) {
                    return Err("what is asked of it has changed meanwhile".to_owned());
                }
                let off = if let MachinePower::Off(since) = power { since } else { None };
                (state_of(kept.state, power, now), off)
            }
        };
        let state = match state {
            None => return Ok(None),
            Some(MachineState::Gone(_)) => MachineState::Gone(self.used(&kept.instance, (off, now)).map_err(unread)?),
            Some(state) => {
                self.see_on((kept, machine), state, now).map_err(unread)?;
                state
            }
        };
        let rental = self.rentals.read(&kept.instance).map_err(unread)?;
        let asked = rental.and_then(|rental| rental.rented).unwrap_or(now);
        if let Some(next) = after_start(kept, state, (self.reach.has_agent(&kept.instance), asked)) {
            self.move_on(api, kept, &machine.place(), next).map_err(unread)?;
        }
        let handle = MachineHandle(machine.handle.clone());
        Ok(Some(SeenMachine { handle, instance: kept.instance.clone(), state, notice: None }))
    }

    /// What was used of a machine that is off, since then where the cloud says so. Nothing of one that nobody has seen on, and that
    /// has not been turned off since it was asked to start: its start has failed.
    fn used(&self, instance: &InstanceId, (off, now): (Option<Timestamp>, Timestamp)) -> io::Result<Option<Usage>> {
        let Some(rental) = self.rentals.read(instance)? else { return Ok(None) };
        let off = off.filter(|at| rental.rented.is_none_or(|rented| *at >= rented));
        if rental.is_seen || rental.gone.is_some() || off.is_some() {
            return self.ended(instance, off.unwrap_or(now));
        }
        self.reach.forget(instance);
        Ok(None)
    }

    /// Writes down where a machine stands after its start. What is being asked of it comes first: the next look tries again.
    fn move_on(&self, api: &C, kept: &KeptMachine, place: &MachinePlace, next: KeptState) -> io::Result<()> {
        let asking = self.asking_of(&InstanceId::new(kept.handle.as_str()));
        let _one_at_a_time = match asking.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let is_same = self.kept.read(&kept.handle)?.as_ref() == Some(kept);
        if is_same && (next != KeptState::Started || self.is_bound(api, kept, place)) {
            // A command may have written down meanwhile that it is to be stopped.
            self.kept.change_from(kept, next)?;
        }
        Ok(())
    }

    /// Has the cloud end a machine that its run has again once that can need it no longer: as when it was rented, which was taken
    /// back before it was stopped. False where that is to be tried again at the next look; until then its end keeps its disk.
    pub(crate) fn is_bound(&self, api: &C, kept: &KeptMachine, place: &MachinePlace) -> bool {
        let expires = match self.rentals.read(&kept.instance) {
            Ok(rental) => rental.and_then(|rental| rental.request.expires),
            Err(_) => return false,
        };
        let Some(expires) = expires else { return true };
        // Without permission it is as with a cloud that cannot.
        !matches!(api.end_by(place, expires), Err(CloudFailure::Doubt(_) | CloudFailure::Throttled(_)))
    }

    /// A machine that is on is seen to have an agent. When its rent began is known already: the cloud says when it was made.
    fn see_on(
        &self,
        (kept, machine): (&KeptMachine, &CloudMachine),
        state: MachineState,
        now: Timestamp,
    ) -> io::Result<()> {
        // One that is only starting may fail to, and has cost nothing then.
        let is_on = state != MachineState::Pending;
        let rental = self.rentals.change(&kept.instance, |rental| {
            let before = rental.clone();
            // Whatever was thought of it, it costs money.
            (rental.missed, rental.gone) = (None, None);
            rental.is_seen |= is_on;
            rental.rented.get_or_insert(now);
            *rental != before
        })?;
        if let (true, Some(rental), MachineState::Running, Some(address)) =
            (is_wanted(kept.state), rental, machine.state, &machine.address)
        {
            self.reach.attend(&rental, &MachineHandle(machine.handle.clone()), address);
        }
        Ok(())
    }

    /// Ends a machine that was stopped before, as it is to be ended; whether that was done.
    ///
    /// # Errors
    /// Why it was not.
    pub(in crate::rented) fn end_kept(
        &self,
        api: &C,
        instance: &InstanceId,
        handle: &str,
    ) -> Result<bool, CloudFailure> {
        let unknown =
            |error: io::Error| CloudFailure::Doubt(format!("cannot read or write what `{handle}` is: {error}"));
        let one_at_a_time = self.asking_of(&InstanceId::new(handle));
        let _one_at_a_time = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = self.kept.read(handle).map_err(unknown)?;
        match (machine_end(kept.as_ref(), instance), kept) {
            (MachineEnd::Delete, _) | (_, None) => Ok(false),
            (MachineEnd::Leave, Some(_)) => Ok(true),
            (MachineEnd::Stop, Some(kept)) => {
                let kept = self.give_up(api, instance, kept).map_err(unknown)?;
                // One whose start was accepted may have run until now.
                let since = match kept.state {
                    KeptState::Stopped { since } | KeptState::Starting { since } => since,
                    KeptState::Accepted { .. } | KeptState::Started => (self.clock)(),
                };
                match api.stop(&place_of(&kept)) {
                    // Another look tells whether it is.
                    Ok(()) | Err(CloudFailure::NotFound(_)) => {}
                    Err(failure) => return Err(failure),
                }
                self.kept.change(&kept, KeptState::Stopped { since }).map_err(unknown)?;
                Ok(true)
            }
        }
    }

    /// A start that is given up must not come after this. One that was accepted counts as having run; so does one whose answer was
    /// lost, unless the machine is off.
    fn give_up(&self, api: &C, instance: &InstanceId, kept: KeptMachine) -> io::Result<KeptMachine> {
        let is_on = match kept.state {
            KeptState::Stopped { .. } => false,
            KeptState::Starting { .. } => {
                let power = api.power(&place_of(&kept));
                !matches!(power, Ok(MachinePower::Off(_)) | Err(CloudFailure::NotFound(_)))
            }
            KeptState::Accepted { .. } | KeptState::Started => true,
        };
        let rental = self.rentals.change(instance, |rental| {
            let before = rental.clone();
            rental.is_given_up = true;
            rental.is_seen |= is_on;
            *rental != before
        })?;
        let asked = rental.and_then(|rental| rental.rented).unwrap_or_else(|| (self.clock)());
        Ok(match kept.state {
            KeptState::Starting { since } if is_on => {
                KeptMachine { state: KeptState::Accepted { since, at: asked }, ..kept }
            }
            _ => kept,
        })
    }
}

/// Whether a run wants an agent on a machine, where it is on.
fn is_wanted(state: KeptState) -> bool {
    match state {
        KeptState::Stopped { .. } => false,
        // The answer to its start may have been lost, and nobody asks for it again.
        KeptState::Starting { .. } | KeptState::Accepted { .. } | KeptState::Started => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_machine_is_its_runs_end_and_a_starting_one_is_nobodys() {
        let (since, now) = (Timestamp(5), Timestamp(VISIBLE.0 as i64 + 20));
        let (off, gone) = (MachinePower::Off(None), Some(MachineState::Gone(None)));
        let check = |kept, power, expected| assert_eq!(state_of(kept, power, now), expected, "{kept:?} {power:?}");
        check(KeptState::Stopped { since }, off, gone);
        check(KeptState::Stopped { since }, MachinePower::On, Some(MachineState::Running));
        check(KeptState::Stopped { since }, MachinePower::Stopping, Some(MachineState::Ending));
        check(KeptState::Starting { since }, off, None);
        check(KeptState::Starting { since }, MachinePower::Stopping, None);
        check(KeptState::Starting { since }, MachinePower::Starting, Some(MachineState::Pending));
        check(KeptState::Accepted { since, at: Timestamp(10) }, off, gone);
        check(KeptState::Accepted { since, at: now }, off, None);
        check(KeptState::Started, off, Some(MachineState::Ending));
    }

    #[test]
    fn each_machine_that_a_run_has_is_to_have_an_agent() {
        let (since, at) = (Timestamp(5), Timestamp(9));
        assert!(!is_wanted(KeptState::Stopped { since }));
        for state in [KeptState::Starting { since }, KeptState::Accepted { since, at }, KeptState::Started] {
            assert!(is_wanted(state), "{state:?}");
        }
    }
}
