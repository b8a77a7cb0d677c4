//! Checks that ranks and micro-batches can divide a batch, and ranks a model.

use super::sense::Validator;
use crate::architecture::Architecture;
use crate::train::{Optimizer, Parallel, Shard, Train};

impl Validator {
    /// Refuses parts of a batch without a sample, and wishes that only several ranks can fulfil.
    pub(super) fn ranks(&mut self, train: &Train) {
        let Train { batch, accumulate, processes, parallel, .. } = train;
        // Ranks that divide the layers among them share their samples.
        let shares = (processes / parallel.tensor.max(1)).max(1);
        if accumulate > batch {
            let message = format!("{accumulate} micro-batches cannot be made of {batch} samples");
            self.wrong("train.accumulate", message, format!("write at most {batch}"));
        } else if shares.saturating_mul(*accumulate) > *batch {
            let message = match accumulate {
                1 => format!("{processes} ranks cannot share {batch} samples"),
                parts => format!("{processes} ranks with {parts} micro-batches each cannot share {batch} samples"),
            };
            let most = (batch / accumulate).saturating_mul(parallel.tensor.max(1));
            self.wrong("train.processes", message, format!("write at most {most}"));
        }
        if *processes == 1 && *parallel != Parallel::default() {
            let message = "there is nothing to share with a single rank";
            self.wrong("train.parallel", message, "write `processes: 2`, or leave `parallel` out");
            return;
        }
        self.tensor_parallel(train);
        if let (Shard::Gradients | Shard::Parameters, Some(name)) = (parallel.shard, by_tensor(train.optimizer)) {
            let message =
                format!("`{name}` looks at whole tensors, and of `{}` each rank has a part", parallel.shard.name());
            self.wrong("train.parallel.shard", message, "write `shard: optimizer`, or choose `adamw` or `sgd`");
        }
    }

    /// Refuses a mesh that does not fit the ranks or the model.
    fn tensor_parallel(&mut self, train: &Train) {
        let Train { processes, parallel, model, .. } = train;
        let (key, tensor, name) = ("train.parallel.tensor", parallel.tensor, model.name());
        if tensor <= 1 {
            return;
        }
        if !processes.is_multiple_of(tensor) {
            let message = format!("`processes: {processes}` cannot be divided into groups of {tensor}");
            let up = processes.div_ceil(tensor).saturating_mul(tensor);
            self.wrong(key, message, format!("write `processes: {up}`, or a `tensor` that divides {processes}"));
        }
        match model.architecture().and_then(Architecture::heads) {
            None => {
                let message = format!("`{name}` has no attention heads, and nothing else is divided");
                self.wrong(key, message, "leave `tensor` out; `shard: parameters` divides any model");
            }
            Some(heads) if heads % i64::from(tensor) != 0 => {
                let message = format!("the {heads} attention heads of `{name}` cannot be divided by {tensor}");
                let below = (1..tensor).rev().find(|count| heads % i64::from(*count) == 0).unwrap_or(1);
                self.wrong(key, message, format!("write a divisor of {heads}, such as {below}"));
            }
            Some(_) => {}
        }
        if parallel.shard == Shard::Optimizer {
            let message = "with `tensor`, the optimizer state cannot be sharded by itself";
            self.wrong("train.parallel.shard", message, "write `shard: gradients`, which includes it");
        }
        if let Some(optimizer) = by_tensor(train.optimizer) {
            let message = format!("`{optimizer}` looks at whole tensors, of which each rank has a part");
            self.wrong(key, message, "choose `adamw` or `sgd`");
        }
    }
}

/// The name of a rule whose update of a value depends on other values of its tensor.
fn by_tensor(rule: Optimizer) -> Option<&'static str> {
    match rule {
        Optimizer::Sgd(_) | Optimizer::Adamw(_) => None,
        Optimizer::Lamb(_) => Some("lamb"),
        Optimizer::Lars(_) => Some("lars"),
        Optimizer::Adafactor(_) => Some("adafactor"),
    }
}
