//! Updates a manifest: bundles are appended, and dropped once most of them are unneeded.

use std::collections::{HashMap, HashSet};

use data::chunk::{Bundle, ChunkManifest, ChunkRef, ChunkedFile, ContentHash};

use super::build::Built;
use super::journal::Journal;
use super::scan::Scanned;
use crate::remote::Remote;
use crate::{Error, head};

/// The position of each chunk.
pub(super) type Places = HashMap<ContentHash, ChunkRef>;

/// Takes the bundles into the manifest that an interrupted push has finished, if they are really there.
pub(super) fn adopt(manifest: &mut ChunkManifest, remote: &Remote, journal: &mut Journal) -> Result<(), Error> {
    let named: HashSet<ContentHash> = manifest.bundles.iter().map(|bundle| bundle.id).collect();
    let mut lost = Vec::new();
    for built in journal.finished() {
        if named.contains(&built.id) {
            lost.push(built.id);
            continue;
        }
        let there = remote.wait(remote.look(&head::bundle_name(built.id)))?;
        match there.is_some_and(|object| object.bytes == built.bytes) {
            true => built.add_to(manifest),
            false => lost.push(built.id),
        }
    }
    lost.into_iter().for_each(|id| journal.forget(id));
    Ok(())
}

/// The positions of chunks that need not be sent: those of stored files, and of an interrupted push.
pub(super) fn places(stored: &[ChunkedFile], journal: &Journal, manifest: &ChunkManifest) -> Places {
    let pieces = stored.iter().flat_map(|file| &file.pieces);
    let mut known: Places = pieces.map(|piece| (piece.id, *piece)).collect();
    for built in journal.finished() {
        let Some(first) = first_frame(manifest, built.id) else { continue };
        known.extend(built.pieces(first).map(|piece| (piece.id, piece)));
    }
    known
}

/// The number of a bundle's first frame.
fn first_frame(manifest: &ChunkManifest, id: ContentHash) -> Option<u32> {
    let bundle = manifest.bundles.iter().position(|bundle| bundle.id == id)?;
    manifest.frames.iter().position(|frame| frame.bundle as usize == bundle).map(|first| first as u32)
}

/// Appends a bundle that was sent, and records the positions of its chunks.
pub(super) fn append(manifest: &mut ChunkManifest, built: &Built, known: &mut Places) {
    let first = manifest.frames.len() as u32;
    built.add_to(manifest);
    known.extend(built.pieces(first).map(|piece| (piece.id, piece)));
}

/// A file as the manifest lists it.
pub(super) fn listed(file: &Scanned, known: &Places) -> Result<ChunkedFile, Error> {
    let pieces = file.chunks.iter().map(|chunk| known.get(&chunk.id).copied());
    let pieces = pieces.collect::<Option<Vec<ChunkRef>>>();
    let pieces = pieces.ok_or_else(|| Error::Internal(format!("a piece of `{}` was not sent", file.name)))?;
    Ok(ChunkedFile { name: file.name.clone(), bytes: file.bytes, pieces })
}

/// Drops bundles that no file needs, once they are the majority.
pub(super) fn drop_unused(manifest: &mut ChunkManifest) {
    let mut used = vec![false; manifest.bundles.len()];
    for piece in manifest.files.iter().flat_map(|file| &file.pieces) {
        used[manifest.frames[piece.frame as usize].bundle as usize] = true;
    }
    let unused = used.iter().filter(|used| !**used).count();
    if unused * 2 > used.len() {
        let mut used = used.into_iter();
        drop_bundles(manifest, |_| used.next().unwrap_or(false));
    }
}

/// Drops the bundles for which `keep` does not hold, with their frames and chunks, and renumbers the rest.
pub(super) fn drop_bundles(manifest: &mut ChunkManifest, keep: impl FnMut(&Bundle) -> bool) {
    let kept_bundles: Vec<bool> = manifest.bundles.iter().map(keep).collect();
    if kept_bundles.iter().all(|kept| *kept) {
        return;
    }
    let renumbered = |kept: &[bool]| -> Vec<u32> {
        let mut next = 0;
        let number = |kept: &bool| {
            let number = next;
            next += u32::from(*kept);
            number
        };
        kept.iter().map(number).collect()
    };
    let kept_frames: Vec<bool> = manifest.frames.iter().map(|frame| kept_bundles[frame.bundle as usize]).collect();
    let (bundles, frames) = (renumbered(&kept_bundles), renumbered(&kept_frames));
    for file in &mut manifest.files {
        file.pieces.retain(|piece| kept_frames[piece.frame as usize]);
    }
    let (mut of_bundles, mut of_frames) = (kept_bundles.iter().copied(), kept_frames.iter().copied());
    manifest.bundles.retain(|_: &Bundle| of_bundles.next().unwrap_or(false));
    manifest.frames.retain(|_| of_frames.next().unwrap_or(false));
    for frame in &mut manifest.frames {
        frame.bundle = bundles[frame.bundle as usize];
    }
    for piece in manifest.files.iter_mut().flat_map(|file| &mut file.pieces) {
        piece.frame = frames[piece.frame as usize];
    }
}
