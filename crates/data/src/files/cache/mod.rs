//! Pieces of slow storage, kept on a local disk within a budget, and the future is known.
//!
//! What is read in which order is computed and not found out ([`crate::SampleOrder`]), so the piece that is needed last can
//! give way (Belady, "A study of replacement algorithms for a virtual-storage computer", 1966), and one that is needed
//! later than everything that is kept is not kept at all. A piece is a file that is written whole, renamed and hashed;
//! a lock in the folder makes several processes keep one budget; reading takes no lock. Whatever instant a process is
//! killed at, or the machine, a piece is right or is fetched again. Read on in `future`, `disk`, `probe`.

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

/// A cache of pieces, each of which has a number.
#[derive(Debug)]
pub struct DiskCache {
    disk: Disk,
    budget: u64,
    kept: Mutex<Kept>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// How often a piece was there, and how often it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// Reads that took nothing from slow storage.
    pub hits: u64,
    /// Reads that did.
    pub misses: u64,
}

/// What is known of the folder; others may have changed it since.
#[derive(Debug, Default)]
struct Kept {
    generation: u64,
    bytes: HashMap<u64, u64>,
    total: u64,
    /// Pieces by their next use, as far as it is known.
    queue: BTreeSet<(u64, u64)>,
    next: HashMap<u64, u64>,
}

impl DiskCache {
    /// Opens a cache in `folder`, which is made; its files never take more than `budget` bytes.
    ///
    /// # Errors
    /// When the folder cannot be used.
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

    /// A piece, from the disk, or by `fetch` from where it comes from.
    ///
    /// # Errors
    /// What `fetch` gives. A disk that is full or fails costs the cache's use and nothing else.
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

    /// Notes anew when a piece is needed next, for one that was read by another way.
    pub fn expect(&self, piece: u64, future: &dyn AccessSchedule) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes.contains_key(&piece) {
            kept.expect(piece, future);
        }
    }

    /// Whether a piece is on the disk, though it may turn out to be damaged when it is read.
    pub fn has(&self, piece: u64) -> bool {
        self.disk.has(piece)
    }

    /// How it did so far.
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
            // It is there and was not right, or another process was faster; either way it is written anew.
            kept.generation = self.disk.advance(&locked)?;
            self.disk.remove(&locked, piece)?;
            kept.forget(piece);
        }
        // Chosen before anything is removed: what is needed sooner than the new piece stays.
        let mut victims = Vec::new();
        // Below zero where the budget was larger once.
        let mut free = self.budget as i64 - kept.total as i64;
        let size_wanted = size as i64;
        kept.settle(future);
        for (use_of_victim, victim) in kept.queue.iter().rev() {
            if free >= size_wanted {
                break;
            }
            if *use_of_victim <= next {
                return Ok(());
            }
            free += kept.bytes.get(victim).copied().unwrap_or_default() as i64;
            victims.push(*victim);
        }
        if free < size_wanted {
            return Ok(());
        }
        // Said before it is done: whoever comes after a crash looks anew.
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
    /// Looks at the folder again if anybody has changed it.
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

    /// Notes when a piece is needed next.
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
