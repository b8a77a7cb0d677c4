//! The head of a data set in chunks: the one object that changes, and so the moment at which a push becomes visible.
//!
//! ```text
//! gradus.json          names the manifest: a full one and at most seven patches on it
//! manifests/HASH       what makes a manifest from the one before it
//! bundles/HASH         pieces, about 64 MiB together
//! ```
//!
//! Everything but the head is named by the hash of its bytes and never changes. The head is replaced by
//! compare-and-swap (`remote::swap`), so of two concurrent pushes one is refused. A reader of the head has a complete
//! data set, whatever is pushed meanwhile: objects that a later head does not refer to are removed only after a grace
//! time ([`super::deletions`]).

use data::chunk::{self, ChunkManifest, ContentHash};
use object_store::PutMode;
use serde::{Deserialize, Serialize};

use crate::remote::Remote;
use crate::remote::swap::ObjectRevision;
use crate::{Error, Meter};

/// The name of the head.
pub(crate) use crate::terms::HEAD as NAME;

/// The version that is written, and the newest that is read.
const SCHEMA: u32 = 1;

/// Links of a manifest; the next push writes a full one.
const LONGEST_CHAIN: usize = 8;

/// No head is longer, and no stored manifest.
const LARGEST_HEAD: u64 = 64 << 10;
const LARGEST_LINK: u64 = 4 << 30;

/// The contents of the head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    schema: u32,
    /// How many files there are, and their bytes: for people.
    pub files: u64,
    pub bytes: u64,
    /// The full manifest, then the patches on it.
    manifest: Vec<Link>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Link {
    /// BLAKE3 of the stored bytes, which is its name.
    id: String,
    /// Their length, and that of the manifest which they make.
    stored: u64,
    raw: u64,
}

/// A head as it was read, with the objects that it refers to.
pub(crate) struct Found {
    pub head: Head,
    pub manifest: ChunkManifest,
    /// The manifest's bytes, which the next one is a patch on.
    raw: Vec<u8>,
    pub seen: ObjectRevision,
}

/// The data set found at a location.
pub(crate) enum Loaded {
    Nothing,
    Found(Box<Found>),
    /// A head that refers to unreadable objects, so that a push may replace it, and the error.
    Damaged(ObjectRevision, Error),
}

/// Reads the data set; `None` if there is none.
pub(crate) async fn load(remote: &Remote, meter: &Meter) -> Result<Option<Found>, Error> {
    match load_any(remote, meter).await? {
        Loaded::Nothing => Ok(None),
        Loaded::Found(found) => Ok(Some(*found)),
        Loaded::Damaged(_, error) => Err(error),
    }
}

/// The same; that it is damaged is no error.
pub(crate) async fn load_any(remote: &Remote, meter: &Meter) -> Result<Loaded, Error> {
    let Some((bytes, version)) = remote.get(NAME, LARGEST_HEAD).await? else { return Ok(Loaded::Nothing) };
    let seen = ObjectRevision { bytes, version };
    match read(remote, &seen.bytes, meter).await {
        Ok((head, manifest, raw)) => Ok(Loaded::Found(Box::new(Found { head, manifest, raw, seen }))),
        Err(error @ Error::Damaged { .. }) => Ok(Loaded::Damaged(seen, error)),
        Err(error) => Err(error),
    }
}

/// Parses a head; also returns the manifest that it refers to and its bytes.
async fn read(remote: &Remote, bytes: &[u8], meter: &Meter) -> Result<(Head, ChunkManifest, Vec<u8>), Error> {
    let damaged = |why: String| remote.damaged(NAME, why);
    if bytes.trim_ascii_start().starts_with(b"<") {
        let host = remote.host().map(|host| format!("`{host}`")).unwrap_or_else(|| "what answers there".to_owned());
        let message = format!("{host} answers with a web page instead of data, at `{}`", remote.address(NAME));
        return Err(Error::Usage {
            message,
            hint: "check the address, and the variable that names the endpoint".into(),
        });
    }
    let head: Head = serde_json::from_slice(bytes).map_err(|error| damaged(format!("it is no head: {error}")))?;
    if head.schema > SCHEMA {
        let message = format!("`{}` was pushed by a later version of gradus", remote.location());
        return Err(Error::Usage { message, hint: "use that version".into() });
    }
    if head.manifest.len() > LONGEST_CHAIN {
        return Err(damaged(format!("it names {} manifests", head.manifest.len())));
    }
    let mut raw = Vec::new();
    for link in &head.manifest {
        let id = ContentHash::parse(&link.id).ok_or_else(|| damaged(format!("`{}` is no hash", link.id)))?;
        let name = manifest_name(id);
        let stored = match remote.get(&name, link.stored.min(LARGEST_LINK)).await? {
            Some((stored, _)) if ContentHash::of(&stored) == id => stored,
            Some(_) => return Err(remote.damaged(&name, "its bytes are not those of its name")),
            None => return Err(remote.damaged(&name, "it is missing")),
        };
        meter.received(stored.len() as u64);
        raw = chunk::unpatch(&raw, &stored, link.raw).map_err(|defect| remote.damaged(&name, defect.to_string()))?;
    }
    let manifest = chunk::decode(&raw).map_err(|defect| damaged(format!("its manifest is refused: {defect}")))?;
    Ok((head, manifest, raw))
}

/// Commits `manifest` as the data set, replacing the one found or a damaged head; returns the bytes sent. The head is
/// swapped last, and only if no other process has done so meanwhile.
///
/// # Errors
/// [`Error::Raced`] if another process has.
pub(crate) async fn save(
    remote: &Remote,
    manifest: &ChunkManifest,
    found: Option<&Found>,
    damaged: Option<&ObjectRevision>,
) -> Result<u64, Error> {
    let raw = chunk::encode(manifest);
    let before = found.filter(|found| found.head.manifest.len() < LONGEST_CHAIN);
    let patch = |old: &[u8]| chunk::patch(old, &raw).map_err(|error| Error::Internal(error.to_string()));
    let stored = patch(before.map_or(&[], |found| &found.raw))?;
    let id = ContentHash::of(&stored);
    let link = Link { id: id.to_string(), stored: stored.len() as u64, raw: raw.len() as u64 };
    let mut links = before.map(|found| found.head.manifest.clone()).unwrap_or_default();
    links.push(link);
    let head = Head { schema: SCHEMA, files: manifest.files.len() as u64, bytes: manifest.bytes(), manifest: links };
    let text = serde_json::to_vec_pretty(&head).map_err(|error| Error::Internal(error.to_string()))?;
    let sent = (stored.len() + text.len()) as u64;
    remote.put(&manifest_name(id), stored, PutMode::Overwrite).await?;
    remote.swap(NAME, text, found.map(|found| &found.seen).or(damaged)).await?;
    Ok(sent)
}

impl Found {
    /// The names of the objects that the data set consists of.
    pub fn objects(&self) -> impl Iterator<Item = String> {
        let bundles = self.manifest.bundles.iter().map(|bundle| bundle_name(bundle.id));
        self.head.manifest.iter().map(|link| format!("manifests/{}", link.id)).chain(bundles)
    }
}

fn manifest_name(id: ContentHash) -> String {
    format!("manifests/{id}")
}

/// The name of a bundle's object.
pub(crate) fn bundle_name(id: ContentHash) -> String {
    format!("bundles/{id}")
}
