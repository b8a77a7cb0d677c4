//! `gradus data bench`: how fast pictures become batches on this machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use data::{Cursor, Loader, LoaderOptions};
use domain::train::{Data, Normalize};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::error::Error;
use crate::exit;
use crate::printer::Printer;

/// Arguments of `gradus data bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A folder or tar of `…/<class>/<file>.jpg|png`
    path: PathBuf,
    /// Height and width that pictures are resized to
    #[arg(long, default_value_t = 224, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,
    /// Threads that decode, with the one that asks for batches
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// How long to measure; a pass over the pictures that has begun is not finished
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
}

/// Pictures in a batch.
const BATCH: usize = 64;

/// Makes batches for some seconds, and tells their price.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, printer: &mut Printer) -> Result<u8, Error> {
    let spec = Data {
        path: String::new(),
        split: domain::train::Split::Shares([1.0, 0.0, 0.0]),
        classes: None,
        augment: Vec::new(),
        normalize: Some(Normalize { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] }),
        size: Some(args.size),
        corrupt: domain::train::Corrupt::Fail,
        workers: 1,
    };
    let dataset = std::sync::Arc::new(data::Dataset::open_on_disk(&spec, &args.path, 0)?);
    let options = LoaderOptions { batch: BATCH, workers: args.threads as usize - 1, ..Default::default() };
    let mut loader = Loader::train(dataset, options, Cursor::START, u64::MAX);
    let (began, worked) = (Instant::now(), processor_time());
    let mut images = 0_u64;
    let limit = Duration::from_secs_f64(args.seconds);
    while began.elapsed() < limit {
        let Some(batch) = loader.next() else { break };
        images += batch?.len() as u64;
    }
    let (seconds, worked) = (began.elapsed().as_secs_f64(), (processor_time() - worked).as_secs_f64());
    let each = worked * 1e6 / images.max(1) as f64;
    let rate = images as f64 / seconds;
    if printer.is_json() {
        printer.json(&json!({ "images": images, "images_per_s": rate, "cpu_us_per_image": each }));
    } else {
        printer.data(format!("{images} pictures in {seconds:.1} s: {rate:.0} a second, {each:.0} µs of CPU time each"));
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
