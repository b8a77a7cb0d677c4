//! What a `workload:` says of its program's parallelism and memory: checked against the network, and what of it the search
//! must keep to.

use domain::problem::Problem;
use domain::workload::{AdapterKind, LossComputation, RecomputeLevel, Workload, WorkloadParallel, WorkloadRecompute};

use super::ResolvedNetwork;
use super::spec::{NetworkFigures, ParallelChoice};
use crate::estimate::ActivationCheckpointing;
use crate::estimate::memory::{Adapters, Savings};
use crate::model::ModelDescription;

/// What the job says of how its ranks share a step; the search chooses the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutRequest {
    /// The degrees, as the job has them.
    pub parallel: WorkloadParallel,
    /// Whether each ZeRO stage goes with how the program updates and offloads, from 0 to 3; of several ranks.
    pub zeros: [bool; 4],
    /// The level of recomputation, if the job forces one.
    pub recompute: Option<ActivationCheckpointing>,
    /// Each step is one micro-batch, because weights are updated in the backward pass.
    pub is_whole: bool,
}

impl LayoutRequest {
    /// The product of the degrees that the job has, of which the number of GPUs must be a multiple.
    pub fn product(&self) -> u64 {
        let parallel = &self.parallel;
        let degrees = [parallel.data, parallel.fsdp, parallel.tensor, parallel.pipeline, parallel.context];
        degrees.into_iter().flatten().fold(1, |product: u64, degree| product.saturating_mul(u64::from(degree)))
    }

    /// Whether the product must be the number of GPUs itself: the search adds no degree for this network.
    pub fn is_exact(&self, network: &NetworkFigures) -> bool {
        let parallel = &self.parallel;
        let is_divided = parallel.context.is_some() || parallel.pipeline.is_some_and(|stages| stages > 1);
        let has_context = is_divided || !network.has_long_sequences();
        let is_closed = parallel.tensor.is_some() && parallel.pipeline.is_some() && has_context;
        parallel.data.is_some() && (is_closed || network.heads == 0)
    }

    /// Numbers of machines that may have as many GPUs, where `usual` are those of a job that says nothing of it.
    pub fn nodes(&self, network: &NetworkFigures, usual: &[u32]) -> Vec<u32> {
        let product = self.product();
        let with = |gpus: u64| u32::try_from(product / gpus).ok().filter(|nodes| *nodes <= MOST_NODES);
        let mut nodes: Vec<u32> = match self.is_exact(network) {
            true => {
                let divisors = (1..=MOST_GPUS).rev().filter(|gpus| product.is_multiple_of(*gpus));
                divisors.filter_map(with).collect()
            }
            false => usual.iter().copied().chain(with(USUAL_GPUS)).filter(|nodes| *nodes > 0).collect(),
        };
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.is_empty() { usual.to_vec() } else { nodes }
    }
}

/// No plan takes more machines by itself.
const MOST_NODES: u32 = 1024;
/// GPUs of the largest machines, and of most machines for large models.
const MOST_GPUS: u64 = 16;
const USUAL_GPUS: u64 = 8;

/// What the search must keep to.
pub(super) fn division(workload: &Workload) -> ParallelChoice {
    let recompute = match workload.recompute {
        WorkloadRecompute::Level(RecomputeLevel::Selective) => Some(ActivationCheckpointing::Selective),
        WorkloadRecompute::Level(RecomputeLevel::Full) => Some(ActivationCheckpointing::Full),
        _ if workload.offload.has_activations() => Some(ActivationCheckpointing::Full),
        WorkloadRecompute::Allowed(_) | WorkloadRecompute::Level(RecomputeLevel::None) => None,
    };
    let zeros = match () {
        // Stages 1 and 2 shard what adapters hardly have, and what an early update does not keep.
        () if workload.adapters.is_some() || workload.optimizer_in_backward => [true, false, false, true],
        () if workload.offload.has_optimizer() => [false, true, true, true],
        () => [true; 4],
    };
    let is_whole = workload.optimizer_in_backward;
    let request = LayoutRequest { parallel: workload.parallel, zeros, recompute, is_whole };
    let unasked =
        LayoutRequest { parallel: WorkloadParallel::default(), zeros: [true; 4], recompute: None, is_whole: false };
    if request == unasked { ParallelChoice::Search } else { ParallelChoice::Requested(request) }
}

