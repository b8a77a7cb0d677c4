//! What a row says of itself, for tables of any source: the network by its name, the samples, the number format and how the
//! work is divided, each read by a stated rule. What no rule reads makes the row ineligible, with the reason.

mod images;
mod networks;
mod parallel;
mod shape;

pub use networks::{NetworkLine, NetworkSource, Networks, lines};
pub use parallel::{StatedParallelism, parallelism};

use super::ineligible::Ineligible;
use super::program::{Program, ProgramHabits, ProgramHardware};
use super::row::MeasuredRow;
use crate::estimate::memory::{Adapters, Savings};
use crate::estimate::{
    ActivationCheckpointing, EagerModules, NumericFormat, OptimizerKind, Origin, ParallelDegrees, ProgramStyle, Zero,
};
use crate::model::read::SampleShape;
use crate::model::{Graph, ModelDescription, OpKind};

/// Rank of adapters where a row does not say: that of PEFT and torchtune.
const USUAL_RANK: u64 = 8;
/// No sample has more tokens.
const MOST_TOKENS: u64 = 1 << 24;

/// What ran behind a row of any table.
///
/// # Errors
/// What of the row is not understood, by its name.
pub fn program(row: &MeasuredRow, networks: &Networks) -> Result<Program, Ineligible> {
    let stated = parallelism(&row.parallelism).map_err(Ineligible::Parallelism)?;
    let size = Size::of(row);
    let shape = SampleShape { sequence: size.tokens, image: None, classes: None };
    let graph =
        networks.graph(&row.model, &shape).map_err(|why| Ineligible::Network { name: row.model.clone(), why })?;
    let tokens = sequence(&graph);
    if tokens.is_some() && size.tokens.is_none() {
        return Err(Ineligible::Samples(row.size.clone()));
    }
    // Images of two sides are no samples that differ.
    let is_of_images = tokens.is_none() && images::image(&graph).is_some();
    let size = Size { varies: size.varies && !is_of_images, ..size };
    let graph = if is_of_images { images::sized(graph, row, networks)? } else { graph };
    let format = Format::of(row, &stated)?;
    let parallel = degrees(row, &stated, tokens.is_some())?;
    let accumulate = micro_batches(row, &stated, &parallel)?;
    Ok(Program {
        tokens: tokens.filter(|_| !size.varies).map(|tokens| tokens as f64),
        varies: size.varies,
        mean: size.mean,
        gathers_again_if_needed: parallel.sequence,
        parallel: Some(parallel),
        accumulate,
        is_accumulation_unstated: tokens.is_some() && leaves_accumulation_open(row, &stated),
        recompute: match is_sharded_litgpt(row, &parallel) {
            true => ActivationCheckpointing::Full,
            false => recomputation(row, &stated)?,
        },
        optimizer: stated.optimizer.unwrap_or(OptimizerKind::Adam),
        flash: !row.notes.contains("flash_attn=False") && !is_of_2022(row),
        compiled: stated.compiled.unwrap_or(false) || is_fused(row),
        precision: Some(format.precision),
        savings: savings(row, &stated, &format, &parallel),
        habits: ProgramHabits {
            half: format.half || parallel.zero == Zero::Parameters,
            fused_kernels: is_megatron(row),
            exchanged_late: is_of_2022(row),
            recomputed_whole: is_of_2022(row),
            exchanged_by_python: row.framework.contains("nanotron"),
            sharded_over: stated.sharded_over,
            aged: is_of_2022(row),
            style: style(row, &stated),
            unbalanced: size.mean && !row.notes.contains("multipack"),
            ..ProgramHabits::default()
        },
        origin: Origin::Unknown,
        hardware: ProgramHardware::default(),
        ..Program::plain(row.model.clone(), ModelDescription::Graph(graph))
    })
}

/// How the row's program spends and saves memory, by what its framework is known for.
fn savings(row: &MeasuredRow, stated: &StatedParallelism, format: &Format, parallel: &ParallelDegrees) -> Savings {
    let rank = stated.rank.or_else(|| noted_rank(row)).unwrap_or(USUAL_RANK);
    let quantized = stated.quantized || row.precision.contains("int4");
    // Liger Kernel fuses the loss in chunks, and normalisations.
    let liger = stated.chunked_loss || row.notes.contains("-liger");
    Savings {
        adapters: stated.adapters.then_some(Adapters { rank, quantized }),
        half_model: format.half,
        offload_optimizer: stated.offload_optimizer,
        offload_weights: stated.offload_weights,
        chunked_loss: liger,
        foreach_update: has_foreach_update(row) && stated.optimizer.is_none(),
        fused_loss: has_fused_kernels(row),
        gathers_again: gathers_again(row) || gathers_in_pipeline(parallel),
        holds_scores: true,
        fp32_adapters: stated.adapters && row.framework.contains("HF"),
        loads_whole: row.framework.contains("litgpt"),
        fp32_between_blocks: quantized && stated.adapters && is_prepared(row),
        frees_gradients: !stated.adapters && !row.framework.contains("nanotron"),
        fused_norms: liger || has_fused_norms(row),
        balanced_stages: !is_megatron(row) && !is_bridge(row),
        ..Savings::default()
    }
}

