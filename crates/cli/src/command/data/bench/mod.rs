//! `gradus data bench`: throughput of the data loader on images, detection images or text.

mod scenes;
mod texts;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{Cursor, Loader, Part};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::recipe;
use crate::error::Error;
use crate::error::exit;
use crate::fetch::opened::OpenedData;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus data bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Data set in any supported format, or its address, such as `s3://bucket/images`
    path: PathBuf,
    /// Kind of data
    #[arg(long = "as", value_enum, default_value_t = DataKind::Images)]
    kind: DataKind,
    #[command(flatten)]
    recipe: recipe::Args,
    /// Decoding threads, including the consumer [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// How long to measure, up to a day
    #[arg(long = "for", alias = "seconds", value_name = "DURATION", default_value = "5s", value_parser = time_limit)]
    time: domain::Duration,
    #[command(flatten)]
    text: texts::Args,
}

/// Kinds of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DataKind {
    /// Images, preprocessed by `--recipe`
    #[value(alias = "pictures")]
    Images,
    /// Detection images with bounding boxes (COCO or YOLO), resized to a square of `--size`
    Objects,
    /// Rows of tokens for next-token prediction
    Text,
}

impl DataKind {
    fn name(self) -> &'static str {
        match self {
            DataKind::Images => "images",
            DataKind::Objects => "objects",
            DataKind::Text => "text",
        }
    }
}

/// Images per batch.
const BATCH: usize = 64;

/// Loads batches for some seconds, decoding every image in each pass, and prints the throughput.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let limit = Duration::from_micros(args.time.micros());
    let strange: Vec<&str> = match args.kind {
        DataKind::Images => args.text.given().collect(),
        DataKind::Objects => args.recipe.given().chain(args.text.given()).collect(),
        DataKind::Text => {
            let others = [(args.recipe.size.is_some(), "--size"), (args.threads.is_some(), "--threads")];
            let others = others.into_iter().filter_map(|(is_given, flag)| is_given.then_some(flag));
            args.recipe.given().chain(others).collect()
        }
    };
    if let Some(flag) = strange.first() {
        let message = format!("`{flag}` does not apply to `--as {}`", args.kind.name());
        return Err(Error::Usage { message, hint: "remove it, or see `gradus data bench --help`".into() });
    }
    let place = OpenedData::opened(&args.path, settings, printer)?;
    let path = place.path();
    match args.kind {
        DataKind::Images => images(&args, &place, limit, printer),
        DataKind::Objects => {
            scenes::run(path, args.recipe.size, args.threads.unwrap_or(1), args.recipe.seed, limit, printer)
        }
        DataKind::Text => texts::run(path, &args.text, args.recipe.seed, limit, printer),
    }
}

fn images(args: &Args, place: &OpenedData, limit: Duration, printer: &mut Printer) -> Result<u8, Error> {
    let threads = args.threads.unwrap_or(1);
    let preset = args.recipe.preset()?;
    let dataset = Arc::new(args.recipe.open(&preset, place)?);
    let options = args.recipe.options(&preset, BATCH, threads as usize - 1);
    let (mut images, mut read, mut busy, mut ready, mut batches) = (0_u64, 0_u64, Duration::ZERO, 0, 0);
    let mut after_passes = Vec::new();
    let (began, worked) = (Instant::now(), processor_time());
    while began.elapsed() < limit {
        let mut loader = match preset.evaluation {
            true => Loader::evaluate(Arc::clone(&dataset), Part::Train, options.clone()),
            false => Loader::train(Arc::clone(&dataset), options.clone(), Cursor::START, u64::MAX),
        };
        while began.elapsed() < limit {
            let Some(batch) = loader.next() else { break };
            let batch = batch?;
            if batch.cursor_after().pos == 0 {
                after_passes.extend(memory("VmRSS:"));
            }
            images += batch.len() as u64;
            batches += 1;
            ready += loader.measured().ready;
        }
        let measured = loader.measured();
        (read, busy) = (read + measured.read, busy + measured.busy);
    }
    let (seconds, worked) = (began.elapsed().as_secs_f64(), (processor_time() - worked).as_secs_f64());
    let each = worked * 1e6 / images.max(1) as f64;
    let rate = images as f64 / seconds;
    let peak = memory("VmHWM:");
    if printer.is_json() {
        printer.json(&json!({
            "images": images,
            "seconds": seconds,
            "images_per_s": rate,
            "cpu_us_per_image": each,
            "decode_us_per_image": busy.as_secs_f64() * 1e6 / images.max(1) as f64,
            "bytes_read": read,
            "peak_rss_bytes": peak,
            "rss_bytes_after_pass": after_passes,
            "batches_ready": f64::from(ready as u32) / f64::from(batches.max(1)),
            "threads": threads,
            "kernels": data::kernels(),
        }));
        return Ok(exit::DONE);
    }
    printer.data(format!("images        {images} in {seconds:.1} s, {rate:.0} images/s"));
    printer.data(format!("CPU time      {each:.0} µs per image, with {} kernels", data::kernels()));
    printer.data(format!("read          {:.1} MB", read as f64 / 1e6));
    if let Some(peak) = peak {
        printer.data(format!("peak memory   {:.0} MB", peak as f64 / 1e6));
    }
    Ok(exit::DONE)
}

fn time_limit(text: &str) -> Result<domain::Duration, String> {
    let time = domain::Duration::parse_with_unit(text)?;
    match (1..=86_400_000_000).contains(&time.micros()) {
        true => Ok(time),
        false => Err("must be above `0s` and at most `24h`".to_owned()),
    }
}

/// CPU time of all threads of this process so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Memory of this process in bytes, if the system reports it: `VmRSS:` current, `VmHWM:` peak.
fn memory(which: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(which))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
