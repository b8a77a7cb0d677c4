//! What providers answer.

use domain::rental::{DiskFault, FailedPeer, LaunchDetails, MachineHandle, ProviderAnswer, Refusal};
use domain::run::InstanceState;
use domain::{Cause, Elapsed, Event, Finding, InstanceId};
use plan::Instance;

use super::memory::{LastEvents, Pending};
use super::{CallId, Controller, ControllerOutput};

/// Doublings of the wait between them at most.
const LAST_EVENTS_DOUBLINGS: u32 = 3;

impl Controller {
    /// Handles an answer. An answer to a call that is not waited for any more is ignored, but for its details.
    pub(super) fn answered(&mut self, call: CallId, answer: ProviderAnswer, details: &LaunchDetails) {
        self.is_due_changed = true;
        match self.pending.remove(&call) {
            None => {}
            Some(Pending::Launch { instance, sent }) => {
                let known = self.remembered(instance);
                self.launched(&known, sent, answer, details.account.as_deref());
                self.share_launch(&known);
            }
            Some(Pending::Observe { provider, sent, asked }) => self.observed(&provider, sent, &asked, answer),
            Some(Pending::End { instances }) => self.ending(&instances, &answer),
            Some(Pending::LastEvents { instance }) => self.last_events(&instance, answer),
        }
        // A launch that copies everything from here may take longer than its answer is waited for.
        self.record_failed_peers(&details.failed_peers);
    }

    fn launched(&mut self, id: &InstanceId, sent: Elapsed, answer: ProviderAnswer, account: Option<&str>) {
        self.touch_instance(id);
        let now = self.now.monotonic;
        let within = self.traits_of(id).map_or(0, |traits| traits.effective_within.0);
        let Some(memory) = self.machines.get_mut(id) else { return };
        let launch = &mut memory.launch;
        launch.pending = None;
        launch.last = now;
        let is_doubted = sent < launch.effective_until;
        match answer {
            ProviderAnswer::Accepted(members) => {
                launch.requests = 0;
                // A repetition of it on the network may have its effect still.
                launch.effective_until = launch.effective_until.max(now).max(Elapsed(sent.0.saturating_add(within)));
                for member in plan::members(&self.world, id) {
                    let handle = members.iter().find(|(name, _)| *name == member).map(|(_, handle)| handle.clone());
                    self.accepted(&member, handle, account);
                }
            }
            // A throttled request has rented nothing, and is repeated.
            ProviderAnswer::Refused(Refusal::Throttled { after }) => {
                launch.requests += 1;
                launch.not_before = Elapsed(now.0.saturating_add(after.unwrap_or_default().0));
                self.note_failure(id.as_str(), "its provider has too many requests; asked again".into());
            }
            // It proves only that this request has rented nothing; an earlier one may still be in flight.
            ProviderAnswer::Refused(refusal) if is_doubted => {
                launch.requests += 1;
                let text =
                    format!("its provider refuses to rent it: {}; an earlier request may still", refusal.message());
                self.note_failure(id.as_str(), format!("{text} have its effect, so it is asked again"));
            }
            ProviderAnswer::Refused(refusal) => self.refused(id, &refusal),
            _ => self.doubted(id, sent, answer),
        }
    }

    /// It may or may not have been rented.
    fn doubted(&mut self, id: &InstanceId, sent: Elapsed, answer: ProviderAnswer) {
        let within = self.traits_of(id).map_or(0, |traits| traits.effective_within.0);
        let Some(memory) = self.machines.get_mut(id) else { return };
        memory.launch.requests += 1;
        let until = Elapsed(sent.0.saturating_add(within));
        memory.launch.effective_until = memory.launch.effective_until.max(until);
        if let ProviderAnswer::Doubt(why) | ProviderAnswer::Unavailable(why) = answer {
            let text = format!("it is not known whether it was rented: {why}; asked again with the same token");
            self.note_failure(id.as_str(), text);
        }
    }

    fn accepted(&mut self, id: &InstanceId, handle: Option<MachineHandle>, account: Option<&str>) {
        self.clear(id.as_str());
        if let Some(instance) = self.world.instances.get(id) {
            // Other runs that wait may ask for this offer again, and earlier than they expected.
            self.dirty.waiting |= self.shortages.end(&instance.offer);
        }
        let state = self.world.instances.get(id).map(|instance| &instance.state);
        match (state, handle) {
            (Some(InstanceState::Intended), handle) => self.note_accepted(id, handle, account),
            (_, Some(handle)) => self.learn_handle(id, handle, account),
            (_, None) => {}
        }
    }

    /// Its agent was faster than the provider's answer, or it was rented together with one that was listed earlier.
    pub(super) fn learn_handle(&mut self, id: &InstanceId, handle: MachineHandle, account: Option<&str>) {
        if self.world.instances.get(id).is_some_and(Instance::lacks_handle) {
            let (handle, account) = (Some(handle), account.map(str::to_owned));
            self.must(Event::Launched { instance: id.clone(), handle, account });
        }
    }

    /// It was rented: from now on it boots.
    pub(super) fn note_accepted(&mut self, id: &InstanceId, handle: Option<MachineHandle>, account: Option<&str>) {
        let awake = self.awake;
        if let Some(memory) = self.machines.get_mut(id) {
            memory.since = awake;
        }
        self.must(Event::Launched { instance: id.clone(), handle, account: account.map(str::to_owned) });
    }