/// Micro-batches of a step. Without a pipeline a row that states none has one.
fn micro_batches(row: &MeasuredRow, stated: &StatedParallelism, parallel: &ParallelDegrees) -> Result<u64, Ineligible> {
    Ok(match (stated.accumulate, stated.global_batch, row.batch) {
        (Some(steps), _, _) => steps,
        (None, Some(samples), Some(batch)) => (samples / (batch * f64::from(parallel.data))).round().max(1.0) as u64,
        (None, None, _) if parallel.pipeline > 1 => return Err(Ineligible::MicroBatches),
        (None, ..) => 1,
    })
}

/// Whether a row of several GPUs states neither micro-batches nor samples of a step. Language models are trained with many of
/// them, images with one.
fn leaves_accumulation_open(row: &MeasuredRow, stated: &StatedParallelism) -> bool {
    row.gpus.unwrap_or(1) > 1 && stated.accumulate.is_none() && stated.global_batch.is_none()
}

/// Tokens of one sample as the graph has them; none where it reads no tokens.
fn sequence(graph: &Graph) -> Option<u64> {
    graph.operators.iter().find_map(|operator| match operator.kind {
        OpKind::Embedding { rows, .. } => Some(rows),
        _ => None,
    })
}

/// How long a row's samples are.
struct Size {
    tokens: Option<u64>,
    /// They differ: the longest sets the memory, and none the speed.
    varies: bool,
    /// Only their mean is stated: it sets the speed, and says nothing of memory.
    mean: bool,
}

impl Size {
    /// `4096`; `max 2048 (…)`, `<= 512 (…)` and `… longest 1034 tokens` state the longest of samples that differ.
    fn of(row: &MeasuredRow) -> Size {
        let number = |text: &str| {
            let digits: String = text.trim_start().chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok().filter(|tokens| (1..=MOST_TOKENS).contains(tokens))
        };
        let plain = row.size.trim();
        if plain.is_empty() {
            let mean = row.noted("mean tokens per sample ").map(|tokens| tokens as u64);
            return Size {
                tokens: mean.filter(|tokens| (1..=MOST_TOKENS).contains(tokens)),
                varies: false,
                mean: true,
            };
        }
        if plain.chars().all(|character| character.is_ascii_digit()) {
            return Size { tokens: number(plain), varies: false, mean: false };
        }
        let behind = |word: &str| plain.find(word).and_then(|at| number(&plain[at + word.len()..]));
        Size { tokens: ["max ", "<= ", "longest "].iter().find_map(|word| behind(word)), varies: true, mean: false }
    }
}

/// The number format of products, and whether the network itself is in half precision beside fp32 copies of its weights.
struct Format {
    precision: NumericFormat,
    half: bool,
}

impl Format {
    fn of(row: &MeasuredRow, stated: &StatedParallelism) -> Result<Format, Ineligible> {
        let word = row.precision.to_lowercase();
        let has = |part: &str| word.contains(part);
        let refused = || Ineligible::Precision(row.precision.clone());
        if has("nvfp4") || has("fp4") || has("int8 mixed") {
            return Err(refused());
        }
        if has("fp8") || has("float8") {
            return Ok(Format { precision: NumericFormat::Fp8, half: true });
        }
        let bf16 = has("bf16") || has("bfloat16");
        if word.is_empty() {
            // Not stated: what is usual for training on GPUs with tensor cores.
            return Ok(Format { precision: NumericFormat::AmpBf16, half: true });
        }
        if !bf16 && !has("fp16") && !has("float16") && !has("amp") {
            let precision = if has("tf32") { NumericFormat::Tf32 } else { NumericFormat::Fp32 };
            return if has("32") { Ok(Format { precision, half: false }) } else { Err(refused()) };
        }
        let amp = if bf16 { NumericFormat::AmpBf16 } else { NumericFormat::AmpFp16 };
        let sharded = stated.zero == Some(Zero::Parameters);
        // FSDP under autocast keeps the weights that it shards in fp32, however they were loaded.
        if has("amp") && sharded && !stated.adapters {
            return Ok(Format { precision: amp, half: false });
        }
        // Weights, gradients and state in 16 bits, also where a program loads the network so and trains on.
        let pure = has("pure") || has("true") || has("bfloat16") || has("float16");
        let trains_in_16 = pure || stated.adapters;
        if trains_in_16 {
            return Ok(Format { precision: NumericFormat::Bf16, half: true });
        }
        Ok(Format { precision: amp, half: !has("amp") })
    }
}

