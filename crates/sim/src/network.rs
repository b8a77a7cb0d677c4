//! Messages over the network: calls to the cloud, heartbeats, and replies. All may be delayed, lost or duplicated.

use control::{CallId, ControllerInput, ReplyId};
use domain::rank::Report;
use domain::rental::{MachineHandle, ProviderAnswer, ProviderCall, Refusal};
use domain::wire::{AgentCommand, AgentEvent, Entry, Heartbeat, HeartbeatReply};
use plan::Policy;

use crate::rule::Rule;
use crate::scenario::SECOND;
use crate::simulation::{ReplyTo, SimEvent, Simulation};

/// After so long a call that was not answered counts as in doubt.
const DEADLINE: u64 = 15 * SECOND;

/// An agent that has no reply after so long takes its call for lost.
const CALL_DEADLINE: u64 = 15 * SECOND;

impl Simulation {
    pub(crate) fn call(&mut self, life: u64, id: CallId, mut call: ProviderCall) {
        self.stats.calls += 1;
        self.requests += 1;
        if let (ProviderCall::Launch(request), Some(Rule::OneToken)) = (&mut call, self.rule) {
            request.token = format!("{}-{}", request.token, self.requests);
        }
        if let (ProviderCall::Launch(request), Some(Rule::AnchorsAreOnDemand)) = (&mut call, self.rule) {
            request.offer.kind = request.offer.kind.replace('a', "m");
        }
        self.check_patience(life, &call);
        if let ProviderCall::Launch(request) = &call {
            self.launches.insert((life, id), request.token.clone());
        }
        self.cloud.note_end_request(&call, self.now);
        if let (ProviderCall::End(requests), Some(Rule::EndIsRepeated)) = (&call, self.rule)
            && !requests.iter().any(|request| self.ended_once.insert(request.instance.clone()))
        {
            let answer = ProviderAnswer::Ending;
            return self.at(self.now + 1, SimEvent::AnswerArrives { life, id, answer });
        }
        let doubt = self.doubt(&call);
        let deadline = self.now + DEADLINE;
        let late = self.draws.below(self.scenario.traits.effective_within.0);
        if self.chance(self.scenario.loss) {
            return self.answer(deadline, life, id, doubt);
        }
        if self.chance(self.scenario.loss / 2) {
            // Abandoned after a second, but carried out anyway.
            self.at(self.now + late, SimEvent::CallArrives { life, id, call, is_answered: false });
            return self.answer(self.now + SECOND, life, id, doubt);
        }
        if self.chance(self.scenario.repeat) {
            let call = call.clone();
            self.at(self.now + late, SimEvent::CallArrives { life, id, call, is_answered: false });
        }
        let arrives = self.now + self.delay();
        self.at(arrives, SimEvent::CallArrives { life, id, call, is_answered: true });
    }

    /// An agent calls.
    pub(crate) fn heartbeat(&mut self, handle: &MachineHandle, heartbeat: Box<Heartbeat>) {
        let now = self.now;
        if heartbeat.entries.iter().any(is_loss) {
            self.violate(format!("the agent of {} has dropped measurements that its disk had", heartbeat.instance));
        }
        let Some(machine) = self.cloud.machines.get(handle) else { return };
        let (call, is_cut) = (machine.call, now < machine.cut_until);
        let handle = handle.clone();
        self.at(now + CALL_DEADLINE, SimEvent::ReplyArrives { handle: handle.clone(), call, reply: None });
        if is_cut || self.chance(self.scenario.loss) {
            return;
        }
        if self.chance(self.scenario.repeat) {
            let again = now + self.delay() + self.draws.below(5 * SECOND);
            self.at(again, SimEvent::HeartbeatArrives { handle: handle.clone(), call, heartbeat: heartbeat.clone() });
        }
        let arrives = now + self.delay();
        self.at(arrives, SimEvent::HeartbeatArrives { handle, call, heartbeat });
    }

    pub(crate) fn answer(&mut self, time: u64, life: u64, id: CallId, answer: ProviderAnswer) {
        let is_lost = matches!(answer, ProviderAnswer::Doubt(_) | ProviderAnswer::Unavailable(_));
        if !(is_lost && self.rule == Some(Rule::CallsHaveDeadlines)) {
            self.at(time, SimEvent::AnswerArrives { life, id, answer });
        }
    }

