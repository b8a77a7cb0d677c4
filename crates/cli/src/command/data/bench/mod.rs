//! `gradus data bench`: how fast pictures, pictures with boxes, or texts become batches on this machine.

mod scenes;
mod texts;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{Cursor, Loader, Part};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::place::Place;
use super::recipe;
use crate::error::Error;
use crate::exit;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus data bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Pictures in any form that is read; with `--as`, labels in the form of COCO or YOLO, or texts; or an address,
    /// such as `s3://bucket/pictures`
    path: PathBuf,
    /// What the data is read as
    #[arg(long = "as", value_enum, default_value_t = Kind::Pictures)]
    kind: Kind,
    #[command(flatten)]
    recipe: recipe::Args,
    /// Threads that decode, with the one that asks for batches [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// How long to measure; a pass over the pictures that has begun is not finished
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    #[command(flatten)]
    text: texts::Args,
}

/// What data is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Whole pictures, prepared by a recipe
    Pictures,
    /// Pictures in which objects are marked with boxes, in a square of `--size`
    Objects,
    /// Rows of tokens, from which the next word is learnt
    Text,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Kind::Pictures => "whole pictures",
            Kind::Objects => "pictures with boxes",
            Kind::Text => "text",
        }
    }
}

/// Pictures in a batch.
const BATCH: usize = 64;

/// Makes batches for some seconds, every picture decoded anew in each pass, and tells their price.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let limit = Duration::from_secs_f64(args.seconds);
    let strange: Vec<&str> = match args.kind {
        Kind::Pictures => args.text.given().collect(),
        Kind::Objects => args.recipe.given().chain(args.text.given()).collect(),
        Kind::Text => {
            let others = [(args.recipe.size.is_some(), "--size"), (args.threads.is_some(), "--threads")];
            let others = others.into_iter().filter_map(|(is_given, flag)| is_given.then_some(flag));
            args.recipe.given().chain(others).collect()
        }
    };
    if let Some(flag) = strange.first() {
        let message = format!("`{flag}` means nothing to {}", args.kind.words());
        return Err(Error::Usage {
            message,
            hint: "leave it out, or see `gradus data bench --help` for `--as`".into(),
        });
    }
    let place = Place::looked_at(&args.path, settings, printer)?;
    let path = place.path();
    match args.kind {
        Kind::Pictures => pictures(&args, &place, printer),
        Kind::Objects => {
            scenes::run(path, args.recipe.size, args.threads.unwrap_or(1), args.recipe.seed, limit, printer)
        }
        Kind::Text => texts::run(path, &args.text, args.recipe.seed, limit, printer),
    }
}

fn pictures(args: &Args, place: &Place, printer: &mut Printer) -> Result<u8, Error> {
    let threads = args.threads.unwrap_or(1);
    let preset = args.recipe.preset()?;
    let dataset = Arc::new(args.recipe.open(&preset, place)?);
    let options = args.recipe.options(&preset, BATCH, threads as usize - 1);
    let limit = Duration::from_secs_f64(args.seconds);
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
    printer.data(format!("pictures      {images} in {seconds:.1} s, {rate:.0} a second"));
    printer.data(format!("CPU time      {each:.0} µs a picture, with the {} kernels", data::kernels()));
    printer.data(format!("read          {:.1} MB", read as f64 / 1e6));
    if let Some(peak) = peak {
        printer.data(format!("peak memory   {:.0} MB", peak as f64 / 1e6));
    }
    Ok(exit::DONE)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 86_400.0 => Ok(value),
        Ok(_) | Err(_) => Err("give seconds above 0 and at most 86400".to_owned()),
    }
}

/// CPU time of all threads of this process so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Memory of this process in bytes, where the system tells: `VmRSS:` now, `VmHWM:` at most so far.
fn memory(which: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(which))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
