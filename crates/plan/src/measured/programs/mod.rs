//! The programs behind the measurements: what each source ran, where its rows do not say.

pub(super) mod contest;

use super::ineligible::Ineligible;
use super::kinds;
use super::program::{Program, ProgramHabits, ProgramHardware};
use super::row::MeasuredRow;
use super::stated::{self, Networks};
use crate::estimate::memory::{Adapters, Savings};
use crate::estimate::{ActivationCheckpointing, Layout, NumericFormat, OptimizerKind, Origin, Zero};
use crate::model::families::language::bert::{Bert, Head};
use crate::model::families::{Gpt, Llama, Mpt, Resnet};
use crate::model::{Graph, ModelDescription, Summary};

/// Tokens of a question with its text in NVIDIA's SQuAD programs.
const SQUAD_TOKENS: u64 = 384;
/// Samples that SQuAD 1.1 becomes at that length.
const SQUAD_SAMPLES: f64 = 88_524.0;

/// No table or sequence is longer, and no network has more layers or heads; a row that says so is not understood.
const LARGEST: u64 = 1 << 24;
const MOST_LAYERS: u64 = 4096;

/// Tokens of a sample.
fn tokens(row: &MeasuredRow) -> Option<u64> {
    row.size.parse().ok().filter(|tokens| (1..=LARGEST).contains(tokens))
}

/// What ran behind `row`.
///
/// # Errors
/// What of it is not understood.
pub fn of(row: &MeasuredRow, networks: &Networks) -> Result<Program, Ineligible> {
    let known = match row.source.as_str() {
        "timm-train" => totals(row),
        "lambda-results" | "lambda-results_v2" => lambda(row),
        "nvidia-dle" => examples(row),
        "vtrain-single" | "vtrain-multi" => megatron(row),
        "llm-foundry" => foundry(row),
        "torchtitan" | "torchtune" => torch(row),
        "hf-docs" => trainer(row),
        "mlperf" => contest::on_one_node(row),
        _ => return totals(row).map_or_else(|| stated::program(row, networks), Ok),
    };
    known.ok_or(Ineligible::Model)
}

/// Image models known by their totals (timm's training benchmark: synthetic images, SGD with momentum).
fn totals(row: &MeasuredRow) -> Option<Program> {
    let (weights, madds, activations) = (row.weights?, row.madds?, row.activations?);
    let family = kinds::family(&row.model, &row.family);
    let model = ModelDescription::Summary(Summary {
        parameters: weights * 1e6,
        multiply_adds: madds * 1e9,
        activations: activations * 1e6,
        family: Some(family.clone()),
    });
    let layout = match row.framework.contains("nhwc") || row.notes.contains("channels_last") {
        true => Layout::ChannelsLast,
        false => Layout::ChannelsFirst,
    };
    let what = format!("networks of the family {family}");
    let origin = if row.source == "timm-train" { Origin::Sweep } else { Origin::Unknown };
    Some(Program { layout, origin, optimizer: OptimizerKind::SgdMomentum, ..Program::plain(what, model) })
}

/// Lambda's suite: NVIDIA's PyTorch examples of 2020 and later, images channels first.
fn lambda(row: &MeasuredRow) -> Option<Program> {
    // Systems of the later two series state the batch of all GPUs together.
    let system = row.notes.split_whitespace().find_map(|word| word.strip_prefix("system=")).unwrap_or_default();
    let together = system.ends_with("_v1") || system.ends_with("_v2");
    let origin = match (together, system.ends_with("_v2")) {
        (_, true) => Origin::Fleet,
        (true, false) => Origin::LaterSuite,
        (false, false) => Origin::Suite,
    };
    let gpus = f64::from(row.gpus.unwrap_or(1));
    let batch = row.batch.map(|batch| if together { batch / gpus } else { batch });
    match row.model.as_str() {
        // The first series ran in 2020 and 2021.
        "resnet50" => {
            let model = ModelDescription::Graph(Resnet::imagenet(50)?.graph());
            Some(Program {
                batch,
                origin,
                optimizer: OptimizerKind::SgdMomentum,
                habits: ProgramHabits { aged: !together, ..ProgramHabits::default() },
                ..Program::plain("ResNet-50", model)
            })
        }
        "bert_base_squad" | "bert_large_squad" => {
            let (what, bert) = match row.model.as_str() {
                "bert_base_squad" => ("BERT base, SQuAD", Bert::base(SQUAD_TOKENS, Head::Tokens { classes: 2 })),
                _ => ("BERT large, SQuAD", Bert::large(SQUAD_TOKENS, Head::Tokens { classes: 2 })),
            };
            // The program counts 100 steps however many two epochs have.
            let steps = batch.map_or(f64::MAX, |batch| 2.0 * SQUAD_SAMPLES / (batch * gpus));
            let overstated = if together { (100.0 / steps).max(1.0) } else { 1.0 };
            Some(Program {
                batch,
                origin,
                habits: ProgramHabits { overstated, aged: !together, ..ProgramHabits::default() },
                // Ampere needs CUDA 11 and a program of its day; before it, the first series ran one of CUDA 10.
                written_out_before_ampere: !together,
                savings: half_model(row),
                ..Program::plain(what, ModelDescription::Graph(bert.graph()))
            })
        }
        _ => None,
    }
}

