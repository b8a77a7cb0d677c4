//! What a measured row measured: which network, on which machines, divided how.
//!
//! A row is eligible when it states a batch, a unit and a network that has a graph here or summary figures. [`case`]
//! reads the rest as its source means it: batches of all GPUs or of one, accumulated or not, layouts that a program
//! does not name. What differs between sources is written down here and nowhere in the estimates.

use domain::gpu::{Gpu, GpuArchitecture};

use super::ineligible::Ineligible;
use super::program::{Program, ProgramHabits, usual_domain, usual_network};
use super::programs;
use super::row::MeasuredRow;
use super::seen::MemoryMetric;
use super::stated::Networks;
use crate::estimate::fitted::band::middle;
use crate::estimate::limits::offloaded;
use crate::estimate::memory::{MemoryCoefficients, MemoryEstimate, Savings, memory_with};
use crate::estimate::time::class;
use crate::estimate::{
    ActivationCheckpointing, Device, FittedCoefficients, NumericFormat, OpProfile, Origin, ParallelDegrees,
    Percentiles, ProgramDetails, ProgramStyle, Setup, seconds,
};
use crate::model::{ModelDescription, graph::OpKind};

/// A row, understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub row: RowIdentity,
    pub model: ModelDescription,
    pub setup: Setup,
    /// Memory-saving techniques of the measured run that the estimate has no field for.
    pub savings: Savings,
    /// Other ways that may have been meant where the row does not say, each with its odds against the first.
    pub others: Vec<(Setup, Savings, f64)>,
    pub habits: ProgramHabits,
    /// Whether it states no number of micro-batches, although several GPUs exchange once in all of them.
    pub is_accumulation_unstated: bool,
    /// Samples of all GPUs per second.
    pub samples_per_second: f64,
    pub memory: MeasuredMemory,
    /// Why its throughput tells nothing: it states none, or other rows of its table contradict it.
    pub untimed: Option<Ineligible>,
}

/// Where a row comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct RowIdentity {
    pub source: String,
    /// Rows of one network on one kind of GPU from one source: what a fit leaves out together.
    pub group: String,
    /// The network in words.
    pub what: String,
    /// The table among those of its source, where it says: its heading and its column.
    pub table: String,
    /// How the row came about, as far as errors depend on it.
    pub origin: Origin,
}

/// What a row states of memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredMemory {
    /// Peak memory of one GPU in bytes, where it is exact.
    pub peak: Option<f64>,
    /// What of the memory was measured.
    pub metric: MemoryMetric,
    /// Whether it is that of a GPU of a pipeline's first stage, and not of the fullest.
    pub of_first_stage: bool,
    /// Whether the row states that its batch fits.
    pub fits: bool,
    /// Where that batch was searched for: no larger one that was tried fits, and none above this many samples was tried.
    pub tried: Option<u64>,
    /// The share of the GPU's memory that all processes held, where the row states it.
    pub used: Option<f64>,
}

impl Case {
    /// Samples of all ranks in one step.
    pub fn samples(&self) -> f64 {
        self.setup.micro_batch as f64 * self.setup.accumulate as f64 * f64::from(self.setup.parallel.data)
    }

    /// Estimated seconds of a step as its program runs it: an aged one reaches less, and weights that stay in the host's
    /// memory take their way each step.
    pub fn seconds(&self, work: &OpProfile, coefficients: &FittedCoefficients) -> f64 {
        middle(&self.middles(work, coefficients))
    }

    /// The same for each way that may have been measured, with its probability.
    pub fn middles(&self, work: &OpProfile, coefficients: &FittedCoefficients) -> Vec<(f64, f64)> {
        let first = (&self.setup, &self.savings, 1.0);
        let others = self.others.iter().map(|(setup, savings, odds)| (setup, savings, *odds));
        let all = 1.0 + self.others.iter().map(|(_, _, odds)| odds).sum::<f64>();
        let ways = std::iter::once(first).chain(others);
        ways.map(|(setup, savings, odds)| (self.one_way(work, setup, savings, coefficients), odds / all)).collect()
    }

    /// The estimate with its band, which spans all ways that may have been measured.
    pub fn band(&self, work: &OpProfile, coefficients: &FittedCoefficients) -> Percentiles {
        let class = class(work, &self.setup, coefficients);
        let known = (&self.setup.device.gpu, self.details(work));
        coefficients.band(self.row.origin, class, known, &self.middles(work, coefficients))
    }

    /// Whether what decides the time of its step is stated.
    pub fn details(&self, work: &OpProfile) -> ProgramDetails {
        if self.is_accumulation_unstated { ProgramDetails::Unstated } else { work.details() }
    }