    /// The log of the run says why its machine was prepared from here, or from yet another one.
    fn record_failed_peers(&mut self, failed: &[(InstanceId, FailedPeer)]) {
        for (id, FailedPeer { peer, why, sent }) in failed {
            let state = self.world.instances.get(id).map(|instance| &instance.state);
            if state.is_some_and(|state| !matches!(state, InstanceState::Released { .. })) {
                let (instance, peer, why) = (id.clone(), peer.clone(), why.clone());
                self.must(Event::PeerCopyFailed { instance, peer, why, sent: *sent });
            }
        }
    }

    fn refused(&mut self, id: &InstanceId, refusal: &Refusal) {
        if let Some(instance) = self.world.instances.get(id).filter(|instance| instance.started.is_none()) {
            self.shortages.refused(&self.policy, self.now.monotonic, &instance.offer, refusal);
        }
        // One that is up all the same is not waited for any more either.
        self.share_launch(id);
        plan::members(&self.world, id).iter().for_each(|member| self.one_refused(member, refusal));
    }

    fn one_refused(&mut self, id: &InstanceId, refusal: &Refusal) {
        let Some(instance) = self.world.instances.get(id) else { return };
        // Whatever the provider reports: an agent that has called exists.
        if matches!(instance.state, InstanceState::Intended | InstanceState::Releasing) && instance.started.is_none() {
            let mut finding = finding(&instance.offer.provider, id, refusal);
            // Another kind, or another place, may be had.
            let run = self.world.runs.get(&instance.run).filter(|run| !run.plan.alternatives.is_empty());
            let is_of_machine = matches!(refusal, Refusal::Invalid { disk: Some(_), .. });
            // A run with machines on both terms needs one of each.
            let leave_some = |run: &plan::Run| {
                let anchors = &run.plan.anchors;
                self.shortages.leave_some(plan::offers(run))
                    && (anchors.is_empty() || self.shortages.leave_some(anchors.iter()))
            };
            if run.is_some_and(|run| !is_of_machine && leave_some(run)) {
                finding.cause = Cause::NoCapacity;
            }
            self.must(Event::RentFailed { instance: id.clone(), finding });
        }
    }

    fn ending(&mut self, instances: &[InstanceId], answer: &ProviderAnswer) {
        for id in instances {
            self.touch_instance(id);
            let is_ending = *answer == ProviderAnswer::Ending;
            if let Some(memory) = self.machines.get_mut(id) {
                let end = &mut memory.end;
                (end.is_pending, end.last) = (false, Some(self.now.monotonic));
                (end.accepted, end.failures) = match is_ending {
                    true => (end.accepted.saturating_add(1), 0),
                    false => (0, end.failures.saturating_add(1)),
                };
            }
            match answer {
                ProviderAnswer::Ending => self.clear(id.as_str()),
                ProviderAnswer::Unavailable(why) | ProviderAnswer::Doubt(why) => {
                    let text = format!("its provider could not be asked to end it: {why}; asked again");
                    self.note_failure(id.as_str(), text);
                }
                ProviderAnswer::Refused(refusal) => {
                    let text = format!("its provider refuses to end it: {}; asked again", refusal.message());
                    self.note_failure(id.as_str(), text);
                }
                _ => self.note_failure(id.as_str(), "its provider gave another answer to its end".into()),
            }
        }
        self.is_changed = true;
    }

    fn last_events(&mut self, id: &InstanceId, answer: ProviderAnswer) {
        let every = self.traits_of(id).map_or(0, |traits| traits.observe_every.0);
        let Some(memory) = self.machines.get_mut(id) else { return };
        let LastEvents::Asked { tries } = memory.last_events else { return };
        let wait = every.saturating_mul(1 << tries.saturating_sub(1).min(LAST_EVENTS_DOUBLINGS));
        let not_before = Elapsed(self.now.monotonic.0.saturating_add(wait));
        self.touch_instance(id);
        let Some(memory) = self.machines.get_mut(id) else { return };
        if let ProviderAnswer::LastEvents(entries) = answer {
            memory.last_events = LastEvents::Read;
            self.take(id, &entries);
            if let Some(instance) = self.world.instances.get(id) {
                let (run, machine) = (instance.run.clone(), instance.machine_name(id).clone());
                self.out.push(ControllerOutput::Keep { run, instance: machine, entries });
            }
            return;
        }
        memory.last_events = LastEvents::Unread { tries, not_before };
        if tries >= self.policy.last_events_tries {
            memory.last_events = LastEvents::Read;
            self.note(
                id.as_str(),
                "what its agent wrote down last could not be read; work that was not reported is done again",
                false,
            );
        }
    }
}

/// A full or read-only disk will fail the next request too, as will quotas and permissions; capacity comes and goes.
fn finding(provider: &str, id: &InstanceId, refusal: &Refusal) -> Finding {
    let cause = match refusal {
        Refusal::Capacity { .. } | Refusal::Throttled { .. } => Cause::NoCapacity,
        Refusal::Invalid { disk: Some(DiskFault::Full), .. } => Cause::DiskFull,
        Refusal::Invalid { disk: Some(DiskFault::ReadOnly), .. } => Cause::ReadOnly,
        Refusal::Invalid { disk: None, .. } => Cause::InstanceLost,
        Refusal::Quota { .. } | Refusal::Denied { .. } => Cause::Job,
    };
    Finding::new(cause, format!("provider `{provider}` cannot rent `{id}`: {}", refusal.message()))
}
