//! Promises on time. Where nothing but machines fails, and in the quiet after every storm, no wait may be longer than the
//! rules say: what is gone is noticed, what never boots is given back, what cannot be reached is replaced, and a run works
//! again soon after the last thing that happened to it.

use control::{CallId, ControllerInput};
use domain::event::Event;
use domain::rental::{MachineHandle, ProviderAnswer, ProviderCall, Refusal};
use domain::run::{InstanceState, RunState};
use domain::{Elapsed, InstanceId, RunId};
use plan::Policy;

use crate::loop_process::policy;
use crate::machine::Machine;
use crate::rule::Rule;
use crate::scenario::SECOND;
use crate::simulation::Simulation;

/// Messages, syncs and looks at what is on their way.
const SLACK: u64 = 60 * SECOND;

/// A machine that ended on its own is noticed within this time: it is suspected, looked at, and its last events are read.
const NOTICED: u64 = 45 * SECOND;

/// Between two requests to end a machine at most, with what they take.
const ENDED_AGAIN: u64 = 90 * SECOND;

/// Machines that a run may be asked for: it waits between two tries.
const MACHINES: usize = 300;

/// The same for each kind of machine that it may be rented, if that is more.
const MACHINES_OF_A_KIND: usize = 100;

/// How long an agent may be silent, how long its machine's end is waited for, and the longest wait between two tries.
const WAITS: u64 = (120 + 10 + 60) * SECOND;

impl Simulation {
    /// What the loop appends, as far as promises rest on it.
    pub(crate) fn note_append(&mut self, event: &Event) {
        match event {
            Event::ReleaseIntended { instance, .. } => {
                self.releasing.insert(self.machine_name(instance), self.now);
            }
            Event::MachineTaken(taken) => self.check_taken(taken),
            Event::Released { instance, .. } if self.is_taken_over(instance) => {}
            Event::Released { instance, usage } => {
                let before = self.rent_before(instance).0;
                let machine = self.machine_name(instance);
                self.check_noticed(&machine);
                self.check_gone(&machine, Elapsed(before + usage.elapsed.0));
            }
            Event::RentFailed { instance, .. } => self.check_gone(instance, Elapsed(0)),
            Event::Submitted(submitted) => {
                self.disturbed(&submitted.run);
                self.check_due(&submitted.run);
            }
            Event::SweepSubmitted(submitted) => self.check_due(&RunId::new(submitted.sweep.as_str())),
            Event::ResumeRequested { run, .. } => self.disturbed(run),
            _ => {}
        }
    }

    /// A machine is not released while it boots, or while its agent is healthy, for a run that continues.
    pub(crate) fn check_release(&mut self, event: &Event) {
        let Event::ReleaseIntended { instance, lost_race: false } = event else { return };
        self.check_survivor(instance);
        let Some(controller) = &self.process.controller else { return };
        let world = controller.world();
        let Some(known) = world.instances.get(instance) else { return };
        let goes_on = world
            .runs
            .get(&known.run)
            .is_some_and(|run| !run.state.is_final() && !matches!(run.state, RunState::Stopping { .. }));
        let name = known.machine_name(instance);
        let mut machines = self.cloud.machines.values().filter(|machine| machine.instance == *name);
        // Of two machines for one request, one may be lost.
        let (Some(machine), None) = (machines.next(), machines.next()) else { return };
        // A machine that waits too long for the others of its run is given back, and so is one that is taken back.
        let is_expected = self.scenario.nodes + self.scenario.spares > 1 || known.reclaim.is_some();
        if is_expected || !goes_on || !machine.is_alive() || machine.is_frozen || self.is_restored {
            return;
        }
        let boots =
            machine.boots.is_some_and(|boots| self.now < boots && self.now < machine.rented + self.scenario.boot);
        // A node's silence is borne for 45 s, any other's for 120 s.
        let heard_within = if self.scenario.is_remote { 40 } else { 60 } * SECOND;
        let is_heard = machine.agent.is_some() && machine.healthy_at.is_some_and(|at| self.now < at + heard_within);
        if boots || (is_heard && known.state == InstanceState::Releasing) {
            let what = if boots { "while it booted" } else { "while its agent was well" };
            self.violate(format!("{instance} was given up {what}"));
        }
    }

    /// A run has made a step, or something has happened to it that takes time: from now on its stall counts.
    pub(crate) fn disturbed(&mut self, run: &RunId) {
        let at = self.worked.entry(run.clone()).or_default();
        *at = self.now.max(*at);
    }

    /// Something happens to a machine. One that is on its way out changes nothing any more.
    pub(crate) fn machine_disturbed(&mut self, handle: &MachineHandle, for_so_long: u64) {
        let Some(machine) = self.cloud.machines.get(handle) else { return };
        let archive = &self.process.archive;
        let known = archive.instances.get(archive.holder(&machine.instance).unwrap_or(&machine.instance));
        let run = match known {
            Some(known) if known.state == InstanceState::Releasing => return,
            Some(known) => known.run.clone(),
            None => return,
        };
        let until = self.now + for_so_long;
        let at = self.worked.entry(run).or_default();
        *at = until.max(*at);
    }

