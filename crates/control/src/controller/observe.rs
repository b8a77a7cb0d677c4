//! Views of providers: all of an owner's machines, and the conclusions from missing ones.

use std::collections::BTreeMap;

use domain::rental::{MachineHandle, MachineState, ProviderAnswer, ProviderTraits, ProviderView, SeenMachine};
use domain::run::{InstanceState, Sight, Usage};
use domain::{Elapsed, InstanceId};

use super::Controller;
use super::memory::{LastEvents, Stranger};

impl Controller {
    pub(super) fn traits_of(&self, id: &InstanceId) -> Option<ProviderTraits> {
        let instance = self.world.instances.get(id)?;
        self.providers.get(&instance.offer.provider).map(|provider| provider.traits)
    }

    pub(super) fn observed(&mut self, name: &str, sent: Elapsed, asked: &[InstanceId], answer: ProviderAnswer) {
        let Some(provider) = self.providers.get_mut(name) else { return };
        provider.is_observing = false;
        let ProviderAnswer::Observed(mut view) = answer else {
            provider.failures += 1;
            for id in asked {
                self.touch_instance(id);
                // While its provider cannot be queried, a machine is not known to be missing.
                if let Some(memory) = self.machines.get_mut(id) {
                    memory.missing = None;
                }
            }
            let why = match answer {
                ProviderAnswer::Unavailable(why) | ProviderAnswer::Doubt(why) => why,
                ProviderAnswer::Refused(refusal) => refusal.message(),
                _ => "it gave another answer".to_owned(),
            };
            self.is_changed = true;
            let text = format!("cannot be asked what it sees: {why}; asked again");
            return self.note_failure(format!("provider {name}"), text);
        };
        for machine in &mut view.machines {
            if let Some(holder) = self.world.holder(&machine.instance) {
                machine.instance = holder.clone();
            }
        }
        provider.failures = 0;
        let subject = format!("provider {name}");
        if view.unseen.is_empty() {
            self.clear(&subject);
        }
        for text in &view.unseen {
            self.note_failure(subject.as_str(), text.clone());
        }
        self.look_for(&view, sent, asked);
        let is_there = |machine: &&SeenMachine| !matches!(machine.state, MachineState::Gone(_));
        // They are in the order of their names.
        let is_asked = |machine: &&SeenMachine| asked.binary_search(&machine.instance).is_ok();
        for machine in view.machines.iter().filter(is_there).filter(is_asked) {
            self.learn_handle(&machine.instance, machine.handle.clone(), None);
        }
        self.note_strangers(name, &view);
    }

    /// Handles which of the queried machines a view shows and misses.
    fn look_for(&mut self, view: &ProviderView, sent: Elapsed, asked: &[InstanceId]) {
        let mut seen: BTreeMap<&InstanceId, Vec<&SeenMachine>> = BTreeMap::new();
        for machine in &view.machines {
            seen.entry(&machine.instance).or_default().push(machine);
        }
        for id in asked {
            let first = self.world.instances.get(id).and_then(|instance| instance.handle.as_ref());
            let Some(memory) = self.machines.get_mut(id) else { continue };
            let before = (memory.sight, memory.missing.is_some());
            match seen.get(id) {
                Some(machines) => {
                    for machine in machines {
                        match memory.machines.get_mut(&machine.handle) {
                            Some(known) => *known = usage(machine.state),
                            None => {
                                memory.machines.insert(machine.handle.clone(), usage(machine.state));
                            }
                        }
                    }
                    // A view that is incomplete may miss one of two.
                    let all = view.is_complete || machines.len() == memory.machines.len();
                    let before = memory.sight;
                    memory.sight = sight(machines, first).filter(|sight| all || *sight == Sight::Alive).or(before);
                    memory.missing = None;
                    if memory.sight == Some(Sight::Alive) {
                        memory.last_events = LastEvents::UNREAD;
                    }
                    if view.is_complete {
                        memory.looked = sent;
                    }
                }
                None if view.is_complete => {
                    memory.sight = Some(Sight::Unknown);
                    memory.missing = Some((memory.missing.map_or(sent, |(first, _)| first), sent));
                }
                None => memory.missing = None,
            }
            // The duration is relevant only while it decides.
            let decides = matches!(memory.sight, Some(Sight::Unknown | Sight::Gone(_)));
            if before != (memory.sight, memory.missing.is_some()) || decides {
                self.touch_instance(id);
            }
        }
    }

    /// Logs machines with our tag that are not in the log, or that are released there.
    fn note_strangers(&mut self, name: &str, view: &ProviderView) {
        let now = self.now.monotonic;
        let mut alive = Vec::new();
        for machine in &view.machines {
            if matches!(machine.state, MachineState::Gone(_)) {
                continue;
            }
            let instance = self.world.instances.get(&machine.instance);
            let is_known = instance.is_some_and(|instance| !matches!(instance.state, InstanceState::Released { .. }));
            if !is_known {
                alive.push(machine);
            }
        }
        let Some(provider) = self.providers.get_mut(name) else { return };
        provider.strangers.retain(|handle, _| alive.iter().any(|machine| machine.handle == *handle));
        let mut told = Vec::new();
        for machine in alive {
            let stranger = Stranger { instance: machine.instance.clone(), since: now, asked: None };
            provider.strangers.entry(machine.handle.clone()).or_insert_with(|| {
                told.push((machine.handle.0.clone(), machine.instance.clone()));
                stranger
            });
        }
        self.is_changed |= !told.is_empty();
        for (handle, instance) in told {
            let text = format!(
                "machine {handle} has our tag `{instance}` and no run of this home has it; it is ended if it stays so"
            );
            self.note(handle, text, false);
        }
    }
}

/// The combined state of the machines of one name for billing: alive while one of them is, because ending machines cost
/// until they are gone.
fn sight(machines: &[&SeenMachine], first: Option<&MachineHandle>) -> Option<Sight> {
    if machines.iter().any(|machine| !matches!(machine.state, MachineState::Gone(_))) {
        return Some(Sight::Alive);
    }
    let main = machines.iter().find(|machine| first == Some(&machine.handle)).or(machines.first())?;
    Some(Sight::Gone(usage(main.state)))
}

fn usage(state: MachineState) -> Option<Usage> {
    match state {
        MachineState::Gone(usage) => usage,
        MachineState::Pending | MachineState::Running | MachineState::Ending => None,
    }
}
