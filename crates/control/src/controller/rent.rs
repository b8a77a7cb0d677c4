//! Rents machines: the intent first, then the request, and what a run takes over from another one.

use domain::event::{MachineTaken, RentIntended};
use domain::rental::{LaunchRequest, ProviderCall};
use domain::run::{InstanceState, Usage};
use domain::{Cause, Elapsed, Event, Finding, InstanceId, Money, RunId};
use plan::Scope;

use super::Controller;
use super::memory::{MachineMemory, Pending};

impl Controller {
    /// Records the intent to rent, and asks for the machines of one request.
    pub(super) fn intend_rent(&mut self, intent: RentIntended) {
        let first = intent.instance.clone();
        let members: Vec<InstanceId> = std::iter::once(&first).chain(&intent.others).cloned().collect();
        if !self.is_appended(Event::RentIntended(Box::new(intent))) {
            return;
        }
        for member in members {
            self.machines.insert(member, MachineMemory::new(self.awake, Elapsed(0), self.now.monotonic));
        }
        self.launch(&first);
    }

    /// Writes down that a run takes over the machine of another one, first for the one that takes it: should only that
    /// reach the disk, the rest follows from it.
    pub(super) fn take_over(
        &mut self,
        run: RunId,
        instance: InstanceId,
        from: InstanceId,
        usage: Usage,
        reserved: Money,
    ) {
        let Some(old) = self.world.instances.get(&from).cloned() else { return };
        let taken = MachineTaken {
            run,
            instance: instance.clone(),
            machine: old.machine_name(&from).clone(),
            token: old.token,
            offer: old.offer,
            reserved,
            handle: old.handle,
            account: old.account,
            intended: old.intended,
            started: old.started.unwrap_or(old.intended),
            incarnation: old.incarnation,
            before: Elapsed(old.before.0.saturating_add(usage.elapsed.0)),
        };
        if !self.is_appended(Event::MachineTaken(Box::new(taken))) {
            return;
        }
        if let Some(memory) = self.machines.get(&from).cloned() {
            self.machines.insert(instance, MachineMemory { noted: None, ..memory });
        }
        self.record_release(from, usage);
    }

    /// Requests an instance whose intent is recorded, with all others of its request. Repeated requests rent them once.
    pub(super) fn launch(&mut self, id: &InstanceId) {
        let Some(instance) = self.world.instances.get(id).cloned() else { return };
        let name = instance.offer.provider.clone();
        let now = self.now.monotonic;
        if !self.providers.contains_key(&name) {
            let finding = Finding::new(Cause::Internal, format!("the process that runs this home has no `{name}`"))
                .hint(format!(
                    "where `gradus serve` runs, start it again with what `{name}` needs, then resume the run"
                ));
            self.must(Event::RentFailed { instance: id.clone(), finding });
            return;
        }
        let is_ready = self.machines.get(id).is_some_and(|memory| now >= memory.launch.not_before);
        if !is_ready {
            return;
        }
        let members = plan::members(&self.world, id);
        if self.is_given_up(&members) {
            return self.give_up_rest(&members);
        }
        let run = self.world.runs.get(&instance.run);
        let first_answer = run.and_then(|run| {
            let sweeps = run.trial.iter().map(|trial| trial.sweep.clone()).collect();
            let facts = self.machine_facts(&Scope { sweeps, ..Scope::default() });
            plan::first_answer(&self.world, &facts, &self.policy, run, &instance)
        });
        let expires = run.and_then(|run| plan::expires(&self.world, &self.policy, run, &instance));
        let price_cap = run.and_then(|run| plan::price_cap(&self.world, run, &instance.offer));
        let request = LaunchRequest {
            members: members.clone(),
            token: instance.token,
            offer: instance.offer,
            price_cap,
            expires,
            first_answer: first_answer.map(|time| domain::Duration::from_micros(time.0)),
            has_peers: self.world.runs.get(&instance.run).is_some_and(|run| run.job.nodes() > 1),
        };
        let pending = Pending::Launch { instance: id.clone(), sent: now };
        let call = self.call(&name, ProviderCall::Launch(Box::new(request)), pending);
        if let Some(memory) = self.machines.get_mut(id) {
            memory.launch.pending = Some(call);
        }
        for member in &members {
            if let Some(memory) = self.machines.get_mut(member) {
                memory.missing = None;
            }
        }
        self.share_launch(id);
    }

    /// Whether one machine of a request was refused: then none was rented. One that is gone may have been rented, and
    /// have ended before its request was answered.
    fn is_given_up(&self, members: &[InstanceId]) -> bool {
        let mut known = members.iter().filter_map(|member| self.world.instances.get(member));
        known.any(|instance| instance.was_refused)
    }

    /// The loop died while it wrote down that a request for several machines was refused.
    fn give_up_rest(&mut self, members: &[InstanceId]) {
        for member in members {
            let instance = self.world.instances.get(member);
            if instance.is_some_and(|instance| instance.state == InstanceState::Intended) {
                let finding = Finding::new(Cause::NoCapacity, "what was asked for with it was refused");
                self.must(Event::RentFailed { instance: member.clone(), finding });
            }
        }
    }
}
