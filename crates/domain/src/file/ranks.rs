//! Whether ranks and micro-batches can share a batch as the job says.

use super::sense::Sense;
use crate::train::{Parallel, Train};

impl Sense {
    /// Refuses parts of a batch without a sample, and wishes that only several ranks can fulfil.
    pub(super) fn ranks(&mut self, train: &Train) {
        let Train { batch, accumulate, processes, parallel, .. } = train;
        if accumulate > batch {
            let message = format!("{accumulate} micro-batches cannot be made of {batch} samples");
            self.wrong("train.accumulate", message, format!("write at most {batch}"));
        } else if processes.saturating_mul(*accumulate) > *batch {
            let message = match accumulate {
                1 => format!("{processes} ranks cannot share {batch} samples"),
                parts => format!("{processes} ranks with {parts} micro-batches each cannot share {batch} samples"),
            };
            self.wrong("train.processes", message, format!("write at most {}", batch / accumulate));
        }
        if *processes == 1 && *parallel != Parallel::default() {
            let message = "there is nothing to share with a single rank";
            self.wrong("train.parallel", message, "write `processes: 2`, or leave `parallel` out");
        }
    }
}
