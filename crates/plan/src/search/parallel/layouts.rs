//! Layouts that may be tried on given machines: all that are useful, or those that a job's own degrees leave.
//!
//! A degree that the job has is fixed before anything is estimated, so a job that says more is planned sooner.

use crate::estimate::{ParallelDegrees, Zero};
use crate::search::workload::{LayoutRequest, ParallelChoice, TrainingSpec};

/// ZeRO's stages by number.
static STAGES: [Zero; 4] = [Zero::None, Zero::Optimizer, Zero::Gradients, Zero::Parameters];

/// Layouts to be tried, the simplest first; none where the GPUs do not divide as the job says.
pub(in crate::search) fn layouts(spec: &TrainingSpec, nodes: u32, gpus_per_node: u32) -> Vec<ParallelDegrees> {
    match &spec.division {
        ParallelChoice::Search | ParallelChoice::Stated { .. } => divisions(spec, nodes, gpus_per_node),
        ParallelChoice::Requested(request) if request.parallel.is_empty() => {
            let mut all = divisions(spec, nodes, gpus_per_node);
            all.retain(|parallel| allows(request, parallel));
            all
        }
        ParallelChoice::Requested(request) => requested(spec, request, nodes, gpus_per_node),
    }
}

/// How ranks may share the work, the simplest first: data parallelism, then sharding of more and more state; then, if
/// the network has attention and blocks, tensor parallelism within a node, and pipeline stages over nodes. Weights are not
/// sharded in combination with these (each micro-batch would gather them), gradients beside divided sequences only. Experts
/// and long sequences are divided as well.
fn divisions(spec: &TrainingSpec, nodes: u32, gpus_per_node: u32) -> Vec<ParallelDegrees> {
    let gpus = nodes * gpus_per_node;
    let tensors = tensors(spec, gpus_per_node);
    let widest = tensors.last().copied().unwrap_or(1);
    let mut divisions: Vec<ParallelDegrees> = Vec::new();
    let mut add = |tensor: u32, pipeline: u32, zeros: &[Zero]| {
        let ranks = tensor * pipeline;
        if !gpus.is_multiple_of(ranks) {
            return;
        }
        let data = gpus / ranks;
        let zeros = if data == 1 { &[Zero::None][..] } else { zeros };
        divisions.extend(zeros.iter().map(|zero| ParallelDegrees {
            data,
            tensor,
            pipeline,
            zero: *zero,
            sequence: usually_divides_sequence(spec, tensor),
            ..ParallelDegrees::default()
        }));
    };
    for tensor in &tensors {
        match tensor {
            1 => add(1, 1, &STAGES),
            tensor if usually_divides_sequence(spec, *tensor) => add(*tensor, 1, &STAGES[..3]),
            _ => add(*tensor, 1, &STAGES[..2]),
        }
    }
    for pipeline in pipelines(spec, nodes) {
        add(1, pipeline, &[Zero::Optimizer]);
        if widest > 1 {
            add(widest, pipeline, &[Zero::Optimizer]);
        }
    }
    divisions.extend(dividing_experts(spec, nodes, gpus_per_node, &tensors));
    divisions.extend(dividing_sequences(spec, gpus, &tensors));
    divisions
}

/// Ways to share the experts of each block, beside tensor parallelism or a pipeline.
fn dividing_experts(spec: &TrainingSpec, nodes: u32, gpus_per_node: u32, tensors: &[u32]) -> Vec<ParallelDegrees> {
    let gpus = nodes * gpus_per_node;
    let pipelines = pipelines(spec, nodes).into_iter().map(|pipeline| (1, pipeline));
    let models: Vec<(u32, u32)> = tensors.iter().map(|tensor| (*tensor, 1)).chain(pipelines).collect();
    let mut found = Vec::new();
    for (tensor, pipeline) in models {
        if !gpus.is_multiple_of(tensor * pipeline) {
            continue;
        }
        let data = gpus / (tensor * pipeline);
        for expert in expert_degrees(spec.network.experts, gpus_per_node, data) {
            let parallel = ParallelDegrees {
                data,
                tensor,
                pipeline,
                expert,
                sequence: usually_divides_sequence(spec, tensor),
                ..ParallelDegrees::default()
            };
            let zeros = match (tensor, pipeline) {
                (_, 2..) => &STAGES[1..2],
                (1, _) => &STAGES[..],
                _ => &STAGES[1..3],
            };
            found.extend(zeros.iter().map(|zero| ParallelDegrees { zero: *zero, ..parallel }));
        }
    }
    found
}

