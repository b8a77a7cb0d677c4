//! Detection images: opened once, then batches of squares.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{CELL, Cursor, DetectionDataset, DetectionLoader, RankShare};
use domain::train::Augment;
use serde_json::{Value, json};

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
    let mut opening = Clock::start();
    let dataset = Arc::new(DetectionDataset::open(&spec, path, seed)?);
    opening.stop();
    let mut loader =
        DetectionLoader::train(Arc::clone(&dataset), BATCH, seed, &augment, Cursor::START, u64::MAX, RankShare::ALL);
    let (mut images, mut objects, mut waited) = (0_u64, 0_u64, Duration::ZERO);
    let mut loading = Clock::start();
    while loading.began.elapsed() < limit
        && let Some(batch) = loader.next()
    {
        let batch = batch?;
        images += batch.objects.len() as u64;
        objects += batch.objects.iter().map(|objects| objects.len() as u64).sum::<u64>();
        waited += batch.wait;
    }
    loading.stop();
    let measured = Measured {
        opened: dataset.counts().iter().sum(),
        edge: dataset.size(),
        opening,
        images,
        objects,
        loading,
        waited,
    };
    match printer.is_json() {
        true => printer.json(&measured.json(threads)),
        false => measured.present(printer),
    }
    Ok(exit::DONE)
}

/// Wall and processor time of a phase, in seconds once it has stopped.
struct Clock {
    began: Instant,
    cpu_at_start: Duration,
    seconds: f64,
    cpu_seconds: f64,
}

impl Clock {
    fn start() -> Clock {
        Clock { began: Instant::now(), cpu_at_start: processor_time(), seconds: 0.0, cpu_seconds: 0.0 }
    }

    fn stop(&mut self) {
        self.seconds = self.began.elapsed().as_secs_f64();
        self.cpu_seconds = (processor_time() - self.cpu_at_start).as_secs_f64();
    }
}

/// Results of opening and loading.
struct Measured {
    /// Images of the data set.
    opened: u64,
    /// Height and width of a loaded image in pixels.
    edge: usize,
    opening: Clock,
    /// Images that were loaded, some of them several times, and the boxes in them.
    images: u64,
    objects: u64,
    loading: Clock,
    /// Time in which no batch was ready.
    waited: Duration,
}

/// Processor time per image in microseconds.
fn per_image(cpu_seconds: f64, images: u64) -> f64 {
    cpu_seconds * 1e6 / images.max(1) as f64
}

impl Measured {
    fn json(&self, threads: u32) -> Value {
        json!({
            "dataset_images": self.opened,
            "size": self.edge,
            "opening_seconds": self.opening.seconds,
            "opening_cpu_us_per_image": per_image(self.opening.cpu_seconds, self.opened),
            "images": self.images,
            "objects": self.objects,
            "seconds": self.loading.seconds,
            "images_per_s": self.images as f64 / self.loading.seconds,
            "cpu_us_per_image": per_image(self.loading.cpu_seconds, self.images),
            "wait_seconds": self.waited.as_secs_f64(),
            "peak_rss_bytes": memory("VmHWM:"),
            "threads": threads,
        })
    }

    fn present(&self, printer: &mut Printer) {
        let Measured { opened, edge, opening, images, objects, loading, .. } = self;
        printer.data(format!(
            "opened        {opened} images at {edge} × {edge} in {:.1} s, {:.0} µs of CPU time each",
            opening.seconds,
            per_image(opening.cpu_seconds, *opened)
        ));
        printer.data(format!(
            "images        {images} with {objects} boxes in {:.1} s, {:.0} images/s",
            loading.seconds,
            *images as f64 / loading.seconds
        ));
        printer.data(format!("CPU time      {:.0} µs per image", per_image(loading.cpu_seconds, *images)));
    }
}
