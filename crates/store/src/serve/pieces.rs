//! Ranges of objects, each fetched once for all readers, and cached by next use.
//!
//! A chunk here is the unit of a reader's request: a sample, the index of a shard. Announced chunks are fetched by
//! background threads and held in memory until they are read, whether or not the cache has space for them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data::cache::{AccessSchedule, CacheCounts, DiskCache, NEVER};
use data::chunk::ContentHash;
use data::remote::{AccessTime, ByteRange};

use super::Opener;
use super::origin::Source;
use crate::remote::Remote;
use crate::remote::heard::LastHeard;

/// Fetches that are under way ahead of their readers.
const AHEAD: usize = 16;
/// Maximum number of pending announcements; others are fetched when they are read.
const MOST_EXPECTED: usize = 1 << 14;
/// Bytes that were fetched ahead and wait in memory.
const MOST_WAITING: u64 = 256 << 20;
/// Samples by which readers may lag behind each other: older announcements are dropped.
const LAG: u64 = 1 << 14;

pub(super) struct Pieces {
    sources: Vec<Source>,
    cache: DiskCache,
    hints: Hints,
    state: Mutex<State>,
    /// Something has landed, or was expected.
    changed: Condvar,
    opener: Opener,
    hits: AtomicU64,
    misses: AtomicU64,
    readers: Mutex<Readers>,
    /// When the origin was last heard.
    heard: LastHeard,
}

/// Readers that have not been answered yet.
#[derive(Debug, Default)]
struct Readers {
    count: u64,
    /// Since when there are any.
    since: Option<Instant>,
}

/// A reader that waits for its answer.
struct Waiting<'a>(&'a Mutex<Readers>);

impl<'a> Waiting<'a> {
    fn begin(readers: &'a Mutex<Readers>) -> Waiting<'a> {
        let mut waiting = readers.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.count += 1;
        waiting.since.get_or_insert_with(Instant::now);
        Waiting(readers)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.count -= 1;
        if waiting.count == 0 {
            waiting.since = None;
        }
    }
}

#[derive(Default)]
struct State {
    /// Chunks that are being fetched, or were and wait for their reader.
    flights: HashMap<u64, Option<Arc<[u8]>>>,
    waiting: u64,
    expected: VecDeque<ByteRange>,
    /// Chunks that were announced and not read yet.
    announced: HashSet<u64>,
    is_over: bool,
}

/// A chunk that a thread fetches. Whatever becomes of the thread, those who wait for the chunk are woken.
struct Flight<'a> {
    pieces: &'a Pieces,
    piece: u64,
    /// Its bytes, for the reader who expects it; without them it is as if it had not been fetched.
    landed: Option<Arc<[u8]>>,
}

impl<'a> Flight<'a> {
    fn begin(pieces: &'a Pieces, mut state: MutexGuard<'_, State>, piece: u64) -> Flight<'a> {
        state.flights.insert(piece, None);
        Flight { pieces, piece, landed: None }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut state = self.pieces.lock();
        match self.landed.take() {
            Some(bytes) => {
                state.waiting += bytes.len() as u64;
                state.flights.insert(self.piece, Some(bytes));
            }
            None => drop(state.flights.remove(&self.piece)),
        }
        drop(state);
        self.pieces.changed.notify_all();
    }
}

/// When chunks are needed next, as announced by their readers.
#[derive(Default)]
struct Hints {
    now: AtomicU64,
    next: Mutex<HashMap<u64, u64>>,
}

impl Hints {
    fn learn(&self, piece: u64, now: u64, next: u64) {
        self.now.fetch_max(now, Ordering::Relaxed);
        let mut known = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        match next {
            NEVER => drop(known.remove(&piece)),
            next => drop(known.insert(piece, next)),
        }
    }
}

impl AccessSchedule for Hints {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed).saturating_sub(LAG)
    }

    fn next_use(&self, piece: u64) -> u64 {
        let known = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&piece).copied().filter(|next| *next >= self.now()).unwrap_or(NEVER)
    }
}

impl Pieces {
    /// Chunks of `sources`, none of which has been requested; `opener` opens the location for each thread that fetches.
    pub fn new(cache: DiskCache, sources: Vec<Source>, opener: Opener) -> Pieces {
        Pieces {
            sources,
            cache,
            hints: Hints::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            opener,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            readers: Mutex::default(),
            heard: LastHeard::default(),
        }
    }

    /// Starts the threads that fetch announced chunks.
    pub fn fetch_ahead(pieces: &Arc<Pieces>) {
        for _ in 0..AHEAD {
            let pieces = Arc::clone(pieces);
            std::thread::spawn(move || {
                let mut fetcher = None;
                while let Some(span) = pieces.next_expected() {
                    let prepared = catch_unwind(AssertUnwindSafe(|| pieces.prepare(span, &mut fetcher)));
                    if prepared.is_err() {
                        fetcher = None;
                    }
                }
            });
        }
    }

