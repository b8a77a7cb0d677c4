//! Steps that were measured, in a table or here and now, for the estimates to learn from.

use cloud::Catalog;
use domain::Job;
use domain::plan::Share;
use plan::draft::Facts;
use plan::estimate::Coefficients;
use plan::measured::Row;
use plan::search::{Lessons, Subject};

use super::measure;
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;

/// Columns of a table of steps.
const COLUMNS: &str = "name a comma-separated table whose first line is \
    `source_id,model,gpu,n_gpus,batch_per_gpu,throughput,unit`, and whose rows measured this job's network";

/// Why steps teach nothing.
fn unusable(from: &str, why: &str, hint: &str) -> Error {
    Error::Usage { message: format!("cannot calibrate by {from}: {why}"), hint: hint.to_owned() }
}

/// Steps that a table states.
pub(super) fn table(path: &std::path::Path) -> Result<Vec<Row>, Error> {
    let from = format!("`{}`", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&from, &error.to_string(), COLUMNS))?;
    let rows = Row::table(&text).map_err(|error| unusable(&from, &error.0, COLUMNS))?;
    match rows.is_empty() {
        true => Err(unusable(&from, "it holds no row", COLUMNS)),
        false => Ok(rows),
    }
}

/// Steps of one rank's share of the batch on this machine's first GPU.
pub(super) fn measured(job: &Job, settings: &Settings, printer: &mut Printer) -> Result<Row, Error> {
    let train = measure::measurable(job)?;
    let gpu = measure::gpu_here()?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let threads = train.threads.unwrap_or(cores);
    let ranks = train.processes.max(1);
    let accumulate = train.accumulate.max(1);
    let micro_batch = train.batch.div_ceil(ranks).div_ceil(accumulate);
    let share = Share { batch: train.batch, ranks, accumulate, micro_batch, threads, steps: None };
    let measured = measure::measure(train, &share, &Facts::default(), settings)?;
    if !measured.is_of_gpu() {
        let why = format!("the tensor library found no GPU and used {}", measured.device_name);
        let hint = "install a tensor library for this GPU (`GRADUS_LIBTORCH`), or name a table of steps that it made";
        return Err(unusable("steps on this machine", &why, hint));
    }
    printer.say(measured.told(train));
    Ok(measured.row(train, &gpu))
}

/// Measured steps beside their estimates.
pub(super) fn lessons(
    from: &str,
    rows: &[Row],
    job: &Job,
    subject: &Subject,
    catalog: &Catalog,
    coefficients: &Coefficients,
) -> Result<Lessons, Error> {
    let sequence = job.workload.as_ref().and_then(|workload| workload.sequence);
    let gpu = |spelling: &str, memory: Option<f64>| {
        let memory = memory.map(|gigabytes| domain::Bytes((gigabytes * f64::from(1 << 30)) as u64));
        catalog.gpu(spelling, memory)
    };
    Lessons::of(rows, subject, sequence, gpu, coefficients).map_err(|useless| {
        let hint = "mend the row or leave it out; `gradus offers --all` names the GPUs that are known";
        unusable(from, &format!("row {}: {}", useless.row, useless.why), hint)
    })
}
