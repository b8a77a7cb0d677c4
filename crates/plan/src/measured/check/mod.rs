//! Scores of estimates over measured rows.

mod end_to_end;

use std::collections::BTreeMap;

use serde::Serialize;

pub use end_to_end::{TrainingTimeScore, TrainingTimes};

use super::case::{Case, GpuLookup};
use super::contradictions;
use super::ineligible::Ineligible;
use super::row::MeasuredRow;
use super::score::{Fits, Pair, Scaling, Score};
use super::stated::Networks;
use crate::estimate::memory::{
    MemoryCoefficients, MemoryEstimate, MemoryFit, Profile, largest_batch, memory_with, verdict,
};
use crate::estimate::{FittedCoefficients, Setup};

/// Scores by source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccuracyReport {
    pub sources: BTreeMap<String, Score>,
    /// Time to train, of tables of results that state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_train: Option<TrainingTimes>,
}

/// Estimates every eligible row and scores each source.
pub fn check(
    rows: &[MeasuredRow],
    networks: &Networks,
    gpus: GpuLookup,
    coefficients: &FittedCoefficients,
) -> AccuracyReport {
    let mut sources: BTreeMap<String, Vec<&MeasuredRow>> = BTreeMap::new();
    for row in rows {
        sources.entry(row.source.clone()).or_default().push(row);
    }
    let score = |(source, rows): (String, Vec<&MeasuredRow>)| {
        let score = source_score(&rows, networks, gpus, coefficients);
        (source, score)
    };
    AccuracyReport {
        sources: sources.into_iter().map(score).collect(),
        time_to_train: end_to_end::training_times(rows, gpus, coefficients),
    }
}

