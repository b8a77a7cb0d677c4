//! Fetches chunks: neighbours in one request, every chunk verified before it is written.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data::chunk::{ChunkManifest, ChunkRef, CompressedFrame, ContentHash, frame};
use futures::{StreamExt, TryStreamExt, stream};

use crate::folder::Folder;
use crate::head::bundle_name;
use crate::remote::Remote;
use crate::{Error, Meter};

/// A position in a file that a chunk is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the file.
    pub file: usize,
    pub offset: u64,
}

/// A chunk to fetch, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Need {
    pub piece: ChunkRef,
    pub places: Vec<Place>,
}

impl Need {
    /// A chunk without positions yet.
    pub fn new(piece: ChunkRef) -> Need {
        Need { piece, places: Vec::new() }
    }
}

/// One request: a range of a bundle, and the chunks needed from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    pub bundle: u32,
    pub range: Range<u64>,
    needs: Vec<Need>,
}

/// Unneeded bytes between two chunks that are fetched anyway: a request costs about as much as this many bytes.
const GAP: u64 = 64 << 10;

/// Combines neighbours into requests of at most `part` bytes.
pub(crate) fn units(manifest: &ChunkManifest, needs: impl IntoIterator<Item = Need>, part: u64) -> Vec<Unit> {
    let mut placed: Vec<(u32, Range<u64>, Need)> = needs
        .into_iter()
        .map(|need| {
            let frame = manifest.frames[need.piece.frame as usize];
            (frame.bundle, stored_range(frame, need.piece), need)
        })
        .collect();
    placed.sort_by(|(a, at, _), (b, other, _)| (a, at.start, at.end).cmp(&(b, other.start, other.end)));
    let mut units: Vec<Unit> = Vec::new();
    for (bundle, range, need) in placed {
        if let Some(last) = units.last_mut()
            && last.bundle == bundle
            && range.start <= last.range.end + GAP
            && range.end - last.range.start <= part
        {
            last.range.end = last.range.end.max(range.end);
            last.needs.push(need);
            continue;
        }
        units.push(Unit { bundle, range, needs: vec![need] });
    }
    units
}

/// The stored range of a chunk: its own, or that of the compressed frame that contains it.
fn stored_range(frame: CompressedFrame, piece: ChunkRef) -> Range<u64> {
    let begin = u64::from(frame.offset);
    match frame.is_compressed() {
        true => begin..begin + u64::from(frame.stored),
        false => begin + u64::from(piece.at)..begin + u64::from(piece.at) + u64::from(piece.bytes),
    }
}

/// Fetches, verifies and writes all units into the unfinished files `parts`.
pub(super) async fn all(
    remote: &Remote,
    folder: Arc<Folder>,
    manifest: &ChunkManifest,
    units: Vec<Unit>,
    parts: Arc<[String]>,
    meter: &Meter,
) -> Result<(), Error> {
    let frames: Arc<[CompressedFrame]> = manifest.frames.as_slice().into();
    stream::iter(units)
        .map(|unit| {
            let (folder, frames, parts) = (folder.clone(), frames.clone(), parts.clone());
            let name = bundle_name(manifest.bundles[unit.bundle as usize].id);
            async move { one(remote, folder, frames, parts, name, unit, meter).await }
        })
        .buffer_unordered(remote.limits.streams)
        .try_collect()
        .await
}

async fn one(
    remote: &Remote,
    folder: Arc<Folder>,
    frames: Arc<[CompressedFrame]>,
    parts: Arc<[String]>,
    name: String,
    unit: Unit,
    meter: &Meter,
) -> Result<(), Error> {
    let mut rest = unit;
    // Data damaged in transit is fetched a second time.
    for _ in 0..2 {
        let arriving = Arc::new(Mutex::new(Arriving::new(rest)));
        let range = lock(&arriving).unit.range.clone();
        let poured = remote.pour(&name, range, None, |bytes| {
            meter.received(bytes.len() as u64);
            let (folder, frames, parts, arriving) = (folder.clone(), frames.clone(), parts.clone(), arriving.clone());
            let writing = tokio::task::spawn_blocking(move || lock(&arriving).take(&folder, &frames, &parts, &bytes));
            async move {
                let moved = writing.await.map_err(|error| Error::Internal(error.to_string()))??;
                meter.moved(moved);
                Ok(())
            }
        });
        poured.await?;
        match lock(&arriving).left(&frames) {
            None => return Ok(()),
            Some(left) => rest = left,
        }
    }
    Err(remote.damaged(&name, "its bytes are not those that the manifest names"))
}

fn lock(arriving: &Mutex<Arriving>) -> MutexGuard<'_, Arriving> {
    arriving.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A unit being received: complete chunks are verified and written at once, so that a kill loses only what is in
/// transit.
struct Arriving {
    unit: Unit,
    /// Bytes that came and may still be needed, and where in the bundle they begin.
    bytes: Vec<u8>,
    at: u64,
    /// Needs that are written.
    written: usize,
    /// Chunks that failed verification.
    wrong: Vec<Need>,
}

