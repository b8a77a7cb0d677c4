//! Calibration of estimates by measured steps of the job's own network: a short run on a rented machine, or a table of
//! several. [`Calibration`] weighs them; here a row of a table becomes a measured step with its estimate.

use domain::gpu::Gpu;
use serde::Serialize;

use super::parallel;
use super::workload::{ProgramOptions, ResolvedWorkload, TrainingSpec};
use crate::estimate::{
    ActivationCheckpointing, Calibration, Device, FittedCoefficients, MeasuredStep, NumericFormat, ParallelDegrees,
    Setup, Zero, seconds,
};
use crate::measured::{MeasuredRow, parallelism};

/// Measured steps, each with the GPU that it was measured on.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CalibrationData {
    pub steps: Vec<(String, MeasuredStep)>,
    /// Rows that are excluded.
    pub outliers: Vec<Outlier>,
}

/// A measured step that is too far from its estimate to be of this network, or in this unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlier {
    /// The index of the row, from 0.
    pub row: usize,
    pub gpu: String,
    pub seconds: f64,
    pub estimated: f64,
}

/// Measured steps that differ from their estimates by more than this factor are excluded: a wrong unit or number of
/// GPUs has that effect, and estimates of published steps are well within it (`docs/estimate.md`).
pub const MOST_OFF: f64 = 10.0;

/// Why a row is rejected: its index, from 0, a sentence, and what to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedRow {
    pub row: usize,
    pub why: String,
    pub hint: String,
}

impl CalibrationData {
    /// Reads rows that measured the workload's network. `gpu` resolves the spelling of a GPU.
    ///
    /// # Errors
    /// The first row that cannot be compared with an estimate.
    pub fn of<'g>(
        rows: &[MeasuredRow],
        workload: &ResolvedWorkload,
        sequence: Option<u64>,
        gpu: impl Fn(&str, Option<f64>) -> Option<&'g Gpu>,
        coefficients: &FittedCoefficients,
    ) -> Result<CalibrationData, RejectedRow> {
        let mut data = CalibrationData::default();
        for (index, row) in rows.iter().enumerate() {
            let rejected =
                |why: &str, hint: &str| RejectedRow { row: index, why: why.to_owned(), hint: hint.to_owned() };
            let Some(gpu) = gpu(&row.gpu, row.memory) else {
                let hint = "use a name of `gradus catalog gpus`, such as `A100-SXM4-80GB`";
                return Err(rejected(&format!("no GPU `{}` is known", row.gpu), hint));
            };
            let add = |column: &str| rejected(&format!("it states no `{column}`"), "add it, or remove the row");
            let batch = row.batch.ok_or_else(|| add("batch_per_gpu"))?;
            let stated = row.throughput.ok_or_else(|| add("throughput"))?;
            let throughput = match (row.unit.trim(), sequence) {
                ("" | "samples/s" | "img/s" | "images/s" | "imgs/s" | "seq/s" | "sequences/s", _) => stated,
                ("tokens/s" | "tok/s", Some(sequence)) => stated / sequence as f64,
                ("tokens/s" | "tok/s", None) => {
                    let hint = "write `sequence: …` under `workload`, or state the row in `samples/s`";
                    return Err(rejected("it counts tokens, and the job states no `sequence`", hint));
                }
                (other, _) => {
                    let hint = "write `samples/s` or `tokens/s`, of all GPUs together";
                    return Err(rejected(&format!("its unit `{other}` is not known"), hint));
                }
            };
            let setup = setup(row, &workload.spec, gpu, batch).map_err(|(why, hint)| rejected(&why, &hint))?;
            let samples = batch * f64::from(setup.parallel.data);
            let gpu = gpu.name.clone();
            let (seconds, estimated) = (samples / throughput, seconds(&workload.network.ops, &setup, coefficients));
            match (seconds / estimated).ln().abs() <= MOST_OFF.ln() {
                true => data.steps.push((gpu, MeasuredStep { seconds, estimated, alike: false })),
                false => data.outliers.push(Outlier { row: index, gpu, seconds, estimated }),
            }
        }
        Ok(data)
    }

    /// The calibration of estimates on a GPU; `None` without measurements.
    pub fn on(&self, gpu: &str) -> Option<Calibration> {
        let seen = |(name, measured): &(String, MeasuredStep)| MeasuredStep { alike: name == gpu, ..*measured };
        Calibration::of(&self.steps.iter().map(seen).collect::<Vec<MeasuredStep>>())
    }
}

/// The setup of a row; unstated settings are the job's.
///
/// # Errors
/// What of it is not understood or impossible, and a hint.
fn setup(row: &MeasuredRow, spec: &TrainingSpec, gpu: &Gpu, batch: f64) -> Result<Setup, (String, String)> {
    let gpus = row.gpus.unwrap_or(1);
    let nodes = row.nodes.unwrap_or(gpus.div_ceil(8)).clamp(1, gpus);
    let device = Device { gpu: gpu.clone(), nodes, gpus_per_node: gpus / nodes, network: None };
    let precision = row.precision.to_ascii_lowercase();
    let formats = match () {
        () if precision.is_empty() => spec.program.precision,
        () if precision.contains("fp8") => NumericFormat::Fp8,
        () if precision.contains("32") => NumericFormat::Fp32,
        () if precision.contains("bf16") && precision.contains("amp") => NumericFormat::AmpBf16,
        () if precision.contains("bf16") => NumericFormat::Bf16,
        () if precision.contains("fp16") => NumericFormat::AmpFp16,
        () => NumericFormat::Auto,
    };
    // Unknown syntax is refused: it may describe how the work is divided.
    let stated = parallelism(&row.parallelism).map_err(|word| {
        let hint = "write degrees such as `DP8`, `TP2 PP4` or `FSDP`, or leave the column empty for data parallelism";
        (format!("`{word}` in the column `parallelism` is not known"), hint.to_owned())
    })?;
    let (tensor, pipeline) = (stated.tensor.unwrap_or(1), stated.pipeline.unwrap_or(1));
    let context = stated.context.unwrap_or(1);
    let model = tensor.saturating_mul(pipeline).saturating_mul(context).max(1);
    if !gpus.is_multiple_of(model) {
        let why = format!("its degrees multiply to {model}, which does not divide `n_gpus` ({gpus})");
        return Err((why, "correct `n_gpus` or `parallelism`; `n_gpus` counts the GPUs of all nodes".to_owned()));
    }
    let parallel = ParallelDegrees {
        data: gpus / model,
        tensor,
        pipeline,
        zero: stated.zero.unwrap_or(Zero::None),
        context,
        expert: stated.expert.unwrap_or(1),
        chunks: stated.chunks.unwrap_or(1),
        sequence: tensor > 1,
        copies: 1,
    };
    let recomputes = row.checkpointing.eq_ignore_ascii_case("true");
    let spec = TrainingSpec { program: ProgramOptions { precision: formats, ..spec.program }, ..spec.clone() };
    let start = parallel::start(&spec, &device).ok_or_else(|| {
        let word = formats.word();
        match precision.is_empty() {
            true => {
                let why = format!("{} has no `{word}`, which the job trains in and the row does not replace", gpu.name);
                (why, "state the row's `precision`, or write `precision: auto` under `workload`".to_owned())
            }
            false => (format!("{} has no `{word}`", gpu.name), "correct `precision` or `gpu`".to_owned()),
        }
    })?;
    let recompute = if recomputes { ActivationCheckpointing::Full } else { ActivationCheckpointing::None };
    Ok(Setup { parallel, recompute, micro_batch: batch.round().max(1.0) as u64, ..start })
}
