//! The column `parallelism` of a table of measurements, read by a stated grammar.
//!
//! A cell is a list of words, divided by spaces, commas, `+`, `;` or brackets:
//!
//! | word | meaning |
//! |---|---|
//! | `DP8` `TP2` `PP4` `CP2` `EP8` `SP4`, also `TP=2`, `tp 2` and `TP1PP1DP8` | degrees; `SP` beside an equal `TP` is Megatron's sequence parallelism, alone it divides the sequence |
//! | `VP4` `VPP4` | model chunks of each pipeline stage (interleaved 1F1B) |
//! | `ZeRO0` to `ZeRO3`, `sharding stage2`, `FSDP`, `FSDP2`, `FULL_SHARD`, `SHARD_GRAD_OP` | what is sharded |
//! | `within 8`, `degree 8` | over how many ranks |
//! | `DDP 8`, `8 GPUs`, `single` | plain data parallelism |
//! | `LoRA`, `QLoRA`, `rank 16`, `r=16`, `4-bit` | adapters on frozen weights |
//! | `grad_accum=16`, `global_batch=256` | micro-batches of a step |
//! | `compile`, `compile=N`, `offload`, `adamw_8bit`, `Liger-Kernel` | how the program runs |
//!
//! `VPn/a` and `EP-` state nothing. A word that is not listed is refused with its name, never skipped: it may be a way of
//! dividing the work that the estimates do not know.

use crate::estimate::{OptimizerKind, Zero};

/// What a cell states; none where it says nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StatedParallelism {
    pub data: Option<u32>,
    pub tensor: Option<u32>,
    pub pipeline: Option<u32>,
    pub context: Option<u32>,
    pub sequence: Option<u32>,
    pub expert: Option<u32>,
    /// Model chunks of each pipeline stage.
    pub chunks: Option<u32>,
    pub zero: Option<Zero>,
    /// Ranks that the state is sharded over.
    pub sharded_over: Option<u32>,
    /// A number of ranks beside a word such as `DDP`.
    pub ranks: Option<u32>,
    pub accumulate: Option<u64>,
    pub global_batch: Option<f64>,
    pub adapters: bool,
    pub quantized: bool,
    pub rank: Option<u64>,
    pub optimizer: Option<OptimizerKind>,
    pub offload_optimizer: bool,
    pub offload_weights: bool,
    pub compiled: Option<bool>,
    /// The loss is computed in chunks, so that all logits are never there at once.
    pub chunked_loss: bool,
    pub recompute: bool,
}

/// Words that name the program, the task or the usual optimizer, and change nothing of what is estimated.
const NEUTRAL: [&str; 43] = [
    "single",
    "one",
    "full",
    "finetune",
    "fine-tuning",
    "full-parameter",
    "fully",
    "pretrain",
    "pre-training",
    "sft",
    "sfttrainer",
    "unslothtrainer",
    "deepspeed",
    "megatron",
    "gpus",
    "gpu",
    "adamw",
    "adam",
    "optim=adamw_torch",
    "over",
    "all",
    "data-parallel",
    "ranks",
    "hybrid",
    "bnb",
    "nf4",
    "model",
    "attention",
    "fa2",
    "fa4",
    "deepep",
    "scattermoe",
    "sequence",
    "parallel",
    "gradient",
    "checkpointing",
    "config",
    "baseline",
    "or",
    "multinode",
    "syncbn",
    "v2",
    "dp-baseline",
];

/// Prefixes of words that state nothing.
const NOTHING: [&str; 8] = ["vpn/a", "vppn/a", "epn/a", "ep-", "vp-", "fsdp=/", "etp1", "global_tokens="];

/// Reads a cell.
///
/// # Errors
/// The first word that the grammar does not know.
pub fn parallelism(cell: &str) -> Result<StatedParallelism, String> {
    let lower = cell.to_lowercase().replace("gradient checkpointing", "recompute");
    let lower =
        lower.replace("cpu adamw offload", "offload_optimizer").replace("fused linear cross-entropy", "chunked-loss");
    let divides = |character: char| character.is_whitespace() || ",;+()[]:".contains(character);
    let mut words: Vec<String> = Vec::new();
    for word in lower.split(divides).filter(|word| !word.is_empty()) {
        words.extend(glued(word).unwrap_or_else(|| vec![word.to_owned()]));
    }
    let mut stated = StatedParallelism::default();
    let mut at = 0;
    while at < words.len() {
        at += stated.word(&words[at], words.get(at + 1).map(String::as_str)).ok_or_else(|| words[at].clone())?;
    }
    Ok(stated)
}

