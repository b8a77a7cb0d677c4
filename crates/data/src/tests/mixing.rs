//! Mixed and randomly augmented images are the same for any number of threads and ranks, and after a kill.

use std::sync::Arc;

use domain::train::{Augment, ColorJitter, MemoryFormat, RandAugment, RandomErasing, Sampling};
use proptest::prelude::*;

use super::{Files, complains, scratch, sixty, spec};
use crate::{BatchDtype, Cursor, Dataset, Loader, LoaderOptions, MixedLabels, RankShare};

/// 42 images to train on, of three classes.
fn images(in_memory: bool) -> (tempfile::TempDir, Arc<Dataset>) {
    sixty(&Files::of(&[""], &["a", "b", "c"], 20), [0.25, 0.5], in_memory)
}

#[derive(Debug, Clone, PartialEq)]
struct Copy {
    bytes: Vec<u8>,
    images: Vec<f32>,
    labels: Vec<i64>,
    mixed: Option<MixedLabels>,
    after: Cursor,
}

fn drain(dataset: &Arc<Dataset>, options: LoaderOptions, from: Cursor) -> Vec<Copy> {
    let mut loader = Loader::train(Arc::clone(dataset), options, from, 3);
    let mut batches = Vec::new();
    while let Some(batch) = loader.next() {
        let batch = batch.unwrap();
        batches.push(Copy {
            bytes: batch.bytes().to_vec(),
            images: batch.images().to_vec(),
            labels: batch.labels().to_vec(),
            mixed: batch.mixed().cloned(),
            after: batch.cursor_after(),
        });
    }
    batches
}

const RANDOM: Augment = Augment::RandAugment(RandAugment { num_ops: 2, magnitude: 9 });

fn options(batch: usize, augment: &[Augment]) -> LoaderOptions {
    LoaderOptions { batch, workers: 2, seed: 11, augment: augment.to_vec(), ..Default::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn ranks_threads_and_kills_cannot_be_seen(
        world in 1_u32..=5,
        batch in 1_usize..15,
        workers in 0_usize..4,
        used in 0_usize..30,
        in_memory: bool,
        last: bool,
        cut: bool,
        balanced: bool,
    ) {
        let mix = if cut { vec![Augment::Mixup(0.2), Augment::Cutmix(1.0)] } else { vec![Augment::Mixup(0.4)] };
        let jitter = ColorJitter { brightness: 0.4, hue: 0.1, ..ColorJitter::default() };
        let erasing = RandomErasing { p: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3] };
        let own = [Augment::PadCrop(2), RANDOM, Augment::Flip, Augment::ColorJitter(jitter), Augment::RandomErasing(erasing)];
        let augment = [&own[..], &mix].concat();
        let sampling = if balanced { Sampling::Balanced } else { Sampling::Shuffle };
        let layout = if last { MemoryFormat::ChannelsLast } else { MemoryFormat::Contiguous };
        let (_root, dataset) = images(in_memory);
        let all = drain(&dataset, LoaderOptions { layout, workers: 1, sampling, ..options(batch, &augment) }, Cursor::START);
        let used = used % all.len();
        let from = if used == 0 { Cursor::START } else { all[used - 1].after };
        let ranks: Vec<Vec<Copy>> = (0..world)
            .map(|rank| {
                let share = RankShare::new(rank, world).unwrap();
                drain(&dataset, LoaderOptions { layout, workers, share, sampling, ..options(batch, &augment) }, from)
            })
            .collect();
        for (number, expected) in all[used..].iter().enumerate() {
            let parts: Vec<&Copy> = ranks.iter().map(|batches| &batches[number]).collect();
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes.clone()).collect();
            prop_assert_eq!(&bytes, &expected.bytes);
            let labels: Vec<i64> = parts.iter().flat_map(|part| part.labels.clone()).collect();
            prop_assert_eq!(&labels, &expected.labels);
            let others: Vec<i64> = parts.iter().filter_map(|part| part.mixed.clone()).flat_map(|m| m.labels).collect();
            prop_assert_eq!(&others, &expected.mixed.as_ref().unwrap().labels);
            let own = expected.mixed.as_ref().unwrap().own;
            prop_assert!(parts.iter().filter_map(|part| part.mixed.as_ref()).all(|mixed| mixed.own == own));
        }
    }
}

