//! Detection images: opened once, then batches of squares.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{CELL, Cursor, DetectionDataset, DetectionLoader, RankShare};
use domain::train::Augment;
use serde_json::json;

use super::{memory, processor_time};
use crate::error::Error;
use crate::error::exit;
use crate::printer::Printer;

/// Images per batch.
const BATCH: usize = 16;

/// Opens the images, then loads batches with flips and mosaics for `limit`.
///
/// # Errors
/// [`Error`].
pub fn run(
    path: &Path,
    size: Option<u32>,
    threads: u32,
    seed: u64,
    limit: Duration,
    printer: &mut Printer,
) -> Result<u8, Error> {
    if let Some(size) = size.filter(|size| !(*size as usize).is_multiple_of(CELL)) {
        let message = format!("`--size {size}` is not a multiple of {CELL}, as detectors need");
        let hint = format!("use `--size {}`", (size as usize).next_multiple_of(CELL));
        return Err(Error::Usage { message, hint });
    }
    let augment = [Augment::Flip, Augment::Mosaic];
    let spec = json!({"path": "", "split": [1, 0, 0], "size": size, "workers": threads, "augment": augment});
    let spec = serde_json::from_value(spec).map_err(|error| Error::Data(data::Error::Internal(error.to_string())))?;
    let (began, worked) = (Instant::now(), processor_time());
    let scenes = Arc::new(DetectionDataset::open(&spec, path, seed)?);
    let (opening, opening_cpu) = (began.elapsed().as_secs_f64(), (processor_time() - worked).as_secs_f64());
    let pictures: u64 = scenes.counts().iter().sum();
    let edge = scenes.size();
    let mut loader =
        DetectionLoader::train(Arc::clone(&scenes), BATCH, seed, &augment, Cursor::START, u64::MAX, RankShare::ALL);
    let (mut images, mut objects, mut waited) = (0_u64, 0_u64, Duration::ZERO);
    let (began, worked) = (Instant::now(), processor_time());
    while began.elapsed() < limit
        && let Some(batch) = loader.next()
    {
        let batch = batch?;
        images += batch.objects.len() as u64;
        objects += batch.objects.iter().map(|objects| objects.len() as u64).sum::<u64>();
        waited += batch.wait;
    }
    let (seconds, worked) = (began.elapsed().as_secs_f64(), (processor_time() - worked).as_secs_f64());
    let price = |cpu: f64, count: u64| cpu * 1e6 / count.max(1) as f64;
    if printer.is_json() {
        printer.json(&json!({
            "pictures": pictures,
            "size": edge,
            "opening_seconds": opening,
            "opening_cpu_us_per_picture": price(opening_cpu, pictures),
            "images": images,
            "objects": objects,
            "seconds": seconds,
            "images_per_s": images as f64 / seconds,
            "cpu_us_per_image": price(worked, images),
            "wait_seconds": waited.as_secs_f64(),
            "peak_rss_bytes": memory("VmHWM:"),
            "threads": threads,
        }));
        return Ok(exit::DONE);
    }
    printer.data(format!(
        "opened        {pictures} images at {edge} × {edge} in {opening:.1} s, {:.0} µs of CPU time each",
        price(opening_cpu, pictures)
    ));
    printer.data(format!(
        "images        {images} with {objects} boxes in {seconds:.1} s, {:.0} images/s",
        images as f64 / seconds
    ));
    printer.data(format!("CPU time      {:.0} µs per image", price(worked, images)));
    Ok(exit::DONE)
}