/// The parts of several degrees written as one word, such as `tp1pp1dp8`.
fn glued(word: &str) -> Option<Vec<String>> {
    let mut parts: Vec<String> = Vec::new();
    for character in word.chars() {
        let begins = match parts.last() {
            None => true,
            Some(last) => character.is_ascii_alphabetic() && last.ends_with(|end: char| end.is_ascii_digit()),
        };
        match (begins, parts.last_mut()) {
            (false, Some(last)) => last.push(character),
            (true, _) | (false, None) => parts.push(character.to_string()),
        }
    }
    let is_degree = |part: &String| key(part).is_some_and(|(name, number)| number.is_some() && DEGREES.contains(&name));
    (parts.len() > 1 && parts.iter().all(is_degree)).then_some(parts)
}

const DEGREES: [&str; 8] = ["dp", "tp", "pp", "cp", "sp", "ep", "vp", "vpp"];

/// A name and the number behind it, as in `tp2`, `tp=2`, `zero-3`.
fn key(word: &str) -> Option<(&str, Option<u32>)> {
    let end = word.find(|character: char| character.is_ascii_digit()).unwrap_or(word.len());
    let (name, digits) = word.split_at(end);
    let name = name.trim_end_matches(['=', '-', '_']);
    if digits.is_empty() {
        return Some((name, None));
    }
    digits.parse().ok().map(|number| (name, Some(number)))
}

impl StatedParallelism {
    /// Takes one word, and the number behind it where it needs one; how many words that were.
    fn word(&mut self, word: &str, next: Option<&str>) -> Option<usize> {
        if NEUTRAL.contains(&word) || NOTHING.iter().any(|prefix| word.starts_with(prefix)) {
            return Some(1);
        }
        if let Some(taken) = self.program(word, next) {
            return Some(taken);
        }
        let behind = next.and_then(|next| next.parse::<u32>().ok());
        let (name, own) = key(word)?;
        let (number, taken) = if own.is_some() { (own, 1) } else { (behind, 1 + usize::from(behind.is_some())) };
        let degree = |number: Option<u32>| number.filter(|number| (1..=1 << 16).contains(number));
        match name {
            "dp" if number.is_none() => {}
            "dp" => self.data = Some(degree(number)?),
            "tp" => self.tensor = Some(degree(number)?),
            "pp" => self.pipeline = Some(degree(number)?),
            "cp" => self.context = Some(degree(number)?),
            "sp" => self.sequence = Some(degree(number)?),
            "ep" => self.expert = Some(degree(number)?),
            "vp" | "vpp" => self.chunks = Some(degree(number)?),
            "within" | "degree" => self.sharded_over = Some(degree(number)?),
            "zero" | "stage" => {
                self.zero = Some(zero(own.or(behind)?)?);
                // A number behind `ZeRO3 8` is that of all ranks.
                if own.is_some() && behind.is_some() {
                    self.ranks = behind;
                    return Some(2);
                }
            }
            "sharding" if own.is_none() => return Some(1),
            "ddp" => (self.zero, self.ranks) = (Some(Zero::None), number),
            "fsdp" => return self.fsdp(own, behind),
            "" => self.ranks = Some(own?),
            _ => return None,
        }
        Some(taken)
    }

    /// `FSDP 8` and `FSDP8` shard over eight ranks; `FSDP2 8` is the second version of it over eight; `FSDP2` either.
    fn fsdp(&mut self, own: Option<u32>, behind: Option<u32>) -> Option<usize> {
        self.zero = Some(Zero::Parameters);
        match (own, behind) {
            (Some(2), Some(ranks)) => self.ranks = Some(ranks),
            (Some(2), None) => {}
            (Some(degree), _) => self.sharded_over = Some(degree),
            (None, ranks) => self.ranks = ranks,
        }
        Some(1 + usize::from(behind.is_some() && own.is_none_or(|version| version == 2)))
    }

    /// Words about adapters, memory and the compiler.
    fn program(&mut self, word: &str, next: Option<&str>) -> Option<usize> {
        let value = |name: &str| word.strip_prefix(name)?.strip_prefix('=');
        if let Some(steps) = value("grad_accum") {
            self.accumulate = Some(steps.parse().ok()?);
        } else if let Some(batch) = value("global_batch") {
            self.global_batch = Some(batch.parse().ok()?);
        } else if let Some(rank) = value("r").or_else(|| value("rank")) {
            self.rank = Some(rank.parse().ok()?);
        } else if let Some(kind) = value("optim") {
            self.optimizer = Some(optimizer(kind)?);
        } else {
            match word {
                "lora" => self.adapters = true,
                // LLaMA-Adapter (Zhang et al. 2023) trains a prompt for each block: next to nothing.
                "adapter" => (self.adapters, self.rank) = (true, Some(1)),
                "qlora" | "q-lora" => (self.adapters, self.quantized) = (true, true),
                "gptq" | "4-bit" | "4bit" | "int4" | "bnb.nf4" | "bnb.nf4-dq" => self.quantized = true,
                "rank" => {
                    self.rank = Some(next?.parse().ok()?);
                    return Some(2);
                }
                "full_shard" => self.zero = Some(Zero::Parameters),
                "shard_grad_op" => self.zero = Some(Zero::Gradients),
                "used" if next == Some("as") => return Some(2),
                "no_shard" => self.zero = Some(Zero::None),
                "compile" | "compile=y" => self.compiled = Some(true),
                "compile=n" | "eager" => self.compiled = Some(false),
                "offload_optimizer" => self.offload_optimizer = true,
                "cpu_offload" | "offload" => (self.offload_optimizer, self.offload_weights) = (true, true),
                "liger-kernel" | "chunked-loss" => self.chunked_loss = true,
                "recompute" => self.recompute = true,
                _ => return None,
            }
        }
        Some(1)
    }
}