/// The output is the unmixed input, mixed with the image before it.
#[test]
fn batches_are_mixed_as_their_shares_say() {
    let (_root, dataset) = images(true);
    let base = [Augment::PadCrop(1), Augment::Flip];
    let plain = drain(&dataset, options(7, &base), Cursor::START);
    let (mut sums, mut rectangles) = (0, 0);
    let both = [&base[..], &[Augment::Mixup(1.0), Augment::Cutmix(1.0)]].concat();
    for (mixed, plain) in drain(&dataset, options(7, &both), Cursor::START).iter().zip(&plain) {
        let (count, own) = (plain.labels.len(), mixed.mixed.as_ref().unwrap().own);
        assert_eq!(mixed.labels, plain.labels);
        let before: Vec<i64> = (0..count).map(|at| plain.labels[(at + count - 1) % count]).collect();
        assert_eq!(mixed.mixed.as_ref().unwrap().labels, before);
        let image = |at: usize| &plain.images[at * 108..][..108];
        let value = |at: usize, index: usize| mixed.images[at * 108 + index];
        let other = |at: usize| image((at + count - 1) % count);
        let is_sum = (0..count).all(|at| {
            (0..108).all(|index| {
                let expected = image(at)[index] * own as f32 + other(at)[index] * (1.0 - own) as f32;
                value(at, index) == expected
            })
        });
        if is_sum {
            sums += 1;
            continue;
        }
        rectangles += 1;
        // Two images may agree at a pixel; only pixels unique to one are counted.
        let area = ((1.0 - own) * 36.0).round() as usize;
        for at in 0..count {
            let shown = |index: usize| value(at, index) == image(at)[index] || value(at, index) == other(at)[index];
            assert!((0..108).all(shown), "a value is neither image's");
            let foreign = (0..36).filter(|index| value(at, *index) != image(at)[*index]).count();
            assert!(foreign <= area, "{foreign} of {area} pixels are another image's");
        }
    }
    assert!(sums > 3 && rectangles > 3, "{sums} batches by sum, {rectangles} by rectangle");
}

#[test]
fn other_numbers_are_mixed_alike() {
    let (_root, dataset) = images(true);
    let augment = [Augment::Mixup(1.0)];
    let of = |numbers| drain(&dataset, LoaderOptions { numbers, ..options(6, &augment) }, Cursor::START);
    let exact = of(BatchDtype::F32);
    for (bytes, exact) in of(BatchDtype::U8).iter().zip(&exact) {
        for (byte, value) in bytes.bytes.iter().zip(&exact.images) {
            // Of mean ¼ and deviation ½.
            let expected = (value * 0.5 + 0.25) * 255.0;
            assert!((f32::from(*byte) - expected).abs() <= 0.51, "{byte} is not {expected}");
        }
    }
    for (halves, exact) in of(BatchDtype::Bf16).iter().zip(&exact) {
        for (half, value) in halves.bytes.as_chunks::<2>().0.iter().zip(&exact.images) {
            let half = f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
            assert!((half - value).abs() <= 0.02, "{half} is not {value}");
        }
    }
}

#[test]
fn grey_images_are_not_changed_in_colour() {
    let root = scratch();
    let line = |label: usize| format!("{}{label}\n", "7,".repeat(64));
    let file = root.path().join("digits.csv");
    std::fs::write(&file, (0..40).map(|number| line(number % 2)).collect::<String>()).unwrap();
    let dataset = Arc::new(Dataset::open(&spec(), &file, 1).unwrap());
    let mut loader = Loader::train(Arc::clone(&dataset), options(4, &[RANDOM]), Cursor::START, 1);
    complains(&loader.next().unwrap().err().unwrap(), "1 channel", "leave `rand_augment`");
    let mixed = drain(&dataset, options(4, &[Augment::Mixup(0.2)]), Cursor::START);
    assert!(mixed.iter().all(|batch| batch.mixed.is_some()));
}
