//! Carries out decisions: events to append, calls to make.

use domain::event::{RentIntended, Submitted};
use domain::rental::{EndRequest, MachineHandle, ProviderCall};
use domain::run::{InstanceState, Usage};
use domain::{Event, InstanceId, RunId};
use plan::{Action, Decision, ObservedState, Scope};

use super::dirty::Known;
use super::facts::Look;
use super::memory::{LastEvents, Pending};
use super::{CallId, Controller, ControllerOutput, PASSES};
use crate::identity::{job_hash, token};

/// Timers due within this time, in microseconds, may fire already.
const ROUNDING: u64 = 10_000;

impl Controller {
    /// Decides and acts until no further decision follows from the known state. Returns what the last decision was about
    /// and rested on, if that is still true.
    pub(super) fn settle(&mut self) -> Option<(Scope, ObservedState)> {
        let mut last = Scope::default();
        self.begin_decisions();
        for _ in 0..PASSES {
            self.is_changed = false;
            let seq = self.world.last_seq;
            let look = self.look_at_releasing();
            let scope = self.take_scope(&look.lost);
            let Look { machines, unnoted, due: of_machines, .. } = self.look_at(&scope, look);
            unnoted.iter().for_each(|id| self.note_rented(id));
            let mut facts = self.facts_of(&scope, machines);
            let Decision { actions, due } = plan::decide(&self.world, &facts, &self.policy, &scope);
            // What was seen and found is still true if nothing was done, except that machines are to end from now on.
            let (mut is_idle, mut begun) = (true, Vec::new());
            for action in actions {
                match action {
                    Action::Terminate { instance } if self.end(&instance) => begun.push(instance),
                    Action::Terminate { .. } => {}
                    action => {
                        is_idle = false;
                        self.perform(action);
                    }
                }
            }
            last = scope;
            if self.world.last_seq == seq {
                self.end_decisions();
                begun.iter().for_each(|id| self.look_again(&mut facts, id));
                let decided = begun.is_empty().then_some(&due);
                let known = Known { scope: &last, facts: &facts, machines: &of_machines, decided };
                self.set_timers(is_idle.then_some(known));
                self.ask();
                return is_idle.then_some((last, facts));
            }
        }
        self.note_endless(PASSES, &last);
        None
    }

    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::Rent { run, instance, others, offer, reserve } => {
                let token = token(&self.owner, &instance);
                self.intend_rent(RentIntended { run, instance, token, offer, reserved: reserve, others });
            }
            Action::TakeOver { run, instance, from, usage, reserve } => {
                self.take_over(run, instance, from, usage, reserve);
            }
            Action::Launch { instance } => self.launch(&instance),
            Action::RecordLaunch { instance } => {
                let handle = self.machines.get(&instance).and_then(|memory| memory.machines.keys().next().cloned());
                self.note_accepted(&instance, handle, None);
            }
            Action::Start { run, attempt, fence, instances } => {
                let mut instances = instances.into_iter();
                let Some(instance) = instances.next() else { return };
                let others = instances.collect();
                self.must(Event::AttemptIntended { run, attempt, fence, instance, others });
            }
            Action::EndAttempt { attempt, end } => self.must(Event::AttemptEnded { attempt, end }),
            Action::EndMember { attempt, instance, end } => self.must(Event::MemberEnded { attempt, instance, end }),
            Action::End { run, end } => self.must(Event::Ended { run, end }),
            Action::Stop { run, by } => self.must(Event::StopRequested { run, by }),
            Action::Alert { run, spent } => self.must(Event::BudgetAlert { run, spent }),
            Action::Release { instance } => self.must(Event::ReleaseIntended { instance, lost_race: false }),
            Action::GiveUpRace { instance } => self.must(Event::ReleaseIntended { instance, lost_race: true }),
            Action::Terminate { instance } => {
                self.end(&instance);
            }
            Action::RecordRelease { instance, usage } => self.record_release(instance, usage),
            Action::Resize { attempt } => self.must(Event::AttemptResizing { attempt }),
            Action::HalveMicroBatch { run, accumulate } => self.must(Event::MicroBatchHalved { run, accumulate }),
            Action::Bill { run, bill } => {
                if self.is_appended(Event::Billed { run: run.clone(), bill }) {
                    self.runs.remove(&run);
                }
            }
            Action::SubmitTrial(new) => {
                let plan::SubmitTrial { run, job, plan, file, trial } = *new;
                let run_id = run.clone();
                let job_hash = job_hash(&job, &plan);
                let user = self.world.sweeps.get(&trial.sweep).and_then(|sweep| sweep.user.clone());
                let trial = Some(trial);
                self.must(Event::Submitted(Box::new(Submitted { run, job, plan, job_hash, file, trial, user })));
                self.offer_machines(&run_id);
            }
            Action::Resume { run, epochs } => self.resume_trial(run, epochs),
            Action::StopSweep { sweep, by } => self.must(Event::SweepStopRequested { sweep, by }),
            Action::AlertSweep { sweep, spent } => self.must(Event::SweepBudgetAlert { sweep, spent }),
            Action::EndSweep { sweep, end, total } => self.must(Event::SweepEnded { sweep, end, total }),
        }
    }

    /// Records that a machine is gone.
    pub(super) fn record_release(&mut self, instance: InstanceId, usage: Usage) {
        self.record_doubles(&instance);
        self.must(Event::Released { instance, usage });
    }

    /// What is known of a machine that is gone, or that never was, is forgotten once that is durable.
    pub(super) fn forget(&mut self, instance: &InstanceId) {
        self.clear(instance.as_str());
        if let Some(memory) = self.machines.remove(instance) {
            self.released.push_back((self.world.last_seq, instance.clone(), memory));
        }
    }

    /// Resumes a trial within the limits of its sweep.
    fn resume_trial(&mut self, run: RunId, epochs: Option<u32>) {
        let trial = self.world.runs.get(&run).and_then(|run| run.trial.as_ref());
        let sweep = trial.and_then(|trial| self.world.sweeps.get(&trial.sweep));
        let accept_data_change = sweep.is_some_and(|sweep| sweep.accept_data_change);
        let (budget, deadline, set) = (None, None, Vec::new());
        let run_id = run.clone();
        self.must(Event::ResumeRequested { run, budget, deadline, epochs, accept_data_change, set });
        self.offer_machines(&run_id);
    }

    /// A trial has begun: it may take over what the ended trials of its sweep have left.
    fn offer_machines(&mut self, trial: &RunId) {
        let sweep = self.world.runs.get(trial).and_then(|run| run.trial.as_ref()).map(|trial| trial.sweep.clone());
        if let Some(sweep) = sweep.filter(|_| self.policy.hands_over) {
            self.touch_sweep(sweep);
        }
    }

    /// Makes a call once the events that it depends on are durable.
    pub(super) fn call(&mut self, provider: &str, call: ProviderCall, pending: Pending) -> CallId {
        self.last_call += 1;
        let id = CallId(self.last_call);
        self.pending.insert(id, pending);
        self.hold(ControllerOutput::Call { id, provider: provider.to_owned(), call });
        id
    }

    /// Records the usage of additional machines that the same request has rented.
    fn record_doubles(&mut self, id: &InstanceId) {
        let Some(memory) = self.machines.get(id) else { return };
        let Some(instance) = self.world.instances.get(id) else { return };
        let main = instance.handle.as_ref().filter(|handle| memory.machines.contains_key(handle));
        let main = main.or(memory.machines.keys().next()).cloned();
        let is_new = |handle: &MachineHandle| Some(handle) != main.as_ref() && !instance.doubles.contains_key(handle);
        let others = memory.machines.iter().filter(|(handle, _)| is_new(handle));
        let doubles: Vec<(MachineHandle, Usage)> =
            others.filter_map(|(handle, usage)| Some((handle.clone(), (*usage)?))).collect();
        let billing = self.traits_of(id).map(|traits| traits.billing).unwrap_or_default();
        for (handle, usage) in doubles {
            self.note(id.as_str(), format!("its request has rented two machines; {} is billed too", handle.0), false);
            let usage = Usage { elapsed: billing.billed(usage.elapsed), ..usage };
            self.must(Event::DoubleEnded { instance: id.clone(), handle, usage });
        }
    }

    /// Requests the end of an instance whose release is recorded, repeatedly until it is gone; returns whether that is the
    /// first time.
    fn end(&mut self, id: &InstanceId) -> bool {
        let now = self.now.monotonic;
        let Some(instance) = self.world.instances.get(id) else { return false };
        let Some(provider) = self.providers.get(&instance.offer.provider) else { return false };
        let is_asked = self.machines.get(id).is_none_or(|memory| self.is_end_asked(memory, &provider.traits));
        let Some(memory) = self.machines.get_mut(id).filter(|_| !is_asked) else { return false };
        let is_first = memory.end.first.is_none();
        memory.end.is_pending = true;
        memory.end.first.get_or_insert(now);
        let mut handles: Vec<Option<MachineHandle>> = memory.machines.keys().cloned().map(Some).collect();
        if handles.is_empty() {
            handles.push(instance.handle.clone());
        }
        let (name, machine) = (instance.offer.provider.clone(), instance.machine_name(id).clone());
        let requests = handles.into_iter().map(|handle| EndRequest { instance: machine.clone(), handle }).collect();
        self.call(&name, ProviderCall::End(requests), Pending::End { instances: vec![id.clone()] });
        is_first
    }

    /// Queries providers: their view of the machines, the last events of machines that are gone; and ends unknown
    /// machines.
    fn ask(&mut self) {
        let names: Vec<String> = self.providers.keys().cloned().collect();
        for name in names {
            if self.observe_due(&name).is_some_and(|due| due <= self.now.monotonic) {
                self.observe(&name);
            }
            self.end_strangers(&name);
        }
        self.read_last_events();
    }

    fn observe(&mut self, name: &str) {
        let asked: Vec<InstanceId> = match self.providers.get(name) {
            Some(provider) => provider.rented.iter().cloned().collect(),
            None => Vec::new(),
        };
        let machine = |id: &InstanceId| self.world.instances.get(id).map_or(id, |known| known.machine_name(id)).clone();
        let names = asked.iter().map(machine).collect();
        let sent = self.now.monotonic;
        let pending = Pending::Observe { provider: name.to_owned(), sent, asked: asked.clone() };
        self.call(name, ProviderCall::Observe(names), pending);
        if let Some(provider) = self.providers.get_mut(name) {
            provider.is_observing = true;
            provider.last_observed = Some(sent);
        }
    }

    fn end_strangers(&mut self, name: &str) {
        let now = self.now.monotonic;
        let grace = self.policy.strangers;
        let Some(provider) = self.providers.get_mut(name) else { return };
        let mut requests = Vec::new();
        for (handle, stranger) in &mut provider.strangers {
            let is_old = now.0.saturating_sub(stranger.since.0) >= grace.0;
            let again = stranger.asked.is_none_or(|asked| now.0.saturating_sub(asked.0) >= grace.0);
            if is_old && again {
                stranger.asked = Some(now);
                requests.push(EndRequest { instance: stranger.instance.clone(), handle: Some(handle.clone()) });
            }
        }
        if !requests.is_empty() {
            let instances = requests.iter().map(|request| request.instance.clone()).collect();
            self.call(name, ProviderCall::End(requests), Pending::End { instances });
        }
    }

    /// Requests the last events that agents of machines that are gone had recorded.
    fn read_last_events(&mut self) {
        let now = self.now.monotonic;
        let mut due = Vec::new();
        for (id, memory) in &mut self.machines {
            let is_gone = matches!(memory.sight, Some(domain::run::Sight::Gone(_)));
            if let LastEvents::Unread { tries, not_before } = memory.last_events
                && is_gone
                && now >= not_before
            {
                due.push((id.clone(), tries));
            }
        }
        for (id, tries) in due {
            let Some(instance) = self.world.instances.get(&id) else { continue };
            let (name, machine) = (instance.offer.provider.clone(), instance.machine_name(&id).clone());
            if !self.providers.get(&name).is_some_and(|provider| provider.traits.keeps_events) {
                continue;
            }
            if let Some(memory) = self.machines.get_mut(&id) {
                memory.last_events = LastEvents::Asked { tries: tries + 1 };
            }
            self.call(&name, ProviderCall::LastEvents(machine), Pending::LastEvents { instance: id });
        }
    }

    /// Checks everything although nothing is due. Work found then should have been due.
    pub(super) fn audit(&mut self) {
        // A micro-dollar is spent within milliseconds, at an instant that cannot be predicted exactly.
        let is_overdue = self.now.monotonic.0.saturating_add(ROUNDING) >= self.wake.0;
        let mut scope = Scope::all(&self.world);
        self.leave_out_waiting(&mut scope);
        let facts = self.facts(&scope);
        let missed: Vec<Action> = plan::reconcile_scope(&self.world, &facts, &self.policy, &scope)
            .into_iter()
            .filter(|action| !matches!(action, Action::Terminate { .. }))
            .collect();
        if !missed.is_empty() && !is_overdue && !self.is_changed {
            self.note("controller", format!("not due and yet to be done: {missed:.300?}"), true);
        }
        if !missed.is_empty() {
            self.touch_all();
        }
        let is_live = |id: &InstanceId| {
            let state = self.world.instances.get(id).map(|instance| &instance.state);
            state.is_some_and(|state| !matches!(state, InstanceState::Released { .. }))
        };
        if let Some(id) = self.machines.keys().find(|id| !is_live(id)).cloned() {
            self.note("controller", format!("{id} is gone, and not forgotten"), true);
        }
    }
}
