//! A layout in the words of `workload:`, and the program that an estimate assumes.

use super::ParallelConfig;
use crate::estimate::memory::Savings;
use crate::estimate::{ActivationCheckpointing, NumericFormat, ParallelDegrees, Zero};
use crate::search::workload::{NetworkFigures, TrainingSpec};

/// Returns what to write under `workload` so that a job of a network keeps a layout: `parallel: {data: 8, zero: 0},
/// recompute: full`.
pub fn layout_words(config: &ParallelConfig, network: &NetworkFigures) -> String {
    let recompute = match config.recompute {
        ActivationCheckpointing::None | ActivationCheckpointing::Every(_) => "none",
        ActivationCheckpointing::Selective => "selective",
        ActivationCheckpointing::Full => "full",
    };
    format!("parallel: {{{}}}, recompute: {recompute}", degrees(&config.parallel, network).join(", "))
}

/// Degrees as keys, also those of 1 that a plan would choose if they were left out, so that they fit one number of GPUs.
fn degrees(parallel: &ParallelDegrees, network: &NetworkFigures) -> Vec<String> {
    let copies = parallel.copies.max(1);
    // FSDP with what is divided further is over the data-parallel ranks of one copy.
    let is_fsdp = parallel.zero >= Zero::Gradients && parallel.data / copies > 1;
    let mut words = match is_fsdp {
        true => vec![format!("data: {copies}"), format!("fsdp: {}", parallel.data / copies)],
        false => vec![format!("data: {}", parallel.data)],
    };
    let is_divisible = network.heads > 0;
    if parallel.tensor > 1 || is_divisible {
        words.push(format!("tensor: {}", parallel.tensor));
    }
    if parallel.tensor > 1 {
        words.push(format!("sequence: {}", parallel.sequence));
    }
    if parallel.pipeline > 1 || is_divisible {
        words.push(format!("pipeline: {}", parallel.pipeline));
    }
    match (parallel.pipeline, parallel.chunks) {
        (0 | 1, _) => {}
        (2.., 0 | 1) => words.push("schedule: 1f1b".to_owned()),
        (2.., chunks) => words.push(format!("schedule: interleaved, virtual_stages: {chunks}")),
    }
    let more =
        [("context", parallel.context, network.has_long_sequences()), ("expert", parallel.expert, network.experts > 1)];
    let told = more.iter().filter(|(_, degree, is_open)| *degree > 1 || *is_open);
    words.extend(told.map(|(key, degree, _)| format!("{key}: {degree}")));
    if parallel.replicas() > 1 {
        words.push(format!("zero: {}", parallel.zero as u8));
    }
    words
}

/// Returns how the program is assumed to run a layout: today's PyTorch, but for what the job says.
pub fn program_words(spec: &TrainingSpec, savings: &Savings, config: &ParallelConfig) -> String {
    let program = &spec.program;
    let mut words = vec![wrapper(&config.parallel).to_owned(), format_words(config.precision).to_owned()];
    words.push(if program.compiled { "torch.compile" } else { "eager" }.to_owned());
    if spec.network.heads > 0 {
        words.push(
            if program.flash_attention { "flash attention" } else { "attention that stores its scores" }.to_owned(),
        );
    }
    if let Some(adapters) = savings.adapters {
        let kind = if adapters.quantized { "QLoRA" } else { "LoRA" };
        words.push(format!("{kind} of rank {} on every linear layer", adapters.rank));
    }
    let more = [
        (savings.update_in_backward, "optimizer in the backward pass"),
        (savings.offload_optimizer, "optimizer state on the host"),
        (savings.offload_activations, "activations on the host"),
        (savings.chunked_loss, "loss in chunks"),
    ];
    words.extend(more.iter().filter(|(is, _)| *is).map(|(_, word)| (*word).to_owned()));
    words.join(", ")
}

/// What wraps the network.
fn wrapper(parallel: &ParallelDegrees) -> &'static str {
    match (parallel.replicas() > 1, parallel.zero) {
        (false, _) => "PyTorch",
        (true, Zero::None) => "PyTorch DDP",
        (true, Zero::Optimizer) => "PyTorch DDP with sharded optimizer state",
        (true, Zero::Gradients) => "PyTorch FSDP2 that keeps weights after the forward pass",
        (true, Zero::Parameters) if parallel.copies > 1 => "PyTorch FSDP2, hybrid",
        (true, Zero::Parameters) => "PyTorch FSDP2",
    }
}

fn format_words(precision: NumericFormat) -> &'static str {
    match precision {
        NumericFormat::Auto | NumericFormat::Fp32 => "fp32",
        NumericFormat::Tf32 => "fp32 with products in TF32",
        NumericFormat::AmpFp16 => "autocast to fp16 beside fp32 weights",
        NumericFormat::AmpBf16 => "autocast to bf16 beside fp32 weights",
        NumericFormat::Bf16 => "pure bf16: weights, gradients and optimizer state",
        NumericFormat::Fp8 => "products in FP8, the rest autocast to bf16 beside fp32 weights",
    }
}
