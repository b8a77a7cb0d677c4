//! The batches of a loader depend on data, seed and position alone.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use domain::train::{Augment, MemoryFormat};
use proptest::prelude::*;

use super::{Files, complains, sixty};
use crate::{Cursor, Dataset, Loader, LoaderOptions, Part, RankShare};

/// A data set whose images identify themselves: value 0 of image n is n.
fn numbered(in_memory: bool) -> (tempfile::TempDir, Arc<Dataset>) {
    let files = Files::of(&[""], &["a", "b", "c"], 30);
    let files = Files(files.0.into_iter().filter(|(name, _)| name.ends_with("png")).collect());
    sixty(&files, [0.0, 1.0 / 255.0], in_memory)
}

/// A batch, copied.
#[derive(Debug, Clone, PartialEq)]
struct Copy {
    images: Vec<u32>,
    labels: Vec<i64>,
    epoch: u64,
    after: Cursor,
}

fn drain(mut loader: Loader) -> Vec<Copy> {
    let mut batches = Vec::new();
    while let Some(batch) = loader.next() {
        let batch = batch.unwrap();
        assert_eq!(batch.len(), batch.labels().len());
        assert!(!batch.is_empty());
        batches.push(Copy {
            images: batch.images().iter().map(|value| value.to_bits()).collect(),
            labels: batch.labels().to_vec(),
            epoch: batch.epoch(),
            after: batch.cursor_after(),
        });
    }
    assert!(loader.next().is_none());
    batches
}

fn options(batch: usize, workers: usize) -> LoaderOptions {
    let augment = vec![Augment::PadCrop(2), Augment::Flip];
    LoaderOptions { batch, workers, seed: 11, augment, ..Default::default() }
}

#[test]
fn every_sample_comes_once_in_an_epoch() {
    for in_memory in [true, false] {
        let (_root, dataset) = numbered(in_memory);
        for batch in [1, 5, 42, 100] {
            let plain = LoaderOptions { augment: Vec::new(), ..options(batch, 2) };
            let batches = drain(Loader::train(Arc::clone(&dataset), plain, Cursor::START, 3));
            assert_eq!(batches.len(), 3 * 42_usize.div_ceil(batch));
            let mut orders = Vec::new();
            for epoch in 0..3 {
                let of_epoch: Vec<&Copy> = batches.iter().filter(|batch| batch.epoch == epoch).collect();
                let (last, full) = of_epoch.split_last().unwrap();
                assert!(full.iter().all(|copy| copy.labels.len() == batch), "a batch within the epoch is not full");
                assert_eq!(last.after, Cursor { epoch: epoch + 1, pos: 0 });
                let order: Vec<f32> = of_epoch
                    .iter()
                    .flat_map(|batch| batch.images.chunks_exact(108))
                    .map(|values| f32::from_bits(values[0]).round())
                    .collect();
                let mut sorted = order.clone();
                sorted.sort_by(f32::total_cmp);
                let mut expected: Vec<f32> = dataset
                    .part(Part::Train)
                    .iter()
                    .map(|sample| {
                        f32::from(dataset.planes(*sample, Default::default(), &mut Default::default()).unwrap()[0])
                    })
                    .collect();
                expected.sort_by(f32::total_cmp);
                assert_eq!(sorted, expected);
                orders.push(order);
            }
            assert!(orders[0] != orders[1] && orders[1] != orders[2], "two epochs have the same order");
        }
    }
}

#[test]
fn threads_cannot_be_seen() {
    let (_root, kept) = numbered(true);
    let (_other, read) = numbered(false);
    let expected = drain(Loader::train(Arc::clone(&kept), options(4, 0), Cursor::START, 5));
    for dataset in [kept, read] {
        for workers in [0, 1, 2, 5] {
            assert_eq!(drain(Loader::train(Arc::clone(&dataset), options(4, workers), Cursor::START, 5)), expected);
        }
    }
}

#[test]
fn layouts_hold_the_same_values() {
    let (_root, dataset) = numbered(true);
    let last = LoaderOptions { layout: MemoryFormat::ChannelsLast, ..options(8, 1) };
    let planes = drain(Loader::train(Arc::clone(&dataset), options(8, 1), Cursor::START, 2));
    for (a, b) in planes.iter().zip(drain(Loader::train(dataset, last, Cursor::START, 2))) {
        for (a, b) in a.images.chunks_exact(108).zip(b.images.chunks_exact(108)) {
            let turned: Vec<u32> = (0..108).map(|at| a[at % 3 * 36 + at / 3]).collect();
            assert_eq!(turned, b);
        }
    }
}

