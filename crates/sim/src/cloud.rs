//! The simulated cloud: machines, tokens, and views. It keeps the promises of its traits and no more.

use std::collections::BTreeMap;

use domain::random::Draws;
use domain::rental::{
    EndRequest, LaunchRequest, MachineHandle, MachineState, ProviderAnswer, ProviderCall, ProviderView, Refusal,
    SeenMachine,
};
use domain::run::Usage;
use domain::{Elapsed, InstanceId, Rate, Timestamp};

use crate::machine::Machine;
use crate::rule::Rule;
use crate::scenario::{SECOND, Scenario, is_anchor};

#[derive(Debug, Default)]
pub(crate) struct Cloud {
    pub machines: BTreeMap<MachineHandle, Machine>,
    /// Which machines each token rented, and when it was first used.
    tokens: BTreeMap<String, (Vec<(InstanceId, MachineHandle)>, u64)>,
    made: u64,
    /// Machines with end requests, whether or not they have ended.
    asked_to_end: BTreeMap<InstanceId, u64>,
}

/// The outcome of a request.
pub(crate) struct Outcome {
    pub answer: ProviderAnswer,
    /// Machines that were rented by it.
    pub rented: Vec<MachineHandle>,
}

impl Cloud {
    /// Carries out a call. `has_faults` says whether it may refuse arbitrarily.
    pub(crate) fn receive(
        &mut self,
        call: &ProviderCall,
        now: u64,
        scenario: &Scenario,
        (draws, has_faults): (&mut Draws, bool),
        rule: Option<Rule>,
    ) -> Outcome {
        let throttle = if has_faults { scenario.throttle } else { 0 };
        let plain = |answer| Outcome { answer, rented: Vec::new() };
        match call {
            ProviderCall::Launch(_) if draws.below(100) < throttle => {
                plain(ProviderAnswer::Refused(Refusal::Throttled {
                    after: Some(Elapsed((1 + draws.below(20)) * SECOND)),
                }))
            }
            ProviderCall::Launch(request) => self.launch(request, now, scenario, (draws, has_faults), rule),
            ProviderCall::Observe(_) if draws.below(100) < throttle => {
                plain(ProviderAnswer::Unavailable("throttled".into()))
            }
            ProviderCall::Observe(asked) => {
                let partial = has_faults && draws.below(100) < scenario.partial;
                let mut view = self.view(now, partial, draws, rule);
                if rule == Some(Rule::MachinesAreTagged) {
                    view.machines.retain(|machine| asked.contains(&machine.instance));
                }
                plain(ProviderAnswer::Observed(view))
            }
            ProviderCall::End(_) if draws.below(100) < throttle => {
                plain(ProviderAnswer::Unavailable("throttled".into()))
            }
            ProviderCall::End(requests) if requests.iter().any(|request| self.is_dark(&request.instance, now)) => {
                plain(ProviderAnswer::Unavailable("the machine cannot be reached".into()))
            }
            ProviderCall::LastEvents(instance) if self.is_dark(instance, now) => {
                plain(ProviderAnswer::Unavailable("the machine cannot be reached".into()))
            }
            ProviderCall::LastEvents(instance) if self.is_disk_lost(instance) => {
                plain(ProviderAnswer::Unavailable("its disk cannot be read".into()))
            }
            ProviderCall::End(requests) => {
                requests.iter().for_each(|request| self.end(request, now));
                plain(ProviderAnswer::Ending)
            }
            ProviderCall::LastEvents(instance) => {
                let machines = self.machines.values().filter(|machine| machine.instance == *instance);
                plain(ProviderAnswer::LastEvents(machines.flat_map(|machine| machine.spool.clone()).collect()))
            }
            ProviderCall::Offers => plain(ProviderAnswer::Offers(Vec::new())),
        }
    }

    fn launch(
        &mut self,
        request: &LaunchRequest,
        now: u64,
        scenario: &Scenario,
        (draws, has_faults): (&mut Draws, bool),
        rule: Option<Rule>,
    ) -> Outcome {
        let holds = |since: u64| scenario.traits.token_lifetime.is_some_and(|lifetime| now < since + lifetime.0);
        if let Some((members, _)) = self.tokens.get(&request.token).filter(|(_, since)| holds(*since)) {
            return Outcome { answer: ProviderAnswer::Accepted(members.clone()), rented: Vec::new() };
        }
        let alive = self.machines.values().filter(|machine| machine.is_alive()).count();
        let is_full = scenario.capacity.is_some_and(|most| alive + request.members.len() > most);
        let is_sold_out = has_faults && scenario.market.is_sold_out(&request.offer.kind, now);
        if has_faults && (is_full || is_sold_out || draws.below(100) < scenario.refusal) {
            let message = "none free in this zone".to_owned();
            return Outcome { answer: ProviderAnswer::Refused(Refusal::Capacity { message }), rented: Vec::new() };
        }
        if has_faults && draws.below(100) < scenario.quota {
            let message = "no more machines of this kind".to_owned();
            return Outcome { answer: ProviderAnswer::Refused(Refusal::Quota { message }), rented: Vec::new() };
        }
        let mut members = Vec::new();
        for instance in &request.members {
            let handle = self.rent(instance, request, now, scenario, (&mut *draws, has_faults), rule);
            members.push((instance.clone(), handle));
        }
        self.tokens.insert(request.token.clone(), (members.clone(), now));
        let rented = members.iter().map(|(_, handle)| handle.clone()).collect();
        Outcome { answer: ProviderAnswer::Accepted(members), rented }
    }

