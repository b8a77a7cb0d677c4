//! Prints how many images a second a data set gives.
//!
//! `cargo run --release -p gradus-data --example throughput -- PATH [BATCH] [WORKERS]`

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{Cursor, Dataset, Loader, LoaderOptions, Part};
use domain::train::{Augment, Corrupt, Data, MemoryFormat, Split};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rest @ ..] = arguments.as_slice() else {
        return Err("usage: throughput PATH [BATCH] [WORKERS]".into());
    };
    let number = |index: usize, default: usize| rest.get(index).map_or(Ok(default), |text| text.parse());
    let (batch, workers) = (number(0, 32)?, number(1, 1)?);
    let augment = vec![Augment::PadCrop(4), Augment::Flip];
    let spec = Data {
        path: path.clone(),
        split: Split::default(),
        classes: None,
        labels: domain::train::Labels::Class,
        text: None,
        sampling: domain::train::Sampling::Shuffle,
        augment: augment.clone(),
        normalize: None,
        size: None,
        corrupt: Corrupt::Fail,
        workers: workers as u32,
        cache: None,
        preload: None,
        trained_on: None,
    };
    let began = Instant::now();
    let dataset = Arc::new(Dataset::open(&spec, Path::new(path), 0)?);
    let [train, validation, test] = dataset.counts();
    println!(
        "{} classes, {train} + {validation} + {test} images of {}×{}×{}, mean {:?}, std {:?}",
        dataset.classes().len(),
        dataset.channels(),
        dataset.height(),
        dataset.width(),
        dataset.mean(),
        dataset.std()
    );
    println!("opened in {:.3} s, in memory: {}", began.elapsed().as_secs_f64(), dataset.in_memory());
    for layout in [MemoryFormat::Contiguous, MemoryFormat::ChannelsLast] {
        let options = LoaderOptions { batch, workers, layout, augment: augment.clone(), ..Default::default() };
        let epochs = 200_000_u64.div_ceil(train);
        let loader = Loader::train(Arc::clone(&dataset), options.clone(), Cursor::START, epochs);
        report(&format!("train, {layout:?}"), loader)?;
        let loader = Loader::evaluate(Arc::clone(&dataset), Part::Validation, options);
        report(&format!("evaluate, {layout:?}"), loader)?;
    }
    Ok(())
}

/// Iterates over the batches for at most five seconds.
fn report(what: &str, mut loader: Loader) -> Result<(), data::Error> {
    let began = Instant::now();
    let (mut images, mut batches, mut longest, mut sum) = (0, 0, Duration::ZERO, 0.0);
    while let Some(batch) = loader.next().filter(|_| began.elapsed() < Duration::from_secs(5)) {
        let batch = batch?;
        images += batch.len();
        batches += 1;
        longest = longest.max(batch.wait());
        sum += batch.images()[0];
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{what}: {images} images in {batches} batches and {seconds:.3} s: {:.0} images/s, longest wait {longest:?} ({sum:.1})",
        images as f64 / seconds
    );
    Ok(())
}