/// NVIDIA's BERT in PyTorch makes the whole network half precision (apex, level O2).
fn half_model(row: &MeasuredRow) -> Savings {
    Savings { half_model: row.precision.contains("AMP"), ..Savings::default() }
}

/// NVIDIA's DeepLearningExamples, from the tables of their descriptions.
fn examples(row: &MeasuredRow) -> Option<Program> {
    let fused_words = ["MxNet", "Paddle", "TensorFlow2"].iter().any(|word| row.model.starts_with(word));
    let compiled = fused_words || row.notes.contains("XLA");
    let second = row.notes.contains("DGX-2");
    let gpu = (second && row.gpu.starts_with("V100")).then(|| "V100-SXM3-32GB".to_owned());
    let plain = |what: &str, graph: Graph| Program {
        compiled,
        origin: Origin::Maker,
        hardware: ProgramHardware {
            gpu: gpu.clone(),
            gpus_per_node: Some(row.gpus.unwrap_or(1).min(if second { 16 } else { 8 })),
            network: None,
        },
        layout: Layout::ChannelsLast,
        ..Program::plain(what, ModelDescription::Graph(graph))
    };
    let images = |what: &str, graph: Graph, most: f64| Program {
        optimizer: OptimizerKind::SgdMomentum,
        batch: row.batch.or(Some(usual_batch(row, most))),
        ..plain(what, graph)
    };
    let name = row.model.rsplit('/').next().unwrap_or_default();
    match name {
        "BERT" => Some(bert(row, plain)),
        "RN50v1.5" | "resnet50v1.5" => Some(images("ResNet-50", Resnet::imagenet(50)?.graph(), 256.0)),
        "resnext101-32x4d" => {
            let network = Resnet { groups: 32, group_width: 4, ..Resnet::imagenet(101)? };
            Some(images("ResNeXt-101 32x4d", network.graph(), 128.0))
        }
        _ => None,
    }
}

/// Images a GPU where a table does not say: the programs' own settings, which are halved for 32 bits and again for
/// cards of 16 GB. Beyond this many, throughput hardly depends on it.
fn usual_batch(row: &MeasuredRow, most: f64) -> f64 {
    let wide = if row.precision == "FP32" { 0.5 } else { 1.0 };
    let small = if row.memory.is_some_and(|memory| memory <= 16.0) { 0.5 } else { 1.0 };
    most * wide * small
}

fn bert(row: &MeasuredRow, plain: impl Fn(&str, Graph) -> Program) -> Program {
    let in_torch = row.model.starts_with("PyTorch");
    let savings = if in_torch { half_model(row) } else { Savings::default() };
    if row.notes.contains("Fine-tuning") {
        let graph = Bert::large(SQUAD_TOKENS, Head::Tokens { classes: 2 }).graph();
        return Program { savings, ..plain("BERT large, SQuAD", graph) };
    }
    let tokens = tokens(row).unwrap_or(128);
    // These two leave padding out: a fifth of the tokens at 128, half at 512 (Krell et al. 2021, figure 1).
    let packed = in_torch || row.model.starts_with("Paddle");
    let tokens = match (packed, tokens) {
        (true, 0..=128) => tokens * 5 / 6,
        (true, 129..) => tokens / 2,
        (false, _) => tokens,
    };
    let graph = Bert::large(tokens, Head::PreTraining).graph();
    // Cells with two numbers, for both precisions: samples a GPU, sometimes accumulated ones, and steps accumulated.
    let full = matches!(row.precision.as_str(), "FP32" | "TF32");
    let pairs: Vec<(f64, f64)> = row.notes.split('|').filter_map(pair).collect();
    let comma = row.notes.split('|').any(|cell| cell.contains(" , "));
    let of = |pair: &(f64, f64)| if full != comma { pair.0 } else { pair.1 };
    let first = pairs.first().map(of).or(row.batch).unwrap_or(1.0);
    let (batch, accumulate) = match (comma, pairs.get(1).map(of), pairs.get(2).map(of)) {
        // Samples, steps, both multiplied.
        (true, Some(steps), _) => (first, steps),
        // Samples accumulated, steps.
        (false, Some(steps), None) => (first / steps.max(1.0), steps),
        // Samples, samples accumulated, steps.
        (false, Some(_), Some(steps)) => (first, steps),
        (_, None, _) => (first, 1.0),
    };
    Program {
        batch: row.batch.map(|_| batch),
        accumulate: accumulate as u64,
        optimizer: OptimizerKind::Lamb,
        savings,
        // Gradients of all micro-batches are put together first (`allreduce_post_accumulation`).
        habits: ProgramHabits { exchanged_late: in_torch, ..ProgramHabits::default() },
        ..plain("BERT large, masked words", graph)
    }
}

