//! Every cache here has a budget of 30 % of its data set.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::sampling::order::{Cursor, SampleOrder};

const COUNT: u64 = 200;
const LENGTH: u64 = 500;
const BUDGET: u64 = COUNT * LENGTH * 3 / 10;

/// The reads of a training run: epoch after epoch, each in its own order. Chunk `p` holds the samples `p × samples … (p
/// + 1) × samples`.
struct Epochs {
    order: SampleOrder,
    count: u64,
    samples: u64,
    epochs: u64,
    now: AtomicU64,
}

impl Epochs {
    /// For `count` samples in this order, `samples` per chunk, and the given number of epochs.
    fn new(order: SampleOrder, count: u64, samples: u64, epochs: u64) -> Epochs {
        Epochs { order, count: count.max(1), samples: samples.max(1), epochs, now: AtomicU64::new(0) }
    }

    /// Sets the position of training.
    fn advance(&self, cursor: Cursor) {
        self.now.store(cursor.epoch * self.count + cursor.pos, Ordering::Relaxed);
    }
}

impl AccessSchedule for Epochs {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn next_use(&self, piece: u64) -> u64 {
        let now = self.now();
        let (epoch, pos) = (now / self.count, now % self.count);
        let samples = piece * self.samples..((piece + 1) * self.samples).min(self.count);
        let in_epoch = |epoch: u64, after: Option<u64>| {
            let positions = samples.clone().map(|sample| self.order.position(epoch, sample));
            let later = positions.filter(|position| after.is_none_or(|after| *position > after));
            later.min().map(|position| epoch * self.count + position)
        };
        let this = if epoch < self.epochs { in_epoch(epoch, Some(pos)) } else { None };
        let next = || if epoch + 1 < self.epochs { in_epoch(epoch + 1, None) } else { None };
        this.or_else(next).unwrap_or(NEVER)
    }
}

fn piece(number: u64) -> Vec<u8> {
    (0..LENGTH).map(|at| (number * 31 + at) as u8).collect()
}

fn used(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.filter(|entry| entry.file_name() != "lock").map(|entry| entry.metadata().unwrap().len()).sum()
}

/// Reads `epochs` epochs in their order, and checks every byte and the budget after each read; returns the counts.
fn run(cache: &DiskCache, folder: &Path, order: SampleOrder, epochs: u64) -> CacheCounts {
    let future = Epochs::new(order, COUNT, 1, epochs);
    for epoch in 0..epochs {
        for pos in 0..COUNT {
            future.advance(Cursor { epoch, pos });
            let number = order.at(epoch, pos);
            let read = cache.read(number, &future, || Ok(piece(number))).unwrap();
            assert_eq!(&*read, piece(number), "epoch {epoch}, position {pos}");
            assert!(used(folder) <= BUDGET, "{} bytes of {BUDGET} are used", used(folder));
        }
    }
    cache.counts()
}

/// Hits of an optimal cache of `slots` chunks: an upper bound.
fn best(order: SampleOrder, epochs: u64, slots: usize) -> u64 {
    let reads: Vec<u64> = (0..epochs).flat_map(|epoch| (0..COUNT).map(move |pos| order.at(epoch, pos))).collect();
    let next = |from: usize, piece: u64| reads[from..].iter().position(|read| *read == piece).unwrap_or(usize::MAX);
    let (mut held, mut hits) = (HashSet::new(), 0);
    for (at, &read) in reads.iter().enumerate() {
        if held.contains(&read) {
            hits += 1;
        } else {
            held.insert(read);
            if held.len() > slots {
                let last = *held.iter().max_by_key(|piece| (next(at + 1, **piece), **piece)).unwrap();
                held.remove(&last);
            }
        }
    }
    hits
}

#[test]
fn no_cache_of_this_size_could_do_better() {
    let temporary = tempfile::tempdir().unwrap();
    let order = SampleOrder::new(COUNT, 7);
    let cache = DiskCache::open(temporary.path(), BUDGET).unwrap();
    let counts = run(&cache, temporary.path(), order, 5);
    let slots = (BUDGET / disk::size(LENGTH)) as usize;
    assert_eq!(counts.hits, best(order, 5, slots));
    assert_eq!(counts.hits + counts.misses, 5 * COUNT);
    let by_age = forgetful(order, 5, slots);
    assert!(counts.hits > 3 * by_age, "{counts:?}, and {by_age} hits of a cache that forgets by age");
}

/// Hits of an LRU cache.
fn forgetful(order: SampleOrder, epochs: u64, slots: usize) -> u64 {
    let (mut held, mut hits) = (Vec::new(), 0);
    for read in (0..epochs).flat_map(|epoch| (0..COUNT).map(move |pos| order.at(epoch, pos))) {
        match held.iter().position(|piece| *piece == read) {
            Some(at) => {
                held.remove(at);
                hits += 1;
            }
            None if held.len() == slots => drop(held.remove(0)),
            None => {}
        }
        held.push(read);
    }
    hits
}