/// Scores the rows of one source.
fn source_score(
    rows: &[&MeasuredRow],
    networks: &Networks,
    gpus: GpuLookup,
    coefficients: &FittedCoefficients,
) -> Score {
    let (mut pairs, mut idle, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let mut unmeasured = Vec::new();
    let (mut ineligible, mut memory_only) = (BTreeMap::new(), BTreeMap::new());
    let mut unknown_networks: BTreeMap<String, usize> = BTreeMap::new();
    let (mut cases, mut known) = (Vec::new(), Fits::default());
    for case in contradictions::cases(rows, networks, gpus, &coefficients.memory) {
        let case = match case {
            Ok(case) => case,
            Err(why) => {
                refuse(&why, &mut ineligible, &mut unknown_networks);
                continue;
            }
        };
        // What tells nothing of throughput may still tell its memory.
        count(&case, &mut known, &coefficients.memory);
        if let Some(measured) = case.memory.peak {
            memory.push(Pair { measured, estimated: peak(&case, &coefficients.memory) });
        }
        match &case.untimed {
            None if case.is_idle() => idle.push(pair(&case, coefficients)),
            None => {
                let pair = pair(&case, coefficients);
                if !coefficients.is_measured(&case.setup.device.gpu) {
                    unmeasured.push(pair);
                }
                pairs.push(pair);
                cases.push(case);
            }
            Some(why) if case.memory.peak.is_some() || case.memory.fits => {
                *memory_only.entry(why.reason()).or_default() += 1;
            }
            Some(why) => *ineligible.entry(why.reason()).or_default() += 1,
        }
    }
    let score = Score::of(rows.len(), &pairs, &memory, ineligible);
    let scaling = Scaling::of(&efficiencies(&cases, &pairs));
    let eligible = pairs.len() + idle.len() + memory_only.values().sum::<usize>();
    let idle = Score::of(idle.len(), &idle, &[], BTreeMap::new());
    let unmeasured = Score::of(unmeasured.len(), &unmeasured, &[], BTreeMap::new());
    Score {
        unmeasured: unmeasured.predicted,
        unmeasured_coverage: unmeasured.interval_coverage,
        memory: score.memory.clone().with(known),
        scaling,
        eligible,
        idle: idle.eligible,
        idle_median: idle.median,
        memory_only,
        unknown_networks,
        ..score
    }
}

/// Counts a row that is not eligible. Networks that are not known are one reason; their names stand apart.
fn refuse(why: &Ineligible, reasons: &mut BTreeMap<String, usize>, unknown_networks: &mut BTreeMap<String, usize>) {
    let unknown = why.unknown_network();
    if let Some(name) = unknown {
        *unknown_networks.entry(name.to_owned()).or_default() += 1;
    }
    let reason = unknown.map_or_else(|| why.reason(), |_| "its network is not known".to_owned());
    *reasons.entry(reason).or_default() += 1;
}

/// Measured and estimated efficiency of eight GPUs beside one, of all that was measured on both.
fn efficiencies(cases: &[Case], pairs: &[Pair]) -> Vec<(f64, f64)> {
    let middle = |at: usize| pairs[at].estimated.map(|[_, middle, _]| middle);
    let alike = |one: &Case, other: &Case| {
        let [left, right] = [&one.setup, &other.setup];
        one.row.group == other.row.group
            && one.row.table == other.row.table
            && one.model == other.model
            && left.device.gpu == right.device.gpu
            && (left.precision, left.micro_batch, left.compiled) == (right.precision, right.micro_batch, right.compiled)
    };
    let mut efficiencies = Vec::new();
    for (at, eight) in cases.iter().enumerate().filter(|(_, case)| case.setup.gpus() == 8) {
        let alone = cases.iter().position(|case| case.setup.gpus() == 1 && alike(case, eight));
        if let Some(alone) = alone
            && let (Some(estimated), Some(estimated_alone)) = (middle(at), middle(alone))
        {
            let measured = pairs[at].measured / (8.0 * pairs[alone].measured);
            efficiencies.push((measured, estimated / (8.0 * estimated_alone)));
        }
    }
    efficiencies
}

/// Counts what is said of a batch that is known to fit, of half as many samples more where it fills the GPU, and how
/// often the largest batch that is expected to fit is near the largest that did.
fn count(case: &Case, known: &mut Fits, figures: &MemoryCoefficients) {
    let said = |micro_batch: u64| {
        let setup = Setup { micro_batch, ..case.setup.clone() };
        verdict(&memory_with(&case.model, &setup, &case.savings, figures), &setup.device.gpu)
    };
    let batch = case.setup.micro_batch;
    if case.memory.fits {
        let said = said(batch);
        known.known += 1;
        known.said += usize::from(said != MemoryFit::TooLarge);
        known.surely += usize::from(said == MemoryFit::Fits);
    }
    if case.memory.used.is_some_and(|used| used >= 0.9) {
        known.filling += 1;
        known.refused += usize::from(said(batch + batch.div_ceil(2)) == MemoryFit::TooLarge);
    }
    if let Some(most) = case.memory.tried {
        let largest =
            largest_batch(&case.model, &case.setup, &case.savings, figures).map_or(0, |largest| largest.min(most));
        known.searched += 1;
        known.near += usize::from(largest.saturating_mul(2) >= batch && largest <= batch.saturating_mul(2));
    }
}

/// Measured throughput beside the estimated, lowest first.
pub(super) fn pair(case: &Case, coefficients: &FittedCoefficients) -> Pair {
    let work = case.work();
    let band = case.band(&work, coefficients);
    let samples = case.samples() * case.habits.overstated;
    let estimated = [band.high, band.middle, band.low].map(|seconds| samples / seconds);
    let usable = estimated.iter().all(|estimate| estimate.is_finite() && *estimate > 0.0);
    Pair { measured: case.samples_per_second, estimated: usable.then_some(estimated) }
}

/// Estimated memory, and of it what the measurement saw, in bytes.
pub(super) fn memory_as_seen(case: &Case, figures: &MemoryCoefficients) -> (MemoryEstimate, f64) {
    let profile = Profile::new(&case.model, &case.setup, &case.savings, figures);
    let memory = match case.memory.of_first_stage {
        true => profile.first_stage(&case.setup),
        false => profile.memory(&case.setup),
    };
    let seen = case.memory.metric.of_estimate(&memory);
    (memory, seen)
}

/// Estimated peak memory in bytes, as the measurement saw it.
fn peak(case: &Case, figures: &MemoryCoefficients) -> Option<[f64; 3]> {
    let (memory, seen) = memory_as_seen(case, figures);
    let [low, high] = [memory.low, memory.high].map(|edge| seen * edge / memory.required);
    (seen.is_finite() && seen > 0.0).then_some([low, seen, high])
}

#[cfg(test)]
pub mod tests {
    use domain::Bytes;
    use domain::gpu::{Gpu, GpuArchitecture, GpuTraits, Link, Rates};

    use super::*;

    /// Rows of one network on one GPU and on eight, as a table states them.
    const TABLE: &str = "source_id,model,gpu,n_gpus,precision,batch_per_gpu,throughput,unit,peak_memory_gib,\
                         memory_exact_or_bound,params_m,gmacs,macts_m\n\
                         ours,new_net,G,1,AMP,32,1000,images/s,9.8,upper,25,4,11\n\
                         ours,new_net,G,8,AMP,32,7200,images/s,,bound,25,4,11\n\
                         ours,new_net,G,2,AMP,,1900,images/s,,,25,4,11\n";

    /// A GPU of a generation that nothing was measured on.
    pub fn gpu() -> Gpu {
        Gpu {
            name: "G".to_owned(),
            architecture: GpuArchitecture::Cdna3,
            memory: Bytes(11 << 30),
            usable: Bytes(10 << 30),
            bandwidth: 1e12,
            rates: Rates { fp32: 20e12, fp16: Some(100e12), ..Rates::default() },
            link: Link::Pcie,
            pcie: 4,
            multiprocessors: 80,
            power: 300.0,
            source: String::new(),
            traits: GpuTraits::default(),
        }
    }

    #[test]
    fn a_check_scores_scaling_and_what_fits() {
        let gpu = |_: &str, _: Option<f64>| Some(gpu());
        let rows = MeasuredRow::table(TABLE).expect("a table");
        let report =
            check(&rows, &Networks::published(), &gpu, &FittedCoefficients::embedded().expect("embedded numbers"));
        let score = &report.sources["ours"];
        assert_eq!((score.rows, score.eligible, score.predicted), (3, 2, 2));
        assert_eq!(score.ineligible.get("states no batch"), Some(&1));
        assert_eq!(score.scaling.pairs, 1);
        assert!(score.scaling.mean.is_some_and(|points| points < 30.0), "{score:?}");
        assert_eq!((score.memory.known_to_fit, score.memory.filling), (2, 1));
        assert_eq!(score.unmeasured, 2, "nothing was measured on this GPU");
    }

    #[test]
    fn a_gpu_with_less_power_tells_memory_only() {
        let table = "source_id,model,gpu,n_gpus,precision,batch_per_gpu,image_or_seq,parallelism,throughput,unit,\
                     peak_memory_gib,memory_kind,memory_exact_or_bound,notes\n\
                     ours,Llama-3.1-8B,G,8,bf16,1,2048,FSDP 8,3000,tokens/s,40,torch max allocated,exact,power-limited G\n";
        let rows = MeasuredRow::table(table).expect("a table");
        let coefficients = FittedCoefficients::embedded().expect("embedded numbers");
        let report = check(&rows, &Networks::published(), &|_, _| Some(gpu()), &coefficients);
        let score = &report.sources["ours"];
        assert_eq!((score.predicted, score.memory.rows), (0, 1), "{score:?}");
        assert!(score.memory_only.keys().any(|why| why.contains("power")), "{score:?}");
    }

    #[test]
    fn ranks_wait_for_the_longest_samples_where_these_differ() {
        let rate = |notes: &str| {
            let table = format!(
                "source_id,model,gpu,n_gpus,precision,batch_per_gpu,parallelism,throughput,unit,notes\n\
                 ours,Llama-3.1-8B,G,8,bf16,4,FSDP 8,3000,tokens/s/gpu,mean tokens per sample 512{notes}\n"
            );
            let rows = MeasuredRow::table(&table).expect("a table");
            let coefficients = FittedCoefficients::embedded().expect("embedded numbers");
            let checked = super::super::checked(&rows, &Networks::published(), &|_, _| Some(gpu()), &coefficients);
            checked[0].estimated_samples_per_second.expect("an estimate")
        };
        let ratio = rate("; multipack") / rate("");
        assert!((1.2..1.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn language_models_below_a_twentieth_are_told_apart() {
        let table = "source_id,model,gpu,n_gpus,precision,batch_per_gpu,image_or_seq,parallelism,throughput,unit\n\
                     ours,Llama-3.1-8B,G,8,bf16,1,2048,FSDP 8,3000,tokens/s\n\
                     ours,Llama-3.1-8B,G,8,bf16,1,2048,FSDP 8,300,tokens/s\n\
                     ours,Llama-3.1-8B,G,1,bf16,1,2048,single,30,tokens/s\n";
        let fast = Gpu { rates: Rates { bf16: Some(100e12), ..gpu().rates }, ..gpu() };
        let rows = MeasuredRow::table(table).expect("a table");
        let coefficients = FittedCoefficients::embedded().expect("embedded numbers");
        let report = check(&rows, &Networks::published(), &|_, _| Some(fast.clone()), &coefficients);
        let score = &report.sources["ours"];
        assert_eq!((score.eligible, score.predicted, score.idle), (3, 2, 1), "{score:?}");
        assert!(score.idle_median.is_some_and(|median| median > 100.0), "{score:?}");
    }
}