    fn one_way(&self, work: &OpProfile, setup: &Setup, savings: &Savings, coefficients: &FittedCoefficients) -> f64 {
        let own = seconds(work, setup, coefficients) / if self.habits.aged { coefficients.shared.aged } else { 1.0 };
        let longest = if self.habits.unbalanced { longest(setup) } else { 1.0 };
        own * longest + offloaded(work, setup, savings)
    }

    /// Samples of all ranks a second as the row means them, where its program overstates what it measured.
    pub fn rate(&self) -> f64 {
        self.samples_per_second / self.habits.overstated
    }

    /// Share of the GPUs' dense rate that the measured run used for the network itself (model FLOPs utilization, Chowdhery
    /// et al. 2022, appendix B): three times the forward pass, without what is computed again. Of a run in fp8 beside the
    /// 16-bit rate.
    pub fn utilization(&self, work: &OpProfile) -> f64 {
        let [_, madds] = work.size().map(f64::exp);
        let rates = &self.setup.device.gpu.rates;
        let peak = match self.setup.precision {
            NumericFormat::Auto | NumericFormat::Fp32 => rates.fp32,
            NumericFormat::Tf32 => rates.tf32.unwrap_or(rates.fp32),
            NumericFormat::AmpFp16 => rates.fp16.unwrap_or(rates.fp32),
            NumericFormat::AmpBf16 | NumericFormat::Bf16 | NumericFormat::Fp8 => rates.bf16.unwrap_or(rates.fp32),
        };
        6.0 * madds * self.rate() / (f64::from(self.setup.gpus()) * peak)
    }

    /// Whether it is a language model on several GPUs that used less than a twentieth of them: such a run waits for
    /// something that neither its network nor its hardware states, and says nothing of speed.
    pub fn is_idle(&self) -> bool {
        let reads_tokens = match &self.model {
            ModelDescription::Graph(graph) => {
                graph.operators.iter().any(|operator| matches!(operator.kind, OpKind::Embedding { .. }))
            }
            ModelDescription::Summary(_) => false,
        };
        reads_tokens && self.setup.gpus() > 1 && self.utilization(&self.work()) < LEAST_UTILIZATION
    }

    /// The network, digested for an estimate of time.
    pub fn work(&self) -> OpProfile {
        let work = OpProfile::of(&self.model);
        let work = match self.savings.adapters {
            Some(adapters) => work.frozen(adapters),
            None => work,
        };
        let narrow =
            matches!(self.setup.precision, NumericFormat::AmpFp16 | NumericFormat::AmpBf16 | NumericFormat::Fp8);
        let half = narrow && (self.habits.half || self.savings.half_model);
        OpProfile {
            half,
            fused_kernels: self.habits.fused_kernels,
            first_flash: self.habits.first_flash,
            exchanged_late: self.habits.exchanged_late,
            recomputed_whole: self.habits.recomputed_whole,
            balanced_stages: self.savings.balanced_stages,
            exchanged_by_python: self.habits.exchanged_by_python,
            sharded_over: self.habits.sharded_over,
            style: ProgramStyle { fp32_between_blocks: self.savings.fp32_between_blocks, ..self.habits.style },
            ..work
        }
    }
}

/// Standard deviation of the lengths of samples over their mean. Assumed: instructions and answers of usual data sets.
const LENGTHS_DIFFER: f64 = 0.6;

/// How much longer the longest of all ranks' micro-batches is than the mean, where samples differ in length and are dealt out
/// as they come: the expected largest of n normal values is about 0.56 · (log₂ n)^0.84 deviations.
fn longest(setup: &Setup) -> f64 {
    let ranks = f64::from(setup.parallel.replicas().max(1));
    1.0 + LENGTHS_DIFFER / (setup.micro_batch as f64).sqrt() * 0.56 * ranks.log2().powf(0.84)
}

/// Model FLOPs utilization below which a run of a language model on several GPUs says nothing of speed.
const LEAST_UTILIZATION: f64 = 0.05;

/// Finds a GPU by a source's spelling and its memory in GB.
pub type GpuLookup<'a> = &'a dyn Fn(&str, Option<f64>) -> Option<Gpu>;

/// Understands a row.
///
/// # Errors
/// Why it is not eligible.
pub fn case(
    row: &MeasuredRow,
    networks: &Networks,
    gpus: GpuLookup,
    figures: &MemoryCoefficients,
) -> Result<Case, Ineligible> {
    understood(row, programs::of(row, networks)?, gpus, figures)
}