/// How the program saves memory.
pub(super) fn savings(workload: &Workload) -> Savings {
    Savings {
        adapters: workload.adapters.map(|adapters| Adapters {
            rank: u64::from(adapters.rank),
            quantized: adapters.kind == AdapterKind::Qlora,
        }),
        update_in_backward: workload.optimizer_in_backward,
        offload_optimizer: workload.offload.has_optimizer(),
        offload_activations: workload.offload.has_activations(),
        chunked_loss: workload.loss == LossComputation::Chunked,
        ..Savings::default()
    }
}

/// Refuses what the network does not have, or does not divide into.
///
/// # Errors
/// The key, and what it can be.
pub(super) fn check(workload: &Workload, resolved: &ResolvedNetwork) -> Result<(), Problem> {
    let network = resolved.figures();
    tensor(&workload.parallel, &network)?;
    stages(&workload.parallel, &network)?;
    sequences(&workload.parallel, &network)?;
    experts(&workload.parallel, &network)?;
    memory(workload, resolved, &network)
}

fn tensor(parallel: &WorkloadParallel, network: &NetworkFigures) -> Result<(), Problem> {
    let Some(ranks @ 2..) = parallel.tensor else { return Ok(()) };
    let key = "workload.parallel.tensor";
    let heads = network.heads;
    match heads {
        0 => Err(Problem::at(key, "this network has no attention whose heads could be divided")
            .hint("leave `tensor` out, or write `fsdp: …`")),
        heads if heads.is_multiple_of(ranks) => Ok(()),
        heads => {
            Err(Problem::at(key, format!("`tensor: {ranks}` does not divide the network's {heads} attention heads"))
                .hint(format!("write one of {}", divisors(u64::from(heads)))))
        }
    }
}

fn stages(parallel: &WorkloadParallel, network: &NetworkFigures) -> Result<(), Problem> {
    let Some(stages @ 2..) = parallel.pipeline else { return Ok(()) };
    let (key, layers, chunks) = ("workload.parallel.pipeline", network.blocks, parallel.chunks());
    if layers == 0 {
        let message =
            "this network cannot be cut into stages: it has no layers that repeat, or only its totals are known";
        return Err(Problem::at(key, message).hint("leave `pipeline` out, or write `fsdp: …`"));
    }
    if stages > layers {
        let message = format!("{stages} stages are more than the network's {layers} layers");
        return Err(Problem::at(key, message).hint(format!("write `pipeline: {layers}` or less")));
    }
    if stages.saturating_mul(chunks) > layers {
        let message = format!("{stages} stages of {chunks} chunks each are more than the network's {layers} layers");
        let hint = match layers / stages {
            0 | 1 => "leave `virtual_stages` out, and write `schedule: 1f1b`".to_owned(),
            most => format!("write `virtual_stages: {most}` or less"),
        };
        return Err(Problem::at("workload.parallel.virtual_stages", message).hint(hint));
    }
    Ok(())
}

/// Context and sequence parallelism. Each rank of the former takes two parts of a sequence, one from either end, so that
/// causal attention is equal work for all.
fn sequences(parallel: &WorkloadParallel, network: &NetworkFigures) -> Result<(), Problem> {
    let (tokens, context) = (network.tokens, u64::from(parallel.context.unwrap_or(1)));
    if context > 1 {
        let key = "workload.parallel.context";
        if tokens == 0 {
            return Err(Problem::at(key, "this network reads no sequence of tokens that could be divided")
                .hint("leave `context` out"));
        }
        if !tokens.is_multiple_of(2 * context) {
            let message = format!(
                "a sequence of {tokens} tokens does not divide into two equal parts for each of {context} ranks"
            );
            let next = tokens.next_multiple_of(2 * context);
            let hint = match tokens % 2 {
                0 => format!("write one of {}, or `sequence: {next}`", divisors(tokens / 2)),
                _ => format!("write `sequence: {next}`, or leave `context` out"),
            };
            return Err(Problem::at(key, message).hint(hint));
        }
    }
    let ranks = u64::from(parallel.tensor.unwrap_or(1)).saturating_mul(context);
    if parallel.sequence == Some(true) && !(tokens > 0 && tokens.is_multiple_of(ranks.max(1))) {
        let message = format!("a sequence of {tokens} tokens does not divide among {ranks} ranks");
        let hint = "write `sequence: false` under `parallel`, or a `sequence` under `workload` that is a multiple";
        return Err(Problem::at("workload.parallel.sequence", message).hint(hint));
    }
    Ok(())
}

