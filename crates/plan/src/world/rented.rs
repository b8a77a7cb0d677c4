//! What happens to the machines of runs: from the intent to rent one to the proof that it is gone.

use std::collections::BTreeMap;

use domain::event::RentIntended;
use domain::rental::MachineHandle;
use domain::run::{InstanceState, RunState, Usage};
use domain::{Cause, Elapsed, Finding, InstanceId, Money, Offer, Record, RunId, Timestamp};

use super::lifecycle::{is_stopping, refuse_final};
use super::{Instance, World};

impl Instance {
    /// One that is going to be rented.
    pub(super) fn intended(run: &RunId, token: String, offer: Offer, reserved: Money, intended: Timestamp) -> Instance {
        Instance {
            run: run.clone(),
            token,
            offer,
            reserved,
            intended,
            handle: None,
            account: None,
            doubles: BTreeMap::new(),
            is_accepted: false,
            was_refused: false,
            started: None,
            reclaim: None,
            lost_race: false,
            incarnation: 0,
            first: None,
            machine: None,
            before: Elapsed(0),
            state: InstanceState::Intended,
        }
    }

    /// Whether it was rented and may be there, and its provider's name of it is not known yet.
    pub fn lacks_handle(&self) -> bool {
        let is_there = !matches!(self.state, InstanceState::Intended | InstanceState::Released { .. });
        is_there && self.handle.is_none()
    }
}

impl World {
    pub(super) fn launched(
        &mut self,
        id: &InstanceId,
        handle: Option<&MachineHandle>,
        account: &Option<String>,
    ) -> Result<(), String> {
        if self.instance_mut(id)?.lacks_handle() && handle.is_some() {
            let instance = self.instance_mut(id)?;
            (instance.is_accepted, instance.handle) = (true, handle.cloned());
            instance.account = account.clone().or_else(|| instance.account.take());
            return Ok(());
        }
        self.instance_moves(id, InstanceState::Launching)?;
        let instance = self.instance_mut(id)?;
        instance.is_accepted = true;
        (instance.handle, instance.account) = (handle.cloned(), account.clone());
        let run = self.run_of_instance(id)?;
        run.waits = 0;
        // Others that were asked for at the same time were refused, or are not answered yet.
        let is_renting = match &run.state {
            RunState::Renting { .. } => true,
            RunState::Recovering { finding, .. } => finding.cause == Cause::NoCapacity,
            _ => false,
        };
        if is_renting && run.job.machines() == 1 && !run.plan.alternatives.is_empty() {
            run.state = RunState::Renting { instance: id.clone() };
        }
        Ok(())
    }

    /// It is given back. Where it has lost a race, the run waits for the one that has won.
    pub(super) fn release_intended(&mut self, id: &InstanceId, lost_race: bool) -> Result<(), String> {
        self.instance_moves(id, InstanceState::Releasing)?;
        self.instance_mut(id)?.lost_race = lost_race;
        let run = self.run_of_instance(id)?;
        if !lost_race || !matches!(&run.state, RunState::Renting { instance } if instance == id) {
            return Ok(());
        }
        let owner = self.instance_mut(id)?.run.clone();
        let run = self.run_mut(&owner)?.clone();
        let others = self.live_instances_of(&run).filter(|(_, other)| !other.lost_race && other.is_accepted);
        if let Some(winner) = others.last().map(|(winner, _)| winner.clone()) {
            self.run_mut(&owner)?.state = RunState::Renting { instance: winner };
        }
        Ok(())
    }

    pub(super) fn agent_up(&mut self, id: &InstanceId, started: Timestamp, incarnation: u64) -> Result<(), String> {
        self.instance_moves(id, InstanceState::Up)?;
        let instance = self.instance_mut(id)?;
        instance.incarnation = incarnation;
        instance.started = Some(started);
        instance.is_accepted = true;
        Ok(())
    }

    pub(super) fn reclaim_noticed(&mut self, id: &InstanceId, at: Timestamp) -> Result<(), String> {
        self.instance_mut(id)?.reclaim = Some(at);
        Ok(())
    }

