//! Each row of a table beside its estimates: what [`check`](super::check) sums up.

use serde::Serialize;

use super::case::{Case, GpuLookup};
use super::check::{memory_as_seen, pair};
use super::contradictions;
use super::row::MeasuredRow;
use super::stated::Networks;
use crate::estimate::FittedCoefficients;

const GIB: f64 = (1u64 << 30) as f64;

/// A row as it was understood, and its estimates; what it does not state is none.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CheckedRow {
    pub source_id: String,
    pub model: String,
    pub gpu: String,
    pub n_gpus: Option<u32>,
    pub precision: String,
    pub batch_per_gpu: Option<f64>,
    pub image_or_seq: String,
    pub parallelism: String,
    pub grad_checkpoint: String,
    /// Why neither its throughput nor its memory is compared, or why its throughput is not.
    pub reason: String,
    /// Share of the GPUs' rate that it used; below 5 % the throughput of language models is scored apart.
    pub utilization: Option<f64>,
    /// Samples of all GPUs per second.
    pub measured_samples_per_second: Option<f64>,
    pub estimated_samples_per_second: Option<f64>,
    pub throughput_p10: Option<f64>,
    pub throughput_p90: Option<f64>,
    /// Peak memory of one GPU, where the row states an exact one.
    pub measured_gib: Option<f64>,
    /// The same by the estimate, as what was measured saw it: tensors, what the allocator holds, or everything.
    pub estimated_gib: Option<f64>,
    pub weights_gib: Option<f64>,
    pub gradients_gib: Option<f64>,
    pub optimizer_gib: Option<f64>,
    pub activations_gib: Option<f64>,
    pub workspace_gib: Option<f64>,
    pub communication_gib: Option<f64>,
    pub margin_gib: Option<f64>,
    pub context_gib: Option<f64>,
}

/// Estimates each row, in the order of `rows`.
pub fn checked(
    rows: &[MeasuredRow],
    networks: &Networks,
    gpus: GpuLookup,
    coefficients: &FittedCoefficients,
) -> Vec<CheckedRow> {
    let all: Vec<&MeasuredRow> = rows.iter().collect();
    let cases = contradictions::cases(&all, networks, gpus, &coefficients.memory);
    let one = |(row, case): (&MeasuredRow, Result<Case, _>)| {
        let stated = stated(row);
        match case {
            Err(why) => CheckedRow { reason: super::Ineligible::reason(&why), ..stated },
            Ok(case) => estimated(stated, &case, coefficients),
        }
    };
    rows.iter().zip(cases).map(one).collect()
}

fn stated(row: &MeasuredRow) -> CheckedRow {
    CheckedRow {
        source_id: row.source.clone(),
        model: row.model.clone(),
        gpu: row.gpu.clone(),
        n_gpus: row.gpus,
        precision: row.precision.clone(),
        batch_per_gpu: row.batch,
        image_or_seq: row.size.clone(),
        parallelism: row.parallelism.clone(),
        grad_checkpoint: row.checkpointing.clone(),
        ..CheckedRow::default()
    }
}

fn estimated(stated: CheckedRow, case: &Case, coefficients: &FittedCoefficients) -> CheckedRow {
    let (memory, seen) = memory_as_seen(case, &coefficients.memory);
    let timed = case.untimed.is_none().then(|| pair(case, coefficients));
    let rates = timed.as_ref().and_then(|pair| pair.estimated);
    let gib = |bytes: f64| case.memory.peak.map(|_| bytes / GIB);
    CheckedRow {
        reason: case.untimed.as_ref().map(super::Ineligible::reason).unwrap_or_default(),
        utilization: timed.as_ref().map(|_| case.utilization(&case.work())),
        measured_samples_per_second: timed.as_ref().map(|pair| pair.measured),
        estimated_samples_per_second: rates.map(|[_, middle, _]| middle),
        throughput_p10: rates.map(|[low, ..]| low),
        throughput_p90: rates.map(|[.., high]| high),
        measured_gib: case.memory.peak.map(|peak| peak / GIB),
        estimated_gib: gib(seen),
        weights_gib: gib(memory.weights),
        gradients_gib: gib(memory.gradients),
        optimizer_gib: gib(memory.optimizer),
        activations_gib: gib(memory.activations),
        workspace_gib: gib(memory.workspace),
        communication_gib: gib(memory.communication),
        margin_gib: gib(memory.margin),
        context_gib: gib(memory.context),
        ..stated
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::tests::gpu;
    use super::*;

    #[test]
    fn each_row_has_its_estimates_or_the_reason_why_not() {
        let table = "source_id,model,gpu,n_gpus,precision,batch_per_gpu,image_or_seq,parallelism,throughput,unit,\
                     peak_memory_gib,memory_kind,memory_exact_or_bound\n\
                     ours,Llama-3.1-8B,G,8,bf16,1,2048,FSDP 8,3000,tokens/s,40,torch max allocated,exact\n\
                     ours,Llama-3.1-8B,G,8,bf16,1,2048,FSDP 8,,tokens/s,40,torch max reserved,exact\n\
                     ours,Llama-3.1-8B,G,8,bf16,1,2048,ring 8,3000,tokens/s,,,\n";
        let rows = MeasuredRow::table(table).expect("a table");
        let coefficients = FittedCoefficients::embedded().expect("embedded numbers");
        let checked = checked(&rows, &Networks::published(), &|_, _| Some(gpu()), &coefficients);
        let [timed, held, refused] = &checked[..] else { panic!("{} rows", checked.len()) };
        assert_eq!((timed.reason.as_str(), timed.measured_gib), ("", Some(40.0)));
        assert!(timed.estimated_samples_per_second > timed.throughput_p10, "{timed:?}");
        let parts = [timed.weights_gib, timed.gradients_gib, timed.optimizer_gib, timed.activations_gib];
        let parts = parts.into_iter().chain([timed.workspace_gib, timed.communication_gib]);
        let sum: f64 = parts.map(|part| part.expect("a part")).sum();
        assert!((sum - timed.estimated_gib.expect("memory")).abs() < 1e-9, "{timed:?}");
        assert_eq!((held.reason.as_str(), held.measured_samples_per_second), ("states no throughput", None));
        let margin = held.estimated_gib.zip(timed.estimated_gib).map(|(held, timed)| held - timed);
        assert!((margin.expect("both") - held.margin_gib.expect("a margin")).abs() < 1e-9);
        assert!(refused.reason.contains("`ring`") && refused.estimated_gib.is_none(), "{refused:?}");
    }
}