/// Two numbers of a cell such as `128 and 256`.
fn pair(cell: &str) -> Option<(f64, f64)> {
    let (left, right) = cell.split_once(" and ").or_else(|| cell.split_once(" , "))?;
    Some((left.trim().parse().ok()?, right.trim().parse().ok()?))
}

/// Megatron with DeepSpeed on A100 (vTrain's validation): GPT with 51,200 words, four network cards of 200 Gbit/s.
fn megatron(row: &MeasuredRow) -> Option<Program> {
    let number =
        |letter: &str| row.model.split_whitespace().find_map(|word| word.strip_prefix(letter)?.parse::<u64>().ok());
    let within = |figure: u64, most: u64| (1..=most).contains(&figure).then_some(figure);
    let hidden = within(number("h")?, LARGEST)?;
    let (layers, heads) = (within(number("L")?, MOST_LAYERS)?, within(number("a")?, hidden.min(MOST_LAYERS))?);
    let tokens = tokens(row)?;
    let graph = Gpt::megatron(hidden, layers, heads, 51_200, tokens).graph();
    let (tensor, data, pipeline) = (row.ways("TP"), row.ways("DP"), row.ways("PP"));
    let samples = row.noted("global_batch=")? / f64::from(data.max(1));
    Some(Program {
        tokens: Some(tokens as f64),
        accumulate: (samples / row.batch?).round() as u64,
        tensor,
        pipeline,
        recompute: ActivationCheckpointing::Full,
        habits: ProgramHabits {
            half: true,
            fused_kernels: true,
            exchanged_late: true,
            recomputed_whole: true,
            ..ProgramHabits::default()
        },
        origin: Origin::Validation,
        hardware: ProgramHardware { network: Some(800e9), ..ProgramHardware::default() },
        ..Program::plain(format!("GPT of {layers} layers of {hidden}"), ModelDescription::Graph(graph))
    })
}

/// MosaicML's llm-foundry: MPT with FSDP and flash attention.
fn foundry(row: &MeasuredRow) -> Option<Program> {
    let tokens = tokens(row)?;
    let size = row.model.strip_prefix("MPT-")?;
    let graph = Mpt::sized(size, tokens)?.graph();
    Some(Program {
        tokens: Some(tokens as f64),
        accumulate: row.noted("grad_accum=").unwrap_or(1.0) as u64,
        zero: if row.parallelism.contains("SHARD_GRAD_OP") { Zero::Gradients } else { Zero::Parameters },
        recompute: if row.checkpointing == "True" {
            ActivationCheckpointing::Full
        } else {
            ActivationCheckpointing::None
        },
        // FSDP's pure mixed precision gathers weights and sums gradients in 16 bits.
        habits: ProgramHabits { half: true, first_flash: true, ..ProgramHabits::default() },
        origin: Origin::Sweep,
        flash: true,
        ..Program::plain(row.model.clone(), ModelDescription::Graph(graph))
    })
}