#[test]
fn several_processes_share_a_budget_and_what_they_fetched() {
    let temporary = tempfile::tempdir().unwrap();
    let order = SampleOrder::new(COUNT, 8);
    let fetched = AtomicUsize::new(0);
    // Locks are held by open files, so threads that open the cache themselves are like processes.
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let (fetched, folder) = (&fetched, temporary.path());
            scope.spawn(move || {
                let cache = DiskCache::open(folder, BUDGET).unwrap();
                let future = Epochs::new(order, COUNT, 1, 4);
                for at in (rank..4 * COUNT).step_by(4) {
                    let (epoch, pos) = (at / COUNT, at % COUNT);
                    future.advance(Cursor { epoch, pos });
                    let number = order.at(epoch, pos);
                    let read = cache.read(number, &future, || {
                        fetched.fetch_add(1, Ordering::Relaxed);
                        Ok(piece(number))
                    });
                    assert_eq!(&*read.unwrap(), piece(number));
                    let _locked = cache.disk.lock().unwrap();
                    assert!(used(folder) <= BUDGET, "{} bytes of {BUDGET} are used", used(folder));
                }
            });
        }
    });
    let fetched = fetched.into_inner() as u64;
    assert!((COUNT..4 * COUNT).contains(&fetched), "{fetched} chunks were fetched");
}

#[test]
fn what_a_crash_leaves_behind_is_fetched_again() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let order = SampleOrder::new(COUNT, 9);
    run(&DiskCache::open(folder, BUDGET).unwrap(), folder, order, 2);
    let future = Epochs::new(order, COUNT, 1, 3);
    future.advance(Cursor { epoch: 1, pos: 0 });
    let held: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with("lock"))
        .collect();
    for (number, path) in held.iter().enumerate() {
        let mut bytes = fs::read(path).unwrap();
        match number % 4 {
            0 => bytes.truncate(100),
            1 => bytes.clear(),
            2 => bytes[50] ^= 1,
            _ => continue,
        }
        fs::write(path, bytes).unwrap();
    }
    fs::write(folder.join("unfinished"), [1; 10]).unwrap();
    fs::write(folder.join("lock"), "not a number").unwrap();
    let cache = DiskCache::open(folder, BUDGET).unwrap();
    assert!(!folder.join("unfinished").exists());
    for number in 0..COUNT {
        let read = cache.read(number, &future, || Ok(piece(number))).unwrap();
        assert_eq!(&*read, piece(number));
    }
    assert!(used(folder) <= BUDGET);
}

#[test]
fn a_failing_source_is_an_error_and_a_failing_disk_is_not() {
    let temporary = tempfile::tempdir().unwrap();
    let future = Epochs::new(SampleOrder::new(COUNT, 1), COUNT, 1, 2);
    let cache = DiskCache::open(temporary.path(), BUDGET).unwrap();
    let failed = cache.read(3, &future, || Err(io::Error::other("cut"))).unwrap_err();
    assert_eq!(failed.to_string(), "cut");
    assert_eq!(&*cache.read(3, &future, || Ok(piece(3))).unwrap(), piece(3));
    // A chunk larger than the budget is returned but not cached.
    let large = cache.read(4, &future, || Ok(vec![1; BUDGET as usize + 1])).unwrap();
    assert_eq!((large.len() as u64, used(temporary.path()) <= BUDGET), (BUDGET + 1, true));
    fs::remove_dir_all(temporary.path()).unwrap();
    assert_eq!(&*cache.read(5, &future, || Ok(piece(5))).unwrap(), piece(5));
}

#[test]
fn the_next_use_is_that_of_the_order() {
    for samples in [1, 7] {
        let order = SampleOrder::new(COUNT, 3);
        let future = Epochs::new(order, COUNT, samples, 3);
        let reads: Vec<u64> =
            (0..3).flat_map(|epoch| (0..COUNT).map(move |pos| order.at(epoch, pos) / samples)).collect();
        for now in (0..3 * COUNT).step_by(13) {
            future.advance(Cursor { epoch: now / COUNT, pos: now % COUNT });
            for piece in 0..COUNT / samples {
                let later = reads[now as usize + 1..].iter().position(|read| *read == piece);
                let found = future.next_use(piece);
                // One epoch ahead is enough: every sample comes once in each.
                assert_eq!(found, later.map_or(NEVER, |later| now + 1 + later as u64), "now {now}, piece {piece}");
            }
        }
    }
}

#[test]
fn a_disk_is_measured() {
    let temporary = tempfile::tempdir().unwrap();
    let probe = probe(temporary.path(), 4 << 20, 2, std::time::Duration::from_millis(20)).unwrap();
    assert!(probe.write_bytes_per_s > 0.0 && probe.read_bytes_per_s > 0.0 && probe.reads_4k_per_s > 0.0, "{probe:?}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}
