//! Which samples each batch holds, from where training stands.

use super::share::Share;
use crate::Cursor;

/// Which samples a batch holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub from: Cursor,
    /// Our samples of it.
    pub len: u64,
    /// Whether its pictures are mixed with each other.
    pub mixes: bool,
    /// Slots to fill: our samples, and the one that the first of them is mixed with if that is another rank's.
    pub slots: u64,
    /// Where the batch of all ranks begins.
    pub start: u64,
    /// All its samples.
    pub all: u64,
    pub after: Cursor,
}

/// The plans that are still to come. Where they begin makes no difference to what it costs: nothing here is kept a
/// sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upcoming {
    pub at: Cursor,
    pub epochs: u64,
    pub samples: u64,
    /// Samples of a full batch, those of all ranks.
    pub batch: u64,
    pub share: Share,
    pub mixes: bool,
}

impl Iterator for Upcoming {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        if self.at.epoch >= self.epochs || self.samples == 0 {
            return None;
        }
        let from = self.at;
        let all = self.batch.min(self.samples - from.pos);
        let after = match from.pos + all {
            pos if pos < self.samples => Cursor { pos, ..from },
            _ => Cursor { epoch: from.epoch + 1, pos: 0 },
        };
        self.at = after;
        let ours = self.share.of(all);
        let (start, len) = (from.pos, ours.end - ours.start);
        let from = Cursor { pos: start + ours.start, ..from };
        let slots = len + u64::from(self.mixes && (1..all).contains(&len));
        let mixes = self.mixes && len > 0;
        Some(Plan { from, len, mixes, slots, start, all, after })
    }
}

impl Plan {
    /// The position in its epoch of what a slot holds: ours from the first on, and behind them the one before it,
    /// where the last of a batch is before its first.
    pub fn position(&self, slot: u64) -> u64 {
        match slot < self.len {
            true => self.from.pos + slot,
            false if self.from.pos > self.start => self.from.pos - 1,
            false => self.start + self.all - 1,
        }
    }
}