    fn rent(
        &mut self,
        instance: &InstanceId,
        request: &LaunchRequest,
        now: u64,
        scenario: &Scenario,
        (draws, has_faults): (&mut Draws, bool),
        rule: Option<Rule>,
    ) -> MachineHandle {
        self.made += 1;
        let handle = MachineHandle(format!("m-{}", self.made));
        let visible = now + draws.below(scenario.traits.visible_within.0.max(1));
        // What it was offered for, whatever the market does meanwhile.
        let rate = match rule {
            Some(Rule::PricesAreAgreed) => scenario.market.price(&request.offer.kind, now),
            _ => request.offer.rate,
        };
        // One in twenty never boots.
        let never = has_faults && draws.below(20) == 0;
        let boots = if never { None } else { Some(now + draws.below(scenario.boot)) };
        let mut machine = Machine::new(instance.clone(), rate, now, visible, boots);
        machine.is_anchor = is_anchor(&request.offer.kind);
        machine.is_disk_lost = has_faults && scenario.has_lost_disks && draws.below(6) == 0;
        if let Some(time) = request.first_answer.filter(|_| rule != Some(Rule::LeaseWithinBudget)) {
            machine.first_answer = machine.first_answer.min(time.micros());
        }
        self.machines.insert(handle.clone(), machine);
        handle
    }

    /// Whether a machine of this name cannot be reached now, not even by its provider.
    fn is_dark(&self, instance: &InstanceId, now: u64) -> bool {
        self.machines.values().any(|machine| machine.instance == *instance && now < machine.dark_until)
    }

    /// Whether nothing can be read of a machine of this name.
    fn is_disk_lost(&self, instance: &InstanceId) -> bool {
        self.machines.values().any(|machine| machine.instance == *instance && machine.is_disk_lost)
    }

    fn view(&self, now: u64, partial: bool, draws: &mut Draws, rule: Option<Rule>) -> ProviderView {
        let mut machines = Vec::new();
        let partial_or_dark = partial || self.machines.values().any(|machine| now < machine.dark_until);
        for (handle, machine) in &self.machines {
            if now < machine.dark_until {
                continue;
            }
            if machine.is_unlisted || now < machine.visible || (partial && draws.below(2) == 0) {
                continue;
            }
            machines.push(SeenMachine {
                handle: handle.clone(),
                instance: machine.instance.clone(),
                state: self.state(machine, now, rule),
                notice: None,
            });
        }
        let is_complete = !partial_or_dark || rule == Some(Rule::IncompleteProvesNothing);
        ProviderView { is_complete, machines, unseen: Vec::new() }
    }

    fn state(&self, machine: &Machine, now: u64, rule: Option<Rule>) -> MachineState {
        let usage =
            |ended: u64| Usage { started: Timestamp(machine.rented as i64), elapsed: Elapsed(ended - machine.rented) };
        let round = |usage: Usage| match rule {
            // As it would be after a way through seconds as a number of type f32.
            Some(Rule::UsageIsExact) => Usage { elapsed: Elapsed(usage.elapsed.0 / SECOND * SECOND), ..usage },
            _ => usage,
        };
        let asked = self.asked_to_end.get(&machine.instance).filter(|_| rule == Some(Rule::EndIsProved));
        match machine.ended.or(asked.copied()) {
            Some(_) if rule == Some(Rule::UsageIsMetered) => MachineState::Gone(None),
            Some(ended) => MachineState::Gone(Some(round(usage(ended)))),
            None if machine.boots.is_some_and(|boots| now >= boots) => MachineState::Running,
            None => MachineState::Pending,
        }
    }

    /// A machine that is not listed yet cannot be ended.
    fn end(&mut self, request: &EndRequest, now: u64) {
        let is_meant = |handle: &MachineHandle, machine: &Machine| match &request.handle {
            Some(meant) => meant == handle,
            None => machine.instance == request.instance,
        };
        for (handle, machine) in &mut self.machines {
            if is_meant(handle, machine) && now >= machine.visible {
                machine.end(now);
            }
        }
    }

    /// A machine that was there before the log was: its agent is dead and the cloud lists it, or the other way round.
    pub(crate) fn hold_leftover(&mut self, is_alive: bool) -> Option<MachineHandle> {
        let boots = is_alive.then_some(SECOND);
        let mut machine = Machine::new(InstanceId::new("lost-i1"), Rate::default(), 0, 0, boots);
        machine.is_unlisted = is_alive;
        let handle = MachineHandle("m-0".into());
        self.machines.insert(handle.clone(), machine);
        is_alive.then_some(handle)
    }

    /// Records an end request, though it may be lost.
    pub(crate) fn note_end_request(&mut self, call: &ProviderCall, now: u64) {
        if let ProviderCall::End(requests) = call {
            for request in requests {
                self.asked_to_end.entry(request.instance.clone()).or_insert(now);
            }
        }
    }
}
