//! An attempt on several machines, seen from one of them: prepared first, started once all are.

use std::path::PathBuf;
use std::time::Duration;

use domain::Work;
use domain::run::AttemptEnd;
use domain::wire::{AgentEvent, NodeAddress, Start};

use super::verdict::Role;
use super::{Attempt, Stage, Working, program};

/// The first rank of this machine among all.
pub fn first_rank(start: &Start) -> u32 {
    let of_node = match &start.job.work {
        Work::Train(train) => train.processes.max(1),
        Work::Command(_) => 1,
    };
    start.member.map_or(0, |place| place.rank * of_node)
}

impl Attempt {
    /// Whether rank 0, which speaks for all ranks of our own trainer, is on another machine.
    pub(super) fn is_follower(&self) -> bool {
        self.start.member.is_some_and(|place| place.rank > 0)
    }

    /// All that its ranks need is here: they start, or wait for other machines to be prepared.
    pub(super) fn prepared(&mut self, data: PathBuf, now: Duration) -> Vec<AgentEvent> {
        if self.start.member.is_none() {
            return self.start_work(&data, now);
        }
        self.stage = Stage::Prepared { data };
        // Without an address the others are on this machine too.
        let host = self.tools.address.clone().unwrap_or_else(|| program::HERE.to_owned());
        vec![AgentEvent::Prepared { address: NodeAddress { host, port: program::free_port() } }]
    }

    /// All machines are prepared: the ranks start, unless they were started before.
    pub fn go(&mut self, nodes: Vec<NodeAddress>, now: Duration) -> Vec<AgentEvent> {
        let (Stage::Prepared { data }, None) = (&self.stage, &self.ending) else { return Vec::new() };
        let data = data.clone();
        self.nodes = nodes;
        self.start_work(&data, now)
    }

    fn start_work(&mut self, data: &std::path::Path, now: Duration) -> Vec<AgentEvent> {
        if let Working::Command { command, .. } = &self.work {
            return self.start_program(Role::Program, &command.run.clone());
        }
        self.start_rank(data, now).unwrap_or_else(|finding| {
            self.sweep(AttemptEnd::Failed { finding: *finding, exit_code: None }, now);
            Vec::new()
        })
    }
}