fn experts(parallel: &WorkloadParallel, network: &NetworkFigures) -> Result<(), Problem> {
    let Some(ranks @ 2..) = parallel.expert else { return Ok(()) };
    let key = "workload.parallel.expert";
    match network.experts {
        0 => Err(Problem::at(key, "this network has no experts").hint("leave `expert` out")),
        experts if experts.is_multiple_of(ranks) => Ok(()),
        experts => Err(Problem::at(key, format!("`expert: {ranks}` does not divide the {experts} experts of a layer"))
            .hint(format!("write one of {}", divisors(u64::from(experts))))),
    }
}

fn memory(workload: &Workload, resolved: &ResolvedNetwork, network: &NetworkFigures) -> Result<(), Problem> {
    if workload.adapters.is_some() && matches!(resolved.model, ModelDescription::Summary(_)) {
        let message = "adapters are of linear layers, and only totals of this network are known";
        return Err(Problem::at("workload.adapters", message).hint("name its `config.json` as `model`"));
    }
    // What is trained are the adapters alone.
    if workload.adapters.is_some() && resolved.ops.parameters <= 0.0 {
        let message = "adapters are of linear layers in blocks, and this network has none";
        return Err(
            Problem::at("workload.adapters", message).hint("leave `adapters` out: all weights are trained then")
        );
    }
    if workload.offload.has_activations() && network.blocks == 0 {
        let message = "inputs of recomputed blocks are offloaded, and this network has no blocks that are known";
        return Err(Problem::at("workload.offload", message).hint("write `offload: none` or `optimizer`"));
    }
    if workload.loss == LossComputation::Chunked && network.tokens == 0 {
        let message = "the loss is computed over parts of a sequence, and this network reads no tokens";
        return Err(Problem::at("workload.loss", message).hint("write `loss: full`"));
    }
    Ok(())
}

