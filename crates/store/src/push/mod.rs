//! Push: new data is sent, and the head is swapped last.
//!
//! Files are divided into chunks and hashed ([`scan`]), chunks that the remote data set or an interrupted push already
//! has are skipped, and new ones are laid out in bundles. The layout depends only on the order of the chunks, so a
//! killed push rebuilds the same bundles and resumes within them: `journal` records which are done and which parts of
//! the others are. Nothing is visible before the head, and losing the journal costs time only.

pub(crate) mod build;
mod journal;
mod layout;
pub(crate) mod plan;
mod scan;
mod upload;

use std::collections::HashSet;
use std::path::Path;

use data::chunk::{ChunkManifest, ChunkedFile, ContentHash};

use crate::head::{self, Found, Loaded};
use crate::inventory::Inventory;
use crate::lock::{Listing, Lock};
use crate::remote::Remote;
use crate::remote::swap::ObjectRevision;
use crate::source::{Local, walk};
use crate::{Error, Meter, Options, Pushed, StoreFormat, deletions, ends, plain};
use build::Built;
use journal::Journal;
use layout::{Places, adopt, append, drop_bundles, drop_unused, listed, places};
use plan::Wanted;
use scan::Scanned;

/// Sends the file or folder `source` to `remote`.
///
/// # Errors
/// [`Error`]. Sent data is retained, and the same call resumes.
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
            Err(Error::Usage { message, hint: "remove `--plain`, or name an empty location".into() })
        }
        (StoreFormat::Plain, Loaded::Nothing) => plain::push(source, &files, remote, options, meter),
        (StoreFormat::Chunks, _) => chunks(source, &files, remote, loaded, options, meter),
    }
}

/// Sends the new chunks of `files`, and those that are no longer stored there.
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
        Loaded::Damaged(seen, _) => (None, Some(seen)),
    };
    let mut journal = Journal::open(&options.journals, source, &remote.location().to_string(), options.dry_run)?;
    let mut manifest = found.as_ref().map(|found| found.manifest.clone()).unwrap_or_default();
    let inventory = remote.wait(Inventory::take(remote, &manifest, options.verify, meter))?;
    drop_bundles(&mut manifest, |bundle| !inventory.broken.contains_key(&bundle.id));
    let stored = manifest.files.split_off(0);
    adopt(&mut manifest, remote, &mut journal)?;
    let known = places(&stored, &journal, &manifest);
    let scanned = scan::scan(files, options.threads, &known.keys().copied().collect(), meter)?;
    let wanted = plan::bundles(&scanned, &known);
    let new_bytes = wanted.iter().flatten().map(|wanted| u64::from(wanted.bytes)).sum();
    meter.expect(new_bytes);
    let bytes = files.iter().map(|file| file.bytes).sum();
    let repaired = inventory.broken.len() as u64 + u64::from(damaged.is_some());
    let pushed = Pushed { files: files.len() as u64, bytes, new_bytes, repaired, ..Pushed::default() };
    if options.dry_run {
        return Ok(pushed);
    }
    let push = ChunkPush { files, remote, options, meter, found, damaged, scanned, inventory, manifest, known, pushed };
    let is_new = !wanted.is_empty() || push.is_new()?;
    let mut pushed = match is_new || options.delete {
        true => push.under_lock(wanted, &mut journal, is_new)?,
        false => push.unchanged()?,
    };
    journal.finish();
    pushed.sent = meter.read().sent;
    Ok(pushed)
}

/// A push whose work is planned.
struct ChunkPush<'a> {
    files: &'a [Local],
    remote: &'a Remote,
    options: &'a Options,
    meter: &'a Meter,
    /// The head that is replaced, or its damaged bytes.
    found: Option<Found>,
    damaged: Option<ObjectRevision>,
    scanned: Vec<Scanned>,
    inventory: Inventory,
    /// The bundles that are there, without files.
    manifest: ChunkManifest,
    known: Places,
    pushed: Pushed,
}

impl ChunkPush<'_> {
    /// Whether the head has to change although no chunk has to be sent.
    fn is_new(&self) -> Result<bool, Error> {
        let Some(Found { manifest, .. }) = &self.found else { return Ok(true) };
        let is_same = (&manifest.bundles, &manifest.frames) == (&self.manifest.bundles, &self.manifest.frames);
        Ok(!is_same || manifest.files != self.listed()?)
    }

    fn listed(&self) -> Result<Vec<ChunkedFile>, Error> {
        self.scanned.iter().map(|file| listed(file, &self.known)).collect()
    }

    /// All is there.
    fn unchanged(self) -> Result<Pushed, Error> {
        self.remote.wait(self.inventory.record(self.remote, &self.manifest, &HashSet::new(), &[]))?;
        Ok(self.pushed)
    }

    /// Sends, swaps the head and deletes while no removal of others may begin.
    fn under_lock(self, wanted: Vec<Bundled>, journal: &mut Journal, is_new: bool) -> Result<Pushed, Error> {
        let remote = self.remote;
        let id = journal.lock_id()?;
        remote.wait(async {
            let (lock, listing) = Lock::for_push(remote, id).await?;
            let pushed = lock.during(remote, self.send(wanted, journal, (&lock, listing, id), is_new)).await;
            lock.release(remote).await;
            pushed
        })
    }

    async fn send(
        mut self,
        wanted: Vec<Bundled>,
        journal: &mut Journal,
        (lock, listing, id): (&Lock, Listing, ContentHash),
        is_new: bool,
    ) -> Result<Pushed, Error> {
        let ChunkPush { remote, options, meter, .. } = self;
        let mut objects = listing.objects;
        self.inventory.relist(&objects);
        // Data of an interrupted push may have been removed before this lock existed.
        self.inventory.require(remote, &self.manifest)?;
        let built = upload::bundles(remote, self.files, wanted, &self.inventory, journal, meter).await?;
        for built in &built {
            self.pushed.objects += 1;
            append(&mut self.manifest, built, &mut self.known);
        }
        self.manifest.files = self.listed()?;
        let before: HashSet<String> = self.found.iter().flat_map(Found::objects).collect();
        if is_new {
            drop_unused(&mut self.manifest);
            lock.check(remote).await?;
            meter.sent(head::save(remote, &self.manifest, self.found.as_ref(), self.damaged.as_ref()).await?);
            self.pushed.objects += 2;
            objects = remote.list().await?;
            self.inventory.relist(&objects);
            self.inventory.require(remote, &self.manifest)?;
        }
        let sent = built.iter().map(|built| built.id).collect();
        self.inventory.record(remote, &self.manifest, &sent, &objects).await?;
        let bundles = self.manifest.bundles.iter().map(|bundle| head::bundle_name(bundle.id));
        let needed = bundles.chain(before.iter().cloned()).collect();
        deletions::keep(remote, &objects, &needed).await?;
        if options.delete {
            let grace = i64::try_from(options.grace.as_secs()).unwrap_or(i64::MAX);
            let lately = if is_new { before } else { HashSet::new() };
            let deleted = deletions::prune(remote, id, &lately, grace).await?;
            (self.pushed.removed, self.pushed.marked) = (deleted.removed, deleted.marked);
        }
        Ok(self.pushed)
    }
}

/// The chunks of one bundle, in order.
pub(crate) type Bundled = Vec<Wanted>;
