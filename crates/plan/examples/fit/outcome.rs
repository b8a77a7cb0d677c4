//! The accuracy of a fit: anchors and its report, from in-sample and cross-validated estimates.

use std::collections::{BTreeMap, BTreeSet};

use plan::estimate::fitted::band::middle;
use plan::estimate::memory::{MemoryCoefficients, memory_with};
use plan::estimate::time::class;
use plan::estimate::{
    Anchor, Class, ErrorBands, FittedCoefficients, GpuEvidence, OpProfile, Origin, Percentiles, ProgramDetails,
};
use plan::measured::{Case, Pair, Score, percentile};

/// A number of a generation is its own where it is so far from the average.
const OWN: f64 = 1e-3;

/// A measured row with both estimates.
pub struct Outcome<'a> {
    pub case: &'a Case,
    pub class: Class,
    pub details: ProgramDetails,
    size: [f64; 2],
    /// Seconds of a step.
    pub measured: f64,
    /// Estimates of each way that may have been measured.
    fitted: Vec<(f64, f64)>,
    /// Estimates by the fit that held out the row's group.
    left_out: Vec<(f64, f64)>,
    /// The fold of the row.
    pub fold: usize,
}

impl<'a> Outcome<'a> {
    pub fn of(
        case: &'a Case,
        work: &OpProfile,
        fold: usize,
        fitted: &FittedCoefficients,
        without: &FittedCoefficients,
    ) -> Outcome<'a> {
        Outcome {
            case,
            class: class(work, &case.setup, fitted),
            details: case.details(work),
            size: work.size(),
            measured: case.samples() / case.rate(),
            fitted: case.middles(work, fitted),
            left_out: case.middles(work, without),
            fold,
        }
    }

    /// Logarithm of measured over estimated time.
    pub fn off(&self) -> f64 {
        (self.measured / middle(&self.left_out)).ln()
    }

    /// The band around the estimate by the fit that held out the row's group.
    pub fn band(&self, bands: &ErrorBands) -> Percentiles {
        self.band_around(bands, &self.left_out)
    }

    /// The band around an estimate, on a GPU that was measured: by this very row.
    fn band_around(&self, bands: &ErrorBands, estimate: &[(f64, f64)]) -> Percentiles {
        bands.band(self.case.row.origin, self.class, (GpuEvidence::Measured, self.details), estimate)
    }

    /// The probability of the way that was most likely measured.
    pub fn clearest(&self) -> f64 {
        self.left_out.iter().map(|(_, probability)| *probability).fold(0.0, f64::max)
    }
}

/// One anchor for each network, GPU and precision; networks known by totals are anchored by family.
pub fn anchors(outcomes: &[Outcome]) -> Vec<Anchor> {
    let mut groups: BTreeMap<_, Vec<&Outcome>> = BTreeMap::new();
    // Where the program of a row is only told by its words, its error may be that of the words.
    for outcome in outcomes.iter().filter(|outcome| outcome.case.row.origin != Origin::Unknown) {
        let case = outcome.case;
        let key = (
            case.row.source.clone(),
            case.row.what.clone(),
            case.setup.device.gpu.name.clone(),
            case.setup.precision,
            outcome.class,
        );
        groups.entry(key).or_default().push(outcome);
    }
    let anchor =
        |((source, what, gpu, precision, class), rows): ((String, String, String, _, Class), Vec<&Outcome>)| {
            let mut errors: Vec<f64> =
                rows.iter().map(|row| (middle(&row.left_out) / row.measured - 1.0).abs()).collect();
            errors.sort_by(f64::total_cmp);
            let mean = |at: usize| rows.iter().map(|row| row.size[at]).sum::<f64>() / rows.len() as f64;
            Anchor {
                source,
                what,
                gpu,
                precision,
                class,
                size: [mean(0), mean(1)],
                rows: rows.len() as u32,
                error: percentile(&errors, 0.5).unwrap_or(0.0),
            }
        };
    groups.into_iter().map(anchor).collect()
}

fn scores(
    outcomes: &[Outcome],
    bands: &[ErrorBands],
    estimate: impl for<'o> Fn(&'o Outcome<'o>) -> &'o [(f64, f64)],
) -> BTreeMap<String, Score> {
    let mut sources: BTreeMap<String, Vec<Pair>> = BTreeMap::new();
    for outcome in outcomes {
        let bands = &bands[outcome.fold % bands.len()];
        let band = outcome.band_around(bands, estimate(outcome));
        let rate = |seconds: f64| outcome.measured * outcome.case.samples_per_second / seconds;
        let pair = Pair {
            measured: outcome.case.samples_per_second,
            estimated: Some([rate(band.high), rate(band.middle), rate(band.low)]),
        };
        sources.entry(outcome.case.row.source.clone()).or_default().push(pair);
    }
    sources.into_iter().map(|(source, pairs)| (source, Score::of(pairs.len(), &pairs, &[], BTreeMap::new()))).collect()
}

/// Scores of all rows, by the fit and its bands and by fits and bands that left each row's part out.
fn both(outcomes: &[Outcome], fitted: &FittedCoefficients, by_fold: &[ErrorBands]) -> [BTreeMap<String, Score>; 2] {
    [
        scores(outcomes, std::slice::from_ref(&fitted.bands), |outcome| &outcome.fitted),
        scores(outcomes, by_fold, |outcome| &outcome.left_out),
    ]
}