fn zero(stage: u32) -> Option<Zero> {
    [Zero::None, Zero::Optimizer, Zero::Gradients, Zero::Parameters].get(stage as usize).copied()
}

fn optimizer(kind: &str) -> Option<OptimizerKind> {
    match kind {
        "adamw_8bit" | "paged_adamw_8bit" | "adam8bit" => Some(OptimizerKind::Adam8bit),
        "adamw" | "adamw_torch" | "adamw_torch_fused" => Some(OptimizerKind::Adam),
        "adafactor" => Some(OptimizerKind::Adafactor),
        "sgd" => Some(OptimizerKind::Sgd),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell, and what it is read as: degrees that are stated in the order data, tensor, pipeline, context, sequence,
    /// expert, chunks, sharded over, ranks; then the stage and marks.
    fn check(cell: &str, expected: &str) {
        let told = match parallelism(cell) {
            Err(word) => format!("no {word}"),
            Ok(stated) => {
                let degrees = [
                    ("d", stated.data),
                    ("t", stated.tensor),
                    ("p", stated.pipeline),
                    ("c", stated.context),
                    ("s", stated.sequence),
                    ("e", stated.expert),
                    ("v", stated.chunks),
                    ("o", stated.sharded_over),
                    ("n", stated.ranks),
                ];
                let mut told: Vec<String> =
                    degrees.iter().filter_map(|(name, degree)| Some(format!("{name}{}", (*degree)?))).collect();
                told.extend(stated.zero.map(|zero| format!("z{}", zero as u8)));
                told.extend(stated.accumulate.map(|steps| format!("a{steps}")));
                told.extend(stated.global_batch.map(|batch| format!("b{batch}")));
                told.extend(stated.rank.map(|rank| format!("r{rank}")));
                let marks = [
                    (stated.adapters, "lora"),
                    (stated.quantized, "4bit"),
                    (stated.compiled == Some(true), "compiled"),
                    (stated.offload_optimizer, "offload"),
                    (stated.chunked_loss, "chunked"),
                ];
                told.extend(marks.iter().filter(|(is, _)| *is).map(|(_, mark)| (*mark).to_owned()));
                told.join(" ")
            }
        };
        assert_eq!(told, expected, "{cell}");
    }

    #[test]
    fn cells_are_read_as_their_sources_mean_them() {
        check("DP4 TP2 PP2 ZeRO1 grad_accum=32 global_batch=256", "d4 t2 p2 z1 a32 b256");
        check("TP1PP1DP8", "d8 t1 p1");
        check("TP=2, DP 4", "d4 t2");
        check("TP2 PP8 CP2 VP4 EPn/a global_batch=1536", "t2 p8 c2 v4 b1536");
        check("TP1 PP4 CP1 EP64 VP8 FSDP256 grad_accum=4", "t1 p4 c1 e64 v8 o256 z3 a4");
        check("zero1(dp2)+tp2+pp4", "d2 t2 p4 z1");
        check("DP8 TP1 PP1 sharding stage2 degree 8 grad_accum=64", "d8 t1 p1 o8 z2 a64");
        check("DP16 TP1 ZeRO1 within 8 GPUs grad_accum=4", "d16 t1 o8 z1 a4");
        check("FSDP2 8 compile", "n8 z3 compiled");
        check("QLoRA FSDP FULL_SHARD 2 cpu_offload", "n2 z3 lora 4bit offload");
        check("LoRA FSDP used as DDP 2", "n2 z0 lora");
        check("QLoRA 4-bit r=16 single SFTTrainer grad_accum=4 optim=adamw_8bit", "a4 r16 lora 4bit");
        check("ZeRO3 8 + CPU AdamW offload + Liger-Kernel (attention FA4)", "n8 z3 offload chunked");
        check("full finetune DeepSpeed ZeRO (config) sequence parallel SP8", "no zero");
    }

    #[test]
    fn what_the_model_does_not_know_is_refused_by_its_name() {
        check("TP2 ring_attention4", "no ring_attention4");
        check("DP8 XP4", "no xp4");
        check("TP0", "no tp0");
        check("LoRA 2 GPUs model split by layers (device_map)", "no split");
        check("PEFT BOFT single", "no peft");
        check("full finetune ZeRO2 8 Muon", "no muon");
    }
}
