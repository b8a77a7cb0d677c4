//! Prints the cost of the checksum of each sample in a training epoch of packed images, as a share of the loader's
//! work.
//!
//! `cargo run --release -p gradus-data --example checksum_cost -- SHARDS [SIZE]`
//!
//! Rounds alternate: one reads, verifies, decodes and augments images on one thread; the other hashes chunks of the shards,
//! each as long as the average sample, with the function that verifies samples (BLAKE3). Times are CPU times,
//! so that other programs on the machine disturb little.

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
        text: None,
        sampling: domain::train::Sampling::Shuffle,
        augment: augment.clone(),
        normalize: Some(Normalize { mean: vec![0.5; 3], std: vec![0.25; 3] }),
        size: Some(size),
        corrupt: Corrupt::Fail,
        workers: 1,
        cache: None,
        preload: None,
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
        let began = cpu_time()?;
        let mut differ = 0;
        for chunk in bytes.chunks(sample).cycle().take(HASHED.div_ceil(sample)) {
            differ ^= ContentHash::of(chunk).0[0];
        }
        let hash = (cpu_time()? - began) / HASHED.div_ceil(sample) as f64;
        shares.push(100.0 * hash / total);
        println!("round {round}: {:.1} µs of {:.1} µs per image ({differ})", hash * 1e6, total * 1e6);
    }
    shares.sort_by(f64::total_cmp);
    println!(
        "the checksum of {sample} bytes takes {:.2} % of the loader's time per image at {size} pixels ({:.2} to {:.2} %)",
        shares[ROUNDS / 2],
        shares[0],
        shares[ROUNDS - 1]
    );
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
