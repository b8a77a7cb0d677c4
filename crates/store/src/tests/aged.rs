//! An in-memory store with a simulated clock, which can be killed or corrupt what it receives.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::*;

#[derive(Debug)]
pub(super) struct Aged {
    inner: InMemory,
    now: Mutex<DateTime<Utc>>,
    written: Mutex<BTreeMap<Path, DateTime<Utc>>>,
    /// Requests until everything fails.
    pub left: AtomicI64,
    pub corrupts: AtomicBool,
}

impl Aged {
    pub fn new() -> Arc<Aged> {
        Arc::new(Aged {
            inner: InMemory::new(),
            now: Mutex::new(DateTime::from_timestamp(1_700_000_000, 0).unwrap()),
            written: Mutex::default(),
            left: i64::MAX.into(),
            corrupts: false.into(),
        })
    }

    /// Moves the clock.
    pub fn later(&self, time: TimeDelta) {
        *self.now.lock().unwrap() += time;
    }

    fn step(&self) -> Result<()> {
        match self.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            true => Ok(()),
            false => Err(Error::NotSupported { source: "killed".into() }),
        }
    }

    fn write(&self, path: &Path) {
        self.written.lock().unwrap().insert(path.clone(), *self.now.lock().unwrap());
    }

    fn dated(&self, meta: ObjectMeta) -> ObjectMeta {
        let written = self.written.lock().unwrap()[&meta.location];
        ObjectMeta { last_modified: written, ..meta }
    }
}

impl fmt::Display for Aged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aged")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Aged {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.step()?;
        let mut bytes: Vec<u8> = payload.iter().flatten().copied().collect();
        if self.corrupts.load(Ordering::Relaxed) {
            bytes[0] ^= 1;
        }
        let put = self.inner.put_opts(path, bytes.into(), options).await?;
        self.write(path);
        Ok(put)
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotSupported { source: "not used".into() })
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.step()?;
        let got = self.inner.get_opts(path, options).await?;
        Ok(GetResult { meta: self.dated(got.meta.clone()), ..got })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.step() {
            Ok(()) => self.inner.delete_stream(locations),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if let Err(error) = self.step() {
            return stream::once(async { Err(error) }).boxed();
        }
        let written = self.written.lock().unwrap().clone();
        let dated = move |meta: ObjectMeta| ObjectMeta { last_modified: written[&meta.location], ..meta };
        self.inner.list(prefix).map(move |meta| meta.map(&dated)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait::async_trait]
impl MultipartStore for Aged {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.step()?;
        self.inner.create_multipart(path).await
    }

    async fn put_part(&self, path: &Path, id: &MultipartId, number: usize, data: PutPayload) -> Result<PartId> {
        self.step()?;
        self.inner.put_part(path, id, number, data).await
    }

    async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        self.step()?;
        let put = self.inner.complete_multipart(path, id, parts).await?;
        self.write(path);
        Ok(put)
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.inner.abort_multipart(path, id).await
    }
}