/// A run that is killed after any batch, and resumed with any number of threads, sees the undisturbed batches.
#[test]
fn resuming_gives_the_undisturbed_batches() {
    for in_memory in [true, false] {
        let (_root, dataset) = numbered(in_memory);
        let expected = drain(Loader::train(Arc::clone(&dataset), options(5, 1), Cursor::START, 3));
        for (used, workers) in (0..expected.len()).zip([0, 1, 3].into_iter().cycle()) {
            let mut loader = Loader::train(Arc::clone(&dataset), options(5, workers), Cursor::START, 3);
            let mut cursor = Cursor::START;
            for _ in 0..used {
                cursor = loader.next().unwrap().unwrap().cursor_after();
            }
            drop(loader);
            assert_eq!(drain(Loader::train(Arc::clone(&dataset), options(5, workers), cursor, 3)), expected[used..]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Over any kills, resumed with other batch sizes and threads, each epoch has every sample exactly once.
    #[test]
    fn no_sample_is_lost_or_repeated(kills in prop::collection::vec((1_usize..12, 1_usize..9, 0_usize..3), 0..6)) {
        let (_root, dataset) = numbered(true);
        let mut cursor = Cursor::START;
        let mut seen = vec![Vec::new(); 2];
        let mut note = |loader: &mut Loader, most: usize, cursor: &mut Cursor| {
            for _ in 0..most {
                let Some(batch) = loader.next() else { return };
                let batch = batch.unwrap();
                seen[batch.epoch() as usize].extend(batch.images().chunks_exact(108).map(|values| values[0].round() as u32));
                *cursor = batch.cursor_after();
            }
        };
        let plain = |batch, workers| LoaderOptions { augment: Vec::new(), ..options(batch, workers) };
        for (batch, used, workers) in kills {
            note(&mut Loader::train(Arc::clone(&dataset), plain(batch, workers), cursor, 2), used, &mut cursor);
        }
        note(&mut Loader::train(Arc::clone(&dataset), plain(7, 1), cursor, 2), usize::MAX, &mut cursor);
        prop_assert_eq!(cursor, Cursor { epoch: 2, pos: 0 });
        for mut epoch in seen {
            epoch.sort_unstable();
            epoch.dedup();
            prop_assert_eq!(epoch.len(), 42);
        }
    }
}

/// The samples of an unaugmented batch, identified by their values.
fn samples(batch: &Copy) -> Vec<u32> {
    batch.images.chunks_exact(108).map(|values| f32::from_bits(values[0]).round() as u32).collect()
}

/// One incarnation of a run: a number of ranks with a number of threads each, killed after some batches, and how many
/// batches each rank had taken beyond the last checkpoint.
#[derive(Debug, Clone)]
struct Life {
    world: u32,
    workers: usize,
    used: usize,
    lost: Vec<usize>,
    in_memory: bool,
}

fn life() -> impl Strategy<Value = Life> {
    let lost = prop::collection::vec(0_usize..3, 8);
    (1_u32..=8, 0_usize..4, 0_usize..12, lost, any::<bool>()).prop_map(|(world, workers, used, lost, in_memory)| Life {
        world,
        workers,
        used,
        lost,
        in_memory,
    })
}

/// The next batch of all ranks, combined in rank order; `None` at the end.
fn together(ranks: &mut [Loader]) -> Option<Copy> {
    let mut all_ranks: Option<(Copy, u64)> = None;
    let mut ended = 0;
    for rank in ranks.iter_mut() {
        let Some(batch) = rank.next() else {
            ended += 1;
            continue;
        };
        let batch = batch.unwrap();
        assert_eq!(batch.is_empty(), batch.labels().is_empty());
        let images = batch.images().iter().map(|value| value.to_bits());
        let (epoch, after, all) = (batch.epoch(), batch.cursor_after(), batch.of_all());
        let (all_ranks, known) =
            all_ranks.get_or_insert_with(|| (Copy { images: Vec::new(), labels: Vec::new(), epoch, after }, all));
        assert_eq!((all_ranks.epoch, all_ranks.after, *known), (epoch, after, all), "ranks disagree on a batch");
        all_ranks.images.extend(images);
        all_ranks.labels.extend(batch.labels());
    }
    assert!(ended == 0 || ended == ranks.len(), "{ended} of {} ranks have ended", ranks.len());
    let (all_ranks, all) = all_ranks?;
    assert_eq!(all_ranks.labels.len() as u64, all);
    Some(all_ranks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However often a run is killed, and with any number of ranks and threads, every batch is that of the undisturbed
    /// run.
    #[test]
    fn no_change_of_world_can_be_seen(
        lives in prop::collection::vec(life(), 1..6),
        batch in 1_usize..50,
        augmented: bool,
        seed: u64,
    ) {
        let (_kept_root, kept) = numbered(true);
        let (_read_root, read) = numbered(false);
        let augment = if augmented { options(batch, 0).augment } else { Vec::new() };
        let options = LoaderOptions { seed, augment, ..options(batch, 1) };
        let expected = drain(Loader::train(Arc::clone(&kept), options.clone(), Cursor::START, 2));
        let (mut cursor, mut seen) = (Cursor::START, Vec::new());
        let last = Life { used: usize::MAX, ..lives[0].clone() };
        for Life { world, workers, used, lost, in_memory } in lives.into_iter().chain([last]) {
            let dataset = if in_memory { &kept } else { &read };
            let mut ranks: Vec<Loader> = (0..world)
                .map(|rank| {
                    let share = RankShare::new(rank, world).unwrap();
                    let options = LoaderOptions { share, workers, ..options.clone() };
                    Loader::train(Arc::clone(dataset), options, cursor, 2)
                })
                .collect();
            for _ in 0..used {
                let Some(batch) = together(&mut ranks) else { break };
                cursor = batch.after;
                seen.push(batch);
            }
            for (rank, lost) in ranks.iter_mut().zip(lost) {
                (0..lost).for_each(|_| drop(rank.next()));
            }
        }
        prop_assert_eq!(cursor, Cursor { epoch: 2, pos: 0 });
        prop_assert!(seen == expected, "a batch is not the undisturbed run's");
        if !augmented {
            let all = drain(Loader::train(kept, LoaderOptions { batch: 42, ..options }, Cursor::START, 1));
            let mut all = samples(&all[0]);
            all.sort_unstable();
            prop_assert_eq!(all.windows(2).filter(|pair| pair[0] == pair[1]).count(), 0);
            for epoch in 0..2 {
                let of_epoch = seen.iter().filter(|batch| batch.epoch == epoch);
                let mut ids: Vec<u32> = of_epoch.flat_map(samples).collect();
                ids.sort_unstable();
                prop_assert_eq!(&ids, &all);
            }
        }
    }

    /// The same while the batch changes too: no sample is lost or repeated.
    #[test]
    fn no_sample_is_lost_among_ranks(lives in prop::collection::vec((life(), 1_usize..12), 0..6), seed: u64) {
        let (_root, dataset) = numbered(true);
        let plain = LoaderOptions { seed, augment: Vec::new(), ..options(1, 0) };
        let (mut cursor, mut ids) = (Cursor::START, vec![Vec::new(); 2]);
        let last = (Life { world: 3, workers: 1, used: usize::MAX, lost: vec![0; 8], in_memory: true }, 5);
        for (Life { world, workers, used, lost, .. }, batch) in lives.into_iter().chain([last]) {
            let shares = (0..world).map(|rank| RankShare::new(rank, world).unwrap());
            let options = |share| LoaderOptions { batch, workers, share, ..plain.clone() };
            let mut ranks: Vec<Loader> =
                shares.map(|share| Loader::train(Arc::clone(&dataset), options(share), cursor, 2)).collect();
            for _ in 0..used {
                let Some(batch) = together(&mut ranks) else { break };
                cursor = batch.after;
                ids[batch.epoch as usize].extend(samples(&batch));
            }
            for (rank, lost) in ranks.iter_mut().zip(lost) {
                (0..lost).for_each(|_| drop(rank.next()));
            }
        }
        prop_assert_eq!(cursor, Cursor { epoch: 2, pos: 0 });
        for mut epoch in ids {
            epoch.sort_unstable();
            epoch.dedup();
            prop_assert_eq!(epoch.len(), 42);
        }
    }
}

#[test]
fn augmentation_is_drawn_anew_each_epoch_and_is_for_training_only() {
    let (_root, dataset) = numbered(true);
    let plain = LoaderOptions { augment: Vec::new(), ..options(42, 1) };
    let changed = drain(Loader::train(Arc::clone(&dataset), options(42, 1), Cursor::START, 2));
    let unchanged = drain(Loader::train(Arc::clone(&dataset), plain.clone(), Cursor::START, 2));
    for (a, b) in changed.iter().zip(&unchanged) {
        assert_eq!(a.labels, b.labels);
        let same = a.images.chunks_exact(108).zip(b.images.chunks_exact(108)).filter(|(a, b)| a == b).count();
        assert!(same < 10, "{same} of 42 images are unchanged");
    }
    let part = |options| drain(Loader::evaluate(Arc::clone(&dataset), Part::Validation, options));
    assert_eq!(part(options(5, 1)), part(LoaderOptions { seed: 99, ..plain.clone() }).rebatched(5));
    let by_seed = |seed| {
        let options = LoaderOptions { seed, ..plain.clone() };
        drain(Loader::train(Arc::clone(&dataset), options, Cursor::START, 1))[0].labels.clone()
    };
    assert_ne!(by_seed(1), by_seed(2));
}

trait Rebatched {
    fn rebatched(&self, batch: usize) -> Vec<Copy>;
}

impl Rebatched for Vec<Copy> {
    /// The single batch of an evaluation, divided into smaller ones.
    fn rebatched(&self, batch: usize) -> Vec<Copy> {
        let [single] = self.as_slice() else { panic!("{} batches", self.len()) };
        let samples = single.labels.len();
        let cut = |(images, labels): (&[u32], &[i64]), pos: usize| Copy {
            images: images.to_vec(),
            labels: labels.to_vec(),
            epoch: 0,
            after: if pos < samples { Cursor { epoch: 0, pos: pos as u64 } } else { Cursor { epoch: 1, pos: 0 } },
        };
        let chunks = single.images.chunks(batch * 108).zip(single.labels.chunks(batch));
        chunks.zip((batch..).step_by(batch)).map(|(chunk, pos)| cut(chunk, pos)).collect()
    }
}

#[test]
fn batches_may_be_held() {
    let (_root, dataset) = numbered(false);
    let mut loader = Loader::train(dataset, options(2, 2), Cursor::START, 2);
    let mut held = Vec::new();
    while let Some(batch) = loader.next() {
        held.push(batch.unwrap());
    }
    drop(loader);
    assert_eq!(held.len(), 42);
    assert!(held.iter().all(|batch| batch.images().len() == 2 * 108));
}

#[test]
fn memory_is_bounded() {
    let (_root, dataset) = numbered(false);
    let mut loader = Loader::train(dataset, options(2, 3), Cursor::START, 50);
    let mut addresses = std::collections::HashSet::new();
    while let Some(batch) = loader.next() {
        addresses.insert(batch.unwrap().images().as_ptr());
    }
    assert!(addresses.len() <= 5, "{} allocations for 1050 batches", addresses.len());
}

#[test]
fn a_loader_that_is_not_used_ends() {
    let (_root, dataset) = numbered(false);
    for workers in [0, 1, 4] {
        drop(Loader::train(Arc::clone(&dataset), options(3, workers), Cursor::START, 1000));
    }
    let done = Cursor { epoch: 3, pos: 0 };
    assert!(drain(Loader::train(Arc::clone(&dataset), options(3, 1), done, 3)).is_empty());
    assert_eq!(Arc::strong_count(&dataset), 1, "a thread still holds the data");
}

#[test]
fn a_cursor_of_other_data_is_refused() {
    let (_root, dataset) = numbered(true);
    for pos in [42, 43, u64::MAX] {
        let mut loader = Loader::train(Arc::clone(&dataset), options(5, 1), Cursor { epoch: 1, pos }, 3);
        let error = loader.next().unwrap().err().unwrap();
        complains(&error, "epoch 1 was left at sample", "started with");
        assert!(loader.next().is_none());
    }
}

/// A caller may stop waiting at any time: no work is lost or done twice.
#[test]
fn a_wait_that_is_given_up_goes_on_where_it_was() {
    let files = Files::of(&[""], &["a", "b"], 30);
    let (_root, dataset) = sixty(&files, [0.5, 0.25], false);
    for workers in [0, 2] {
        let options = LoaderOptions { batch: 21, seed: 3, workers, ..Default::default() };
        let expected = drain(Loader::train(Arc::clone(&dataset), options.clone(), Cursor::START, 2));
        let mut loader = Loader::train(Arc::clone(&dataset), options, Cursor::START, 2);
        let (mut found, mut given_up) = (Vec::new(), 0_u64);
        loop {
            // The first deadline has passed already, so a batch of 21 images is never complete by then.
            match loader.next_by(Instant::now() + Duration::from_micros(given_up % 7 * 30)) {
                Poll::Pending => given_up += 1,
                Poll::Ready(None) => break,
                Poll::Ready(Some(batch)) => {
                    found.push(batch.unwrap().images().iter().map(|value| value.to_bits()).collect::<Vec<u32>>());
                }
            }
        }
        assert!(given_up > 0);
        assert_eq!(found, expected.iter().map(|batch| batch.images.clone()).collect::<Vec<_>>());
        assert_eq!(loader.measured().samples, 84);
    }
}
