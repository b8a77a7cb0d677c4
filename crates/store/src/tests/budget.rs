//! On a network where a transfer is killed long before every stream has moved a complete part, received data is
//! retained.

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

/// A store that transfers a number of bytes, in packets that all requests in flight send in turn, and then nothing.
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

    /// There are no answers once the budget is spent.
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

/// Bytes that the network transfers between two kills, and how many of them a kill may lose: those in transit that are
/// not a complete chunk yet, or unfinished parts.
const CARRIED: i64 = 16 << 20;
const LOST: u64 = 9 << 20;

/// Kills a transfer of `bytes` each time that the network has carried `most`, and asserts that each kill loses `lost` of
/// them at most.
fn killed(
    what: &str,
    bytes: u64,
    inner: &Arc<InMemory>,
    (most, lost): (i64, u64),
    mut transfer: impl FnMut(Remote) -> bool,
) {
    let (mut kills, mut carried) = (0_u64, 0_u64);
    loop {
        let budget = Budget::new(inner, most);
        let is_done = transfer(usual(budget.clone()));
        carried += (most - budget.left.load(Ordering::Relaxed).max(0)) as u64;
        if is_done {
            break;
        }
        kills += 1;
        assert!(kills < 100, "{what} that never ends");
    }
    let kept = 100.0 * (1.0 - (carried.saturating_sub(bytes)) as f64 / (kills as f64 * most as f64));
    println!(
        "{what}: {kills} kills, {carried} bytes carried for {bytes}: {kept:.0} % of what came before a kill was kept"
    );
    assert!(kills >= 2 && carried <= bytes + kills * lost, "{what}: {carried} bytes for {bytes} with {kills} kills");
}

/// 48 MiB over a network that carries 16 MiB between two kills: each loses at most 9 MiB, where 64 MiB could be
/// under way.
#[test]
fn transfers_that_are_killed_early_get_on() {
    for form in [StoreFormat::Chunks, StoreFormat::Plain] {
        let (scene, inner) = (Scene::new(), Arc::new(InMemory::new()));
        fs::create_dir_all(scene.path("here")).unwrap();
        for number in 0..3 {
            fs::write(scene.path(&format!("here/{number}")), Draws::new(number).bytes(16 << 20)).unwrap();
        }
        let options = scene.options(form);
        killed(&format!("{form:?}, push"), 48 << 20, &inner, (CARRIED, LOST), |remote| {
            push(&scene.path("here"), &remote, &options, &Meter::default()).is_ok()
        });
        killed(&format!("{form:?}, pull"), 48 << 20, &inner, (CARRIED, LOST), |remote| {
            pull(&remote, &scene.path("there"), &options, &Meter::default()).is_ok()
        });
        assert_eq!(read(&scene.path("there")), read(&scene.path("here")));
    }
}

/// A plain object keeps what came of an unfinished part: 3 MiB between two kills, of parts of 8 MiB, lose what is not
/// written yet and a packet on the way.
#[test]
fn a_plain_pull_keeps_the_beginnings_of_parts() {
    let (scene, inner) = (Scene::new(), Arc::new(InMemory::new()));
    fs::create_dir_all(scene.path("here")).unwrap();
    fs::write(scene.path("here/x"), Draws::new(9).bytes(20 << 20)).unwrap();
    let options = scene.options(StoreFormat::Plain);
    push(&scene.path("here"), &usual(Budget::new(&inner, i64::MAX)), &options, &Meter::default()).unwrap();
    let lost = (2 * crate::remote::GRAIN + PACKET) as u64;
    killed("a plain pull of one object", 20 << 20, &inner, (3 << 20, lost), |remote| {
        pull(&remote, &scene.path("there"), &options, &Meter::default()).is_ok()
    });
    assert!(read(&scene.path("there")) == read(&scene.path("here")));
}

/// The noted beginning of a part is not trusted: its bytes are compared with its hash.
#[test]
fn a_damaged_beginning_of_a_part_is_fetched_again() {
    let (scene, inner) = (Scene::new(), Arc::new(InMemory::new()));
    fs::create_dir_all(scene.path("here")).unwrap();
    fs::write(scene.path("here/x"), Draws::new(10).bytes(8 << 20)).unwrap();
    let options = scene.options(StoreFormat::Plain);
    push(&scene.path("here"), &usual(Budget::new(&inner, i64::MAX)), &options, &Meter::default()).unwrap();
    let pull =
        |budget: i64| pull(&usual(Budget::new(&inner, budget)), &scene.path("there"), &options, &Meter::default());
    assert!(pull(3 << 20).is_err());
    let unfinished = crate::pull::part_name("x");
    let file = fs::File::options().write(true).open(scene.path("there").join(unfinished)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"other", 1000).unwrap();
    assert_eq!(pull(i64::MAX).unwrap().received, 8 << 20);
    assert!(read(&scene.path("there")) == read(&scene.path("here")));
}
