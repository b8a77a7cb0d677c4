//! Prints the cost of the checksum of each sample in a training epoch of packed images, as a share of the loader's
//! work.
//!
//! `cargo run --release -p gradus-data --example checksum_cost -- SHARDS [SIZE]`
//!
//! Rounds alternate: one reads, verifies, decodes and augments images on one thread; the others hash chunks of the shards,
//! each as long as the average sample, with the functions that verify samples: BLAKE3 when one is read first, CRC32C in
//! later epochs. Times are CPU times, so that other programs on the machine disturb little.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use data::chunk::ContentHash;
use data::{Cursor, Dataset, Loader, LoaderOptions, ShardManifest};
use domain::train::{Augment, Corrupt, Data, Normalize, Split};

const ROUNDS: usize = 5;
/// Images of a round.
const IMAGES: u64 = 1024;
/// Bytes that are hashed in a round: the scheduler counts in milliseconds.
const HASHED: usize = 256 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rest @ ..] = arguments.as_slice() else {
        return Err("usage: checksum_cost SHARDS [SIZE]".into());
    };
    let size = rest.first().map_or(Ok(224), |text| text.parse())?;
    let manifest = ShardManifest::read(Path::new(path))?.ok_or("there are no shards; `gradus data pack` makes some")?;
    let first = manifest.shards.first().ok_or("there are no shards")?;
    let bytes = std::fs::read(Path::new(path).join(&first.file))?;
    let sample =
        (manifest.shards.iter().map(|shard| shard.bytes).sum::<u64>() / manifest.samples.max(1)).max(1) as usize;
    let augment = vec![Augment::RandomResizedCrop, Augment::Flip];
    let spec = Data {
        path: path.clone(),
        split: Split::Shares([1.0, 0.0, 0.0]),
        classes: None,
        labels: domain::train::Labels::Class,
        text: None,
        sampling: domain::train::Sampling::Shuffle,
        augment: augment.clone(),
        normalize: Some(Normalize { mean: vec![0.5; 3], std: vec![0.25; 3] }),
        size: Some(size),
        corrupt: Corrupt::Fail,
        workers: 1,
        cache: None,
        preload: None,
        trained_on: None,
    };
    let dataset = Arc::new(Dataset::open(&spec, Path::new(path), 0)?);
    let options = LoaderOptions { batch: 32, workers: 0, augment, ..Default::default() };
    let epochs = IMAGES.div_ceil(dataset.counts()[0].max(1)) * ROUNDS as u64 + 1;
    let mut loader = Loader::train(Arc::clone(&dataset), options, Cursor::START, epochs);
    let mut shares = Vec::new();
    for round in 0..ROUNDS {
        let began = cpu_time()?;
        let mut images = 0;
        while images < IMAGES {
            images += loader.next().ok_or("the epochs ended")??.len() as u64;
        }
        let total = (cpu_time()? - began) / images as f64;
        let chunks = || bytes.chunks(sample).cycle().take(HASHED.div_ceil(sample));
        let began = cpu_time()?;
        let mut differ = chunks().fold(0, |differ, chunk| differ ^ u32::from(ContentHash::of(chunk).0[0]));
        let first = cpu_time()? - began;
        differ ^= chunks().fold(0, |differ, chunk| differ ^ crc32c::crc32c(chunk));
        let [first, later] = [first, cpu_time()? - began - first].map(|time| time / HASHED.div_ceil(sample) as f64);
        shares.push([first, later].map(|hash| 100.0 * hash / total));
        let [first, later, total] = [first, later, total].map(|time| time * 1e6);
        println!("round {round}: {first:.2} µs, later {later:.2} µs, of {total:.1} µs per image ({differ})");
    }
    for (index, when) in ["in the first epoch", "in later epochs"].into_iter().enumerate() {
        let mut shares: Vec<f64> = shares.iter().map(|both| both[index]).collect();
        shares.sort_by(f64::total_cmp);
        let (least, median, most) = (shares[0], shares[ROUNDS / 2], shares[ROUNDS - 1]);
        println!(
            "the checksum of {sample} bytes takes {median:.2} % of the loader's time per image at {size} pixels {when} \
             ({least:.2} to {most:.2} %)"
        );
    }
    Ok(())
}

/// CPU time of all threads of this process, in seconds, as the scheduler counts it.
fn cpu_time() -> Result<f64, Box<dyn Error>> {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(nanoseconds as f64 / 1e9)
}