/// Figures by source, fitted and cross-validated.
pub fn report(outcomes: &[Outcome], fitted: &FittedCoefficients, by_fold: &[ErrorBands]) -> serde_json::Value {
    let [within, without] = both(outcomes, fitted, by_fold);
    let figures = |score: &Score| {
        serde_json::json!({
            "mape": score.mape, "median": score.median, "p90": score.p90, "rank": score.rank,
            "interval_coverage": score.interval_coverage, "interval_width": score.interval_width,
        })
    };
    let sources: serde_json::Map<String, serde_json::Value> = within
        .iter()
        .map(|(source, score)| {
            let entry = serde_json::json!({
                "rows": score.rows, "fitted": figures(score), "cross_validated": figures(&without[source]),
            });
            (source.clone(), entry)
        })
        .collect();
    serde_json::json!({
        "eligible_rows": outcomes.len(),
        "numbers": numbers(outcomes, fitted),
        "left_out_together": "rows of one source, network and GPU",
        "sources": sources,
    })
}

/// How many numbers were fitted to how many groups of rows, for networks known by graphs and by totals.
fn numbers(outcomes: &[Outcome], fitted: &FittedCoefficients) -> serde_json::Value {
    let of_totals = |outcome: &&Outcome| matches!(outcome.class, Class::KnownFamily | Class::UnknownFamily);
    let groups = |is_wanted: &dyn Fn(&&Outcome) -> bool| {
        let names: BTreeSet<&str> =
            outcomes.iter().filter(is_wanted).map(|outcome| outcome.case.row.group.as_str()).collect();
        names.len()
    };
    let generation = fitted.unmeasured.values().len();
    // A generation of which nothing tells a number has that of the average.
    let usual = fitted.unmeasured.values();
    let own =
        |values: Vec<f64>| values.iter().zip(&usual).filter(|(own, usual)| (*own / *usual - 1.0).abs() > OWN).count();
    let apart: usize = fitted.generations.values().map(|generation| own(generation.values())).sum();
    let totals = &fitted.totals;
    let all = totals.families.values().flatten();
    let own = all.filter(|number| **number != 0.0).count();
    serde_json::json!({
        "graphs": {
            "shared": fitted.shared.values().len() + generation,
            "of_generations": apart,
            "rows": outcomes.iter().filter(|outcome| !of_totals(outcome)).count(),
            "groups": groups(&|outcome| !of_totals(outcome)),
        },
        "totals": {
            "shared": 5 + totals.shared.len(),
            "of_families": own,
            "rows": outcomes.iter().filter(of_totals).count(),
            "groups": groups(&of_totals),
        },
    })
}

/// Prints the report for people.
pub fn print(outcomes: &[Outcome], fitted: &FittedCoefficients, by_fold: &[ErrorBands]) {
    let [within, without] = both(outcomes, fitted, by_fold);
    println!("{:20} {:>5}  {:>25}  {:>25}", "source", "rows", "fitted: mape median p90", "cross-validated");
    for (source, score) in &within {
        let line = |score: &Score| {
            let [mape, median, p90] = [score.mape, score.median, score.p90].map(|figure| figure.unwrap_or(f64::NAN));
            let [rank, inside, wide] =
                [score.rank, score.interval_coverage, score.interval_width].map(|figure| figure.unwrap_or(f64::NAN));
            format!("{mape:6.1} {median:6.1} {p90:6.1}  rank {rank:.3} inside {inside:3.0} % x{wide:.2}")
        };
        println!("{source:20} {:5}  {} | {}", score.rows, line(score), line(&without[source]));
    }
}

/// One line per row, for analysing residuals.
pub fn rows(outcomes: &[Outcome], figures: &MemoryCoefficients) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let setup = &outcome.case.setup;
        text += &format!(
            "{}\t{}\t{:?}\tn{} t{} p{}\tb{} a{}\t{:?}\tcv {:+.3}\tfit {:+.3}\tms {:.1}\t{}\t{}\n",
            outcome.case.row.group,
            setup.device.gpu.name,
            setup.precision,
            setup.gpus(),
            setup.parallel.tensor,
            setup.parallel.pipeline,
            setup.micro_batch,
            setup.accumulate,
            outcome.class,
            -outcome.off(),
            (middle(&outcome.fitted) / outcome.measured).ln(),
            outcome.measured * 1e3,
            memory(outcome.case, figures),
            outcome.case.row.table,
        );
    }
    text
}

/// Estimated over measured peak memory, where a row states it.
fn memory(case: &Case, figures: &MemoryCoefficients) -> String {
    case.memory.peak.map_or_else(String::new, |peak| {
        let seen = case.memory.metric.of_estimate(&memory_with(&case.model, &case.setup, &case.savings, figures));
        format!("memory {:+.3} of {:.1} GiB", (seen / peak).ln(), peak / f64::from(1 << 30))
    })
}

/// The file with five significant digits per number.
pub fn rounded(fitted: &FittedCoefficients) -> serde_json::Value {
    fn round(value: serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Number(number) if number.is_f64() => {
                let value = number.as_f64().unwrap_or(0.0);
                let text = format!("{value:.4e}");
                text.parse::<f64>().map_or(serde_json::Value::Number(number), |short| serde_json::json!(short))
            }
            serde_json::Value::Array(values) => values.into_iter().map(round).collect(),
            serde_json::Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, round(value))).collect(),
            other => other,
        }
    }
    round(serde_json::to_value(fitted).unwrap_or_default())
}