/// Ranks that share the experts: as many replicas as a machine has GPUs, and as many as there are, up to 64. Tensor-parallel
/// ranks divide each expert; to share experts among them instead, Megatron has to be told (`expert_tensor_parallel_size`).
fn expert_degrees(experts: u32, gpus_per_node: u32, replicas: u32) -> Vec<u32> {
    if experts < 2 {
        return Vec::new();
    }
    let divides = |degree: u32| experts.is_multiple_of(degree) && replicas.is_multiple_of(degree);
    let largest = |most: u32| [64, 32, 16, 8, 4, 2].into_iter().find(|degree| *degree <= most && divides(*degree));
    let mut degrees: Vec<u32> = [largest(gpus_per_node), largest(replicas)].into_iter().flatten().collect();
    degrees.dedup();
    degrees
}

/// Degrees of context parallelism that are tried.
const CONTEXTS: [u32; 4] = [2, 4, 8, 16];

/// Ways to share long sequences: context parallelism, beside tensor parallelism whose ranks divide the sequence too. State is
/// sharded over the ranks that hold the same weights, for other samples or other parts of them.
fn dividing_sequences(spec: &TrainingSpec, gpus: u32, tensors: &[u32]) -> Vec<ParallelDegrees> {
    let tokens = spec.network.tokens;
    let mut found = Vec::new();
    if !spec.network.has_long_sequences() {
        return found;
    }
    for context in CONTEXTS {
        for tensor in tensors {
            let ranks = tensor * context;
            // A rank takes a part of either end of a sequence, so that all do as much of a causal network.
            let divides = tokens.is_multiple_of(2 * u64::from(ranks)) && gpus.is_multiple_of(ranks);
            if !divides {
                continue;
            }
            let parallel = ParallelDegrees {
                data: gpus / ranks,
                tensor: *tensor,
                context,
                sequence: *tensor > 1,
                ..ParallelDegrees::default()
            };
            let zeros = if *tensor == 1 { &STAGES[..] } else { &STAGES[..3] };
            found.extend(zeros.iter().map(|zero| ParallelDegrees { zero: *zero, ..parallel }));
        }
    }
    found
}

/// Degrees of tensor parallelism within a node that divide the heads, 1 included; also those of keys and values, without which
/// Megatron refuses to run (`num_query_groups`).
fn tensors(spec: &TrainingSpec, gpus_per_node: u32) -> Vec<u32> {
    let heads = [spec.network.heads, spec.network.key_heads];
    let divides = |tensor: u32| {
        gpus_per_node.is_multiple_of(tensor)
            && heads.iter().all(|heads| *heads >= tensor && heads.is_multiple_of(tensor))
    };
    [1, 2, 4, 8].into_iter().filter(|tensor| *tensor == 1 || divides(*tensor)).collect()
}

/// Pipelines of several stages over nodes, each of at least two blocks.
fn pipelines(spec: &TrainingSpec, nodes: u32) -> Vec<u32> {
    let is_useful = |pipeline: &u32| *pipeline <= nodes && spec.network.blocks >= 2 * pipeline;
    match nodes > 1 && spec.network.heads > 0 {
        true => [2, 4, 8].into_iter().filter(is_useful).collect(),
        false => Vec::new(),
    }
}

/// Whether a layout goes with how the program updates and offloads.
fn allows(request: &LayoutRequest, parallel: &ParallelDegrees) -> bool {
    let is_sharded_so = parallel.replicas() == 1 || request.zeros[parallel.zero as usize];
    is_sharded_so && (parallel.pipeline == 1 || !request.is_whole)
}

/// Layouts with the degrees that the job has, and with every useful one of those that it leaves open.
fn requested(spec: &TrainingSpec, request: &LayoutRequest, nodes: u32, gpus_per_node: u32) -> Vec<ParallelDegrees> {
    let stated = &request.parallel;
    let gpus = nodes.saturating_mul(gpus_per_node);
    let all_tensors = stated.tensor.map_or_else(|| tensors(spec, gpus_per_node), |tensor| vec![tensor]);
    let all_pipelines = match stated.pipeline {
        Some(pipeline) => vec![pipeline],
        None => std::iter::once(1).chain(pipelines(spec, nodes)).collect(),
    };
    let mut found = Vec::new();
    for pipeline in all_pipelines {
        for tensor in &all_tensors {
            for context in contexts(spec, request, pipeline) {
                let model = tensor.saturating_mul(pipeline).saturating_mul(context);
                for expert in experts(spec, request, gpus_per_node, gpus / model.max(1)) {
                    found.extend(laid_out(spec, request, gpus, [*tensor, pipeline, context, expert]));
                }
            }
        }
    }
    found
}

