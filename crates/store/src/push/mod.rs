//! From here to there: what is new is sent, and the head is swapped last.
//!
//! Files are cut and named ([`scan`]), pieces that the remote data set or an interrupted push has already are left
//! out, and what is new is laid out in bundles. The layout depends on nothing but the order of the pieces, so a push
//! that was killed makes the same bundles again and goes on within them: `journal` holds which are done and which parts
//! of the others are. Nothing is visible before the head, and losing the journal costs time only.

mod build;
mod journal;
mod plan;
mod scan;
mod upload;

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};

use data::chunk::{Bundle, ChunkManifest, ChunkRef, ChunkedFile, ContentHash};

use crate::head::{self, Loaded};
use crate::inventory::Inventory;
use crate::remote::Remote;
use crate::source::{Local, walk};
use crate::{Error, Meter, ends, plain};
use build::Built;
use journal::Journal;
use plan::Wanted;
use scan::Scanned;

/// How a data set is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreFormat {
    /// As chunks in bundles: only what is new travels.
    #[default]
    Chunks,
    /// A file an object, for programs that know nothing of gradus.
    Plain,
}

/// How to push or pull.
#[derive(Debug, Clone)]
pub struct Options {
    /// How it is stored; a pull sees for itself.
    pub form: StoreFormat,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Remove at the target what the source does not have.
    pub delete: bool,
    /// Read all that is stored at the target already, rather than go by a listing; for a push of chunks.
    pub verify: bool,
    /// Threads that cut, hash and compress.
    pub threads: NonZero<usize>,
    /// Folder of ours for what must outlive the process.
    pub journals: PathBuf,
}

/// What a push did, or would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pushed {
    /// Files of the data set.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them that are not there yet, before compression.
    pub new_bytes: u64,
    /// Bytes that went over the network, as they were stored; 0 in a dry run.
    pub sent: u64,
    /// Objects that were written; 0 in a dry run.
    pub objects: u64,
    /// Objects that were removed; 0 in a dry run.
    pub removed: u64,
    /// Stored objects that were found missing or damaged, and were replaced.
    pub repaired: u64,
}

/// Sends the file or folder `source` to `remote`.
///
/// # Errors
/// [`Error`]. What was sent stays, and the same call goes on from there.
pub fn push(source: &Path, remote: &Remote, options: &Options, meter: &Meter) -> Result<Pushed, Error> {
    ends::may_push(source, remote.location())?;
    let files = walk(source)?;
    if files.is_empty() {
        let message = format!("there are no files in `{}`", source.display());
        return Err(Error::Usage { message, hint: "name a folder with files in it, or a file".into() });
    }
    if !remote.can_write() {
        let message = format!("`{}` can only be read", remote.location());
        return Err(Error::Usage { message, hint: "push to a folder or an object store".into() });
    }
    let loaded = remote.wait(head::load_any(remote, meter))?;
    match (options.form, &loaded) {
        (StoreFormat::Plain, Loaded::Found(_) | Loaded::Damaged(..)) => {
            let message = format!("`{}` holds a data set in chunks", remote.location());
            Err(Error::Usage { message, hint: "leave `--plain` out, or name an empty place".into() })
        }
        (StoreFormat::Plain, Loaded::Nothing) => plain::push(source, &files, remote, options, meter),
        (StoreFormat::Chunks, _) => chunks(source, &files, remote, loaded, options, meter),
    }
}