    pub(crate) fn doubt(&self, call: &ProviderCall) -> ProviderAnswer {
        match (call, self.rule) {
            (ProviderCall::Launch(_), Some(Rule::DoubtIsNoRefusal | Rule::DesignOfBefore)) => {
                ProviderAnswer::Refused(Refusal::Capacity { message: "in doubt".into() })
            }
            (ProviderCall::Launch(_), _) => ProviderAnswer::Doubt("no reply".into()),
            (_, _) => ProviderAnswer::Unavailable("no reply".into()),
        }
    }

    pub(crate) fn call_arrives(&mut self, life: u64, id: CallId, call: &ProviderCall, is_answered: bool) {
        let has_faults = self.is_stormy && !self.rented.contains(&(life, id));
        let is_launch = matches!(call, ProviderCall::Launch(_));
        if self.refused.contains(&(life, id)) {
            return;
        }
        self.check_end(call);
        let outcome = self.cloud.receive(call, self.now, &self.scenario, (&mut self.draws, has_faults), self.rule);
        if is_launch && matches!(outcome.answer, ProviderAnswer::Refused(_)) && is_answered {
            self.refused.insert((life, id));
        }
        for handle in outcome.rented {
            self.rented.insert((life, id));
            self.stats.machines += 1;
            match self.cloud.machines.get(&handle).and_then(|machine| machine.boots) {
                Some(boots) => self.at(boots, SimEvent::AgentBoots(handle)),
                None => self.machine_disturbed(&handle, self.scenario.traits.boots_within.0.max(120 * SECOND)),
            }
        }
        if !is_answered {
            return;
        }
        if self.chance(self.scenario.loss) {
            let doubt = self.doubt(call);
            return self.answer(self.now + DEADLINE, life, id, doubt);
        }
        let arrives = self.now + self.delay();
        let answer = self.note_throttled(life, id, outcome.answer);
        self.at(arrives, SimEvent::AnswerArrives { life, id, answer });
    }

    pub(crate) fn reply(&mut self, to: ReplyId, mut reply: HeartbeatReply) {
        let Some(ReplyTo::Agent { handle, call }) = self.replies.remove(&to) else { return };
        self.check_stays(&handle, &reply);
        if self.rule == Some(Rule::DeadManSwitch) {
            reply.lease = domain::Duration::from_secs(1_000_000_000);
        }
        if self.rule == Some(Rule::LeaseWithinBudget) {
            (reply.lease, reply.saving) = (domain::Duration::from_micros(Policy::default().lease.0), None);
        }
        if self.rule == Some(Rule::SavingIsReserved) {
            for order in &mut reply.orders {
                if let AgentCommand::Stop { within, .. } = order {
                    *within = None;
                }
            }
        }
        if self.rule == Some(Rule::NodeLossIsTold) {
            reply.orders.retain(|order| !matches!(order, AgentCommand::Stop { is_node_lost: true, .. }));
        }
        if !self.chance(self.scenario.loss) {
            let arrives = self.now + self.delay();
            self.at(arrives, SimEvent::ReplyArrives { handle, call, reply: Some(Box::new(reply)) });
        }
    }

    pub(crate) fn heartbeat_arrives(&mut self, handle: MachineHandle, call: u64, heartbeat: Box<Heartbeat>) {
        if self.process.controller.is_none() {
            // There is no listener: the caller gets an error at once.
            return self.at(self.now + 1000, SimEvent::ReplyArrives { handle, call, reply: None });
        }
        if let Some(machine) = self.cloud.machines.get_mut(&handle) {
            machine.healthy_at = Some(self.now);
        }
        let from = self.reply_id(ReplyTo::Agent { handle, call });
        self.deliver(ControllerInput::Heartbeat { from, heartbeat });
    }

    pub(crate) fn reply_id(&mut self, to: ReplyTo) -> ReplyId {
        self.last_reply += 1;
        self.replies.insert(ReplyId(self.last_reply), to);
        ReplyId(self.last_reply)
    }
}

/// Whether an agent says that measurements are lost.
fn is_loss(entry: &Entry) -> bool {
    matches!(&entry.event, AgentEvent::Reported { report: Report::Note { text }, .. } if text.contains("were dropped"))
}