    /// Whether no machine is out of its provider's sight.
    fn sees_all(&self) -> bool {
        self.cloud.machines.values().all(|machine| self.now >= machine.dark_until)
    }

    /// Since when views prove what became of a machine. Where it may have a double, only a complete view does.
    fn in_sight_since(&self, machine: &Machine) -> u64 {
        if self.has_tokens() {
            return machine.dark_until;
        }
        self.cloud.machines.values().map(|machine| machine.dark_until).max().unwrap_or_default()
    }

    /// How long a second machine of the same request may come to light, where tokens do not rule it out.
    fn doubles_shown(&self) -> u64 {
        let traits = &self.scenario.traits;
        if self.has_tokens() { 0 } else { traits.visible_within.0 + traits.effective_within.0 }
    }

    /// Whether a token holds for as long as anything is asked for here.
    fn has_tokens(&self) -> bool {
        self.scenario.traits.token_lifetime.is_some_and(|lifetime| lifetime.0 >= 7_200 * SECOND)
    }

    /// What counts as gone is gone. One that nobody could reach, and that only itself could prove to have ended, is
    /// billed until it was heard last and for its lease.
    fn check_gone(&mut self, instance: &InstanceId, rent: Elapsed) {
        // Without tokens, a request that the network repeats may rent another one afterwards.
        let has_tokens = self.scenario.traits.token_lifetime.is_some();
        let machines = self.cloud.machines.values().filter(|machine| machine.instance == *instance);
        let machines: Vec<&Machine> = machines.collect();
        let was_dark = machines.iter().any(|machine| machine.dark_until > 0);
        // A frozen agent keeps no promise; its attempt is fenced.
        let stays = machines.iter().find(|machine| {
            // A node without an agent does nothing.
            let works = machine.agent.is_some() || !self.scenario.is_remote;
            machine.is_alive() && !machine.is_frozen && works
        });
        if let Some(machine) = stays.filter(|_| has_tokens && !self.is_restored) {
            let (rented, since) = (machine.rented / SECOND, (self.now - machine.rented) / SECOND);
            return self.violate(format!(
                "{instance} counts as gone, and its machine is there (since {rented} s, {since} s ago)"
            ));
        }
        let within = self.scenario.traits.abandoned_within.unwrap_or_default().0;
        let unheard = |machine: &&Machine| machine.healthy_at.is_none_or(|at| self.now >= at + within);
        // What was decided before a crash may not have been written down.
        self.settled_unseen.remove(instance);
        // It was reached again after all, and has proved when it ended.
        let billing = self.scenario.traits.billing;
        let is_proved = machines.iter().any(|machine| {
            machine.ended.is_some_and(|ended| billing.billed(Elapsed(ended - machine.rented)) == billing.billed(rent))
        });
        if self.scenario.is_remote && !is_proved && (was_dark || machines.iter().all(unheard)) {
            self.settled_unseen.insert(instance.clone(), rent);
            // Clocks, and a loop that was down meanwhile, may add to it. One that has started over still knows: seed 39532.
            if self.scenario.is_skewed || self.is_restored || self.stats.crashes > 0 {
                return;
            }
            let policy = policy(&self.scenario, None);
            let heard = machines.iter().filter_map(|one| one.healthy_at.map(|at| at - one.rented)).max();
            let billed = billing.billed(rent).0;
            let most = heard.unwrap_or(0) + policy.lease.0 + self.scenario.traits.boots_within.0 + 2 * SLACK;
            if billed < heard.unwrap_or(0) || billed > billing.billed(Elapsed(most)).0 {
                let (billed, heard) = (billed / SECOND, heard.unwrap_or(0) / SECOND);
                self.violate(format!("{instance} was heard after {heard} s, and is billed for {billed} s"));
            }
        }
    }

    fn check_noticed(&mut self, instance: &InstanceId) {
        if !self.scenario.is_clear || !self.is_stormy || !self.sees_all() || self.releasing.contains_key(instance) {
            return;
        }
        let mut machines = self.cloud.machines.values().filter(|machine| machine.instance == *instance);
        let (Some(machine), None) = (machines.next(), machines.next()) else { return };
        let since = machine.ended.unwrap_or(self.now).max(machine.visible).max(self.in_sight_since(machine));
        if self.now > since + NOTICED + self.doubles_shown() {
            let late = (self.now - since) / SECOND;
            self.violate(format!("{instance} was gone for {late} s before that was noticed"));
        }
    }

    /// A request to end a machine arrives: not long after it could be reached again.
    pub(crate) fn check_end(&mut self, call: &ProviderCall) {
        let ProviderCall::End(requests) = call else { return };
        if !self.scenario.is_clear || !self.is_stormy {
            return;
        }
        for request in requests {
            let mut machines = self
                .cloud
                .machines
                .values()
                .filter(|machine| machine.instance == request.instance && machine.is_alive());
            let Some(machine) = machines.next().filter(|machine| machine.dark_until > 0) else { continue };
            let Some(since) = self.releasing.get(&request.instance) else { continue };
            let since = machine.dark_until.max(*since);
            if self.now > since + ENDED_AGAIN {
                let late = (self.now - since) / SECOND;
                return self.violate(format!("{} could be reached for {late} s before it was ended", request.instance));
            }
        }
    }