/// Sends what is new of `files` as chunks, and what is stored there no longer.
fn chunks(
    source: &Path,
    files: &[Local],
    remote: &Remote,
    loaded: Loaded,
    options: &Options,
    meter: &Meter,
) -> Result<Pushed, Error> {
    let (found, damaged) = match loaded {
        Loaded::Nothing => (None, None),
        Loaded::Found(found) => (Some(*found), None),
        Loaded::Damaged(version, _) => (None, Some(version)),
    };
    let mut journal = Journal::open(&options.journals, source, &remote.location().to_string(), options.dry_run)?;
    let mut manifest = found.as_ref().map(|found| found.manifest.clone()).unwrap_or_default();
    let inventory = remote.wait(Inventory::take(remote, &manifest, options.verify, meter))?;
    drop_bundles(&mut manifest, |bundle| !inventory.broken.contains_key(&bundle.id));
    let stored = manifest.files.split_off(0);
    adopt(&mut manifest, remote, &mut journal)?;
    let mut known = places(&stored, &journal, &manifest);
    let scanned = scan::scan(files, options.threads, &known.keys().copied().collect(), meter)?;
    let wanted = plan::bundles(&scanned, &known);
    let new_bytes = wanted.iter().flatten().map(|wanted| u64::from(wanted.bytes)).sum();
    meter.expect(new_bytes);
    let bytes = files.iter().map(|file| file.bytes).sum();
    let repaired = inventory.broken.len() as u64 + u64::from(damaged.is_some());
    let mut pushed = Pushed { files: files.len() as u64, bytes, new_bytes, repaired, ..Pushed::default() };
    if options.dry_run {
        return Ok(pushed);
    }
    let built = remote.wait(upload::bundles(remote, files, wanted, &inventory, &mut journal, meter))?;
    for built in &built {
        pushed.objects += 1;
        append(&mut manifest, built, &mut known);
    }
    manifest.files = scanned.iter().map(|file| listed(file, &known)).collect::<Result<_, _>>()?;
    let is_new = found.as_ref().is_none_or(|found| found.manifest != manifest);
    if is_new {
        drop_unused(&mut manifest);
        let sent = remote.wait(async {
            match damaged {
                Some(version) => head::replace(remote, &manifest, version).await,
                None => head::save(remote, &manifest, found.as_ref()).await,
            }
        })?;
        meter.sent(sent);
        pushed.objects += 2;
    }
    let sent = built.iter().map(|built| built.id).collect();
    remote.wait(inventory.record(remote, &manifest, &sent))?;
    journal.finish();
    if options.delete {
        pushed.removed = remote.wait(prune(remote, &manifest))?;
    }
    pushed.sent = meter.read().sent;
    Ok(pushed)
}

/// Where a piece lies.
type Places = HashMap<ContentHash, ChunkRef>;

/// Takes the bundles into the manifest that an interrupted push has finished, if they are really there.
fn adopt(manifest: &mut ChunkManifest, remote: &Remote, journal: &mut Journal) -> Result<(), Error> {
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

/// Where every piece lies that need not be sent: those of the files that are stored, and of an interrupted push.
fn places(stored: &[ChunkedFile], journal: &Journal, manifest: &ChunkManifest) -> Places {
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

fn append(manifest: &mut ChunkManifest, built: &Built, known: &mut Places) {
    let first = manifest.frames.len() as u32;
    built.add_to(manifest);
    known.extend(built.pieces(first).map(|piece| (piece.id, piece)));
}

fn listed(file: &Scanned, known: &Places) -> Result<ChunkedFile, Error> {
    let pieces = file.chunks.iter().map(|chunk| known.get(&chunk.id).copied());
    let pieces = pieces.collect::<Option<Vec<ChunkRef>>>();
    let pieces = pieces.ok_or_else(|| Error::Internal(format!("a piece of `{}` was not sent", file.name)))?;
    Ok(ChunkedFile { name: file.name.clone(), bytes: file.bytes, pieces })
}

/// Leaves out bundles that no file needs any more, once they are most of what is stored.
fn drop_unused(manifest: &mut ChunkManifest) {
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

/// Leaves out the bundles for which `keep` does not hold, with their frames and pieces; numbers change then.
fn drop_bundles(manifest: &mut ChunkManifest, keep: impl FnMut(&Bundle) -> bool) {
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

/// Removes the objects of ours that the data set no longer needs.
async fn prune(remote: &Remote, manifest: &ChunkManifest) -> Result<u64, Error> {
    let Some(found) = head::load(remote, &Meter::default()).await? else { return Ok(0) };
    let mut needed: HashSet<String> = found.head.manifests().collect();
    needed.extend(manifest.bundles.iter().map(|bundle| head::bundle_name(bundle.id)));
    let mut removed = 0;
    for object in remote.list().await? {
        let is_ours = object.name.starts_with("bundles/") || object.name.starts_with("manifests/");
        if is_ours && !needed.contains(&object.name) {
            remote.remove(&object.name).await?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The pieces of one bundle, in order.
type Bundled = Vec<Wanted>;
