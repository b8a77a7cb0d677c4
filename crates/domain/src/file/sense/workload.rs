//! Checks of `workload:`, the description of a user's own program. What needs the network, such as its number of heads, is
//! checked when it is planned.

use super::Validator;
use crate::job::Job;
use crate::workload::{PipelineSchedule, RecomputeLevel, Workload, WorkloadModel};

impl Validator {
    pub(super) fn workload(&mut self, job: &Job, workload: &Workload) {
        let spans = [workload.epochs.is_some(), workload.steps.is_some(), workload.tokens.is_some()];
        match spans.iter().filter(|is_given| **is_given).count() {
            1 => {}
            0 => {
                let message = "how long it trains is not said";
                self.wrong("workload", message, "write `epochs: …`, `steps: …` or `tokens: …`");
            }
            _ => {
                let message = "`epochs`, `steps` and `tokens` exclude each other";
                self.wrong("workload.epochs", message, "keep one of them");
            }
        }
        let samples = job.data.samples.map(|count| count.0);
        if workload.epochs.is_some() && samples.is_none() {
            let message = "epochs are counted in samples, and their number is not said";
            self.wrong("workload.epochs", message, "write `data: {samples: …}`, or `steps: …` instead of `epochs`");
        }
        if samples == Some(0) || workload.steps.is_some_and(|steps| steps.0 == 0) {
            let (key, what) = match samples {
                Some(0) => ("data.samples", "samples"),
                Some(_) | None => ("workload.steps", "steps"),
            };
            self.wrong(key, "`0` is out of range: it must be at least 1", format!("write the number of {what}"));
        }
        if workload.epochs.is_some() && samples.is_some_and(|samples| samples > 0 && samples < workload.batch) {
            let samples = samples.unwrap_or_default();
            let message = format!("a batch of {} is more than the {samples} training samples", workload.batch);
            self.wrong("workload.batch", message, format!("write `batch: {samples}` or less"));
        }
        if let WorkloadModel::File(path) = &workload.model {
            self.path("workload.model", path);
        }
        if workload.checkpoint.is_some_and(|between| between.micros() == 0) {
            self.wrong("workload.checkpoint", "no time lies between two checkpoints", "write for example `30m`");
        }
        self.texts(workload);
        self.division(workload);
        self.experts(workload);
        self.update(workload);
        self.savings(workload);
    }

    /// How texts fill sequences.
    fn texts(&mut self, workload: &Workload) {
        let Some(is_packed) = workload.packed else {
            if workload.mean_length.is_some() {
                let message = "it says how long texts are, and not whether several share a sequence";
                self.wrong("workload.mean_length", message, "add `packed: true` or `packed: false`");
            }
            return;
        };
        let counts_texts = if is_packed { workload.epochs.is_some() } else { workload.tokens.is_some() };
        if workload.mean_length.is_none() && counts_texts {
            let message = match is_packed {
                true => "epochs are counted in texts, and how many of them fill a sequence is not said",
                false => "`tokens` are those of texts, and how many of them a padded sequence holds is not said",
            };
            self.wrong("workload.packed", message, "add `mean_length: …`: the mean tokens of a text");
        }
        if let (false, Some(mean), Some(sequence)) = (is_packed, workload.mean_length, workload.sequence)
            && mean > sequence
        {
            let message = format!("texts of {mean} tokens on average do not fit sequences of {sequence}");
            self.wrong("workload.mean_length", message, format!("write `sequence: {mean}` or more, or `packed: true`"));
        }
    }

