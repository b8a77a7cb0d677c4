//! Compares how fast images in memory become batches with plain copies of as many bytes, all on one thread.
//!
//! `cargo run --release -p gradus-data --example from_ram [IMAGES]`: images of noise, 1,000 by default, which is more
//! than caches hold, in two forms: 256×256 pixels, packed unchanged and loaded into memory, with a random crop of
//! 224×224; and 224×224, which the data set decodes once and stores channel by channel, shifted by up to 16 pixels.
//! Half are mirrored. They are compared with copies of as many bytes of each image in the same order, into memory as
//! large as the loader's batch: contiguous, and of the rows of such a crop of 224×224 pixels. Bytes read and written
//! count.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{BatchDtype, Cursor, Dataset, Loader, LoaderOptions, PackOptions, SampleCodec, SampleOrder};
use domain::Bytes;
use domain::random::Draws;
use domain::train::{Augment, Corrupt, Data, MemoryFormat, Split};

/// Height and width of a sample, and of the images of which a part is shown.
const SIZE: usize = 224;
const WHOLE: usize = 256;
/// Bytes of a sample, and of such an image.
const VALUES: usize = 3 * SIZE * SIZE;
const PICTURE: usize = 3 * WHOLE * WHOLE;
const BATCH: usize = 64;
const ROUNDS: usize = 15;
/// How long each side works before the next has its turn.
const TURN: Duration = Duration::from_millis(200);

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let images = std::env::args().nth(1).map_or(Ok(1000), |number| number.parse::<usize>())?.max(20);
    let memory: Vec<u8> = Draws::new(1).bytes(images * PICTURE);
    let packed = folder.path().join("packed");
    pack(&folder.path().join("whole"), &packed, images)?;
    measure("a part of an image", &packed, vec![Augment::ResizeCrop(WHOLE as u32), Augment::Flip], &memory)?;
    let kept = folder.path().join("kept");
    draw(&kept, SIZE, images)?;
    measure("a kept image, shifted", &kept, vec![Augment::PadCrop(16), Augment::Flip], &memory)
}

/// Prints a line for each data type and memory format.
fn measure(what: &str, path: &Path, augment: Vec<Augment>, memory: &[u8]) -> Result<(), Box<dyn Error>> {
    let spec = Data {
        path: String::new(),
        split: Split::Shares([1.0, 0.0, 0.0]),
        classes: None,
        labels: domain::train::Labels::Class,
        trained_on: None,
        text: None,
        size: Some(SIZE as u32),
        sampling: domain::train::Sampling::Shuffle,
        augment: augment.clone(),
        normalize: None,
        corrupt: Corrupt::Fail,
        workers: 0,
        cache: None,
        preload: Some(Bytes(1 << 30)),
    };
    let dataset = Arc::new(Dataset::open(&spec, path, 0)?);
    for numbers in [BatchDtype::U8, BatchDtype::Bf16, BatchDtype::F32] {
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
            let slots = BATCH * numbers.bytes();
            let (mut ours, mut stretches, mut parts) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(batches(&mut loader, numbers)?);
                stretches.push(copied(memory, slots, |image, _, sample| sample.copy_from_slice(&image[..VALUES])));
                parts.push(copied(memory, slots, part));
            }
            let of = |copies: &[f64]| 100.0 * median(ours.iter().zip(copies).map(|(ours, copy)| ours / copy).collect());
            println!(
                "{what}, {numbers:?}, {layout:?}: {:.2} GB/s; {:.0} % of a copy of one stretch, {:.2} GB/s; \
                 {:.0} % of a copy of a part, {:.2} GB/s",
                median(ours.clone()) / 1e9,
                of(&stretches),
                median(stretches.clone()) / 1e9,
                of(&parts),
                median(parts.clone()) / 1e9,
            );
        }
    }
    Ok(())
}

/// Bytes read and written a second.
fn batches(loader: &mut Loader, numbers: BatchDtype) -> Result<f64, Box<dyn Error>> {
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < TURN {
        let batch = loader.next().ok_or("the images have an end")??;
        bytes += batch.len() * VALUES * (1 + numbers.bytes());
        black_box(batch.bytes());
    }
    Ok(bytes as f64 / began.elapsed().as_secs_f64())
}

/// The same of a plain copy of each image, into memory for so many samples of bytes.
fn copied(memory: &[u8], slots: usize, copy: impl Fn(&[u8], &mut Draws, &mut [u8])) -> f64 {
    let images = memory.len() / PICTURE;
    let order = SampleOrder::new(images as u64, 0);
    let mut draws = Draws::new(2);
    let mut batch = vec![0; slots * VALUES];
    let (began, mut count) = (Instant::now(), 0_usize);
    while began.elapsed() < TURN {
        for sample in batch.chunks_exact_mut(VALUES) {
            let image = order.at((count / images) as u64, (count % images) as u64) as usize;
            copy(&memory[image * PICTURE..][..PICTURE], &mut draws, sample);
            count += 1;
        }
        black_box(&mut batch);
    }
    2.0 * (count * VALUES) as f64 / began.elapsed().as_secs_f64()
}

/// Copies the rows of a random part of an image.
fn part(image: &[u8], draws: &mut Draws, sample: &mut [u8]) {
    let mut place = || draws.below((WHOLE - SIZE + 1) as u64) as usize;
    let (x, y) = (place(), place());
    for (row, into) in image.chunks_exact(3 * WHOLE).skip(y).zip(sample.chunks_exact_mut(3 * SIZE)) {
        into.copy_from_slice(&row[3 * x..][..3 * SIZE]);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Images as they are, in shards.
fn pack(whole: &Path, shards: &Path, images: usize) -> Result<(), Box<dyn Error>> {
    draw(whole, WHOLE, images)?;
    let options = PackOptions { seed: 1, codec: SampleCodec::Pixels, ..PackOptions::default() };
    data::pack(whole, shards, &options, &mut |_| {})?;
    Ok(())
}

/// Images of noise in two classes.
fn draw(folder: &Path, size: usize, images: usize) -> Result<(), Box<dyn Error>> {
    let mut draws = Draws::new(0);
    for number in 0..images {
        let class = folder.join(["even", "odd"][number % 2]);
        std::fs::create_dir_all(&class)?;
        let pixels = draws.bytes(3 * size * size);
        image::save_buffer(
            class.join(format!("{number}.png")),
            &pixels,
            size as u32,
            size as u32,
            image::ExtendedColorType::Rgb8,
        )?;
    }
    Ok(())
}
