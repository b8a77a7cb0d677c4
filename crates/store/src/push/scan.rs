//! Divides and hashes every file: small ones in parallel, large ones with all threads.

use std::collections::HashSet;
use std::fs::File;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use data::chunk::{self, Chunk, ContentHash};

use crate::source::Local;
use crate::{Error, Meter};

/// A file, cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scanned {
    pub name: String,
    pub bytes: u64,
    pub chunks: Vec<Chunk>,
}

/// From this length on, a file is cut by all threads.
const LARGE: u64 = 64 << 20;

/// Scans all files, in their order; `known` are the chunks that are stored already.
pub(super) fn scan(
    files: &[Local],
    threads: NonZero<usize>,
    known: &HashSet<ContentHash>,
    meter: &Meter,
) -> Result<Vec<Scanned>, Error> {
    let slots: Vec<Mutex<Option<Result<Scanned, Error>>>> = files.iter().map(|_| Mutex::new(None)).collect();
    let fill = |index: usize, threads: NonZero<usize>| {
        let result = cut(&files[index], threads, known);
        meter.looked_through(files[index].bytes);
        if let Ok(mut slot) = slots[index].lock() {
            *slot = Some(result);
        }
    };
    let (large, small): (Vec<usize>, Vec<usize>) = (0..files.len()).partition(|index| files[*index].bytes >= LARGE);
    for index in large {
        fill(index, threads);
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(index) = small.get(next.fetch_add(1, Ordering::Relaxed)) {
            fill(*index, NonZero::<usize>::MIN);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.get().min(small.len()) {
            scope.spawn(work);
        }
        work();
    });
    let lost = || Error::Internal("a thread that cuts files has failed".into());
    slots.into_iter().map(|slot| slot.into_inner().ok().flatten().ok_or_else(lost)?).collect()
}

fn cut(file: &Local, threads: NonZero<usize>, known: &HashSet<ContentHash>) -> Result<Scanned, Error> {
    let opened = File::open(&file.path).map_err(Error::file("open", &file.path))?;
    let chunks = chunk::scan(&opened, threads, |id| known.contains(&id)).map_err(Error::file("read", &file.path))?;
    let bytes = chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum();
    Ok(Scanned { name: file.name.clone(), bytes, chunks })
}