/// The same where it is known what ran.
///
/// # Errors
/// As [`case`].
pub(super) fn understood(
    row: &MeasuredRow,
    program: Program,
    gpus: GpuLookup,
    figures: &MemoryCoefficients,
) -> Result<Case, Ineligible> {
    let batch = program.batch.or(row.batch).ok_or(Ineligible::Batch)?;
    let name = program.hardware.gpu.as_deref().unwrap_or(&row.gpu);
    let gpu = gpus(name, row.memory).ok_or_else(|| Ineligible::Gpu(name.to_owned()))?;
    let mut memory = MeasuredMemory::of(row, &gpu);
    if program.mean {
        memory = MeasuredMemory { peak: None, fits: false, used: None, ..memory };
    }
    let rate = rate(row, &program);
    let untimed = rate.as_ref().err().cloned();
    if let (Some(why), false) = (&untimed, memory.peak.is_some() || memory.fits) {
        return Err(why.clone());
    }
    let mut savings = program.savings;
    savings.written_out |= program.written_out_before_ampere && is_before_ampere(gpu.architecture);
    let mut setup = setup(row, &program, gpu, batch);
    let needed = memory_with(&program.model, &setup, &savings, figures).needed();
    savings.gathers_again |= program.gathers_again_if_needed && needed > setup.device.gpu.usable.0 as f64;
    if program.saves_if_needed {
        save(&program.model, &mut setup, &mut savings, figures);
    }
    let others = match program.may_recompute {
        true => others(&program.model, &setup, &savings, memory.peak.map(|peak| (peak, memory.metric)), figures),
        false => Vec::new(),
    };
    let table = row.notes.split("| row:").next().filter(|_| row.notes.contains("| row:")).unwrap_or_default();
    Ok(Case {
        row: RowIdentity {
            source: row.source.clone(),
            group: format!("{} | {} | {}", row.source, row.model, row.gpu),
            what: program.what,
            table: table.to_owned(),
            origin: program.origin,
        },
        model: program.model,
        setup,
        savings,
        others,
        habits: program.habits,
        is_accumulation_unstated: program.is_accumulation_unstated,
        samples_per_second: rate.unwrap_or(0.0),
        memory,
        untimed,
    })
}

/// The setup that a row's program ran with `batch` samples per GPU.
fn setup(row: &MeasuredRow, program: &Program, gpu: Gpu, batch: f64) -> Setup {
    let count = row.gpus.unwrap_or(1);
    let hardware = &program.hardware;
    let of_nodes = || count.div_ceil(row.nodes.unwrap_or_else(|| count.div_ceil(8)));
    let in_node = hardware.gpus_per_node.or_else(|| usual_domain(&gpu, count)).unwrap_or_else(of_nodes);
    let precision = match program.precision {
        _ if program.eight && gpu.rates.fp8.is_some() => NumericFormat::Fp8,
        Some(precision) => precision,
        None => precision(&row.precision, &gpu),
    };
    let network = hardware.network.or_else(|| usual_network(&gpu));
    Setup {
        device: Device { gpu, nodes: count.div_ceil(in_node.max(1)), gpus_per_node: in_node.min(count), network },
        precision,
        layout: program.layout,
        micro_batch: (batch.round() as u64).max(1),
        accumulate: program.accumulate.max(1),
        parallel: program.parallel.unwrap_or(ParallelDegrees {
            data: (count / program.tensor.saturating_mul(program.pipeline).max(1)).max(1),
            tensor: program.tensor,
            pipeline: program.pipeline,
            zero: program.zero,
            ..ParallelDegrees::default()
        }),
        recompute: program.recompute,
        optimizer: program.optimizer,
        flash_attention: program.flash,
        compiled: program.compiled,
    }
}

impl MeasuredMemory {
    fn of(row: &MeasuredRow, gpu: &Gpu) -> MeasuredMemory {
        let bytes = |is: &str| row.peak.filter(|_| row.peak_sense == is).map(|peak| peak * f64::from(1u32 << 30));
        MeasuredMemory {
            peak: bytes("exact"),
            metric: MemoryMetric::of(&row.peak_kind),
            of_first_stage: row.peak_kind.contains("rank 0"),
            fits: matches!(row.peak_sense.as_str(), "bound" | "upper"),
            tried: row.noted("largest that fit ").and(row.noted("(start ")).map(|most| most as u64),
            used: bytes("upper").map(|peak| peak / gpu.usable.0 as f64),
        }
    }
}