/// Degrees that agree with each other and with the number of GPUs.
fn degrees(row: &MeasuredRow, stated: &StatedParallelism, is_sequence: bool) -> Result<ParallelDegrees, Ineligible> {
    let gpus = row.gpus.ok_or(Ineligible::Degrees { product: 0, gpus: 0 })?;
    let tensor = stated.tensor.unwrap_or(1);
    let pipeline = stated.pipeline.unwrap_or(1);
    // Beside layers that are divided, `SP` divides what lies between them; alone it divides the sequence.
    let alone = stated.sequence.filter(|_| tensor == 1).unwrap_or(1);
    let context = stated.context.unwrap_or(1).saturating_mul(alone);
    let model = tensor.saturating_mul(pipeline).saturating_mul(context);
    let data = stated.data.unwrap_or((gpus / model).max(1));
    let product = data.saturating_mul(model);
    let disagrees = stated.ranks.is_some_and(|ranks| ranks != gpus && ranks != data);
    if product != gpus || disagrees || (context > 1 && !is_sequence) {
        return Err(Ineligible::Degrees { product, gpus });
    }
    let expert = stated.expert.unwrap_or(1);
    if !data.saturating_mul(context).saturating_mul(tensor).is_multiple_of(expert) {
        return Err(Ineligible::Parallelism(format!("EP{expert}")));
    }
    let zero = stated.zero.unwrap_or(Zero::None);
    // Megatron's optimizer is sharded over all replicas by default where its pages state degrees and no stage.
    let zero = if stated.zero.is_none() && stated.tensor.is_some() && is_bridge(row) { Zero::Optimizer } else { zero };
    Ok(ParallelDegrees {
        data,
        tensor,
        pipeline,
        zero,
        context,
        expert,
        chunks: stated.chunks.unwrap_or(1),
        sequence: tensor > 1 && !is_of_2022(row),
        copies: 1,
    })
}

fn recomputation(row: &MeasuredRow, stated: &StatedParallelism) -> Result<ActivationCheckpointing, Ineligible> {
    let word = row.checkpointing.to_lowercase();
    Ok(match word.split(['(', ' ', ',']).next().unwrap_or_default() {
        _ if stated.recompute => ActivationCheckpointing::Full,
        "true" | "full" | "unsloth" => ActivationCheckpointing::Full,
        "selective" => ActivationCheckpointing::Selective,
        "" | "false" | "none" | "no" => ActivationCheckpointing::None,
        _ => return Err(Ineligible::Recomputation(row.checkpointing.clone())),
    })
}

/// The rank of adapters in the notes: `lora_r=16`, `LoRA r=16`, `lora_rank=8`.
fn noted_rank(row: &MeasuredRow) -> Option<u64> {
    ["lora_rank=", "lora_r=", "LoRA r="].iter().find_map(|name| row.noted(name)).map(|rank| rank as u64)
}

/// How the row's program runs, by what its framework is known for.
fn style(row: &MeasuredRow, stated: &StatedParallelism) -> ProgramStyle {
    let modules = modules(row);
    ProgramStyle {
        modules,
        overlapped_layers: is_bridge(row),
        adapters_are_units: has_units_of_adapters(row, stated),
        loops_over_experts: modules == EagerModules::Transformers && !row.parallelism.contains("ScatterMoE"),
        fused_casts: is_megatron(row) || is_bridge(row),
        ..ProgramStyle::default()
    }
}

/// Programs on Hugging Face's Transformers.
fn modules(row: &MeasuredRow) -> EagerModules {
    let is_transformers =
        ["HF", "transformers", "fsdp_qlora", "ms-swift"].iter().any(|name| row.framework.contains(name));
    match (is_transformers, has_fused_kernels(row)) {
        (false, _) => EagerModules::Plain,
        (true, true) => EagerModules::FusedTransformers,
        (true, false) => EagerModules::Transformers,
    }
}

