//! The parts of a data set that are already in the target.

use std::collections::HashSet;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use data::chunk::{self, ChunkManifest, ChunkRef, ChunkedFile, ContentHash};

use super::{Elsewhere, is_right, part_name};
use crate::folder::Folder;
use crate::{Error, Meter};

/// How far a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// It is in place, and every chunk is intact.
    Whole,
    /// It does not; these of its pieces lie in its unfinished form.
    Unfinished { right: Vec<bool> },
}

impl State {
    /// Approximate bytes that already take up space, assuming 64 KiB per chunk.
    pub fn bytes_there(&self) -> u64 {
        match self {
            State::Whole => 0,
            State::Unfinished { right } => right.iter().filter(|right| **right).count() as u64 * (64 << 10),
        }
    }
}

/// Result of the survey.
pub(super) struct Survey {
    /// A state a file.
    pub states: Vec<State>,
    /// Chunks of changed files, wherever they are.
    pub elsewhere: Elsewhere,
}

/// Result for one file; `None` until a thread has checked it.
type Looked = Mutex<Option<Result<(State, Elsewhere), Error>>>;

/// Looks through the target with all threads.
pub(super) fn survey(
    folder: &Folder,
    manifest: &ChunkManifest,
    threads: NonZero<usize>,
    meter: &Meter,
) -> Result<Survey, Error> {
    let results: Vec<Looked> = manifest.files.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((file, result)) = {
            let taken = next.fetch_add(1, Ordering::Relaxed);
            manifest.files.get(taken).zip(results.get(taken))
        } {
            let looked = look(folder, file, meter);
            if let Ok(mut result) = result.lock() {
                *result = Some(looked);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.get().min(manifest.files.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut survey = Survey { states: Vec::with_capacity(manifest.files.len()), elsewhere: Elsewhere::new() };
    let lost = || Error::Internal("a thread that looks through files has failed".into());
    for result in results {
        let (state, pieces) = result.into_inner().ok().flatten().ok_or_else(lost)??;
        survey.states.push(state);
        survey.elsewhere.extend(pieces);
    }
    Ok(survey)
}

fn look(folder: &Folder, file: &ChunkedFile, meter: &Meter) -> Result<(State, Elsewhere), Error> {
    let refused = |name: &str| Error::file("read", folder.path().join(name));
    let mut elsewhere = Elsewhere::new();
    if let Some(placed) = folder.read(&file.name).map_err(refused(&file.name))? {
        let bytes = placed.metadata().map_err(refused(&file.name))?.len();
        meter.looked_through(bytes);
        if bytes == file.bytes && rights(&placed, file).iter().all(|right| *right) {
            return Ok((State::Whole, elsewhere));
        }
        // Cut as it was cut when it was pushed, so that what moved within it is found.
        let name: std::sync::Arc<str> = file.name.as_str().into();
        let known: HashSet<ContentHash> = file.pieces.iter().map(|piece| piece.id).collect();
        let is_known = |id| known.contains(&id);
        let chunks = chunk::scan(&placed, NonZero::<usize>::MIN, is_known).map_err(refused(&file.name))?;
        elsewhere.extend(chunks.into_iter().map(|chunk| (chunk.id, (name.clone(), chunk.offset))));
    }
    let part = part_name(&file.name);
    let right = match folder.read(&part).map_err(refused(&part))? {
        Some(unfinished) => rights(&unfinished, file),
        None => Vec::new(),
    };
    Ok((State::Unfinished { right }, elsewhere))
}

/// Which chunks of `file` are at their positions in `opened`.
fn rights(opened: &std::fs::File, file: &ChunkedFile) -> Vec<bool> {
    let (mut offset, mut buffer) = (0, Vec::new());
    let right = |piece: &ChunkRef| {
        let at = offset;
        offset += u64::from(piece.bytes);
        is_right(opened, at, piece.id, &mut buffer, piece.bytes)
    };
    file.pieces.iter().map(right).collect()
}

/// Copies a chunk from another file in the target; returns whether it was still intact.
pub(super) fn copy(
    folder: &Folder,
    (source, offset): &(std::sync::Arc<str>, u64),
    piece: ChunkRef,
    part: &str,
    at: u64,
) -> Result<bool, Error> {
    let Some(file) = folder.read(source).map_err(Error::file("read", folder.path().join(&**source)))? else {
        return Ok(false);
    };
    let mut bytes = Vec::new();
    if !is_right(&file, *offset, piece.id, &mut bytes, piece.bytes) {
        return Ok(false);
    }
    let target = folder.write(part).and_then(|file| file.write_all_at(&bytes, at));
    target.map_err(Error::file("write", folder.path().join(part)))?;
    debug_assert_eq!(ContentHash::of(&bytes), piece.id);
    Ok(true)
}