/// PyTorch's own trainers of Llama 3.1.
fn torch(row: &MeasuredRow) -> Option<Program> {
    let tokens = tokens(row)?;
    let llama = match row.model.strip_prefix("Llama3.1-")? {
        "8B" => Llama::three_8b(tokens),
        "70B" => Llama::three_70b(tokens),
        "405B" => Llama::three_405b(tokens),
        _ => return None,
    };
    let words = row.parallelism.as_str();
    let graph = llama.graph();
    let titan = row.source == "torchtitan";
    // torchtune's recipes: adapters of rank 8; whole networks on one GPU are updated in the backward pass.
    let adapters = words.contains("LoRA").then(|| Adapters { rank: 8, quantized: words.contains("QLoRA") });
    let savings = Savings {
        adapters,
        update_in_backward: words.contains("single device"),
        // What has no room is moved to the host's memory page by page.
        offload_optimizer: words.contains("CPU offload"),
        offload_weights: words.contains("CPU offload"),
        ..Savings::default()
    };
    // torchtune's recipes for one GPU save what they must; those for less memory, or for several, always.
    let one = row.gpus.unwrap_or(1) == 1;
    let saves_if_needed = row.source == "torchtune" && one && !words.contains("QLoRA");
    let recompute = match (row.checkpointing.as_str(), row.source.as_str()) {
        (word, _) if word.starts_with("selective") => ActivationCheckpointing::Selective,
        (word, _) if word.starts_with("full") => ActivationCheckpointing::Full,
        (_, "torchtune") if !saves_if_needed => ActivationCheckpointing::Full,
        _ => ActivationCheckpointing::None,
    };
    let pipeline = row.ways("PP");
    // A pipeline takes the samples of a rank one by one (`pipeline_parallel_microbatch_size`).
    let (batch, accumulate) = match pipeline > 1 {
        true => (row.batch.and(Some(1.0)), row.batch.unwrap_or(1.0) as u64),
        false => (None, 1),
    };
    Some(Program {
        tokens: Some(tokens as f64),
        batch,
        accumulate,
        tensor: row.ways("TP"),
        pipeline,
        zero: if row.gpus.unwrap_or(1) > 1 { Zero::Parameters } else { Zero::None },
        recompute,
        // Weights stay in fp32 where torchtitan computes in bf16.
        precision: (titan && row.precision.eq_ignore_ascii_case("bf16")).then_some(NumericFormat::AmpBf16),
        saves_if_needed,
        may_recompute: row.source == "torchtune" && row.checkpointing.is_empty(),
        flash: true,
        compiled: !titan || words.contains("compile"),
        // FSDP casts weights when it gathers them.
        habits: ProgramHabits { half: true, ..ProgramHabits::default() },
        origin: Origin::Documentation,
        optimizer: if words.contains("single device") { OptimizerKind::Adam8bit } else { OptimizerKind::Adam },
        savings,
        ..Program::plain(row.model.clone(), ModelDescription::Graph(graph))
    })
}

/// Hugging Face's trainer: BERT large with a class for each sequence.
fn trainer(row: &MeasuredRow) -> Option<Program> {
    let tokens = tokens(row)?;
    if !row.model.starts_with("bert-large") {
        return None;
    }
    let graph = Bert::large(tokens, Head::Sequence { classes: 2 }).graph();
    let optimizer = match &row.parallelism {
        words if words.contains("Adafactor") => OptimizerKind::Adafactor,
        words if words.contains("Adam8bit") => OptimizerKind::Adam8bit,
        _ => OptimizerKind::Adam,
    };
    Some(Program {
        accumulate: row.noted("grad_accum=").unwrap_or(1.0) as u64,
        recompute: if row.checkpointing == "True" {
            ActivationCheckpointing::Full
        } else {
            ActivationCheckpointing::None
        },
        optimizer,
        origin: Origin::Documentation,
        habits: ProgramHabits { aged: true, recomputed_whole: true, ..ProgramHabits::default() },
        ..Program::plain("BERT large, classes", ModelDescription::Graph(graph))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a row of vTrain's is understood.
    fn check(model: &str, size: &str, parallelism: &str, is_understood: bool) {
        let row = MeasuredRow {
            source: "vtrain-multi".to_owned(),
            model: model.to_owned(),
            size: size.to_owned(),
            parallelism: parallelism.to_owned(),
            batch: Some(1.0),
            notes: "global_batch=8".to_owned(),
            ..MeasuredRow::default()
        };
        assert_eq!(of(&row, &Networks::default()).is_ok(), is_understood, "{model} {size} {parallelism}");
    }

    #[test]
    fn figures_that_no_network_has_are_not_understood() {
        check("h64 L2 a4", "128", "TP2 DP2 PP1", true);
        check("h64 L2 a0", "128", "TP1 DP1 PP1", false);
        check("h64 L4000000000 a4", "128", "TP1 DP1 PP1", false);
        check("h64 L0 a4", "128", "TP1 DP1 PP1", false);
        check("h18446744073709551615 L2 a4", "128", "TP1 DP1 PP1", false);
        check("h64 L2 a65", "128", "TP1 DP1 PP1", false);
        check("h64 L2 a4", "18446744073709551615", "TP1 DP1 PP1", false);
        // Ways of sharing that overflow count as none.
        check("h64 L2 a4", "128", "TP4000000000 DP0 PP4000000000", true);
    }
}
