//! Asking for bytes that are remote: one connection a reading thread, used again by the next.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{AccessTime, ByteRange, RangeRequest, RemoteListing, listing_of, read_answer, write_request};
use crate::files::cache::CacheCounts;

/// The files of one folder that are remote.
#[derive(Debug)]
pub(crate) struct Client {
    folder: PathBuf,
    socket: PathBuf,
    /// Number and length of each file, by its path below the folder.
    files: HashMap<PathBuf, (u32, u64)>,
    idle: Mutex<Vec<UnixStream>>,
    kept: AtomicU64,
    fetched: AtomicU64,
}

/// The clients in use by this process: all readers of a folder share one, and its counters.
static CLIENTS: Mutex<Vec<(PathBuf, Weak<Client>)>> = Mutex::new(Vec::new());

impl Client {
    /// The client of a remote file or folder; `None` if it is local.
    ///
    /// # Errors
    /// If the folder says that its files are remote, but its listing is malformed.
    pub fn of(path: &Path) -> io::Result<Option<Arc<Client>>> {
        let mut known = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, client)| client.strong_count() > 0);
        if let Some(found) = known.iter().find(|(folder, _)| path.starts_with(folder)).and_then(|(_, c)| c.upgrade()) {
            return Ok(Some(found));
        }
        let Some((folder, listing)) = listing_of(path)? else { return Ok(None) };
        let client = Arc::new(Client::new(folder.clone(), listing));
        known.push((folder, Arc::downgrade(&client)));
        Ok(Some(client))
    }

    fn new(folder: PathBuf, listing: RemoteListing) -> Client {
        let files = listing.files.into_iter().zip(0..);
        let files = files.map(|(hole, number)| (PathBuf::from(hole.name), (number, hole.bytes))).collect();
        let (idle, kept, fetched) = (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        Client { folder, socket: listing.socket, files, idle, kept, fetched }
    }

    /// Number and length of a remote file; `None` for a local one.
    pub fn file(&self, path: &Path) -> Option<(u32, u64)> {
        self.files.get(path.strip_prefix(&self.folder).ok()?).copied()
    }

    /// Fills `bytes` with those of a span, which is as long.
    pub fn read(&self, span: ByteRange, when: AccessTime, bytes: &mut [u8]) -> io::Result<()> {
        let mut stream = self.stream()?;
        write_request(&mut stream, &RangeRequest::Read(span, when))?;
        let answer = read_answer(&mut stream, bytes)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        let counter = match answer.map_err(io::Error::other)? {
            true => &self.kept,
            false => &self.fetched,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Announces upcoming reads. Errors are reported by the reads themselves.
    pub fn expect(&self, spans: impl Iterator<Item = (ByteRange, AccessTime)>) {
        let Ok(mut stream) = self.stream() else { return };
        for (span, when) in spans {
            if write_request(&mut stream, &RangeRequest::Expect(span, when)).is_err() {
                return;
            }
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }

    /// Reads served from the cache, and from remote storage.
    pub fn counts(&self) -> CacheCounts {
        CacheCounts { hits: self.kept.load(Ordering::Relaxed), misses: self.fetched.load(Ordering::Relaxed) }
    }

    fn stream(&self) -> io::Result<UnixStream> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(stream) => Ok(stream),
            None => UnixStream::connect(&self.socket)
                .map_err(|error| io::Error::other(format!("the server of remote data is gone: {error}"))),
        }
    }
}
