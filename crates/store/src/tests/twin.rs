//! An in-memory store that counts bytes and dies: from one request on, everything fails, as for a killed process. The
//! last request before may have been carried out without an answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::*;

/// Its error is permanent and not retried.
fn dead<T>() -> Result<T> {
    Err(Error::NotSupported { source: "killed".into() })
}

#[derive(Debug)]
pub(super) struct Twin {
    pub inner: Arc<InMemory>,
    /// Requests until death; below zero it is dead. `i64::MAX` is never.
    pub left: AtomicI64,
    /// Bytes of bodies that were carried out, both ways.
    pub put: AtomicU64,
    pub got: AtomicU64,
}

impl Twin {
    pub fn new(inner: Arc<InMemory>, left: i64) -> Arc<Twin> {
        Arc::new(Twin { inner, left: left.into(), put: 0.into(), got: 0.into() })
    }

    /// Counts a request; the last one is carried out and not answered.
    fn step(&self) -> Result<bool> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            1 => Ok(false),
            left if left <= 0 => dead(),
            _ => Ok(true),
        }
    }
}

impl fmt::Display for Twin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "twin")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Twin {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let is_answered = self.step()?;
        self.put.fetch_add(payload.content_length() as u64, Ordering::Relaxed);
        let result = self.inner.put_opts(location, payload, options).await;
        if is_answered { result } else { dead() }
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        dead()
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if !self.step()? {
            return dead();
        }
        let is_head = options.head;
        let result = self.inner.get_opts(location, options).await?;
        if !is_head {
            self.got.fetch_add(result.range.end - result.range.start, Ordering::Relaxed);
        }
        Ok(result)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.step() {
            Ok(_) => self.inner.delete_stream(locations),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.step() {
            Ok(_) => self.inner.list(prefix),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait::async_trait]
impl MultipartStore for Twin {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        let is_answered = self.step()?;
        let result = self.inner.create_multipart(path).await;
        if is_answered { result } else { dead() }
    }

    async fn put_part(&self, path: &Path, id: &MultipartId, number: usize, data: PutPayload) -> Result<PartId> {
        let is_answered = self.step()?;
        self.put.fetch_add(data.content_length() as u64, Ordering::Relaxed);
        let result = self.inner.put_part(path, id, number, data).await;
        if is_answered { result } else { dead() }
    }

    async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        let is_answered = self.step()?;
        let result = self.inner.complete_multipart(path, id, parts).await;
        if is_answered { result } else { dead() }
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.step()?;
        self.inner.abort_multipart(path, id).await
    }
}
