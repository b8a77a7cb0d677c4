//! Attempts on several machines: the reports of each.

use domain::run::{AttemptEnd, InstanceState};
use domain::wire::NodeAddress;
use domain::{AttemptId, Fence, InstanceId, Record, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{AttemptState, Instance, RunAttempt, World};

/// One machine of an attempt on several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Which.
    pub instance: InstanceId,
    /// Where the others reach it, once it has all that its ranks need.
    pub address: Option<NodeAddress>,
    /// How its ranks ended, once they have, and the number of that event: earlier ends come first.
    pub end: Option<(u64, AttemptEnd)>,
}

impl RunAttempt {
    /// An attempt that has not started, on one machine or on several by node rank.
    pub(super) fn new(
        run: &RunId,
        fence: Fence,
        (first, others): (&InstanceId, &[InstanceId]),
        at: Timestamp,
    ) -> RunAttempt {
        let member = |instance: &InstanceId| Member { instance: instance.clone(), address: None, end: None };
        let members = match others.is_empty() {
            true => Vec::new(),
            false => std::iter::once(first).chain(others).map(member).collect(),
        };
        let (run, instance) = (run.clone(), first.clone());
        let (is_resizing, stragglers) = (false, Vec::new());
        RunAttempt {
            run,
            fence,
            instance,
            members,
            intended: at,
            is_resizing,
            stragglers,
            state: AttemptState::Intended,
        }
    }

    /// Its machines by node rank.
    pub fn instances(&self) -> impl Iterator<Item = &InstanceId> {
        let alone = self.members.is_empty().then_some(&self.instance);
        alone.into_iter().chain(self.members.iter().map(|member| &member.instance))
    }

    /// Its part on one of several machines.
    pub fn member(&self, instance: &InstanceId) -> Option<&Member> {
        self.members.iter().find(|member| member.instance == *instance)
    }
}

impl World {
    /// Keeps [`Run::able_since`] in step with an event that was applied.
    pub(super) fn note_able(&mut self, record: &Record) {
        let Some(id) = self.run_of(&record.event) else { return };
        let Some(run) = self.runs.get(id).filter(|run| run.job.least_nodes() < run.job.nodes()) else { return };
        let is_up = |instance: &Instance| instance.state == InstanceState::Up && instance.reclaim.is_none();
        let up = self.live_instances_of(run).filter(|(_, instance)| is_up(instance)).count();
        let is_able = up >= run.job.least_nodes() as usize && self.active_attempt(run).is_none();
        let since = is_able.then(|| run.able_since.unwrap_or(record.at));
        let id = id.clone();
        if let Some(run) = self.runs.get_mut(&id) {
            run.able_since = since;
        }
    }

    /// Whether an attempt was ever started on a machine.
    pub(super) fn was_used(&self, id: &InstanceId) -> bool {
        let run = self.instances.get(id).and_then(|instance| self.runs.get(&instance.run));
        let mut attempts = run.into_iter().flat_map(|run| &run.attempts).filter_map(|id| self.attempts.get(id));
        attempts.any(|attempt| attempt.instances().any(|used| used == id))
    }

    pub(super) fn member_prepared(
        &mut self,
        attempt: &AttemptId,
        instance: &InstanceId,
        address: &NodeAddress,
    ) -> Result<(), String> {
        let member = self.member_mut(attempt, instance)?;
        if member.address.is_some() || member.end.is_some() {
            return Err(format!("`{instance}` was already prepared for `{attempt}`"));
        }
        member.address = Some(address.clone());
        Ok(())
    }

    pub(super) fn member_ended(
        &mut self,
        seq: u64,
        attempt: &AttemptId,
        instance: &InstanceId,
        end: &AttemptEnd,
    ) -> Result<(), String> {
        let member = self.member_mut(attempt, instance)?;
        if member.end.is_some() {
            return Err(format!("`{attempt}` has already ended on `{instance}`"));
        }
        member.end = Some((seq, end.clone()));
        Ok(())
    }

    /// A machine's part in an attempt on several that has not ended.
    fn member_mut(&mut self, attempt: &AttemptId, instance: &InstanceId) -> Result<&mut Member, String> {
        let known = self.attempts.get_mut(attempt).ok_or_else(|| format!("attempt `{attempt}` is unknown"))?;
        if matches!(known.state, AttemptState::Ended { .. }) {
            return Err(format!("attempt `{attempt}` has ended before"));
        }
        let member = known.members.iter_mut().find(|member| member.instance == *instance);
        member.ok_or_else(|| format!("`{instance}` is no member of attempt `{attempt}`"))
    }
}