/// The first divisors of a number, as values of a key.
fn divisors(number: u64) -> String {
    const MOST: usize = 12;
    let found = (1..=number.min(1024)).filter(|divisor| number.is_multiple_of(*divisor)).take(MOST);
    found.map(|divisor| format!("`{divisor}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use domain::Job;

    use super::super::{ResolvedWorkload, resolve};
    use super::*;

    const LLAMA: &str = "model_type: llama, hidden_size: 4096, num_hidden_layers: 32, num_attention_heads: 32, \
        num_key_value_heads: 8, intermediate_size: 14336, vocab_size: 128256";

    /// A fine-tuning of a model with more lines in its `workload`.
    fn with(model: &str, lines: &str) -> Result<ResolvedWorkload, Problem> {
        let text = format!(
            "run: torchrun train.py\ndata: {{samples: 1000000, bytes: 1 GB}}\n\
             workload:\n  model: {{{model}}}\n  batch: 64\n  {lines}\n"
        );
        let parsed = Job::parse(&text, "job.yaml").unwrap_or_else(|problems| panic!("{text}{problems:?}"));
        resolve(&parsed.job, None)
    }

    fn llama(lines: &str) -> Result<ResolvedWorkload, Problem> {
        with(&format!("config: {{{LLAMA}}}"), &format!("sequence: 4096\n  {lines}"))
    }

    #[track_caller]
    fn check(resolved: Result<ResolvedWorkload, Problem>, key: &str, message: &str, hint: &str) {
        let Problem { key: found, message: said, hint: written, .. } = resolved.expect_err(key);
        assert_eq!((&*found, &*said, written.as_deref()), (key, message, Some(hint)));
    }

    #[test]
    fn degrees_that_the_network_does_not_divide_into_are_refused() {
        let parallel = |degrees: &str| llama(&format!("steps: 10\n  parallel: {{{degrees}}}"));
        check(
            parallel("tensor: 3"),
            "workload.parallel.tensor",
            "`tensor: 3` does not divide the network's 32 attention heads",
            "write one of `1`, `2`, `4`, `8`, `16`, `32`",
        );
        check(
            parallel("pipeline: 40"),
            "workload.parallel.pipeline",
            "40 stages are more than the network's 32 layers",
            "write `pipeline: 32` or less",
        );
        check(
            parallel("pipeline: 8, virtual_stages: 8"),
            "workload.parallel.virtual_stages",
            "8 stages of 8 chunks each are more than the network's 32 layers",
            "write `virtual_stages: 4` or less",
        );
        check(parallel("expert: 8"), "workload.parallel.expert", "this network has no experts", "leave `expert` out");
        check(
            parallel("context: 3"),
            "workload.parallel.context",
            "a sequence of 4096 tokens does not divide into two equal parts for each of 3 ranks",
            "write one of `1`, `2`, `4`, `8`, `16`, `32`, `64`, `128`, `256`, `512`, `1024`, or `sequence: 4098`",
        );
        let mixtral = |expert: u32| {
            with(
                "config: {model_type: mixtral}",
                &format!("sequence: 4096\n  steps: 10\n  parallel: {{expert: {expert}}}"),
            )
        };
        check(
            mixtral(3),
            "workload.parallel.expert",
            "`expert: 3` does not divide the 8 experts of a layer",
            "write one of `1`, `2`, `4`, `8`",
        );
        assert!(mixtral(4).is_ok());
        assert!(parallel("data: 4, fsdp: 8, tensor: 8, sequence: true, pipeline: 4, context: 2, zero: 3").is_ok());
    }

    #[test]
    fn what_belongs_to_layers_is_refused_where_only_totals_are_known() {
        let totals = |lines: &str| {
            with("totals: {parameters: 25.6M, multiply_adds: 4.1G, activations: 11M}", &format!("steps: 10\n  {lines}"))
        };
        let key = |resolved: Result<ResolvedWorkload, Problem>| resolved.expect_err("refused").key;
        assert_eq!(key(totals("adapters: {kind: lora}")), "workload.adapters");
        assert_eq!(key(totals("offload: activations")), "workload.offload");
        assert_eq!(key(totals("loss: chunked")), "workload.loss");
        assert_eq!(key(totals("parallel: {tensor: 2}")), "workload.parallel.tensor");
        assert_eq!(key(totals("parallel: {pipeline: 2}")), "workload.parallel.pipeline");
        assert_eq!(key(totals("packed: true")), "workload.packed");
    }

    #[test]
    fn adapters_that_no_layer_has_are_refused() {
        check(
            with(
                "config: {model_type: resnet, layer_type: bottleneck, depths: [3, 4, 6, 3]}",
                "steps: 10\n  adapters: {kind: lora}",
            ),
            "workload.adapters",
            "adapters are of linear layers in blocks, and this network has none",
            "leave `adapters` out: all weights are trained then",
        );
    }

    #[test]
    fn a_job_that_asks_for_nothing_leaves_all_to_the_search() {
        let division = |lines: &str| llama(&format!("steps: 10\n  {lines}")).expect("resolved").spec.division;
        for lines in ["recompute: true", "recompute: false", "recompute: none", "loss: chunked", "parallel: {}"] {
            assert_eq!(division(lines), ParallelChoice::Search, "{lines}");
        }
        let request = |lines: &str| match division(lines) {
            ParallelChoice::Requested(request) => request,
            other => panic!("{lines}: {other:?}"),
        };
        assert_eq!(request("recompute: full").recompute, Some(ActivationCheckpointing::Full));
        assert_eq!(request("recompute: selective").recompute, Some(ActivationCheckpointing::Selective));
        assert_eq!(request("offload: activations").recompute, Some(ActivationCheckpointing::Full));
        assert_eq!(request("adapters: {kind: lora}").zeros, [true, false, false, true]);
        assert_eq!(request("offload: optimizer").zeros, [false, true, true, true]);
        assert!(request("optimizer_in_backward: true").is_whole);
        let stated = request("parallel: {data: 2, fsdp: 4, tensor: 2}");
        assert_eq!(stated.product(), 16);
    }

    /// Machines of one to sixteen GPUs that have 64 together; where a degree is open, also the usual numbers of machines.
    #[test]
    fn machines_are_as_many_as_the_degrees_need() {
        let nodes = |lines: &str| {
            let spec = llama(&format!("steps: 10\n  parallel: {{{lines}}}")).expect(lines).spec;
            match spec.division {
                ParallelChoice::Requested(request) => request.nodes(&spec.network, &[1, 2, 4, 8, 16]),
                other => panic!("{lines}: {other:?}"),
            }
        };
        assert_eq!(nodes("data: 4, fsdp: 8, tensor: 2, pipeline: 1"), [4, 8, 16, 32, 64]);
        assert_eq!(nodes("data: 1, fsdp: 2, tensor: 1, pipeline: 1"), [1, 2]);
        assert_eq!(nodes("fsdp: 64, tensor: 4"), [1, 2, 4, 8, 16, 32]);
        assert_eq!(nodes("tensor: 2"), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn memory_of_hosts_is_said_to_be_assumed() {
        let assumed = |offload: &str| {
            let resolved = llama(&format!("steps: 10\n  precision: amp_bf16\n  offload: {offload}")).expect(offload);
            resolved.assumptions.join("; ")
        };
        assert!(!assumed("none").contains("hosts"));
        assert!(
            assumed("activations").contains("large enough for the inputs of recomputed blocks; it is not compared")
        );
        assert!(assumed("both").contains(" GiB of optimizer state in all and the inputs"), "{}", assumed("both"));
    }

    #[test]
    fn adapters_train_few_weights_and_save_few() {
        let (all, lora) = (llama("steps: 10").expect("all"), llama("steps: 10\n  adapters: {kind: qlora, rank: 16}"));
        let lora = lora.expect("adapters");
        assert_eq!(lora.network.savings.adapters, Some(Adapters { rank: 16, quantized: true }));
        assert_eq!(lora.network.weights, all.network.weights);
        assert!(lora.network.ops.parameters < 0.02 * all.network.ops.parameters);
        assert!(lora.spec.checkpoints.state.0 < all.spec.checkpoints.state.0 / 50);
    }

    /// 200 million tokens of texts of 1,024 each are 3,052 batches of 64 padded sequences, and 763 of packed ones.
    #[test]
    fn padding_is_not_counted_as_text() {
        let steps = |lines: &str| llama(lines).expect("resolved").spec.length.steps;
        assert_eq!(steps("tokens: 200M"), 763);
        assert_eq!(steps("tokens: 200M\n  packed: true\n  mean_length: 1024"), 763);
        assert_eq!(steps("tokens: 200M\n  packed: false\n  mean_length: 1024"), 3052);
        assert_eq!(steps("epochs: 1"), 15_625);
        assert_eq!(steps("epochs: 1\n  packed: false"), 15_625);
        assert_eq!(steps("epochs: 1\n  packed: true\n  mean_length: 1024"), 3907);
        // A million texts of a token each fill 245 sequences.
        assert_eq!(steps("epochs: 1\n  packed: true\n  mean_length: 1"), 4);
    }

    #[test]
    fn a_batch_is_no_larger_than_what_packed_texts_fill() {
        let text = format!(
            "run: torchrun train.py\ndata: {{samples: 1000, bytes: 1 GB}}\nworkload:\n  \
             model: {{config: {{{LLAMA}}}}}\n  batch: 64\n  sequence: 4096\n  epochs: 1\n  packed: true\n  \
             mean_length: 100\n"
        );
        let parsed = Job::parse(&text, "job.yaml").unwrap_or_else(|problems| panic!("{text}{problems:?}"));
        check(
            resolve(&parsed.job, None),
            "workload.batch",
            "a batch of 64 is more than the 25 sequences that the texts fill",
            "write `batch: 25` or less, or a shorter `sequence`",
        );
    }
}
