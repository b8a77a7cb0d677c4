//! Replies and orders on their way to an agent: completed, and not repeated where that changes nothing.

use std::io;

use ::control::ReplyToAgent;
use cloud::local;
use domain::AttemptId;
use domain::wire::{AgentCommand, Heartbeat, Start};

use super::{OperationNote, Running, Waiting};
use crate::clock;
use crate::error::is_full;
use crate::files::{self, Grant};
use crate::home::StoredKind;

impl Running<'_, '_> {
    /// Stores an agent's measurements, and completes its reply with what only this process knows.
    ///
    /// Measurements do not influence decisions: if they cannot be stored, the agent retains them on its disk, and the
    /// run continues.
    pub(super) fn reply(&mut self, reply: ReplyToAgent) {
        let ReplyToAgent { to, run, mut reply } = reply;
        let Some(Waiting { heartbeat, reply: sender }) = self.waiting.remove(&to) else { return };
        if let Some(run) = run {
            let is_kept = self.keep(&run, &heartbeat.instance, &heartbeat.entries);
            reply.measured = Some(if is_kept { reply.acknowledged } else { 0 });
        }
        self.complete(&mut reply.orders, &heartbeat);
        // An agent that did not wait for the answer will call again.
        let _ = sender.send(reply);
    }

    /// Leaves out what an agent does already, and completes the other orders for it with what only this process knows: the
    /// secret values of its job and the folder of its run.
    fn complete(&mut self, orders: &mut Vec<AgentCommand>, heartbeat: &Heartbeat) {
        // First, so that a job that runs is not opened, and its `grant.json` not read, with each heartbeat.
        orders.retain(|command| !is_done(command, heartbeat.attempt.as_ref()));
        let instance = self.controller.world().instances.get(&heartbeat.instance);
        let is_remote = instance.is_none_or(|instance| instance.offer.provider != local::NAME);
        for command in orders.iter_mut() {
            if let AgentCommand::Start(start) | AgentCommand::Prepare(start) = command {
                self.control.state.key().unseal_job(&mut start.job);
                start.folder = self.control.home.run(&start.run).to_string_lossy().into_owned();
            }
        }
        if is_remote {
            retain_granted(orders, |start| self.grant(start));
        }
    }

    /// Lets the agent of an attempt on another machine use the files of its run, before it is told to begin; whether it may.
    fn grant(&mut self, start: &Start) -> bool {
        let (home, stored) = (self.control.home, StoredKind::Files(start.run.clone()));
        let granted = files::grant(home, &start.run, &Grant::new(start.fence, &start.job.work));
        let is_started = is_started(&granted);
        match granted {
            Ok(()) => home.space().accepted(&stored, GRANT, clock::now()),
            Err(error) if is_full(&error) => home.space().refused(&stored, GRANT, &error.to_string(), clock::now()),
            Err(error) => self.note(&OperationNote {
                subject: start.run.to_string(),
                text: format!("cannot write `{}/{GRANT}`: {error}", start.folder),
                is_mistake: false,
            }),
        }
        is_started
    }
}

/// The file that says what the agent of a run may use.
const GRANT: &str = "grant.json";

/// Leaves out orders to begin an attempt that may not begin yet: they are repeated.
fn retain_granted(orders: &mut Vec<AgentCommand>, mut grant: impl FnMut(&Start) -> bool) {
    orders.retain(|command| match command {
        AgentCommand::Start(start) | AgentCommand::Prepare(start) => grant(start),
        AgentCommand::Go { .. } | AgentCommand::Stop { .. } | AgentCommand::Leave => true,
    });
}

/// Whether an attempt begins whose files were granted like this. Without a grant it could neither read its inputs nor save; on a
/// full disk it waits until there is space, and any other failure ends it with what is wrong.
fn is_started(granted: &io::Result<()>) -> bool {
    !granted.as_ref().is_err_and(is_full)
}

/// Whether an agent on which this attempt runs alone has nothing to do for an order: to start the same attempt alone. Of
/// one on several machines it says nothing, so that each order for it is repeated.
fn is_done(command: &AgentCommand, running: Option<&AttemptId>) -> bool {
    match command {
        AgentCommand::Start(start) => start.member.is_none() && running == Some(&start.attempt),
        AgentCommand::Prepare(_) | AgentCommand::Go { .. } => false,
        AgentCommand::Stop { .. } | AgentCommand::Leave => false,
    }
}

#[cfg(test)]
mod tests {
    use domain::wire::{NodeRank, Start};
    use domain::{Fence, Job, RunId};

    use super::*;

    fn start(attempt: &str, member: Option<NodeRank>) -> Box<Start> {
        let job = Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job;
        Box::new(Start {
            run: RunId::new("a"),
            attempt: AttemptId::new(attempt),
            fence: Fence(1),
            job,
            job_hash: String::new(),
            threads: 1,
            accept_data_change: false,
            member,
            folder: String::new(),
        })
    }

    #[test]
    fn an_attempt_begins_once_there_is_space_for_its_grant() {
        let failure = |kind: io::ErrorKind| Err(io::Error::from(kind));
        assert!(is_started(&Ok(())) && is_started(&failure(io::ErrorKind::PermissionDenied)));
        assert!(!is_started(&failure(io::ErrorKind::StorageFull)));
        let stop = AgentCommand::Stop { attempt: AttemptId::new("a-a1"), is_node_lost: false, within: None };
        let all = [AgentCommand::Start(start("a-a2", None)), stop, AgentCommand::Prepare(start("b-a1", None))];
        let mut orders = all.to_vec();
        retain_granted(&mut orders, |start| start.attempt.as_str() == "b-a1");
        assert_eq!(orders, all[1..]);
    }

    #[test]
    fn only_the_order_for_what_runs_already_is_left_out() {
        let running = AttemptId::new("a-a1");
        let alone = AgentCommand::Start(start("a-a1", None));
        assert!(is_done(&alone, Some(&running)), "it has begun long ago");
        assert!(!is_done(&alone, None), "it has ended there, or the agent is of an earlier version");
        let place = Some(NodeRank { rank: 0, nodes: 2 });
        for repeated in [
            AgentCommand::Start(start("a-a2", None)),
            AgentCommand::Start(start("a-a1", place)),
            AgentCommand::Prepare(start("a-a1", place)),
            AgentCommand::Go { attempt: running.clone(), nodes: Vec::new() },
            AgentCommand::Stop { attempt: running.clone(), is_node_lost: false, within: None },
            AgentCommand::Leave,
        ] {
            assert!(!is_done(&repeated, Some(&running)), "{repeated:?}");
        }
    }
}
