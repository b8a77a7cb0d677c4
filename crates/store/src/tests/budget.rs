//! A network on which a transfer is killed long before every stream has moved a whole part: what came is kept.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, GetResultPayload, ListResult, MultipartId,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result as StoreResult,
};

use super::*;

/// A store that carries so many bytes, in packets that all requests under way send in turn, and then nothing.
#[derive(Debug)]
struct Budget {
    inner: Arc<InMemory>,
    left: Arc<AtomicI64>,
}

const PACKET: usize = 64 << 10;

/// Lets some bytes through after all others had their turn.
async fn carry(left: &AtomicI64, bytes: usize) -> StoreResult<()> {
    tokio::task::yield_now().await;
    match left.fetch_sub(bytes as i64, Ordering::Relaxed) >= bytes as i64 {
        true => Ok(()),
        false => Err(StoreError::NotSupported { source: "killed".into() }),
    }
}

impl Budget {
    fn new(inner: &Arc<InMemory>, bytes: i64) -> Arc<Budget> {
        Arc::new(Budget { inner: inner.clone(), left: Arc::new(bytes.into()) })
    }

    /// Nothing is answered once the budget is spent.
    fn alive(&self) -> StoreResult<()> {
        match self.left.load(Ordering::Relaxed) >= 0 {
            true => Ok(()),
            false => Err(StoreError::NotSupported { source: "killed".into() }),
        }
    }

    async fn carry_all(&self, bytes: usize) -> StoreResult<()> {
        for start in (0..bytes).step_by(PACKET) {
            carry(&self.left, PACKET.min(bytes - start)).await?;
        }
        Ok(())
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "budget")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Budget {
    async fn put_opts(&self, to: &Path, payload: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        self.carry_all(payload.content_length()).await?;
        self.inner.put_opts(to, payload, options).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> StoreResult<Box<dyn MultipartUpload>> {
        Err(StoreError::NotSupported { source: "not used".into() })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        self.alive()?;
        let is_head = options.head;
        let result = self.inner.get_opts(location, options).await?;
        let (meta, range) = (result.meta.clone(), result.range.clone());
        let (attributes, extensions) = (result.attributes.clone(), result.extensions.clone());
        let bytes = if is_head { bytes::Bytes::new() } else { result.bytes().await? };
        let packets: Vec<bytes::Bytes> =
            (0..bytes.len()).step_by(PACKET).map(|at| bytes.slice(at..bytes.len().min(at + PACKET))).collect();
        let left = self.left.clone();
        let carried = stream::iter(packets).then(move |packet| {
            let left = left.clone();
            async move { carry(&left, packet.len()).await.map(|()| packet) }
        });
        let payload = GetResultPayload::Stream(carried.boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(&self, locations: BoxStream<'static, StoreResult<Path>>) -> BoxStream<'static, StoreResult<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait::async_trait]
impl MultipartStore for Budget {
    async fn create_multipart(&self, path: &Path) -> StoreResult<MultipartId> {
        self.alive()?;
        self.inner.create_multipart(path).await
    }

    async fn put_part(&self, path: &Path, id: &MultipartId, number: usize, data: PutPayload) -> StoreResult<PartId> {
        self.carry_all(data.content_length()).await?;
        self.inner.put_part(path, id, number, data).await
    }

    async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> StoreResult<PutResult> {
        self.alive()?;
        self.inner.complete_multipart(path, id, parts).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> StoreResult<()> {
        self.inner.abort_multipart(path, id).await
    }
}

/// A store behind eight streams with parts of 8 MiB, as commands use it.
fn usual(store: Arc<Budget>) -> Remote {
    let mut remote = remote(store);
    remote.limits = Limits { streams: 8, part: 8 << 20, ..limits() };
    remote
}

/// Kills a transfer each time that so many bytes went over the network; returns how often until it is done.
fn killed(mut transfer: impl FnMut(Remote) -> bool, inner: &Arc<InMemory>, bytes: i64) -> usize {
    let done = |_: &usize| transfer(usual(Budget::new(inner, bytes)));
    (0..100).find(done).expect("a transfer that gets on")
}

/// 48 MiB over a network that carries 16 MiB between two kills: each loses less than half of that, where 64 MiB could
/// be under way. A pull loses what is on its way and not a whole piece yet; a push its unfinished parts.
#[test]
fn transfers_that_are_killed_early_get_on() {
    for form in [StoreFormat::Chunks, StoreFormat::Plain] {
        let (scene, inner) = (Scene::new(), Arc::new(InMemory::new()));
        fs::create_dir_all(scene.path("here")).unwrap();
        for number in 0..3 {
            fs::write(scene.path(&format!("here/{number}")), Draws::new(number).bytes(16 << 20)).unwrap();
        }
        let options = scene.options(form);
        let kills =
            killed(|remote| push(&scene.path("here"), &remote, &options, &Meter::default()).is_ok(), &inner, 16 << 20);
        assert!(kills <= 6, "{form:?}: {kills} kills of a push");
        let kills =
            killed(|remote| pull(&remote, &scene.path("there"), &options, &Meter::default()).is_ok(), &inner, 16 << 20);
        assert!(kills <= 6, "{form:?}: {kills} kills of a pull");
        assert_eq!(read(&scene.path("there")), read(&scene.path("here")));
    }
}
