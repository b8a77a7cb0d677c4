//! An opened location: objects by key, with retries.
//!
//! The client below retries single requests; this module retries the complete transfer of an object or a part, because
//! a connection may also break in the middle. Refused requests and missing objects are errors at once.

mod dialect;
pub mod endpoint;
pub mod failure;
pub(crate) mod heard;
mod listing;
pub mod open;
mod patience;
mod received;
pub mod swap;
pub mod tls;
mod told;
pub(crate) mod upload;
pub mod web;
mod write;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::TryStreamExt;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Attribute, Error as StoreError, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, UpdateVersion,
};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::endpoint::Endpoint;
use crate::failure::{NO_LIST, chain, generic, names_bucket, status};
use crate::location::Location;
use crate::{Error, Limits};
use heard::LastHeard;
use listing::UnreadableKeys;

/// The interface for uploads in parts that outlive a process, where the service has one.
pub(crate) type Multipart = Option<Arc<dyn MultipartStore>>;

/// Bytes of a range that are passed on at a time: few enough that a kill loses little, and enough to be worth a write.
pub(crate) const GRAIN: usize = 512 << 10;

/// How a range ended.
enum Ending {
    Whole,
    /// The object is only so long.
    Short(u64),
    /// The consumer returned an error.
    Refused(Error),
}

/// An opened location.
pub struct Remote {
    location: Location,
    store: Arc<dyn ObjectStore>,
    pub(crate) multipart: Multipart,
    prefix: Path,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) limits: Limits,
    /// The host that requests go to, if it is a single one without proxy.
    pub(crate) endpoint: Option<Endpoint>,
    /// Whether anything was answered yet.
    is_reached: AtomicBool,
    /// Keys that its listings left out.
    unreadable: UnreadableKeys,
    heard: LastHeard,
}

/// An object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    /// Its key below the location.
    pub name: String,
    pub bytes: u64,
    pub etag: Option<String>,
    /// When it was written, in seconds by the clock of the store.
    pub written: i64,
}

impl Object {
    fn of(name: String, meta: ObjectMeta) -> Object {
        Object { name, bytes: meta.size, etag: meta.e_tag, written: meta.last_modified.timestamp() }
    }
}

