//! The files of a data set, and how ranges of them are fetched: from plain objects, or from chunks, which are combined
//! and verified.

use std::ops::Range;
use std::sync::Arc;

use data::chunk::{ChunkManifest, ChunkRef, CompressedFrame, ContentHash};

use crate::pull::fetch::{Need, Place, Unit, units, unpack, verified};
use crate::remote::{Object, Remote};
use crate::{Error, head};

/// A file that is read from.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// Its path below the folder of the data set.
    pub name: String,
    /// Its key; in chunks it has none, and this is its name.
    pub key: String,
    pub bytes: u64,
    /// What changes whenever its bytes do, as far as that is known.
    pub version: Option<String>,
    pub pieces: Option<Pieces>,
}

/// The chunks of a file that was pushed in chunks.
#[derive(Debug, Clone)]
pub(super) struct Pieces {
    manifest: Arc<ChunkManifest>,
    /// Index of the file in the manifest.
    file: usize,
    /// Offset of each of its chunks.
    starts: Arc<[u64]>,
}

impl Source {
    /// An object.
    pub fn object(key: String, object: &Object) -> Source {
        Source { name: object.name.clone(), key, bytes: object.bytes, version: object.etag.clone(), pieces: None }
    }

    /// All files of a data set in chunks.
    pub fn of_chunks(manifest: ChunkManifest) -> Vec<Source> {
        let manifest = Arc::new(manifest);
        let files = manifest.files.iter().enumerate();
        let files = files.map(|(number, file)| {
            let begin = |at: &mut u64, piece: &ChunkRef| {
                *at += u64::from(piece.bytes);
                Some(*at - u64::from(piece.bytes))
            };
            let starts = file.pieces.iter().scan(0, begin).collect();
            let ids: Vec<u8> = file.pieces.iter().flat_map(|piece| piece.id.0).collect();
            let pieces = Pieces { manifest: Arc::clone(&manifest), file: number, starts };
            let version = Some(ContentHash::of(&ids).to_string());
            let name = file.name.clone();
            Source { key: name.clone(), name, bytes: file.bytes, version, pieces: Some(pieces) }
        });
        files.collect()
    }

    /// Fetches a range within the file.
    pub async fn fetch(&self, remote: &Remote, range: Range<u64>) -> Result<Vec<u8>, Error> {
        match &self.pieces {
            // No range of an object is empty.
            _ if range.is_empty() => Ok(Vec::new()),
            None => remote.range(&self.key, range, self.version.as_deref()).await,
            Some(pieces) => pieces.fetch(remote, range).await,
        }
    }
}

impl Pieces {
    async fn fetch(&self, remote: &Remote, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let ChunkManifest { bundles, frames, files } = &*self.manifest;
        let first = self.starts.partition_point(|start| *start <= range.start).saturating_sub(1);
        let from = files[self.file].pieces.iter().zip(self.starts.iter()).skip(first);
        let needs = from.take_while(|(_, start)| **start < range.end).map(|(piece, start)| {
            let place = Place { file: self.file, offset: *start };
            Need { piece: *piece, places: vec![place] }
        });
        let mut bytes = vec![0; (range.end - range.start) as usize];
        for unit in units(&self.manifest, needs, remote.limits.part) {
            let name = head::bundle_name(bundles[unit.bundle as usize].id);
            let take = |fetched: Vec<u8>| {
                let is_right = whole(frames, &unit, &fetched, &range, &mut bytes);
                std::future::ready(is_right.map(|is_right| is_right.then_some(())))
            };
            verified(remote, &name, &unit.range, take).await?;
        }
        Ok(bytes)
    }
}

/// Copies the part of a range that a unit contains; returns whether all of it is intact.
fn whole(
    frames: &[CompressedFrame],
    unit: &Unit,
    fetched: &[u8],
    range: &Range<u64>,
    bytes: &mut [u8],
) -> Result<bool, Error> {
    unpack(frames, unit, fetched, |need, piece| {
        for Place { offset, .. } in &need.places {
            let (from, to) = (range.start.max(*offset), range.end.min(offset + piece.len() as u64));
            if from < to {
                let shown = &piece[(from - offset) as usize..(to - offset) as usize];
                bytes[(from - range.start) as usize..][..shown.len()].copy_from_slice(shown);
            }
        }
        Ok(())
    })
}