fn is_before_ampere(architecture: GpuArchitecture) -> bool {
    match architecture {
        GpuArchitecture::Pascal | GpuArchitecture::Volta | GpuArchitecture::Turing => true,
        GpuArchitecture::Ampere
        | GpuArchitecture::Ada
        | GpuArchitecture::Hopper
        | GpuArchitecture::Blackwell
        | GpuArchitecture::Cdna3
        | GpuArchitecture::Cdna4
        | GpuArchitecture::Unlisted
        | GpuArchitecture::Processor => false,
    }
}

/// Saves memory in the order in which recipes do, until `setup` fits.
fn save(model: &ModelDescription, setup: &mut Setup, savings: &mut Savings, figures: &MemoryCoefficients) {
    let fits = |setup: &Setup, savings: &Savings| {
        memory_with(model, setup, savings, figures).needed() <= setup.device.gpu.usable.0 as f64
    };
    if !fits(setup, savings) {
        setup.recompute = ActivationCheckpointing::Full;
    }
    if !fits(setup, savings) {
        savings.offload_optimizer = true;
    }
}

/// The other choice of whether blocks are recomputed, where it fits. Both are as likely beforehand; a peak of memory that
/// the row states tells which it was, as far as estimates of memory are right.
fn others(
    model: &ModelDescription,
    setup: &Setup,
    savings: &Savings,
    peak: Option<(f64, MemoryMetric)>,
    figures: &MemoryCoefficients,
) -> Vec<(Setup, Savings, f64)> {
    let recompute = match setup.recompute {
        ActivationCheckpointing::None => ActivationCheckpointing::Full,
        ActivationCheckpointing::Selective | ActivationCheckpointing::Full | ActivationCheckpointing::Every(_) => {
            ActivationCheckpointing::None
        }
    };
    let other = Setup { recompute, ..setup.clone() };
    let memory = memory_with(model, &other, savings, figures);
    if memory.needed() > other.device.gpu.usable.0 as f64 {
        return Vec::new();
    }
    let odds = peak.map_or(1.0, |(peak, seen)| {
        let off = |memory: &MemoryEstimate| ((seen.of_estimate(memory) / peak).ln() / MEMORY_IS_OFF_BY).powi(2);
        (0.5 * (off(&memory_with(model, setup, savings, figures)) - off(&memory))).clamp(-20.0, 20.0).exp()
    });
    vec![(other, *savings, odds)]
}

/// Standard deviation of the logarithm of estimated over measured peak memory, with what rows of one source differ by.
const MEMORY_IS_OFF_BY: f64 = 0.1;

/// Samples of all GPUs per second.
fn rate(row: &MeasuredRow, program: &Program) -> Result<f64, Ineligible> {
    let throughput = row.throughput.ok_or(Ineligible::Throughput)?;
    if program.varies {
        return Err(Ineligible::Varies);
    }
    if row.notes.contains("power-limited") {
        return Err(Ineligible::PowerLimited);
    }
    let per_sample = unit(row, program).ok_or(Ineligible::Unit)?;
    let all = if unit_word(row).ends_with("/gpu") { f64::from(row.gpus.unwrap_or(1)) } else { 1.0 };
    Ok(throughput * all / per_sample)
}

/// The unit without what stands in brackets behind it.
fn unit_word(row: &MeasuredRow) -> &str {
    row.unit.split('(').next().unwrap_or_default().trim()
}

/// Units of throughput in a sample; none for a unit that does not count samples.
fn unit(row: &MeasuredRow, program: &Program) -> Option<f64> {
    // NVIDIA's tables say their unit in the heading or not at all; their image and text programs count samples.
    let unit = if row.unit.is_empty() && row.source == "nvidia-dle" { "sequences/s" } else { unit_word(row) };
    match unit.trim_end_matches("/gpu") {
        "images/s" | "img/s" | "sequences/s" | "samples/s" => Some(1.0),
        "tokens/s" | "tok/s" => program.tokens,
        _ => None,
    }
}

fn precision(word: &str, gpu: &Gpu) -> NumericFormat {
    match word {
        "FP16/AMP" | "AMP" | "FP16" | "amp_fp16" => NumericFormat::AmpFp16,
        "amp_bf16" => NumericFormat::AmpBf16,
        "bf16" | "BF16" => NumericFormat::Bf16,
        "fp8" | "amp_fp8" | "float8" | "FP8" => NumericFormat::Fp8,
        "FP32" => NumericFormat::Fp32,
        // `TF32` and `FP32 (TF32 on Ampere+)`.
        _ if gpu.rates.tf32.is_some() => NumericFormat::Tf32,
        _ => NumericFormat::Fp32,
    }
}