impl Arriving {
    fn new(unit: Unit) -> Arriving {
        Arriving { at: unit.range.start, unit, bytes: Vec::new(), written: 0, wrong: Vec::new() }
    }

    /// Takes the next bytes and writes the chunks that they complete; returns the bytes of data written.
    fn take(
        &mut self,
        folder: &Folder,
        frames: &[CompressedFrame],
        parts: &[String],
        bytes: &[u8],
    ) -> Result<u64, Error> {
        self.bytes.extend_from_slice(bytes);
        let come = self.at + self.bytes.len() as u64;
        let waiting = &self.unit.needs[self.written..];
        let range = |need: &Need| stored_range(frames[need.piece.frame as usize], need.piece);
        let complete = waiting.iter().take_while(|need| range(need).end <= come).count();
        if complete == 0 {
            return Ok(0);
        }
        let needs = waiting[..complete].to_vec();
        // Chunks of one frame are consecutive, and the next one may need the frame again.
        let keep_from = waiting.get(complete).map_or(come, |next| range(next).start.min(come));
        let unit = Unit { bundle: self.unit.bundle, range: self.at..come, needs };
        let moved = match write(folder, frames, parts, &unit, &self.bytes)? {
            Some(moved) => moved,
            None => {
                self.wrong.extend(unit.needs);
                0
            }
        };
        self.written += complete;
        self.bytes.drain(..(keep_from - self.at) as usize);
        self.at = keep_from;
        Ok(moved)
    }

    /// What must be fetched again; `None` if all is written.
    fn left(&self, frames: &[CompressedFrame]) -> Option<Unit> {
        let needs = [&self.wrong[..], &self.unit.needs[self.written..]].concat();
        let ranges = needs.iter().map(|need| stored_range(frames[need.piece.frame as usize], need.piece));
        let range = ranges.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))?;
        Some(Unit { bundle: self.unit.bundle, range, needs })
    }
}

/// Fetches a range of a bundle and passes it to `take`, which returns `None` if verification fails; then the range is
/// fetched a second time, in case it was damaged in transit.
///
/// # Errors
/// Errors of the network and of `take`; [`Error::Damaged`] if verification fails both times.
pub(crate) async fn verified<T, F>(
    remote: &Remote,
    name: &str,
    range: &Range<u64>,
    mut take: impl FnMut(Vec<u8>) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<Option<T>, Error>>,
{
    for _ in 0..2 {
        if let Some(taken) = take(remote.range(name, range.clone(), None).await?).await? {
            return Ok(taken);
        }
    }
    Err(remote.damaged(name, "its bytes are not those that the manifest names"))
}

/// Writes a unit; returns `None` if verification fails, in which case no unverified data was written.
fn write(
    folder: &Folder,
    frames: &[CompressedFrame],
    parts: &[String],
    unit: &Unit,
    bytes: &[u8],
) -> Result<Option<u64>, Error> {
    let mut open: Option<(usize, std::fs::File)> = None;
    let mut moved = 0;
    let is_whole = unpack(frames, unit, bytes, |Need { piece, places }, piece_bytes| {
        for place in places {
            let part = &parts[place.file];
            let refused = || Error::file("write", folder.path().join(part));
            let file = match &mut open {
                Some((number, file)) if *number == place.file => file,
                other => &mut other.insert((place.file, folder.write(part).map_err(refused())?)).1,
            };
            file.write_all_at(piece_bytes, place.offset).map_err(refused())?;
        }
        moved += u64::from(piece.bytes);
        Ok(())
    })?;
    Ok(is_whole.then_some(moved))
}

/// Passes on the bytes of each chunk of a unit, verified; returns whether all of them are intact.
pub(crate) fn unpack(
    frames: &[CompressedFrame],
    unit: &Unit,
    bytes: &[u8],
    mut hand_on: impl FnMut(&Need, &[u8]) -> Result<(), Error>,
) -> Result<bool, Error> {
    let mut unpacked: Option<(u32, Vec<u8>)> = None;
    for need in &unit.needs {
        let piece = need.piece;
        let frame = frames[piece.frame as usize];
        let stored = stored_range(frame, piece);
        let stored = &bytes[(stored.start - unit.range.start) as usize..(stored.end - unit.range.start) as usize];
        let piece_bytes = match frame.is_compressed() {
            false => stored,
            true => {
                if unpacked.as_ref().is_none_or(|(number, _)| *number != piece.frame) {
                    let Some(raw) = frame::decompress(stored, frame.raw as usize) else { return Ok(false) };
                    unpacked = Some((piece.frame, raw));
                }
                let raw = unpacked.as_ref().map_or(&[][..], |(_, raw)| raw);
                &raw[piece.at as usize..][..piece.bytes as usize]
            }
        };
        if ContentHash::of(piece_bytes) != piece.id {
            return Ok(false);
        }
        hand_on(need, piece_bytes)?;
    }
    Ok(true)
}
