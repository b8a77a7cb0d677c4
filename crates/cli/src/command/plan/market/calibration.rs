//! Measured steps, from a table or this machine, to calibrate estimates.

use cloud::Catalog;
use domain::Job;
use domain::plan::Share;
use plan::estimate::FittedCoefficients;
use plan::local::JobFacts;
use plan::measured::{self as strict, MeasuredRow};
use plan::search::{CalibrationData, MOST_OFF, Outlier, ResolvedWorkload};

use crate::error::Error;
use crate::figures::grouped;
use crate::local::measure;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Columns of a table of steps.
const COLUMNS: &str = "use a CSV file with the header \
    `source_id,model,gpu,n_gpus,batch_per_gpu,throughput,unit`, and rows that measured this job's model";

/// The error of steps that cannot be used for calibration.
fn unusable(from: &str, why: &str, hint: &str) -> Error {
    Error::Usage { message: format!("cannot calibrate with {from}: {why}"), hint: hint.to_owned() }
}

/// Measured steps, and their source.
pub(super) struct Steps {
    /// Description of the source.
    from: String,
    rows: Vec<MeasuredRow>,
    /// The line of each row; empty if they are not from a file.
    lines: Vec<u64>,
}

/// Steps that a table states.
pub(super) fn table(path: &std::path::Path) -> Result<Steps, Error> {
    let from = format!("`{}`", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&from, &error.to_string(), COLUMNS))?;
    let rows = strict::rows(&text).map_err(|error| unusable(&from, &error.0, COLUMNS))?;
    if rows.is_empty() {
        return Err(unusable(&from, "it has no rows", COLUMNS));
    }
    let (lines, rows) = rows.into_iter().unzip();
    Ok(Steps { from, rows, lines })
}

/// Steps of one rank's share of the batch on this machine's first GPU.
pub(super) fn measured(job: &Job, settings: &GlobalSettings, printer: &mut Printer) -> Result<Steps, Error> {
    let train = measure::measurable(job)?;
    let gpu = measure::gpu_here()?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let threads = train.threads.unwrap_or(cores);
    let ranks = train.processes.max(1);
    let accumulate = train.accumulate.max(1);
    let micro_batch = train.batch.div_ceil(ranks).div_ceil(accumulate);
    let share = Share { batch: train.batch, ranks, accumulate, micro_batch, threads, steps: None };
    let measured = measure::measure(train, &share, &JobFacts::default(), settings)?;
    if !measured.is_of_gpu() {
        let why = format!("libtorch found no GPU and used {}", measured.device_name);
        let hint = "install libtorch with CUDA and set `GRADUS_LIBTORCH`, or use a table of measured steps";
        return Err(unusable("steps on this machine", &why, hint));
    }
    printer.say(measured.summary(train));
    let from = "steps on this machine".to_owned();
    Ok(Steps { from, rows: vec![measured.row(train, &gpu)], lines: Vec::new() })
}

/// Measured steps with their estimates. Outliers are reported and excluded.
pub(super) fn lessons(
    steps: &Steps,
    job: &Job,
    subject: &ResolvedWorkload,
    catalog: &Catalog,
    coefficients: &FittedCoefficients,
    printer: &mut Printer,
) -> Result<CalibrationData, Error> {
    let Steps { from, rows, lines } = steps;
    let sequence = job.workload.as_ref().and_then(|workload| workload.sequence);
    let gpu = |spelling: &str, memory: Option<f64>| {
        let memory = memory.map(|gigabytes| domain::Bytes((gigabytes * f64::from(1 << 30)) as u64));
        catalog.gpu(spelling, memory)
    };
    let place = |row: usize| lines.get(row).map(|line| format!("line {line}: ")).unwrap_or_default();
    let lessons = CalibrationData::of(rows, subject, sequence, gpu, coefficients)
        .map_err(|rejected| unusable(from, &format!("{}{}", place(rejected.row), rejected.why), &rejected.hint))?;
    let told: Vec<String> =
        lessons.outliers.iter().map(|step| format!("{}{}", place(step.row), unlike(step))).collect();
    if lessons.steps.is_empty() {
        let why = format!("every row differs from its estimate by more than {MOST_OFF:.0} ×; {}", told.join("; "));
        let hint = "check `unit`, `n_gpus` and `batch_per_gpu`, and that the rows measured this job's model";
        return Err(unusable(from, &why, hint));
    }
    for line in told {
        printer.say(format!("warning: ignored outlier in {from}: {line}"));
    }
    Ok(lessons)
}

/// How far a measured step is from its estimate.
fn unlike(step: &Outlier) -> String {
    let Outlier { gpu, seconds, estimated, .. } = step;
    let (times, how) = match seconds < estimated {
        true => (estimated / seconds, "faster"),
        false => (seconds / estimated, "slower"),
    };
    let milliseconds = |seconds: f64| format!("{} ms", significant(1e3 * seconds));
    format!(
        "a step on {gpu} took {}, {} × {how} than the estimate of {}",
        milliseconds(*seconds),
        significant(times),
        milliseconds(*estimated)
    )
}

/// A number with at most three significant digits.
fn significant(number: f64) -> String {
    match number {
        large if large >= 100.0 => grouped(large.round() as u64),
        middle if middle >= 1.0 => format!("{middle:.1}"),
        small => format!("{small:.2e}"),
    }
}
