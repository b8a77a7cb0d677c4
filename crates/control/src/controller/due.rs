//! When to be woken: the earliest moment at which time alone gives something to do.

use domain::rental::ProviderTraits;
use domain::run::{InstanceState, Sight};
use domain::{Elapsed, InstanceId};
use plan::Instance;

use super::memory::{LastEvents, MachineMemory};
use super::{Controller, ControllerOutput};

/// While no change is expected, a provider is queried this many times less often.
const PATROL: u64 = 10;

/// The longest time between two looks at a provider that anything is rented from, in microseconds.
const PATROL_AT_MOST: u64 = 60_000_000;

/// Interval between two listings of a provider from which nothing is rented, to find unknown machines, in microseconds.
const STRANGERS_EVERY: u64 = 600_000_000;

impl Controller {
    /// Schedules the next wake-up.
    pub(super) fn schedule(&mut self) {
        let now = self.now.monotonic;
        self.set_timers(None);
        let asking = self.providers.keys().filter_map(|name| self.observe_due(name));
        let strangers = self.providers.values().flat_map(|provider| {
            provider.strangers.values().map(|stranger| {
                let from = stranger.asked.unwrap_or(stranger.since);
                Elapsed(from.0.saturating_add(self.policy.strangers.0))
            })
        });
        let wake = self.dirty.first_due().into_iter().chain(asking).chain(strangers).min();
        // Due items were just handled: not again before a short pause.
        let wake = wake.map_or(Elapsed(u64::MAX), |at| at.max(Elapsed(now.0 + 1)));
        self.wake = wake;
        if wake.0 < u64::MAX {
            self.out.push(ControllerOutput::WakeAt(wake));
        }
    }

    /// When a provider is to be queried next; `None` while a query is in flight.
    pub(super) fn observe_due(&self, name: &str) -> Option<Elapsed> {
        let provider = self.providers.get(name)?;
        if provider.is_observing {
            return None;
        }
        let Some(last) = provider.last_observed else { return Some(Elapsed(0)) };
        let every = provider.traits.observe_every.0;
        let wait = if provider.rented.is_empty() {
            STRANGERS_EVERY
        } else if !provider.changing.is_empty() {
            every.saturating_mul(1 << provider.failures.min(6))
        } else {
            every.saturating_mul(PATROL).min(PATROL_AT_MOST.max(every))
        };
        Some(Elapsed(last.0.saturating_add(wait)))
    }

    /// Updates the sets of rented and of changing machines of a machine's provider.
    pub(super) fn note_rented(&mut self, id: &InstanceId) {
        let Some(instance) = self.world.instances.get(id) else { return };
        let is_live = !matches!(instance.state, InstanceState::Released { .. });
        let memory = self.machines.get(id);
        let is_changing = is_live && memory.is_some_and(|memory| self.is_changing(instance, memory));
        let Some(provider) = self.providers.get_mut(&instance.offer.provider) else { return };
        for (set, is_in) in [(&mut provider.rented, is_live), (&mut provider.changing, is_changing)] {
            match (is_in, set.contains(id)) {
                (true, false) => set.insert(id.clone()),
                (false, true) => set.remove(id),
                (true, true) | (false, false) => continue,
            };
        }
        if let Some(memory) = self.machines.get_mut(id) {
            memory.noted = is_live.then_some(is_changing);
        }
    }

    /// Whether a query about a machine that is not released may have a new result soon.
    pub(super) fn is_changing(&self, instance: &Instance, memory: &MachineMemory) -> bool {
        let is_suspected = self.silence_of(memory) >= self.policy.suspect;
        instance.state != InstanceState::Up || instance.lacks_handle() || is_suspected
    }

    /// Whether the end of a machine was requested, and is not to be requested again yet.
    pub(super) fn is_end_asked(&self, memory: &MachineMemory, traits: &ProviderTraits) -> bool {
        let due = memory.end.due(traits.observe_every, self.policy.ending_max);
        memory.end.is_pending || due.is_some_and(|due| self.now.monotonic < due)
    }

    /// When a machine needs an action that is not a decision: a repeated end request, its last events, a query. An end
    /// request that is due now is made now.
    pub(super) fn machine_due(
        &self,
        instance: &Instance,
        memory: &MachineMemory,
        traits: Option<&ProviderTraits>,
    ) -> Option<Elapsed> {
        let every = traits?.observe_every;
        let end = match (instance.state == InstanceState::Releasing, memory.end.is_pending) {
            (true, false) => memory.end.due(every, self.policy.ending_max).filter(|due| *due > self.now.monotonic),
            _ => None,
        };
        let events = match (memory.sight, memory.last_events) {
            (Some(Sight::Gone(_)), LastEvents::Unread { not_before, .. }) => Some(not_before),
            _ => None,
        };
        // One that is being released counts as missing only after this.
        let may_launch = matches!(instance.state, InstanceState::Intended | InstanceState::Releasing);
        let launch = Some(memory.launch.not_before).filter(|at| may_launch && at.0 > self.now.monotonic.0);
        let silence = self.silence_of(memory).0;
        let is_unheard = memory.heard.is_none() && !matches!(instance.state, InstanceState::Released { .. });
        let suspect = (instance.state == InstanceState::Up || is_unheard)
            .then(|| self.policy.suspect.0.checked_sub(silence))
            .flatten()
            .filter(|left| *left > 0)
            .map(|left| Elapsed(self.now.monotonic.0.saturating_add(left)));
        end.into_iter().chain(events).chain(launch).chain(suspect).min()
    }
}
