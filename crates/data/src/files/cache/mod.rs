//! A disk cache of chunks from slow storage, within a budget, with known future reads.
//!
//! The order of reads is computed in advance ([`crate::SampleOrder`]), so the chunk that is needed last can be evicted
//! (Belady, "A study of replacement algorithms for a virtual-storage computer", 1966), and one that is needed later
//! than everything in the cache is not admitted. A chunk is a file that is written, hashed and renamed; a lock in the
//! folder lets several processes share one budget; reads take no lock. If a process or the machine is killed at any
//! time, a chunk is intact or fetched again. Read on in `future`, `disk`, `probe`.

mod disk;
mod future;
mod probe;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use disk::{Disk, Locked};
pub use future::{AccessSchedule, NEVER};
pub use probe::{DiskSpeed, probe};

/// A cache of numbered chunks.
#[derive(Debug)]
pub struct DiskCache {
    disk: Disk,
    budget: u64,
    kept: Mutex<Kept>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Hits and misses of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// Reads served without slow storage.
    pub hits: u64,
    /// Reads that did.
    pub misses: u64,
}

/// The known state of the folder; other processes may have changed it since.
#[derive(Debug, Default)]
struct Kept {
    generation: u64,
    bytes: HashMap<u64, u64>,
    total: u64,
    /// Chunks by their next use, as far as it is known.
    queue: BTreeSet<(u64, u64)>,
    next: HashMap<u64, u64>,
}

impl DiskCache {
    /// Opens a cache in `folder`, which is created; its files never exceed `budget` bytes.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn open(folder: &Path, budget: u64) -> io::Result<DiskCache> {
        let cache = DiskCache {
            disk: Disk::open(folder)?,
            budget,
            kept: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        };
        let locked = cache.disk.lock()?;
        cache.disk.sweep(&locked)?;
        drop(locked);
        Ok(cache)
    }

    /// Returns a chunk from the disk, or fetches it with `fetch`.
    ///
    /// # Errors
    /// Errors of `fetch`. A full or failing disk only disables caching.
    pub fn read(
        &self,
        piece: u64,
        future: &dyn AccessSchedule,
        fetch: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> io::Result<Arc<[u8]>> {
        if let Ok(Some(read)) = self.disk.read(piece) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.bytes.contains_key(&piece) {
                kept.expect(piece, future);
            }
            return Ok(read.into());
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let read = fetch()?;
        // A cache that cannot be written is as good as none.
        let _ = self.keep(piece, &read, future);
        Ok(read.into())
    }

    /// Updates the next use of a chunk that was read by other means.
    pub fn expect(&self, piece: u64, future: &dyn AccessSchedule) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes.contains_key(&piece) {
            kept.expect(piece, future);
        }
    }

    /// Whether a chunk is on disk; it may still turn out to be damaged when it is read.
    pub fn has(&self, piece: u64) -> bool {
        self.disk.has(piece)
    }

    /// Hits and misses since the start.
    pub fn counts(&self) -> CacheCounts {
        CacheCounts { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }

    fn keep(&self, piece: u64, bytes: &[u8], future: &dyn AccessSchedule) -> io::Result<()> {
        let size = disk::size(bytes.len() as u64);
        let next = future.next_use(piece);
        if size > self.budget || next == NEVER {
            return Ok(());
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let locked = self.disk.lock()?;
        kept.refresh(&self.disk, &locked, future)?;
        if kept.bytes.contains_key(&piece) {
            // The existing file is damaged, or another process was faster; it is rewritten either way.
            kept.generation = self.disk.advance(&locked)?;
            self.disk.remove(&locked, piece)?;
            kept.forget(piece);
        }
        // Chosen before anything is removed: chunks needed sooner than the new one stay.
        let mut victims = Vec::new();
        // Below zero where the budget was larger once.
        let mut free = self.budget as i64 - kept.total as i64;
        let needed = size as i64;
        kept.settle(future);
        for (use_of_victim, victim) in kept.queue.iter().rev() {
            if free >= needed {
                break;
            }
            if *use_of_victim <= next {
                return Ok(());
            }
            free += kept.bytes.get(victim).copied().unwrap_or_default() as i64;
            victims.push(*victim);
        }
        if free < needed {
            return Ok(());
        }
        // Advanced before the change, so that readers after a crash list the folder again.
        kept.generation = self.disk.advance(&locked)?;
        for victim in victims {
            self.disk.remove(&locked, victim)?;
            kept.forget(victim);
        }
        self.disk.write(&locked, piece, bytes)?;
        kept.bytes.insert(piece, size);
        kept.total += size;
        kept.expect(piece, future);
        Ok(())
    }
}

impl Kept {
    /// Lists the folder again if another process has changed it.
    fn refresh(&mut self, disk: &Disk, locked: &Locked, future: &dyn AccessSchedule) -> io::Result<()> {
        let generation = disk.generation(locked)?;
        if generation == self.generation && generation != 0 {
            return Ok(());
        }
        *self = Kept { generation, ..Kept::default() };
        for (piece, bytes) in disk.list(locked)? {
            self.bytes.insert(piece, bytes);
            self.total += bytes;
            self.expect(piece, future);
        }
        Ok(())
    }

    /// Records when a chunk is needed next.
    fn expect(&mut self, piece: u64, future: &dyn AccessSchedule) {
        let next = future.next_use(piece);
        if let Some(before) = self.next.insert(piece, next) {
            self.queue.remove(&(before, piece));
        }
        self.queue.insert((next, piece));
    }

    /// Looks up again what should have been used by now: another process did that.
    fn settle(&mut self, future: &dyn AccessSchedule) {
        while let Some((next, piece)) = self.queue.first().copied()
            && next < future.now()
        {
            self.expect(piece, future);
            if self.next.get(&piece) == Some(&next) {
                return;
            }
        }
    }

    fn forget(&mut self, piece: u64) {
        self.total -= self.bytes.remove(&piece).unwrap_or_default();
        if let Some(next) = self.next.remove(&piece) {
            self.queue.remove(&(next, piece));
        }
    }
}
