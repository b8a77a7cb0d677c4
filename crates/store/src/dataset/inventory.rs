//! The intact bundles of a data set at its destination.
//!
//! A listing shows whether each exists with the expected length. `bundles.json` records the version (ETag) under which
//! a bundle was written or last verified; one listed under another version was changed, so it is read and hashed.
//! Losing that record costs time only.

use std::collections::{BTreeMap, HashMap, HashSet};

use data::chunk::{Bundle, ChunkManifest, ContentHash};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::PutMode;
use serde::{Deserialize, Serialize};

use crate::head::bundle_name;
use crate::remote::{Object, Remote};
use crate::{Checked, Error, Meter};

/// The name of the record.
const NAME: &str = "bundles.json";
const SCHEMA: u32 = 1;
/// A larger record is passed over: 80 million samples take a tenth of it.
const LARGEST: u64 = 64 << 20;

/// Versions of bundles whose contents were verified.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    schema: u32,
    versions: BTreeMap<String, String>,
}

/// The objects at the destination.
pub(crate) struct Inventory {
    listed: HashMap<String, Object>,
    /// Versions known to be right, by the name of the bundle's object.
    verified: BTreeMap<String, String>,
    recorded: BTreeMap<String, String>,
    /// Bundles of the manifest that cannot be read, and why.
    pub broken: BTreeMap<ContentHash, String>,
}

/// State of a bundle according to the listing.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Sound,
    /// Its contents must be read to decide.
    Unknown,
    Broken(String),
}

/// Judges a bundle by its listing and its recorded version. With `verify`, only its contents count.
fn judge(bundle: &Bundle, listed: Option<&Object>, recorded: Option<&String>, verify: bool) -> Verdict {
    match listed {
        None => Verdict::Broken("it is missing".into()),
        Some(object) if object.bytes != bundle.bytes => {
            Verdict::Broken(format!("it has {} bytes, not {}", object.bytes, bundle.bytes))
        }
        Some(_) if verify => Verdict::Unknown,
        Some(object) => match (recorded, &object.etag) {
            (Some(recorded), Some(etag)) if recorded != etag => Verdict::Unknown,
            (_, _) => Verdict::Sound,
        },
    }
}

impl Inventory {
    /// Looks at the destination of the bundles of `manifest`; reads those that a listing cannot vouch for.
    ///
    /// # Errors
    /// Of the network.
    pub async fn take(
        remote: &Remote,
        manifest: &ChunkManifest,
        verify: bool,
        meter: &Meter,
    ) -> Result<Inventory, Error> {
        let listed = listed(remote, manifest).await?;
        let recorded = match remote.get(NAME, LARGEST).await {
            Ok(Some((bytes, _))) => serde_json::from_slice::<Record>(&bytes).unwrap_or_default(),
            Ok(None) | Err(Error::Damaged { .. }) => Record::default(),
            Err(error) => return Err(error),
        };
        let recorded = if recorded.schema == SCHEMA { recorded.versions } else { BTreeMap::new() };
        let (mut broken, mut unknown) = (BTreeMap::new(), Vec::new());
        let mut verified = recorded.clone();
        for bundle in &manifest.bundles {
            let name = bundle_name(bundle.id);
            match judge(bundle, listed.get(&name), recorded.get(&name), verify) {
                Verdict::Sound => {}
                Verdict::Unknown => unknown.push(*bundle),
                Verdict::Broken(why) => drop(broken.insert(bundle.id, why)),
            }
        }
        let read = stream::iter(unknown).map(|bundle| async move {
            let is_right = is_right(remote, &bundle, meter).await?;
            Ok::<(ContentHash, bool), Error>((bundle.id, is_right))
        });
        let read: Vec<(ContentHash, bool)> = read.buffer_unordered(remote.limits.streams).try_collect().await?;
        for (id, is_right) in read {
            let name = bundle_name(id);
            match (is_right, listed.get(&name).and_then(|object| object.etag.clone())) {
                (true, Some(etag)) => drop(verified.insert(name, etag)),
                (true, None) => {}
                (false, _) => drop(broken.insert(id, "its bytes are not those of its name".into())),
            }
        }
        for id in broken.keys() {
            verified.remove(&bundle_name(*id));
        }
        Ok(Inventory { listed, verified, recorded, broken })
    }

    /// Whether an object exists in the version that was written or verified, so that it need not be sent again.
    pub fn has(&self, name: &str, bytes: u64) -> bool {
        let listed = self.listed.get(name).filter(|object| object.bytes == bytes);
        listed.is_some_and(|object| object.etag.is_some() && object.etag.as_ref() == self.verified.get(name))
    }

    /// Takes a later listing.
    pub fn relist(&mut self, objects: &[Object]) {
        self.listed = by_name(objects.to_vec());
    }