/// Adapters that FSDP shards one by one, as PEFT's `fsdp_auto_wrap_policy` has it; fms-acceleration's `foak` takes them out
/// (`lora_adapters_switch_ddp_from_fsdp`).
fn has_units_of_adapters(row: &MeasuredRow, stated: &StatedParallelism) -> bool {
    let is_peft = ["HF", "fsdp_qlora"].iter().any(|name| row.framework.contains(name));
    stated.adapters && stated.zero == Some(Zero::Parameters) && is_peft && !has_fused_kernels(row)
}

/// Fused kernels for the loss and more: fms-acceleration's `foak`, Unsloth's.
fn has_fused_kernels(row: &MeasuredRow) -> bool {
    row.notes.split_whitespace().any(|word| word.contains("foak")) || row.framework.contains("unsloth")
}

/// PyTorch's own optimizer with its defaults.
fn has_foreach_update(row: &MeasuredRow) -> bool {
    ["HF", "transformers", "litgpt"].iter().any(|name| row.framework.contains(name))
}

/// Normalisations in one kernel: Megatron, nanotron, and programs with fused kernels.
fn has_fused_norms(row: &MeasuredRow) -> bool {
    is_megatron(row) || is_bridge(row) || has_fused_kernels(row) || row.framework.contains("nanotron")
}

/// LitGPT's fine-tuning with FSDP, which recomputes each block (`activation_checkpointing_policy={Block}`).
fn is_sharded_litgpt(row: &MeasuredRow, parallel: &ParallelDegrees) -> bool {
    row.framework.contains("litgpt") && parallel.zero == Zero::Parameters
}

/// PEFT's usual preparation of 4-bit networks; fms-acceleration's own plugins leave it out.
fn is_prepared(row: &MeasuredRow) -> bool {
    row.framework.contains("HF") && !row.notes.contains("accelerated-peft")
}

/// Programs that gather the sequence again for the backward pass.
fn gathers_again(row: &MeasuredRow) -> bool {
    is_bridge(row) || is_megatron(row)
}

/// Whether a pipeline gathers the sequence again, as most of nanotron's sweep does with eight and more ranks per layer: what
/// these hold for several micro-batches is little beside what was gathered.
fn gathers_in_pipeline(parallel: &ParallelDegrees) -> bool {
    parallel.pipeline > 1 && parallel.tensor >= 8
}

/// Megatron and what is built on it.
fn is_megatron(row: &MeasuredRow) -> bool {
    ["Megatron", "NeMo", "Sailor"].iter().any(|name| row.framework.contains(name)) || row.model.starts_with("GPT ")
}

/// NVIDIA's recipes on Megatron-Core.
fn is_bridge(row: &MeasuredRow) -> bool {
    row.framework.contains("Bridge") || row.framework.contains("NeMo NeMo") || row.framework.contains("Megatron-Core")
}

/// Megatron-DeepSpeed of 2021 and 2022, before sequence parallelism and flash attention.
fn is_of_2022(row: &MeasuredRow) -> bool {
    row.framework.contains("Megatron-DeepSpeed") && !row.framework.contains("Sailor")
}