    /// A provider that has asked for patience is not asked again before.
    pub(crate) fn check_patience(&mut self, life: u64, call: &ProviderCall) {
        let ProviderCall::Launch(request) = call else { return };
        let Some((of, until)) = self.patience.get(&request.token).copied() else { return };
        if of == life && self.now < until {
            self.violate(format!("{} was asked for before its provider wanted to be asked", request.token));
        }
    }

    /// An answer reaches the loop. What it asks for is remembered by the token of the request.
    pub(crate) fn note_answer(&mut self, life: u64, input: &ControllerInput) {
        let ControllerInput::Answered { call, .. } = input else { return };
        let Some(token) = self.launches.remove(&(life, *call)) else { return };
        if let Some(after) = self.throttled.remove(&(life, *call)) {
            self.patience.insert(token, (life, self.now + after));
        }
    }

    /// What the loop knows is what the log says, and nothing else.
    pub(crate) fn check_memory(&mut self) {
        if !self.process.unsynced.is_empty() {
            return;
        }
        let Ok(told) = self.process.open_world() else { return };
        if self.process.controller.as_ref().is_some_and(|controller| *controller.world() != told) {
            self.violate("the loop knows what the log does not say".into());
        }
    }

    /// Looks every minute whether somebody waits for too long.
    pub(crate) fn check_waits(&mut self) {
        let is_quiet = !self.is_stormy;
        if self.process.controller.is_none() || self.is_restored || !(self.scenario.is_clear || is_quiet) {
            return;
        }
        self.check_boots();
        // Without tokens, what is in doubt waits for a view that misses nothing.
        if self.scenario.nodes + self.scenario.spares == 1 && self.budget.is_none() && self.has_tokens() {
            self.check_stalls();
        }
    }

    /// A machine that never boots is given back.
    fn check_boots(&mut self) {
        if !self.scenario.is_clear || !self.is_stormy {
            return;
        }
        let most = self.scenario.traits.boots_within.0.max(120 * SECOND) + 2 * SLACK;
        let is_kept = |machine: &&crate::machine::Machine| {
            machine.is_alive()
                && machine.boots.is_none()
                && machine.dark_until == 0
                && self.process.archive.instances.contains_key(&machine.instance)
                && self.now > machine.rented + most
        };
        if let Some(machine) = self.cloud.machines.values().find(is_kept) {
            let instance = machine.instance.clone();
            self.violate(format!("{instance} never booted, and is still rented"));
        }
    }

    /// A run that is wanted works again soon after the last thing that has happened to it.
    fn check_stalls(&mut self) {
        let traits = &self.scenario.traits;
        let lost_disks = if self.scenario.has_lost_disks { 300 * SECOND } else { 0 };
        // An offer that was refused again and again rests before it is asked for again.
        let rests = if self.scenario.alternatives > 0 { Policy::default().shortage_max.0 } else { 0 };
        let most = WAITS + traits.boots_within.0 + traits.visible_within.0 + SLACK + lost_disks + rests;
        let stalls = |run: &&RunId| {
            let Some(known) = self.process.archive.runs.get(*run) else { return false };
            let is_wanted = !known.state.is_final() && !matches!(known.state, RunState::Stopping { .. });
            let since = self.worked.get(*run).copied().unwrap_or(self.now).max(self.calm_since);
            is_wanted && self.now > since.saturating_add(most)
        };
        if let Some(run) = self.runs.iter().find(stalls).cloned() {
            let since = self.worked.get(&run).copied().unwrap_or_default() / SECOND;
            self.violate(format!("{run} does not work, and nothing has happened to it since {since} s"));
        }
    }

    /// Whether a run was asked for no more machines than its waits allow.
    pub(crate) fn asks_in_peace(&self, run: &RunId) -> bool {
        let kinds = 1 + self.scenario.alternatives as usize;
        let most = MACHINES.max(MACHINES_OF_A_KIND * kinds) * self.scenario.nodes.div_ceil(4) as usize;
        let known = self.process.archive.runs.get(run);
        known.is_none_or(|known| known.instances.len() <= most || self.scenario.work.failures.is_some())
    }

    /// Remembers for how long a provider wants to be left alone, and hides it where that rule is broken.
    pub(crate) fn note_throttled(&mut self, life: u64, id: CallId, answer: ProviderAnswer) -> ProviderAnswer {
        if let ProviderAnswer::Refused(Refusal::Throttled { after: Some(after) }) = &answer {
            self.throttled.insert((life, id), after.0);
        }
        match (self.rule, answer) {
            (Some(Rule::ThrottlingIsHeeded), ProviderAnswer::Refused(Refusal::Throttled { .. })) => {
                ProviderAnswer::Refused(Refusal::Throttled { after: None })
            }
            (_, answer) => answer,
        }
    }
}