    /// Degrees that contradict each other, or the batch.
    fn division(&mut self, workload: &Workload) {
        let parallel = &workload.parallel;
        if parallel.virtual_stages.is_some() && parallel.schedule == Some(PipelineSchedule::OneForwardOneBackward) {
            let message = "only an interleaved pipeline has virtual stages";
            self.wrong("workload.parallel.virtual_stages", message, "write `schedule: interleaved`, or leave it out");
        } else if parallel.chunks() > 1 && parallel.pipeline.is_none_or(|stages| stages < 2) {
            let key = if parallel.schedule.is_some() { "schedule" } else { "virtual_stages" };
            let message = "an interleaved schedule is that of a pipeline, which has at least 2 stages";
            self.wrong(&format!("workload.parallel.{key}"), message, "add `pipeline: 2` or more");
        }
        if parallel.sequence == Some(true) && parallel.tensor.is_none_or(|ranks| ranks < 2) {
            let message = "it divides the sequence among the ranks of `tensor`, of which there are not several";
            self.wrong("workload.parallel.sequence", message, "add `tensor: 2` or more, or write `context: …`");
        }
        if let (Some(2..), Some(zero @ 0..=1)) = (parallel.fsdp, parallel.zero) {
            let message = format!("`fsdp` shards gradients and optimizer state at least, and `zero: {zero}` does not");
            self.wrong("workload.parallel.zero", message, "write `zero: 2` or `3`, or `data` in place of `fsdp`");
        }
        let ranks = u64::from(parallel.data.unwrap_or(1)).saturating_mul(u64::from(parallel.fsdp.unwrap_or(1)));
        if !workload.batch.is_multiple_of(ranks.max(1)) {
            let key = if parallel.fsdp.is_some() { "fsdp" } else { "data" };
            let next = workload.batch.next_multiple_of(ranks);
            let message = format!("a batch of {} does not divide among {ranks} data-parallel ranks", workload.batch);
            self.wrong(
                &format!("workload.parallel.{key}"),
                message,
                format!("write `batch: {next}`, or degrees whose product divides {}", workload.batch),
            );
        }
    }

    /// Experts that do not divide among ranks whose number the job fixes.
    fn experts(&mut self, workload: &Workload) {
        let parallel = &workload.parallel;
        let (Some(data), Some(tensor), Some(expert @ 2..)) = (parallel.data, parallel.tensor, parallel.expert) else {
            return;
        };
        let degrees = [data, parallel.fsdp.unwrap_or(1), tensor, parallel.context.unwrap_or(1)];
        let ranks = degrees.into_iter().fold(1u64, |ranks, degree| ranks.saturating_mul(u64::from(degree)));
        if !ranks.is_multiple_of(u64::from(expert)) {
            let message =
                format!("`expert: {expert}` does not divide the {ranks} ranks of each stage, which share its experts");
            self.wrong("workload.parallel.expert", message, format!("write a divisor of {ranks}, or more ranks"));
        }
    }

    /// What an optimizer that updates in the backward pass excludes.
    fn update(&mut self, workload: &Workload) {
        if !workload.optimizer_in_backward {
            return;
        }
        let key = "workload.optimizer_in_backward";
        if workload.adapters.is_some() {
            let message = "adapters have few gradients, and estimates do not know what updating them early saves";
            self.wrong(key, message, "leave the key out");
        }
        if workload.offload.has_optimizer() {
            let message = "the host updates weights after the backward pass, and not in it";
            self.wrong(key, message, "leave it out, or `offload`");
        }
        if workload.parallel.pipeline.is_some_and(|stages| stages > 1) {
            let message = "a pipeline accumulates gradients over micro-batches, and weights change after the last one";
            self.wrong(key, message, "leave it out, or write `pipeline: 1`");
        }
        if let Some(zero @ 1..=2) = workload.parallel.zero {
            let message = format!("`zero: {zero}` exchanges all gradients before its update");
            self.wrong(key, message, "leave it out, or write `zero: 0` or `fsdp: …`");
        }
    }

    /// Adapters, and what lies in the host's memory.
    fn savings(&mut self, workload: &Workload) {
        if workload.offload.has_activations()
            && workload.recompute.forced().is_some_and(|level| level != RecomputeLevel::Full)
        {
            let message = "activations are offloaded as inputs of recomputed blocks";
            self.wrong("workload.offload", message, "write `recompute: full`, or `offload: optimizer` or `none`");
        }
        let zero = workload.parallel.zero;
        if workload.adapters.is_some() {
            if workload.offload.has_optimizer() {
                let message = "the optimizer state of adapters is small, and estimates do not know its offload";
                self.wrong("workload.offload", message, "write `offload: none` or `activations`");
            }
            if let Some(zero @ 1..=2) = zero {
                let message = format!("adapters have too little state for `zero: {zero}`, which shards only that");
                let hint = "write `zero: 0`, or `fsdp: …` to shard frozen weights too";
                self.wrong("workload.parallel.zero", message, hint);
            }
        } else if workload.offload.has_optimizer()
            && zero == Some(0)
            && workload.parallel.data.is_some_and(|ranks| ranks > 1)
        {
            let message = "each host would update the whole network: optimizer state is offloaded where it is sharded";
            self.wrong("workload.parallel.zero", message, "write `zero: 1`, `2` or `3`, or `fsdp: …`");
        }
    }
}
