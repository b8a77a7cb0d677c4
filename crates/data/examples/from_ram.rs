//! Prints how fast pictures in memory become batches, beside a plain copy of as many bytes, both on one thread.
//!
//! `cargo run --release -p gradus-data --example from_ram`: 1,000 pictures of noise, 224×224, which the data set decodes
//! once and keeps (150 MB, more than caches hold), shifted by up to 16 pixels, half of them mirrored. The copy takes the
//! same pictures whole, in the same order, into memory as large as the loader's batch. Bytes read and written count.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{Cursor, Dataset, Loader, LoaderOptions, Numbers, Order};
use domain::train::{Augment, Corrupt, Data, MemoryFormat, Split};

const SIZE: u32 = 224;
const PICTURES: usize = 1000;
const VALUES: usize = 3 * (SIZE * SIZE) as usize;
const BATCH: usize = 64;
const ROUNDS: usize = 9;
/// How long each side works before the other has its turn.
const TURN: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    draw(folder.path())?;
    let augment = vec![Augment::PadCrop(16), Augment::Flip];
    let spec = Data {
        path: String::new(),
        split: Split::Shares([1.0, 0.0, 0.0]),
        classes: None,
        text: None,
        augment: augment.clone(),
        normalize: None,
        size: None,
        corrupt: Corrupt::Fail,
        workers: 0,
        cache: None,
        preload: None,
    };
    let dataset = Arc::new(Dataset::open(&spec, folder.path(), 0)?);
    let pictures: Vec<u8> = (0..PICTURES * VALUES).map(|at| at as u8).collect();
    for numbers in [Numbers::U8, Numbers::Bf16, Numbers::F32] {
        for layout in [MemoryFormat::Contiguous, MemoryFormat::ChannelsLast] {
            let options = LoaderOptions {
                batch: BATCH,
                workers: 0,
                layout,
                numbers,
                augment: augment.clone(),
                ..Default::default()
            };
            let mut loader = Loader::train(Arc::clone(&dataset), options, Cursor::START, u64::MAX);
            let (mut ours, mut copies) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(batches(&mut loader, numbers)?);
                copies.push(copied(&pictures, BATCH * numbers.bytes()));
            }
            let ratios: Vec<f64> = ours.iter().zip(&copies).map(|(ours, copy)| ours / copy).collect();
            println!(
                "{numbers:?}, {layout:?}: {:.2} GB/s, a copy {:.2} GB/s, {:.0} %",
                median(ours) / 1e9,
                median(copies) / 1e9,
                100.0 * median(ratios)
            );
        }
    }
    Ok(())
}

/// Bytes read and written a second.
fn batches(loader: &mut Loader, numbers: Numbers) -> Result<f64, Box<dyn Error>> {
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < TURN {
        let batch = loader.next().ok_or("the pictures have an end")??;
        bytes += batch.len() * VALUES * (1 + numbers.bytes());
        black_box(batch.bytes());
    }
    Ok(bytes as f64 / began.elapsed().as_secs_f64())
}

/// The same of a plain copy, into memory for so many pictures of bytes.
fn copied(pictures: &[u8], slots: usize) -> f64 {
    let order = Order::new(PICTURES as u64, 0);
    let mut batch = vec![0; slots * VALUES];
    let (began, mut count) = (Instant::now(), 0_usize);
    while began.elapsed() < TURN {
        for slot in 0..slots {
            let picture = order.at((count / PICTURES) as u64, (count % PICTURES) as u64) as usize;
            batch[slot * VALUES..][..VALUES].copy_from_slice(&pictures[picture * VALUES..][..VALUES]);
            black_box(&mut batch);
            count += 1;
        }
    }
    2.0 * (count * VALUES) as f64 / began.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Pictures of noise in two classes.
fn draw(folder: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let mut state = 1_u32;
    for number in 0..PICTURES {
        let class = folder.join(["even", "odd"][number % 2]);
        std::fs::create_dir_all(&class)?;
        let picture = image::RgbImage::from_fn(SIZE, SIZE, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            image::Rgb([(state >> 24) as u8, (state >> 16) as u8, (state >> 8) as u8])
        });
        picture.save(class.join(format!("{number}.png")))?;
    }
    Ok(())
}