    /// Ends those threads.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Reads served from the cache, and from the origin.
    pub fn counts(&self) -> CacheCounts {
        CacheCounts { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }

    /// For how long the origin has sent nothing while a reader waits; `None` if none waits.
    pub fn silence(&self) -> Option<Duration> {
        let since = self.readers.lock().unwrap_or_else(PoisonError::into_inner).since?;
        Some(self.heard.at().map_or(since, |heard| heard.max(since)).elapsed())
    }

    /// When the origin was last heard.
    #[cfg(test)]
    pub fn last_heard(&self) -> Option<Instant> {
        self.heard.at()
    }

    /// Records that a chunk is needed soon.
    pub fn expect(&self, span: ByteRange, when: AccessTime) {
        let Ok((piece, _)) = self.piece(span) else { return };
        // Until it is read, its next use is that reading.
        self.hints.learn(piece, 0, when.now);
        let mut state = self.lock();
        if state.expected.len() < MOST_EXPECTED {
            state.expected.push_back(span);
            state.announced.insert(piece);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// The bytes of a chunk, and whether they came from the cache; or the error. `fetcher` is the thread's own
    /// connection to the origin.
    pub fn read(
        &self,
        span: ByteRange,
        when: AccessTime,
        fetcher: &mut Option<Remote>,
    ) -> Result<(bool, Arc<[u8]>), String> {
        let (piece, source) = self.piece(span)?;
        let _waiting = Waiting::begin(&self.readers);
        self.hints.learn(piece, when.now, when.next);
        let mut state = self.lock();
        state.announced.remove(&piece);
        while let Some(flight) = state.flights.get(&piece) {
            if let Some(bytes) = flight.clone() {
                state.flights.remove(&piece);
                state.waiting -= bytes.len() as u64;
                drop(state);
                self.cache.expect(piece, &self.hints);
                self.misses.fetch_add(1, Ordering::Relaxed);
                return Ok((false, bytes));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let flight = Flight::begin(self, state, piece);
        let mut is_kept = true;
        let read = self.cache.read(piece, &self.hints, || {
            is_kept = false;
            self.fetch(source, span, fetcher)
        });
        drop(flight);
        let bytes = read.map_err(|error| error.to_string())?;
        let counter = if is_kept { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok((is_kept, bytes))
    }

    fn next_expected(&self) -> Option<ByteRange> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            match state.expected.pop_front() {
                Some(span) => return Some(span),
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Fetches an announced chunk, unless it is cached or in flight.
    fn prepare(&self, span: ByteRange, fetcher: &mut Option<Remote>) {
        let Ok((piece, source)) = self.piece(span) else { return };
        if self.cache.has(piece) {
            return;
        }
        let mut state = self.lock();
        if state.flights.contains_key(&piece) || !state.announced.contains(&piece) {
            return;
        }
        if state.waiting > MOST_WAITING {
            // Their readers are gone, or far behind: they are fetched again if needed.
            state.flights.retain(|_, flight| flight.is_none());
            state.waiting = 0;
        }
        let mut flight = Flight::begin(self, state, piece);
        // After an error the reader tries again, and gets the error.
        flight.landed = self.cache.read(piece, &self.hints, || self.fetch(source, span, fetcher)).ok();
    }

    fn fetch(&self, source: &Source, span: ByteRange, fetcher: &mut Option<Remote>) -> io::Result<Vec<u8>> {
        let remote = match fetcher {
            Some(remote) => remote,
            None => {
                let opened = (self.opener)().map_err(|error| io::Error::other(told(&error)))?;
                fetcher.insert(opened.heard_at(&self.heard))
            }
        };
        let range = span.offset..span.offset + u64::from(span.bytes);
        remote.wait(source.fetch(remote, range)).map_err(|error| io::Error::other(told(&error)))
    }

    /// The number of a chunk, which is the same for all readers of the same version of the same object.
    fn piece(&self, span: ByteRange) -> Result<(u64, &Source), String> {
        let source = self.sources.get(span.file as usize).ok_or_else(|| format!("there is no file {}", span.file))?;
        let end = span.offset.checked_add(u64::from(span.bytes));
        if end.is_none_or(|end| end > source.bytes) || span.bytes == 0 {
            return Err(format!("`{}` has no {} bytes at {}", source.key, span.bytes, span.offset));
        }
        let Source { key, bytes, version, .. } = source;
        let version = version.as_deref().unwrap_or_default();
        let ContentHash(id) =
            ContentHash::of(format!("{key}\n{bytes}\n{version}\n{}\n{}", span.offset, span.bytes).as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = id;
        Ok((u64::from_le_bytes([a, b, c, d, e, f, g, h]), source))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error with its hint, for a reader that passes it on.
fn told(error: &crate::Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error} (hint: {hint})"),
        None => error.to_string(),
    }
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}