    pub(super) fn rent_failed(
        &mut self,
        at: Timestamp,
        instance: &InstanceId,
        finding: &Finding,
    ) -> Result<(), String> {
        let usage = Usage { started: at, elapsed: Elapsed(0) };
        self.instance_moves(instance, InstanceState::Released { usage })?;
        self.instance_mut(instance)?.was_refused = true;
        if self.instance_mut(instance)?.lost_race {
            return Ok(());
        }
        let works = self.works_beside(instance);
        // What was asked for by one request is refused once.
        let is_counted = self.instance_mut(instance)?.first.as_ref().is_none_or(|first| first == instance);
        let run = self.run_of_instance(instance)?;
        // Waiting for a machine is no failure of the run; nor is it where others do its work meanwhile.
        match finding.cause {
            _ if works || !is_counted => return Ok(()),
            Cause::NoCapacity => run.waits += 1,
            cause => run.note_failure(cause),
        }
        if !run.state.is_final() && !is_stopping(run) {
            run.state = RunState::Recovering { finding: finding.clone(), exit_code: None };
        }
        Ok(())
    }

    /// Whether an attempt of the run that a machine was rented for has not ended.
    fn works_beside(&self, id: &InstanceId) -> bool {
        let run = self.instances.get(id).and_then(|instance| self.runs.get(&instance.run));
        run.is_some_and(|run| self.active_attempt(run).is_some())
    }

    pub(super) fn rent_intended(&mut self, record: &Record, intent: &RentIntended) -> Result<(), String> {
        let all: Vec<InstanceId> = std::iter::once(&intent.instance).chain(&intent.others).cloned().collect();
        if let Some(known) = all.iter().find(|id| self.instances.contains_key(*id)) {
            return Err(format!("instance `{known}` was intended before"));
        }
        let works = self.runs.get(&intent.run).is_some_and(|run| self.active_attempt(run).is_some());
        let run = self.run_mut(&intent.run)?;
        refuse_final(run)?;
        run.instances.extend(all.iter().cloned());
        if !is_stopping(run) && !works {
            run.state = RunState::Renting { instance: intent.instance.clone() };
        }
        let instance = Instance {
            first: (!intent.others.is_empty()).then(|| intent.instance.clone()),
            ..Instance::intended(&intent.run, intent.token.clone(), intent.offer.clone(), intent.reserved, record.at)
        };
        self.instances.extend(all.into_iter().map(|id| (id, instance.clone())));
        Ok(())
    }

    /// An instance only moves forward: a late word of its agent never brings it back.
    pub(super) fn instance_moves(&mut self, id: &InstanceId, to: InstanceState) -> Result<(), String> {
        let instance = self.instance_mut(id)?;
        if rank(&to) <= rank(&instance.state) {
            return Err(format!("instance `{id}` cannot go from {:?} to {to:?}", instance.state));
        }
        instance.state = to;
        Ok(())
    }

    /// A machine that ends before it was of any use counts as a restart, or it would be rented again without end.
    pub(super) fn released(&mut self, id: &InstanceId, usage: Usage) -> Result<(), String> {
        self.instance_moves(id, InstanceState::Released { usage })?;
        let was_used = self.was_used(id);
        let was_up = self.instance_mut(id)?.started.is_some();
        // The run goes on with another one.
        if self.instance_mut(id)?.lost_race {
            return Ok(());
        }
        let run = self.run_of_instance(id)?;
        // Of several machines, the newest is not the only one that the run waits for; one that was up is given back.
        let is_waited_for = |newest: &InstanceId| match run.job.machines() {
            1 => newest == id,
            _ => !was_used && !was_up,
        };
        if matches!(&run.state, RunState::Renting { instance } if is_waited_for(instance)) {
            let finding =
                Finding::new(Cause::InstanceLost, format!("instance `{id}` was gone before its agent could work"));
            run.note_failure(finding.cause);
            run.state = RunState::Recovering { finding, exit_code: None };
        }
        Ok(())
    }
}

fn rank(state: &InstanceState) -> u8 {
    match state {
        InstanceState::Intended => 0,
        InstanceState::Launching => 1,
        InstanceState::Up => 2,
        InstanceState::Releasing => 3,
        InstanceState::Released { .. } => 4,
    }
}