/// Degrees of context parallelism: the job's, else those that divide a long sequence, which pipelines do not.
fn contexts(spec: &TrainingSpec, request: &LayoutRequest, pipeline: u32) -> Vec<u32> {
    if let Some(context) = request.parallel.context {
        return vec![context];
    }
    let is_open = pipeline == 1 && spec.network.has_long_sequences();
    let divides = |context: &u32| is_open && spec.network.tokens.is_multiple_of(2 * u64::from(*context));
    std::iter::once(1).chain(CONTEXTS.into_iter().filter(divides)).collect()
}

/// Degrees of expert parallelism: the job's, else 1 and those that so many replicas allow.
fn experts(spec: &TrainingSpec, request: &LayoutRequest, gpus_per_node: u32, replicas: u32) -> Vec<u32> {
    match request.parallel.expert {
        Some(expert) => vec![expert],
        None => std::iter::once(1).chain(expert_degrees(spec.network.experts, gpus_per_node, replicas)).collect(),
    }
}

/// Layouts of a model divided so, with each way of sharding that the job leaves open; none where the GPUs do not divide so.
fn laid_out(
    spec: &TrainingSpec,
    request: &LayoutRequest,
    gpus: u32,
    [tensor, pipeline, context, expert]: [u32; 4],
) -> Vec<ParallelDegrees> {
    let model = tensor.saturating_mul(pipeline).saturating_mul(context);
    if !gpus.is_multiple_of(model) {
        return Vec::new();
    }
    let parallel = ParallelDegrees {
        data: gpus / model,
        tensor,
        pipeline,
        context,
        expert,
        chunks: if pipeline > 1 { request.parallel.chunks() } else { 1 },
        sequence: divides_sequence(spec, request, tensor, context),
        ..ParallelDegrees::default()
    };
    if !parallel.replicas().saturating_mul(tensor).is_multiple_of(expert) {
        return Vec::new();
    }
    sharded(request, &parallel).into_iter().filter(|parallel| allows(request, parallel)).collect()
}

/// Tokens from which on today's programs divide the sequence among tensor-parallel ranks; below, there is little between
/// divided layers to divide. Assumed.
const USUALLY_DIVIDED: u64 = 1024;

/// Whether tensor-parallel ranks divide the sequence where the job does not say: as Megatron, nanotron and torchtitan do
/// (Korthikanti et al. 2022), if they can.
fn usually_divides_sequence(spec: &TrainingSpec, tensor: u32) -> bool {
    let tokens = spec.network.tokens;
    tensor > 1 && tokens >= USUALLY_DIVIDED && tokens.is_multiple_of(u64::from(tensor))
}

/// Whether tensor-parallel ranks divide the sequence: as the job says, and as is usual, or wherever the job has a degree and
/// sequences divide.
fn divides_sequence(spec: &TrainingSpec, request: &LayoutRequest, tensor: u32, context: u32) -> bool {
    let ranks = u64::from(tensor).saturating_mul(u64::from(context));
    let least = if request.parallel.tensor.is_some() { 1 } else { USUALLY_DIVIDED };
    let divides = spec.network.tokens >= least && spec.network.tokens.is_multiple_of(ranks.max(1));
    tensor > 1 && request.parallel.sequence.unwrap_or(divides)
}

/// A layout with each way of sharding that the job leaves open.
fn sharded(request: &LayoutRequest, parallel: &ParallelDegrees) -> Vec<ParallelDegrees> {
    let stated = &request.parallel;
    let zero = stated.zero.and_then(|stage| STAGES.get(usize::from(stage)).copied());
    let data = parallel.data;
    if let Some(over @ 2..) = stated.fsdp {
        let copies = data / over;
        let is_so = data.is_multiple_of(over) && stated.data.is_none_or(|stated| stated == copies);
        let one = ParallelDegrees { zero: zero.unwrap_or(Zero::Parameters), copies, ..*parallel };
        return if is_so { vec![one] } else { Vec::new() };
    }
    if stated.data.is_some_and(|stated| stated != data) {
        return Vec::new();
    }
    let zeros: &[Zero] = match (parallel.replicas(), &zero) {
        (1, _) => &STAGES[..1],
        (_, Some(zero)) => std::slice::from_ref(zero),
        (_, None) if parallel.pipeline > 1 => &STAGES[..2],
        (_, None) if stated.fsdp.is_some() => &STAGES[..1],
        (_, None) => &STAGES,
    };
    zeros.iter().map(|zero| ParallelDegrees { zero: *zero, ..*parallel }).collect()
}