/// Programs whose small operators are fused by hand.
fn is_fused(row: &MeasuredRow) -> bool {
    is_bridge(row) || row.framework.contains("unsloth")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(model: &str, cell: &str, size: &str) -> MeasuredRow {
        MeasuredRow {
            source: "anybody".to_owned(),
            model: model.to_owned(),
            gpus: Some(8),
            precision: "bf16".to_owned(),
            batch: Some(1.0),
            size: size.to_owned(),
            parallelism: cell.to_owned(),
            ..MeasuredRow::default()
        }
    }

    fn reason(row: &MeasuredRow) -> String {
        program(row, &Networks::published()).map_or_else(|why| why.reason(), |_| "eligible".to_owned())
    }

    #[test]
    fn a_row_of_any_source_is_understood_or_refused_by_name() {
        assert_eq!(reason(&row("Llama-3.1-8B", "TP2 CP2 DP2", "8192")), "eligible");
        assert_eq!(
            reason(&row("Llama-3.1-8B", "TP2 CP2 DP4", "8192")),
            "its degrees multiply to 16, and it has 8 GPUs"
        );
        assert_eq!(
            reason(&row("Llama-3.1-8B", "TP2 ring4", "8192")),
            "`ring4` in the column `parallelism` is not known"
        );
        assert_eq!(reason(&row("Newest-9B", "FSDP 8", "8192")), "its network `Newest-9B` is not known");
        assert_eq!(reason(&row("Llama-3.1-8B", "FSDP 8", "")), "states no length of samples");
        let pipeline = "states no number of micro-batches for its pipeline";
        assert_eq!(reason(&row("Llama-3.1-8B", "TP2 PP4", "8192")), pipeline);
        assert_eq!(reason(&row("Llama-3.1-8B", "TP2 PP4 grad_accum=8", "8192")), "eligible");
        let fp4 = MeasuredRow { precision: "NVFP4".to_owned(), ..row("Llama-3.1-8B", "FSDP 8", "8192") };
        assert_eq!(reason(&fp4), "the number format `NVFP4` is not known");
    }

    #[test]
    fn a_row_without_micro_batches_says_less() {
        let check = |gpus: u32, cell: &str, is_open: bool| {
            let row = MeasuredRow { gpus: Some(gpus), ..row("Llama-3.1-8B", cell, "4096") };
            let read = program(&row, &Networks::published()).expect("eligible");
            assert_eq!(read.is_accumulation_unstated, is_open, "{gpus} GPUs, {cell}");
        };
        check(8, "FSDP 8", true);
        check(8, "FSDP 8 grad_accum=4", false);
        check(8, "FSDP 8 global_batch=32", false);
        check(1, "single", false);
    }

    #[test]
    fn context_parallelism_is_no_data_parallelism() {
        let read = program(&row("Llama-3.1-8B", "TP2 CP2 global_batch=16", "8192"), &Networks::published());
        let read = read.expect("eligible");
        let parallel = read.parallel.expect("degrees");
        assert_eq!((parallel.data, parallel.tensor, parallel.context, parallel.sequence), (2, 2, 2, true));
        assert_eq!(read.accumulate, 8);
    }

    #[test]
    fn samples_that_differ_tell_memory_and_no_speed() {
        for size in ["max 2048 (variable)", "<= 2048 (Alpaca2k, variable)", "default (variable; longest 2048 tokens)"] {
            let read = program(&row("Llama-3.1-8B", "LoRA FSDP 8", size), &Networks::published()).expect("eligible");
            assert!(read.varies && read.tokens.is_none(), "{size}");
            assert_eq!(read.savings.adapters, Some(Adapters { rank: 8, quantized: false }));
        }
    }

    #[test]
    fn habits_of_a_framework_are_those_that_it_names() {
        let read = |framework: &str, cell: &str| {
            let row = MeasuredRow { framework: framework.to_owned(), ..row("Llama-3.1-8B", cell, "4096") };
            program(&row, &Networks::published()).expect("eligible")
        };
        assert!(read("nanotron", "DP1 TP8").habits.exchanged_by_python);
        assert!(!read("Megatron-LM", "DP1 TP8").habits.exchanged_by_python);
        assert!(read("HF Trainer", "LoRA FSDP 8").savings.fp32_adapters);
        assert!(!read("HF Trainer", "FSDP 8").savings.fp32_adapters);
        let sharded = read("litgpt", "LoRA FSDP 8");
        assert!(sharded.savings.loads_whole && sharded.recompute == ActivationCheckpointing::Full);
        assert_eq!(read("litgpt", "DDP 8").recompute, ActivationCheckpointing::None);
        assert!(read("HF Trainer", "QLoRA DDP 8").savings.fp32_between_blocks);
        assert!(!read("HF Trainer", "LoRA DDP 8").savings.fp32_between_blocks);
        assert!(read("HF Trainer", "DDP 8").savings.frees_gradients);
        assert_eq!(read("InternEvo", "DP8 ZeRO1 within 4").habits.sharded_over, Some(4));
        let style = |framework: &str, cell: &str| read(framework, cell).habits.style;
        assert!(
            style("HF Trainer", "LoRA FSDP 8").adapters_are_units && !style("HF Trainer", "FSDP 8").adapters_are_units
        );
        assert_eq!(style("HF Trainer", "DDP 8").modules, EagerModules::Transformers);
        assert_eq!(style("unsloth + transformers", "DDP 8").modules, EagerModules::FusedTransformers);
        assert!(style("HF Trainer", "DDP 8").loops_over_experts && !style("HF", "DDP 8 ScatterMoE").loops_over_experts);
        let bridge = style("Megatron-Bridge", "DP4 TP2");
        assert!(bridge.fused_casts && bridge.overlapped_layers && bridge.modules == EagerModules::Plain);
    }

    #[test]
    fn pipelines_of_many_ranks_a_layer_gather_again() {
        let check = |tensor, pipeline, again| {
            let parallel = ParallelDegrees { tensor, pipeline, ..ParallelDegrees::default() };
            assert_eq!(gathers_in_pipeline(&parallel), again, "TP{tensor} PP{pipeline}");
        };
        check(16, 1, false);
        check(16, 4, true);
        check(8, 2, true);
        check(8, 4, true);
        check(4, 2, false);
    }
}