    /// Checks that the bundles of `manifest` are listed.
    ///
    /// # Errors
    /// [`Error::Raced`] if one is not, because another process has removed it.
    pub fn require(&self, remote: &Remote, manifest: &ChunkManifest) -> Result<(), Error> {
        for bundle in &manifest.bundles {
            let name = bundle_name(bundle.id);
            if self.listed.get(&name).is_none_or(|object| object.bytes != bundle.bytes) {
                return Err(Error::Raced { location: remote.address(&name) });
            }
        }
        Ok(())
    }

    /// Records the versions of the bundles of `manifest` of which `sent` were written just now, and are in `listing`.
    ///
    /// # Errors
    /// Of the network.
    pub async fn record(
        mut self,
        remote: &Remote,
        manifest: &ChunkManifest,
        sent: &HashSet<ContentHash>,
        listing: &[Object],
    ) -> Result<(), Error> {
        let sent: HashSet<String> = sent.iter().map(|id| bundle_name(*id)).collect();
        for object in listing.iter().filter(|object| sent.contains(&object.name)) {
            self.verified.extend(object.etag.clone().map(|etag| (object.name.clone(), etag)));
        }
        let named: HashSet<String> = manifest.bundles.iter().map(|bundle| bundle_name(bundle.id)).collect();
        self.verified.retain(|name, _| named.contains(name));
        if self.verified == self.recorded {
            return Ok(());
        }
        let record = Record { schema: SCHEMA, versions: self.verified };
        let text = serde_json::to_vec(&record).map_err(|error| Error::Internal(error.to_string()))?;
        remote.put(NAME, text, PutMode::Overwrite).await.map(drop)
    }
}

/// The objects at the destination; if it cannot be listed, those in the manifest.
async fn listed(remote: &Remote, manifest: &ChunkManifest) -> Result<HashMap<String, Object>, Error> {
    if remote.can_list() {
        return Ok(by_name(remote.list().await?));
    }
    let names = manifest.bundles.iter().map(|bundle| bundle_name(bundle.id));
    let looked = stream::iter(names).map(|name| async move { remote.look(&name).await });
    let found: Vec<Option<Object>> = looked.buffer_unordered(remote.limits.streams).try_collect().await?;
    Ok(by_name(found.into_iter().flatten()))
}

fn by_name(objects: impl IntoIterator<Item = Object>) -> HashMap<String, Object> {
    objects.into_iter().map(|object| (object.name.clone(), object)).collect()
}

/// Reads a bundle and compares its hash with its name.
async fn is_right(remote: &Remote, bundle: &Bundle, meter: &Meter) -> Result<bool, Error> {
    let mut hash = blake3::Hasher::new();
    let name = bundle_name(bundle.id);
    let read = remote.whole(&name, bundle.bytes, |at, bytes| {
        // A connection that broke begins again.
        if at == 0 {
            hash.reset();
        }
        hash.update(bytes);
        meter.received(bytes.len() as u64);
        Ok(())
    });
    match read.await {
        Ok(()) => Ok(ContentHash(*hash.finalize().as_bytes()) == bundle.id),
        Err(Error::Damaged { .. } | Error::Missing { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Checks whether the data set in chunks at `remote` can be fetched: by one listing, or with `verify` by reading all of
/// it.
///
/// # Errors
/// [`Error`] on network errors, or if there is no data set in chunks.
pub fn check(remote: &Remote, verify: bool, meter: &Meter) -> Result<Checked, Error> {
    let found = match remote.wait(crate::head::load(remote, meter)) {
        Ok(Some(found)) => found,
        Ok(None) => {
            let hint = "name a data set that `gradus data push` sent; one of plain files has nothing to check".into();
            return Err(Error::Missing { location: remote.location().to_string(), hint });
        }
        // Without a manifest nothing can be fetched.
        Err(Error::Damaged { location, why }) => {
            return Ok(Checked { broken: vec![(location, why)], ..Checked::default() });
        }
        Err(error) => return Err(error),
    };
    let manifest = &found.manifest;
    let inventory = remote.wait(Inventory::take(remote, manifest, verify, meter))?;
    let is_lost = |file: &&data::chunk::ChunkedFile| {
        let bundles = file.pieces.iter().map(|piece| manifest.frames[piece.frame as usize].bundle as usize);
        bundles.into_iter().any(|bundle| inventory.broken.contains_key(&manifest.bundles[bundle].id))
    };
    Ok(Checked {
        files: manifest.files.len() as u64,
        bytes: manifest.bytes(),
        bundles: manifest.bundles.len() as u64,
        lost: manifest.files.iter().filter(is_lost).map(|file| file.name.clone()).collect(),
        broken: inventory.broken.iter().map(|(id, why)| (remote.address(&bundle_name(*id)), why.clone())).collect(),
    })
}
