//! `gradus bench batch`: how many samples of a step are best computed at a time.
//!
//! The batch of a job is that of an optimizer step, which decides about the result. How many of its samples are in
//! memory at a time is another question, which is answered here by measured steps: `accumulate`. It matters to the
//! result only for batch normalisation, which sees each micro-batch separately.

use serde_json::{Value, json};
use server::Home;

use crate::error::Error;
use crate::error::arguments::whole;
use crate::error::exit;
use crate::local::draft::{MicroBatches, measure_micro_batches};
use crate::local::job_file::{JobArgs, read};
use crate::local::machine;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus bench batch`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// The fewest samples at a time that are tried
    #[arg(long, value_name = "SAMPLES", default_value_t = 8, value_parser = whole)]
    smallest: u64,
}

/// Measures steps and prints them.
///
/// # Errors
/// [`Error`]; also if not even the smallest number of samples fits.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let loaded = read(&args.job.file, &args.job.typed, &GlobalSettings::variable, printer)?;
    let smallest = u32::try_from(args.smallest).unwrap_or(u32::MAX).max(1);
    let price = machine::price(&home, args.job.typed.price)?;
    let mut all = measure_micro_batches(&loaded.job, smallest, price, settings, &home, printer)?;
    if all.len() == 1
        && let Some(MicroBatches { measured: Err(_), .. }) = all.first()
        && let Some(MicroBatches { measured: Err(error), .. }) = all.pop()
    {
        return Err(error);
    }
    let best = fastest(&all.iter().map(|one| (one.accumulate, step(one))).collect::<Vec<_>>());
    if printer.is_json() {
        let sizes: Vec<Value> = all.iter().map(|one| {
            json!({ "samples": one.samples, "accumulate": one.accumulate, "step_seconds": step(one), "fits": one.measured.is_ok() })
        }).collect();
        printer.json(&json!({ "accumulate": best, "sizes": sizes }));
        return Ok(exit::DONE);
    }
    let row = |one: &MicroBatches| {
        let (time, rate) = match &one.measured {
            Ok(measured) => {
                let [_, middle, _] = measured.seconds;
                (format!("{:.1} ms", 1e3 * middle), format!("{:.0}", f64::from(measured.samples) / middle))
            }
            Err(_) => ("does not fit".to_owned(), "-".to_owned()),
        };
        vec![one.samples.to_string(), one.accumulate.to_string(), time, rate]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    table::lines(&["samples at a time", "accumulate", "step", "samples/s"], &rows)
        .into_iter()
        .for_each(|line| printer.data(line));
    if let Some(best) = best {
        let same = "the result is that of the whole batch, except for batch normalisation";
        printer.data(format!("accumulate: {best}   # the fastest that fits; {same}"));
    }
    if let Some(MicroBatches { measured: Err(error), samples, .. }) = all.last() {
        printer.say(format!("{samples} samples at a time: {error}"));
    }
    Ok(exit::DONE)
}

/// Seconds of a step, if it could be made.
fn step(one: &MicroBatches) -> Option<f64> {
    one.measured.as_ref().ok().map(|measured| measured.seconds[1])
}

/// The number of micro-batches with the fastest step; of those within 2 %, the largest number, which takes least memory.
fn fastest(all: &[(u32, Option<f64>)]) -> Option<u32> {
    let least = all.iter().filter_map(|(_, step)| *step).min_by(f64::total_cmp)?;
    let near = all.iter().filter(|(_, step)| step.is_some_and(|step| step <= 1.02 * least));
    near.map(|(accumulate, _)| *accumulate).max()
}

#[cfg(test)]
mod tests {
    use super::fastest;

    #[test]
    fn the_fastest_that_fits_takes_the_least_memory() {
        assert_eq!(fastest(&[(8, Some(2.0)), (4, Some(1.5)), (2, Some(1.01)), (1, Some(1.0))]), Some(2));
        assert_eq!(fastest(&[(8, Some(2.0)), (4, Some(1.5)), (2, None)]), Some(4));
        assert_eq!(fastest(&[(8, None)]), None);
        assert_eq!(fastest(&[]), None);
    }
}
