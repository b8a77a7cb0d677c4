//! Steps whose outcome is still on its way to the host, oldest first.
//!
//! A step is judged, reported and counted once its outcome is read, in the order in which steps were made, so what is decided
//! of each is what would have been decided at once. What the steps behind it did meanwhile is harmless: an update by
//! gradients that are not finite was skipped on the device, and a roll-back throws the state away. All are read before
//! anything is scored or saved.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use data::Cursor;
use tch::Device;

use crate::error::Error;
use crate::step::PendingStep;

/// Steps that may be on their way while the next one is begun on a CUDA device: enough that the device always knows what
/// to do next, few enough that a roll-back loses next to nothing.
const ON_DEVICE: usize = 2;

/// Steps that may be on their way on this device. A CPU computes while the host waits, so there is nothing to gain.
pub fn lag(device: Device) -> usize {
    if device.is_cuda() { ON_DEVICE } else { 0 }
}

/// A step that was begun, and what its report says besides the outcome.
pub(in crate::run) struct DeferredStep {
    /// Its number, from 1.
    pub step: u64,
    pub outcome: PendingStep,
    pub lr: f64,
    /// How long its batch was waited for while the device had nothing to do.
    pub data_wait: Duration,
    /// Samples of all ranks.
    pub samples: usize,
    /// Epoch of its batch, and the positions of its samples in the order of that epoch.
    pub batch: (u64, Range<u64>),
    /// Where the data goes on behind its batch.
    pub cursor: Cursor,
}

/// At most so many steps that are on their way.
pub(in crate::run) struct DeferredSteps {
    lag: usize,
    steps: VecDeque<DeferredStep>,
}

impl DeferredSteps {
    /// None yet.
    pub fn new(lag: usize) -> DeferredSteps {
        DeferredSteps { lag, steps: VecDeque::with_capacity(lag + 1) }
    }

    /// One more.
    pub fn push(&mut self, step: DeferredStep) {
        self.steps.push_back(step);
    }

    /// The oldest, if there are too many, or any where `all` are to be read.
    pub fn due(&mut self, all: bool) -> Option<DeferredStep> {
        if all || self.steps.len() > self.lag { self.steps.pop_front() } else { None }
    }

    /// Whether the device still has something to do.
    pub fn are_busy(&self) -> Result<bool, Error> {
        Ok(match self.steps.back() {
            Some(newest) => !newest.outcome.is_done()?,
            None => false,
        })
    }
}
