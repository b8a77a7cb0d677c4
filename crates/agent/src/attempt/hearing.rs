//! What an attempt makes of a happening.

use std::time::Duration;

use domain::rank::Report;
use domain::run::AttemptEnd;
use domain::wire::Word;

use super::{Attempt, Working};
use crate::event::Happening;

impl Attempt {
    /// Takes in what happened, and returns what there is to say of it.
    pub fn hear(&mut self, happening: Happening, now: Duration) -> Vec<Word> {
        match happening {
            Happening::Staged(Ok(here)) => self.staged(here, now),
            Happening::Staged(Err(finding)) => {
                self.sweep(AttemptEnd::Failed { finding, exit_code: None }, now);
                Vec::new()
            }
            Happening::Connected(rank, stream) => {
                match &mut self.work {
                    Working::Train { link, .. } if rank == 0 => link.connected(stream),
                    Working::Train { peers, .. } => peers.connected(rank, stream),
                    Working::Command { .. } => {}
                }
                Vec::new()
            }
            Happening::Reported(0, report) => self.reported(*report, now),
            Happening::Reported(rank, report) => {
                if let Working::Train { peers, .. } = &mut self.work {
                    peers.hear(rank, &report);
                }
                Vec::new()
            }
            Happening::Garbled(rank, line) => {
                vec![said(Report::Note { text: format!("rank {rank} sent a line that is no report: `{line}`") })]
            }
            Happening::Silent(rank) => {
                match &mut self.work {
                    Working::Train { link, .. } if rank == 0 => link.silent(),
                    Working::Train { peers, .. } => peers.silent(rank),
                    Working::Command { .. } => {}
                }
                Vec::new()
            }
            Happening::Exited(pid) => self.exited(pid, now),
        }
    }

    fn reported(&mut self, report: Report, now: Duration) -> Vec<Word> {
        if let Working::Train { heartbeat, said, .. } = &mut self.work {
            heartbeat.hear(&report, now);
            said.hear(&report);
        }
        vec![said(report)]
    }
}

fn said(report: Report) -> Word {
    Word::Reported { rank: 0, report }
}