impl Remote {
    pub(crate) fn new(
        location: Location,
        store: Arc<dyn ObjectStore>,
        multipart: Multipart,
        prefix: Path,
        limits: Limits,
    ) -> Result<Remote, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = Arc::new(runtime.map_err(|error| Error::Internal(error.to_string()))?);
        let (is_reached, unreadable, heard) = (AtomicBool::new(false), UnreadableKeys::default(), LastHeard::default());
        Ok(Remote {
            location,
            store,
            multipart,
            prefix,
            runtime,
            limits,
            endpoint: None,
            is_reached,
            unreadable,
            heard,
        })
    }

    /// The same, of which it is known whom requests go to.
    pub(crate) fn behind(self, endpoint: Option<Endpoint>) -> Remote {
        Remote { endpoint, ..self }
    }

    /// The same, whose client notes there which keys it leaves out.
    fn noting(self, unreadable: UnreadableKeys) -> Remote {
        Remote { unreadable, ..self }
    }

    /// The same, which notes there when bytes come.
    pub(crate) fn heard_at(self, heard: &LastHeard) -> Remote {
        Remote { heard: heard.clone(), ..self }
    }

    /// Keys that the listings so far left out, because no file can have them: with an empty part, `.` or `..`.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        self.unreadable.all()
    }

    /// Host and port that requests go to, if known.
    pub fn host(&self) -> Option<String> {
        self.endpoint.as_ref().map(Endpoint::to_string)
    }

    /// Where it is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Whether objects can be stored there at all.
    pub(crate) fn can_write(&self) -> bool {
        !matches!(self.location, Location::Web { .. })
    }

    /// Whether objects can be listed.
    pub(crate) fn can_list(&self) -> bool {
        !matches!(self.location, Location::Web { .. })
    }

    /// The full key of `name` below the location.
    pub(crate) fn path(&self, name: &str) -> Result<Path, Error> {
        let path = match (self.prefix.as_ref(), name) {
            ("", name) => Path::parse(name),
            (prefix, "") => Path::parse(prefix),
            (prefix, name) => Path::parse(format!("{prefix}/{name}")),
        };
        path.map_err(|error| {
            let message = format!("`{name}` cannot be the name of an object: {error}");
            Error::Usage { message, hint: "rename the file, or pack the data first".into() }
        })
    }

    /// Runs something async to its end.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Reads an object of at most `most` bytes and its version; `None` if it does not exist.
    pub(crate) async fn get(&self, name: &str, most: u64) -> Result<Option<(Vec<u8>, UpdateVersion)>, Error> {
        let path = self.path(name)?;
        let got = self.patiently("read", name, || async {
            let result = match self.store.get(&path).await {
                Err(StoreError::NotFound { source, .. }) if !names_bucket(&source.to_string()) => return Ok(None),
                other => other?,
            };
            let version = UpdateVersion { e_tag: result.meta.e_tag.clone(), version: result.meta.version.clone() };
            if result.meta.size > most {
                return Ok(Some((None, version)));
            }
            Ok(Some((Some(self.body(result.into_stream(), most).await?), version)))
        });
        match got.await? {
            None => Ok(None),
            Some((Some(bytes), version)) => Ok(Some((bytes, version))),
            Some((None, _)) => Err(self.damaged(name, format!("it is longer than {most} bytes"))),
        }
    }

    /// Exactly these bytes of an object, of this version if one is named.
    pub(crate) async fn range(&self, name: &str, range: Range<u64>, etag: Option<&str>) -> Result<Vec<u8>, Error> {
        let path = self.path(name)?;
        let length = range.end - range.start;
        let came = self.patiently("read", name, || async {
            // An object that ends earlier does so at every try.
            let result = match self.store.get_opts(&path, options(range.clone(), etag)).await {
                Err(error @ StoreError::Generic { .. }) if self.may_end(&error) => {
                    return self.end_before(&path, range.end).await.map(Err).ok_or(error);
                }
                other => other?,
            };
            let all = result.meta.size;
            let bytes = self.body(result.into_stream(), length).await?;
            match bytes.len() as u64 == length {
                true => Ok(Ok(bytes)),
                false if all < range.end => Ok(Err(all)),
                false => Err(generic(format!("{} of {length} bytes came", bytes.len()))),
            }
        });
        let cut_short = |all| self.damaged(name, format!("it is cut short: it ends at byte {all} of {}", range.end));
        came.await?.map_err(cut_short)
    }

    /// Streams a range, of this version if one is named: `take` gets the bytes in order, at least [`GRAIN`] at a time
    /// except for the last. If the connection breaks, bytes that were passed on are not fetched again.
    ///
    /// # Errors
    /// [`Error`], and errors of `take`.
    pub(crate) async fn pour<F>(
        &self,
        name: &str,
        range: Range<u64>,
        etag: Option<&str>,
        take: impl FnMut(Vec<u8>) -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let path = self.path(name)?;
        let at = Cell::new(range.start);
        let take = Mutex::new(take);
        let poured = self.patiently("read", name, || async {
            let rest = at.get()..range.end;
            let result = match self.store.get_opts(&path, options(rest.clone(), etag)).await {
                Err(error @ StoreError::Generic { .. }) if self.may_end(&error) => {
                    return self.end_before(&path, range.end).await.map(Ending::Short).ok_or(error);
                }
                other => other?,
            };
            let all = result.meta.size;
            let (mut stream, mut grain) = (result.into_stream(), Vec::new());
            loop {
                let next = timeout(self.limits.stall, stream.try_next()).await;
                let next = next.map_err(|_| generic(format!("the store sent nothing for {:?}", self.limits.stall)))?;
                let next = next?;
                let is_end = next.is_none();
                if let Some(more) = next {
                    grain.extend_from_slice(&more);
                }
                let come = at.get() + grain.len() as u64;
                if come > range.end {
                    return Err(generic("the store sent more bytes than were requested".to_owned()));
                }
                if !grain.is_empty() && (grain.len() >= GRAIN || is_end) {
                    let taken = (*take.lock().await)(std::mem::take(&mut grain)).await;
                    if let Err(error) = taken {
                        return Ok(Ending::Refused(error));
                    }
                    at.set(come);
                }
                if !is_end {
                    continue;
                }
                return match come == range.end {
                    true => Ok(Ending::Whole),
                    false if all < range.end => Ok(Ending::Short(all)),
                    false => Err(generic(format!("{} of {} bytes came", come - rest.start, rest.end - rest.start))),
                };
            }
        });
        match poured.await? {
            Ending::Whole => Ok(()),
            Ending::Refused(error) => Err(error),
            Ending::Short(all) => {
                Err(self.damaged(name, format!("it is cut short: it ends at byte {all} of {}", range.end)))
            }
        }
    }

    /// Whether the error may be a service's answer to a range that begins beyond an object's end.
    fn may_end(&self, error: &StoreError) -> bool {
        self.endpoint.is_none() || status(&chain(error)) == Some(416)
    }

    /// Where an object ends, if that is earlier than here.
    async fn end_before(&self, path: &Path, end: u64) -> Option<u64> {
        let meta = self.store.head(path).await.ok()?;
        (meta.size < end).then_some(meta.size)
    }

    /// Streams a complete object: offset and bytes. Restarts when the connection breaks.
    ///
    /// # Errors
    /// [`Error`], and errors of `take`.
    pub(crate) async fn whole(
        &self,
        name: &str,
        bytes: u64,
        take: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = self.path(name)?;
        let take = RefCell::new(take);
        let fetched = self.patiently("read", name, || async {
            let result = self.store.get(&path).await?;
            let kind = result.attributes.get(&Attribute::ContentType).map(|kind| kind.to_string());
            let is_page = kind.is_some_and(|kind| kind.starts_with("text/html"));
            if is_page && !path.as_ref().ends_with(".html") && !path.as_ref().ends_with(".htm") {
                return Ok(Err(Error::Missing { location: self.address(name), hint: NO_LIST.into() }));
            }
            if result.meta.size != bytes {
                let found = format!("it has {} bytes, not {bytes}", result.meta.size);
                return Ok(Err(self.damaged(name, found)));
            }
            let mut stream = result.into_stream();
            let mut at = 0;
            loop {
                let next = timeout(self.limits.stall, stream.try_next()).await;
                let next = next.map_err(|_| generic(format!("the store sent nothing for {:?}", self.limits.stall)))?;
                let Some(more) = next? else { break };
                if at + more.len() as u64 > bytes {
                    return Err(generic("the store sent more bytes than were requested".to_owned()));
                }
                let taken = take.borrow_mut()(at, &more);
                if let Err(error) = taken {
                    return Ok(Err(error));
                }
                at += more.len() as u64;
            }
            match at == bytes {
                true => Ok(Ok(())),
                false => Err(generic(format!("{at} of {bytes} bytes came"))),
            }
        });
        fetched.await?
    }

    /// Reads a body that may stand still for so long only.
    async fn body(
        &self,
        mut stream: impl futures::Stream<Item = Result<impl AsRef<[u8]>, StoreError>> + Unpin,
        most: u64,
    ) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        loop {
            let next = timeout(self.limits.stall, stream.try_next()).await;
            let next = next.map_err(|_| generic(format!("the store sent nothing for {:?}", self.limits.stall)))?;
            let Some(more) = next? else { return Ok(bytes) };
            self.heard.note();
            bytes.extend_from_slice(more.as_ref());
            if bytes.len() as u64 > most {
                return Err(generic("the store sent more bytes than were requested".to_owned()));
            }
        }
    }

    /// The length and version of an object; `None` if it does not exist.
    pub(crate) async fn look(&self, name: &str) -> Result<Option<Object>, Error> {
        let path = self.path(name)?;
        self.patiently("look for", name, || async {
            match self.store.head(&path).await {
                Ok(meta) => Ok(Some(Object::of(name.to_owned(), meta))),
                Err(StoreError::NotFound { source, .. }) if !names_bucket(&source.to_string()) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// An object's address, for messages.
    pub(crate) fn address(&self, name: &str) -> String {
        match name {
            "" => self.location.to_string(),
            name => format!("{}/{name}", self.location),
        }
    }

    pub(crate) fn damaged(&self, name: &str, why: impl Into<String>) -> Error {
        Error::Damaged { location: self.address(name), why: why.into() }
    }
}

/// Requests a range, of a version if one is named.
fn options(range: Range<u64>, etag: Option<&str>) -> GetOptions {
    GetOptions { range: Some(range.into()), if_match: etag.map(str::to_owned), ..GetOptions::default() }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("location", &self.location).finish_non_exhaustive()
    }
}
